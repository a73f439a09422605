// Forms whose meaning is egglog's (release 3.0), by small programs.
#include "egraph/serialize.h"
#include "programs.h"

#include <nlohmann/json.hpp>

namespace egret::egraph::test {
namespace {

TEST(Conformance, InequalityAsABooleanAndOrOfAnyNumber) {
  Session s;
  s.run(R"((datatype M (V i64)) (V 1) (V 2)
    (check (= (bool-!= 1 2) true) (= (bool-!= 1 1) false) (= (or true) true) (= (or false) false))
    (check (= (or false false false) false) (= (or false true false) true) (= (or true false) true))
    (check (guard (or (bool-!= (V 1) (V 2)) (bool-!= (V 1) (V 1)))))
    (check (filter (or (bool-!= 1 1) (bool-!= 2 3))))
    (fail (check (guard (or (bool-!= 1 1) (bool-!= 2 2))))) (fail (check (filter false))))");
}

TEST(Conformance, AMergeMayReadFunctionsAndFailsWhereOneHasNoValue) {
  Session s;
  s.run(R"((function foo () i64 :merge new) (function bar () i64 :merge (+ (foo) new))
    (set (bar) 0) (set (bar) 0) (fail (set (bar) 1)) (set (foo) 40) (set (bar) 2) (check (= (bar) 42)))");
}

TEST(Conformance, FactsAreEqualToThemselvesAlone) {
  Session s;
  s.run(
      R"((relation r (i64)) (relation same ()) (relation other ()) (relation pairs (i64 i64)) (r 1) (r 2)
    (rule ((= (r 1) (r 1))) ((same))) (rule ((= (r 1) (r 2))) ((other)))
    (rule ((= x (r a)) (= x (r b))) ((pairs a b)))
    (run 1) (check (same)) (fail (check (other))))");
  EXPECT_EQ(s.size("pairs"), 2u);
}

TEST(Conformance, WildcardsAndNestedTermsOnTheLeftOfASubsumingRewrite) {
  Session s;
  s.run(
      R"((sort M) (constructor A () M) (constructor B () M) (constructor F (M M) M) (constructor G (M) M)
    (function f (M) i64 :no-merge) (relation seen (M))
    (rewrite (F i _) i :subsume)
    (rewrite (G (F x _)) x :subsume)
    (rule ((= e (F x y))) ((seen e)))
    (let $x (F (A) (B))) (let $y (G (F (B) (A)))) (run 1)
    (check (= $x (A)) (= $y (B))))");
  EXPECT_EQ(s.size("F"), 2u); // nothing was built to be hidden
  EXPECT_EQ(s.run("(extract $x) (extract $y)"), "(A)\n(B)\n");
  s.run("(F (B) (B)) (run 1) (run 1)");
  EXPECT_EQ(s.size("seen"), 2u); // the classes of A and B
}

TEST(Conformance, NaiveRewritesMatchAllRowsAndMayReadFunctions) {
  Session s;
  s.run(R"((datatype M (N i64) (K i64)) (function f (i64) i64 :merge new) (set (f 1) 10)
    (rewrite (N x) (K (f x)) :naive) (N 1) (run 1) (set (f 1) 20) (run 1) (check (= (N 1) (K 20))))");
  EXPECT_EQ(s.size("K"), 2u);
}

TEST(Conformance, VariantsOfTermsWhoseCostIsBeyondAllNumbers) {
  Session s;
  std::string program = "(datatype M (Z) (A M M)) (let $x0 (Z))";
  for (int i = 0; i < 1100; ++i)
    program += "(let $x" + std::to_string(i + 1) + " (A $x" + std::to_string(i) + " $x" +
               std::to_string(i) + "))";
  s.run(program);
  EXPECT_NE(s.run("(extract $x1100 2)").find("(A "), std::string::npos);
}

TEST(Export, GlobalsAreRootsAndNamed) {
  Session s;
  s.run("(datatype M (V String) (Add M M)) (relation r (i64)) (r 1) (r 2)"
        "(let $e (Add (V \"caf\xE9\") (V \"b\"))) (let $n 7) (r $n)");
  const auto json = nlohmann::json::parse(to_json(s.interpreter.engine));
  ASSERT_EQ(json.at("root_eclasses").size(), 1u);
  const std::string root = json.at("root_eclasses")[0];
  EXPECT_EQ(json.at("class_data").at(root).at("let"), "$e");
  EXPECT_EQ(json.at("class_data").at(root).at("type"), "M");
  EXPECT_EQ(json.at("class_data").at("i64-7").at("let"), "$n");
  std::set<std::string> facts;
  std::size_t adds = 0;
  for (const auto& [id, node] : json.at("nodes").items()) {
    EXPECT_TRUE(json.at("class_data").contains(node.at("eclass").get<std::string>())) << id;
    for (const auto& child : node.at("children"))
      EXPECT_TRUE(json.at("nodes").contains(child.get<std::string>())) << id;
    if (node.at("op") == "r")
      facts.insert(node.at("eclass").get<std::string>());
    adds += node.at("op") == "Add" && node.at("eclass") == root && node.at("children").size() == 2;
  }
  EXPECT_EQ(facts.size(), 3u); // each fact is a value of its own
  EXPECT_EQ(adds, 1u);
  const std::string dot = to_dot(s.interpreter.engine);
  EXPECT_NE(dot.find("label=\"M\\n$e\""), std::string::npos) << dot;
  EXPECT_NE(dot.find("taillabel=\"2\""), std::string::npos);
  EXPECT_NE(dot.find("caf\uFFFD"), std::string::npos);
}

TEST(Export, TextsAreEscaped) {
  Session s;
  s.run("(relation r (String)) (r \"a \\\"quote\\\" \\\\ and\\n\\ttab \u00e9\")");
  const auto json = nlohmann::json::parse(to_json(s.interpreter.engine));
  std::set<std::string> ops;
  for (const auto& [id, node] : json.at("nodes").items())
    ops.insert(node.at("op").get<std::string>());
  EXPECT_TRUE(ops.contains("\"a \\\"quote\\\" \\\\ and\\n\\ttab \u00e9\""));
}

} // namespace
} // namespace egret::egraph::test

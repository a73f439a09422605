// The e-graph against naive references: congruence closure by definition, and semi-naive evaluation
// against naive evaluation.
#include "egret/egraph.h"

#include "egraph/interpreter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

namespace egret::egraph {
namespace {

/// Congruence closure by its definition: terms are equal if they were united or if their parts are
/// equal, until nothing changes.
struct NaiveClosure {
  struct Term {
    int function;
    std::vector<int> parts;
  };
  std::vector<Term> terms;
  std::vector<int> cls;

  int add(Term term) {
    for (std::size_t i = 0; i < terms.size(); ++i) {
      if (terms[i].function == term.function && terms[i].parts == term.parts)
        return static_cast<int>(i);
    }
    terms.push_back(std::move(term));
    cls.push_back(static_cast<int>(terms.size() - 1));
    return cls.back();
  }
  void unite(int a, int b) {
    int from = cls[a], to = cls[b];
    for (int& c : cls)
      c = c == from ? to : c;
  }
  void close() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t i = 0; i < terms.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
          if (cls[i] == cls[j] || terms[i].function != terms[j].function)
            continue;
          bool equal = true;
          for (std::size_t p = 0; p < terms[i].parts.size(); ++p)
            equal &= cls[terms[i].parts[p]] == cls[terms[j].parts[p]];
          if (equal) {
            unite(static_cast<int>(i), static_cast<int>(j));
            moved = true;
          }
        }
      }
    }
  }
};

TEST(CongruenceProperty, RebuildGivesTheCongruenceClosure) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    EGraph g;
    SortId sort = g.declare_sort("S");
    std::vector<FunctionId> functions;
    const int arities[] = {0, 0, 0, 1, 1, 2};
    for (int f = 0; f < 6; ++f)
      functions.push_back(g.declare_constructor(fmt::format("f{}", f),
                                                std::vector<SortId>(arities[f], sort), sort));
    NaiveClosure naive;
    std::vector<Value> values;
    for (int i = 0; i < 40; ++i) {
      NaiveClosure::Term term{values.empty() ? 0 : static_cast<int>(random() % 6), {}};
      std::vector<Value> args;
      for (int p = 0; p < arities[term.function]; ++p) {
        term.parts.push_back(static_cast<int>(random() % values.size()));
        args.push_back(values[term.parts.back()]);
      }
      std::size_t before = naive.terms.size();
      naive.add(term);
      Value value = g.add(functions[term.function], args);
      if (naive.terms.size() > before)
        values.push_back(value);
    }
    for (int batch = 0; batch < 3; ++batch) {
      for (int u = 0; u < 3; ++u) {
        int a = static_cast<int>(random() % values.size()),
            b = static_cast<int>(random() % values.size());
        naive.unite(a, b);
        g.unite(values[a], values[b]);
      }
      naive.close();
      g.rebuild();
      g.check();
      for (std::size_t i = 0; i < values.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j)
          ASSERT_EQ(g.equal(sort, values[i], values[j]), naive.cls[i] == naive.cls[j])
              << "round " << round;
      }
    }
  }
}

/// A random program: a graph, some rules with joins, primitives, unions and merges.
std::string random_program(std::mt19937& random) {
  auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::string out = R"(
    (datatype T (Leaf i64) (F T) (G T T))
    (relation edge (i64 i64)) (relation marked (T))
    (function low (T) i64 :merge (min old new))
  )";
  const char* const rules[] = {
      "(rewrite (G a b) (G b a))",
      "(rewrite (G a (F b)) (F (G a b)))",
      "(rewrite (F (F a)) (F a))",
      "(rule ((= e (G a b)) (marked a)) ((marked e)))",
      "(rule ((= e (Leaf n)) (edge n m)) ((Leaf m) (set (low e) m)))",
      "(rule ((= e (G a b)) (= x (low a)) (= y (low b)) (<= x y)) ((set (low e) (+ x y))))",
      "(rule ((= x (low a)) (= x (low b)) (= e (G a b))) ((union e (F a))))",
      "(rule ((edge a b) (edge b c) (!= a c)) ((edge a c)))",
      "(rule ((= e (G (Leaf a) (Leaf b))) (edge a b)) ((union (Leaf a) (Leaf b)) (marked e)))",
      "(rule ((marked e) (= e (G a b)) (= e (F c))) ((G c a)))",
      "(rule ((= e (G a (Leaf 2)))) ((marked e)))",
      "(rule ((= e (G (Leaf 1) (F (Leaf 3)))) (marked x)) ((union e (F x))))",
      "(rule ((marked (F (Leaf 2))) (edge a b)) ((edge b a)))",
      "(rule ((= (Leaf 1) (Leaf 2)) (= e (F x))) ((marked e)))",
  };
  for (const char* rule : rules) {
    if (pick(3) != 0)
      out += std::string(rule) + "\n";
  }
  for (int i = 0; i < 5; ++i)
    out += fmt::format("(edge {} {})\n", pick(5), pick(5));
  for (int i = 0; i < 4; ++i)
    out += fmt::format("(G (F (Leaf {})) (G (Leaf {}) (Leaf {})))\n", pick(5), pick(5), pick(5));
  out += "(marked (Leaf 1))\n(set (low (Leaf 2)) 3)\n";
  return out;
}

std::string sizes_after(const std::string& program, bool seminaive, int rounds) {
  Interpreter interpreter;
  interpreter.engine.seminaive = seminaive;
  std::string out;
  interpreter.print = [&](const std::string& line) { out += line; };
  interpreter.run_text("random.egg", program);
  for (int i = 0; i < rounds; ++i)
    interpreter.run_text("random.egg", "(run 1) (print-size)");
  return out;
}

TEST(SemiNaiveProperty, GivesWhatNaiveEvaluationGivesAfterEveryRound) {
  std::mt19937 random(11);
  for (int round = 0; round < 150; ++round) {
    std::string program = random_program(random);
    ASSERT_EQ(sizes_after(program, true, 5), sizes_after(program, false, 5)) << program;
  }
}

TEST(SemiNaiveProperty, ActsOnAllMatchesWhereMergesBuildTerms) {
  // Beside each rule one that is matched naively notes the matches of the same snapshots.
  struct Noted {
    const char *sorts, *variables, *premises, *actions;
  };
  const Noted rules[] = {
      {"i64 i64", "a b", "(edge a b)", "(set (best b) (Leaf a))"},
      {"i64 i64 T", "a b x", "(edge a b) (= x (best a))", "(set (best b) x)"},
      {"T i64 i64", "e m n", "(= e (Both (Leaf m) (Leaf n))) (<= m n)", "(union e (Leaf m))"},
      {"T i64 i64", "e m n", "(= e (Both (Leaf m) (Leaf n))) (> m n)", "(union e (Leaf n))"},
      {"T T T", "e x y", "(= e (Both x (Both x y)))", "(union e (Both x y))"},
      {"i64 i64", "a b", "(= x (best a)) (= x (best b)) (edge a b)", "(edge b a)"},
      {"i64", "a", "(= (best a) (Leaf 1)) (edge a b)", "(edge b b)"},
  };
  std::mt19937 random(17);
  for (int round = 0; round < 60; ++round) {
    std::string program = "(datatype T (Leaf i64) (Both T T)) (relation edge (i64 i64))"
                          "(function best (i64) T :merge (Both old new))\n";
    int count = 0;
    for (const Noted& rule : rules) {
      if (random() % 4 == 0)
        continue;
      program += fmt::format("(relation acted{0} ({1})) (relation found{0} ({1}))\n"
                             "(rule ({3}) ({4} (acted{0} {2})))\n"
                             "(rule ({3}) ((found{0} {2})) :naive)\n",
                             count++, rule.sorts, rule.variables, rule.premises, rule.actions);
    }
    for (int i = 0; i < 6; ++i)
      program += fmt::format("(edge {} {}) ", random() % 5, random() % 5);
    Interpreter interpreter;
    interpreter.print = [](const std::string&) {};
    interpreter.run_text("random.egg", program);
    for (int step = 0; step < 6; ++step) {
      interpreter.run_text("random.egg", "(run 1)");
      auto rows = [&](const char* name, int i) {
        const Engine& engine = interpreter.engine;
        return engine.table(*engine.signature.find_function(name + std::to_string(i))).live();
      };
      for (int i = 0; i < count; ++i)
        ASSERT_EQ(rows("acted", i), rows("found", i)) << "rule " << i << " of\n" << program;
    }
  }
}

TEST(SemiNaiveProperty, OnlyNaiveEvaluationMergesAnOldValueAgain) {
  const char* program = "(datatype T (A) (B) (Both T T)) (function f () T :merge (Both old new))"
                        "(relation go ()) (rule ((go)) ((set (f) (B)))) (set (f) (A)) (go)";
  EXPECT_NE(sizes_after(program, true, 2).find("(Both 1)"), std::string::npos);
  std::string naive = sizes_after(program, false, 2); // (Both A B), then (Both (Both A B) B)
  EXPECT_NE(naive.substr(naive.rfind("(Both")).find("(Both 2)"), std::string::npos) << naive;
}

TEST(DeterminismProperty, RepeatedRunsGiveTheSameBytes) {
  std::mt19937 random(13);
  for (int round = 0; round < 20; ++round) {
    std::string program = random_program(random) + "(run 4)";
    EGraph a, b;
    a.run_program(program);
    b.run_program(program);
    ASSERT_EQ(a.to_json(), b.to_json());
    EXPECT_EQ(a.clone().to_json(), b.to_json());
  }
}

} // namespace
} // namespace egret::egraph

// What egret run keeps and says of the values on the way, and egret diff of two such runs.
#include "egret/functional.h"
#include "egret/io.h"
#include "support/run_tool.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::Ran;

class ToolValues : public ::testing::Test {
protected:
  void SetUp() override {
    test::write_file(folder_ / "g.txt", "# sums of e^(x w)\n"
                                        "%x: f32[12,40] = input \"x\"\n"
                                        "%w: f32[12,40] = input \"w\"\n"
                                        "%p: f32[12,40] = mul(%x, %w)\n"
                                        "%e: f32[12,40] = exp(%p)\n"
                                        "%s: f32[12] = sum(%e) axes=[1]\n"
                                        "outputs %s\n");
    test::write_file(folder_ / "mine.egg",
                     "; group mine: exact\n(ruleset mine)\n; wrong\n"
                     "(rewrite (Exp x) x :ruleset mine :name \"exp-vanishes\")\n");
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  Ran run(const std::string& options, const std::string& before = "EGRET_CACHE=off") const {
    return egret_command("run " + path("g.txt") + " --seed 3 " + options, before);
  }
  Ran save(const std::string& name, const std::string& options = "") const {
    Ran ran = run("--save-values " + path(name) + " " + options);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran;
  }
  Ran diff(const std::string& first, const std::string& second,
           const std::string& options = "") const {
    return egret_command("diff " + path(first) + " " + path(second) + " " + options);
  }
  test::TempFolder folder_;
};

TEST_F(ToolValues, RunsAreSavedAndCompared) {
  const Ran plain = save("plain", "--no-fuse");
  expect_contains(plain.err, "5 values, 5 of them whole; 0 of 3 launches were there before");
  // The same bits as without; fused kernels may add in another order.
  EXPECT_EQ(plain.out, run("--no-fuse").out);
  EXPECT_EQ(save("quick", "--effort quick").out, run("--effort quick").out);
  const Ran same = diff("plain", "quick");
  EXPECT_EQ(same.code, 0) << same.out;
  expect_contains(same.out, "3 values compared: 3 agree, 0 differ; only in the first run: 2");
  expect_contains(save("plain", "--no-fuse").err, "3 of 3 launches were there before");
  expect_contains(save("small", "--no-fuse --values-limit 64").err, "5 values, 1 of them whole");

  const Ran reference = run("--save-values " + path("reference"), "EGRET_ENGINE=reference");
  EXPECT_EQ(reference.code, 0) << reference.err;
  EXPECT_EQ(diff("reference", "plain").code, 0);
  // What the record beside the values says is what egret view shows.
  EXPECT_EQ(egret_command("view " + path("plain/record.jsonl") + " --out " + path("p.html")).code,
            0);
}

TEST_F(ToolValues, APlantedRuleIsNamed) {
  save("plain", "--no-fuse");
  save("wrong", "--effort quick --rules " + path("mine.egg"));
  const Ran found = diff("plain", "wrong");
  EXPECT_EQ(found.code, 1);
  expect_contains(found.out, "first difference: %");
  expect_contains(found.out, "line 6 of " + path("g.txt"));
  expect_contains(found.out, "made by rule of the second run: exp-vanishes");
  const auto json = nlohmann::json::parse(diff("plain", "wrong", "--json").out);
  EXPECT_EQ(json["culprit"], "rules");
  EXPECT_EQ(json["names"][0], "exp-vanishes");
  EXPECT_EQ(json["run"], "second");
  EXPECT_EQ(json["differing"], 1);
  EXPECT_EQ(diff("plain", "wrong", "--tolerance 1e9").code, 0);
}

TEST_F(ToolValues, ARunThatWasCutShortIsNotEqual) {
  save("plain", "--no-fuse");
  save("cut", "--no-fuse");
  const std::string text = test::read_file(folder_ / "cut" / "values.jsonl");
  test::write_file(folder_ / "cut" / "values.jsonl",
                   text.substr(0, text.find("{\"event\":\"value\"")));
  const Ran none = diff("plain", "cut");
  EXPECT_EQ(none.code, 1) << none.out;
  expect_contains(none.out, "undecided: no value was compared, the second run was cut short\n");
  test::write_file(folder_ / "cut" / "values.jsonl",
                   text.substr(0, text.find("{\"event\":\"end\"")));
  const Ran some = diff("cut", "plain");
  EXPECT_EQ(some.code, 1) << some.out;
  expect_contains(some.out, "undecided: the first run was cut short\n5 values compared: 5 agree");
  const auto json = nlohmann::json::parse(diff("cut", "plain", "--json").out);
  EXPECT_EQ(json["complete"], false);
  EXPECT_EQ(json["cut_short"], nlohmann::json::array({"first"}));
  save("cut", "--no-fuse");
  EXPECT_EQ(diff("plain", "cut").code, 0);
}

TEST_F(ToolValues, TheOriginOfAnInfinityIsNamed) {
  const Ran none = run("--find-nan");
  EXPECT_EQ(none.code, 0) << none.err;
  expect_contains(none.err, "no NaN or infinity is made of finite values in 1 launches");
  io::save_npy(path("x.npy"), full({12, 40}, 100.0));
  io::save_npy(path("w.npy"), ones({12, 40}));
  for (const char* fuse : {"", " --no-fuse"}) {
    const Ran found = run("--find-nan -i x=" + path("x.npy") + " -i w=" + path("w.npy") + fuse);
    EXPECT_EQ(found.code, 1) << found.err;
    expect_contains(found.out, "exp(");
    expect_contains(found.out, "line 5 of " + path("g.txt"));
    expect_contains(found.out, "element [0,0] is inf, of 100");
  }
}

TEST_F(ToolValues, DebugTellsOfKernelsAndOfOperations) {
  const Ran kernels = run("--debug");
  EXPECT_EQ(kernels.code, 0) << kernels.err;
  expect_contains(kernels.err, "total of 1");
  expect_contains(kernels.err, "f32[12,40] f32[12,40] | min ");
  EXPECT_EQ(kernels.out, run("").out);
  const Ran ops = run("--debug --no-fuse --slowest-first");
  expect_contains(ops.err, "exp");
  EXPECT_EQ(ops.out, run("--no-fuse").out);
}

TEST_F(ToolValues, WrongUseIsRefused) {
  const auto refused = [&](const Ran& ran, int code, std::string_view part) {
    EXPECT_EQ(ran.code, code) << ran.err;
    expect_contains(ran.err, part);
  };
  save("plain", "--no-fuse");
  refused(run("--save-values " + path("plain")), 1, "holds another run");
  refused(run("--save-values " + path("g.txt")), 1, "values: ");
  const Ran nowhere = run("--find-nan --save-values /proc/x");
  refused(nowhere, 1, "values: /proc/x: ");
  EXPECT_EQ(nowhere.err.find("no NaN"), std::string::npos) << "it ran first: " << nowhere.err;
  refused(run("--save-values " + path("n") + " --values-limit much"), 2, "--values-limit");
  refused(run("--values-limit 1MB"), 2, "--save-values");
  refused(run("--debug --find-nan"), 2, "--find-nan");
  refused(run("--slowest-first"), 2, "--debug");
  refused(run("--find-nan", "EGRET_ENGINE=reference"), 2, "has none");
  refused(diff("plain", "nothing"), 2, "nothing");
  std::filesystem::create_directory(folder_ / "empty");
  refused(diff("plain", "empty"), 1, "values.jsonl");
  test::write_file(folder_ / "empty" / "values.jsonl", "{\"event\":\"record\"}\n");
  refused(diff("plain", "empty"), 1, "line 1");
}

} // namespace
} // namespace egret

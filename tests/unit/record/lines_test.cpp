// Where a program records its operations: lines of its source and the ranges that it names, in
// records, in traces and for tools. This file is compiled with its lines (-g1).
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "egret/profile.h"
#include "egret/range.h"
#include "egret/record.h"
#include "runtime/runtime.h"
#include "support/files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <map>
#include <sstream>

namespace egret {
namespace {

using nlohmann::json;

class Lines : public ::testing::Test {
protected:
  void SetUp() override {
    if (std::system("command -v addr2line >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "no addr2line here";
    runtime::Runtime::instance().clear_plans();
  }

  /// What a record says of the nodes of each op that the program recorded: "line within".
  std::map<std::string, std::vector<std::string>> nodes_of(const std::filesystem::path& path) {
    std::map<std::pair<int, int>, std::string> ops;
    std::map<int, std::string> files;
    std::map<std::string, std::vector<std::string>> found;
    std::istringstream text(test::read_file(path));
    for (std::string line; std::getline(text, line);) {
      const json event = json::parse(line);
      if (event["event"] == "node")
        ops[{event["program"], event["node"]}] = event["op"];
      if (event["event"] == "source") {
        files[event["source"]] = event["file"];
        EXPECT_NE(event["text"].get<std::string>().find("namespace egret"), std::string::npos);
      }
      if (event["event"] == "lines")
        for (const json& node : event["nodes"]) {
          EXPECT_TRUE(files.at(node["source"]).ends_with("lines_test.cpp"))
              << files[node["source"]];
          const std::string within = node.value("within", "");
          found[ops.at({event["program"], node["node"]})].push_back(
              std::to_string(node["line"].get<int>()) + (within.empty() ? "" : " " + within));
        }
    }
    return found;
  }

  test::TempFolder folder_;
};

using Places = std::vector<std::string>;

TEST_F(Lines, OfLazyOperationsAreInARecord) {
  const Tensor x = ones({3, 5}).eval();
  const auto path = folder_ / "r.jsonl";
  int line = 0;
  {
    Record record(path.string());
    line = __LINE__ + 1;
    const Tensor e = exp(x);
    const Tensor y = e.sum(-1);
    y.eval();
    record.close();
  }
  auto found = nodes_of(path);
  EXPECT_EQ(found["exp"], Places{std::to_string(line)});
  EXPECT_EQ(found["sum"], Places{std::to_string(line + 1)});
}

TEST_F(Lines, OfCompiledFunctionsAreTheCallersInItsRanges) {
  const Tensor x = ones({4, 4}).eval();
  const auto path = folder_ / "r.jsonl";
  int line = 0;
  {
    Record record(path.string());
    auto f = compile([&](const Tensor& in) {
      const Range outer("encoder");
      const Range inner("layer 3");
      line = __LINE__ + 1;
      return softmax(in, -1); // whose own operations are the library's
    });
    f(x).eval();
    record.close();
  }
  const auto found = nodes_of(path);
  ASSERT_TRUE(found.contains("exp"));
  for (const auto& [op, places] : found)
    for (const std::string& place : places)
      EXPECT_EQ(place, std::to_string(line) + " encoder/layer 3") << op;
}

TEST_F(Lines, OfGradientsAreThoseOfTheOperations) {
  const Tensor x = ones({4}).eval().set_requires_grad();
  const auto path = folder_ / "r.jsonl";
  int line = 0;
  {
    Record record(path.string());
    Tensor loss;
    {
      const Range range("model");
      line = __LINE__ + 1;
      loss = sin(x).sum();
    }
    grad(loss, x).eval();
    record.close();
  }
  auto found = nodes_of(path);
  EXPECT_EQ(found["cos"], Places{std::to_string(line) + " gradient/model"});
}

TEST_F(Lines, OfExplicitGraphsOutliveTheirPasses) {
  const auto path = folder_ / "r.jsonl";
  int line = 0;
  {
    Record record(path.string());
    Graph cx;
    auto a = cx.tensor({3}).set({1, 2, 3});
    line = __LINE__ + 1;
    auto y = (exp(a) * 1 + 0).retrieve();
    cx.compile(Generic{} | Fusion{}, &y);
    cx.execute();
    record.close();
  }
  auto found = nodes_of(path);
  EXPECT_EQ(found["exp"], Places{std::to_string(line)});
}

TEST_F(Lines, AndRangesAreInATrace) {
  const Tensor x = ones({300}).eval();
  const auto path = folder_ / "t.json";
  int line = 0;
  {
    Profile profile(path.string());
    const Range step("step");
    {
      const Range range("forward");
      line = __LINE__ + 1;
      (exp(x) * 3).eval();
    }
    profile.close();
  }
  Places lines, ranges;
  const json trace = json::parse(test::read_file(path));
  for (const json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") == "launches")
      for (const json& one : event["args"]["lines"])
        lines.push_back(one);
    if (event.value("cat", "") == "ranges")
      ranges.push_back(event["name"]);
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(lines[0].ends_with("lines_test.cpp:" + std::to_string(line))) << lines[0];
  EXPECT_EQ(ranges, Places{"forward"}); // "step" goes on
}

TEST(Ranges, AreShownToAToolThatWatchesTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe"); // a process whose first range this is
  EXPECT_EXIT(
      {
        ::setenv("NVTX_INJECTION64_PATH", EGRET_FAKE_NVTX, 1);
        {
          const Range outer("step");
          const Range inner("forward");
        }
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "\\[step\n\\[forward\n\\]\n\\]\n");
  EXPECT_EXIT(
      {
        ::setenv("NVTX_INJECTION64_PATH", "/nowhere/tool.so", 1);
        const Range range("step"); // there is no such tool
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "^$");
}

} // namespace
} // namespace egret

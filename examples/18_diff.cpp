// Two runs of a graph, value by value: where they differ first, and why (docs/seeing.md).
//
//   plain: 5 values
//   fused: 2 values
//   2 values compared: 2 agree, 0 differ; only in the first run: 3, only in the second: 0
//   mistaken: 4 values
//   first difference: %9: f32[2] = add(%5, %8)
//     element [0] is 17.237747 in the first run, 6 in the second (tolerance 0.0001 of f32); 2 of 2
//     elements differ
//     kernels are right; the graphs that were given differ
//   3 values compared: 2 agree, 1 differ; only in the first run: 2, only in the second: 1
#include "egret/functional.h"
#include "egret/graph.h"

#include <filesystem>
#include <iostream>

using namespace egret;

int main() {
  const auto folder = std::filesystem::temp_directory_path() / "egret_example_values";
  std::filesystem::remove_all(folder);
  const auto run = [&](const char* name, const Pass& passes) {
    Graph cx;
    auto x = cx.tensor({2, 4}, DType::F32, "x").set({1, 2, 3, 4, 5, 6, 7, 8});
    auto y = (exp(x * 0.5).sum(-1) + 1).retrieve();
    cx.compile(passes, &y);
    std::cout << name << ": " << cx.save_values((folder / name).string()) << " values\n";
    return (folder / name).string();
  };
  const std::string plain = run("plain", Generic{}), fused = run("fused", Generic{} | Fusion{});
  const ValueDifference none = diff_values(plain, fused);
  std::cout << none.text;

  // A pass that is wrong: e^x becomes x.
  const pattern::Rewrite mistake{"exp_vanishes", pattern::node(Op::Exp, {pattern::any("x")}),
                                 [](ir::Graph&, const pattern::Match& m) { return m["x"]; }};
  const ValueDifference found = diff_values(plain, run("mistaken", Pass(mistake) | Generic{}));
  std::cout << found.text;
  std::filesystem::remove_all(folder);
  return none.differing == 0 && found.culprit == "graph" ? 0 : 1;
}

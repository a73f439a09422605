// A linear layer on an explicit graph, each step of its compilation looked at: the graph as it is
// recorded, the passes, the e-graph of its rewrites, the loop form, and a run operation by
// operation.
//
//   there is no matmul: 1 product and 1 sum over it
//   ...
//   11 12 13 14 15
#include "egret/display.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "egret/search_steps.h"

#include <cmath>
#include <filesystem>
#include <iostream>

using namespace egret;

int main() {
  // The input 1, 2, 3, 4 by weights 0.1, 0.2, ..., 2.0 of four rows and five columns.
  Graph cx;
  auto input = cx.tensor({1, 4}, DType::F32, "Input").set({1, 2, 3, 4}).keep();
  auto weight = cx.tensor({4, 5}, DType::F32, "Weight")
                    .set((arange(1, 21).to(DType::F32) * 0.1).reshape({4, 5}))
                    .keep();
  auto output = matmul(input, weight).retrieve();

  // The recorded graph in a browser, with marks: open the file, or serve it with ServedDisplay.
  const auto folder = std::filesystem::temp_directory_path();
  const auto page = folder / "egret_linear.html", trees = folder / "egret_linear_loops.svg";
  display(cx, {{"mul", "orange", "broadcast product"}, {"sum", "teal", "sum over k"}},
          page.string());
  std::filesystem::remove(page);
  using pattern::any, pattern::node;
  const ir::Graph recorded = ir::parse_graph(cx.text());
  const auto products = find(recorded, node(Op::ReduceSum, {node(Op::Mul, {any("a"), any("b")})}));
  std::cout << "there is no matmul: " << products.size() << " product and 1 sum over it\n";

  // The search space of its rewrites: terms and rules fill an e-graph, of which the cheapest form
  // is extracted.
  egraph::EGraph space = tensor_egraph();
  const std::string program = rewrite_program(recorded);
  const std::string extracted = space.run_program(program);
  std::cout << "the rewrites' program has " << program.size() << " characters, its e-graph "
            << space.to_json().size() << " of JSON; extracted:\n"
            << extracted << "\n";

  // Passes in order, and the device on which the graph runs.
  cx.compile(Generic{} | Fusion{} | OnDevice("cpu"), &output);
  std::cout << cx.report();

  // The loop form: a schedule for each kernel, its loops, a picture.
  std::cout << cx.schedules() << cx.loops();
  display_loops(cx, trees.string());
  std::filesystem::remove(trees);

  // Operation by operation with values and times; then as it was compiled.
  std::cout << cx.execute_debug().text();
  cx.execute();
  bool right = true;
  for (int i = 0; i < 5; ++i) {
    std::cout << output.data()[i] << " ";
    right &= std::abs(output.data()[i] - static_cast<float>(11 + i)) < 1e-4F;
  }
  std::cout << "\n";
  return right && products.size() == 1 && !extracted.empty() ? 0 : 1;
}

// Patterns and rules: describe a piece of a graph, find it, replace it (docs/patterns.md).
//
//   a product of 2 x 3 by 3 x 4 at %8
//   ...
//   log_of_exp: 11 -> 9 nodes
//     log_of_exp: 1
//   ...
//   6 6 6 6 15 15 15 15
#include "egret/functional.h"
#include "egret/graph.h"

#include <iostream>

using namespace egret;

int main() {
  using namespace egret::pattern;
  egret::Graph cx;
  auto a = cx.tensor({2, 3}).set({1, 2, 3, 4, 5, 6}).keep();
  auto b = cx.tensor({3, 4}).set(ones({3, 4})).keep();
  auto c = log(exp(matmul(a, b))).retrieve();

  // There is no matmul op: it is a product that is summed, which a pattern finds wherever it
  // stands.
  Pattern left = any("a").shape("MNK").broadcast("N"), right = any("b").shape("MNK").broadcast("M");
  Pattern product =
      node(Op::ReduceSum, {node(Op::Mul, {left, right}).shape("MNK").single_use()}).over("K");
  const ir::Graph recorded = ir::parse_graph(cx.text());
  for (const Match& m : find(recorded, product))
    std::cout << "a product of " << m.dim('M').str() << " x " << m.dim('K').str() << " by "
              << m.dim('K').str() << " x " << m.dim('N').str() << " at %" << m.root << "\n";

  // A rule: log(exp(x)) is x. As a pass it runs until nothing matches.
  const Rewrite rule{"log_of_exp", node(Op::Log, {node(Op::Exp, {any("x")})}),
                     [](ir::Graph&, const Match& m) { return m["x"]; }};
  cx.compile(Generic{} | Pass(rule) | Fusion{}, &c);
  std::cout << cx.report();
  cx.execute();
  for (const float value : c.data())
    std::cout << value << " ";
  std::cout << "\n";
  return find(ir::parse_graph(cx.text()), node(Op::Exp, {any()})).empty() ? 0 : 1;
}

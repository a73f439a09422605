#include "support/sliced_products.h"

#include "compiler/canonical.h"
#include "compiler/prepare_outputs.h"
#include "compiler/regions.h"
#include "compiler/split_slices.h"

#include <fmt/format.h>

namespace egret::testing {

using ir::Graph;
using ir::NodeId;

std::string SlicedProduct::name() const {
  return fmt::format("[{},{},{}] in {} slices of {}, {}{}", batch, rows, depth, slices, length,
                     name_of(dtype), weights_transposed ? ", transposed" : "");
}

Graph graph_of(const SlicedProduct& p) {
  Graph g;
  const std::int64_t columns = p.slices * p.length;
  const Shape all_shape{p.batch, p.rows, columns}, box{p.batch, p.rows, columns, p.depth},
      part{p.batch, p.rows, p.length};
  const NodeId x = g.input("x", p.dtype, {p.batch, p.rows, p.depth});
  NodeId w = g.input("w", p.dtype,
                     p.weights_transposed ? Shape{p.depth, columns} : Shape{columns, p.depth});
  const NodeId y = g.input("y", p.dtype, all_shape), state = g.input("state", p.dtype, part);
  if (p.weights_transposed)
    w = g.permute(w, {1, 0});
  const NodeId left = g.expand(g.reshape(x, {p.batch, p.rows, 1, p.depth}), box),
               right = g.expand(g.reshape(w, {1, 1, columns, p.depth}), box);
  const NodeId product = g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {3});
  const NodeId all = g.binary(Op::Add, product, y);
  const auto slice = [&](std::int64_t i) {
    return g.shrink(all, {0, 0, i * p.length}, {p.batch, p.rows, (i + 1) * p.length});
  };
  NodeId sum = g.unary(Op::Tanh, slice(0));
  for (std::int64_t i = 1; i < p.slices; ++i)
    sum = g.binary(Op::Add, sum, g.binary(Op::Mul, slice(i), state));
  g.outputs = {sum, g.binary(Op::Mul, sum, state)};
  return compiler::split_slices(g);
}

kernel::Region region_of_slices(const SlicedProduct& p) {
  const Graph g = compiler::prepare_outputs(graph_of(p));
  const compiler::GraphFacts facts(g);
  const compiler::Partition partition = compiler::partition_greedily(facts, true);
  kernel::Region region = compiler::build_region(facts, partition, partition.groups.at(0),
                                                 compiler::kept_values(facts, partition), {})
                              .region;
  compiler::canonicalize(region);
  for (kernel::Operand& operand : region.operands)
    operand.alignment = 64;
  return region;
}

} // namespace egret::testing

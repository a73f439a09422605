// Graphs of parameters' updates, written out.
#pragma once

#include "compiler/compile.h"
#include "egret/ir.h"

#include <cstdint>
#include <vector>

namespace egret::testing {

inline ir::NodeId number(ir::Graph& g, double v, const Shape& shape) {
  return g.broadcast(g.constant(DType::F32, v), shape);
}
inline ir::NodeId add(ir::Graph& g, ir::NodeId a, ir::NodeId b) {
  return g.binary(Op::Add, a, b);
}
inline ir::NodeId mul(ir::Graph& g, ir::NodeId a, ir::NodeId b) {
  return g.binary(Op::Mul, a, b);
}

/// Gives the new value of a parameter and of its momentum, and says that they replace the old ones.
inline void momentum_update(ir::Graph& g, std::vector<compiler::OutputSpec>& outputs,
                            const Shape& shape, ir::NodeId gradient) {
  const ir::NodeId p = g.input("p", DType::F32, shape), m = g.input("m", DType::F32, shape);
  const ir::NodeId mean = add(g, mul(g, m, number(g, 0.9, shape)), gradient);
  g.outputs.push_back(add(g, p, mul(g, mean, number(g, -0.1, shape))));
  g.outputs.push_back(mean);
  for (ir::NodeId state : {p, m})
    outputs.push_back({static_cast<std::int64_t>(g[state].attrs.slot)});
}

} // namespace egret::testing

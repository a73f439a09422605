// Names of what nodes compute that are the same in every process: for values of different runs.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <vector>

namespace egret::compiler {

/// Hashes by node. Nodes of two graphs with equal keys compute the same from equal inputs.
struct NodeKeys {
  std::vector<std::uint64_t> exact; ///< of op, dtype, shape, attributes and operands
  /// The same without dtypes: a cast has the key of its operand, and constants are rounded to bf16.
  /// For programs that were written twice, in two dtypes.
  std::vector<std::uint64_t> typeless;
};
NodeKeys node_keys(const ir::Graph& graph);

/// Of the outputs' typeless keys.
std::uint64_t typeless_key(const ir::Graph& graph);

} // namespace egret::compiler

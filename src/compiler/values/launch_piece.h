// The part of a graph that one launch computes, as a graph of its own for the reference.
#pragma once

#include "backend/reference/host_array.h"
#include "compiler/values/saved_run.h"
#include "egret/ir.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace egret::compiler {

/// Inputs are those of the whole graph, which bind its symbols, and then `operands` that are none.
struct LaunchPiece {
  ir::Graph graph;
  std::vector<ir::NodeId> inputs; ///< by input of `graph`: the node of the whole graph
  std::vector<ir::NodeId> nodes;  ///< by node of `graph`, likewise
};
LaunchPiece piece_of(const ir::Graph& graph, std::span<const ir::NodeId> operands,
                     std::span<const ir::NodeId> outputs);

/// The arrays that a piece reads. `value`: of an operand; nothing when it is not known. An input of
/// the whole graph that no operand is has zeros of the dims that `dims` gives. Nothing where an
/// operand is not known.
std::optional<std::vector<backend::reference::HostArray>>
arrays_of(const LaunchPiece& piece, std::span<const ir::NodeId> operands,
          const std::function<std::optional<backend::reference::HostArray>(ir::NodeId)>& value,
          const std::function<backend::reference::Dims(ir::NodeId)>& dims);

/// Whether the reference, which keeps every value of a piece in memory, can compute it in seconds.
bool is_small(const LaunchPiece& piece);

} // namespace egret::compiler

// Small questions about graphs that several files of this module ask.
#pragma once

#include "egret/ir.h"

#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace egret::ir {

/// Hash of an op with its attributes; an input's name does not count.
std::uint64_t hash_attrs(Op op, const Attrs& attrs);

/// 0, 1, 2 ..: the order that permutes nothing.
bool is_ascending_from_zero(std::span<const std::int64_t> axes);

/// By node: whether an output needs it.
std::vector<bool> live_nodes(const Graph& graph);

/// What the outputs need, in an order that depends on structure only: operands of the first output
/// first, depth first. Inputs are left out.
std::vector<NodeId> canonical_order(const Graph& graph);

/// Makes what stands for a node of the old graph in `out`, where its operands are `operands`.
using Remake = std::function<NodeId(Graph& out, NodeId id, std::span<const NodeId> operands)>;
/// The graph made anew without dead code: `remake` gets each node but the inputs, in canonical
/// order.
Graph rebuild(const Graph& graph, const Remake& remake);

/// The value of every element of a constant that is only moved about (not padded); nothing for
/// other nodes.
std::optional<Scalar> known_value(const Graph& graph, NodeId id);

/// Whether a cast from `from` through `between` to `to` is the cast straight there, for every
/// value.
bool cast_passes_through(DType from, DType between, DType to) noexcept;

} // namespace egret::ir

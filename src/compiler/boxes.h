// Boxes of values: what a value is within a range of each of its dims, where that is less than all
// of it, as of one piece of a concatenation.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::compiler {

/// Indices [begin, end) along a dim.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t extent() const { return end - begin; }
  friend auto operator<=>(const Range&, const Range&) = default;
};
/// By dim. Never empty.
using Box = std::vector<Range>;

/// All of a shape; nothing where it is symbolic or empty.
std::optional<Box> whole_box(const Shape& shape);
Shape shape_of(const Box& box);

/// The elements of a movement's operand that a box of its result shows, each once: no others are
/// read. Nothing where they are no box, or some of them are a Pad's fill.
std::optional<Box> operand_box(const ir::Graph& graph, ir::NodeId movement, const Box& box);

/// Whether a box shows nothing but a Pad's fill.
bool is_fill(const ir::Graph& graph, ir::NodeId pad, const Box& box);

/// The value that a condition has everywhere in a box, where its indices tell: comparisons of
/// sums and products of indices and constants.
std::optional<bool> known_condition(const ir::Graph& graph, ir::NodeId condition, const Box& box);

/// A movement's result within a box, made of its operand within operand_box().
ir::NodeId move_box(ir::Graph& out, const ir::Node& movement, ir::NodeId operand, const Box& box);

/// `id` within a box: itself where that is all of it.
ir::NodeId shrink_to(ir::Graph& out, ir::NodeId id, const Box& box);

} // namespace egret::compiler

// A factor of a product under a sum: the tensor that its movements begin at, and where the element
// of a point of the product lies in it.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace egret::onnx {

/// coordinate = sum of coefficient * axis, with axes of the product that have more than one
/// element.
struct Coordinate {
  struct Term {
    int axis;
    std::int64_t coefficient;
  };
  std::vector<Term> terms; ///< by ascending axis

  bool is_axis() const { return terms.size() == 1 && terms[0].coefficient == 1; }
};

struct Factor {
  ir::NodeId source = ir::kNoNode;
  std::vector<Coordinate> coordinates; ///< of the source

  std::set<int> axes() const; ///< that occur in it
};

/// The factor with the deepest source whose every axis is an axis of the product, each at most once
/// and in full, or has one element.
Factor plain_factor(const ir::Graph& graph, ir::NodeId id);
/// The factor with the deepest source whose coordinates are sums of multiples of axes, if that is
/// deeper than the plain one.
std::optional<Factor> linear_factor(const ir::Graph& graph, ir::NodeId id);

} // namespace egret::onnx

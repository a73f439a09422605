// The derivatives of recorded operations, as operations recorded again.
#pragma once

#include "tensor/node.h"

#include <cstdint>
#include <span>
#include <vector>

namespace egret::detail {

/// Tensors that something is differentiated by, and the gradient of each. The gradients may be
/// differentiated again.
struct Derivatives {
  std::vector<NodePtr> by, gradients;
};

/// What differentiate() is asked for. `who` is for errors.
struct DerivativeQuery {
  std::span<const NodePtr> outputs; ///< each depends on a leaf that requires a gradient
  std::span<const NodePtr> seeds;   ///< one an output, of its shape and dtype; null: ones
  /// Null: by all leaves that require a gradient, in the order in which a walk meets them.
  const std::vector<NodePtr>* by = nullptr;
  const char* who = "";
};

/// d(sum of outputs · seeds)/d(by). The rules of autodiff are applied to the recipe as a graph;
/// what they give is remembered by the recipe's operations, shapes and constants, within a bound,
/// so that a loop that records the same operations again records their derivatives without any
/// graph.
Derivatives differentiate(const DerivativeQuery& query);

/// How many recipes autodiff was applied to since the process started: those that were not
/// remembered.
std::uint64_t recipes_derived() noexcept;

} // namespace egret::detail

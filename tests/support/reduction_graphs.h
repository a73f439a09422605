// Random programs of reductions: chains of products, softmaxes and what looks like them, norms,
// scans, sums of several axes, glued together by elementwise operations, with gradients.
#pragma once

#include "backend/common/device.h"
#include "egret/ir.h"

#include <array>
#include <cstdint>
#include <memory>

namespace egret::testing {

/// What a graph is made of.
enum class ReductionStep : std::uint8_t {
  Product, ///< a contraction over one or two shared axes
  Softmax, ///< or something like it: a maximum elsewhere, none, another divisor, a mask behind it
  Norm,    ///< by mean and variance, or by the root mean square
  Reduce,  ///< a sum, product, largest or mean over one or several axes
  Scan,
  Glue,    ///< elementwise, of two values that may share axes or not
  Mixture, ///< a product, what a softmax-like step makes of it, and sums or a product of that
};
inline constexpr int kReductionSteps = 7;

struct ReductionGraph {
  ir::Graph graph;
  std::array<int, kReductionSteps> steps{}; ///< how many of each
  bool gradients = false;
};

/// The same seed gives the same graph.
ReductionGraph random_reductions(std::uint64_t seed);

/// `device` as a machine with caches so small that no product is stored for its smallness.
std::unique_ptr<backend::Device> with_small_caches(backend::Device& device);

} // namespace egret::testing

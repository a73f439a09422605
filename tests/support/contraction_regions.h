// Regions of products, for tests of the contraction generators.
#pragma once

#include "compiler/compile.h"
#include "support/contractions.h"
#include "support/null_device.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace egret::testing {

/// The one region of a graph whose outputs `make` gives. `alignment`: of its operands' memory, in
/// bytes; 0: as the compiler takes it to be.
inline kernel::Region region_of(const std::function<std::vector<ir::NodeId>(ir::Graph&)>& make,
                                std::int64_t alignment = 0) {
  ir::Graph g;
  g.outputs = make(g);
  NullDevice device;
  compiler::KernelCache cache;
  auto kernels = compiler::compile_graph(g, {}, device, cache).plan.kernels;
  EXPECT_EQ(kernels.size(), 1u);
  kernel::Region region = kernels.at(0).region;
  if (alignment > 0)
    for (kernel::Operand& operand : region.operands)
      operand.alignment = alignment;
  return region;
}

/// Axes m, n and k, and b of a batch.
inline Einsum sizes(const std::string& left, const std::string& right, const std::string& result,
                    Expr m, Expr n, Expr k, Expr b = 1) {
  return {left, right, result, {{'m', m}, {'n', n}, {'k', k}, {'b', b}}};
}

inline ir::NodeId input(ir::Graph& g, const std::string& name, const std::string& letters,
                        const Einsum& e, DType dtype = DType::F32) {
  return g.input(name, dtype, e.shape_of(letters));
}

/// A product of inputs "a" and "b".
inline kernel::Region product_region(const Einsum& e, DType dtype = DType::F32,
                                     std::int64_t alignment = 0) {
  return region_of(
      [&](ir::Graph& g) {
        return std::vector{
            einsum(g, input(g, "a", e.left, e, dtype), input(g, "b", e.right, e, dtype), e)};
      },
      alignment);
}

} // namespace egret::testing

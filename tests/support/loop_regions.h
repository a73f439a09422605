// Small regions for tests of loop trees.
#pragma once

#include "support/contraction_regions.h"
#include "support/region_runner.h"

namespace egret::testing {

/// A CPU with two workers and registers of 64 bytes.
inline kernel::Target loop_target() {
  kernel::Target target = test_targets()[0];
  target.workers = 2;
  return target;
}

inline kernel::Region matrix_product(std::int64_t m, std::int64_t n, std::int64_t k,
                                     DType dtype = DType::F32) {
  return product_region(sizes("mk", "kn", "mn", m, n, k), dtype);
}

inline kernel::Region softmax_rows(std::int64_t rows, std::int64_t columns) {
  return region_of([&](ir::Graph& g) {
    const ir::NodeId x = g.input("x", DType::F32, {rows, columns});
    auto along = [&](ir::NodeId reduced) {
      return g.expand(g.reshape(reduced, {rows, 1}), {rows, columns});
    };
    const ir::NodeId most = along(g.reduce(Op::ReduceMax, x, {1}));
    const ir::NodeId minus = g.broadcast(g.constant(DType::F32, -1.0), {rows, columns});
    const ir::NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, g.binary(Op::Mul, most, minus)));
    return std::vector{g.binary(Op::Div, e, along(g.reduce(Op::ReduceSum, e, {1})))};
  });
}

/// tanh(x) of a matrix.
inline kernel::Region one_map(std::int64_t rows, std::int64_t columns) {
  return region_of([&](ir::Graph& g) {
    const ir::NodeId x = g.input("x", DType::F32, {rows, columns});
    const ir::NodeId b = g.input("b", DType::F32, {columns});
    return std::vector{g.unary(Op::Tanh, g.binary(Op::Add, x, g.broadcast(b, {rows, columns})))};
  });
}

} // namespace egret::testing

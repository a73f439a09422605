// Small graphs and their regions for tests of loop trees.
#pragma once

#include "support/contraction_regions.h"
#include "support/region_runner.h"

namespace egret::testing {

using Outputs = std::vector<ir::NodeId>;
using MakeGraph = std::function<Outputs(ir::Graph&)>;

/// A CPU with two workers and registers of 64 bytes.
inline kernel::Target loop_target() {
  kernel::Target target = test_targets()[0];
  target.workers = 2;
  return target;
}

inline MakeGraph product_graph(std::int64_t m, std::int64_t n, std::int64_t k) {
  return [=](ir::Graph& g) {
    const Einsum e = sizes("mk", "kn", "mn", m, n, k);
    return Outputs{einsum(g, input(g, "a", e.left, e), input(g, "b", e.right, e), e)};
  };
}

/// The same of factors in bf16, in f32.
inline MakeGraph narrow_product_graph(std::int64_t m, std::int64_t n, std::int64_t k) {
  return [=](ir::Graph& g) {
    const Einsum e = sizes("mk", "kn", "mn", m, n, k);
    const auto wide = [&](const char* name, const std::string& letters) {
      return g.cast(input(g, name, letters, e, DType::BF16), DType::F32);
    };
    const ir::NodeId a = wide("a", e.left), b = wide("b", e.right);
    return Outputs{einsum(g, a, b, e)};
  };
}

inline MakeGraph softmax_graph(std::int64_t rows, std::int64_t columns) {
  return [=](ir::Graph& g) {
    const ir::NodeId x = g.input("x", DType::F32, {rows, columns});
    auto along = [&](ir::NodeId reduced) {
      return g.expand(g.reshape(reduced, {rows, 1}), {rows, columns});
    };
    const ir::NodeId most = along(g.reduce(Op::ReduceMax, x, {1}));
    const ir::NodeId minus = g.broadcast(g.constant(DType::F32, -1.0), {rows, columns});
    const ir::NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, g.binary(Op::Mul, most, minus)));
    return Outputs{g.binary(Op::Div, e, along(g.reduce(Op::ReduceSum, e, {1})))};
  };
}

/// tanh(x + b) of a matrix.
inline MakeGraph map_graph(std::int64_t rows, std::int64_t columns) {
  return [=](ir::Graph& g) {
    const ir::NodeId x = g.input("x", DType::F32, {rows, columns});
    const ir::NodeId b = g.input("b", DType::F32, {columns});
    return Outputs{g.unary(Op::Tanh, g.binary(Op::Add, x, g.broadcast(b, {rows, columns})))};
  };
}

inline kernel::Region matrix_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  return region_of(product_graph(m, n, k));
}
inline kernel::Region softmax_rows(std::int64_t rows, std::int64_t columns) {
  return region_of(softmax_graph(rows, columns));
}
inline kernel::Region one_map(std::int64_t rows, std::int64_t columns) {
  return region_of(map_graph(rows, columns));
}

} // namespace egret::testing

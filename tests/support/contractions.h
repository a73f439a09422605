// Graphs that multiply and sum, for tests of the contraction generator.
#pragma once

#include "egret/ir.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace egret::testing {

/// A matmul of two tensors with named axes, in the manner of "bmk,bnk->bmn": every letter has an
/// extent, and letters that the result lacks are summed. Operands are given in any order of their
/// letters.
struct Einsum {
  std::string left, right, result;
  std::vector<std::pair<char, Expr>> extents;

  Expr extent(char letter) const {
    for (const auto& [name, size] : extents)
      if (name == letter)
        return size;
    return 1;
  }
  Shape shape_of(const std::string& letters) const {
    Shape shape;
    for (const char letter : letters)
      shape.push_back(extent(letter));
    return shape;
  }
};

/// `a` with the axes `letters`, as a tensor with the axes `all`: permuted, and repeated along those
/// that it lacks.
inline ir::NodeId aligned(ir::Graph& g, ir::NodeId a, const std::string& letters,
                          const std::string& all, const Einsum& e) {
  std::vector<std::int64_t> order;
  Shape kept;
  for (const char letter : all) {
    const auto at = letters.find(letter);
    if (at != std::string::npos)
      order.push_back(std::int64_t(at));
    kept.push_back(at == std::string::npos ? Expr(1) : e.extent(letter));
  }
  return g.expand(g.reshape(g.permute(a, order), kept), e.shape_of(all));
}

/// The product of `a` and `b`, summed.
inline ir::NodeId einsum(ir::Graph& g, ir::NodeId a, ir::NodeId b, const Einsum& e) {
  std::string all = e.result;
  for (const char letter : e.left + e.right)
    if (all.find(letter) == std::string::npos)
      all += letter;
  std::vector<std::int64_t> axes(all.size() - e.result.size());
  std::iota(axes.begin(), axes.end(), std::int64_t(e.result.size()));
  return g.reduce(Op::ReduceSum,
                  g.binary(Op::Mul, aligned(g, a, e.left, all, e), aligned(g, b, e.right, all, e)),
                  axes);
}

} // namespace egret::testing

// Running small graphs through the reference, for tests.
#pragma once

#include "backend/reference/reference.h"
#include "egret/autodiff.h"

#include <initializer_list>
#include <string>
#include <vector>

namespace egret::testing {

/// The values of one node as doubles.
inline std::vector<double>
values_of(const ir::Graph& graph, ir::NodeId node,
          const std::vector<backend::reference::HostArray>& inputs = {}) {
  const ir::NodeId nodes[] = {node};
  return backend::reference::execute(graph, inputs, nodes)[0].doubles();
}

/// A rank 1 constant made of `values`: an input would do as well, but this keeps tests to one line.
inline ir::NodeId vector_of(ir::Graph& graph, DType type, std::initializer_list<double> values) {
  // Each value is padded to its place and the pieces are added as bits: exact for NaN, infinities
  // and -0.
  const auto n = static_cast<std::int64_t>(values.size());
  ir::NodeId result = graph.broadcast(graph.constant(type, 0), {n});
  std::int64_t place = 0;
  for (double value : values) {
    ir::NodeId at = graph.binary(Op::Eq, graph.iota(n),
                                 graph.broadcast(graph.constant(DType::I64, double(place++)), {n}));
    Scalar scalar = is_float(type) ? Scalar::of(type, value)
                                   : Scalar::of(type, static_cast<std::int64_t>(value));
    result = graph.select(at, graph.broadcast(graph.constant(scalar), {n}), result);
  }
  return result;
}

/// Empty when equal in every bit, NaNs being alike; else the first difference.
inline std::string difference(const backend::reference::HostArray& a,
                              const backend::reference::HostArray& b) {
  if (a.dtype != b.dtype || a.dims != b.dims)
    return "dtype or shape differ";
  for (std::int64_t i = 0; i < a.size(); ++i)
    if (!backend::reference::same(a.dtype, a.at(i), b.at(i)))
      return "element " + std::to_string(i) + ": " + backend::reference::text_of(a.dtype, a.at(i)) +
             " became " + backend::reference::text_of(a.dtype, b.at(i));
  return {};
}

/// gradcheck against the reference.
inline EvaluateGraph by_reference() {
  return [](const ir::Graph& graph, const std::vector<std::vector<double>>& inputs) {
    std::vector<backend::reference::HostArray> arrays;
    for (std::size_t slot = 0; slot < inputs.size(); ++slot) {
      const ir::Node& node = graph[graph.inputs()[slot]];
      backend::reference::Dims dims;
      for (const Expr& dim : node.shape)
        dims.push_back(dim.value());
      arrays.emplace_back(node.dtype, dims, inputs[slot]);
    }
    std::vector<std::vector<double>> results;
    for (const auto& array : backend::reference::execute(graph, arrays))
      results.push_back(array.doubles());
    return results;
  };
}

/// What `after` computes differently from `before`, in any bit; empty when nothing.
inline std::string changed(const ir::Graph& before, const ir::Graph& after,
                           const std::vector<backend::reference::HostArray>& inputs) {
  const auto wanted = backend::reference::execute(before, inputs);
  const auto got = backend::reference::execute(after, inputs);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (std::string d = difference(wanted[i], got[i]); !d.empty())
      return "output " + std::to_string(i) + ", " + d + "\nbefore\n" + print(before) + "after\n" +
             print(after);
  return {};
}

} // namespace egret::testing

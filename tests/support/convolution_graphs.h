// Convolutions with their gradients as graphs, as the library's functions make them.
#pragma once

#include "egret/autodiff.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "egret/ir.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace egret::testing {

struct Convolution {
  std::int64_t batch = 1, channels = 1, outputs = 1;
  std::vector<std::int64_t> sizes, kernel, stride, padding, dilation; ///< by spatial axis
  DType dtype = DType::BF16;
  bool channels_last = false; ///< in memory, of the data and of the gradient of the result
  bool weight_last = false;   ///< likewise, the weight's

  std::string text() const {
    std::string out = fmt::format("{} x {} -> {}{}{}", batch, channels, outputs,
                                  channels_last ? ", channels last" : "",
                                  weight_last ? ", also the weight's" : "");
    for (std::size_t i = 0; i < sizes.size(); ++i)
      out += fmt::format("; {} by {} stride {} padding {} dilation {}", sizes[i], kernel[i],
                         stride[i], padding[i], dilation[i]);
    return out;
  }
};

/// The result; with `gradients` also those by the data and by the weight, for a given gradient of
/// the result.
inline ir::Graph convolution_graph(const Convolution& c, bool with_gradients) {
  egret::Graph cx;
  const auto spatial = static_cast<std::int64_t>(c.sizes.size());
  const auto tensor = [&](std::int64_t first, const std::vector<std::int64_t>& sizes, bool last,
                          const char* name) {
    Shape shape{Expr(first)};
    if (!last)
      shape.push_back(Expr(c.channels));
    for (const std::int64_t size : sizes)
      shape.push_back(Expr(size));
    if (last)
      shape.push_back(Expr(c.channels));
    Tensor made = cx.tensor(shape, c.dtype, name);
    std::vector<std::int64_t> order{0, spatial + 1};
    for (std::int64_t i = 0; i < spatial; ++i)
      order.push_back(i + 1);
    return last ? made.permute(order) : made;
  };
  Tensor x = tensor(c.batch, c.sizes, c.channels_last, "x"),
         w = tensor(c.outputs, c.kernel, c.weight_last, "w");
  const ConvOptions options{
      .stride = PerAxis(c.stride), .padding = PerAxis(c.padding), .dilation = PerAxis(c.dilation)};
  Tensor y = spatial == 1   ? conv1d(x, w, {}, options)
             : spatial == 2 ? conv2d(x, w, {}, options)
                            : conv3d(x, w, {}, options);
  y.retrieve();
  ir::Graph g = ir::parse_graph(cx.text());
  if (!with_gradients)
    return g;
  const std::vector<ir::NodeId> results = g.outputs, inputs = g.inputs();
  Shape memory = g[results[0]].shape; // of the gradient, as the data's
  std::vector<std::int64_t> order(memory.size());
  std::iota(order.begin(), order.end(), 0);
  if (c.channels_last) {
    std::rotate(memory.begin() + 1, memory.begin() + 2, memory.end());
    std::rotate(order.begin() + 1, order.end() - 1, order.end());
  }
  const ir::NodeId seed = g.permute(g.input("seed", g[results[0]].dtype, memory), order);
  for (const ir::NodeId id : gradients(g, results, std::vector{seed}, inputs))
    g.outputs.push_back(id);
  return g;
}

} // namespace egret::testing

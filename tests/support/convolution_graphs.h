// Convolutions with their gradients as graphs, as the library's functions make them.
#pragma once

#include "egret/autodiff.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "egret/ir.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

namespace egret::testing {

struct Convolution {
  std::int64_t batch = 1, channels = 1, outputs = 1;
  std::vector<std::int64_t> sizes, kernel, stride, padding, dilation; ///< by spatial axis
  DType dtype = DType::BF16;
  bool channels_last = false; ///< in memory

  std::string text() const {
    std::string out = fmt::format("{} x {} -> {}{}", batch, channels, outputs,
                                  channels_last ? ", channels last" : "");
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
  Shape data{Expr(c.batch)}, weight{Expr(c.outputs), Expr(c.channels)};
  if (!c.channels_last)
    data.push_back(Expr(c.channels));
  for (std::size_t i = 0; i < c.sizes.size(); ++i) {
    data.push_back(Expr(c.sizes[i]));
    weight.push_back(Expr(c.kernel[i]));
  }
  if (c.channels_last)
    data.push_back(Expr(c.channels));
  Tensor x = cx.tensor(data, c.dtype, "x"), w = cx.tensor(weight, c.dtype, "w");
  if (c.channels_last) {
    std::vector<std::int64_t> order{0, spatial + 1};
    for (std::int64_t i = 0; i < spatial; ++i)
      order.push_back(i + 1);
    x = x.permute(order);
  }
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
  const ir::NodeId seed = g.input("seed", g[results[0]].dtype, g[results[0]].shape);
  for (const ir::NodeId id : gradients(g, results, std::vector{seed}, inputs))
    g.outputs.push_back(id);
  return g;
}

} // namespace egret::testing

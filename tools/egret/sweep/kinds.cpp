// The kinds of sweeps.
#include "sweep/sweep.h"

#include "egret/device.h"
#include "egret/error.h"
#include "runtime/runtime.h"

#include <algorithm>

namespace egret::tool::sweep {

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> list = {
      {"elementwise", "chains of operations, with broadcasting and mixed dtypes", draw_elementwise,
       elementwise},
      {"transpose", "axes in another order", draw_transpose, transposed},
      {"rows", "reductions, softmax and norms of the last axis", draw_rows, reduction},
      {"columns", "reductions of other axes", draw_columns, reduction},
      {"scan", "running sums and maxima along an axis", draw_scan, scan},
      {"window", "pooling, depthwise convolution, stencils, interpolation", draw_window, window},
      {"gather", "elements at indices", draw_gather, gathered},
      {"scatter", "updates at indices, and histograms", draw_scatter, scattered},
      {"sort", "sort and argsort along an axis", draw_sort, ordered},
      {"topk", "the first few along an axis", draw_topk, ordered},
      {"small", "updates of many small tensors", draw_small, small},
      {"recurrent", "LSTM, GRU and plain cells over time", draw_recurrent, recurrent},
      {"contraction", "products of matrices with epilogues", draw_contraction, contraction},
      {"batched", "products of batches of matrices", draw_batched, batched},
      {"convolution", "convolutions over one to three axes", draw_convolution, convolution},
      {"attention", "attention: masks, windows, shared heads, soft caps", draw_attention,
       attention},
      {"decode", "attention of one query", draw_decode, attention},
      {"quantized", "products with packed integer weights", draw_quantized, quantized},
  };
  return list;
}

const Kind& kind_named(std::string_view name) {
  std::string names;
  for (const Kind& kind : kinds()) {
    if (kind.name == name)
      return kind;
    names += (names.empty() ? "" : ", ") + kind.name;
  }
  throw Error(ErrorKind::Value,
              fmt::format("sweep: no kind is named '{}'; there are {}", name, names));
}

Limits limits_of(double mb) {
  return {mb * (1 << 20), mb * 128e6};
}

double default_mb() {
  const kernel::Target& target = runtime::Runtime::instance().target();
  return target.is_gpu() ? std::max(64.0, 4 * static_cast<double>(target.l2_bytes) / (1 << 20))
                         : 32;
}

Json draw(const Kind& kind, std::uint64_t seed, std::uint64_t index, const Limits& limits) {
  Dice dice(kind.name, seed, index);
  for (int attempt = 0; attempt < 1000; ++attempt) { // some sizes do not go together
    Json parameters = kind.draw(dice, limits);
    if (bytes_of(parameters.at("inputs")) <= 0.75 * limits.bytes &&
        kind.program(parameters).flops <= limits.flops)
      return parameters;
  }
  throw Error(ErrorKind::Value,
              fmt::format("sweep: no draw of {} fits into {:.3g} bytes; give more by --mb",
                          kind.name, limits.bytes));
}

} // namespace egret::tool::sweep

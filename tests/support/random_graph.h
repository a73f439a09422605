// Random typed graphs over every op of the table, and inputs for them: what passes, gradients and
// backends are tested with.
#pragma once

#include "backend/reference/host_array.h"
#include "egret/ir.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace egret::testing {

/// A small generator (splitmix64) with the same numbers on every machine.
class Rng {
public:
  explicit Rng(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits();
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n));
  }
  bool chance(double p) { return static_cast<double>(bits() >> 11) * 0x1p-53 < p; }
  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
  }
  template <class T>
  const T& pick(const std::vector<T>& list) {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(list.size())))];
  }

private:
  std::uint64_t state_;
};

struct RandomGraphOptions {
  int ops = 16; ///< ops tried on top of the inputs; helpers (broadcasts, index clamps) come on top
  int max_nodes = 1000; ///< most nodes beside the inputs, helpers included
  std::vector<DType> dtypes{DType::F32, DType::BF16, DType::F16, DType::I32,
                            DType::I64, DType::Bool, DType::F64, DType::U32};
  std::vector<Op> allowed; ///< empty: every op
  bool views = true;       ///< movements, also those that helpers would need
  bool motifs = true;      ///< matrix products and softmax now and then; needs views and all ops
  bool zero_dims = true;   ///< sizes 0 now and then
  bool special = true;     ///< NaN and infinities among the constants now and then
  bool floats = false;     ///< one dtype of a graph is a float at least
  bool symbolic = false;   ///< some dims are the symbols N (1..9) and M (2..8, even)
  std::int64_t max_rank = 4;
  std::int64_t max_elements = 3000; ///< of one tensor
};

/// A verified graph whose outputs are all nodes that no other reads. The same options and seed give
/// the same graph.
ir::Graph random_graph(std::uint64_t seed, const RandomGraphOptions& options = {});

struct RandomInputOptions {
  bool special = true; ///< NaN, infinities, zeros of both signs, subnormal and largest numbers,
                       ///< lowest and highest integers now and then
  double range = 4;    ///< most numbers lie in -range..range
};

/// Arrays for the graph's inputs, by slot. Symbols of shapes get values, the same one everywhere.
/// Values depend on the seed and the input's or symbol's name only, so that a part of a graph with
/// some of its inputs gets the same ones.
std::vector<backend::reference::HostArray> random_inputs(const ir::Graph& graph, std::uint64_t seed,
                                                         const RandomInputOptions& options = {});

/// Few results of `n` numbers: where a reduction is cut into pieces.
ir::Graph long_sum(std::int64_t n);

} // namespace egret::testing

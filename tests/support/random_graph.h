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
  std::vector<DType> dtypes{DType::F32, DType::BF16, DType::F16, DType::I32,
                            DType::I64, DType::Bool, DType::F64, DType::U32};
  std::vector<Op> allowed; ///< empty: every op
  bool views = true;       ///< movements, also those that helpers would need
  bool motifs = true;      ///< matrix products and softmax now and then; needs views and all ops
  bool zero_dims = true;   ///< sizes 0 now and then
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
std::vector<backend::reference::HostArray> random_inputs(const ir::Graph& graph, std::uint64_t seed,
                                                         const RandomInputOptions& options = {});

/// The part of the graph that computes one node, all inputs kept.
ir::Graph part_for(const ir::Graph& graph, ir::NodeId output);
/// For a graph that fails a check: its part for the first node (in order) that fails, so that all
/// operands are right.
ir::Graph first_failing(const ir::Graph& graph, const std::function<bool(const ir::Graph&)>& fails);

} // namespace egret::testing

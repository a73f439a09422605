// What samples of a noisy machine say.
#pragma once

#include <span>
#include <vector>

namespace egret::compiler {

/// Disturbances only ever add time, so the fast samples say most: a tenth of them is faster than
/// `seconds`, which does not hang on one lucky sample as the least does, and stays where it is when
/// half of the samples were disturbed, as the median does not.
struct Timing {
  double seconds = 0, spread = 0; ///< first decile; from it to the median
};
/// Of at least one sample.
Timing timing_of(std::span<const double> samples);

/// Two programs' samples of the same rounds: what disturbs a round disturbs both.
struct PairedTiming {
  double ratio = 1;  ///< of the first deciles: below 1 the first is faster
  double faster = 0; ///< share of the rounds in which the first was faster
};
PairedTiming compare_rounds(std::span<const double> first, std::span<const double> second);

/// When a candidate counts as faster than the greedy schedule.
struct PickOptions {
  double ratio = 0.97; ///< at most, of the first deciles
  double share = 0.6;  ///< of the rounds in which it was faster, at least
  double tie = 0.01;   ///< candidates this near to the best are as good: the earlier one wins
};
/// Which program wins, 0 unless one is clearly faster than that. `rounds[p][r]` is the time of
/// program p in round r; all have the same rounds.
std::size_t pick(std::span<const std::vector<double>> rounds, const PickOptions& options = {});

} // namespace egret::compiler

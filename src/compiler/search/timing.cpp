#include "compiler/search/timing.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::compiler {
namespace {

// Between the two neighbours of place `share` * (n - 1).
double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (place - static_cast<double>(below));
}

std::vector<double> sorted(std::span<const double> samples) {
  std::vector<double> copy(samples.begin(), samples.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

} // namespace

Timing timing_of(std::span<const double> samples) {
  ensure(!samples.empty(), "timing: no samples");
  const auto order = sorted(samples);
  const double fast = quantile(order, 0.1);
  return {fast, quantile(order, 0.5) - fast};
}

PairedTiming compare_rounds(std::span<const double> first, std::span<const double> second) {
  const std::size_t n = std::min(first.size(), second.size());
  ensure(n > 0, "timing: no rounds");
  double faster = 0;
  for (std::size_t i = 0; i < n; ++i)
    faster += first[i] < second[i];
  return {timing_of(first.first(n)).seconds / timing_of(second.first(n)).seconds,
          faster / static_cast<double>(n)};
}

std::size_t pick(std::span<const std::vector<double>> rounds, const PickOptions& options) {
  std::vector<std::pair<double, std::size_t>> clear;
  for (std::size_t p = 1; p < rounds.size(); ++p) {
    const PairedTiming pair = compare_rounds(rounds[p], rounds[0]);
    if (pair.ratio <= options.ratio && pair.faster >= options.share)
      clear.emplace_back(pair.ratio, p);
  }
  if (clear.empty())
    return 0;
  const double best = std::min_element(clear.begin(), clear.end())->first;
  for (const auto& [ratio, p] : clear) // in the order of programs
    if (ratio <= best * (1 + options.tie))
      return p;
  return 0;
}

} // namespace egret::compiler

#include "egraph/estimate.h"

#include <algorithm>

namespace egret::egraph {

const Estimates::Sample& Estimates::sample(TableColumn at) {
  const Table& table = engine_.tables[at.function];
  auto& columns = samples_[at.function];
  if (columns.empty())
    columns.resize(table.key_columns() + 1);
  Sample& sample = columns[at.column];
  if (sample.rows_each != 0)
    return sample;
  // Enough values that a join of two samples tells one row per value from none.
  constexpr std::uint32_t kFewest = 256, kMost = 4096, kShare = 16;
  std::uint32_t wanted = std::clamp(table.rows() / kShare, kFewest, kMost);
  std::uint32_t step = std::max(1u, table.rows() / wanted);
  for (std::uint32_t from = 0; from < table.rows(); from += step) {
    // Anywhere in the next `step` rows: rows that came in turns must not all be of one kind.
    const std::uint32_t row = from + mix32(kIndexSeed, from) % std::min(step, table.rows() - from);
    if (table.state(row) != RowState::Dead)
      sample.values.push_back(table.at(row, at.column));
  }
  std::sort(sample.values.begin(), sample.values.end());
  sample.rows_each = sample.values.empty() ? 1
                                           : static_cast<double>(table.live()) /
                                                 static_cast<double>(sample.values.size());
  return sample;
}

double Estimates::rows_found(TableColumn source, TableColumn target) {
  auto packed = [](TableColumn at) { return std::uint64_t{at.function} << 8 | (at.column & 0xFF); };
  auto [known, added] = found_.try_emplace(packed(source) << 32 | packed(target), 0);
  if (!added)
    return known->second;
  const Sample& from = sample(source);
  const Sample& to = sample(target);
  double pairs = 0;
  auto at = to.values.begin();
  for (std::size_t i = 0; i < from.values.size();) {
    std::size_t end = i + 1;
    while (end < from.values.size() && from.values[end] == from.values[i])
      ++end;
    at = std::lower_bound(at, to.values.end(), from.values[i]);
    auto last = std::upper_bound(at, to.values.end(), from.values[i]);
    pairs += static_cast<double>(end - i) * static_cast<double>(last - at);
    at = last;
    i = end;
  }
  // Samples that have nothing in common leave room for half a pair.
  if (from.rows_each > 1 || to.rows_each > 1)
    pairs = std::max(pairs, 0.5);
  double lookups = static_cast<double>(std::max<std::size_t>(1, from.values.size()));
  return known->second = pairs * to.rows_each / lookups;
}

double Estimates::rows_found(Value value, TableColumn target) {
  const Sample& to = sample(target);
  auto [first, last] = std::equal_range(to.values.begin(), to.values.end(), value);
  return std::max(static_cast<double>(last - first), to.rows_each > 1 ? 0.5 : 0) * to.rows_each;
}

} // namespace egret::egraph

#include "kernel/loops/online.h"

#include "kernel/analysis.h"
#include "kernel/stream_form.h"

#include <algorithm>

namespace egret::kernel::loops {

namespace {

bool is_sum_of(const Step& s, int stage) {
  return s.node->kind == Kind::Accumulate && s.node->stage == stage;
}

/// The stages that a body reads, and those that maps among them read.
std::vector<int> read_through_maps(const Region& region, int stage) {
  std::vector<int> found, waiting{stage};
  while (!waiting.empty()) {
    const Stage& reader = region.stages[std::size_t(waiting.back())];
    const bool first = waiting.back() == stage;
    waiting.pop_back();
    if (!first && reader.kind != StageKind::Map)
      continue;
    for (const Load& l : reader.loads)
      if (l.source == Source::Stage && !kernel::contains(found, l.number)) {
        found.push_back(l.number);
        waiting.push_back(l.number);
      }
  }
  return found;
}

} // namespace

bool OnlineSums::contains(int stage, int source) const {
  const auto is_source = [&](const std::map<int, int>& sources) {
    const auto found = sources.find(stage);
    return found != sources.end() && found->second == source;
  };
  return is_source(maxima) || is_source(means) || goes_between(stage, source);
}

bool OnlineSums::goes_between(int stage, int map) const {
  const auto maps = between.find(stage);
  return maps != between.end() && maps->second.contains(map);
}

OnlineSums online_sums(const Region& region, const std::vector<Path>& paths) {
  OnlineSums online;
  // Both accumulations are around the node that holds both bodies.
  const auto together = [&](int sum, int source) {
    const Path &path = paths[std::size_t(sum)], &other = paths[std::size_t(source)];
    if (region.stages[std::size_t(source)].kind != StageKind::Reduce || other.empty())
      return false;
    const auto both = path.begin() + std::ptrdiff_t(parting(path, other));
    const auto encloses = [&](int stage) {
      return std::any_of(path.begin(), both, [&](const Step& s) { return is_sum_of(s, stage); });
    };
    return encloses(sum) && encloses(source);
  };
  for (int s = 0; s < int(paths.size()); ++s) {
    if (paths[std::size_t(s)].empty() || region.stages[std::size_t(s)].kind != StageKind::Reduce)
      continue;
    for (int reader : computed_with(region, paths, s))
      for (const Load& l : region.stages[std::size_t(reader)].loads)
        if (l.source == Source::Stage && l.number != s && together(s, l.number) &&
            !is_spread_of(region, s, l.number) && is_scaled_by(region, s, l.number, false, true))
          online.maxima.emplace(s, l.number);
    const std::vector<int> made_of = read_through_maps(region, s);
    for (int mean : made_of)
      if (together(s, mean) && is_spread_of(region, s, mean)) {
        online.means.emplace(s, mean);
        for (int map : made_of)
          if (region.stages[std::size_t(map)].kind == StageKind::Map &&
              kernel::contains(read_through_maps(region, map), mean))
            online.between[s].insert(map);
      }
  }
  return online;
}

std::string why_not_rescaled(const Region& region, const std::vector<Path>& paths, int stage,
                             int source) {
  const Path& own = paths[std::size_t(stage)];
  const auto sums = [&](int s) {
    return std::count_if(own.begin(), own.end(), [&](const Step& x) { return is_sum_of(x, s); });
  };
  const auto at = [&](int s) {
    return std::find_if(own.begin(), own.end(), [&](const Step& x) { return is_sum_of(x, s); });
  };
  const Path& made = paths[std::size_t(source)];
  const auto parts =
      std::count_if(made.begin(), made.end(), [&](const Step& x) { return is_sum_of(x, source); });
  if (sums(stage) != 1 || parts != 1)
    return fmt::format("stage {} goes along with stage {}, and one of them is made in parts", stage,
                       source);
  if (at(source) > at(stage) || at(source)->node->step != 1)
    return fmt::format("stage {} goes along with stage {}, whose accumulation is not around it "
                       "with one accumulator",
                       stage, source);
  if (points_of(region, region.stages[std::size_t(stage)].over).lower() < 1)
    return fmt::format("stage {} goes along with stage {}, of what may be no points", stage,
                       source);
  return "";
}

} // namespace egret::kernel::loops

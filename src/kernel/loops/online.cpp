#include "kernel/loops/online.h"

#include "kernel/analysis.h"
#include "kernel/stream_form.h"

#include <algorithm>

namespace egret::kernel::loops {

namespace {

bool is_sum_of(const Step& s, int stage) {
  return s.node->kind == Kind::Accumulate && s.node->stage == stage;
}

} // namespace

bool OnlineSums::contains(int stage, int source) const {
  const auto is_source = [&](const std::map<int, int>& sources) {
    const auto found = sources.find(stage);
    return found != sources.end() && found->second == source;
  };
  return is_source(maxima) || is_source(means);
}

OnlineSums online_sums(const Region& region, const std::vector<Path>& paths) {
  OnlineSums online;
  for (std::size_t s = 0; s < paths.size(); ++s) {
    if (paths[s].empty() || region.stages[s].kind != StageKind::Reduce)
      continue;
    for (int reader : computed_with(region, paths, int(s)))
      for (const Load& l : region.stages[std::size_t(reader)].loads) {
        if (l.source != Source::Stage || l.number == int(s) ||
            paths[std::size_t(l.number)].empty() ||
            region.stages[std::size_t(l.number)].kind != StageKind::Reduce)
          continue;
        // Both accumulations are around the node that holds both bodies.
        const Path& path = paths[s];
        const auto both =
            path.begin() + std::ptrdiff_t(parting(path, paths[std::size_t(l.number)]));
        const auto encloses = [&](int stage) {
          return std::any_of(path.begin(), both,
                             [&](const Step& step) { return is_sum_of(step, stage); });
        };
        if (!encloses(int(s)) || !encloses(l.number))
          continue;
        if (is_spread_of(region, int(s), l.number))
          online.means.emplace(int(s), l.number);
        else if (is_scaled_by(region, int(s), l.number, false, true))
          online.maxima.emplace(int(s), l.number);
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

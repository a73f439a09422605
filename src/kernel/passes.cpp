#include "kernel/passes.h"

#include "kernel/analysis.h"
#include "kernel/stream_form.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace egret::kernel {

namespace {

/// What one more use of a stage's value costs at a point: its arithmetic and that of the maps it
/// reads, down to what is at hand.
double recompute_flops(const Region& region, int stage, const std::set<int>& at_hand,
                       std::size_t axes) {
  if (at_hand.contains(stage) || region.stages[stage].kind != StageKind::Map)
    return 0;
  const Stage& s = region.stages[stage];
  if (s.axes.size() < axes)
    return 0; // the same for the whole row
  double flops = flops_of(s);
  std::set<int> sources;
  for (const Load& l : s.loads)
    if (l.source == Source::Stage && sources.insert(l.number).second)
      flops += recompute_flops(region, l.number, at_hand, axes);
  return flops;
}

/// The maps over all axes that a pass evaluates, starting from its roots and stopping at what is at
/// hand.
void reach(const Region& region, int stage, const std::set<int>& at_hand, std::set<int>& seen) {
  if (at_hand.contains(stage) || !seen.insert(stage).second)
    return;
  for (const Load& l : region.stages[stage].loads)
    if (l.source == Source::Stage && region.stages[l.number].kind == StageKind::Map)
      reach(region, l.number, at_hand, seen);
}

/// The pass that can make a stage's values when a maximum is at hand.
int level_with(const Region& region, const Passes& p, int stage, int maximum) {
  int level = 0;
  for (const Load& l : region.stages[stage].loads) {
    if (l.source != Source::Stage || l.number == maximum)
      continue;
    const bool reduces = region.stages[l.number].kind == StageKind::Reduce;
    level =
        std::max(level, reduces ? p.level[l.number] + 1 : level_with(region, p, l.number, maximum));
  }
  return level;
}

/// The maximum that scales a sum and beside which it can be made; -1: none.
int scaling_maximum(const Region& region, const Passes& p, int sum) {
  for (int m = 0; m < sum; ++m)
    if (p.level[m] < p.level[sum] && is_scaled_by(region, sum, m, false, true) &&
        level_with(region, p, sum, m) <= p.level[m])
      return m;
  return -1;
}

/// The sum for the mean beside which a spread can be made; -1: none.
int mean_of(const Region& region, const Passes& p, int spread) {
  for (int m = 0; m < spread; ++m)
    if (p.level[m] < p.level[spread] && p.scaled_by[m] < 0 && is_spread_of(region, spread, m))
      return m;
  return -1;
}

} // namespace

std::map<int, int> Passes::means() const {
  std::map<int, int> by_spread;
  for (std::size_t s = 0; s < mean_of.size(); ++s)
    if (mean_of[s] >= 0)
      by_spread.emplace(int(s), mean_of[s]);
  return by_spread;
}

bool Passes::is_in_pair(int stage) const {
  return scaled_by[stage] >= 0 ||
         std::find(scaled_by.begin(), scaled_by.end(), stage) != scaled_by.end();
}

Passes plan_passes(const Region& region, bool carries, Online online) {
  Passes p;
  if (sliced_axis(region) >= 0) {
    p.reason = "combines slices of a result";
    return p;
  }
  const Stage* first = nullptr;
  // Stages that need sums of columns, themselves among them.
  std::vector<bool> of_columns(region.stages.size(), false);
  for (std::size_t i = 0; i < region.stages.size(); ++i) {
    const Stage& s = region.stages[i];
    if (s.kind == StageKind::Scan || s.kind == StageKind::Sort) {
      p.reason = "has a scan or a sort";
      return p;
    }
    for (const Load& l : s.loads)
      of_columns[i] = of_columns[i] || (l.source == Source::Stage && of_columns[l.number]);
    if (of_columns[i] && (s.kind == StageKind::Reduce || s.axes != first->over)) {
      p.reason = "its rows depend on sums of columns";
      return p;
    }
    if (s.kind != StageKind::Reduce)
      continue;
    const bool all = s.axes.size() == region.axes.size();
    if (all && carries && first && s.over == result_axes(*first) && s.monoid != Monoid::ArgMax) {
      of_columns[i] = true;
      continue;
    }
    if (!all || (first && s.over != first->over)) {
      p.reason = "its reductions do not all run over the same axes";
      return p;
    }
    if (!first)
      first = &s;
  }
  if (!first) {
    p.reason = "has no reduction";
    return p;
  }
  p.reduced = first->over;
  p.parallel = result_axes(*first);

  p.level.assign(region.stages.size(), 0);
  p.scaled_by.assign(region.stages.size(), -1);
  // Where there is no place at all, a sum is 0 whatever the maximum is.
  if (points_of(region, p.reduced).lower() < 1)
    online = Online::No;
  p.mean_of.assign(region.stages.size(), -1);
  for (std::size_t s = 0; s < region.stages.size(); ++s) {
    const Stage& stage = region.stages[s];
    for (const Load& l : stage.loads)
      if (l.source == Source::Stage)
        p.level[s] = std::max(p.level[s], p.level[l.number] +
                                              (region.stages[l.number].kind == StageKind::Reduce));
    const bool sums = stage.kind == StageKind::Reduce && stage.over == p.reduced;
    if (online == Online::Spreads && sums)
      if (const int m = mean_of(region, p, int(s)); m >= 0) {
        p.mean_of[s] = m;
        p.level[s] = p.level[m];
        p.count = std::max(p.count, p.level[s] + 1);
        continue;
      }
    if (online != Online::No && sums)
      if (const int m = scaling_maximum(region, p, int(s)); m >= 0) {
        p.scaled_by[s] = m;
        p.level[s] = p.level[m];
      }
    if (stage.kind == StageKind::Reduce)
      p.count = std::max(p.count, p.level[s] + 1);
  }
  std::vector<int> over_all;
  for (std::size_t o = 0; o < region.outputs.size(); ++o) {
    const Output& out = region.outputs[o];
    if (out.combine != Combine::Store) {
      p.reason = "has a scatter";
      return p;
    }
    std::vector<int> axes = result_axes(region.stages[out.stage]);
    if (of_columns[out.stage]) {
      p.column_outputs.push_back(int(o));
    } else if (axes == p.parallel) {
      p.point_outputs.push_back(int(o));
    } else if (axes.size() == region.axes.size()) {
      over_all.push_back(int(o));
      p.count = std::max(p.count, p.level[out.stage] + 1);
    } else {
      p.reason = "an output runs over some of the axes only";
      return p;
    }
  }
  p.reductions.resize(p.count);
  p.outputs.resize(p.count);
  p.carried.resize(p.count);
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    if (region.stages[s].kind == StageKind::Reduce)
      (of_columns[s] ? p.carried : p.reductions)[p.level[s]].push_back(int(s));
  // An output that takes over an operand's memory waits for the last pass, which reads each element
  // for the last time.
  for (int o : over_all)
    p.outputs[region.outputs[o].alias >= 0 ? p.count - 1 : p.level[region.outputs[o].stage]]
        .push_back(o);
  return p;
}

int column_axis(const Region& region, const Passes& passes) {
  std::vector<int> stages(region.stages.size());
  std::iota(stages.begin(), stages.end(), 0);
  int best = -1;
  double score = 0;
  for (int a : passes.parallel) {
    const bool apart = std::all_of(region.outputs.begin(), region.outputs.end(),
                                   [&](const Output& o) { return stride_of(region, o, a) != 0; });
    if (!apart)
      continue;
    if (const double s = vector_score(region, stages, a, passes.reduced); best < 0 || s >= score) {
      best = a;
      score = s;
    }
  }
  return best;
}

std::vector<double> flops_by_pass(const Region& region, const Passes& passes) {
  std::vector<double> flops(passes.count, 0);
  // A map between a maximum, or a mean, and the sum that goes along with it waits by its level for
  // a pass that there need not be: it is made in theirs.
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    if (region.stages[s].axes.size() == region.axes.size())
      flops[std::min(passes.level[s], passes.count - 1)] += flops_of(region.stages[s]);
  return flops;
}

std::vector<Kept> worth_keeping(const Region& region, const Passes& passes, double least_flops) {
  std::vector<Kept> kept;
  std::set<int> at_hand;
  std::size_t axes = region.axes.size();
  for (int pass = 0; pass < passes.count; ++pass) {
    auto needs = [&](int later) {
      std::set<int> seen;
      for (int s : passes.reductions[later]) // a spread is made of what its mean is made of
        reach(region, passes.mean_of[s] >= 0 ? passes.mean_of[s] : s, at_hand, seen);
      for (int o : passes.outputs[later])
        reach(region, region.outputs[o].stage, at_hand, seen);
      return seen;
    };
    std::set<int> here = needs(pass), later;
    for (int p = pass + 1; p < passes.count; ++p)
      later.merge(needs(p));
    // Later stages first: keeping one makes those it is made of unnecessary, unless something else
    // needs them.
    for (auto s = here.rbegin(); s != here.rend(); ++s) {
      const Stage& stage = region.stages[*s];
      if (stage.kind != StageKind::Map || stage.axes.size() != axes || !later.contains(*s) ||
          passes.level[*s] > pass) // it depends on a maximum that is not finished
        continue;
      if (recompute_flops(region, *s, at_hand, axes) < least_flops)
        continue;
      kept.push_back({*s, pass});
      at_hand.insert(*s);
      later.clear();
      for (int p = pass + 1; p < passes.count; ++p)
        later.merge(needs(p));
    }
  }
  return kept;
}

} // namespace egret::kernel

#include "kernel/stored_stages.h"

#include "kernel/analysis.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// A map this cheap (in additions) is computed again for each reader instead of being stored.
constexpr double kCheap = 4;

bool must_store(const Region& region, int s) {
  auto readers = readers_of(region, s);
  const Stage& stage = region.stages[s];
  if (readers.empty())
    return false;
  if (stage.kind != StageKind::Map)
    return true;
  bool same_points = std::all_of(readers.begin(), readers.end(), [&](int reader) {
    return region.stages[reader].axes == stage.axes;
  });
  if (same_points && readers.size() == 1)
    return false;
  bool loads_stages = std::any_of(stage.loads.begin(), stage.loads.end(),
                                  [](const Load& l) { return l.source == Source::Stage; });
  return flops_of(stage) > kCheap || loads_stages;
}

/// An output that may take over the memory of an operand must not be written while later nests
/// still read that operand.
bool must_wait(const Region& region, const Output& out) {
  if (out.alias < 0 || out.combine != Combine::Store)
    return false;
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    for (const Load& l : region.stages[s].loads)
      if (l.source == Source::Operand && l.number == out.alias &&
          (int(s) != out.stage || !readers_of(region, int(s)).empty()))
        return true;
  return false;
}

} // namespace

StoredStages stored_stages(const Region& region) {
  StoredStages stored;
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    stored.stages.push_back(must_store(region, int(s)));
  for (std::size_t o = 0; o < region.outputs.size(); ++o)
    if (must_wait(region, region.outputs[o])) {
      stored.waiting.push_back(int(o));
      stored.stages[region.outputs[o].stage] = true;
    }
  return stored;
}

} // namespace egret::kernel

#include "kernel/templates/sweeps.h"

#include "kernel/analysis.h"

#include <set>

namespace egret::kernel {

std::vector<int> stages_of_sweep(const Region& region, const Passes& passes,
                                 const std::vector<Kept>& kept, int sweep) {
  const std::vector<int>& reductions = passes.reductions[std::size_t(sweep)];
  std::set<int> stages(reductions.begin(), reductions.end());
  for (const Kept& k : kept)
    if (k.pass == sweep)
      stages.insert(k.stage);
  for (int o : passes.outputs[std::size_t(sweep)])
    stages.insert(region.outputs[std::size_t(o)].stage);
  return {stages.begin(), stages.end()};
}

std::vector<int> results_before(const Region& region, const Passes& passes, int sweep) {
  std::set<int> results;
  for (int o : passes.point_outputs) {
    const int s = region.outputs[std::size_t(o)].stage;
    if (region.stages[std::size_t(s)].kind == StageKind::Map &&
        (readers_of(region, s).empty() ? passes.count : passes.level[std::size_t(s)]) == sweep)
      results.insert(s);
  }
  return {results.begin(), results.end()};
}

} // namespace egret::kernel

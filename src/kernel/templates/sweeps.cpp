#include "kernel/templates/sweeps.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <set>

namespace egret::kernel {

namespace {

/// Whether nothing but the output's own stage reads the operand whose memory it may take over.
bool reads_alone(const Region& region, const Output& out) {
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    for (const Load& load : region.stages[s].loads)
      if (int(s) != out.stage && load.source == Source::Operand && load.number == out.alias)
        return false;
  return true;
}

/// The sweep that stores an output. One that may take over an operand's memory waits for the last
/// sweep; but where later sweeps read the output itself and nothing else reads the operand, it is
/// stored as soon as it is made.
int sweep_of(const Region& region, const Passes& passes, int output, int planned) {
  const Output& out = region.outputs[std::size_t(output)];
  return out.alias >= 0 && !readers_of(region, out.stage).empty() && reads_alone(region, out)
             ? std::min(planned, passes.level[std::size_t(out.stage)])
             : planned;
}

} // namespace

std::vector<int> stages_of_sweep(const Region& region, const Passes& passes,
                                 const std::vector<Kept>& kept, int sweep) {
  const std::vector<int>& reductions = passes.reductions[std::size_t(sweep)];
  std::set<int> stages(reductions.begin(), reductions.end());
  for (const Kept& k : kept)
    if (k.pass == sweep)
      stages.insert(k.stage);
  for (int planned = 0; planned < passes.count; ++planned)
    for (int o : passes.outputs[std::size_t(planned)])
      if (sweep_of(region, passes, o, planned) == sweep)
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

#include "kernel/map_axes.h"

#include "kernel/analysis.h"

#include <algorithm>

namespace egret::kernel {

std::vector<int> all_stages(const Region& region) {
  std::vector<int> stages(region.stages.size());
  for (std::size_t s = 0; s < stages.size(); ++s)
    stages[s] = int(s);
  return stages;
}

bool is_plain_map(const Region& region) {
  for (const Stage& s : region.stages)
    if (s.kind != StageKind::Map)
      return false;
  return std::all_of(region.outputs.begin(), region.outputs.end(), [&](const Output& o) {
    return o.combine == Combine::Store && region.stages[o.stage].axes.size() == region.axes.size();
  });
}

int map_vector_axis(const Region& region) {
  std::vector<int> stages = all_stages(region);
  int best = -1;
  std::int64_t best_score = INT64_MIN;
  for (int a = 0; a < int(region.axes.size()); ++a) {
    if (std::any_of(region.outputs.begin(), region.outputs.end(),
                    [&](const Output& o) { return stride_of(region, o, a) == 0; }))
      continue;
    std::int64_t score = vector_score(region, stages, a);
    for (const Output& o : region.outputs)
      if (stride_of(region, o, a) == 1)
        score += 16 * std::int64_t(size_of(o.dtype));
    // A short axis leaves lanes empty.
    if (auto n = region.axes[a].extent.constant(); n && *n < 8)
      score -= 16;
    if (score >= best_score) {
      best = a;
      best_score = score;
    }
  }
  return best;
}

int map_turned_axis(const Region& region, int vector) {
  int best = -1;
  std::int64_t best_bytes = 0;
  for (int a = 0; a < int(region.axes.size()); ++a) {
    std::int64_t bytes = 0;
    for (const Stage& stage : region.stages)
      for (const Load& load : stage.loads)
        if (load.source == Source::Operand && load.map.is_total() && load.indirect.empty() &&
            stride_of(region, stage, load, a) == 1) {
          auto s = stride_of(region, stage, load, vector);
          if (s && *s != 0 && *s != 1)
            bytes += std::int64_t(size_of(region.operands[load.number].dtype));
        }
    if (a != vector && bytes > best_bytes) {
      best = a;
      best_bytes = bytes;
    }
  }
  return best;
}

} // namespace egret::kernel

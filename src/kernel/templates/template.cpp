#include "kernel/templates/template.h"

#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/loops/estimate.h"
#include "kernel/loops/gpu_writer.h"
#include "kernel/loops/settle.h"

#include "egret/error.h"

#include <algorithm>
#include <set>

namespace egret::kernel {

namespace {

/// Schedules of a template at the most.
constexpr std::size_t kMost = 16;

/// What writing past the caches, or not, costs beside the best: of results that the caches can keep
/// the next kernel reads what was there, and others are read before they are written.
double writing_seconds(const Region& region, const Schedule& schedule, const Target& target) {
  constexpr double kBytesPerSecond = 1e10, kGpuBytesPerSecond = 1e12; // round figures
  const CachePolicy usual =
      target.is_gpu() ? gpu_store_policy(region, target) : usual_store_policy(region, target);
  if (schedule.store_policy == usual)
    return 0;
  return double(about(cost_of(region).bytes_written)) /
         (target.is_gpu() ? kGpuBytesPerSecond : kBytesPerSecond);
}

} // namespace

Lowered lower_tree(const Region& region, const loops::TreePtr& tree, const Schedule& schedule,
                   const Target& target) {
  try {
    if (auto why = loops::why_not(region, *tree); !why.empty())
      return {false, {}, why};
    const loops::TreePtr ready = loops::settled(region, tree);
    if (target.is_gpu())
      return within_block(loops::GpuWriter(region, *ready, schedule, target).run(), target);
    return {true, loops::Writer(region, *ready, schedule, target).run(), ""};
  } catch (const Error& e) {
    return {false, {}, e.what()};
  } catch (const loops::Cannot& e) {
    return {false, {}, e.what()};
  }
}

std::vector<Schedule> Template::space(const Region& region, const Target& target) const {
  if (!refuses(region).empty())
    return {};
  struct Ranked {
    Schedule schedule;
    double seconds;
  };
  std::vector<Ranked> ranked;
  std::set<std::string> known;
  loops::Estimator estimator(region, target);
  for (Schedule& s : proposals(region, target)) {
    const Built built = build(region, s, target);
    if (!built.tree)
      continue;
    if (!known
             .insert(loops::to_text(*built.tree, region) +
                     (s.store_policy == CachePolicy::Default ? "" : " streaming"))
             .second)
      continue;
    const double seconds = estimator.seconds(*built.tree) + writing_seconds(region, s, target);
    ranked.push_back({std::move(s), seconds});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.seconds < b.seconds; });
  std::vector<Schedule> out;
  for (Ranked& r : ranked)
    if (out.size() < kMost)
      out.push_back(std::move(r.schedule));
  return out;
}

Built Template::tree(const Region& region, const Schedule& schedule, const Target& target) const {
  if (auto why = refuses(region); !why.empty())
    return {nullptr, why};
  if (auto why = refused_settings(schedule, target, parameters()); !why.empty())
    return {nullptr, why};
  return build(region, schedule, target);
}

Lowered Template::lower(const Region& region, const Schedule& schedule,
                        const Target& target) const {
  const Built built = tree(region, schedule, target);
  if (!built.tree)
    return {false, {}, built.reason};
  return lower_tree(region, built.tree, schedule, target);
}

std::optional<loops::TreePtr> tree_of(const Region& region, const Schedule& schedule,
                                      const Target& target) {
  loops::TreePtr tree;
  if (schedule.generator == loops_generator().name()) {
    try {
      tree = loops::parse_tree(schedule.tree, region);
    } catch (const Error&) { // of another region
    }
  }
  for (const Generator* generator : generators(target))
    if (const auto* made = dynamic_cast<const Template*>(generator);
        made && made->name() == schedule.generator)
      tree = made->tree(region, schedule, target).tree;
  return tree ? std::optional(std::move(tree)) : std::nullopt;
}

} // namespace egret::kernel

#include "kernel/templates/template.h"

#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/loops/estimate.h"
#include "kernel/loops/gpu_writer.h"
#include "kernel/loops/settle.h"
#include "kernel/whole_stores.h"

#include "egret/error.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace egret::kernel {

namespace {

/// Schedules of a template at the most.
constexpr std::size_t kMost = 16;
/// Iterations of parallel loops that share out evenly enough among a few threads.
constexpr std::int64_t kEnoughChunks = 64;

/// What writing past the caches, or not, costs beside the best: of results that the caches can keep
/// the next kernel reads what was there, and others are read before they are written.
class WritingSeconds {
public:
  WritingSeconds(const Region& region, const Target& target)
      : usual_(target.is_gpu() ? gpu_store_policy(region, target)
                               : usual_store_policy(region, target)),
        seconds_(double(about(cost_of(region).bytes_written)) /
                 (target.is_gpu() ? kGpuBytesPerSecond : kBytesPerSecond)) {}
  double operator()(CachePolicy policy) const { return policy == usual_ ? 0 : seconds_; }

private:
  static constexpr double kBytesPerSecond = 1e10, kGpuBytesPerSecond = 1e12; // round figures
  CachePolicy usual_;
  double seconds_;
};

/// Whether two schedules differ in nothing that their trees depend on.
bool have_one_tree(Schedule a, const Schedule& b) {
  a.store_policy = b.store_policy;
  return a == b;
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
    KernelProgram program = loops::Writer(region, *ready, schedule, target).run();
    interleave_stores(program);
    return {true, std::move(program), ""};
  } catch (const Error& e) {
    return {false, {}, e.what()};
  } catch (const loops::Cannot& e) {
    return {false, {}, e.what()};
  }
}

loops::TreePtr digits(const Region& region, int axis, std::vector<LoopDigit> steps,
                      loops::TreePtr rest) {
  for (std::size_t i = steps.size(); i-- > 0;) {
    const LoopDigit& d = steps[i];
    const Expr extent = i == 0 ? ceildiv(region.axes[std::size_t(axis)].extent, Expr(d.step))
                               : Expr(steps[i - 1].step / d.step);
    if (i > 0 && extent == Expr(1))
      continue;
    rest = loops::loop(axis, extent, d.step, d.bind, std::move(rest));
  }
  return rest;
}

loops::TreePtr in_turn(std::vector<loops::TreePtr> parts) {
  constexpr std::size_t kInAList = 64; // lists of lists are not as deep
  while (parts.size() > kInAList) {
    std::vector<loops::TreePtr> lists;
    for (auto at = parts.begin(); at != parts.end();) {
      const auto end = at + std::min(std::ptrdiff_t(kInAList), parts.end() - at);
      lists.push_back(in_turn({at, end}));
      at = end;
    }
    parts = std::move(lists);
  }
  loops::TreePtr all = parts.back();
  for (std::size_t i = parts.size() - 1; i-- > 0;)
    all = loops::then(parts[i], std::move(all));
  return all;
}

std::vector<int> axes_but(std::vector<int> axes, std::span<const int> without) {
  std::erase_if(axes, [&](int a) { return contains(without, a); });
  return axes;
}

std::vector<int> axes_but(const Region& region, std::span<const int> without) {
  std::vector<int> axes(region.axes.size());
  std::iota(axes.begin(), axes.end(), 0);
  return axes_but(std::move(axes), without);
}

loops::TreePtr parallel_loops(const Region& region, const std::vector<int>& axes,
                              loops::TreePtr rest) {
  std::vector<Bind> binds;
  Expr pieces(1);
  for (int a : axes) {
    binds.push_back(pieces.lower() >= kEnoughChunks ? Bind::Serial : Bind::Core);
    pieces = pieces * region.axes[std::size_t(a)].extent;
  }
  for (std::size_t i = axes.size(); i-- > 0;)
    rest = loops::loop(axes[i], region.axes[std::size_t(axes[i])].extent, 1, binds[i],
                       std::move(rest));
  return rest;
}

Bind bind_after(const Region& region, const std::vector<int>& axes) {
  return points_of(region, axes).lower() >= kEnoughChunks ? Bind::Serial : Bind::Core;
}

std::vector<Schedule> Template::space(const Region& region, const Target& target) const {
  if (!refuses(region).empty())
    return {};
  struct Ranked {
    Schedule schedule;
    double seconds;
  };
  std::vector<Ranked> ranked;
  std::map<std::string, double> known;                 // by tree: its estimate
  std::set<std::pair<const std::string*, bool>> taken; // and by whether caches are passed
  loops::Estimator estimator(region, target);
  std::optional<WritingSeconds> writing;
  const auto seconds_of = [&](const Built& built) {
    if (!ranks())
      return 0.0;
    return built.region ? loops::Estimator(*built.region, target).seconds(*built.tree)
                        : estimator.seconds(*built.tree);
  };
  std::optional<Schedule> last;
  const std::pair<const std::string, double>* tree = nullptr; // of the last schedule, if it has one
  for (Schedule& s : proposals(region, target)) {
    if (!last || !have_one_tree(*last, s)) {
      const Built built = build(region, s, target);
      tree = nullptr;
      if (built.tree) {
        const auto [at, fresh] =
            known.emplace(loops::to_text(*built.tree, built.region ? *built.region : region), 0);
        if (fresh)
          at->second = seconds_of(built);
        tree = &*at;
      }
      last = s;
    }
    const CachePolicy policy = s.store_policy;
    if (tree == nullptr || !taken.insert({&tree->first, policy != CachePolicy::Default}).second)
      continue;
    double seconds = tree->second;
    if (ranks()) {
      if (!writing)
        writing.emplace(region, target);
      seconds += (*writing)(policy);
    }
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
  return lower_tree(built.region ? *built.region : region, built.tree, schedule, target);
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
        made && made->name() == schedule.generator) {
      const Built built = made->tree(region, schedule, target);
      if (!built.region)
        tree = built.tree;
    }
  return tree ? std::optional(std::move(tree)) : std::nullopt;
}

} // namespace egret::kernel

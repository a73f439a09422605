#include "compiler/search/candidates.h"

#include "compiler/refusals.h"
#include "compiler/search/cost_model.h"
#include "kernel/families.h"
#include "loops/space.h"
#include "support/fail.h"

#include <algorithm>
#include <set>

namespace egret::compiler {

namespace reference = backend::reference;

namespace {

/// What a size without a near upper bound is tried at.
constexpr std::int64_t kUsual = 1024, kNearBound = 1 << 16;
/// Of the greedy schedule's time, what a tree that nobody tries should take at the most; and how
/// long that is at the least, in seconds, for trees to be looked for.
constexpr double kMuchLess = 0.5, kWorthATree = 20e-6;

std::int64_t value_to_try(const Expr& symbol) {
  const std::int64_t wanted = symbol.upper() <= kNearBound ? symbol.upper() : kUsual;
  const std::int64_t step = std::max<std::int64_t>(symbol.divisor(), 1);
  const std::int64_t whole = std::max(wanted, symbol.lower()) / step * step;
  return whole < symbol.lower() ? whole + step : whole;
}

enum class Verify : std::uint8_t { Now, WhenTaken };

/// Lowers to a program that is verified now or by who takes it. A generator that throws
/// InternalError, or whose program does not pass verification, is a refusal like any other, and an
/// error with EGRET_STRICT=1.
kernel::Lowered lower(const kernel::Generator& generator, const kernel::Region& region,
                      const kernel::Schedule& schedule, const kernel::Target& target,
                      Verify verify = Verify::Now) {
  try {
    kernel::Lowered lowered = generator.lower(region, schedule, target);
    if (lowered.ok && verify == Verify::Now)
      kernel::verify(lowered.program);
    return lowered;
  } catch (const InternalError& error) {
    if (strict_by_environment())
      throw;
    return {false, {}, error.what()};
  }
}

/// The first is what lower_greedily() gives; the others stand by prediction, a library's before
/// them, which need no compilation, so that they cost a search least.
void sort_by_prediction(std::vector<Candidate>& list) {
  std::stable_sort(list.begin() + 1, list.end(), [](const Candidate& a, const Candidate& b) {
    return a.predicted < b.predicted;
  });
  std::stable_partition(list.begin() + 1, list.end(),
                        [](const Candidate& c) { return c.program.product.has_value(); });
}

} // namespace

reference::Bindings sizes_to_try(const kernel::Region& region) {
  reference::Bindings sizes;
  std::set<std::string> known;
  auto bind = [&](const Expr& e) {
    for (const Expr& v : variables_of(e))
      if (v.is_symbol() && !kernel::indirect_of(v) && known.insert(v.str()).second)
        sizes.set(v, value_to_try(v));
  };
  for (const kernel::Axis& axis : region.axes)
    bind(axis.extent);
  auto bind_shape = [&](const Shape& shape) {
    for (const Expr& dim : shape)
      bind(dim);
  };
  auto bind_map = [&](const IndexMap& map) {
    bind_shape(map.dims);
    for (const Expr& c : map.coords)
      bind(c);
    for (const Hole& hole : map.holes)
      for (const Guard& guard : hole.valid) {
        bind(guard.value);
        bind(guard.lo);
        bind(guard.hi);
      }
  };
  for (const kernel::Operand& operand : region.operands) {
    bind_shape(operand.shape);
    bind_map(operand.layout);
  }
  for (const kernel::Stage& stage : region.stages) {
    for (const kernel::Load& load : stage.loads)
      bind_map(load.map);
    for (const kernel::BodyValue& value : stage.body)
      bind(value.index);
  }
  for (const kernel::Output& output : region.outputs) {
    bind_shape(output.shape);
    bind_map(output.map);
    bind_map(output.layout);
  }
  return sizes;
}

double footprint(const kernel::Region& region, const reference::Bindings& sizes) {
  double bytes = 0;
  auto add = [&](const Shape& shape, DType dtype) {
    double elements = 1;
    for (const std::int64_t dim : sizes.values_of(shape))
      elements *= static_cast<double>(dim);
    bytes += elements * static_cast<double>(size_of(dtype));
  };
  for (const kernel::Operand& operand : region.operands)
    add(operand.shape, operand.dtype);
  for (const kernel::Output& output : region.outputs)
    add(output.shape, output.dtype);
  return bytes;
}

Candidates candidates_of(const kernel::Region& region, const kernel::Target& target,
                         const Machine& machine, const reference::Bindings& sizes,
                         std::size_t per_generator, std::size_t most) {
  Candidates found;
  std::set<std::uint64_t> known;
  for (const kernel::Generator* generator : kernel::generators(target)) {
    std::size_t taken = 0;
    for (kernel::Schedule& schedule : generator->space(region, target)) {
      if (per_generator > 0 && taken == per_generator)
        break;
      kernel::Lowered lowered = lower(*generator, region, schedule, target);
      if (!lowered.ok) {
        found.refused.push_back({std::move(schedule), std::move(lowered.reason)});
        continue;
      }
      const std::uint64_t hash = kernel::hash_of(lowered.program);
      if (!known.insert(hash).second) {
        ++found.repeated;
        continue;
      }
      lowered.program.name = region.name;
      ++taken;
      const double predicted = predict(lowered.program, region, target, machine, sizes);
      found.list.push_back({std::move(schedule), std::move(lowered.program), hash, predicted});
    }
  }
  ensure(!found.list.empty(), "no generator takes region {}", region.name);
  sort_by_prediction(found.list);
  if (most > 0 && found.list.size() > most)
    found.list.resize(most);
  return found;
}

Candidates candidates_like(Candidate greedy, const kernel::Region& region,
                           const kernel::Target& target, const Machine& machine,
                           const reference::Bindings& sizes, std::size_t most, bool cold) {
  Candidates found;
  const kernel::Schedule& first = found.list.emplace_back(std::move(greedy)).schedule;
  const std::string family = first.generator;
  const auto policy = first.store_policy;
  const std::string known = kernel::to_string(first);
  for (const kernel::Generator* generator : kernel::generators(target)) {
    if (generator->name() != family)
      continue;
    std::vector<kernel::Schedule> space = generator->space(region, target);
    space.resize(std::min(space.size(), most));
    for (kernel::Schedule& schedule : space) {
      if (schedule.store_policy != policy || kernel::to_string(schedule) == known)
        continue;
      kernel::Lowered lowered = lower(*generator, region, schedule, target, Verify::WhenTaken);
      if (!lowered.ok) {
        found.refused.push_back({std::move(schedule), std::move(lowered.reason)});
        continue;
      }
      lowered.program.name = region.name;
      const double predicted = predict(lowered.program, region, target, machine, sizes, cold);
      found.list.push_back({std::move(schedule), std::move(lowered.program), 0, predicted});
    }
  }
  return found;
}

loops::LoopReport add_loop_trees(Candidates& candidates, const kernel::Region& region,
                                 const kernel::Target& target, const Machine& machine,
                                 const reference::Bindings& sizes,
                                 const loops::LoopOptions& options) {
  const kernel::Generator* generator = kernel::find_generator("loops", target);
  if (generator == nullptr || candidates.list.empty()) {
    loops::LoopReport report;
    report.note = "the target has no generator of loop trees";
    return report;
  }
  loops::LoopSpace space = loops::loop_space(region, target, options);
  std::set<std::uint64_t> known;
  for (const Candidate& c : candidates.list)
    known.insert(c.hash);
  for (const loops::LoopTree& t : space.trees) {
    kernel::Schedule schedule;
    schedule.generator = "loops";
    schedule.tree = kernel::loops::to_text(*t.tree, region);
    kernel::Lowered lowered = lower(*generator, region, schedule, target);
    if (!lowered.ok) {
      candidates.refused.push_back({std::move(schedule), std::move(lowered.reason)});
      continue;
    }
    const std::uint64_t hash = kernel::hash_of(lowered.program);
    if (!known.insert(hash).second) {
      ++candidates.repeated;
      continue;
    }
    lowered.program.name = region.name;
    const double predicted = predict(lowered.program, region, target, machine, sizes);
    candidates.list.push_back({std::move(schedule), std::move(lowered.program), hash, predicted});
  }
  sort_by_prediction(candidates.list);
  return std::move(space.report);
}

std::optional<Candidate> quick_loop_tree(const Candidate& greedy, const kernel::Region& region,
                                         const kernel::Target& target, const Machine& machine,
                                         const reference::Bindings& sizes,
                                         std::optional<loops::LoopReport>& report) {
  if (greedy.schedule.generator != kernel::generic_generator().name())
    return std::nullopt;
  const bool in_order =
      std::ranges::any_of(region.outputs,
                          [](const auto& out) { return out.combine != kernel::Combine::Store; }) ||
      std::ranges::any_of(region.stages, [](const auto& s) {
        return s.kind == kernel::StageKind::Scan || s.kind == kernel::StageKind::Sort;
      });
  // The cost model tells a GPU's programs not apart.
  const bool gpu = target.threads > 0;
  if (in_order || (!gpu && greedy.predicted < kWorthATree))
    return std::nullopt;
  loops::QuickTree found = loops::quick_tree(region, target);
  report = std::move(found.report);
  if (!found.tree || (gpu && (found.plain_seconds < kWorthATree ||
                              found.seconds > kMuchLess * found.plain_seconds)))
    return std::nullopt;
  kernel::Schedule schedule;
  schedule.generator = "loops";
  schedule.tree = kernel::loops::to_text(*found.tree, region);
  kernel::Lowered lowered = lower(kernel::loops_generator(), region, schedule, target);
  if (!lowered.ok)
    return std::nullopt;
  lowered.program.name = region.name;
  const std::uint64_t hash = kernel::hash_of(lowered.program);
  const double predicted = predict(lowered.program, region, target, machine, sizes);
  if (!gpu && predicted > kMuchLess * greedy.predicted)
    return std::nullopt;
  return Candidate{std::move(schedule), std::move(lowered.program), hash, predicted};
}

} // namespace egret::compiler

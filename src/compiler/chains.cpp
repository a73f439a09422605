#include "compiler/chains.h"

#include "compiler/compiled.h"
#include "kernel/chain.h"
#include "kernel/region.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace egret::compiler {

using kernel::Plan;
using kernel::SlotKind;
using kernel::Step;
using kernel::StepKind;

namespace {

constexpr int kMostPeriod = 4;
constexpr int kFewestLaunches = 4;

/// Launches first, first + 1 ... of `turns` times `period` kernels.
struct RepeatedRun {
  int first = 0, period = 1, turns = 0;
  int count() const { return period * turns; }
};

class ChainFinder {
public:
  ChainFinder(const Plan& plan, const kernel::Target& target, bool strict)
      : plan_(plan), target_(target), strict_(strict) {
    for (const kernel::KernelEntry& entry : plan.kernels) {
      regions_.push_back(entry.region);
      for (kernel::Operand& operand : regions_.back().operands)
        operand.alignment = static_cast<std::int64_t>(size_of(operand.dtype));
      hashes_.push_back(kernel::hash_of(regions_.back()));
    }
  }

  FoundChains run() {
    const int steps = static_cast<int>(plan_.steps.size());
    for (int at = 0; at < steps;) {
      const RepeatedRun run = longest_from(at);
      if (run.count() >= kFewestLaunches)
        at += add(run) ? found_.chains.back().count : run.count() - run.period + 1;
      else
        ++at;
    }
    return std::move(found_);
  }

private:
  bool same_kernel(int a, int b) const {
    const Step &x = plan_.steps[static_cast<std::size_t>(a)],
               &y = plan_.steps[static_cast<std::size_t>(b)];
    return y.kind == StepKind::Launch && x.scalars == y.scalars &&
           hashes_[static_cast<std::size_t>(x.kernel)] ==
               hashes_[static_cast<std::size_t>(y.kernel)];
  }

  /// The run from a step on that has the most launches, with the shortest period that has so many.
  RepeatedRun longest_from(int first) const {
    RepeatedRun best;
    const int steps = static_cast<int>(plan_.steps.size());
    for (int period = 1; period <= kMostPeriod && first + 2 * period <= steps; ++period) {
      if (!supports(first + period - 1))
        break;
      int end = first + period;
      while (end < steps && same_kernel(end - period, end))
        ++end;
      const RepeatedRun run{first, period, (end - first) / period};
      if (run.turns > 1 && run.count() >= best.count() + period)
        best = run;
    }
    return best;
  }

  bool supports(int number) const {
    const Step& step = plan_.steps[static_cast<std::size_t>(number)];
    return step.kind == StepKind::Launch && step.dims.empty();
  }

  /// Adds the chain of a run, or of its first half and so on where it has too many arguments.
  bool add(RepeatedRun run) {
    for (; run.count() >= kFewestLaunches && run.turns > 1; run.turns /= 2) {
      const std::optional<kernel::ChainProblem> problem = problem_of(run);
      if (!problem)
        return false;
      kernel::LoweredChain lowered = lowered_of(*problem);
      if (lowered.rows_mix)
        found_.mixed.emplace_back(launch_number(run.first),
                                  launch_number(run.first + run.count() - 1));
      if (lowered.ok) {
        if (lowered.seconds >= lowered.launch_seconds)
          return false;
        found_.saved_seconds += lowered.launch_seconds - lowered.seconds;
        append(run, std::move(lowered));
        return true;
      }
      if (!lowered.has_too_many_arguments)
        return false;
    }
    return false;
  }

  kernel::LoweredChain lowered_of(const kernel::ChainProblem& problem) const {
    try {
      return kernel::lower_chain(problem, target_);
    } catch (const InternalError& error) {
      if (strict_)
        throw;
      kernel::LoweredChain refused;
      refused.reason = error.what();
      return refused;
    }
  }

  /// Bytes where a step's argument lies; nothing where they are not known.
  std::optional<kernel::MemoryRange> place_of(const Step& step, std::size_t argument,
                                              const kernel::Buffer& buffer) const {
    const int slot = step.slots[argument];
    const kernel::Slot& s = plan_.slots[static_cast<std::size_t>(slot)];
    const bool arena = s.kind == SlotKind::Arena;
    if (!s.bytes.is_constant() || (arena && !s.offset.is_constant()) ||
        !buffer.elements.is_constant())
      return std::nullopt;
    kernel::MemoryRange place;
    place.base = arena ? kArena : slot;
    place.offset = (arena ? s.offset.value() : 0) + kernel::offset_of(step, argument);
    place.bytes = buffer.elements.value() * static_cast<std::int64_t>(size_of(buffer.dtype));
    return place;
  }

  std::optional<kernel::ChainProblem> problem_of(const RepeatedRun& run) const {
    kernel::ChainProblem problem;
    problem.turns = run.turns;
    for (int k = 0; k < run.period; ++k) {
      const Step& step = plan_.steps[static_cast<std::size_t>(run.first + k)];
      problem.period.push_back(&regions_[static_cast<std::size_t>(step.kernel)]);
    }
    problem.name = problem.period[0]->name + "_steps";
    for (int i = 0; i < run.count(); ++i) {
      const Step& step = plan_.steps[static_cast<std::size_t>(run.first + i)];
      const kernel::KernelEntry& entry = plan_.kernels[static_cast<std::size_t>(step.kernel)];
      std::vector<kernel::MemoryRange>& places = problem.places.emplace_back();
      for (const kernel::Buffer& b : entry.program.buffers) {
        if (b.space != kernel::Space::Argument)
          continue;
        const auto place = place_of(step, places.size(), b);
        if (!place)
          return std::nullopt;
        places.push_back(*place);
      }
    }
    return problem;
  }

  void append(const RepeatedRun& run, kernel::LoweredChain lowered) {
    Chain chain;
    chain.first = run.first;
    chain.count = run.count();
    chain.launch.kind = StepKind::Launch;
    for (int k = 0; k < run.period; ++k) {
      const Step& step = plan_.steps[static_cast<std::size_t>(run.first + k)];
      chain.launch.scalars.insert(chain.launch.scalars.end(), step.scalars.begin(),
                                  step.scalars.end());
    }
    for (const kernel::ChainArgument& argument : lowered.arguments) {
      const int slot = argument.base == kArena ? arena_slot() : argument.base;
      chain.launch.slots.push_back(slot);
      chain.launch.offsets.push_back(
          argument.offset - (argument.base == kArena
                                 ? plan_.slots[static_cast<std::size_t>(slot)].offset.value()
                                 : 0));
    }
    chain.seconds = lowered.seconds;
    chain.program = std::move(lowered.program);
    found_.chains.push_back(std::move(chain));
  }

  int launch_number(int step) const {
    return static_cast<int>(
        std::count_if(plan_.steps.begin(), plan_.steps.begin() + step,
                      [](const Step& s) { return s.kind == StepKind::Launch; }));
  }

  /// A slot of the arena that begins at a known byte, by which all bytes of the arena are found.
  int arena_slot() const {
    for (std::size_t s = 0; s < plan_.slots.size(); ++s)
      if (plan_.slots[s].kind == SlotKind::Arena && plan_.slots[s].offset.is_constant())
        return static_cast<int>(s);
    return -1;
  }

  static constexpr int kArena = -1;
  const Plan& plan_;
  const kernel::Target& target_;
  bool strict_;
  /// By kernel, with operands that begin at any element: those of the steps of a loop over an odd
  /// number of elements differ in that alone.
  std::vector<kernel::Region> regions_;
  std::vector<std::uint64_t> hashes_;
  FoundChains found_;
};

} // namespace

FoundChains chain_launches(const Plan& plan, const kernel::Target& target, bool strict) {
  return target.is_gpu() ? ChainFinder(plan, target, strict).run() : FoundChains();
}

void verify(const std::vector<Chain>& chains, const Plan& plan) {
  int end = 0;
  for (const Chain& chain : chains) {
    const Step& launch = chain.launch;
    ensure(chain.count > 1 && chain.first >= end &&
               chain.end() <= static_cast<int>(plan.steps.size()),
           "plan: a chain of steps {}..{}", chain.first, chain.end() - 1);
    end = chain.end();
    for (int s = chain.first; s < end; ++s)
      ensure(plan.steps[static_cast<std::size_t>(s)].kind == StepKind::Launch,
             "plan: step {} of a chain is no launch", s);
    std::size_t pointers = 0;
    for (const kernel::Buffer& b : chain.program.buffers)
      pointers += b.space == kernel::Space::Argument || b.space == kernel::Space::Workspace;
    ensure(launch.slots.size() == pointers && launch.offsets.size() == pointers &&
               launch.scalars.size() == chain.program.scalars.size() && chain.program.dims.empty(),
           "plan: the chain {} has {} arguments and takes {}", chain.program.name,
           launch.slots.size(), pointers);
    for (const int s : launch.slots)
      ensure(s >= 0 && static_cast<std::size_t>(s) < plan.slots.size(),
             "plan: chain {} has no slot {}", chain.program.name, s);
    kernel::verify(chain.program);
  }
}

std::string print(const std::vector<Chain>& chains) {
  std::string out;
  for (const Chain& chain : chains)
    out += fmt::format(
        "steps {}..{} as one launch, predicted {:.1f} us, on slots {} at bytes {}\n{}", chain.first,
        chain.end() - 1, chain.seconds * 1e6, fmt::join(chain.launch.slots, " "),
        fmt::join(chain.launch.offsets, " "), kernel::print(chain.program));
  return out;
}

std::vector<bool> launched_alone(const Plan& plan, const std::vector<Chain>& chains) {
  std::vector<bool> alone(plan.kernels.size(), false);
  std::size_t next = 0;
  for (int s = 0; s < static_cast<int>(plan.steps.size()); ++s) {
    while (next < chains.size() && chains[next].end() <= s)
      ++next;
    const bool chained = next < chains.size() && chains[next].first <= s;
    const Step& step = plan.steps[static_cast<std::size_t>(s)];
    if (!chained && step.kind == StepKind::Launch)
      alone[static_cast<std::size_t>(step.kernel)] = true;
  }
  return alone;
}

namespace {

// Inputs that no step writes are settled as soon as all launches from before the plan have ended;
// those of the plan, several of which may overlap, leave them as they are. What came before has
// ended when a launch begins behind one of this plan that did not let it begin at once.
void find_settled(const Plan& plan, std::vector<PlannedWork>& all) {
  bool alone = false;
  for (PlannedWork& work : all) {
    const kernel::KernelProgram* program = work.program;
    const auto is_input = [&](const kernel::Buffer& b) {
      const int slot = work.step->slots[static_cast<std::size_t>(b.argument)];
      return plan.slots[static_cast<std::size_t>(slot)].kind == kernel::SlotKind::Input;
    };
    if (program && has_settled(*program))
      work.settled = alone && std::ranges::all_of(program->buffers, [&](const kernel::Buffer& b) {
                       return !b.settled || is_input(b);
                     });
    alone = alone || !program || !begins_next_at_once(*program); // copies do not overlap
  }
}

} // namespace

std::vector<PlannedWork> work_of(const Compiled& compiled) {
  const Plan& plan = compiled.plan;
  std::vector<PlannedWork> all;
  std::size_t next = 0;
  for (int s = 0; s < static_cast<int>(plan.steps.size());) {
    PlannedWork work;
    work.first = s;
    if (next < compiled.chains.size() && compiled.chains[next].first == s) {
      const Chain& chain = compiled.chains[next];
      work.step = &chain.launch;
      work.program = &chain.program;
      work.artifact = compiled.chain_artifacts[next].get();
      work.count = chain.count;
      ++next;
    } else {
      work.step = &plan.steps[static_cast<std::size_t>(s)];
      if (work.step->kind == StepKind::Launch) {
        const auto kernel = static_cast<std::size_t>(work.step->kernel);
        work.program = &plan.kernels[kernel].program;
        work.artifact = compiled.artifacts[kernel].get();
      }
    }
    s += work.count;
    all.push_back(work);
  }
  find_settled(plan, all);
  return all;
}

} // namespace egret::compiler

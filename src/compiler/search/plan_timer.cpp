#include "compiler/search/plan_timer.h"

#include "backend/reference/random_inputs.h"
#include "support/fail.h"

#include <algorithm>
#include <chrono>

namespace egret::compiler {

namespace reference = backend::reference;

namespace {

using Clock = std::chrono::steady_clock;

std::size_t constant(const Expr& e) {
  ensure(e.is_constant(), "a plan that is timed has sizes that are not fixed");
  return static_cast<std::size_t>(e.value());
}

/// A number that scales nothing to zero or beyond all numbers.
std::uint64_t usual_scalar(DType dtype) {
  reference::HostArray one(dtype, {1});
  reference::Number number;
  number.f = 0.5;
  number.i = 1;
  one.set(0, reference::round_to(dtype, number));
  return reference::scalar_of(dtype, one.at(0)).bits;
}

} // namespace

PlanTimer::PlanTimer(backend::Device& device, const Compiled& compiled, int workers, bool record)
    : device_(device), workers_(workers), record_(record) {
  const kernel::Plan& plan = compiled.plan;
  auto* arena = static_cast<std::byte*>(allocate(constant(plan.arena_bytes)));
  std::vector<void*> slots;
  for (const kernel::Slot& slot : plan.slots) {
    if (slot.kind == kernel::SlotKind::Arena) {
      slots.push_back(arena + constant(slot.offset));
      continue;
    }
    const std::size_t bytes = constant(slot.bytes);
    slots.push_back(allocate(bytes));
    if (slot.kind != kernel::SlotKind::Output)
      fill(slots.back(), slot.dtype, bytes);
  }
  const auto slot = [&](int number) { return slots[static_cast<std::size_t>(number)]; };
  std::size_t pointers = 0, scalars = 0; // blocks point into these
  const std::vector<PlannedWork> all = work_of(compiled);
  for (const PlannedWork& planned : all) {
    pointers += planned.step->slots.size();
    scalars += planned.step->scalars.size();
  }
  pointers_.reserve(pointers);
  scalars_.reserve(scalars);
  const ir::Graph& graph = compiled.report.graph;
  for (const PlannedWork& planned : all) {
    const kernel::Step& step = *planned.step;
    backend::Work work;
    if (step.kind == kernel::StepKind::Copy) {
      work.from = slot(step.slots[0]);
      work.to = slot(step.slots[1]);
      work.bytes = constant(plan.slots[static_cast<std::size_t>(step.slots[0])].bytes);
    } else if (step.kind == kernel::StepKind::Launch) {
      work.artifact = planned.artifact;
      work.program = planned.program;
      work.block.pointers = pointers_.data() + pointers_.size();
      work.block.scalars = scalars_.data() + scalars_.size();
      for (std::size_t i = 0; i < step.slots.size(); ++i)
        pointers_.push_back(static_cast<std::byte*>(slot(step.slots[i])) +
                            kernel::offset_of(step, i));
      for (const int input : step.scalars)
        scalars_.push_back(
            usual_scalar(graph[graph.inputs()[static_cast<std::size_t>(input)]].dtype));
    } else {
      continue;
    }
    work_.push_back(work);
  }
}

void* PlanTimer::allocate(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);
  memory_.push_back(
      std::unique_ptr<void, Release>(device_.allocate(bytes), Release{&device_, bytes}));
  return memory_.back().get();
}

void PlanTimer::fill(void* memory, DType dtype, std::size_t bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20; // elements
  reference::RandomNumbers random(1);
  const std::size_t size = size_of(dtype);
  const auto piece = reference::random_array(
      dtype, static_cast<std::int64_t>(std::min(bytes / size, kPiece)), 0, false, random);
  for (std::size_t at = 0; at < bytes; at += piece.bytes.size())
    device_.copy_in(static_cast<std::byte*>(memory) + at, piece.bytes.data(),
                    std::min(piece.bytes.size(), bytes - at));
}

double PlanTimer::run(int times) {
  device_.synchronize();
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i)
    device_.submit(work_, record_ ? &recording_ : nullptr, workers_);
  device_.synchronize();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int PlanTimer::times_for(double seconds) {
  run(1);
  const double once = std::max(run(1), 1e-9);
  return static_cast<int>(std::clamp(seconds / once, 1.0, 1000.0));
}

double PlanTimer::bytes_of(const kernel::Plan& plan) {
  double bytes = static_cast<double>(constant(plan.arena_bytes));
  for (const kernel::Slot& slot : plan.slots)
    if (slot.kind != kernel::SlotKind::Arena)
      bytes += static_cast<double>(constant(slot.bytes));
  return bytes;
}

std::vector<std::vector<double>> time_in_turn(std::span<PlanTimer* const> plans, double seconds) {
  constexpr double kSample = 5e-4;
  constexpr double kLeast = 5, kMost = 101; // rounds
  std::vector<int> times;
  double round = 0;
  for (PlanTimer* plan : plans) {
    times.push_back(plan->times_for(kSample));
    round += plan->run(times.back());
  }
  const int rounds = static_cast<int>(std::clamp(seconds / std::max(round, 1e-9), kLeast, kMost));
  std::vector<std::vector<double>> all(plans.size());
  for (int r = 0; r < rounds; ++r)
    for (std::size_t p = 0; p < plans.size(); ++p)
      all[p].push_back(plans[p]->run(times[p]) / times[p]);
  return all;
}

} // namespace egret::compiler

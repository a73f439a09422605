#include "runtime/plan_program.h"

#include "runtime/count.h"
#include "runtime/debug.h"
#include "runtime/dims.h"
#include "runtime/profile.h"
#include "support/fail.h"

#include <chrono>
#include <cstring>

namespace egret::runtime {
namespace {

using Clock = std::chrono::steady_clock;

class PlanProgram final : public Program {
public:
  PlanProgram(const ir::Graph& graph, const compiler::Options& options, backend::Device& device,
              compiler::KernelCache& cache, std::shared_ptr<Pool> pool)
      : device_(device), pool_(std::move(pool)), workers_(options.workers),
        compiled_(compiler::compile_graph(graph, options, device, cache)) {
    const kernel::Plan& plan = compiled_.plan;
    ensure(plan.output_slots.size() == graph.outputs.size(), "a plan lacks outputs");
    static_dims_ = plan.dims.empty();
    for (std::size_t s = 0; s < plan.steps.size(); ++s)
      if (plan.steps[s].kind == kernel::StepKind::Launch)
        launch_of_step_.push_back(launches_++);
      else
        launch_of_step_.push_back(-1);
    ensure(compiled_.report.kernels.size() == static_cast<std::size_t>(launches_),
           "a report tells of {} kernels and the plan has {}", compiled_.report.kernels.size(),
           launches_);
  }

  std::vector<StoragePtr> run(std::span<const RunInput> inputs) const override;
  const compiler::CompileReport& report() const override { return compiled_.report; }
  std::string loops() const override;
  std::string code() const override;

private:
  // What one run works with; kept by each thread so that a steady state allocates nothing.
  struct Scratch {
    std::vector<void*> memory, pointers;
    std::vector<std::int64_t> dims;
    std::vector<std::uint64_t> scalars;
  };

  void launch(std::size_t step, const DimValues& dims, std::span<const RunInput> inputs,
              Scratch& scratch) const;

  backend::Device& device_;
  std::shared_ptr<Pool> pool_;
  int workers_;
  compiler::Compiled compiled_;
  bool static_dims_ = false;
  int launches_ = 0;
  std::vector<int> launch_of_step_;
};

std::vector<StoragePtr> PlanProgram::run(std::span<const RunInput> inputs) const {
  const kernel::Plan& plan = compiled_.plan;
  const ir::Graph& graph = compiled_.report.graph;
  ensure(inputs.size() == graph.inputs().size(), "a program of {} inputs was given {}",
         graph.inputs().size(), inputs.size());
  const DimValues dims(graph, plan, inputs);
  thread_local Scratch scratch;
  scratch.memory.assign(plan.slots.size(), nullptr);

  std::vector<StoragePtr> outputs(plan.output_slots.size());
  const auto arena_bytes = static_cast<std::size_t>(dims(plan.arena_bytes));
  StoragePtr arena = arena_bytes > 0 ? pool_->allocate(arena_bytes) : nullptr;
  for (std::size_t s = 0; s < plan.slots.size(); ++s) {
    const kernel::Slot& slot = plan.slots[s];
    switch (slot.kind) {
    case kernel::SlotKind::Input:
      scratch.memory[s] = inputs[static_cast<std::size_t>(slot.number)].storage->data();
      break;
    case kernel::SlotKind::State: {
      const StoragePtr& state = inputs[static_cast<std::size_t>(slot.input)].storage;
      outputs[static_cast<std::size_t>(slot.number)] = state;
      scratch.memory[s] = state->data();
      break;
    }
    case kernel::SlotKind::Output: {
      auto storage = pool_->allocate(static_cast<std::size_t>(dims(slot.bytes)));
      scratch.memory[s] = storage->data();
      outputs[static_cast<std::size_t>(slot.number)] = std::move(storage);
      break;
    }
    case kernel::SlotKind::Arena:
      if (arena)
        scratch.memory[s] = static_cast<std::byte*>(arena->data()) + dims(slot.offset);
      break;
    }
  }
  for (std::size_t step = 0; step < plan.steps.size(); ++step) {
    switch (plan.steps[step].kind) {
    case kernel::StepKind::Launch:
      launch(step, dims, inputs, scratch);
      break;
    case kernel::StepKind::Copy: {
      const int from = plan.steps[step].slots[0], to = plan.steps[step].slots[1];
      const auto bytes =
          static_cast<std::size_t>(dims(plan.slots[static_cast<std::size_t>(from)].bytes));
      std::memcpy(scratch.memory[static_cast<std::size_t>(to)],
                  scratch.memory[static_cast<std::size_t>(from)], bytes);
      count().bytes_read.add(bytes);
      count().bytes_written.add(bytes);
      break;
    }
    case kernel::StepKind::Wait:
      device_.synchronize();
      break;
    case kernel::StepKind::Host:
      break;
    }
  }
  return outputs;
}

void tell(const compiler::KernelReport& kernel, double seconds) {
  const double bytes = static_cast<double>(kernel.bytes_read + kernel.bytes_written);
  debug(2, "kernel {} [{}] {:.1f} us, {:.2f} GB/s, {:.2f} GFLOP/s: {}", kernel.name, kernel.form,
        seconds * 1e6, bytes / seconds * 1e-9, kernel.flops / seconds * 1e-9, kernel.schedule);
}

void PlanProgram::launch(std::size_t number, const DimValues& dims,
                         std::span<const RunInput> inputs, Scratch& scratch) const {
  const kernel::Step& step = compiled_.plan.steps[number];
  const auto which = static_cast<std::size_t>(step.kernel);
  const kernel::KernelProgram& program = compiled_.plan.kernels[which].program;
  scratch.pointers.clear();
  for (int slot : step.slots)
    scratch.pointers.push_back(scratch.memory[static_cast<std::size_t>(slot)]);
  scratch.dims.clear();
  for (int dim : step.dims)
    scratch.dims.push_back(dims.values()[static_cast<std::size_t>(dim)]);
  scratch.scalars.clear();
  for (int input : step.scalars)
    scratch.scalars.push_back(inputs[static_cast<std::size_t>(input)].bits);
  const kernel::ArgBlock block{scratch.pointers.data(), scratch.dims.data(), scratch.scalars.data(),
                               nullptr, nullptr};
  const auto& report = compiled_.report.kernels[static_cast<std::size_t>(launch_of_step_[number])];
  const auto hook = launch_hook();
  const bool timed = hook || debug_level() >= 2;
  const auto begin = timed ? Clock::now() : Clock::time_point{};
  device_.launch(*compiled_.artifacts[which], program, block, workers_);
  if (timed) {
    device_.synchronize();
    const auto end = Clock::now();
    if (hook)
      (*hook)({report, begin, end});
    tell(report, std::chrono::duration<double>(end - begin).count());
  }
  count().kernels_launched.add(1);
  if (static_dims_) {
    count().bytes_read.add(static_cast<std::uint64_t>(report.bytes_read));
    count().bytes_written.add(static_cast<std::uint64_t>(report.bytes_written));
  } else {
    const kernel::Cost cost = kernel::cost_of(compiled_.plan.kernels[which].region);
    count().bytes_read.add(static_cast<std::uint64_t>(dims(cost.bytes_read)));
    count().bytes_written.add(static_cast<std::uint64_t>(dims(cost.bytes_written)));
  }
}

std::string PlanProgram::loops() const {
  std::string text;
  for (const kernel::KernelEntry& entry : compiled_.plan.kernels)
    text += kernel::print(entry.program);
  return text;
}

std::string PlanProgram::code() const {
  std::string text;
  for (const auto& artifact : compiled_.artifacts)
    text += artifact->code();
  return text;
}

} // namespace

std::shared_ptr<const Program>
make_plan_program(const ir::Graph& graph, const compiler::Options& options, backend::Device& device,
                  compiler::KernelCache& cache, std::shared_ptr<Pool> pool) {
  return std::make_shared<PlanProgram>(graph, options, device, cache, std::move(pool));
}

} // namespace egret::runtime

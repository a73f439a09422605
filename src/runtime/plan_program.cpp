#include "runtime/plan_program.h"

#include "compiler/footprint.h"
#include "compiler/values/value_summary.h"
#include "ir/text.h"
#include "loops/space.h"
#include "runtime/count.h"
#include "runtime/debug.h"
#include "runtime/dims.h"
#include "runtime/kept_constants.h"
#include "runtime/profile.h"
#include "support/fail.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

namespace egret::runtime {
namespace {

using Clock = std::chrono::steady_clock;

class PlanProgram final : public Program {
public:
  PlanProgram(const ir::Graph& graph, const compiler::Options& options, backend::Device& device,
              compiler::KernelCache& cache, std::shared_ptr<Pool> pool)
      : device_(device), pool_(std::move(pool)), workers_(options.workers),
        compiled_(compiler::compile_graph(graph, with_chains(options), device, cache)),
        planned_(compiler::work_of(compiled_)), cache_(cache) {
    const kernel::Plan& plan = compiled_.plan;
    ensure(plan.output_slots.size() == graph.outputs.size(), "a plan lacks outputs");
    static_dims_ = plan.dims.empty();
    if (!static_dims_)
      for (const kernel::KernelEntry& entry : plan.kernels)
        costs_.push_back(kernel::cost_of(entry.region));
    for (std::size_t s = 0; s < plan.steps.size(); ++s)
      if (plan.steps[s].kind == kernel::StepKind::Launch)
        launch_of_step_.push_back(launches_++);
      else
        launch_of_step_.push_back(-1);
    ensure(compiled_.report.kernels.size() == static_cast<std::size_t>(launches_),
           "a report tells of {} kernels and the plan has {}", compiled_.report.kernels.size(),
           launches_);
    if (!device.interprets() && !options.inject_fault)
      for (kernel::KernelEntry& entry : compiled_.plan.kernels)
        entry.program.body = kernel::Block(); // lowered again where it is asked for
    bytes_ = compiler::footprint(compiled_);
    if (!options.memory_limit && !options.inject_fault && !options.checked)
      constants_ = std::make_unique<const KeptConstants>(plan, planned_);
    bytes_ += constants_->bytes();
  }

  std::vector<StoragePtr> run(std::span<const RunInput> inputs) const override;
  const compiler::CompileReport& report() const override { return compiled_.report; }
  std::shared_ptr<const compiler::ParameterFolding> derivation() const override {
    return compiled_.derivation;
  }
  std::string plan() const override { return kernel::print(compiled_.plan); }
  std::string loops() const override;
  std::string schedules() const override;
  std::string loop_terms() const override;
  std::string code() const override;
  std::size_t bytes() const override { return bytes_; }

private:
  static compiler::Options with_chains(compiler::Options options) {
    options.chains = true;
    return options;
  }
  kernel::KernelProgram program_of(const kernel::KernelEntry& entry) const;
  std::vector<compiler::PlannedWork> single_steps() const;
  // What one run works with; kept by each thread so that a steady state allocates nothing.
  struct Scratch {
    std::vector<void*> memory, pointers; ///< by slot; of all launches
    std::vector<std::int64_t> dims;
    std::vector<std::uint64_t> scalars;
    std::vector<backend::Work> work; ///< by planned work
    std::vector<StoragePtr> copies;  ///< of inputs in another device's memory
  };

  std::vector<StoragePtr> place_slots(const DimValues& dims, std::span<const RunInput> inputs,
                                      Scratch& scratch, StoragePtr& arena) const;
  StoragePtr allocate(const DimValues& dims, const Expr& bytes, MemoryUse use) const;
  bool takes_input(std::span<const RunInput> inputs, const kernel::Slot& slot,
                   const DimValues& dims) const;
  void* input_memory(std::span<const RunInput> inputs, const kernel::Slot& slot,
                     Scratch& scratch) const;
  void list_work(std::span<const compiler::PlannedWork> planned, const DimValues& dims,
                 std::span<const RunInput> inputs, Scratch& scratch) const;
  void submit(std::span<const backend::Work> work, KeptConstants::Use constants) const;
  void run_timed(std::span<const compiler::PlannedWork> planned, const Scratch& scratch,
                 const DimValues& dims) const;
  void tell_values(std::size_t step, const Scratch& scratch, const DimValues& dims) const;
  backend::reference::HostArray stored(std::size_t step, std::size_t output, const Scratch& scratch,
                                       const DimValues& dims) const;
  void count_work(const compiler::PlannedWork& planned, const backend::Work& work,
                  const DimValues& dims) const;
  const compiler::KernelReport& report_of(std::size_t step) const {
    return compiled_.report.kernels[static_cast<std::size_t>(launch_of_step_[step])];
  }

  backend::Device& device_;
  std::shared_ptr<Pool> pool_;
  int workers_;
  compiler::Compiled compiled_;
  std::vector<compiler::PlannedWork> planned_;
  compiler::KernelCache& cache_;
  /// By kernel: those that only chains launch, once their steps have run one by one.
  mutable std::vector<std::shared_ptr<const backend::Artifact>> single_;
  mutable std::mutex single_mutex_;
  bool static_dims_ = false;
  std::vector<kernel::Cost> costs_; ///< by kernel, unless sizes are static
  int launches_ = 0;
  std::size_t bytes_ = 0;
  std::vector<int> launch_of_step_;
  mutable std::mutex recording_mutex_; ///< held by the thread that uses a recording
  mutable std::unique_ptr<backend::Recording> recording_, rest_recording_; ///< of all; of the rest
  mutable bool ran_ = false; ///< before, so that recording pays
  /// Without any where options want each step to run.
  std::unique_ptr<const KeptConstants> constants_ = std::make_unique<const KeptConstants>();
};

// A plan that does not fit: what it needs, and what would help.
StoragePtr PlanProgram::allocate(const DimValues& dims, const Expr& bytes, MemoryUse use) const {
  try {
    return pool_->allocate(static_cast<std::size_t>(dims(bytes)), use);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Memory)
      throw;
    std::int64_t results = 0;
    for (const kernel::Slot& slot : compiled_.plan.slots)
      if (slot.kind == kernel::SlotKind::Output)
        results += dims(slot.bytes);
    const backend::MemoryState now = device_.memory();
    fail(ErrorKind::Memory,
         "memory: a program of {} kernels needs {} bytes for intermediate values and {} for "
         "results on {}{}; a smaller batch, or fewer tensors that are held, would help ({})",
         launches_, dims(compiled_.plan.arena_bytes), results, device_.name(),
         now.total > 0 ? fmt::format(", of which {} bytes are free", now.free) : "", error.what());
  }
}

void* PlanProgram::input_memory(std::span<const RunInput> inputs, const kernel::Slot& slot,
                                Scratch& scratch) const {
  const bool state = slot.kind == kernel::SlotKind::State;
  const StoragePtr& storage =
      inputs[static_cast<std::size_t>(state ? slot.input : slot.number)].storage;
  if (share_memory(device_, storage->device()))
    return storage->data();
  if (state)
    fail(ErrorKind::State, "run: a state is in memory of {}, the program is for {}",
         storage->device().name(), device_.name());
  scratch.copies.push_back(pool_->allocate(storage->bytes(), MemoryUse::Program));
  copy_storage(*scratch.copies.back(), *storage, storage->bytes());
  return scratch.copies.back()->data();
}

// Fills scratch.memory; gives the outputs.
std::vector<StoragePtr> PlanProgram::place_slots(const DimValues& dims,
                                                 std::span<const RunInput> inputs, Scratch& scratch,
                                                 StoragePtr& arena) const {
  const kernel::Plan& plan = compiled_.plan;
  scratch.memory.assign(plan.slots.size(), nullptr);
  std::vector<StoragePtr> outputs(plan.output_slots.size());
  if (dims(plan.arena_bytes) > 0)
    arena = allocate(dims, plan.arena_bytes, MemoryUse::Program);
  for (std::size_t s = 0; s < plan.slots.size(); ++s) {
    const kernel::Slot& slot = plan.slots[s];
    switch (slot.kind) {
    case kernel::SlotKind::State:
      outputs[static_cast<std::size_t>(slot.number)] =
          inputs[static_cast<std::size_t>(slot.input)].storage;
      [[fallthrough]];
    case kernel::SlotKind::Input:
      scratch.memory[s] = input_memory(inputs, slot, scratch);
      break;
    case kernel::SlotKind::Output: {
      if (takes_input(inputs, slot, dims))
        break;
      auto storage = allocate(dims, slot.bytes, MemoryUse::Value);
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
  // Behind everything that may throw: the value is as good as gone.
  for (std::size_t s = 0; s < plan.slots.size(); ++s) {
    const kernel::Slot& slot = plan.slots[s];
    if (slot.kind != kernel::SlotKind::Output || !takes_input(inputs, slot, dims))
      continue;
    const StoragePtr& given = inputs[static_cast<std::size_t>(slot.input)].storage;
    given->change();
    scratch.memory[s] = given->data();
    outputs[static_cast<std::size_t>(slot.number)] = given;
  }
  return outputs;
}

// Whether an output is written over the input that it may overwrite.
bool PlanProgram::takes_input(std::span<const RunInput> inputs, const kernel::Slot& slot,
                              const DimValues& dims) const {
  if (slot.input < 0)
    return false;
  const RunInput& input = inputs[static_cast<std::size_t>(slot.input)];
  return input.given && share_memory(device_, input.storage->device()) &&
         input.storage->bytes() == static_cast<std::size_t>(dims(slot.bytes));
}

// Chains step by step, for people who look at each.
std::vector<compiler::PlannedWork> PlanProgram::single_steps() const {
  const kernel::Plan& plan = compiled_.plan;
  std::lock_guard lock(single_mutex_);
  single_.resize(plan.kernels.size());
  std::vector<compiler::PlannedWork> steps;
  for (std::size_t s = 0; s < plan.steps.size(); ++s) {
    compiler::PlannedWork one;
    one.step = &plan.steps[s];
    one.first = static_cast<int>(s);
    if (one.step->kind == kernel::StepKind::Launch) {
      const auto k = static_cast<std::size_t>(one.step->kernel);
      if (!compiled_.artifacts[k] && !single_[k])
        single_[k] = cache_.get(program_of(plan.kernels[k]), device_);
      one.program = &plan.kernels[k].program;
      one.artifact = (compiled_.artifacts[k] ? compiled_.artifacts[k] : single_[k]).get();
    }
    steps.push_back(one);
  }
  return steps;
}

void PlanProgram::list_work(std::span<const compiler::PlannedWork> planned, const DimValues& dims,
                            std::span<const RunInput> inputs, Scratch& scratch) const {
  const kernel::Plan& plan = compiled_.plan;
  // Blocks point into these, so they must not move while they are filled.
  std::size_t pointers = 0, numbers = 0, scalars = 0;
  for (const compiler::PlannedWork& one : planned) {
    pointers += one.step->slots.size();
    numbers += one.step->dims.size();
    scalars += one.step->scalars.size();
  }
  scratch.pointers.clear();
  scratch.dims.clear();
  scratch.scalars.clear();
  scratch.work.clear();
  scratch.pointers.reserve(pointers);
  scratch.dims.reserve(numbers);
  scratch.scalars.reserve(scalars);
  auto memory = [&](int slot) { return scratch.memory[static_cast<std::size_t>(slot)]; };
  for (const compiler::PlannedWork& one : planned) {
    const kernel::Step& step = *one.step;
    backend::Work& work = scratch.work.emplace_back();
    if (step.kind == kernel::StepKind::Copy) {
      work.from = memory(step.slots[0]);
      work.to = memory(step.slots[1]);
      work.bytes =
          static_cast<std::size_t>(dims(plan.slots[static_cast<std::size_t>(step.slots[0])].bytes));
      continue;
    }
    if (step.kind != kernel::StepKind::Launch)
      continue;
    work.artifact = one.artifact;
    work.program = one.program;
    work.settled = one.settled;
    work.block.pointers = scratch.pointers.data() + scratch.pointers.size();
    work.block.dims = scratch.dims.data() + scratch.dims.size();
    work.block.scalars = scratch.scalars.data() + scratch.scalars.size();
    for (std::size_t i = 0; i < step.slots.size(); ++i)
      scratch.pointers.push_back(static_cast<std::byte*>(memory(step.slots[i])) +
                                 kernel::offset_of(step, i));
    for (int dim : step.dims)
      scratch.dims.push_back(dims.values()[static_cast<std::size_t>(dim)]);
    for (int input : step.scalars)
      scratch.scalars.push_back(inputs[static_cast<std::size_t>(input)].bits);
  }
}

// As one submission where the device can, from the second run on: recording costs more than a run.
// On the host's memory nothing is recorded, and threads that run one program share nothing here.
void PlanProgram::submit(std::span<const backend::Work> work, KeptConstants::Use constants) const {
  std::unique_lock lock(recording_mutex_, std::defer_lock);
  const bool record = constants != KeptConstants::Use::Compute && !device_.host_memory() &&
                      lock.try_lock() && std::exchange(ran_, true);
  auto& recording = constants == KeptConstants::Use::Kept ? rest_recording_ : recording_;
  count().submissions.add(
      static_cast<std::uint64_t>(device_.submit(work, record ? &recording : nullptr, workers_)));
}

void tell(const compiler::KernelReport& kernel, double seconds) {
  const double bytes = static_cast<double>(kernel.bytes_read + kernel.bytes_written);
  debug(2, "kernel {} [{}] {:.1f} us, {:.2f} GB/s, {:.2f} GFLOP/s: {}", kernel.name, kernel.form,
        seconds * 1e6, bytes / seconds * 1e-9, kernel.flops / seconds * 1e-9, kernel.schedule);
}

backend::reference::HostArray PlanProgram::stored(std::size_t step, std::size_t output,
                                                  const Scratch& scratch,
                                                  const DimValues& dims) const {
  const kernel::Step& launch = compiled_.plan.steps[step];
  const auto& operands =
      compiled_.plan.kernels[static_cast<std::size_t>(launch.kernel)].region.operands;
  const auto pointers = std::count_if(operands.begin(), operands.end(), [](const auto& operand) {
    return operand.role != kernel::Role::Scalar;
  });
  const auto slot =
      static_cast<std::size_t>(launch.slots[static_cast<std::size_t>(pointers) + output]);
  backend::reference::Dims sizes;
  for (const Expr& dim : compiled_.plan.slots[slot].shape)
    sizes.push_back(dims(dim));
  backend::reference::HostArray array(compiled_.plan.slots[slot].dtype, std::move(sizes));
  if (!array.bytes.empty())
    device_.copy_out(array.bytes.data(), scratch.memory[slot], array.bytes.size());
  return array;
}

void PlanProgram::tell_values(std::size_t step, const Scratch& scratch,
                              const DimValues& dims) const {
  const auto& nodes = compiled_.launches[static_cast<std::size_t>(launch_of_step_[step])].outputs;
  for (std::size_t o = 0; o < nodes.size(); ++o)
    write_debug(fmt::format("  {}: {}", ir::node_text(compiled_.report.graph, nodes[o]),
                            compiler::summary_of(stored(step, o, scratch, dims)).text()));
}

// One by one, each waited for.
void PlanProgram::run_timed(std::span<const compiler::PlannedWork> planned, const Scratch& scratch,
                            const DimValues& dims) const {
  const std::span<const backend::Work> work = scratch.work;
  const Observers seen = observers();
  device_.synchronize();
  for (std::size_t i = 0; i < work.size(); ++i) {
    const auto begin = Clock::now();
    count().submissions.add(
        static_cast<std::uint64_t>(device_.submit(work.subspan(i, 1), nullptr, workers_)));
    if (!work[i].artifact)
      continue;
    const auto step = static_cast<std::size_t>(planned[i].first);
    device_.synchronize();
    const auto end = Clock::now();
    if (seen)
      runtime::tell(
          seen, &Observer::launch,
          LaunchRecord{report_of(step), begin, end,
                       compiled_.launches[static_cast<std::size_t>(launch_of_step_[step])],
                       [&](std::size_t output) { return stored(step, output, scratch, dims); }});
    if (debug_level() < 2 ||
        !debug_shows(compiled_.report.graph,
                     compiled_.launches[static_cast<std::size_t>(launch_of_step_[step])]))
      continue;
    tell(report_of(step), std::chrono::duration<double>(end - begin).count());
    if (debug_level() >= 6)
      tell_values(step, scratch, dims);
  }
}

void PlanProgram::count_work(const compiler::PlannedWork& planned, const backend::Work& work,
                             const DimValues& dims) const {
  if (!work.artifact) {
    count().bytes_read.add(work.bytes);
    count().bytes_written.add(work.bytes);
    return;
  }
  count().kernels_launched.add(1);
  for (int s = planned.first; s < planned.first + planned.count; ++s) {
    const auto step = static_cast<std::size_t>(s);
    if (static_dims_) {
      count().bytes_read.add(static_cast<std::uint64_t>(report_of(step).bytes_read));
      count().bytes_written.add(static_cast<std::uint64_t>(report_of(step).bytes_written));
      continue;
    }
    const kernel::Cost& cost = costs_[static_cast<std::size_t>(compiled_.plan.steps[step].kernel)];
    count().bytes_read.add(static_cast<std::uint64_t>(dims(cost.bytes_read)));
    count().bytes_written.add(static_cast<std::uint64_t>(dims(cost.bytes_written)));
  }
}

std::vector<StoragePtr> PlanProgram::run(std::span<const RunInput> inputs) const {
  const ir::Graph& graph = compiled_.report.graph;
  ensure(inputs.size() == graph.inputs().size(), "a program of {} inputs was given {}",
         graph.inputs().size(), inputs.size());
  const DimValues dims(graph, compiled_.plan, inputs);
  thread_local Scratch scratch;
  struct Copies { // of inputs go with the run, also when it fails
    ~Copies() { scratch.copies.clear(); }
    Scratch& scratch;
  } copies{scratch};
  StoragePtr arena;
  auto outputs = place_slots(dims, inputs, scratch, arena);
  const bool timed = debug_level() >= 2 || launches_are_seen(observers());
  const bool apart = timed && !compiled_.chains.empty();
  KeptConstants::Part constants;
  if (!apart)
    constants = constants_->take_part(inputs, *pool_, scratch.memory);
  const std::vector<compiler::PlannedWork> steps =
      apart ? single_steps() : std::vector<compiler::PlannedWork>();
  std::span<const compiler::PlannedWork> planned = planned_;
  if (apart)
    planned = steps;
  else if (constants.use == KeptConstants::Use::Kept)
    planned = constants_->rest();
  list_work(planned, dims, inputs, scratch);
  if (timed)
    run_timed(planned, scratch, dims);
  else
    submit(scratch.work, constants.use);
  if (constants.use == KeptConstants::Use::Compute) {
    device_.synchronize();
    constants_->keep(constants);
  }
  for (std::size_t i = 0; i < planned.size(); ++i)
    count_work(planned[i], scratch.work[i], dims);
  return outputs;
}

// With the statements, which a plan does not keep: lowering gives the same each time.
kernel::KernelProgram PlanProgram::program_of(const kernel::KernelEntry& entry) const {
  if (!entry.program.body.empty() || entry.program.product)
    return entry.program;
  for (const kernel::Generator* generator : kernel::generators(device_.target())) {
    if (generator->name() != entry.schedule.generator)
      continue;
    kernel::Lowered lowered = generator->lower(entry.region, entry.schedule, device_.target());
    ensure(lowered.ok, "kernel {} cannot be lowered again: {}", entry.region.name, lowered.reason);
    lowered.program.name = entry.region.name;
    ensure(kernel::hash_of(lowered.program) == entry.program_hash,
           "kernel {} is another one when it is lowered again", entry.region.name);
    return std::move(lowered.program);
  }
  ensure(false, "kernel {} has the unknown generator {}", entry.region.name,
         entry.schedule.generator);
  return {};
}

std::string PlanProgram::loops() const {
  std::string text;
  for (const kernel::KernelEntry& entry : compiled_.plan.kernels)
    text += kernel::print(program_of(entry));
  for (const compiler::Chain& chain : compiled_.chains)
    text += kernel::print(chain.program);
  return text;
}

std::string PlanProgram::schedules() const {
  return compiler::schedules_text(compiled_.plan.kernels, device_.target());
}

std::string PlanProgram::loop_terms() const {
  std::vector<const kernel::Region*> regions;
  for (const kernel::KernelEntry& entry : compiled_.plan.kernels)
    regions.push_back(&entry.region);
  return loops::program_text(regions, device_.target());
}

std::string PlanProgram::code() const {
  std::string text;
  for (std::size_t k = 0; k < compiled_.artifacts.size(); ++k)
    if (compiled_.artifacts[k]) // else only chains launch it
      text += compiled_.artifacts[k]->code(program_of(compiled_.plan.kernels[k]));
  for (std::size_t k = 0; k < compiled_.chains.size(); ++k)
    text += compiled_.chain_artifacts[k]->code(compiled_.chains[k].program);
  return text;
}

} // namespace

std::shared_ptr<const Program>
make_plan_program(const ir::Graph& graph, const compiler::Options& options, backend::Device& device,
                  compiler::KernelCache& cache, std::shared_ptr<Pool> pool) {
  return std::make_shared<PlanProgram>(graph, options, device, cache, std::move(pool));
}

} // namespace egret::runtime

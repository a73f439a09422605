#include "compiler/plan_runner.h"

#include "support/fail.h"

#include "backend/common/host_launch.h"
#include "backend/reference/program_interpreter.h"
#include "backend/reference/reference.h"

#include <algorithm>
#include <cstring>

namespace egret::compiler {

using backend::reference::HostArray;

namespace {

/// Bytes at an address that kernels may assume to be a multiple of 64, filled with a pattern that
/// is no sensible number.
class AlignedMemory {
public:
  explicit AlignedMemory(std::size_t bytes) : bytes_(bytes + 64, std::byte{0xA5}) {}
  std::byte* data() {
    return bytes_.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes_.data()) % 64) % 64;
  }

private:
  std::vector<std::byte> bytes_;
};

class Run final : public PlanMemory {
public:
  Run(const Compiled& compiled, const ir::Graph& graph, std::span<HostArray> inputs)
      : plan_(compiled.plan), bindings_(backend::reference::bind_inputs(graph, inputs)),
        inputs_(inputs), arena_(bytes(plan_.arena_bytes)) {
    for (const kernel::Slot& slot : plan_.slots) {
      if (slot.kind == kernel::SlotKind::Arena) {
        memory_.push_back(arena_.data() + bindings_.value_of(slot.offset));
        continue;
      }
      own_.emplace_back(bytes(slot.bytes));
      memory_.push_back(own_.back().data());
      const std::int64_t input = slot.kind == kernel::SlotKind::Input ? slot.number : slot.input;
      if (slot.kind != kernel::SlotKind::Output)
        std::ranges::copy(inputs[static_cast<std::size_t>(input)].bytes, own_.back().data());
    }
  }

  HostArray read(int number) const override {
    const kernel::Slot& slot = plan_.slots[static_cast<std::size_t>(number)];
    HostArray array(slot.dtype, bindings_.values_of(slot.shape));
    std::copy_n(memory_[static_cast<std::size_t>(number)], array.bytes.size(), array.bytes.begin());
    return array;
  }

  void write(int number, const HostArray& array) override {
    const kernel::Slot& slot = plan_.slots[static_cast<std::size_t>(number)];
    ensure(array.dtype == slot.dtype && array.dims == bindings_.values_of(slot.shape),
           "a slot is filled with a value of another type");
    std::ranges::copy(array.bytes, memory_[static_cast<std::size_t>(number)]);
  }

  void work(const PlannedWork& planned, backend::Device* device) {
    const kernel::Step& step = *planned.step;
    if (step.kind == kernel::StepKind::Copy) {
      const auto from = static_cast<std::size_t>(step.slots[0]);
      std::memcpy(memory_[static_cast<std::size_t>(step.slots[1])], memory_[from],
                  bytes(plan_.slots[from].bytes));
      return;
    }
    if (step.kind != kernel::StepKind::Launch)
      return;
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < step.slots.size(); ++i)
      pointers.push_back(memory_[static_cast<std::size_t>(step.slots[i])] +
                         kernel::offset_of(step, i));
    std::vector<std::int64_t> dims;
    for (int d : step.dims)
      dims.push_back(bindings_.value_of(plan_.dims[static_cast<std::size_t>(d)]));
    std::vector<std::uint64_t> scalars;
    for (int s : step.scalars) {
      const HostArray& scalar = inputs_[static_cast<std::size_t>(s)];
      std::uint64_t bits = 0;
      std::memcpy(&bits, scalar.bytes.data(), scalar.bytes.size());
      scalars.push_back(bits);
    }
    const kernel::ArgBlock block{pointers.data(), dims.data(), scalars.data(), nullptr, nullptr};
    if (device)
      backend::launch_on_host_memory(*device, *planned.artifact, *planned.program, block);
    else
      backend::reference::interpret(*planned.program, block, {.workers = 2});
  }

private:
  std::size_t bytes(const Expr& e) const { return static_cast<std::size_t>(bindings_.value_of(e)); }

  const kernel::Plan& plan_;
  backend::reference::Bindings bindings_;
  std::span<HostArray> inputs_;
  AlignedMemory arena_;
  std::vector<AlignedMemory> own_;
  std::vector<std::byte*> memory_;
};

} // namespace

std::vector<HostArray> run_plan(const Compiled& compiled, const ir::Graph& graph,
                                std::span<HostArray> inputs, backend::Device* device,
                                StepWatcher* watcher) {
  const kernel::Plan& plan = compiled.plan;
  Run run(compiled, graph, inputs);
  ensure(!watcher || compiled.chains.empty(), "a chain of launches has no steps to watch");
  for (const PlannedWork& planned : work_of(compiled)) {
    const auto s = static_cast<std::size_t>(planned.first);
    if (watcher && watcher->skip(s, run))
      continue;
    if (watcher)
      watcher->before(s, run);
    run.work(planned, device);
    if (watcher && !watcher->after(s, run))
      return {};
  }
  std::vector<HostArray> outputs;
  for (int number : plan.output_slots) {
    const kernel::Slot& slot = plan.slots[static_cast<std::size_t>(number)];
    outputs.push_back(run.read(number));
    if (slot.kind == kernel::SlotKind::State)
      inputs[static_cast<std::size_t>(slot.input)] = outputs.back();
  }
  return outputs;
}

} // namespace egret::compiler

#include "support/plan_runner.h"

#include "backend/common/host_launch.h"
#include "backend/reference/program_interpreter.h"
#include "backend/reference/reference.h"

#include <algorithm>
#include <cstring>

namespace egret::testing {

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

} // namespace

std::vector<HostArray> run_plan(const compiler::Compiled& compiled, const ir::Graph& graph,
                                std::span<HostArray> inputs, backend::Device* device) {
  const kernel::Plan& plan = compiled.plan;
  const auto bindings = backend::reference::bind_inputs(graph, inputs);
  AlignedMemory arena(static_cast<std::size_t>(plan.arena_bytes.value()));
  std::vector<AlignedMemory> own;
  std::vector<void*> memory(plan.slots.size(), nullptr);
  for (std::size_t s = 0; s < plan.slots.size(); ++s) {
    const kernel::Slot& slot = plan.slots[s];
    if (slot.kind == kernel::SlotKind::Arena) {
      memory[s] = arena.data() + slot.offset.value();
      continue;
    }
    own.emplace_back(static_cast<std::size_t>(bindings.value_of(slot.bytes)));
    memory[s] = own.back().data();
    const std::int64_t input = slot.kind == kernel::SlotKind::Input ? slot.number : slot.input;
    if (slot.kind != kernel::SlotKind::Output)
      std::copy(inputs[input].bytes.begin(), inputs[input].bytes.end(), own.back().data());
  }
  for (const kernel::Step& step : plan.steps) {
    if (step.kind == kernel::StepKind::Copy) {
      std::memcpy(memory[step.slots[1]], memory[step.slots[0]],
                  static_cast<std::size_t>(bindings.value_of(plan.slots[step.slots[0]].bytes)));
      continue;
    }
    const kernel::KernelEntry& entry = plan.kernels[step.kernel];
    std::vector<void*> pointers;
    for (int s : step.slots)
      pointers.push_back(memory[s]);
    std::vector<std::int64_t> dims;
    for (int d : step.dims)
      dims.push_back(bindings.value_of(plan.dims[d]));
    std::vector<std::uint64_t> scalars;
    for (int s : step.scalars) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, inputs[s].bytes.data(), inputs[s].bytes.size());
      scalars.push_back(bits);
    }
    const kernel::ArgBlock block{pointers.data(), dims.data(), scalars.data(), nullptr, nullptr};
    if (device)
      backend::launch_on_host_memory(*device, *compiled.artifacts[step.kernel], entry.program,
                                     block);
    else
      backend::reference::interpret(entry.program, block, {.workers = 2});
  }
  std::vector<HostArray> outputs;
  for (int number : plan.output_slots) {
    const kernel::Slot& slot = plan.slots[number];
    HostArray array(slot.dtype, bindings.values_of(slot.shape));
    std::copy_n(static_cast<const std::byte*>(memory[number]), array.bytes.size(),
                array.bytes.begin());
    if (slot.kind == kernel::SlotKind::State)
      inputs[slot.input] = array;
    outputs.push_back(std::move(array));
  }
  return outputs;
}

} // namespace egret::testing

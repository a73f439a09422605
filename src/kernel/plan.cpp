#include "kernel/plan.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

bool updates_in_place(const Region& region, const KernelProgram& program, std::size_t output) {
  const Output& out = region.outputs[output];
  if ((out.combine != Combine::Add && out.combine != Combine::Max) || out.alias < 0)
    return out.combine != Combine::Store;
  std::vector<const Buffer*> arguments;
  for (const Buffer& b : program.buffers)
    if (b.space == Space::Argument)
      arguments.push_back(&b);
  const auto is_tensor = [](const Operand& o) { return o.role == Role::Tensor; };
  const auto tensors = [&](auto count) {
    return std::size_t(
        std::count_if(region.operands.begin(), region.operands.begin() + count, is_tensor));
  };
  const auto written = tensors(std::ptrdiff_t(region.operands.size())) + output;
  return !is_tensor(region.operands[std::size_t(out.alias)]) || written >= arguments.size() ||
         arguments[written]->read || !arguments[tensors(out.alias)]->read;
}

namespace {

const char* name_of(SlotKind k) {
  switch (k) {
  case SlotKind::Input:
    return "input";
  case SlotKind::Output:
    return "output";
  case SlotKind::State:
    return "state";
  case SlotKind::Arena:
    return "arena";
  }
  return "?";
}

/// How a launch treats each of its slots, in the order of Step::slots.
struct Use {
  int slot;
  bool read, written;
  bool updates; ///< needs what was there and writes: the target of a scatter
};

std::vector<Use> uses_of(const Plan& plan, const Step& step) {
  if (step.kind == StepKind::Copy)
    return {{step.slots.at(0), true, false, false}, {step.slots.at(1), false, true, false}};
  if (step.kind != StepKind::Launch)
    return {};
  const KernelEntry& entry = plan.kernels.at(step.kernel);
  std::vector<Use> uses;
  std::size_t operands = 0;
  for (const Operand& o : entry.region.operands)
    operands += o.role == Role::Tensor;
  std::size_t n = 0;
  for (const Buffer& b : entry.program.buffers) {
    if (b.space != Space::Argument && b.space != Space::Workspace)
      continue;
    bool scatter = n >= operands && n - operands < entry.region.outputs.size() &&
                   updates_in_place(entry.region, entry.program, n - operands);
    // What a kernel reads of its own results and workspaces it has written itself.
    bool own = n >= operands && !scatter;
    uses.push_back({step.slots.at(n), b.read && !own, b.written, scatter});
    ++n;
  }
  ensure(n == step.slots.size(), "plan: a launch of {} has {} slots, its kernel takes {}",
         entry.region.name, step.slots.size(), n);
  return uses;
}

/// Whether slot `to` takes over the memory of slot `from` in the one step that both live in.
bool takes_over(const Plan& plan, int from, int to) {
  const Slot &a = plan.slots[from], &b = plan.slots[to];
  if (a.last_step != b.first_step || a.offset != b.offset)
    return false;
  const Step& step = plan.steps.at(a.last_step);
  if (step.kind != StepKind::Launch)
    return false;
  const Region& region = plan.kernels.at(step.kernel).region;
  std::vector<int> operand_slots, output_slots;
  std::vector<std::int64_t> offsets;
  std::size_t n = 0;
  for (const Operand& o : region.operands) {
    offsets.push_back(o.role == Role::Tensor ? offset_of(step, n) : 0);
    operand_slots.push_back(o.role == Role::Tensor ? step.slots.at(n++) : -1);
  }
  for (std::size_t o = 0; o < region.outputs.size(); ++o)
    output_slots.push_back(step.slots.at(n++));
  for (std::size_t o = 0; o < region.outputs.size(); ++o)
    if (output_slots[o] == to)
      for (std::size_t i = 0; i < operand_slots.size(); ++i)
        if (operand_slots[i] == from && offsets[i] == 0 &&
            may_alias(region, int(o), int(i), region.outputs[o].alias == int(i)))
          return true;
  return false;
}

/// Of an argument that begins inside of its slot: the kernel only reads it, and it ends there too.
void check_offsets(const Plan& plan, const Step& step, int number) {
  std::size_t argument = 0;
  for (const Buffer& b : plan.kernels.at(step.kernel).program.buffers) {
    if (b.space != Space::Argument && b.space != Space::Workspace)
      continue;
    const std::int64_t offset = offset_of(step, argument);
    const Slot& slot = plan.slots.at(step.slots.at(argument));
    const Expr end = Expr(offset) + b.elements * Expr(std::int64_t(size_of(b.dtype)));
    ensure(offset == 0 ||
               (offset > 0 && !b.written && offset % std::max<std::int64_t>(1, b.alignment) == 0 &&
                proves_less_equal(end, slot.bytes)),
           "plan: step {} gives byte {} of slot {} as argument {} of {}", number, offset,
           step.slots.at(argument), argument, plan.kernels.at(step.kernel).region.name);
    ++argument;
  }
}

/// proves_less_equal(), at once where both are numbers.
bool ends_before(const Expr& end, const Expr& begin) {
  return end.is_constant() && begin.is_constant() ? end.value() <= begin.value()
                                                  : proves_less_equal(end, begin);
}

void check_memory(const Plan& plan) {
  std::vector<Expr> ends; // of slots in the arena
  for (const Slot& slot : plan.slots)
    ends.push_back(slot.kind == SlotKind::Arena ? slot.offset + slot.bytes : Expr(0));
  std::vector<int> arena;
  for (std::size_t i = 0; i < plan.slots.size(); ++i)
    if (plan.slots[i].kind == SlotKind::Arena)
      arena.push_back(int(i));
  for (int i : arena) {
    const Slot& a = plan.slots[i];
    ensure(proves_less_equal(Expr(0), a.offset) &&
               proves_less_equal(ends[std::size_t(i)], plan.arena_bytes),
           "plan: slot {} at {} of {} bytes is not inside the arena of {}", i, a.offset.str(),
           a.bytes.str(), plan.arena_bytes.str());
    for (int j : arena) {
      if (j <= i)
        continue;
      const Slot& b = plan.slots[j];
      if (a.last_step < b.first_step || b.last_step < a.first_step)
        continue;
      if (ends_before(ends[std::size_t(i)], b.offset) ||
          ends_before(ends[std::size_t(j)], a.offset))
        continue;
      ensure(takes_over(plan, i, j) || takes_over(plan, j, i),
             "plan: slots {} and {} live together in steps {}..{} and overlap in memory", i, j,
             std::max(a.first_step, b.first_step), std::min(a.last_step, b.last_step));
    }
  }
}

} // namespace

std::string print(const Plan& plan) {
  std::string out = fmt::format("plan {:016x}: {} steps, {} kernels, arena {} bytes (bound {})\n",
                                plan.key, plan.steps.size(), plan.kernels.size(),
                                plan.arena_bytes.str(), plan.liveness_bound_bytes.str());
  for (const PlanGuard& g : plan.guards)
    out += fmt::format("  guard {} <= {} < {}: {}\n", g.condition.lo.str(), g.condition.value.str(),
                       g.condition.hi.str(), g.why);
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& s = plan.slots[i];
    out += fmt::format("  slot {} {}", i, name_of(s.kind));
    if (s.number >= 0)
      out += fmt::format(" {}", s.number);
    if (s.input >= 0)
      out +=
          fmt::format(" {} input {}", s.kind == SlotKind::Output ? "perhaps over" : "of", s.input);
    out +=
        fmt::format(": {}{}, {} bytes", egret::name_of(s.dtype), to_string(s.shape), s.bytes.str());
    if (s.kind == SlotKind::Arena)
      out += " at " + s.offset.str();
    out += fmt::format(", steps {}..{}\n", s.first_step, s.last_step);
  }
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    switch (s.kind) {
    case StepKind::Launch: {
      const KernelEntry& k = plan.kernels.at(s.kernel);
      out += fmt::format("  step {} launch {} ({}) on slots {}", i, k.region.name,
                         to_string(k.schedule), fmt::join(s.slots, " "));
      if (!s.offsets.empty())
        out += fmt::format(" at bytes {}", fmt::join(s.offsets, " "));
      if (!s.scalars.empty())
        out += fmt::format(" scalars {}", fmt::join(s.scalars, " "));
      break;
    }
    case StepKind::Copy:
      out += fmt::format("  step {} copy slot {} to slot {}", i, s.slots.at(0), s.slots.at(1));
      break;
    case StepKind::Wait:
      out += fmt::format("  step {} wait", i);
      break;
    case StepKind::Host:
      out += fmt::format("  step {} host", i);
      break;
    }
    out += "\n";
  }
  return out;
}

void verify(const Plan& plan) {
  std::vector<bool> defined(plan.slots.size(), false);
  for (std::size_t i = 0; i < plan.slots.size(); ++i)
    defined[i] = plan.slots[i].kind == SlotKind::Input || plan.slots[i].kind == SlotKind::State;
  std::vector<bool> overwritten(plan.slots.size(), false); // inputs, by outputs so far
  for (const auto* list : {&plan.input_slots, &plan.output_slots})
    for (int s : *list)
      ensure(s >= -1 && s < int(plan.slots.size()), "plan: no slot {}", s);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    for (int s : step.slots)
      ensure(s >= 0 && std::size_t(s) < plan.slots.size(), "plan: step {} has no slot {}", i, s);
    if (step.kind == StepKind::Launch) {
      ensure(step.kernel >= 0 && std::size_t(step.kernel) < plan.kernels.size(),
             "plan: step {} has no kernel {}", i, step.kernel);
      const KernelProgram& program = plan.kernels[step.kernel].program;
      ensure(step.scalars.size() == program.scalars.size() &&
                 step.dims.size() == program.dims.size(),
             "plan: step {} gives {} scalars and {} dims where its kernel takes {} and {}", i,
             step.scalars.size(), step.dims.size(), program.scalars.size(), program.dims.size());
      for (int d : step.dims)
        ensure(d >= 0 && std::size_t(d) < plan.dims.size(), "plan: step {} has no dim {}", i, d);
      if (!step.offsets.empty())
        check_offsets(plan, step, int(i));
    }
    auto uses = uses_of(plan, step);
    for (const Use& u : uses)
      ensure(!overwritten[std::size_t(u.slot)],
             "plan: step {} reads slot {}, which an output may have overwritten", i, u.slot);
    for (const Use& u : uses) {
      // A scatter that works in place finds its data in the slot whose memory it takes over.
      for (std::size_t j = 0; u.updates && !defined[u.slot] && j < plan.slots.size(); ++j)
        if (defined[j] && plan.slots[j].kind == SlotKind::Arena && takes_over(plan, int(j), u.slot))
          defined[u.slot] = true;
      ensure(!(u.read || u.updates) || defined[u.slot],
             "plan: step {} reads slot {} before it is written", i, u.slot);
      const Slot& slot = plan.slots[u.slot];
      ensure(slot.first_step <= int(i) && int(i) <= slot.last_step,
             "plan: step {} uses slot {} outside of its life {}..{}", i, u.slot, slot.first_step,
             slot.last_step);
    }
    for (const Use& u : uses)
      if (u.written) {
        ensure(plan.slots[u.slot].kind != SlotKind::Input, "plan: step {} writes input slot {}", i,
               u.slot);
        defined[u.slot] = true;
        if (const Slot& slot = plan.slots[u.slot]; slot.kind == SlotKind::Output && slot.input >= 0)
          overwritten.at(std::size_t(plan.input_slots.at(std::size_t(slot.input)))) = true;
      }
  }
  for (std::size_t o = 0; o < plan.output_slots.size(); ++o)
    ensure(plan.output_slots[o] >= 0 && defined[plan.output_slots[o]],
           "plan: output {} is never written", o);
  check_memory(plan);
}

} // namespace egret::kernel

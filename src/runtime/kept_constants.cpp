#include "runtime/kept_constants.h"

#include "egret/error.h"

#include <algorithm>

namespace egret::runtime {

namespace {

std::uint64_t bits_of(std::span<const RunInput> inputs, int scalar) {
  return inputs[static_cast<std::size_t>(scalar)].bits;
}

} // namespace

bool KeptConstants::are_numbers(std::span<const RunInput> inputs,
                                const std::vector<std::uint64_t>& all) const {
  return std::ranges::equal(steps_.scalars, all, {},
                            [&](int scalar) { return bits_of(inputs, scalar); });
}

// Null: there is no room.
std::shared_ptr<const KeptConstants::Memory>
KeptConstants::allocate(std::vector<std::uint64_t> numbers, Pool& pool) const {
  Memory memory{std::move(numbers), {}};
  try {
    for (const int slot : steps_.slots) {
      const Expr& bytes = plan_->slots[static_cast<std::size_t>(slot)].bytes;
      memory.blocks.push_back(
          pool.allocate(static_cast<std::size_t>(bytes.value()), MemoryUse::Program));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Memory)
      throw;
    return nullptr;
  }
  return std::make_shared<const Memory>(std::move(memory));
}

KeptConstants::Part KeptConstants::take_part(std::span<const RunInput> inputs, Pool& pool,
                                             std::span<void*> slots) const {
  if (steps_.slots.empty())
    return {};
  Part part{Use::Kept, kept_.load(), {}};
  if (!part.memory || !are_numbers(inputs, part.memory->numbers)) {
    part = {Use::Compute, nullptr, std::unique_lock(mutex_, std::try_to_lock)};
    if (!part.computing)
      return {};
    if (!last_ || !are_numbers(inputs, *last_)) {
      last_.emplace();
      for (const int scalar : steps_.scalars)
        last_->push_back(bits_of(inputs, scalar));
      return {};
    }
    part.memory = allocate(*last_, pool);
    if (!part.memory)
      return {};
  }
  for (std::size_t i = 0; i < steps_.slots.size(); ++i)
    slots[static_cast<std::size_t>(steps_.slots[i])] = part.memory->blocks[i]->data();
  return part;
}

} // namespace egret::runtime

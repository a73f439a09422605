// Constant folding at run time: launches of a plan that depend on nothing but numbers, such as
// those of tables of sines, windows and positions, store the same at each run with the same
// numbers. They run once, and what they stored is kept.
#pragma once

#include "compiler/compiled.h"

#include <cstddef>
#include <span>
#include <vector>

namespace egret::runtime {

struct ConstantSteps {
  std::vector<int> slots;                  ///< that are kept, in ascending order
  std::vector<int> scalars;                ///< inputs by value on which they depend, each once
  std::vector<compiler::PlannedWork> rest; ///< the work of a run that has them; pointers as planned
  std::size_t bytes = 0;                   ///< of the slots
};

/// Bytes that a program may keep for values that it would otherwise compute at each run.
inline constexpr std::size_t kMostConstantBytes = std::size_t{16} << 20;

/// Launches that read nothing but what such launches store, have no symbolic sizes, and store
/// intermediate values that no other step changes, as many as there are bytes for.
ConstantSteps constant_steps(const kernel::Plan& plan,
                             std::span<const compiler::PlannedWork> planned,
                             std::size_t most_bytes = kMostConstantBytes);

} // namespace egret::runtime

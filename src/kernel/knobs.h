// What a schedule may ask of a generator. Schedules come from files and people too, so each
// generator's `lower` looks at every number before it builds loops of it.
#pragma once

#include "kernel/schedule.h"
#include "kernel/target.h"

#include <span>
#include <string>

namespace egret::kernel {

/// A knob that a generator has, and its values: `least`, `least + step` ... up to `most`.
struct Knob {
  const char* name;
  std::int64_t least, most, step = 1;
};

/// Shared settings that a generator takes beside its knobs.
enum class Takes : std::uint8_t { Nothing, Matrix, Tree }; ///< Matrix: @mma, Tree: @tree

/// Why a schedule asks for something that the generator does not have or that no machine has;
/// empty when it does not.
std::string refused_settings(const Schedule& schedule, const Target& target,
                             std::span<const Knob> knobs, Takes takes = Takes::Nothing);

} // namespace egret::kernel

// What the cost model knows of a machine beyond its description: figures of short measurements.
#pragma once

#include "backend/common/device.h"
#include "compiler/search/database.h"
#include "kernel/target.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace egret::compiler {

struct Machine {
  double launch_seconds = 0;   ///< of a launch for one worker that does next to nothing
  double bytes_per_second = 0; ///< of memory, read and written
  double flops_per_second = 0; ///< of a product of f32 matrices by the greedy kernel
  double cycle_seconds = 0;    ///< of a cycle as the model of a CPU's arithmetic counts them
  bool measured = false;       ///< else round figures
};

/// Round figures for a machine of this kind: how they relate matters more than what they are.
Machine usual_machine(const kernel::Target& target);

/// Times four kernels on the device for a few dozen milliseconds each.
Machine measure_machine(backend::Device& device);

/// What the database knows of the machine of `key` (whose region does not matter). When it knows
/// nothing, the machine is measured and that is remembered, where `may_measure`; else, and where
/// measuring fails, the usual figures.
Machine machine_of(backend::Device& device, TuningDatabase& database, TuningKey key,
                   bool may_measure);

} // namespace egret::compiler

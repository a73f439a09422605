// CPUs with AMX, for tests on machines that need not have it: code is made for one, the interpreter
// checks what it computes, and it runs where the machine at hand can.
#pragma once

#include "backend/cpu/code_generator.h"
#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "kernel/serialize.h"
#include "support/cpu_levels.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <string>

namespace egret::testing {

/// A Sapphire Rapids.
inline backend::cpu::Isa isa_with_tiles() {
  backend::cpu::Isa isa;
  isa.cpu = "sapphirerapids";
  isa.vector_bytes = 64;
  isa.x86 = isa.sse41 = isa.avx2 = isa.avx512 = isa.fma = isa.f16c = true;
  isa.bf16_dot = isa.amx = true;
  return isa;
}

inline kernel::Target target_with_tiles() {
  kernel::Target target;
  target.device = "cpu";
  target.name = "sapphirerapids";
  target.workers = 2;
  target.vector_bytes = 64;
  target.vector_registers = 32;
  target.has_fma = true;
  set_units(target, true, true);
  target.l1_bytes = 48 << 10;
  target.l2_bytes = 2 << 20;
  target.fingerprint = 1;
  return target;
}

/// What such a CPU would run.
inline std::string assembly_with_tiles(const kernel::KernelProgram& program) {
  static const auto generator =
      backend::cpu::code_generator_library().open(isa_with_tiles(), backend::cpu::math_library());
  return generator->text(kernel::to_bytes(program), true);
}

inline bool has_tiles_here() {
  return testing::has_tiles(cpu_at("native").target());
}

/// Values by the interpreter with its checks, and by this machine where it has tiles; the code of a
/// machine that does.
inline void check_tiles(const kernel::Region& region, const kernel::KernelProgram& program,
                        const backend::reference::Bindings& sizes = {}) {
  EXPECT_NE(assembly_with_tiles(program).find("tdpbf16ps"), std::string::npos);
  for (const bool interpreted : {true, false}) {
    if (!interpreted && !has_tiles_here())
      continue;
    const auto launch = [&](const kernel::KernelProgram& p, const kernel::ArgBlock& block) {
      if (interpreted) {
        backend::reference::interpret(p, block, {.workers = 2});
        return;
      }
      backend::Device& device = cpu_at("native");
      device.launch(*device.compile(p), p, block);
    };
    const auto result = backend::reference::verify_kernel(region, program, launch, sizes);
    ASSERT_TRUE(result.ok) << (interpreted ? "interpreted " : "run ") << result.message << "\n"
                           << kernel::print(region) << kernel::print(program);
  }
}

} // namespace egret::testing

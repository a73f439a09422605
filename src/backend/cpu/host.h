// What kind of CPU this is: the instruction set to generate for, and the numbers that the
// compiler's cost decisions use.
#pragma once

#include "kernel/target.h"

#include <string>
#include <vector>

namespace egret::backend::cpu {

/// The parts of an instruction set that the renderer decides by.
struct Isa {
  std::string cpu;      ///< LLVM's name of the CPU to schedule for
  std::string features; ///< LLVM's feature string, "+avx2,-avx512f,..."
  int vector_bytes = 16;
  bool x86 = false;
  bool sse41 = false, avx2 = false, avx512 = false; ///< avx512: F, BW, DQ and VL together
  bool fma = false, f16c = false;
  bool gathers = false;  ///< by one instruction in less time than by loads one after the other
  bool bf16_dot = false; ///< AVX512_BF16: products of pairs of bf16
  bool amx = false;      ///< tiles, their products in bf16, and the system's leave to use them
};

/// What LLVM knows of the CPU at hand.
struct HostCpu {
  std::string name;                  ///< LLVM's name
  std::vector<std::string> features; ///< "+avx2", "-avx512f" ..., sorted
  bool x86 = false;
};

struct Host {
  Isa isa;
  kernel::Target target;
};

/// Capabilities and matrix units of a CPU: products of pairs of 16-bit integers, which all have,
/// and those of pairs of bf16 (AVX512_BF16) and of tiles (AMX).
void describe_units(kernel::Target& target, bool pairs, bool tiles);

/// The machine at hand, with `workers` workers (0: EGRET_THREADS, or else the cores that this
/// process may use: its affinity mask, bounded by its cgroup's share). EGRET_CPU narrows the
/// instruction set: "native" (the default), "avx2" or "sse2". Throws Error(Value) when one of the
/// two variables has no sensible value and Error(Device) when the CPU lacks what EGRET_CPU asks
/// for, or there is no code generator (code_generator.h).
Host detect_host(int workers = 0);

} // namespace egret::backend::cpu

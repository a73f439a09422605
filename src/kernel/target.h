// What the compiler may know of a machine: numbers, never an API.
#pragma once

#include <cstdint>
#include <string>

namespace egret::kernel {

struct Target {
  std::string device;             ///< "cpu", "cuda"
  std::string name;               ///< "znver5", "sm_90a"
  int workers = 1;                ///< threads a launch may use
  int vector_bytes = 16;          ///< widest vector register
  int vector_registers = 16;
  bool has_fma = false;
  bool has_bf16_dot = false;
  bool has_amx = false;
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20, l3_bytes = 8 << 20; ///< of one core; l3 as shared
  std::uint64_t fingerprint = 0;  ///< of everything that generated code depends on: part of every key
};

} // namespace egret::kernel

// What the compiler may know of a machine: numbers, never an API.
#pragma once

#include "kernel/matrix_unit.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::kernel {

enum class DeviceKind : std::uint8_t { Cpu, Gpu };

struct Target {
  DeviceKind kind = DeviceKind::Cpu;
  std::string device;    ///< as users name it; decides nothing
  std::string name;      ///< "znver5", "sm_90a"
  int workers = 1;       ///< threads a launch may use
  int sharing = 1;       ///< regions of the launch that the one at hand is part of
  int vector_bytes = 16; ///< widest vector register
  int vector_registers = 16;
  bool has_fma = false;
  std::uint32_t capabilities = 0; ///< a bit each: see has()
  std::vector<MatrixUnit> units;  ///< one at the most of each layout and element type
  std::int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20,
               l3_bytes = 8 << 20; ///< of one core; l3 as shared
  // A GPU's; 0 on a CPU. Its `workers` are multiprocessors, its l2_bytes those of the whole chip.
  int architecture = 0; ///< the backend's own number of an instruction set: decides nothing else
  int subgroup = 0;     ///< lanes that run in step
  std::int64_t block_shared_bytes = 0; ///< shared memory that one block may ask for
  std::int64_t shared_bytes =
      0; ///< shared memory of a multiprocessor; each block costs 1 KiB of it beside its own
  std::int64_t registers = 0; ///< 32-bit registers of a multiprocessor
  int schedulers = 1; ///< of a multiprocessor, which share out its subgroups and registers evenly
  int threads = 0, blocks = 0;      ///< that a multiprocessor holds at a time
  std::int64_t memory_bytes = 0;    ///< of the device; 0: unknown
  std::int64_t parameter_bytes = 0; ///< of a launch's pointers, dims and scalars at the most
  /// Version of the library whose products may be called, cublasLt's; 0: none, or none is wanted.
  std::int64_t product_library = 0;
  std::uint64_t fingerprint =
      0; ///< of everything that generated code depends on: part of every key

  bool is_gpu() const { return kind == DeviceKind::Gpu; }
  bool has(Capability c) const { return (capabilities >> static_cast<unsigned>(c) & 1u) != 0; }
  void add(Capability c) { capabilities |= 1u << static_cast<unsigned>(c); }
  /// 32-bit registers that each thread of a GPU may have at the most, if a block of so many threads
  /// is to fit a multiprocessor: each scheduler holds an equal number of the block's subgroups, or
  /// one more than others.
  std::int64_t registers_of_thread(std::int64_t threads) const;
  /// The unit whose operands lie so; null when there is none.
  const MatrixUnit* unit(FragmentLayout layout) const;
  /// The same of units that multiply such elements.
  const MatrixUnit* unit(FragmentLayout layout, DType element) const;
};

} // namespace egret::kernel

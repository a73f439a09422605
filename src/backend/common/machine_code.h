// Artifacts that can tell what their machine code is and takes.
#pragma once

#include <cstdint>
#include <string>

namespace egret::backend {

/// What a launch of a kernel takes of a multiprocessor, as its assembler and driver say.
struct CodeUse {
  int registers = 0;                              ///< of a thread
  std::int64_t stack_bytes = 0;                   ///< of a thread, in memory
  std::int64_t spill_stores = 0, spill_loads = 0; ///< bytes of instructions
  std::int64_t shared_bytes = 0;                  ///< of a block
  int threads = 0;                                ///< of a block
  int blocks = 0;       ///< that a multiprocessor holds at a time; 0: unknown
  double occupancy = 0; ///< their threads, of those that it holds at the most
};

/// What such an artifact is beside an Artifact.
class MachineCode {
public:
  virtual ~MachineCode() = default;
  virtual CodeUse use() const = 0;
  /// Its instructions, as text. `// source N` behind one says that it is of line N, from 1, of
  /// Artifact::code(). The code is compiled again for that.
  virtual std::string assembly() const = 0;
};

} // namespace egret::backend

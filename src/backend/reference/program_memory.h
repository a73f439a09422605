// The buffers of an interpreted program, with a stamp on every element that tells who touched it
// last.
#pragma once

#include "backend/reference/number.h"
#include "backend/reference/program_code.h"
#include "backend/reference/program_interpreter.h"

#include <cstddef>
#include <vector>

namespace egret::backend::reference {

class ProgramMemory {
public:
  ProgramMemory(const ProgramCode& code, const kernel::ArgBlock& block, const std::int64_t* slots,
                int workers, const InterpreterOptions& options);

  /// `phase` is the number of barriers that the worker has passed.
  Number load(int buffer, std::int64_t index, int worker, int phase);
  void store(int buffer, std::int64_t index, Number value, int worker, int phase);

private:
  struct Stamp {
    int writer = -1, write_phase = -1;
    int reader = -1, read_phase = -1; ///< kSeveral: more than one worker in that phase
    bool written = false;
  };
  struct Piece { ///< memory of a buffer, or of one worker's part of it
    std::byte* data = nullptr;
    std::int64_t elements = 0;
    std::vector<std::byte> own;
    std::vector<Stamp> stamps;
  };
  static constexpr int kSeveral = -2;

  Piece& piece(int buffer, int worker);
  Stamp& checked(int buffer, std::int64_t index, int worker, const char* what);
  [[noreturn]] void race(int buffer, std::int64_t index, const char* what, int first,
                         const char* then, int second) const;

  const kernel::KernelProgram& program_;
  InterpreterOptions options_;
  std::vector<std::vector<Piece>> pieces_; ///< [buffer][worker], one entry for shared ones
};

} // namespace egret::backend::reference

// The buffers of an interpreted program, with a stamp on every element that tells who touched it
// last.
#pragma once

#include "backend/reference/number.h"
#include "backend/reference/program_code.h"
#include "backend/reference/program_interpreter.h"

#include <cstddef>
#include <vector>

namespace egret::backend::reference {

/// Who touches an element, and when. A CPU's workers are threads of one block.
struct Actor {
  int thread = 0, block = 0;
  int phase = 0;         ///< barriers that the block has passed
  int grid_phase = 0;    ///< barriers that all blocks have passed
  bool acquired = false; ///< what other blocks wrote is visible: in a last block
  const kernel::ProblemGroup* group = nullptr; ///< within a problem: of which group, and which one
  std::size_t problem = 0;
  int cluster = 0;       ///< of the block
  int cluster_phase = 0; ///< barriers that the cluster has passed
};

class ProgramMemory {
public:
  /// `owners`: of memory of their own, workers of a CPU or blocks of a GPU.
  ProgramMemory(const ProgramCode& code, const kernel::ArgBlock& block, const std::int64_t* slots,
                int owners, const InterpreterOptions& options);

  Number load(int buffer, std::int64_t index, const Actor& actor);
  void store(int buffer, std::int64_t index, Number value, const Actor& actor);
  /// An atomic update of the element; it may meet others, but no load or store.
  /// What was there before.
  Number combine(int buffer, std::int64_t index, Monoid monoid, Number value, const Actor& actor);

private:
  struct Touch {
    int thread = -1; ///< kSeveral: more than one in that phase
    int block = -1;  ///< kSeveral: of more than one
    int phase = -1, grid_phase = -1;
    int cluster = -1; ///< kSeveral: of more than one
    int cluster_phase = -1;
    /// Whether something that another thread does now is not ordered behind it.
    bool races_with(const Actor& actor) const;
    /// Notes the actor beside those of the same phase.
    void join(const Actor& actor);
  };
  struct Stamp {
    Touch write, read, update;
    bool written = false;
  };
  struct Piece { ///< memory of a buffer, or of one worker's part of it
    std::byte* data = nullptr;
    std::int64_t elements = 0;
    std::vector<std::byte> own;
    std::vector<Stamp> stamps;
  };
  static constexpr int kSeveral = -2;

  /// The buffer itself, or the argument that it is in the actor's problem.
  int memory_of(int buffer, const Actor& actor) const;
  Piece& piece(int buffer, const Actor& actor);
  Stamp& checked(int buffer, std::int64_t index, const Actor& actor, const char* what);
  [[noreturn]] void race(int buffer, std::int64_t index, const char* what, int first,
                         const char* then, int second) const;

  const kernel::KernelProgram& program_;
  InterpreterOptions options_;
  std::vector<std::vector<Piece>>
      pieces_; ///< [buffer][worker or block], one entry for those of all
};

} // namespace egret::backend::reference

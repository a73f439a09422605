// A program's machine code, made or found on disk.
#pragma once

#include "backend/cpu/code_generator.h"
#include "kernel/program.h"
#include "support/object_cache.h"

namespace egret::backend::cpu {

struct CompiledProgram {
  std::unique_ptr<Code> code;
  CodeTimes times;
  bool loaded = false; ///< found in the cache
};

/// Two programs with one key have the same code: the program but for its name, what the code is
/// made for, and who makes it.
Hash128 object_key(const kernel::KernelProgram& program, const Isa& isa);

/// `objects` may be null.
CompiledProgram compile_program(CodeGenerator& generator, const Isa& isa,
                                const kernel::KernelProgram& program, ObjectCache* objects);

} // namespace egret::backend::cpu

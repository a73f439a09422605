// From a kernel program to a function of LLVM IR.
#pragma once

#include "backend/cpu/host.h"
#include "backend/cpu_codegen/lines.h"
#include "kernel/program.h"

namespace llvm {
class Module;
}

namespace egret::backend::cpu {

/// Adds `void NAME(const ArgBlock*, i64 worker, i64 workers)` for the program to the module;
/// returns NAME. With `lines`, instructions have debug locations: those of their statements.
/// InternalError when the program breaks a promise of its form.
std::string render(const kernel::KernelProgram& program, const Isa& isa, llvm::Module& module,
                   const StatementLines* lines = nullptr);

/// The function's name: the program's, with what an assembler would not take replaced.
std::string symbol_of(const kernel::KernelProgram& program);

} // namespace egret::backend::cpu

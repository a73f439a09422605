// Which line of a kernel program's text each instruction of its machine code is of.
#pragma once

#include "kernel/program.h"

#include <string>
#include <unordered_map>

namespace llvm {
class Instruction;
class Module;
} // namespace llvm

namespace egret::backend::cpu {

/// Lines of statements, from 1, as kernel::print() writes the program.
using StatementLines = std::unordered_map<const kernel::Stmt*, unsigned>;
StatementLines statement_lines(const kernel::KernelProgram& program);

/// The module's text, "; line N" behind the instructions that are of a line. Its debug information,
/// which says so, is gone then.
std::string text_with_lines(llvm::Module& module);

/// An assembler's text with directives `.loc`: "# line N" behind instructions instead of these.
std::string assembly_with_lines(const std::string& assembly);

} // namespace egret::backend::cpu

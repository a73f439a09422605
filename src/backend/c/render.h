// Kernel programs as C11: text to read, to compile, to carry elsewhere. The head of the text says
// how its function is called.
#pragma once

#include "kernel/program.h"

#include <string>

namespace egret::backend::c {

/// Complete text of one kernel, whose function is called clike::kernel_symbol(). Texts of several
/// kernels, one behind the other, are one file that compiles, too. Error(Unsupported) when the
/// program has something that C lacks.
std::string render_c(const kernel::KernelProgram& program);

/// What the text needs of a compiler, beside that it is C11: no fused multiply-add where none is
/// written, memory that is seen as two types.
inline constexpr const char* kFlags[] = {
    "-O2",     "-std=c11",        "-ffp-contract=off", "-fno-strict-aliasing",
    "-fwrapv", "-fno-math-errno", "-shared",           "-fPIC"};

} // namespace egret::backend::c

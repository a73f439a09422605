// Kernel programs as C11: text to read, to compile, to carry elsewhere. The head of the text says
// how its function is called.
#pragma once

#include "kernel/program.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace egret::backend::c {

/// Whether a kernel's function is seen outside of its file.
enum class Linkage : std::uint8_t { External, Internal };

/// Complete text of one kernel, whose function is called clike::kernel_symbol(). Texts of several
/// kernels, one behind the other, are one file that compiles, too. Error(Unsupported) when the
/// program has something that C lacks.
std::string render_c(const kernel::KernelProgram& program, Linkage linkage = Linkage::External);

/// What every text begins with: included headers and what a kernel is called with.
std::string_view text_head();

/// What the text needs of a compiler, beside that it is C11: no fused multiply-add where none is
/// written, memory that is seen as two types.
inline constexpr const char* kFlags[] = {
    "-O2",     "-std=c11",        "-ffp-contract=off", "-fno-strict-aliasing",
    "-fwrapv", "-fno-math-errno", "-shared",           "-fPIC"};

} // namespace egret::backend::c

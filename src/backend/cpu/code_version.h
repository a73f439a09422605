// Which version of this back end, and of LLVM, makes machine code.
#pragma once

#include <cstdint>
#include <string>

namespace egret::backend::cpu {

/// Hash of the sources that decide what machine code a program becomes.
std::uint64_t source_version() noexcept;

/// Differs between any two builds that could make different code of one program: that hash, and
/// LLVM's version at run time. Errors as of code_generator_library().
const std::string& code_version();

} // namespace egret::backend::cpu

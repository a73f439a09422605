// Which version of this back end, and of LLVM, makes machine code.
#pragma once

#include <string>

namespace egret::backend::cpu {

/// Differs between any two builds that could make different code of one program: a hash of the
/// sources that decide about it, and LLVM's version at run time.
const std::string& code_version();

} // namespace egret::backend::cpu

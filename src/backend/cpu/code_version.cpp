#include "backend/cpu/code_version.h"

#include "generators_version.h"

#include <fmt/format.h>
#include <llvm-c/Core.h>

namespace egret::backend::cpu {

const std::string& code_version() {
  static const std::string version = [] {
    unsigned major = 0, minor = 0, patch = 0;
    LLVMGetVersion(&major, &minor, &patch);
    return fmt::format("cpu {:016x}, LLVM {}.{}.{}", EGRET_CPU_CODE_VERSION, major, minor, patch);
  }();
  return version;
}

} // namespace egret::backend::cpu

#include "backend/cpu/code_version.h"

#include "backend/cpu/code_generator.h"
#include "generators_version.h"

#include <fmt/format.h>

namespace egret::backend::cpu {

std::uint64_t source_version() noexcept {
  return EGRET_CPU_CODE_VERSION;
}

const std::string& code_version() {
  static const std::string version = fmt::format("cpu {:016x}, LLVM {}", source_version(),
                                                 code_generator_library().llvm_version());
  return version;
}

} // namespace egret::backend::cpu

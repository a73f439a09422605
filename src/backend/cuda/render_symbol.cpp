#include "backend/cuda/render.h"

#include "support/fail.h"

namespace egret::backend::cuda {

std::string kernel_symbol(const kernel::KernelProgram& program) {
  std::string name;
  for (char c : program.name.substr(0, 40)) {
    const bool allowed = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += allowed ? c : '_';
  }
  return fmt::format("k_{}_{:016x}", name, kernel::hash_of(program));
}

} // namespace egret::backend::cuda

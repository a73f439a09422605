// From a plan's kernel programs to machine code.
#pragma once

#include "backend/common/device.h"
#include "compiler/chains.h"
#include "compiler/kernel_cache.h"
#include "kernel/plan.h"

#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <vector>

namespace egret::compiler {

struct GeneratedCode {
  /// By Plan::kernels; null for those that were refused, and those that only chains launch.
  std::vector<std::shared_ptr<const backend::Artifact>> artifacts;
  std::vector<std::shared_ptr<const backend::Artifact>> chains; ///< by chain; null: refused
  std::map<std::size_t, std::exception_ptr> refused; ///< by kernel: why it has no code (refusals.h)
  std::exception_ptr refused_chain;                  ///< likewise, of one that was refused
  int compiled = 0, loaded = 0, cached = 0;          ///< made, found on disk, found in memory
};

/// The machine code of all kernels and chains, several at a time: on as many threads as the device
/// has a use for. Kernels that `cache` holds are not compiled again. Errors that are about no
/// kernel are the device's.
GeneratedCode generate_code(const kernel::Plan& plan, const std::vector<Chain>& chains,
                            backend::Device& device, KernelCache& cache);

} // namespace egret::compiler

// Ranges of the host's time for NVIDIA's tools (Nsight Systems, Nsight Compute), by the protocol of
// NVTX 3 (nvtx3/nvtxDetail/nvtxInit.h, nvtxTypes.h of the CUDA toolkit).
#pragma once

#include "backend/common/range_tool.h"

#include <cstddef>
#include <cstdint>

namespace egret::backend::cuda {

/// The tool that NVTX_INJECTION64_PATH names, as NVIDIA's tools set it for the programs that they
/// start; null when it is not set, or the library cannot be used.
const RangeTool* nvtx_tool();

/// What a tool's library and a program tell each other.
namespace nvtx {

using Function = void (*)();
constexpr std::uint32_t kCallbacks = 1;             ///< number of the export table
constexpr int kCore = 1;                            ///< number of the module of functions
constexpr unsigned kRangePushA = 9, kRangePop = 11; ///< their places in the module
constexpr unsigned kFunctions = 16;                 ///< of the module

struct ExportTable {
  std::size_t size;
  /// The places of a module's functions, which the tool sets; 0: there is no such module.
  int (*functions)(int module, Function*** places, unsigned* count);
};
using GetExportTable = const void* (*)(std::uint32_t number);
/// `InitializeInjectionNvtx2` of the tool's library; 0: it cannot work.
using Initialize = int (*)(GetExportTable tables);

} // namespace nvtx
} // namespace egret::backend::cuda

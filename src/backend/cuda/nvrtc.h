// NVRTC, the compiler from CUDA C++ text to machine code, found at run time. It needs no GPU.
#pragma once

#include "backend/cuda/library.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::backend::cuda {

/// What one kernel takes of a multiprocessor, as the assembler reports it.
struct KernelResources {
  std::string kernel;
  int registers = 0;            ///< of a thread
  std::int64_t stack_bytes = 0; ///< of a thread, in local memory: arrays and spills
  std::int64_t spill_stores = 0, spill_loads = 0; ///< bytes of instructions
  std::int64_t shared_bytes = 0;                  ///< of a block, static
  std::int64_t constant_bytes = 0;                ///< parameters included
  friend bool operator==(const KernelResources&, const KernelResources&) = default;
};

struct NvrtcOptions {
  int max_registers = 0; ///< of a thread; 0: the compiler's choice
  bool line_info = false;
};

/// Machine code for one architecture, or PTX where NVRTC does not know the architecture.
struct Cubin {
  std::string code;
  std::string log; ///< the compiler's and the assembler's words
  std::vector<KernelResources> kernels;
  double seconds = 0;  ///< that compiling took; as first compiled when `cached`
  bool cached = false; ///< found in the cache
};

/// Thread-safe; threads compile in parallel.
class Nvrtc {
public:
  /// Throws Error(Device) that says what was tried when NVRTC is not there or cannot be used.
  static std::shared_ptr<const Nvrtc> load(const LibraryPaths& paths = default_paths());
  /// The process's, by the default paths.
  static std::shared_ptr<const Nvrtc> instance();
  ~Nvrtc();

  int version() const noexcept; ///< 13000 for 13.0
  const std::string& path() const noexcept;
  const std::vector<int>& architectures() const noexcept; ///< ascending: 75, 80 ... 120

  /// "sm_90a" when NVRTC knows it, else "compute_NN" for the newest architecture below: the driver
  /// compiles that. Error(Device) when there is none.
  std::string architecture_for(int capability, bool specific) const;

  /// Compiles without looking at any cache. Where the text does not compile: Error(Unsupported)
  /// with reason_of_log(); the text is kept in a file that the message names. `name`
  /// stands for the text in messages.
  Cubin compile(std::string_view text, const std::string& architecture,
                const NvrtcOptions& options = {}, const std::string& name = "kernel") const;

private:
  Nvrtc();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Why a text did not compile: the last lines of the log that tell of errors, at most eight, or of
/// the whole log where none does. Warnings come before them.
std::string reason_of_log(std::string_view log);
/// The figures in an assembler's log (ptxas -v).
std::vector<KernelResources> resources_of_log(std::string_view log);
/// The figures that stand in a cubin itself: registers, stack and static shared memory (spills are
/// not told apart there). Empty for PTX; Error(File) when the bytes are no cubin.
std::vector<KernelResources> resources_of_cubin(std::string_view cubin);

} // namespace egret::backend::cuda

// GPUs as the compiler sees them.
#pragma once

#include "kernel/capability.h"
#include "kernel/target.h"

#include <cstdint>
#include <string>

namespace egret::backend::cuda {

/// What generated text may use.
struct CudaTarget {
  int capability = 80; ///< compute capability times ten: 90 for 9.0
  /// Instructions that only this very capability has are allowed ("sm_90a").
  bool specific = false;

  std::string arch() const; ///< "sm_90a", as NVRTC and ptxas name it
  /// Whether a kernel can be launched while the one before it ends, and waits for that by itself
  /// (programmatic dependent launch, CUDA programming guide).
  bool launches_early() const { return capability >= 90; }
  friend bool operator==(const CudaTarget&, const CudaTarget&) = default;
};

/// Whether generated text may use intrinsics that ask for it.
bool provides(const CudaTarget& target, kernel::Capability capability);

/// Bytes of a launch's parameters that drivers and NVRTC of CUDA 12.1 take, and older ones.
inline constexpr std::int64_t kParameterBytes = 32764, kOldParameterBytes = 4096;

/// Capabilities and matrix units of a GPU, by its `architecture`.
void describe_units(kernel::Target& target);

/// A GPU of this capability by its published figures, for work without one: 80 (A100), 86, 89, 90
/// (H100, H200), 100 (B200), 120; of others, the nearest below. Error(Value) below 80.
kernel::Target known_target(int capability);

/// What the renderer may use on a target; Error(Value) when it is no GPU of CUDA.
CudaTarget cuda_target(const kernel::Target& target);

/// Name and fingerprint from the other fields; `versions` is a hash of the compiler's and driver's.
void name_target(kernel::Target& target, std::uint64_t versions);

} // namespace egret::backend::cuda

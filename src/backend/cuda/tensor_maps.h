// Tensor maps of a kernel, encoded for bulk tensor copies (TMA) when a launch's pointers and dims
// are known.
#pragma once

#include "backend/common/launch_number.h"
#include "backend/cuda/context.h"
#include "kernel/program.h"

#include <cstddef>
#include <string>
#include <vector>

namespace egret::backend::cuda {

// Numbers of the driver's API: CUtensorMapDataType, CUtensorMapSwizzle.
int tensor_map_type(DType type);
int tensor_map_swizzle(int bytes); ///< of kernel::TensorMap

class TensorMaps {
public:
  static constexpr std::size_t kBytes = 128; ///< of an encoded map
  static constexpr std::size_t kMost = 8;    ///< of a kernel

  /// Error(Unsupported) when there are more than kMost.
  explicit TensorMaps(const kernel::KernelProgram& program);
  std::size_t count() const noexcept { return maps_.size(); }
  /// Writes count() * kBytes bytes. `pointers` and `dims` as in the argument block. Error(Device)
  /// when the driver refuses one: its memory is not aligned to 16 bytes.
  void encode(const Context& context, void* const* pointers, const std::int64_t* dims,
              std::byte* to) const;

private:
  struct Map {
    std::string buffer; ///< its name
    int argument;
    DType dtype;
    int swizzle;
    LaunchNumber offset;
    std::vector<LaunchNumber> extents, strides;
    std::vector<int> box;
  };
  std::string kernel_;
  std::vector<Map> maps_;
};

} // namespace egret::backend::cuda

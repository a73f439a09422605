// Tensors in and out by DLPack, which PyTorch, NumPy, JAX and others speak.
//
// The structures are those of the DLPack specification, version 1.1 (dmlc.github.io/dlpack), with
// its names and layout: a pointer to one is a pointer to the specification's own. They stand in a
// namespace so that both may be included.
#pragma once

#include "egret/tensor.h"

#include <cstdint>
#include <memory>

namespace egret::dlpack {

struct DLPackVersion {
  std::uint32_t major; ///< another one: another layout
  std::uint32_t minor;
};

enum DLDeviceType : std::int32_t {
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3, ///< memory of the host that is pinned
};
struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;
};

enum DLDataTypeCode : std::uint8_t {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10, ///< f8e4m3
  kDLFloat8_e5m2 = 12,   ///< f8e5m2
};
struct DLDataType {
  std::uint8_t code; ///< DLDataTypeCode
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides; ///< in elements; null: row-major
  std::uint64_t byte_offset;
};

inline constexpr std::uint64_t kReadOnly = 1; ///< flags: DLPACK_FLAG_BITMASK_READ_ONLY
inline constexpr std::uint64_t kIsCopied = 2; ///< flags: DLPACK_FLAG_BITMASK_IS_COPIED

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self); ///< by the consumer, once; may be null
  std::uint64_t flags;
  DLTensor dl_tensor;
};

struct Deleter {
  void operator()(DLManagedTensorVersioned* managed) const noexcept {
    if (managed->deleter)
      managed->deleter(managed);
  }
};
using Managed = std::unique_ptr<DLManagedTensorVersioned, Deleter>;

} // namespace egret::dlpack

namespace egret {

/// Whether values that cross the border are copied.
enum class BorderCopy : std::uint8_t {
  IfNeeded, ///< where the memory cannot be used as it is
  Never,    ///< what cannot be used as it is is Error(Value)
  Always,
};

/// A value for other libraries; computes it and waits until it is there. The memory is egret's, so
/// the tensor says that it is read-only; with Always it is a copy that the consumer may write. Hand
/// the pointer over with release(): the consumer calls its deleter.
dlpack::Managed to_dlpack(const Tensor& a, BorderCopy copy = BorderCopy::IfNeeded);

/// A tensor of another library. The memory is kept until nothing needs it any more, and then the
/// deleter is called, on any thread; it must not change in between, and is never written. What the
/// producer does with a GPU must be done, or be in the order of the legacy default stream.
///
/// Memory that is not row-major, or not aligned (kBorderAlignment; 256 bytes on a GPU), is copied
/// if `copy` allows; on a GPU one that is not row-major is Error(Unsupported). Error(Value) for
/// null, for data that cannot be, and in the host's memory for bools that are neither 0 nor 1;
/// Error(Unsupported) for another major version or a device that is neither the host nor a GPU of
/// CUDA; Error(DType) for element types that egret lacks; Error(Shape) for dims that are negative
/// or cannot be counted; Error(Device) if the GPU cannot be had. The deleter is called then, too.
Tensor from_dlpack(dlpack::Managed managed, BorderCopy copy = BorderCopy::IfNeeded);

} // namespace egret

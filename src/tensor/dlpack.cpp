#include "egret/dlpack.h"

#include "backend/all/backends.h"
#include "backend/common/default_stream.h"
#include "egret/borders.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/borders.h"
#include "tensor/holders.h"

#include <algorithm>
#include <cstring>

namespace egret {

using namespace detail;
using namespace dlpack;

namespace {

constexpr DLPackVersion kVersion{1, 1};
constexpr std::int32_t kMostDims = 1024; ///< no library has tensors of so many
constexpr std::size_t kGpuAlignment = 256;

struct TypeRow {
  DType dtype;
  DLDataTypeCode code;
  std::uint8_t bits;
};
constexpr TypeRow kTypes[] = {
    {DType::Bool, kDLBool, 8},          {DType::I8, kDLInt, 8},
    {DType::I16, kDLInt, 16},           {DType::I32, kDLInt, 32},
    {DType::I64, kDLInt, 64},           {DType::U8, kDLUInt, 8},
    {DType::U16, kDLUInt, 16},          {DType::U32, kDLUInt, 32},
    {DType::U64, kDLUInt, 64},          {DType::F16, kDLFloat, 16},
    {DType::BF16, kDLBfloat, 16},       {DType::F32, kDLFloat, 32},
    {DType::F64, kDLFloat, 64},         {DType::F8E4M3, kDLFloat8_e4m3fn, 8},
    {DType::F8E5M2, kDLFloat8_e5m2, 8},
};

DType dtype_from(DLDataType type) {
  if (type.lanes == 1)
    for (const TypeRow& row : kTypes)
      if (row.code == type.code && row.bits == type.bits)
        return row.dtype;
  fail(ErrorKind::DType, "from_dlpack: there is no dtype for code {} of {} bits and {} lanes",
       static_cast<int>(type.code), static_cast<int>(type.bits), static_cast<int>(type.lanes));
}

DLDataType type_of(DType dtype) {
  const auto* row = std::find_if(std::begin(kTypes), std::end(kTypes),
                                 [&](const TypeRow& r) { return r.dtype == dtype; });
  return {row->code, row->bits, 1};
}

// What a tensor that was given away needs.
struct Exported {
  runtime::StoragePtr storage;
  std::vector<std::int64_t> shape, strides;
  DLManagedTensorVersioned managed{};
};

// What was given to egret, checked.
struct Imported {
  DType dtype;
  std::vector<std::int64_t> shape, strides;
  std::size_t elements = 0;
  backend::DeviceName device;
  const std::byte* data = nullptr;
  bool row_major = true;
  std::size_t bytes() const { return elements * size_of(dtype); }
};

Imported checked(const DLManagedTensorVersioned& managed) {
  if (managed.version.major != kVersion.major)
    fail(ErrorKind::Unsupported, "from_dlpack: version {}.{}; {}.x is understood",
         managed.version.major, managed.version.minor, kVersion.major);
  const DLTensor& t = managed.dl_tensor;
  Imported in{.dtype = dtype_from(t.dtype)};
  if (t.ndim < 0 || t.ndim > kMostDims)
    fail(ErrorKind::Shape, "from_dlpack: {} dims", t.ndim);
  if (t.ndim > 0 && !t.shape)
    fail(ErrorKind::Value, "from_dlpack: no shape for {} dims", t.ndim);
  in.shape.assign(t.shape, t.shape + t.ndim);
  in.elements = checked_elements(in.shape, in.dtype, "from_dlpack");
  in.strides = row_major_strides(in.shape);
  if (t.strides && t.ndim > 0) {
    in.strides.assign(t.strides, t.strides + t.ndim);
    in.row_major = is_row_major(in.shape, in.strides);
  }
  const auto list = backend::backends().list();
  const auto backend =
      std::ranges::find(list, int(t.device.device_type), &backend::Backend::dlpack);
  if (backend != list.end() && backend->dlpack != 0)
    in.device = {std::string(backend->name), t.device.device_id};
  else if (t.device.device_type != kDLCPU && t.device.device_type != kDLCUDAHost)
    fail(ErrorKind::Unsupported,
         "from_dlpack: memory of device type {}; 1 (CPU), 2 (CUDA) and 3 "
         "(CUDA, host) are understood",
         static_cast<int>(t.device.device_type));
  if (in.elements > 0 && !t.data)
    fail(ErrorKind::Value, "from_dlpack: null for {} elements", in.elements);
  if (in.elements > 0)
    in.data = static_cast<const std::byte*>(t.data) + t.byte_offset;
  return in;
}

// Row-major elements of what is not, in the host's memory.
std::vector<std::byte> gathered(const Imported& in) {
  const auto width = static_cast<std::int64_t>(size_of(in.dtype));
  std::vector<std::byte> bytes(in.bytes());
  std::vector<std::int64_t> at(in.shape.size(), 0);
  const std::byte* from = in.data;
  for (std::size_t to = 0; to < bytes.size(); to += static_cast<std::size_t>(width)) {
    std::memcpy(bytes.data() + to, from, static_cast<std::size_t>(width));
    for (std::size_t axis = in.shape.size(); axis-- > 0;) {
      from += in.strides[axis] * width;
      if (++at[axis] < in.shape[axis])
        break;
      from -= at[axis] * in.strides[axis] * width;
      at[axis] = 0;
    }
  }
  return bytes;
}

// How far elements lie from the first one can be counted in bytes.
void check_strides(const Imported& in) {
  std::int64_t farthest = static_cast<std::int64_t>(size_of(in.dtype));
  for (std::size_t i = 0; i < in.shape.size(); ++i) {
    std::int64_t step = 0, reach = 0;
    if (in.strides[i] == std::numeric_limits<std::int64_t>::min() ||
        __builtin_mul_overflow(std::abs(in.strides[i]), in.shape[i], &reach) ||
        __builtin_mul_overflow(reach, static_cast<std::int64_t>(size_of(in.dtype)), &step) ||
        __builtin_add_overflow(farthest, step, &farthest))
      fail(ErrorKind::Value, "from_dlpack: stride {} of a dim of {} elements leads out of memory",
           in.strides[i], in.shape[i]);
  }
}

void check_bools(const Imported& in, std::span<const std::byte> bytes) {
  if (in.dtype != DType::Bool)
    return;
  for (const std::byte b : bytes)
    if (b > std::byte{1})
      fail(ErrorKind::Value, "from_dlpack: a bool is {}, neither 0 nor 1", static_cast<int>(b));
}

// Other libraries work on the device's default stream, which egret's is not ordered with.
void wait_for_default_stream(backend::Device& device) {
  if (auto* const stream = dynamic_cast<backend::DefaultStream*>(&device))
    stream->synchronize_default();
}

Tensor copied(const Imported& in, std::span<const std::byte> bytes) {
  return from_bytes(in.dtype, Shape(in.shape.begin(), in.shape.end()), bytes);
}

} // namespace

Managed to_dlpack(const Tensor& a, BorderCopy copy) {
  auto exported = std::make_unique<Exported>();
  exported->storage = computed(a, "to_dlpack");
  exported->shape = a.sizes();
  exported->strides = row_major_strides(exported->shape);
  backend::Device& device = exported->storage->device();
  auto& runtime = runtime::Runtime::instance();
  backend::DeviceName name;
  DLDeviceType device_type = kDLCPU;
  if (!device.host_memory()) {
    name = backend::backends().parse(device.name(), "to_dlpack");
    const auto list = backend::backends().list();
    device_type = static_cast<DLDeviceType>(
        std::ranges::find(list, name.backend, &backend::Backend::name)->dlpack);
  }
  if (copy == BorderCopy::Always) {
    runtime::StoragePtr own =
        naming_holders([&] { return runtime.pool(name).allocate(exported->storage->bytes()); });
    runtime.copy(own, exported->storage, own->bytes());
    exported->storage = std::move(own);
  }
  device.synchronize();
  DLManagedTensorVersioned& managed = exported->managed;
  managed.version = kVersion;
  managed.flags = copy == BorderCopy::Always ? kIsCopied : kReadOnly;
  managed.dl_tensor = {exported->storage->data(),
                       {device_type, name.index},
                       static_cast<std::int32_t>(exported->shape.size()),
                       type_of(a.dtype()),
                       exported->shape.data(),
                       exported->strides.data(),
                       0};
  managed.manager_ctx = exported.get();
  managed.deleter = [](DLManagedTensorVersioned* self) {
    const std::unique_ptr<Exported> own(static_cast<Exported*>(self->manager_ctx));
    try { // what the consumer has queued still reads it
      wait_for_default_stream(own->storage->device());
    } catch (const Error&) { // a lost device does nothing any more
    }
  };
  return Managed(&exported.release()->managed);
}

Tensor from_dlpack(Managed managed, BorderCopy copy) {
  if (!managed)
    fail(ErrorKind::Value, "from_dlpack: null");
  const Imported in = checked(*managed);
  const bool host = in.device == backend::DeviceName{};
  auto& pool = runtime::Runtime::instance().pool(in.device);
  wait_for_default_stream(pool.device()); // what the producer has queued may still write it
  const std::size_t alignment = host ? kBorderAlignment : kGpuAlignment;
  const bool aligned = reinterpret_cast<std::uintptr_t>(in.data) % alignment == 0;
  if (!in.row_major) {
    check_strides(in);
    if (copy == BorderCopy::Never)
      fail(ErrorKind::Value, "from_dlpack: the elements are not in row-major order, and a copy is "
                             "not allowed");
    if (!host)
      fail(ErrorKind::Unsupported,
           "from_dlpack: elements on a GPU that are not in row-major order; "
           "make the tensor contiguous");
    const std::vector<std::byte> bytes = gathered(in);
    check_bools(in, bytes);
    return copied(in, bytes);
  }
  const std::size_t bytes = in.bytes();
  if (!aligned && copy == BorderCopy::Never)
    fail(ErrorKind::Value,
         "from_dlpack: the memory is not aligned to {} bytes, and a copy is not allowed",
         alignment);
  if (host)
    check_bools(in, {in.data, bytes});
  if (host && (!aligned || copy == BorderCopy::Always))
    return copied(in, {in.data, bytes});
  // As the memory is, until the last owner lets go: what the device has in its queue by then ends
  // before the producer has it back.
  std::shared_ptr<DLManagedTensorVersioned> shared = std::move(managed);
  backend::Device* device = &pool.device();
  auto storage = std::make_shared<runtime::Storage>(
      pool.shared_from_this(), in.data, bytes, [shared = std::move(shared), device]() mutable {
        try {
          device->synchronize();
        } catch (const Error&) { // a lost device does nothing any more
        }
        shared.reset();
      });
  if (host || (aligned && copy != BorderCopy::Always))
    return of_storage(in.dtype, in.shape, std::move(storage));
  runtime::StoragePtr own = naming_holders([&] { return pool.allocate(bytes); });
  runtime::Runtime::instance().copy(own, storage, bytes);
  return of_storage(in.dtype, in.shape, std::move(own));
}

} // namespace egret

#include "backend/cuda/tensor_maps.h"

#include "support/fail.h"

#include <array>
#include <cstring>

namespace egret::backend::cuda {

namespace {

constexpr int kPromote128 = 2; // CUtensorMapL2promotion

} // namespace

int tensor_map_type(DType type) {
  switch (type) {
  case DType::F16:
    return 6;
  case DType::F32:
    return 7;
  case DType::F64:
    return 8;
  case DType::BF16:
    return 9;
  default:
    return size_of(type) == 1 ? 0 : size_of(type) == 2 ? 1 : size_of(type) == 4 ? 2 : 4;
  }
}

int tensor_map_swizzle(int bytes) {
  return bytes == 128 ? 3 : 0;
}

TensorMaps::TensorMaps(const kernel::KernelProgram& program) : kernel_(program.name) {
  if (program.tensor_maps.size() > kMost)
    fail(ErrorKind::Unsupported, "cuda: kernel {} has {} tensor maps, {} are allowed", program.name,
         program.tensor_maps.size(), kMost);
  for (const kernel::TensorMap& m : program.tensor_maps) {
    const kernel::Buffer& buffer = program.buffers.at(static_cast<std::size_t>(m.buffer));
    Map map{buffer.name,
            buffer.argument,
            buffer.dtype,
            m.swizzle,
            LaunchNumber(m.offset, program.dims),
            {},
            {},
            m.box};
    for (const Expr& e : m.extents)
      map.extents.emplace_back(e, program.dims);
    for (const Expr& e : m.strides)
      map.strides.emplace_back(e, program.dims);
    maps_.push_back(std::move(map));
  }
}

void TensorMaps::encode(const Context& context, void* const* pointers, const std::int64_t* dims,
                        std::byte* to) const {
  if (maps_.empty())
    return;
  const Context::Use use(context); // the driver asks for a context, whatever the caller does
  struct alignas(64) Encoded {
    std::array<std::byte, kBytes> bytes;
  };
  for (std::size_t i = 0; i < maps_.size(); ++i) {
    const Map& m = maps_[i];
    const auto size = static_cast<std::int64_t>(size_of(m.dtype));
    std::array<std::uint64_t, 5> extents{}, strides{};
    std::array<std::uint32_t, 5> box{}, steps{};
    for (std::size_t d = 0; d < m.box.size(); ++d) {
      extents[d] = static_cast<std::uint64_t>(m.extents[d].at(dims));
      if (d > 0) // the innermost is 1
        strides[d - 1] = static_cast<std::uint64_t>(m.strides[d].at(dims) * size);
      box[d] = static_cast<std::uint32_t>(m.box[d]);
      steps[d] = 1;
    }
    Encoded encoded;
    void* const base = static_cast<std::byte*>(pointers[m.argument]) + m.offset.at(dims) * size;
    context.driver().check(
        context.api().cuTensorMapEncodeTiled(
            &encoded, tensor_map_type(m.dtype), static_cast<unsigned>(m.box.size()), base,
            extents.data(), strides.data(), box.data(), steps.data(), 0,
            tensor_map_swizzle(m.swizzle), kPromote128, 0),
        "making the tensor map of {} at {} for kernel {}", m.buffer, base, kernel_);
    std::memcpy(to + i * kBytes, &encoded, kBytes);
  }
}

} // namespace egret::backend::cuda

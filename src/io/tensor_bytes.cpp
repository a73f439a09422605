#include "io/tensor_bytes.h"

#include "support/fail.h"

#include <new>
#include <numeric>

namespace egret::io {

Tensor tensor_filled_by(DType dtype, const std::vector<std::int64_t>& shape,
                        const std::function<void(std::span<std::byte>)>& fill) {
  Shape dims(shape.begin(), shape.end());
  std::vector<std::byte> bytes;
  std::uint64_t count = size_of(dtype);
  for (std::int64_t dim : shape)
    count *= static_cast<std::uint64_t>(dim);
  try {
    bytes.resize(count);
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::Memory, "cannot have {} bytes for a tensor {}", count, to_string(dims));
  }
  fill(bytes);
  if (dtype == DType::Bool)
    for (std::byte& b : bytes)
      b = b != std::byte{0} ? std::byte{1} : std::byte{0};
  return from_bytes(dtype, dims, bytes);
}

} // namespace egret::io

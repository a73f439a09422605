#include "tensor/borders.h"

#include "egret/borders.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/engine.h"

#include <fmt/ranges.h>

namespace egret {
namespace detail {

std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  for (std::size_t i = sizes.size(); i-- > 1;)
    strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

bool is_row_major(std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides) {
  std::int64_t expected = 1;
  bool row_major = true;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 0)
      return true;
    row_major = row_major && (sizes[i] == 1 || strides[i] == expected);
    expected *= sizes[i];
  }
  return row_major;
}

std::size_t checked_elements(std::span<const std::int64_t> sizes, DType dtype, const char* who) {
  std::int64_t bytes = static_cast<std::int64_t>(size_of(dtype));
  bool countable = true, none = false;
  for (const std::int64_t size : sizes) {
    if (size < 0)
      fail(ErrorKind::Shape, "{}: [{}] has a negative dim", who, fmt::join(sizes, ","));
    none = none || size == 0;
    // Also of those without elements: strides are made of the others' products.
    countable =
        countable && !__builtin_mul_overflow(bytes, std::max<std::int64_t>(size, 1), &bytes);
  }
  if (!countable)
    fail(ErrorKind::Shape, "{}: [{}] has more elements than can be counted", who,
         fmt::join(sizes, ","));
  return none ? 0 : static_cast<std::size_t>(bytes) / size_of(dtype);
}

runtime::StoragePtr computed(const Tensor& a, const char* who) {
  const NodePtr node = Access::readable(a, who);
  if (node->kind != Node::Kind::Number)
    evaluate(node, who);
  return storage_of(node);
}

Tensor of_storage(DType dtype, std::span<const std::int64_t> sizes, runtime::StoragePtr storage) {
  return Access::wrap(data_node(dtype, Shape(sizes.begin(), sizes.end()), std::move(storage)));
}

void check_view(const Tensor& a, DType dtype) {
  if (a.dtype() != dtype)
    fail(ErrorKind::DType, "view: the tensor is {} and is asked for as {}; to() converts",
         name_of(a.dtype()), name_of(dtype));
}

} // namespace detail

using namespace detail;

Tensor wrap(const void* data, DType dtype, const Shape& shape, std::function<void()> let_go,
            const std::optional<std::vector<std::int64_t>>& strides) {
  const std::vector<std::int64_t> sizes = concrete(shape, "wrap");
  const std::size_t count = checked_elements(sizes, dtype, "wrap");
  if (!let_go)
    fail(ErrorKind::Value, "wrap: nothing is to be called when the memory is needed no longer");
  if (strides && strides->size() != sizes.size())
    fail(ErrorKind::Value, "wrap: {} strides for {}, which has {} dims", strides->size(),
         to_string(shape), sizes.size());
  if (strides && !is_row_major(sizes, *strides))
    fail(ErrorKind::Value,
         "wrap: strides [{}] of {} are not row-major, which would be [{}]; copy the elements, or "
         "wrap the memory as it lies and permute() the tensor",
         fmt::join(*strides, ","), to_string(shape), fmt::join(row_major_strides(sizes), ","));
  if (count > 0 && !data)
    fail(ErrorKind::Value, "wrap: null for {}, which has {} elements", to_string(shape), count);
  if (reinterpret_cast<std::uintptr_t>(data) % kBorderAlignment != 0)
    fail(ErrorKind::Value,
         "wrap: the memory is not aligned to {} bytes; align it, or copy it with tensor() or "
         "from_bytes()",
         kBorderAlignment);
  auto& pool = runtime::Runtime::instance().pool(backend::DeviceName{});
  return of_storage(dtype, sizes,
                    std::make_shared<runtime::Storage>(pool.shared_from_this(), data,
                                                       count * size_of(dtype), std::move(let_go)));
}

HostView<std::byte> view_bytes(const Tensor& a) {
  runtime::StoragePtr storage = computed(a, "view");
  if (!storage->device().host_memory())
    fail(ErrorKind::Device,
         "view: the value is in memory of {}, which the host cannot read; to_bytes() and "
         "to_vector() copy it",
         storage->device().name());
  storage->device().synchronize();
  const auto* data = static_cast<const std::byte*>(storage->data());
  const std::size_t bytes = storage->bytes();
  return {std::move(storage), data, bytes};
}

} // namespace egret

// Making tensors: from numbers, lists, memory, and by formula.
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/borders.h"
#include "tensor/holders.h"
#include "tensor/ops.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <utility>

namespace egret {

using namespace detail;

Scalar Number::in(DType type) const {
  const bool vast = as_int_ < 0 && as_float_ > 0; // an unsigned number from 2^63 on
  if (is_float(type) && (category_ != Category::Integer || vast))
    return Scalar::of(type, as_float_);
  if (category_ == Category::Float)
    return Scalar::of(type, as_float_);
  return Scalar::of(type, as_int_);
}

namespace {

std::size_t checked_count(const Shape& shape, const char* who) {
  std::int64_t count = 1;
  for (std::int64_t size : concrete(shape, who)) {
    if (size < 0)
      fail(ErrorKind::Shape, "{}: {} has a negative dim", who, to_string(shape));
    if (__builtin_mul_overflow(count, size, &count))
      fail(ErrorKind::Shape, "{}: {} has more elements than can be counted", who, to_string(shape));
  }
  return static_cast<std::size_t>(count);
}

void check_shape(const Shape& shape, const char* who) {
  for (const Expr& dim : shape)
    if (dim.lower() < 0)
      fail(ErrorKind::Shape, "{}: {} has a negative dim", who, to_string(shape));
}

Tensor filled(const Shape& shape, const Tensor& value, const char* who) {
  check_shape(shape, who);
  return named(who, [&] { return made_here(broadcast_to(value, shape, who)); });
}

Tensor in_storage(DType dtype, const Shape& shape, runtime::StoragePtr storage, std::size_t bytes) {
  const auto node = data_node(dtype, shape, std::move(storage));
  if (!node->scope) {
    node->stream = &this_stream();
    node->queued = static_cast<std::int64_t>(bytes);
    node->stream->bytes.add(node->queued, node->stream == own_stream);
  }
  return Access::wrap(node);
}

Tensor stored(DType dtype, const Shape& shape, const void* elements, std::size_t bytes) {
  auto& runtime = runtime::Runtime::instance();
  auto storage = naming_holders([&] { return runtime.allocate(bytes); });
  if (bytes > 0)
    runtime.copy_in(storage, elements, bytes);
  return in_storage(dtype, shape, std::move(storage), bytes);
}

/// Memory of the host, its contents undefined.
std::unique_ptr<std::byte[]> scratch_of(std::size_t bytes) {
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[bytes]);
  if (!memory)
    fail(ErrorKind::Memory, "memory: {} bytes cannot be had", bytes);
  return memory;
}

} // namespace

namespace detail {

Tensor written(DType dtype, const Shape& shape, std::size_t most,
               const std::function<void(std::size_t, std::span<std::byte>)>& write) {
  const std::size_t bytes =
      checked_elements(concrete(shape, "written"), dtype, "written") * size_of(dtype);
  auto& runtime = runtime::Runtime::instance();
  auto storage = naming_holders([&] { return runtime.allocate(bytes); });
  if (storage->device().host_memory()) {
    write(0, {static_cast<std::byte*>(storage->data()), bytes});
  } else {
    const std::size_t part = std::min(most, bytes);
    const auto between = scratch_of(part);
    for (std::size_t at = 0; at < bytes; at += part) {
      const std::size_t n = std::min(part, bytes - at);
      write(at, {between.get(), n});
      runtime.copy_in(storage, between.get(), n, at);
    }
  }
  return in_storage(dtype, shape, std::move(storage), bytes);
}

Tensor from_elements(DType dtype, const Shape& shape, const void* elements, std::size_t bytes) {
  const std::size_t count = checked_count(shape, "tensor");
  if (count != bytes / size_of(dtype))
    fail(ErrorKind::Shape, "tensor: {} values do not fill {}, which has {} elements",
         bytes / size_of(dtype), to_string(shape), count);
  return stored(dtype, shape, elements, bytes);
}

Tensor from_literals(Number::Category category, const Shape& shape,
                     std::span<const Number> values) {
  const std::size_t count = checked_count(shape, "tensor");
  if (count != values.size())
    fail(ErrorKind::Shape, "tensor: {} values do not fill {}, which has {} elements", values.size(),
         to_string(shape), count);
  const DType dtype = default_dtype(category);
  const std::size_t width = size_of(dtype);
  std::vector<std::byte> bytes(count * width);
  for (std::size_t i = 0; i < count; ++i) {
    const Scalar value = values[i].in(dtype);
    __builtin_memcpy(bytes.data() + i * width, &value.bits, width);
  }
  return stored(dtype, shape, bytes.data(), bytes.size());
}

void check_row(std::size_t want, std::size_t got) {
  if (want != got)
    fail(ErrorKind::Shape, "tensor: rows differ in length ({} and {}); all must be equal", want,
         got);
}

} // namespace detail

Tensor scalar(Number value, std::optional<DType> dtype) {
  return Access::wrap(number_node(value.in(dtype ? *dtype : default_dtype(value.category()))));
}

Tensor from_bytes(DType dtype, const Shape& shape, std::span<const std::byte> bytes) {
  const std::size_t count = checked_count(shape, "from_bytes");
  std::size_t want = 0;
  if (__builtin_mul_overflow(count, size_of(dtype), &want) || want != bytes.size())
    fail(ErrorKind::Shape, "from_bytes: {} bytes do not fill {}{}, which has {} elements of {}",
         bytes.size(), name_of(dtype), to_string(shape), count, size_of(dtype));
  return stored(dtype, shape, bytes.data(), bytes.size());
}

Tensor zeros(const Shape& shape, DType dtype) {
  return filled(shape, constant(dtype, 0), "zeros");
}
Tensor ones(const Shape& shape, DType dtype) {
  return filled(shape, constant(dtype, 1), "ones");
}
Tensor full(const Shape& shape, Number value, std::optional<DType> dtype) {
  return filled(shape, literal(dtype ? *dtype : default_dtype(value.category()), value), "full");
}
Tensor zeros_like(const Tensor& a) {
  Access::held(a, "zeros_like");
  return made_like(zeros(a.shape(), a.dtype()), a);
}
Tensor ones_like(const Tensor& a) {
  Access::held(a, "ones_like");
  return made_like(ones(a.shape(), a.dtype()), a);
}
Tensor full_like(const Tensor& a, Number value) {
  Access::held(a, "full_like");
  return made_like(full(a.shape(), value, a.dtype()), a);
}

Tensor arange(Number end, std::optional<DType> dtype) {
  return arange(end.category() == Number::Category::Float ? Number(0.0) : Number(0), end,
                end.category() == Number::Category::Float ? Number(1.0) : Number(1), dtype);
}

Tensor arange(Number begin, Number end, Number step, std::optional<DType> dtype) {
  const bool integer = begin.category() != Number::Category::Float &&
                       end.category() != Number::Category::Float &&
                       step.category() != Number::Category::Float;
  if (step.as_double() == 0)
    fail(ErrorKind::Value, "arange: a step of 0 never reaches the end");
  const DType type = dtype ? *dtype : integer ? DType::I64 : DType::F32;
  std::int64_t count;
  if (integer) {
    for (const Number number : {begin, end, step})
      if (number.as_double() > 0 && number.as_int() < 0)
        fail(ErrorKind::Value, "arange: {} does not fit i64",
             static_cast<std::uint64_t>(number.as_int()));
    // Distances of 64-bit numbers, which may not fit one themselves.
    const auto a = static_cast<std::uint64_t>(begin.as_int()),
               b = static_cast<std::uint64_t>(end.as_int()),
               s = static_cast<std::uint64_t>(step.as_int());
    const bool up = step.as_int() > 0;
    std::uint64_t most = 0;
    if (up ? begin.as_int() < end.as_int() : begin.as_int() > end.as_int())
      most = ((up ? b - a : a - b) - 1) / (up ? s : 0 - s) + 1;
    if (!std::in_range<std::int64_t>(most))
      fail(ErrorKind::Value, "arange: from {} to {} in steps of {} are too many elements",
           begin.as_int(), end.as_int(), step.as_int());
    count = static_cast<std::int64_t>(most);
  } else {
    const double steps = (end.as_double() - begin.as_double()) / step.as_double();
    if (!std::isfinite(steps) || steps > 9e18)
      fail(ErrorKind::Value,
           "arange: from {} to {} in steps of {} has no finite number of elements",
           begin.as_double(), end.as_double(), step.as_double());
    count = steps > 0 ? static_cast<std::int64_t>(std::ceil(steps)) : 0;
  }
  const bool plain = begin.as_double() == 0 && step.as_double() == 1;
  const DType inner = integer ? DType::I64 : type == DType::F64 ? DType::F64 : DType::F32;
  return named("arange", [&] {
    if (plain && type != DType::Bool)
      return made_here(iota(count, type));
    return made_here((iota(count, inner) * step + begin).to(type));
  });
}

Tensor linspace(double begin, double end, std::int64_t count, DType dtype) {
  if (count < 0)
    fail(ErrorKind::Value, "linspace: {} elements; the number must not be negative", count);
  if (!is_float(dtype))
    fail(ErrorKind::DType, "linspace: {} is no float type", name_of(dtype));
  const DType wide = dtype == DType::F64 ? DType::F64 : DType::F32;
  const double step = count > 1 ? (end - begin) / static_cast<double>(count - 1) : 0;
  // Counted from the nearer end, so that both ends are exact.
  const Tensor i = named("linspace", [&] { return iota(count, wide); });
  const Tensor up = i * step + begin;
  const Tensor down = (static_cast<double>(count - 1) - i) * -step + end;
  return made_here(where(i * 2 < static_cast<double>(count), up, down).to(dtype));
}

Tensor eye(std::int64_t rows, std::int64_t columns, DType dtype) {
  if (rows < 0)
    fail(ErrorKind::Value, "eye: {} rows; the number must not be negative", rows);
  if (columns < -1)
    fail(ErrorKind::Value, "eye: {} columns; the number must not be negative", columns);
  if (columns < 0)
    columns = rows;
  return named("eye", [&] {
    const Tensor row = unsqueeze(iota(rows, DType::I64), 1);
    return made_here(eq(row, iota(columns, DType::I64)).to(dtype));
  });
}

} // namespace egret

// Targets of losses that are class numbers.
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/engine.h"
#include "tensor/loss_parts.h"

#include <cstring>
#include <limits>

namespace egret::detail {

namespace {

// Of a node that has one in host memory; null for all others. Under checked execution what can be
// computed is.
runtime::StoragePtr known_value(const NodePtr& node, const char* who) {
  if (node->scope || node->kind == Node::Kind::Number)
    return nullptr;
  if (runtime::Runtime::instance().checked_execution())
    evaluate(node, who);
  const EngineLock lock(*node);
  const runtime::StoragePtr& storage = node->storage;
  const bool host = storage && storage->device().host_memory();
  return host || runtime::Runtime::instance().checked_execution() ? storage : nullptr;
}

std::int64_t integer_at(const std::byte* bytes, std::size_t i, DType dtype) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes + i * size_of(dtype), size_of(dtype));
  return Scalar::from_bits(dtype, bits).as_int();
}

// "[2,0]" of an element by its number in row-major order.
std::string position(std::size_t element, const Shape& shape) {
  Shape at(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto size = static_cast<std::size_t>(shape[axis].value());
    at[axis] = static_cast<std::int64_t>(element % size);
    element /= size;
  }
  return to_string(at);
}

void check_known(const Tensor& target, std::int64_t classes, std::optional<std::int64_t> ignored,
                 const char* who) {
  const NodePtr node = Access::node(target, who);
  const runtime::StoragePtr storage = known_value(node, who);
  if (!storage)
    return;
  const DType dtype = node->form.dtype;
  std::size_t count = 1;
  for (const Expr& dim : node->form.shape)
    count *= static_cast<std::size_t>(dim.value());
  if (count == 0)
    return;
  std::vector<std::byte> bytes(count * size_of(dtype));
  runtime::Runtime::instance().copy_out(bytes.data(), storage, bytes.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t value = integer_at(bytes.data(), i, dtype);
    if ((value < 0 || value >= classes) && value != ignored)
      fail(ErrorKind::Index, "{}: target {} at {} is none of {} classes{}", who, value,
           position(i, node->form.shape), classes,
           ignored ? fmt::format(" and not ignore_index {}", *ignored)
                   : "; ignore_index names targets that do not count");
  }
}

} // namespace

Tensor class_numbers(const Tensor& target) {
  return size_of(target.dtype()) < 4 ? target.to(DType::I32) : target;
}

Tensor class_check(const Tensor& target, const Expr& classes, std::optional<std::int64_t> ignored,
                   DType dtype, const char* who) {
  if (const auto known = classes.constant())
    check_known(target, *known, ignored, who);
  const Tensor number = class_numbers(target);
  // Negative numbers lie above all classes where they are read without a sign.
  const DType plain = size_of(number.dtype()) == 4 ? DType::U32 : DType::U64;
  Tensor valid = number.to(plain) < number_of(classes, plain);
  if (ignored)
    valid = valid | eq(target, *ignored);
  return where(valid, constant(dtype, 1),
               constant(dtype, std::numeric_limits<double>::quiet_NaN()));
}

} // namespace egret::detail

#include "backend/reference/number.h"

#include "support/fail.h"

#include <cmath>
#include <cstring>

namespace egret::backend::reference {

namespace {

template <class T>
T load_as(const void* memory) {
  T value;
  std::memcpy(&value, memory, sizeof value);
  return value;
}

template <class T>
void store_as(T value, void* memory) {
  std::memcpy(memory, &value, sizeof value);
}

std::int64_t wrap(DType type, std::int64_t value) {
  switch (type) {
  case DType::Bool:
    return value != 0;
  case DType::I8:
    return static_cast<std::int8_t>(value);
  case DType::I16:
    return static_cast<std::int16_t>(value);
  case DType::I32:
    return static_cast<std::int32_t>(value);
  case DType::U8:
    return static_cast<std::uint8_t>(value);
  case DType::U16:
    return static_cast<std::uint16_t>(value);
  case DType::U32:
    return static_cast<std::uint32_t>(value);
  default:
    return value;
  }
}

} // namespace

Number read_number(DType type, const void* memory) {
  switch (type) {
  case DType::F32:
    return {.f = load_as<float>(memory)};
  case DType::F64:
    return {.f = load_as<double>(memory)};
  case DType::F16:
  case DType::BF16:
    return {.f = Scalar::from_bits(type, load_as<std::uint16_t>(memory)).as_double()};
  case DType::F8E4M3:
  case DType::F8E5M2:
    return {.f = Scalar::from_bits(type, load_as<std::uint8_t>(memory)).as_double()};
  case DType::Bool:
    return {.i = load_as<std::uint8_t>(memory) != 0};
  case DType::I8:
    return {.i = load_as<std::int8_t>(memory)};
  case DType::I16:
    return {.i = load_as<std::int16_t>(memory)};
  case DType::I32:
    return {.i = load_as<std::int32_t>(memory)};
  case DType::U8:
    return {.i = load_as<std::uint8_t>(memory)};
  case DType::U16:
    return {.i = load_as<std::uint16_t>(memory)};
  case DType::U32:
    return {.i = load_as<std::uint32_t>(memory)};
  case DType::I64:
  case DType::U64:
    return {.i = load_as<std::int64_t>(memory)};
  }
  return {};
}

void write_number(DType type, Number value, void* memory) {
  switch (type) {
  case DType::F32:
    return store_as(static_cast<float>(value.f), memory);
  case DType::F64:
    return store_as(value.f, memory);
  case DType::F16:
  case DType::BF16:
    return store_as(static_cast<std::uint16_t>(Scalar::of(type, value.f).bits), memory);
  case DType::F8E4M3:
  case DType::F8E5M2:
    return store_as(static_cast<std::uint8_t>(Scalar::of(type, value.f).bits), memory);
  default:
    // The low bytes of a two's complement number are that number in a narrower type.
    value.i = wrap(type, value.i);
    std::memcpy(memory, &value.i, size_of(type));
  }
}

Number number_of(const Scalar& value) {
  return read_number(value.dtype, &value.bits);
}

Scalar scalar_of(DType type, Number value) {
  Scalar result{type, 0};
  write_number(type, value, &result.bits);
  return result;
}

Number round_to(DType type, Number value) {
  switch (type) {
  case DType::F64:
    return {.f = value.f};
  case DType::F32:
    return {.f = static_cast<float>(value.f)};
  case DType::F16:
  case DType::BF16:
  case DType::F8E4M3:
  case DType::F8E5M2:
    return {.f = Scalar::of(type, value.f).as_double()};
  default:
    return {.i = wrap(type, value.i)};
  }
}

double as_double(DType type, Number value) {
  if (is_float(type))
    return value.f;
  return type == DType::U64 ? static_cast<double>(static_cast<std::uint64_t>(value.i))
                            : static_cast<double>(value.i);
}

bool same(DType type, Number a, Number b) {
  if (!is_float(type))
    return a.i == b.i;
  if (std::isnan(a.f) || std::isnan(b.f))
    return std::isnan(a.f) && std::isnan(b.f);
  return a.f == b.f && std::signbit(a.f) == std::signbit(b.f);
}

Number convert(Number value, DType from, DType to) {
  if (is_float(from) && is_float(to))
    return round_to(to, value);
  Scalar operand = scalar_of(from, value);
  return number_of(egret::apply(Op::Cast, to, {&operand, 1}));
}

Number apply(Op op, DType result, DType operand, Number a, Number b, Number c) {
  switch (op) {
  case Op::Cast:
    return convert(a, operand, result);
  case Op::Bitcast: {
    Scalar bits = scalar_of(operand, a);
    return number_of(egret::apply(op, result, {&bits, 1}));
  }
  case Op::StopGradient:
    return a;
  case Op::Select:
    return a.i != 0 ? b : c;
  default:
    break;
  }
  const OpInfo& info = info_of(op);
  if (is_float(operand)) {
    ensure(info.eval_float != nullptr, "{} is not defined on {}", info.name, name_of(operand));
    double value = info.eval_float(a.f, b.f, c.f);
    if (is_float(result))
      return round_to(result, {.f = value});
    return {.i = value != 0}; // a comparison
  }
  ensure(info.eval_int != nullptr, "{} is not defined on {}", info.name, name_of(operand));
  return {.i = wrap(result, info.eval_int(a.i, b.i, c.i, operand))};
}

Number combine(Monoid monoid, DType type, Number a, Number b) {
  return apply(op_of(monoid), type, type, a, b);
}

Number combine_halves(Monoid monoid, DType type, std::vector<Number> parts) {
  for (std::size_t half = parts.size() / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i)
      parts[i] = combine(monoid, type, parts[i], parts[i + half]);
  return parts[0];
}

} // namespace egret::backend::reference

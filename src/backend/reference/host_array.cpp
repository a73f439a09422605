#include "backend/reference/host_array.h"

#include "support/fail.h"

#include <fmt/ranges.h>

namespace egret::backend::reference {

std::int64_t element_count(const Dims& dims) {
  std::int64_t count = 1;
  for (std::int64_t dim : dims)
    count *= dim;
  return count;
}

std::string to_string(const Dims& dims) {
  return fmt::format("[{}]", fmt::join(dims, ","));
}

HostArray::HostArray(DType type, Dims shape) : dtype(type), dims(std::move(shape)) {
  auto total = static_cast<std::int64_t>(size_of(type));
  for (std::int64_t dim : dims)
    if (dim < 0 || __builtin_mul_overflow(total, dim, &total))
      fail(ErrorKind::Shape, "array: shape {} is not possible", to_string(dims));
  bytes.resize(static_cast<std::size_t>(total));
}

HostArray::HostArray(DType type, Dims shape, std::span<const double> values)
    : HostArray(type, std::move(shape)) {
  if (size() != static_cast<std::int64_t>(values.size()))
    fail(ErrorKind::Shape, "array: {} values for shape {} with {} elements", values.size(),
         to_string(dims), size());
  for (std::size_t i = 0; i < values.size(); ++i)
    set(static_cast<std::int64_t>(i), convert({.f = values[i]}, DType::F64, type));
}

HostArray::HostArray(DType type, Dims shape, std::initializer_list<double> values)
    : HostArray(type, std::move(shape), std::span(values.begin(), values.size())) {}

Number HostArray::at(std::int64_t element) const {
  return read_number(dtype, bytes.data() + static_cast<std::size_t>(element) * size_of(dtype));
}

void HostArray::set(std::int64_t element, Number value) {
  write_number(dtype, value, bytes.data() + static_cast<std::size_t>(element) * size_of(dtype));
}

std::vector<double> HostArray::doubles() const {
  std::vector<double> values;
  for (std::int64_t i = 0; i < size(); ++i)
    values.push_back(as_double(dtype, at(i)));
  return values;
}

std::int64_t number_of_point(const Dims& dims, const Dims& point) {
  std::int64_t number = 0;
  for (std::size_t i = 0; i < dims.size(); ++i)
    number = number * dims[i] + point[i];
  return number;
}

void Bindings::bind(const Expr& dim, std::int64_t size, const std::string& where) {
  for (std::size_t i = 0; i < values_.size(); ++i)
    if (values_[i].first == dim) {
      if (values_[i].second != size)
        fail(ErrorKind::Shape, "{}: dim `{}` is {} here and {} in {}", where, dim.str(), size,
             values_[i].second, origins_[i]);
      return;
    }
  if (dim.is_symbol()) {
    if (size < dim.lower() || size > dim.upper())
      fail(ErrorKind::Shape, "{}: dim `{}` is {}; it must lie in {}..{}", where, dim.str(), size,
           dim.lower(), dim.upper());
    if (dim.divisor() > 1 && size % dim.divisor() != 0)
      fail(ErrorKind::Shape, "{}: dim `{}` is {}; it must be a multiple of {}", where, dim.str(),
           size, dim.divisor());
    values_.emplace_back(dim, size);
    origins_.push_back(where);
    return;
  }
  if (dim.is_constant() && dim.value() != size)
    fail(ErrorKind::Shape, "{} is {}; it must be {}", where, size, dim.value());
  if (value_of(dim) != size)
    fail(ErrorKind::Shape, "{} is {}; it must be {} = {}", where, size, dim.str(), value_of(dim));
}

void Bindings::set(const Expr& symbol, std::int64_t value) {
  bind(symbol, value, "binding");
}

std::int64_t Bindings::value_of(const Expr& expr) const {
  return evaluate(expr, [&](const Expr& variable) {
    for (const auto& [symbol, value] : values_)
      if (symbol == variable)
        return value;
    fail(ErrorKind::Shape, "dim `{}` has no value: no input has it as a dim of its own",
         variable.str());
  });
}

Dims Bindings::values_of(std::span<const Expr> exprs) const {
  Dims dims;
  for (const Expr& expr : exprs)
    dims.push_back(value_of(expr));
  return dims;
}

} // namespace egret::backend::reference

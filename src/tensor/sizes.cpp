#include "tensor/sizes.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::detail {

void Sizes::bind(const Shape& shape, const Shape& actual, const char* who, std::string_view what) {
  if (shape.size() != actual.size())
    fail(ErrorKind::Shape, "{}: {} is {}; it must be {}", who, what, to_string(actual),
         to_string(shape));
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const Expr& symbol = shape[axis];
    if (!symbol.is_symbol())
      continue;
    const std::int64_t size = actual[axis].value();
    if (size < symbol.lower() || size > symbol.upper() || size % symbol.divisor() != 0)
      fail(ErrorKind::Shape, "{}: dim {} of {} is {}; it lies between {} and {}{}", who,
           symbol.str(), what, size, symbol.lower(), symbol.upper(),
           symbol.divisor() > 1 ? fmt::format(" and is a multiple of {}", symbol.divisor()) : "");
    const auto known = std::find_if(values_.begin(), values_.end(),
                                    [&](const auto& entry) { return entry.first == symbol; });
    if (known == values_.end())
      values_.emplace_back(symbol, size);
    else if (known->second != size)
      fail(ErrorKind::Shape, "{}: dim {} is {} in {} and {} elsewhere", who, symbol.str(), size,
           what, known->second);
  }
}

void Sizes::check(const Shape& shape, const Shape& actual, const char* who,
                  std::string_view what) const {
  if (const Shape wanted = of(shape); wanted != actual)
    fail(ErrorKind::Shape, "{}: {} is {}; it must be {}, which is {} now", who, what,
         to_string(actual), to_string(shape), to_string(wanted));
}

Shape Sizes::of(const Shape& shape) const {
  Shape sizes = shape;
  for (Expr& dim : sizes)
    if (!dim.is_constant())
      dim = evaluate(dim, [&](const Expr& symbol) { return value_of(symbol); });
  return sizes;
}

std::int64_t Sizes::value_of(const Expr& symbol) const {
  for (const auto& [known, value] : values_)
    if (known == symbol)
      return value;
  fail(ErrorKind::Shape, "dim {} has no value: no input has it as a size of its own", symbol.str());
}

} // namespace egret::detail

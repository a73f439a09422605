// Values of symbolic sizes, found by comparing shapes with those of what is at hand.
#pragma once

#include "egret/expr.h"

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace egret::detail {

class Sizes {
public:
  /// Takes the values of the symbols that are dims of `shape` from `actual`, which has its rank.
  /// Error(Shape) naming `who` and `what` when one contradicts its bounds or an earlier value.
  void bind(const Shape& shape, const Shape& actual, const char* who, std::string_view what);
  /// Checks the dims of `shape` that are not symbols alone, once all symbols have values.
  void check(const Shape& shape, const Shape& actual, const char* who, std::string_view what) const;
  /// The shape with all symbols replaced by their values.
  Shape of(const Shape& shape) const;

private:
  std::int64_t value_of(const Expr& symbol) const;
  std::vector<std::pair<Expr, std::int64_t>> values_;
};

} // namespace egret::detail

// A tensor in host memory, and the sizes that symbolic dims take in a run.
#pragma once

#include "backend/reference/number.h"
#include "egret/expr.h"

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace egret::backend::reference {

using Dims = std::vector<std::int64_t>;

std::int64_t element_count(const Dims& dims);
std::string to_string(const Dims& dims); ///< "[2,3]"

/// A dense row-major array that owns its memory.
struct HostArray {
  DType dtype = DType::F32;
  Dims dims;
  std::vector<std::byte> bytes;

  HostArray() = default;
  /// Zeros. Throws Error(Shape) for a negative dim or more bytes than a 64-bit number counts.
  HostArray(DType type, Dims shape);
  /// `values` in row-major order, each rounded to the dtype; Error(Shape) when their number does
  /// not fit.
  HostArray(DType type, Dims shape, std::span<const double> values);
  HostArray(DType type, Dims shape, std::initializer_list<double> values);

  std::int64_t size() const { return element_count(dims); }
  Number at(std::int64_t element) const;
  void set(std::int64_t element, Number value);
  std::vector<double> doubles() const;
};

/// Calls visit(coordinates, number) for every point of a box in row-major order.
template <class Visit>
void for_each_point(const Dims& dims, Visit&& visit) {
  const std::int64_t count = element_count(dims);
  Dims point(dims.size(), 0);
  for (std::int64_t number = 0; number < count; ++number) {
    visit(static_cast<const Dims&>(point), number);
    for (std::size_t i = dims.size(); i-- > 0;) {
      if (++point[i] < dims[i])
        break;
      point[i] = 0;
    }
  }
}

/// The number of a point of a box in row-major order.
std::int64_t number_of_point(const Dims& dims, const Dims& point);

/// Values of the symbols of dims.
class Bindings {
public:
  /// Binds `dim`, when it is a symbol without a value, to `size`; checks it against its value
  /// otherwise. `where` names the place for messages ("input `x`"). Throws Error(Shape) when the
  /// size contradicts the symbol's interval, its divisor or an earlier binding.
  void bind(const Expr& dim, std::int64_t size, const std::string& where);
  void set(const Expr& symbol, std::int64_t value);
  /// Throws Error(Shape) naming a symbol without a value.
  std::int64_t value_of(const Expr& expr) const;
  Dims values_of(std::span<const Expr> exprs) const;
  const std::vector<std::pair<Expr, std::int64_t>>& values() const { return values_; }

private:
  std::vector<std::pair<Expr, std::int64_t>> values_;
  std::vector<std::string> origins_;
};

} // namespace egret::backend::reference

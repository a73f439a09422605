// A table of the public functions of tensors: how to call each on random operands, and what it
// means, written out in plain loops. The runner (functions_test.cpp) lays operands out in every
// way, runs the functions through all engines and checks values, dtypes and gradients.
#pragma once

#include "egret/functional.h"
#include "support/random_graph.h"

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace egret::testing {

using Sizes = std::vector<std::int64_t>;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline const double kNan = std::numeric_limits<double>::quiet_NaN();

std::int64_t count_of(const Sizes& shape);
/// Calls `visit` with the coordinates of every element, in row-major order.
void each(const Sizes& shape, const std::function<void(const Sizes&)>& visit);

/// A dense row-major array of doubles: operands and results of the plain side.
struct Array {
  Sizes shape;
  std::vector<double> values;
  /// Of an operand: its dtype where it is not the instance's (indices, masks). Of a result: the
  /// dtype that it must have; the instance's when empty.
  std::optional<DType> type;
  std::vector<std::size_t> repeated; ///< axes along which all values are equal

  Array() = default;
  explicit Array(Sizes shape, double value = 0)
      : shape(std::move(shape)), values(static_cast<std::size_t>(count_of(this->shape)), value) {}
  Array(const Sizes& shape, const std::function<double(const Sizes&)>& value);

  std::int64_t size(std::size_t axis) const { return shape[axis]; }
  std::size_t rank() const { return shape.size(); }
  std::size_t place(const Sizes& at) const;
  double& operator[](const Sizes& at) { return values[place(at)]; }
  double operator[](const Sizes& at) const { return values[place(at)]; }
  /// The element read when the array is broadcast to a shape in which `at` lies.
  double wide(const Sizes& at) const;
  Array as(DType dtype) && {
    type = dtype;
    return std::move(*this);
  }
};

using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;

Sizes broadcast(const Sizes& a, const Sizes& b);
Array map(const Array& a, const std::function<double(double)>& f);
Array zip(const Array& a, const Array& b, const std::function<double(double, double)>& f);
/// Every slice along `axes` (all values of it, in order) becomes one value.
Array slices(const Array& a, std::vector<std::size_t> axes, bool keepdim,
             const std::function<double(const std::vector<double>&)>& f);
/// Every line along `axis` becomes another of any length.
Array lines(const Array& a, std::size_t axis,
            const std::function<std::vector<double>(const std::vector<double>&)>& f);

/// Draws operands and parameters of one instance.
class Draw {
public:
  Draw(std::uint64_t seed, DType dtype, bool special) : rng(seed), dtype(dtype), special(special) {}

  std::int64_t below(std::int64_t n) { return rng.below(n); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool chance(double p = 0.5) { return rng.chance(p); }
  template <class T>
  T pick(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<std::int64_t>(list.size()))];
  }
  /// Dims of 0 (now and then, unless `filled`), 1 and a few more.
  Sizes shape(std::int64_t low_rank, std::int64_t high_rank, bool filled = false,
              std::int64_t largest = 4);
  /// A shape that broadcasts with `shape`: trailing dims of it, some of them 1.
  Sizes broadcastable(const Sizes& shape);
  /// Values in low..high in the instance's dtype; NaN, infinities and zeros of both signs now and
  /// then where the function is defined for them.
  Array array(const Sizes& shape, double low = -2, double high = 2);
  /// Different values: no two elements tie.
  Array distinct(const Sizes& shape, double low = -2, double high = 2);
  Array integers(const Sizes& shape, std::int64_t low, std::int64_t high, DType type = DType::I64);
  Array mask(const Sizes& shape);
  /// An axis, counted from either end: `axis` from the front, `given` as passed.
  struct Axis {
    std::size_t axis;
    std::int64_t given;
  };
  Axis axis(std::size_t rank);
  std::vector<std::size_t> axes(std::size_t rank); ///< some, none now and then: all

  testing::Rng rng;
  DType dtype;
  bool special;
};

/// Every bit pattern of a float of 16 or 8 bits.
inline Tensor every_pattern(DType type) {
  if (size_of(type) == 2)
    return arange(65536).to(DType::U16).bitcast(type);
  return arange(256).to(DType::U8).bitcast(type);
}

inline bool whole(DType type) {
  return !is_float(type);
}

struct Instance {
  Arrays operands;
  std::function<Tensors(const Tensors&)> call;
  std::function<Arrays(const Arrays&)> reference;
};

enum class Types : std::uint8_t { Floats, Numbers, All };

struct Row {
  std::string name;
  std::function<Instance(Draw&)> make;
  Types types = Types::Floats;
  bool gradient = true; ///< differentiable
  bool special = true;  ///< defined for NaN and infinities in every operand of the instance's dtype
  double slack = 1;     ///< factor of the tolerance; 0: every bit, the sign of zeros included
  bool pointwise = false; ///< of one operand, element by element, with the same parameters always
};

/// One function of tensors with one result.
Instance one(Arrays operands, std::function<Tensor(const Tensors&)> call,
             std::function<Array(const Arrays&)> reference);

std::vector<Row> math_rows();
std::vector<Row> activation_rows();
std::vector<Row> reduction_rows();
std::vector<Row> shape_rows();
std::vector<Row> product_rows();
std::vector<Row> index_rows();
std::vector<Row> order_rows();
std::vector<Row> convolution_rows();
std::vector<Row> layer_rows();
std::vector<Row> loss_rows();
std::vector<Row> special_rows();
std::vector<Row> window_rows();
std::vector<Row> margin_rows();
std::vector<Row> collection_rows();
std::vector<Row> fourier_rows();
std::vector<Row> segment_rows();
std::vector<Row> linalg_rows();
std::vector<Row> spectral_rows();
std::vector<Row> vision_rows();

} // namespace egret::testing

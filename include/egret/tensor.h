// The lazy tensor: a value known by how it is made, and computed when it is read.
#pragma once

#include "egret/device.h"
#include "egret/dtype.h"
#include "egret/error.h"
#include "egret/expr.h"
#include "egret/scalar.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace egret {

class Tensor;
class Operand;

namespace detail {
class Handle;  // what the copies of one Tensor share: a node and its place for a gradient
struct Access; // how egret's own sources reach a Tensor's handle
/// `temporary` is about to go: if no other Tensor shares its handle, the value counts as held no
/// longer, and is stored only where something else asks for it. Copies hold it again.
void let_go(const Tensor& temporary) noexcept;
/// Another tensor has taken the place of this leaf, as in a converted model: what updates it by its
/// gradient is to ask.
void retire(const Tensor& leaf) noexcept;
bool is_retired(const Tensor& leaf) noexcept;
/// Copies of one handle.
bool same_place(const Tensor& a, const Tensor& b) noexcept;
} // namespace detail

/// The C++ types whose values tensors take and give: bool, all integers, float, double.
template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;

/// The element type of a C++ arithmetic type: float is f32, std::int32_t is i32, bool is bool ...
template <Arithmetic T>
constexpr DType dtype_of() noexcept {
  if constexpr (std::is_same_v<T, bool>)
    return DType::Bool;
  else if constexpr (std::is_floating_point_v<T>)
    return sizeof(T) == 4 ? DType::F32 : DType::F64;
  else if constexpr (std::is_signed_v<T>)
    return sizeof(T) == 1   ? DType::I8
           : sizeof(T) == 2 ? DType::I16
           : sizeof(T) == 4 ? DType::I32
                            : DType::I64;
  else
    return sizeof(T) == 1   ? DType::U8
           : sizeof(T) == 2 ? DType::U16
           : sizeof(T) == 4 ? DType::U32
                            : DType::U64;
}

/// A number written in a program. Beside a tensor it takes the tensor's dtype, unless its category
/// is higher (bool < integer < float): an i32 tensor times 0.5 is f32, a bool tensor plus 1 is i64.
class Number {
public:
  enum class Category : std::uint8_t { Bool, Integer, Float };

  template <Arithmetic T>
  constexpr Number(T value) noexcept
      : category_(std::is_same_v<T, bool>       ? Category::Bool
                  : std::is_floating_point_v<T> ? Category::Float
                                                : Category::Integer),
        as_float_(static_cast<double>(value)), as_int_(to_int(value)) {}

  constexpr Category category() const noexcept { return category_; }
  constexpr double as_double() const noexcept { return as_float_; }
  constexpr std::int64_t as_int() const noexcept { return as_int_; }
  /// The value in `type`: rounded once; integers wrap.
  Scalar in(DType type) const;

private:
  template <class T>
  static constexpr std::int64_t to_int(T value) noexcept {
    if constexpr (std::is_floating_point_v<T>) {
      return value >= T(-9.2e18) && value <= T(9.2e18) ? static_cast<std::int64_t>(value) : 0;
    } else {
      return static_cast<std::int64_t>(value);
    }
  }

  Category category_;
  double as_float_;
  std::int64_t as_int_;
};

/// A parameter that takes a tensor or a number. It refers to the tensor, so it is for parameters
/// only. A temporary tensor is held no longer once it was passed (Operand below).
class Arg {
public:
  Arg(const Tensor& tensor) noexcept : tensor_(&tensor) {}
  Arg(Tensor&& tensor) noexcept : tensor_(&tensor) { detail::let_go(tensor); }
  template <Arithmetic T>
  Arg(T number) noexcept : number_(number) {}
  Arg(Number number) noexcept : number_(number) {}

  bool is_tensor() const noexcept { return tensor_ != nullptr; }
  const Tensor& tensor() const noexcept { return *tensor_; }
  Number number() const noexcept { return number_; }

private:
  const Tensor* tensor_ = nullptr;
  Number number_ = 0;
};

/// The axes that a function works on: none given means all; negative ones count from the end.
class Axes {
public:
  Axes() = default; ///< all axes
  template <std::integral T>
  Axes(T axis) : all_(false), axes_{static_cast<std::int64_t>(axis)} {}
  Axes(std::initializer_list<std::int64_t> axes) : all_(false), axes_(axes) {}
  Axes(std::vector<std::int64_t> axes) : all_(false), axes_(std::move(axes)) {}

  bool all() const noexcept { return all_; }
  const std::vector<std::int64_t>& list() const noexcept { return axes_; }

private:
  bool all_ = true;
  std::vector<std::int64_t> axes_;
};

/// A range of positions along one axis, as Python's begin:end:step. Negative ends count from the
/// back, ends beyond the axis are clamped to it; a step is not 0 (a negative one walks backwards).
struct Slice {
  std::optional<std::int64_t> begin, end;
  std::int64_t step = 1;

  Slice() = default;
  Slice(std::optional<std::int64_t> begin, std::optional<std::int64_t> end, std::int64_t step = 1)
      : begin(begin), end(end), step(step) {}
  static Slice all() { return {}; }
};

/// Inserts an axis of size 1 in an index list.
struct NewAxis {};
/// Stands for as many Slice::all() as the index list lacks.
struct Ellipsis {};

/// One entry of an index list: a position (removes the axis), a slice, a new axis or an ellipsis.
class Index {
public:
  enum class Kind : std::uint8_t { Position, Slice, NewAxis, Ellipsis };
  template <std::integral T>
  Index(T position) : kind_(Kind::Position), position_(static_cast<std::int64_t>(position)) {}
  Index(Slice slice) : kind_(Kind::Slice), slice_(slice) {}
  Index(NewAxis) : kind_(Kind::NewAxis) {}
  Index(Ellipsis) : kind_(Kind::Ellipsis) {}

  Kind kind() const noexcept { return kind_; }
  std::int64_t position() const noexcept { return position_; }
  const Slice& slice() const noexcept { return slice_; }

private:
  Kind kind_;
  std::int64_t position_ = 0;
  Slice slice_;
};

/// A tensor: shape, dtype and a value that is computed when something reads it.
///
/// A Tensor is a handle. Copies share one value place: an in-place update (+=, assign, zero_grad
/// ...) of one copy is seen by all copies. Nothing else is shared: the result of any function,
/// views such as reshape or t[...] included, is a value of its own that later updates of its
/// operands do not change. `clone()` gives a handle of its own.
///
/// Functions only record what is to be done: they launch nothing and allocate no device memory.
/// Reading (item, to_vector, eval, printing) computes what the value needs, together with every
/// pending value on the way that a handle still holds: that of a variable, a member, an element of
/// a container. A temporary that was passed to a function, an operator or a method does not hold
/// its value, and neither does what std::move() gave: tanh(x * 2 + 1).eval() stores one array.
/// Mistakes in shapes, dtypes, axes and indices are thrown by the function called, as egret::Error.
///
/// Handles may be copied, read, updated and dropped by any thread: an in-place update is one step,
/// so that none is lost. What a Tensor object is bound to (`a = b`) is for one thread at a time, as
/// with any C++ object.
class Tensor {
public:
  Tensor() noexcept = default; ///< empty: defined() is false, every use throws Error(State)
  ~Tensor();
  Tensor(const Tensor&) noexcept;
  Tensor(Tensor&&) noexcept;
  Tensor&
  operator=(const Tensor&) noexcept; ///< lets go of the old value place and shares the other
  Tensor& operator=(Tensor&&) noexcept;

  // --- what is known at once
  bool defined() const noexcept { return handle_ != nullptr; }
  const Shape& shape() const; ///< dims, outermost first
  DType dtype() const;
  std::int64_t rank() const;
  std::int64_t size(std::int64_t axis) const; ///< of one axis; negative counts from the end.
                                              ///< Error(Shape) where it is symbolic
  std::int64_t numel() const;                 ///< number of elements; Error(Shape) as sizes()
  std::vector<std::int64_t>
  sizes() const; ///< shape() as integers; of a Graph's tensor those of its last run where shape()
                 ///< has symbols. Error(Shape) when one is not known

  // --- reading: computes what is needed
  /// The one element, converted to T. Error(Shape) unless numel() is 1, Error(State) inside a
  /// function that compile() traces.
  template <Arithmetic T = double>
  T item() const;
  template <Arithmetic T = float>
  std::vector<T> to_vector() const;        ///< all elements in row-major order, converted to T
  std::vector<std::byte> to_bytes() const; ///< all elements in row-major order, as stored
  Tensor eval() const&;                    ///< computes the value and keeps it; returns this handle
  Tensor eval() &&;
  bool is_materialized() const; ///< the value stands in memory (or is a number)
  Device device() const;        ///< where the value is, or is computed when it is read

  // Methods that record: of a variable, and of a temporary, which then holds its value no longer.
#define EGRET_METHOD(name, parameters)                                                             \
  Tensor name parameters const&;                                                                   \
  Tensor name parameters&&;

  // --- conversions
  EGRET_METHOD(to, (DType type)) ///< converted; *this's value when it has that type
  /// On a device: x.to("cuda:1"). Only recorded, passes gradients back to the device of *this, and
  /// is *this's value when it is there already. Error(Device) when the device cannot be had,
  /// Error(State) for what a traced function or a Graph computes.
  EGRET_METHOD(to, (const Device& device))
  EGRET_METHOD(clone, ())  ///< the same value under a handle of its own, which is no leaf
                           ///< but passes gradients on
  EGRET_METHOD(detach, ()) ///< the same value under a handle of its own, without gradient
  EGRET_METHOD(bitcast, (DType type)) ///< the same bits read as another type of the same size

  // --- indexing: results are values of their own
  EGRET_METHOD(operator[], (std::int64_t position)) ///< select(0, position)
  EGRET_METHOD(operator[], (Slice slice))           ///< slices the first axis
  EGRET_METHOD(operator[],
               (std::initializer_list<Index> indices)) ///< t[{Slice(1, 3), 0, Slice::all()}]
  EGRET_METHOD(index, (std::span<const Index> indices))
  EGRET_METHOD(select, (std::int64_t axis, std::int64_t position)) ///< removes the axis
  /// `length` positions of an axis from `begin`, a negative number counting from the end;
  /// Error(Axis), Error(Index) where they do not lie within it.
  EGRET_METHOD(narrow, (std::int64_t axis, const Expr& begin, const Expr& length))

  // --- shape
  EGRET_METHOD(reshape, (const Shape& shape)) ///< one dim may be -1
  EGRET_METHOD(flatten, (std::int64_t first = 0, std::int64_t last = -1))
  /// Dim i of the result is dim axes[i]; Error(Axis) unless each axis is named once.
  EGRET_METHOD(permute, (std::vector<std::int64_t> axes))
  EGRET_METHOD(transpose, (std::int64_t a = -2, std::int64_t b = -1)) ///< swaps two axes
  /// Removes axes of size 1; Error(Shape) for a given axis of another size.
  EGRET_METHOD(squeeze, (std::optional<std::int64_t> axis = {}))
  /// A new axis of size 1 at `axis`, from -rank-1 to rank (Error(Axis)).
  EGRET_METHOD(unsqueeze, (std::int64_t axis))
  EGRET_METHOD(expand, (const Shape& shape)) ///< broadcast to `shape`; -1 keeps a dim
  EGRET_METHOD(flip, (Axes axes))

  // --- reductions; signed integers sum in i64, unsigned ones in u64, bools count in i64
  EGRET_METHOD(sum, (const Axes& axes = {}, bool keepdim = false))
  EGRET_METHOD(mean, (const Axes& axes = {}, bool keepdim = false))
  EGRET_METHOD(var, (const Axes& axes = {}, bool keepdim = false, double correction = 1))
  EGRET_METHOD(std, (const Axes& axes = {}, bool keepdim = false, double correction = 1))
  EGRET_METHOD(prod, (const Axes& axes = {}, bool keepdim = false))
  EGRET_METHOD(max, (const Axes& axes = {}, bool keepdim = false))
  EGRET_METHOD(min, (const Axes& axes = {}, bool keepdim = false))
  EGRET_METHOD(argmax, (std::optional<std::int64_t> axis = {}, bool keepdim = false))
  EGRET_METHOD(argmin, (std::optional<std::int64_t> axis = {}, bool keepdim = false))
  EGRET_METHOD(any, (const Axes& axes = {}, bool keepdim = false))
  EGRET_METHOD(all, (const Axes& axes = {}, bool keepdim = false))
  EGRET_METHOD(cumsum, (std::int64_t axis))

  // --- element by element; the free functions of functional.h say what each computes
  EGRET_METHOD(pow, (const Arg& exponent))
  EGRET_METHOD(exp, ())
  EGRET_METHOD(log, ())
  EGRET_METHOD(sqrt, ())
  EGRET_METHOD(rsqrt, ())
  EGRET_METHOD(square, ())
  EGRET_METHOD(abs, ())
  EGRET_METHOD(sin, ())
  EGRET_METHOD(cos, ())
  EGRET_METHOD(tanh, ())
  EGRET_METHOD(sigmoid, ())
  EGRET_METHOD(relu, ())
  EGRET_METHOD(clamp, (std::optional<Number> low, std::optional<Number> high))
  EGRET_METHOD(softmax, (std::int64_t axis = -1))
  EGRET_METHOD(log_softmax, (std::int64_t axis = -1))
  EGRET_METHOD(logsumexp, (std::int64_t axis = -1, bool keepdim = false))
  EGRET_METHOD(matmul, (const Operand& other))
#undef EGRET_METHOD

  // --- in place: a new value in the place that all copies of this handle share
  /// In the dtype and shape of *this. Error(Shape) where `other` does not broadcast to it,
  /// Error(State) for a leaf that requires a gradient, unless a NoGrad lives.
  Tensor& operator+=(const Arg& other);
  Tensor& operator-=(const Arg& other);
  Tensor& operator*=(const Arg& other);
  Tensor& operator/=(const Arg& other);
  Tensor& assign(const Arg& value); ///< broadcast to this shape, converted to this dtype, and moved
                                    ///< to the device of *this
  Tensor& assign(std::initializer_list<Index> where, const Arg& value); ///< only where indexed
  Tensor& assign(std::span<const Index> where, const Arg& value);

  /// The value and its gradient on another device, for all copies of this handle; a leaf stays one.
  /// Errors as of to(device).
  Tensor& set_device(const Device& device);

  // --- gradients (see grad.h)
  bool requires_grad() const;
  Tensor& set_requires_grad(bool on = true); ///< floats only; a leaf, if it required none before
  bool is_leaf() const;                      ///< not computed from tensors that require gradients
  Tensor grad() const;                       ///< what backward() has summed; empty when nothing has
  void set_grad(const Tensor& gradient);     ///< replaces it (empty: removes it)
  void zero_grad();                          ///< removes it
  /// Adds d(this)/d(leaf) to the gradient of every leaf that requires one. `seed` is the gradient
  /// of this value, ones of a one-element value when empty. Afterwards the recipe is let go, unless
  /// `retain`; calling again is then Error(State).
  void backward(const Tensor& seed = {}, bool retain = false) const;

  // --- the explicit interface (graph.h): only for tensors of an egret::Graph
  Tensor& set(std::initializer_list<float> values); ///< of an input; converted to its dtype
  Tensor& set(const Tensor& value);
  Tensor& retrieve(); ///< the next execute() computes this value and keeps it until the one after
  Tensor& keep();     ///< as retrieve(); on an input: its value survives execute()
  std::vector<float> data() const {
    return to_vector<float>();
  }

private:
  explicit Tensor(std::shared_ptr<detail::Handle> handle) noexcept;
  friend struct detail::Access;
  std::shared_ptr<detail::Handle> handle_;
};

/// A parameter that takes a tensor. A temporary, or what std::move() gives, is moved into it and
/// holds its value no longer: reading what the function returns does not store the operand, unless
/// a copy of it lives. A variable is shared, as by any copy.
class Operand : public Tensor {
public:
  Operand() noexcept = default; ///< empty
  Operand(const Tensor& tensor) noexcept : Tensor(tensor) {}
  Operand(Tensor&& tensor) noexcept : Tensor(std::move(tensor)) { detail::let_go(*this); }
  Operand(const Operand&) noexcept = default;
  Operand(Operand&& other) noexcept : Operand(static_cast<Tensor&&>(other)) {}
  Operand& operator=(const Operand&) = delete;
};

/// Whether one operation can take both: they do not belong to two devices.
bool same_device(const Tensor& a, const Tensor& b);

// --- operators: broadcasting as NumPy does, dtypes promoted (promote in dtype.h, Number above)
Tensor operator-(const Operand& a);
Tensor operator!(const Operand& a); ///< of bools
#define EGRET_OPERATOR(op)                                                                         \
  Tensor operator op(const Operand& a, const Operand& b);                                          \
  Tensor operator op(const Operand& a, Number b);                                                  \
  Tensor operator op(Number a, const Operand& b);
EGRET_OPERATOR(+)
EGRET_OPERATOR(-)
EGRET_OPERATOR(*)
EGRET_OPERATOR(/)  ///< integers divide to f32; floor_divide keeps integers
EGRET_OPERATOR(%)  ///< sign of the divisor, as Python's
EGRET_OPERATOR(==) ///< bool, element by element
EGRET_OPERATOR(!=)
EGRET_OPERATOR(<)
EGRET_OPERATOR(<=)
EGRET_OPERATOR(>)
EGRET_OPERATOR(>=)
EGRET_OPERATOR(&) ///< bools and integers, bit by bit
EGRET_OPERATOR(|)
EGRET_OPERATOR(^)
EGRET_OPERATOR(<<)
EGRET_OPERATOR(>>)
#undef EGRET_OPERATOR

// --- making tensors
/// A tensor of rank 0. `dtype`: by default f32, i64 or bool after the number's category. Its value
/// is passed to kernels as a number, so programs that differ only in it share their plan.
Tensor scalar(Number value, std::optional<DType> dtype = {});

/// Data of exactly T's dtype, row-major; `shape` by default [n]. Error(Shape) when the counts
/// differ.
template <Arithmetic T>
Tensor tensor(std::span<const T> values, std::optional<Shape> shape = {});
template <Arithmetic T>
Tensor tensor(const std::vector<T>& values, std::optional<Shape> shape = {});

/// Literals, nested up to four deep: tensor({{1, 2}, {3, 4}}). Floats become f32, integers i64,
/// bools bool. Error(Shape) when rows differ in length.
template <Arithmetic T>
Tensor tensor(std::initializer_list<T> values);
template <Arithmetic T>
Tensor tensor(std::initializer_list<T> values, const Shape& shape);
template <Arithmetic T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> values);
template <Arithmetic T>
Tensor tensor(std::initializer_list<std::initializer_list<std::initializer_list<T>>> values);
template <Arithmetic T>
Tensor
tensor(std::initializer_list<std::initializer_list<std::initializer_list<std::initializer_list<T>>>>
           values);

/// Elements as stored; Error(Shape) unless bytes.size() is element count times element size.
Tensor from_bytes(DType dtype, const Shape& shape, std::span<const std::byte> bytes);

/// Constants; nothing is stored until they are read. Error(Shape) for a negative dim.
Tensor zeros(const Shape& shape, DType dtype = DType::F32);
Tensor ones(const Shape& shape, DType dtype = DType::F32);
Tensor full(const Shape& shape, Number value,
            std::optional<DType> dtype = {}); ///< dtype as scalar()
/// Of a's shape and dtype.
Tensor zeros_like(const Tensor& a);
Tensor ones_like(const Tensor& a);
Tensor full_like(const Tensor& a, Number value);
/// begin, begin + step, ... before end. i64 when all three are integers, else f32. Error(Value) for
/// a step of 0.
Tensor arange(Number end, std::optional<DType> dtype = {});
Tensor arange(Number begin, Number end, Number step = 1, std::optional<DType> dtype = {});
/// `count` numbers from begin to end, both ends exact; floats only (Error(DType)). Error(Value) for
/// a negative count.
Tensor linspace(double begin, double end, std::int64_t count, DType dtype = DType::F32);
/// [rows, columns] with ones on the diagonal; columns -1: as many as rows. Error(Value) for
/// negative rows.
Tensor eye(std::int64_t rows, std::int64_t columns = -1, DType dtype = DType::F32);

/// Computes several values in one plan.
void eval(std::initializer_list<Tensor> tensors);
void eval(std::span<const Tensor> tensors);

/// The values, with the middle left out when there are more than a thousand; reads the tensor.
std::string to_string(const Tensor& a);
std::ostream& operator<<(std::ostream& out, const Tensor& a);

/// What reading `a` would run: the kernels with their operations, why neighbours did not fuse, the
/// time of each stage. Compiles, does not run.
std::string explain(const Tensor& a);
/// The same as a graph of primitives, in the text form of docs/graph.md.
std::string graph_text(const Tensor& a);

namespace detail {
Tensor from_elements(DType dtype, const Shape& shape, const void* elements, std::size_t bytes);
Tensor from_literals(Number::Category category, const Shape& shape, std::span<const Number> values);
void read_elements(const Tensor& a, DType dtype, void* out, std::size_t count, const char* who);
void check_row(std::size_t want, std::size_t got);
template <class T>
constexpr Number::Category category_of = Number(T{}).category();
} // namespace detail

template <Arithmetic T>
T Tensor::item() const {
  T value{};
  detail::read_elements(*this, dtype_of<T>(), &value, 1, "item");
  return value;
}

template <Arithmetic T>
std::vector<T> Tensor::to_vector() const {
  const auto count = static_cast<std::size_t>(numel());
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<unsigned char> bytes(count);
    detail::read_elements(*this, DType::Bool, bytes.data(), count, "to_vector");
    return std::vector<bool>(bytes.begin(), bytes.end());
  } else {
    std::vector<T> values(count);
    detail::read_elements(*this, dtype_of<T>(), values.data(), count, "to_vector");
    return values;
  }
}

template <Arithmetic T>
Tensor tensor(std::span<const T> values, std::optional<Shape> shape) {
  return detail::from_elements(
      dtype_of<T>(), shape ? *shape : Shape{Expr(static_cast<std::int64_t>(values.size()))},
      values.data(), values.size_bytes());
}

template <Arithmetic T>
Tensor tensor(const std::vector<T>& values, std::optional<Shape> shape) {
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<unsigned char> bytes(values.begin(), values.end());
    return detail::from_elements(
        DType::Bool, shape ? *shape : Shape{Expr(static_cast<std::int64_t>(bytes.size()))},
        bytes.data(), bytes.size());
  } else {
    return tensor(std::span<const T>(values), std::move(shape));
  }
}

template <Arithmetic T>
Tensor tensor(std::initializer_list<T> values, const Shape& shape) {
  std::vector<Number> numbers(values.begin(), values.end());
  return detail::from_literals(detail::category_of<T>, shape, numbers);
}

template <Arithmetic T>
Tensor tensor(std::initializer_list<T> values) {
  return tensor(values, Shape{Expr(static_cast<std::int64_t>(values.size()))});
}

template <Arithmetic T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> values) {
  std::vector<Number> numbers;
  const std::size_t columns = values.size() ? values.begin()->size() : 0;
  for (const auto& row : values) {
    detail::check_row(columns, row.size());
    numbers.insert(numbers.end(), row.begin(), row.end());
  }
  return detail::from_literals(
      detail::category_of<T>,
      {static_cast<std::int64_t>(values.size()), static_cast<std::int64_t>(columns)}, numbers);
}

template <Arithmetic T>
Tensor tensor(std::initializer_list<std::initializer_list<std::initializer_list<T>>> values) {
  std::vector<Number> numbers;
  const std::size_t rows = values.size() ? values.begin()->size() : 0;
  const std::size_t columns = rows ? values.begin()->begin()->size() : 0;
  for (const auto& plane : values) {
    detail::check_row(rows, plane.size());
    for (const auto& row : plane) {
      detail::check_row(columns, row.size());
      numbers.insert(numbers.end(), row.begin(), row.end());
    }
  }
  return detail::from_literals(detail::category_of<T>,
                               {static_cast<std::int64_t>(values.size()),
                                static_cast<std::int64_t>(rows),
                                static_cast<std::int64_t>(columns)},
                               numbers);
}

template <Arithmetic T>
Tensor
tensor(std::initializer_list<std::initializer_list<std::initializer_list<std::initializer_list<T>>>>
           values) {
  std::vector<Number> numbers;
  const std::size_t planes = values.size() ? values.begin()->size() : 0;
  const std::size_t rows = planes ? values.begin()->begin()->size() : 0;
  const std::size_t columns = rows ? values.begin()->begin()->begin()->size() : 0;
  for (const auto& block : values) {
    detail::check_row(planes, block.size());
    for (const auto& plane : block) {
      detail::check_row(rows, plane.size());
      for (const auto& row : plane) {
        detail::check_row(columns, row.size());
        numbers.insert(numbers.end(), row.begin(), row.end());
      }
    }
  }
  return detail::from_literals(detail::category_of<T>,
                               {static_cast<std::int64_t>(values.size()),
                                static_cast<std::int64_t>(planes), static_cast<std::int64_t>(rows),
                                static_cast<std::int64_t>(columns)},
                               numbers);
}

} // namespace egret

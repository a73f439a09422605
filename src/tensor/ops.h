// Building blocks of the functions of tensors: recording with broadcasting, promotion and checked
// axes. `who` is the user's function, for errors.
#pragma once

#include "egret/functional.h"
#include "tensor/node.h"

#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace egret::detail {

/// Throws `error`, which is being handled, again; where it names an operation of the table, or the
/// arithmetic of sizes, it names `who`, the user's function, instead.
[[noreturn]] void rethrow_as(const Error& error, const char* who);
/// What `make` returns, for functions made of other operations; its errors name `who`.
template <class F>
auto named(const char* who, F&& make) {
  try {
    return make();
  } catch (const Error& error) {
    rethrow_as(error, who);
  }
}

/// One operation of the table on tensors as they are.
Tensor apply(Op op, std::initializer_list<const Tensor*> operands, const ir::Attrs& attrs,
             const char* who);
NodePtr apply_node(Op op, Inputs&& inputs, const ir::Attrs& attrs, const char* who);
NodePtr apply_node(Op op, Inputs&& inputs, const char* who); ///< without attributes
Tensor unary(Op op, const Tensor& a, const char* who);
Tensor binary(Op op, const Tensor& a, const Tensor& b, const char* who);
Tensor reduce(Op op, const Tensor& a, std::vector<std::int64_t> axes, bool keepdim,
              const char* who);

/// A constant of the graph, rank 0: for numbers that belong to a formula.
Tensor constant(DType type, double value);
Tensor constant(Scalar value);
/// A number that the user wrote, rank 0: 0, 1, -1, 2, 1/2 and infinities are constants (rules look
/// for them), all others are passed by value so that programs differing in them share a plan.
Tensor literal(DType type, Number value);
/// The same at a shape, for operations only: a constant may be a node that others have too.
NodePtr literal_at(DType type, Number value, const Shape& shape);
/// 0, 1, .. n-1.
Tensor iota(const Expr& n, DType type);

/// "[2,3]"
std::string shape_of(const Tensor& a);
/// The dtype of an operation on a tensor of `type` and a number.
DType with_number(DType type, Number number);
DType default_dtype(Number::Category category);
/// -1 or 1 where a number is an integer below or above all that the integers of `type` hold, else
/// 0.
int beyond(DType type, Number number);

/// The shape to which two broadcast; Error(Shape).
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* who);
/// Whether a tensor of shape `from` broadcasts to exactly `to`.
bool broadcasts_to(const Shape& from, const Shape& to);
/// `a` broadcast to `shape`, which must be possible.
Tensor broadcast_to(Tensor a, const Shape& shape, const char* who);
NodePtr broadcast_node(NodePtr node, const Shape& shape);
/// The same for what only operations see: a constant may be a node that others have too.
NodePtr operand_at(NodePtr node, const Shape& shape);

/// The unsigned integers as wide as `type`.
DType bits_of(DType type) noexcept;
/// The number of `bits_of(type)` whose top bit alone is set.
Tensor top_bit(DType type);

/// cat() in the name of `who`.
Tensor join(std::span<const Tensor> tensors, std::int64_t axis, const char* who);

/// Operands of one dtype and one shape.
struct Pair {
  Tensor a, b;
};
struct Nodes {
  NodePtr a, b;
};
Pair promoted(const Arg& a, const Arg& b, const char* who); ///< dtypes equal, shapes as they were
Pair matched(const Arg& a, const Arg& b, const char* who);  ///< dtypes and shapes equal
Nodes matched_nodes(const Arg& a, const Arg& b, const char* who); ///< the same, for operations only
Tensor binary(Op op, Nodes operands, const char* who);
/// Of functions that compute in floats: integers and bools as f32, so that a number beside them is
/// not wrapped to their type before.
Pair matched_floats(const Arg& a, const Arg& b, const char* who);
/// A value in another type; itself where it has the type.
NodePtr cast_node(NodePtr node, DType type);
/// A number becomes a literal of `like`'s dtype (or a higher category's).
Tensor as_tensor(const Arg& a, std::optional<DType> type = {});

/// number_of(size, DType::I64) at a shape, for operations only.
NodePtr size_at(const Expr& size, const Shape& shape);
/// a.to(type), without another handle where it has the type.
Tensor converted(const Tensor& a, DType type);
/// The same under a handle that nobody else has.
Tensor converted_own(Tensor a, DType type);
/// Integers and bools as f32, floats as they are.
Tensor as_float(const Tensor& a, const char* who);
/// In the type in which sums are formed: f16 and bf16 as f32.
Tensor widened(const Tensor& a);
/// `f` of the operand as a wide float, rounded to its dtype.
template <class F>
Tensor wide(const Tensor& a, const char* who, F&& f) {
  const Tensor x = as_float(a, who);
  return converted_own(f(widened(x)), x.dtype());
}
/// A number of the dtype of `like`.
inline Tensor number(const Tensor& like, double value) {
  return constant(like.dtype(), value);
}
/// Without a gradient.
Tensor stopped(const Tensor& x);
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// An operand of a product, in the type that Autocast wants.
Tensor product_operand(const Tensor& a);
/// What a reduction formed in a wide type, in its operand's `type`; Autocast leaves it wide.
Tensor rounded_to(Tensor result, DType type);

/// Puts next(the value as it is) in the place of `target`'s value, broadcast and converted: as one
/// step, also when other threads update it. `next` may be called several times.
void update(const Tensor& target, const std::function<Tensor(const Tensor& now)>& next,
            const char* who);
/// `a` with `value`, broadcast, where indexed: what assign() puts in a's place.
Tensor replaced(const Tensor& a, std::span<const Index> where, const Arg& value);

/// An axis counted from the front; Error(Axis).
std::int64_t axis_of(std::int64_t axis, std::int64_t rank, const Shape& shape, const char* who);
/// Error(Value) where a function would return more tensors than anyone can hold.
void require_parts(std::int64_t count, const char* who);
/// Ascending, each once; Error(Axis).
std::vector<std::int64_t> axes_of(const Axes& axes, const Shape& shape, const char* who);
/// The i64 coordinates along `axis` of a box, as 1 along all others; for operations only.
Tensor coordinate_line(const Shape& shape, std::size_t axis);
/// The same broadcast to the box.
Tensor coordinate(const Shape& shape, std::size_t axis, const char* who);
/// The number of elements along axes.
Expr count_along(const Shape& shape, const std::vector<std::int64_t>& axes);
/// The value of a size (which may be negative), rank 0: a constant, or one that each run computes
/// from the sizes of its inputs.
Tensor number_of(const Expr& size, DType type);

void require_float(const Tensor& a, const char* who);
void require_integer(const Tensor& a, const char* who, const char* what);

} // namespace egret::detail

// Reading and writing at integer indices that are data.
#include "egret/functional/indices.h"

#include "support/fail.h"
#include "tensor/loss_parts.h"
#include "tensor/ops.h"

#include <algorithm>

namespace egret {

using namespace detail;

namespace {

// A size as a value that the compiler knows as an expression, however the size is given: element n
// of 0, 1 .. n.
Tensor size_value(const Expr& size, const char* who) {
  const Tensor steps = iota(size + 1, DType::I64);
  const Tensor last = apply(Op::Shrink, {&steps}, {.shape = {size + 1}, .before = {size}}, who);
  return apply(Op::Reshape, {&last}, {.shape = {}}, who);
}

// For an index of data's rank: the number in row-major order of the element that each index names,
// -1 (which reads 0 and is not written) where it is out of range. The part that the other
// coordinates make is a view of 0, 1, ...: the compiler sees which elements lines have (regions.h).
Tensor numbers(const Tensor& data, std::int64_t axis, const Tensor& index, const char* who) {
  const auto along = static_cast<std::size_t>(axis);
  const auto have = concrete(data.shape(), who), want = concrete(index.shape(), who);
  bool fits = have.size() == want.size();
  for (std::size_t i = 0; fits && i < have.size(); ++i)
    fits = i == along || want[i] <= have[i];
  if (!fits)
    fail(ErrorKind::Shape,
         "{}: index {} does not fit data {} along axis {}; ranks must be equal and its other "
         "dims not larger",
         who, shape_of(index), shape_of(data), axis);
  const Tensor wide = index.to(DType::I64);
  const Expr& lines = data.shape()[along];
  const Tensor valid = (wide >= 0) & (wide < size_value(lines, who));
  Tensor number = wide;
  Expr stride(1);
  for (std::size_t i = along + 1; i < have.size(); ++i)
    stride = stride * data.shape()[i];
  if (!(stride == Expr(1)))
    number = number * size_value(stride, who);
  if (have[along] > 0 && have.size() > 1) {
    Expr count(1);
    for (const Expr& extent : data.shape())
      count = count * extent;
    Tensor first = iota(count, DType::I64).reshape(data.shape());
    for (std::size_t i = 0; i < have.size(); ++i)
      first = first.narrow(static_cast<std::int64_t>(i), 0, i == along ? 1 : want[i]);
    number = number + detail::broadcast_to(first, index.shape(), who);
  }
  return where(valid, number, -1);
}

// The axis counted from the front, of operands that are there.
std::int64_t checked(const Tensor& data, std::int64_t axis, const Tensor& index, const char* who) {
  Access::held(data, who);
  Access::held(index, who);
  require_integer(index, who, "the indices");
  return axis_of(axis, data.rank(), data.shape(), who);
}

} // namespace

Tensor take(const Operand& data, const Operand& index, std::int64_t axis) {
  Access::held(data, "take");
  Access::held(index, "take");
  require_integer(index, "take", "the indices");
  axis = axis_of(axis, data.rank(), data.shape(), "take");
  return apply(Op::Gather, {&data, &index}, {.axes = {axis}}, "take");
}

Tensor embedding(const Operand& weight, const Operand& index) {
  Access::held(weight, "embedding");
  Access::held(index, "embedding");
  if (weight.rank() != 2)
    fail(ErrorKind::Shape, "embedding: weight is {}; it must be [entries, width]",
         shape_of(weight));
  require_integer(index, "embedding", "the indices");
  return apply(Op::Gather, {&weight, &index}, {.axes = {0}}, "embedding");
}

Tensor gather(const Operand& data, std::int64_t axis, const Operand& index) {
  axis = checked(data, axis, index, "gather");
  const Tensor place = numbers(data, axis, index, "gather"), flat = data.flatten();
  return apply(Op::Gather, {&flat, &place}, {.axes = {0}}, "gather");
}

namespace {

Tensor put(Op op, const Tensor& data, const Tensor& index, const Tensor& updates, std::int64_t axis,
           const char* who) {
  Access::held(data, who);
  Access::held(index, who);
  Access::held(updates, who);
  require_integer(index, who, "the indices");
  axis = axis_of(axis, data.rank(), data.shape(), who);
  Shape wanted(data.shape().begin(), data.shape().begin() + axis);
  wanted.insert(wanted.end(), index.shape().begin(), index.shape().end());
  wanted.insert(wanted.end(), data.shape().begin() + axis + 1, data.shape().end());
  if (!broadcasts_to(updates.shape(), wanted))
    fail(ErrorKind::Shape, "{}: updates {} do not broadcast to {}, the shape of what is indexed",
         who, shape_of(updates), to_string(wanted));
  const Tensor given = broadcast_to(updates.to(data.dtype()), wanted, who);
  return apply(op, {&data, &index, &given}, {.axes = {axis}}, who);
}

} // namespace

Tensor index_put(const Operand& data, const Operand& index, const Operand& updates,
                 std::int64_t axis) {
  return put(Op::ScatterSet, data, index, updates, axis, "index_put");
}

Tensor index_add(const Operand& data, const Operand& index, const Operand& updates,
                 std::int64_t axis) {
  return put(Op::ScatterAdd, data, index, updates, axis, "index_add");
}

Tensor one_hot(const Operand& index, std::int64_t classes, DType dtype) {
  Access::held(index, "one_hot");
  require_integer(index, "one_hot", "the indices");
  if (classes < 0)
    fail(ErrorKind::Value, "one_hot: {} classes; the number must not be negative", classes);
  return named("one_hot", [&] {
    const Tensor number = class_numbers(index);
    return eq(unsqueeze(number, -1), iota(classes, number.dtype())).to(dtype);
  });
}

Tensor positions(const Expr& count) {
  if (!proves_less_equal(0, count))
    fail(ErrorKind::Value, "positions: {} of them; the number must not be negative", count.str());
  return iota(count, DType::I64);
}

Tensor extent(const Expr& size) {
  return number_of(size, DType::I64);
}

Tensor index_select(const Operand& data, std::int64_t axis, const Operand& index) {
  axis = checked(data, axis, index, "index_select");
  if (index.rank() != 1)
    fail(ErrorKind::Shape, "index_select: index {}; a vector is needed (take)", shape_of(index));
  return take(data, index, axis);
}

Tensor take_along_dim(const Operand& data, const Operand& index, std::int64_t axis) {
  constexpr const char* who = "take_along_dim";
  axis = checked(data, axis, index, who);
  if (data.rank() != index.rank())
    fail(ErrorKind::Shape, "{}: index {} and data {} differ in rank", who, shape_of(index),
         shape_of(data));
  const auto along = static_cast<std::size_t>(axis);
  Shape box = data.shape(), other = index.shape();
  box[along] = other[along] = Expr(1);
  box = broadcast_shapes(box, other, who);
  Shape of_data = box, of_index = box;
  of_data[along] = data.shape()[along];
  of_index[along] = index.shape()[along];
  return gather(detail::broadcast_to(data, of_data, who), axis,
                detail::broadcast_to(index, of_index, who));
}

Tensor index_fill(const Operand& data, std::int64_t axis, const Operand& index, Number value) {
  axis = checked(data, axis, index, "index_fill");
  return put(Op::ScatterSet, data, index, literal(data.dtype(), value), axis, "index_fill");
}

namespace {

// The operand in reverse order, its own inverse: the smaller one wins a maximum.
Tensor turned(const Tensor& a) {
  if (is_float(a.dtype()))
    return neg(a);
  return bitwise_not(a);
}

Tensor scattered(Op op, const Tensor& data, const Tensor& place, const Tensor& updates,
                 std::int64_t axis, const char* who) {
  return apply(op, {&data, &place, &updates}, {.axes = {axis}}, who);
}

void require_summands(const Tensor& data, Scatter how, const char* who) {
  if (data.dtype() == DType::Bool && how != Scatter::Set && how != Scatter::Max &&
      how != Scatter::Min)
    fail(ErrorKind::DType, "{}: takes numbers to add, got bool; convert with to(DType::I64)", who);
}

// `given` added to what lies at `place` along the axis, or the extremes or means of both. `met`
// broadcasts to data: how many updates meet an element.
Tensor combined(Tensor data, const Tensor& place, Tensor given, std::int64_t axis,
                const Tensor& met, Scatter how, bool include_self, const char* who) {
  const bool extreme = how == Scatter::Max || how == Scatter::Min;
  const DType type = data.dtype();
  if (how == Scatter::Min) {
    data = turned(data);
    given = turned(given);
  } else if (how == Scatter::Mean) { // sums and counts may be beyond the dtype where means are not
    const DType wide = is_float(type)       ? accumulator_of(type)
                       : type == DType::U64 ? DType::U64
                                            : DType::I64;
    data = data.to(wide);
    given = given.to(wide);
  }
  const Tensor untouched = data;
  if (!include_self)
    data = where(met > 0,
                 constant(extreme ? identity_of(Monoid::Max, data.dtype())
                                  : Scalar::of(data.dtype(), std::int64_t{0})),
                 data);
  if (extreme) {
    const Tensor top = scattered(Op::ScatterMax, data, place, given, axis, who);
    return how == Scatter::Min ? turned(top) : top;
  }
  const Tensor total = scattered(Op::ScatterAdd, data, place, given, axis, who);
  if (how == Scatter::Add)
    return total;
  const Tensor count = include_self ? met + 1 : maximum(met, 1);
  const Tensor quotient = is_float(total.dtype()) ? total / count.to(total.dtype())
                                                  : floor_divide(total, count.to(total.dtype()));
  return where(met > 0, quotient, untouched).to(type);
}

// data with products of the updates of each line. No primitive scatters by products: the updates of
// a line are put in order of their places, and each takes in turn the products of those 1, 2, 4 ...
// before it that have its place, until the last one of a place holds them all.
Tensor multiplied(const Tensor& data, std::int64_t axis, const Tensor& index, const Tensor& updates,
                  bool include_self, const char* who) {
  const auto lines = concrete(data.shape(), who)[static_cast<std::size_t>(axis)];
  const Tensor number = index.to(DType::I64);
  // Indices out of range take part nowhere: they stand behind the last place.
  const Tensor known =
      where(logical_and(number >= 0, number < lines), number, lines).transpose(axis, -1);
  const Tensor order = argsort(known, -1);
  const Tensor place = gather(known, -1, order);
  const bool narrow = is_float(data.dtype()) && size_of(data.dtype()) < size_of(DType::F32);
  const DType wide = narrow ? DType::F32 : data.dtype(); // rounded once
  Tensor product = gather(updates.to(wide).transpose(axis, -1), -1, order);
  const std::int64_t last = place.rank() - 1;
  const auto n = concrete(place.shape(), who)[static_cast<std::size_t>(last)];
  std::vector<std::int64_t> front(static_cast<std::size_t>(place.rank()), 0), back = front;
  for (std::int64_t step = 1; step < n; step *= 2) {
    front.back() = step;
    const Tensor same = eq(pad(place.narrow(last, 0, n - step), front, back, -1), place);
    const Tensor before = pad(product.narrow(last, 0, n - step), front, back, 1);
    product = where(same, before, 1) * product;
  }
  const Tensor own = data.to(wide), at = place.transpose(axis, -1);
  // Of several updates of one place the last one stays.
  const Tensor total = scatter(include_self ? ones(data.shape(), wide) : own, axis, at,
                               product.transpose(axis, -1), Scatter::Set);
  return (include_self ? own * total : total).to(data.dtype());
}

} // namespace

Tensor scatter(const Operand& data, std::int64_t axis, const Operand& index, const Operand& updates,
               Scatter how, bool include_self) {
  constexpr const char* who = "scatter";
  axis = checked(data, axis, index, who);
  Access::held(updates, who);
  const Tensor place = numbers(data, axis, index, who);
  const auto have = concrete(updates.shape(), who), want = concrete(index.shape(), who);
  bool fits = have.size() == want.size();
  for (std::size_t i = 0; fits && i < have.size(); ++i)
    fits = want[i] <= have[i];
  if (!fits)
    fail(ErrorKind::Shape, "{}: updates {} do not fit index {}; its dims must not be larger", who,
         shape_of(updates), shape_of(index));
  Tensor given = updates.to(data.dtype());
  for (std::size_t i = 0; i < want.size(); ++i)
    given = given.narrow(static_cast<std::int64_t>(i), 0, want[i]);
  Tensor flat = data.flatten();
  if (how == Scatter::Set)
    return scattered(Op::ScatterSet, flat, place, given, 0, who).reshape(data.shape());
  require_summands(data, how, who);
  if (how == Scatter::Prod)
    return multiplied(data, axis, index, given, include_self, who);
  const Tensor met = scattered(Op::ScatterAdd, zeros(flat.shape(), DType::I64), place,
                               ones(index.shape(), DType::I64), 0, who);
  return combined(flat, place, given, 0, met, how, include_self, who).reshape(data.shape());
}

Tensor scatter(const Operand& data, std::int64_t axis, const Operand& index, Number value) {
  Access::held(index, "scatter");
  Access::held(data, "scatter");
  return scatter(data, axis, index,
                 detail::broadcast_to(literal(data.dtype(), value), index.shape(), "scatter"));
}

Tensor index_reduce(const Operand& data, std::int64_t axis, const Operand& index,
                    const Operand& source, Scatter how, bool include_self) {
  constexpr const char* who = "index_reduce";
  axis = checked(data, axis, index, who);
  Access::held(source, who);
  if (index.rank() != 1)
    fail(ErrorKind::Shape, "{}: index {}; a vector is needed", who, shape_of(index));
  Shape wanted = data.shape(), along(data.shape().size(), Expr(1));
  wanted[static_cast<std::size_t>(axis)] = index.shape()[0];
  if (source.shape() != wanted)
    fail(ErrorKind::Shape, "{}: source {} does not fit data {} and {} positions; it must be {}",
         who, shape_of(source), shape_of(data), index.shape()[0].str(), to_string(wanted));
  require_summands(data, how, who);
  const Tensor given = source.to(data.dtype());
  if (how == Scatter::Set)
    return scattered(Op::ScatterSet, data, index, given, axis, who);
  if (how == Scatter::Prod) {
    along[static_cast<std::size_t>(axis)] = index.shape()[0];
    const Tensor each = detail::broadcast_to(reshape(index, along), wanted, who);
    return named(who, [&] { return scatter(data, axis, each, given, how, include_self); });
  }
  const Expr& lines = data.shape()[static_cast<std::size_t>(axis)];
  along[static_cast<std::size_t>(axis)] = lines;
  const Tensor met = reshape(scattered(Op::ScatterAdd, zeros({lines}, DType::I64), index,
                                       ones(index.shape(), DType::I64), 0, who),
                             along);
  return combined(data, index, given, axis, met, how, include_self, who);
}

Tensor scatter_add(const Operand& data, std::int64_t axis, const Operand& index,
                   const Operand& updates) {
  return scatter(data, axis, index, updates, Scatter::Add);
}

namespace {

// An index list worked out: what its positions and slices leave of the operand, the axes of that
// which tensors index, and one index for all of those together.
struct Selected {
  Tensor rest;                    ///< indexed by positions and slices only
  std::vector<std::int64_t> axes; ///< of rest, that tensors index
  Tensor place;                   ///< number among those axes, i64, -1 out of range
  std::int64_t front;             ///< where the dims of `place` stand in the result
};

std::vector<Index> plain_entries(std::span<const At> where) {
  std::vector<Index> list;
  for (const At& at : where)
    list.push_back(at.is_tensor() ? Index(Slice::all()) : at.index());
  return list;
}

Selected select(const Tensor& a, std::span<const At> where, const char* who) {
  const std::vector<Index> plain = plain_entries(where);
  Selected s{a.index(plain), {}, {}, -1};
  std::size_t used = 0;
  for (const At& at : where) {
    if (at.is_tensor() && at.tensor().dtype() == DType::Bool)
      fail(ErrorKind::Value,
           "{}: a bool mask as an index gives a size that depends on data; use where or "
           "masked_fill",
           who);
    if (at.is_tensor())
      require_integer(at.tensor(), who, "the indices");
    used += at.index().kind() == Index::Kind::Position || at.index().kind() == Index::Kind::Slice;
  }
  // Positions take their axis away; an ellipsis stands for what is left.
  std::int64_t axis = 0;
  Shape box;
  std::vector<Tensor> tensors;
  for (const At& at : where) {
    if (at.is_tensor()) {
      s.axes.push_back(axis++);
      tensors.push_back(at.tensor().to(DType::I64));
      box = broadcast_shapes(box, at.tensor().shape(), who);
      continue;
    }
    switch (at.index().kind()) {
    case Index::Kind::Position:
      break;
    case Index::Kind::Ellipsis:
      axis += a.rank() - static_cast<std::int64_t>(used);
      break;
    default:
      ++axis;
    }
  }
  if (tensors.empty())
    fail(ErrorKind::Value, "{}: no entry is a tensor; use operator[] or assign", who);
  Tensor valid = constant(DType::Bool, 1);
  s.place = zeros({}, DType::I64);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t n = s.rest.size(s.axes[i]);
    const Tensor at = egret::where(tensors[i] < 0, tensors[i] + n, tensors[i]);
    valid = valid & (at >= 0) & (at < n);
    s.place = s.place * n + at;
  }
  s.place = detail::broadcast_to(egret::where(valid, s.place, -1), box, who);
  const bool together =
      s.axes.back() - s.axes.front() + 1 == static_cast<std::int64_t>(s.axes.size());
  s.front = together ? s.axes.front() : 0;
  return s;
}

// The axes that tensors index as one axis in front, the others behind it.
Tensor gathered_in_front(const Tensor& rest, const std::vector<std::int64_t>& axes) {
  std::vector<std::int64_t> to;
  for (std::size_t i = 0; i < axes.size(); ++i)
    to.push_back(static_cast<std::int64_t>(i));
  return movedim(rest, axes, to).flatten(0, static_cast<std::int64_t>(axes.size()) - 1);
}

// Moves `count` axes from the front to `place`, or back.
Tensor moved(const Tensor& a, std::int64_t count, std::int64_t place, bool back) {
  std::vector<std::int64_t> front, there;
  for (std::int64_t i = 0; i < count; ++i) {
    front.push_back(i);
    there.push_back(place + i);
  }
  return back ? movedim(a, there, front) : movedim(a, front, there);
}

} // namespace

Tensor index(const Operand& a, std::span<const At> where) {
  Access::held(a, "index");
  const Selected s = select(a, where, "index");
  const Tensor y = take(gathered_in_front(s.rest, s.axes), s.place, 0);
  return moved(y, s.place.rank(), s.front, false);
}

Tensor index(const Operand& a, std::initializer_list<At> where) {
  return index(a, std::span(where.begin(), where.size()));
}

Tensor index_assign(const Operand& a, std::span<const At> where, const Operand& values,
                    bool accumulate) {
  constexpr const char* who = "index_assign";
  Access::held(a, who);
  Access::held(values, who);
  const Selected s = select(a, where, who);
  const Tensor line = gathered_in_front(s.rest, s.axes);
  Shape wanted = s.place.shape();
  wanted.insert(wanted.end(), line.shape().begin() + 1, line.shape().end());
  const Shape indexed = moved(zeros(wanted), s.place.rank(), s.front, false).shape();
  if (!broadcasts_to(values.shape(), indexed))
    fail(ErrorKind::Shape, "{}: values {} do not broadcast to {}, the shape of what is indexed",
         who, shape_of(values), to_string(indexed));
  const Tensor given = moved(detail::broadcast_to(values.to(a.dtype()), indexed, who),
                             s.place.rank(), s.front, true);
  const Tensor put_line =
      accumulate ? index_add(line, s.place, given, 0) : index_put(line, s.place, given, 0);
  // Back in the order of the axes, and into the slices.
  Shape split;
  std::vector<std::int64_t> front;
  for (std::size_t i = 0; i < s.axes.size(); ++i) {
    split.push_back(s.rest.shape()[static_cast<std::size_t>(s.axes[i])]);
    front.push_back(static_cast<std::int64_t>(i));
  }
  split.insert(split.end(), line.shape().begin() + 1, line.shape().end());
  return replaced(a, plain_entries(where), movedim(reshape(put_line, split), front, s.axes));
}

Tensor index_assign(const Operand& a, std::initializer_list<At> where, const Operand& values,
                    bool accumulate) {
  return index_assign(a, std::span(where.begin(), where.size()), values, accumulate);
}

Tensor masked_select(const Operand& a, const Operand& mask) {
  Access::held(a, "masked_select");
  Access::held(mask, "masked_select");
  fail(ErrorKind::Value,
       "masked_select: the number of elements would depend on data, and shapes are "
       "known before anything is computed; use where, masked_fill or a sum of "
       "where(mask, a, 0)");
}

Tensor bincount(const Operand& index, std::int64_t length, const Operand& weights) {
  Access::held(index, "bincount");
  require_integer(index, "bincount", "the indices");
  if (length < 0)
    fail(ErrorKind::Value, "bincount: a length of {}; it must not be negative", length);
  if (weights.defined() && weights.shape() != index.shape())
    fail(ErrorKind::Shape, "bincount: weights {} and indices {} differ", shape_of(weights),
         shape_of(index));
  const Tensor counted = weights.defined() ? Tensor(weights) : ones(index.shape(), DType::I64);
  const Tensor none = named(
      "bincount", [&] { return broadcast_to(constant(counted.dtype(), 0), {length}, "bincount"); });
  return index_add(none, index.flatten(), counted.flatten(), 0);
}

std::vector<Tensor> unravel_index(const Operand& index, const Shape& shape) {
  constexpr const char* who = "unravel_index";
  Access::held(index, who);
  require_integer(index, who, "the indices");
  const auto sizes = concrete(shape, who);
  std::vector<Tensor> coordinates(sizes.size());
  Tensor rest = index.to(DType::I64);
  for (std::size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] < 1)
      fail(ErrorKind::Shape, "{}: a shape of {}; its sizes must be positive", who,
           to_string(shape));
    coordinates[i] = rest % sizes[i];
    rest = floor_divide(rest, sizes[i]);
  }
  return coordinates;
}

Tensor isin(const Operand& a, const Operand& set) {
  Access::held(a, "isin");
  Access::held(set, "isin");
  return any(unsqueeze(a, -1) == set.flatten(), -1);
}

} // namespace egret

// Shape and dtype rules of every op, and the attributes that each uses (all others must be left at
// their defaults):
//
//   input                          dtype, shape, name, slot, by_value (rank 0 only)
//   const                          value
//   iota                           dtype (not bool), shape = [n]
//   cast, bitcast                  dtype
//   sum, amax, prod                axes: at least one, ascending
//   argmax                         axes: exactly one
//   cumsum, cummax, cumprod        axes: exactly one
//   gather, scatter_*              axes: exactly one, of data
//   reshape, expand                shape of the result
//   permute                        axes: an order of all dims
//   pad                            before, after: one for each dim; value: the fill, of the
//   operand's dtype shrink                         before: the begins, shape: the ends, one for
//   each dim flip                           axes: at least one, ascending all others none
#include "ir/shape_rules.h"

#include "support/fail.h"

#include <fmt/ranges.h>

#include <limits>

namespace egret::ir {
namespace {

using Operands = std::span<const Node* const>;
constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

std::string_view name(Op op) {
  return info_of(op).name;
}
std::string text(const std::vector<std::int64_t>& list) {
  return fmt::format("[{}]", fmt::join(list, ","));
}

void check_axes(Op op, const std::vector<std::int64_t>& axes, const Shape& shape) {
  auto rank = static_cast<std::int64_t>(shape.size());
  if (axes.empty())
    fail(ErrorKind::Axis, "{}: no axis is given for shape {}; at least one is needed", name(op),
         to_string(shape));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= rank)
      fail(ErrorKind::Axis, "{}: axis {} is out of range for shape {} of rank {}", name(op),
           axes[i], to_string(shape), rank);
    if (i > 0 && axes[i] <= axes[i - 1])
      fail(ErrorKind::Axis, "{}: axes {} must be ascending, each at most once", name(op),
           text(axes));
  }
}

void check_one_axis(Op op, const std::vector<std::int64_t>& axes, const Shape& shape) {
  check_axes(op, axes, shape);
  if (axes.size() != 1)
    fail(ErrorKind::Axis, "{}: axes {}: exactly one axis is taken", name(op), text(axes));
}

void check_dims(Op op, const Shape& shape) {
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i].node().lower < 0)
      fail(ErrorKind::Shape, "{}: dim {} of {} may be negative ({} >= {})", name(op), i,
           to_string(shape), shape[i].str(), shape[i].lower());
}

// Names that the text form can write and read, and no loop variables.
bool is_name(std::string_view name) {
  auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
  };
  if (name.empty() || !letter(name[0]) || name.back() == '.' || name == "min" || name == "max" ||
      name == "in" || name == "by")
    return false;
  for (std::size_t i = 1; i < name.size(); ++i)
    if (!letter(name[i]) && !(name[i] >= '0' && name[i] <= '9') &&
        !(name[i] == '.' && name[i + 1] != '.'))
      return false;
  return true;
}

void check_symbols(Op op, const Attrs& attrs) {
  for (const auto* list : {&attrs.shape, &attrs.before, &attrs.after})
    for (const Expr& e : *list) {
      if (e.node().kind == ExprKind::Constant)
        continue;
      for (const Expr& variable : variables_of(e))
        if (!variable.is_symbol() || !is_name(variable.node().name))
          fail(ErrorKind::Value,
               "{}: `{}` cannot be the name of a dim; letters, digits, _ and . can, other than "
               "min, max, in, by",
               name(op), variable.str());
    }
}

// Addresses and strides are 64-bit numbers: a box whose bytes cannot be counted in one is refused,
// also one with a dim of size 0, since its strides are products of the others.
void check_size(Op op, DType dtype, const Shape& shape) {
  if (shape.size() > kMaxRank)
    fail(ErrorKind::Shape, "{}: rank {} is above the limit of {}", name(op), shape.size(),
         kMaxRank);
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const Expr& dim : shape) {
    const std::int64_t most = dim.node().upper;
    if (most == kUnknown && !dim.is_constant())
      continue;
    if (most > 1 && __builtin_mul_overflow(bytes, most, &bytes))
      fail(ErrorKind::Shape, "{}: {}{} is too large: its bytes do not fit a 64-bit number",
           name(op), name_of(dtype), to_string(shape));
  }
}

void check_equal_dtypes(Op op, DType a, DType b) {
  if (a != b)
    fail(ErrorKind::DType,
         "{}: dtypes differ: {} and {}; operands of a graph node must have equal dtypes (cast "
         "them first)",
         name(op), name_of(a), name_of(b));
}

void check_equal_shapes(Op op, const Shape& a, const Shape& b) {
  if (a != b)
    fail(ErrorKind::Shape,
         "{}: shapes differ: {} and {}; operands of a graph node must have equal shapes "
         "(broadcast them first)",
         name(op), to_string(a), to_string(b));
}

void require(bool held, Op op, DType got, const char* what) {
  if (!held)
    fail(ErrorKind::DType, "{}: takes {}, got {} (cast it first)", name(op), what, name_of(got));
}

void check_index(Op op, const Node& index) {
  if (!is_integer(index.dtype))
    fail(ErrorKind::DType, "{}: the index must be of an integer dtype, got {}", name(op),
         name_of(index.dtype));
}

bool is_bool_sum(Op op, DType type) {
  return type == DType::Bool && (op == Op::ReduceSum || op == Op::ReduceProd || op == Op::ScanSum ||
                                 op == Op::ScanProd || op == Op::ScatterAdd);
}

DType infer_dtype(Op op, Operands in, const Attrs& attrs) {
  const OpInfo& row = info_of(op);
  if (row.dtypes == DTypeRule::Attribute)
    return op == Op::Constant ? attrs.value.dtype : attrs.dtype;
  DType first = in[0]->dtype;
  if (row.dtypes == DTypeRule::Gather) {
    check_index(op, *in[1]);
    return first;
  }
  if (row.dtypes == DTypeRule::Scatter) {
    check_index(op, *in[1]);
    check_equal_dtypes(op, first, in[2]->dtype);
    require(!is_bool_sum(op, first), op, first, "numbers");
    return first;
  }
  if (row.dtypes == DTypeRule::Select) {
    if (first != DType::Bool)
      fail(ErrorKind::DType, "select: the condition must be bool, got {}", name_of(first));
    check_equal_dtypes(op, in[1]->dtype, in[2]->dtype);
    return in[1]->dtype;
  }
  for (const Node* other : in.subspan(1))
    check_equal_dtypes(op, first, other->dtype);
  switch (row.dtypes) {
  case DTypeRule::Float:
    require(is_float(first), op, first, "floats");
    return first;
  case DTypeRule::Integer:
    require(is_integer(first), op, first, "integers");
    return first;
  case DTypeRule::Order:
    require(is_integer(first), op, first, "integers");
    return DType::I64;
  case DTypeRule::IntegerBool:
    require(!is_float(first), op, first, "integers or bool");
    return first;
  case DTypeRule::Number:
    require(first != DType::Bool, op, first, "numbers");
    return first;
  case DTypeRule::Index:
    require(first != DType::Bool, op, first, "numbers");
    return DType::I64;
  case DTypeRule::Compare:
    return DType::Bool;
  default:
    return first;
  }
}

Shape without(const Shape& shape, const std::vector<std::int64_t>& axes) {
  Shape left;
  left.reserve(shape.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (next < axes.size() && axes[next] == static_cast<std::int64_t>(i))
      ++next;
    else
      left.push_back(shape[i]);
  }
  return left;
}

Shape gathered(Op op, const Shape& data, const Shape& index, const Attrs& attrs) {
  check_one_axis(op, attrs.axes, data);
  auto axis = attrs.axes[0];
  Shape result(data.begin(), data.begin() + axis);
  result.insert(result.end(), index.begin(), index.end());
  result.insert(result.end(), data.begin() + axis + 1, data.end());
  return result;
}

Shape reshaped(const Shape& from, const Attrs& attrs) {
  check_dims(Op::Reshape, attrs.shape);
  check_size(Op::Reshape, DType::Bool, attrs.shape);
  const Expr have = element_count(from), want = element_count(attrs.shape);
  if (!(have == want) && !proves_equal(have, want))
    fail(ErrorKind::Shape, "reshape: {} to {}: the numbers of elements differ ({} != {})",
         to_string(from), to_string(attrs.shape), have.str(), want.str());
  return attrs.shape;
}

Shape permuted(const Shape& from, const Attrs& attrs) {
  std::vector<bool> seen(from.size());
  Shape result;
  result.reserve(from.size());
  bool fits = attrs.axes.size() == from.size();
  for (std::size_t i = 0; fits && i < from.size(); ++i) {
    std::int64_t axis = attrs.axes[i];
    fits = axis >= 0 && axis < static_cast<std::int64_t>(from.size()) &&
           !seen[static_cast<std::size_t>(axis)];
    if (fits) {
      seen[static_cast<std::size_t>(axis)] = true;
      result.push_back(from[static_cast<std::size_t>(axis)]);
    }
  }
  if (!fits)
    fail(ErrorKind::Axis, "permute: {} is no order of the {} dims of {}", text(attrs.axes),
         from.size(), to_string(from));
  return result;
}

Shape expanded(const Shape& from, const Attrs& attrs) {
  check_dims(Op::Expand, attrs.shape);
  if (from.size() != attrs.shape.size())
    fail(ErrorKind::Shape, "expand: {} to {}: the ranks differ ({} != {}); reshape first",
         to_string(from), to_string(attrs.shape), from.size(), attrs.shape.size());
  for (std::size_t i = 0; i < from.size(); ++i)
    if (!(from[i] == attrs.shape[i]) && !(from[i] == Expr(1)))
      fail(ErrorKind::Shape, "expand: {} to {}: dim {} is {} and can only stay (only 1 grows)",
           to_string(from), to_string(attrs.shape), i, from[i].str());
  return attrs.shape;
}

void check_count(Op op, const char* what, std::size_t got, const Shape& shape) {
  if (got != shape.size())
    fail(ErrorKind::Shape, "{}: {} {} for shape {}; one for each dim is needed", name(op), got,
         what, to_string(shape));
}

Shape padded(const Node& from, const Attrs& attrs) {
  check_count(Op::Pad, "amounts before", attrs.before.size(), from.shape);
  check_count(Op::Pad, "amounts after", attrs.after.size(), from.shape);
  if (attrs.value.dtype != from.dtype)
    fail(ErrorKind::DType, "pad: the fill is {} and the operand {}; they must be equal",
         name_of(attrs.value.dtype), name_of(from.dtype));
  Shape result;
  result.reserve(from.shape.size());
  for (std::size_t i = 0; i < from.shape.size(); ++i) {
    for (const Expr* amount : {&attrs.before[i], &attrs.after[i]})
      if (amount->node().lower < 0)
        fail(ErrorKind::Shape, "pad: the amount {} at dim {} of {} may be negative", amount->str(),
             i, to_string(from.shape));
    result.push_back(attrs.before[i] + from.shape[i] + attrs.after[i]);
  }
  return result;
}

Shape shrunk(const Shape& from, const Attrs& attrs) {
  check_count(Op::Shrink, "begins", attrs.before.size(), from);
  check_count(Op::Shrink, "ends", attrs.shape.size(), from);
  Shape result;
  result.reserve(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    const Expr &begin = attrs.before[i], &end = attrs.shape[i];
    if (begin.lower() < 0 || !proves_less_equal(begin, end) || !proves_less_equal(end, from[i]))
      fail(ErrorKind::Index, "shrink: {}..{} of dim {} of {} must lie in 0..{}", begin.str(),
           end.str(), i, to_string(from), from[i].str());
    result.push_back(end - begin);
  }
  return result;
}

Shape ordered(const Shape& from, const Attrs& attrs) {
  check_one_axis(Op::ArgSort, attrs.axes, from);
  check_dims(Op::ArgSort, attrs.shape);
  const auto axis = static_cast<std::size_t>(attrs.axes[0]);
  bool fits = attrs.shape.size() == from.size();
  for (std::size_t i = 0; fits && i < from.size(); ++i)
    fits = i == axis ? proves_less_equal(attrs.shape[i], from[i]) : attrs.shape[i] == from[i];
  if (!fits)
    fail(ErrorKind::Shape, "argsort: {} to {}: only axis {} may become shorter", to_string(from),
         to_string(attrs.shape), axis);
  return attrs.shape;
}

Shape infer_shape(Op op, Operands in, const Attrs& attrs) {
  switch (op) {
  case Op::Input:
    check_dims(op, attrs.shape);
    if (attrs.by_value && !attrs.shape.empty())
      fail(ErrorKind::Shape, "input: `{}` is passed by value and must have rank 0, not shape {}",
           attrs.name, to_string(attrs.shape));
    return attrs.shape;
  case Op::Constant:
    return {};
  case Op::Iota:
    if (attrs.shape.size() != 1)
      fail(ErrorKind::Shape, "iota: takes one size, got shape {}", to_string(attrs.shape));
    check_dims(op, attrs.shape);
    require(attrs.dtype != DType::Bool, op, attrs.dtype, "numbers");
    return attrs.shape;
  case Op::Bitcast:
    if (size_of(attrs.dtype) != size_of(in[0]->dtype))
      fail(ErrorKind::DType, "bitcast: {} has {} bytes and {} has {}; sizes must be equal",
           name_of(in[0]->dtype), size_of(in[0]->dtype), name_of(attrs.dtype),
           size_of(attrs.dtype));
    return in[0]->shape;
  case Op::Gather:
    return gathered(op, in[0]->shape, in[1]->shape, attrs);
  case Op::ScatterSet:
  case Op::ScatterAdd:
  case Op::ScatterMax: {
    Shape updates = gathered(op, in[0]->shape, in[1]->shape, attrs);
    if (updates != in[2]->shape)
      fail(ErrorKind::Shape,
           "{}: updates have shape {}; data {} and index {} along axis {} need {}", name(op),
           to_string(in[2]->shape), to_string(in[0]->shape), to_string(in[1]->shape), attrs.axes[0],
           to_string(updates));
    return in[0]->shape;
  }
  case Op::Reshape:
    return reshaped(in[0]->shape, attrs);
  case Op::Permute:
    return permuted(in[0]->shape, attrs);
  case Op::Expand:
    return expanded(in[0]->shape, attrs);
  case Op::Pad:
    return padded(*in[0], attrs);
  case Op::Shrink:
    return shrunk(in[0]->shape, attrs);
  case Op::Flip:
    check_axes(op, attrs.axes, in[0]->shape);
    return in[0]->shape;
  case Op::ArgSort:
    return ordered(in[0]->shape, attrs);
  case Op::ReduceArgMax:
    check_one_axis(op, attrs.axes, in[0]->shape);
    return without(in[0]->shape, attrs.axes);
  default:
    break;
  }
  if (info_of(op).cls == OpClass::Reduce) {
    check_axes(op, attrs.axes, in[0]->shape);
    return without(in[0]->shape, attrs.axes);
  }
  if (info_of(op).cls == OpClass::Scan)
    check_one_axis(op, attrs.axes, in[0]->shape);
  for (const Node* other : in.subspan(1))
    check_equal_shapes(op, in[0]->shape, other->shape);
  return in[0]->shape;
}

void check_unused(Op op, const Attrs& attrs) {
  static const Attrs kNone;
  unsigned used = attrs_of(op);
  auto refuse = [&](const char* field) {
    fail(ErrorKind::Value, "{}: has no attribute `{}`; leave it empty", name(op), field);
  };
  if (!(used & kAttrDType) && attrs.dtype != kNone.dtype)
    refuse("dtype");
  if (!(used & kAttrValue) && !(attrs.value == kNone.value))
    refuse("value");
  if (!(used & kAttrShape) && !attrs.shape.empty())
    refuse("shape");
  if (!(used & kAttrBefore) && !attrs.before.empty())
    refuse("before");
  if (!(used & kAttrAfter) && !attrs.after.empty())
    refuse("after");
  if (!(used & kAttrAxes) && !attrs.axes.empty())
    refuse("axes");
  if (!(used & kAttrInput) && (!attrs.name.empty() || attrs.slot != -1 || attrs.by_value))
    refuse("name, slot, by_value");
}

} // namespace

unsigned attrs_of(Op op) noexcept {
  switch (op) {
  case Op::Input:
    return kAttrDType | kAttrShape | kAttrInput;
  case Op::Constant:
    return kAttrValue;
  case Op::Iota:
    return kAttrDType | kAttrShape;
  case Op::Cast:
  case Op::Bitcast:
    return kAttrDType;
  case Op::Reshape:
  case Op::Expand:
    return kAttrShape;
  case Op::Pad:
    return kAttrBefore | kAttrAfter | kAttrValue;
  case Op::Shrink:
    return kAttrBefore | kAttrShape;
  case Op::Permute:
  case Op::Flip:
    return kAttrAxes;
  default:
    break;
  }
  switch (info_of(op).cls) {
  case OpClass::Reduce:
  case OpClass::Scan:
  case OpClass::Gather:
  case OpClass::Scatter:
    return kAttrAxes;
  case OpClass::Sort:
    return kAttrAxes | kAttrShape;
  default:
    return 0;
  }
}

Inferred infer(Op op, Operands operands, const Attrs& attrs) {
  check_unused(op, attrs);
  check_symbols(op, attrs);
  Inferred result{infer_dtype(op, operands, attrs), infer_shape(op, operands, attrs)};
  check_size(op, result.dtype, result.shape);
  return result;
}

} // namespace egret::ir

// Attributes as text: writing and reading.
#include "saturate/attributes.h"

#include "ir/cursor.h"
#include "support/fail.h"

#include <bit>
#include <fmt/ranges.h>

namespace egret::saturate {

namespace {

constexpr std::string_view kWhat = "term";

std::string list_text(const std::vector<Expr>& list) {
  return to_string(Shape(list));
}

std::string text_of_step(const Step& step) {
  const ir::Attrs& a = step.attrs;
  const std::string name(info_of(step.op).name);
  switch (step.op) {
  case Op::Pad:
    return name + list_text(a.before) + list_text(a.after) + " " + to_text(a.value);
  case Op::Shrink:
    return name + list_text(a.before) + list_text(a.shape);
  case Op::Reshape:
  case Op::Expand:
    return name + list_text(a.shape);
  default:
    return fmt::format("{}[{}]", name, fmt::join(a.axes, ","));
  }
}

} // namespace

std::string to_text(const Type& type) {
  return name_of(type.dtype) + to_string(type.shape);
}

std::string to_text(const Scalar& scalar) {
  std::string text = scalar.str();
  if (!(parse_scalar(scalar.dtype, text) == scalar)) // a NaN with a payload
    text = fmt::format("0x{:x}", scalar.bits);
  return fmt::format("{}:{}", name_of(scalar.dtype), text);
}

std::string to_text(const Steps& steps) {
  std::string text;
  for (const Step& step : steps)
    text += (text.empty() ? "" : "; ") + text_of_step(step);
  return text;
}

std::int64_t mask_of(std::span<const std::int64_t> axes) {
  std::int64_t mask = 0;
  for (std::int64_t axis : axes)
    mask |= std::int64_t{1} << axis;
  return mask;
}

std::vector<std::int64_t> axes_of(std::int64_t mask) {
  std::vector<std::int64_t> axes;
  for (auto bits = static_cast<std::uint64_t>(mask); bits != 0; bits &= bits - 1)
    axes.push_back(std::countr_zero(bits));
  return axes;
}

std::int64_t joined_axes(std::int64_t inner, std::int64_t outer) {
  std::int64_t joined = inner;
  for (std::int64_t axis = 0, left = 0; axis < 63; ++axis)
    if ((inner >> axis & 1) == 0 && (outer >> left++ & 1) != 0)
      joined |= std::int64_t{1} << axis;
  return joined;
}

std::int64_t without_axes(std::int64_t set, std::int64_t axes) {
  std::int64_t result = 0;
  for (std::int64_t axis = 0, left = 0; axis < 63; ++axis)
    if ((axes >> axis & 1) == 0)
      result |= (set >> axis & 1) << left++;
  return result;
}

void Attributes::declare_dim(const Expr& symbol) {
  dims_.insert_or_assign(symbol.str(), symbol);
}

Expr Attributes::expression(std::string_view text) const {
  return parse_expr(text, [&](std::string_view name) -> std::optional<Expr> {
    auto found = dims_.find(std::string(name));
    return found == dims_.end() ? std::nullopt : std::optional(found->second);
  });
}

namespace {

/// "[a,b]", each item read by `read`.
template <class T, class F>
std::vector<T> read_list(Cursor& cursor, F&& read) {
  std::vector<T> list;
  cursor.expect("[");
  if (cursor.accept("]"))
    return list;
  do {
    if (list.size() == ir::kMaxRank)
      cursor.fail_here("more than {} items", ir::kMaxRank);
    list.push_back(read());
  } while (cursor.accept(","));
  cursor.expect("]");
  return list;
}

/// A number with its dtype, as to_text writes it.
std::string number_text(Cursor& cursor) {
  std::string_view text = cursor.until_space();
  return std::string(text.ends_with(';') ? text.substr(0, text.size() - 1) : text);
}

} // namespace

const Type& Attributes::type(const std::string& text) {
  auto found = types_.find(text);
  if (found != types_.end())
    return found->second;
  Cursor cursor(text, kWhat);
  Type type;
  type.dtype = dtype_named(cursor.expect_word("a dtype"));
  type.shape = read_list<Expr>(cursor, [&] { return expression(cursor.list_item()); });
  if (!cursor.at_end())
    cursor.fail_here("`{}` goes on after the shape", text);
  return types_.emplace(text, std::move(type)).first->second;
}

Scalar Attributes::scalar(std::string_view text) const {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    fail(ErrorKind::Parse, "term: `{}` is no number with its dtype, such as f32:0.5", text);
  const DType dtype = dtype_named(text.substr(0, colon));
  std::string_view number = text.substr(colon + 1);
  if (!number.starts_with("0x"))
    return parse_scalar(dtype, number);
  std::uint64_t bits = 0;
  number.remove_prefix(2);
  auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits, 16);
  if (error != std::errc{} || end != number.data() + number.size())
    fail(ErrorKind::Parse, "term: `{}` is no number of 64 bits", text);
  return Scalar::from_bits(dtype, bits);
}

Steps Attributes::parse_moves(const std::string& text) const {
  Steps steps;
  Cursor cursor(text, kWhat);
  auto exprs = [&] {
    return read_list<Expr>(cursor, [&] { return expression(cursor.list_item()); });
  };
  while (!cursor.at_end()) {
    if (!steps.empty() && steps.back().op != Op::Pad) // whose number takes the ; with it
      cursor.expect(";");
    const std::string_view name = cursor.expect_word("a movement");
    const std::optional<Op> op = op_named(name);
    if (!op || !is_movement(*op))
      cursor.fail_here("`{}` is no movement", name);
    Step step{*op, {}};
    switch (*op) {
    case Op::Pad:
      step.attrs.before = exprs();
      step.attrs.after = exprs();
      step.attrs.value = scalar(number_text(cursor));
      break;
    case Op::Shrink:
      step.attrs.before = exprs();
      step.attrs.shape = exprs();
      break;
    case Op::Reshape:
    case Op::Expand:
      step.attrs.shape = exprs();
      break;
    default:
      step.attrs.axes = read_list<std::int64_t>(cursor, [&] { return cursor.integer("an axis"); });
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

const Moved& Attributes::moved(const std::string& type_text, const std::string& moves) {
  std::string key = type_text + "|" + moves;
  auto found = moved_.find(key);
  if (found != moved_.end())
    return found->second;
  const Type source = type(type_text);
  Moved moved;
  moved.steps = parse_moves(moves);
  ir::Graph graph;
  ir::NodeId node = graph.input("x", source.dtype, source.shape);
  moved.map = IndexMap::identity(source.shape);
  bool retyped = false;
  for (Step& step : moved.steps) {
    // A rule moves values of another type alike only where no element reads what pads are filled
    // with, as in windows, which pad and cut off again.
    if (step.op == Op::Pad && step.attrs.value.dtype != source.dtype) {
      step.attrs.value = Scalar::of(source.dtype, std::int64_t{0});
      retyped = true;
    }
    const ir::NodeId next = graph.add(step.op, {&node, 1}, step.attrs);
    moved.map = compose(ir::view_of(graph, next), moved.map);
    node = next;
  }
  ensure(!retyped || moved.map.is_total(), "saturate: {} fills {} with values of another type",
         moves, type_text);
  moved.shape = graph[node].shape;
  return moved_.emplace(std::move(key), std::move(moved)).first->second;
}

std::string Attributes::result_type(Op op, const ir::Attrs& attrs,
                                    std::span<const std::string> operands) {
  std::string key(info_of(op).name);
  key += fmt::format("|{}|{}", name_of(attrs.dtype), mask_of(attrs.axes));
  for (const std::string& operand : operands)
    key += "|" + operand;
  auto found = results_.find(key);
  if (found != results_.end())
    return found->second;
  ir::Graph graph;
  std::vector<ir::NodeId> inputs;
  for (const std::string& operand : operands) {
    const Type& t = type(operand);
    inputs.push_back(graph.input("x", t.dtype, t.shape));
  }
  const ir::NodeId node = graph.add(op, inputs, attrs);
  std::string result = to_text(Type{graph[node].dtype, graph[node].shape});
  results_.emplace(std::move(key), result);
  return result;
}

} // namespace egret::saturate

#include "saturate/primitives.h"

#include "ir/structure.h"
#include "support/fail.h"

#include <cmath>
#include <type_traits>

namespace egret::saturate {

using egraph::PrimitiveCall;
using egraph::Value;

namespace {

using Text = std::string;
using Int = std::int64_t;
struct Unit {};

template <class T>
constexpr const char* sort_of() {
  if constexpr (std::is_same_v<T, Text>)
    return "String";
  else if constexpr (std::is_same_v<T, Int>)
    return "i64";
  else
    return "Unit";
}

template <class T>
T from(const PrimitiveCall& call, Value v) {
  if constexpr (std::is_same_v<T, Text>)
    return call.to_string(v);
  else
    return call.to_i64(v);
}

Value to(PrimitiveCall& call, const Text& x) {
  return call.from_string(x);
}
Value to(PrimitiveCall& call, Int x) {
  return call.from_i64(x);
}
Value to(PrimitiveCall&, Unit) {
  return 0;
}

/// Declares one primitive from a function of the attributes and plain values. What is no attribute
/// at all, or does not fit, has no result.
class Declarer {
public:
  Declarer(egraph::EGraph& egraph, std::shared_ptr<Attributes> attributes)
      : egraph_(egraph), attributes_(std::move(attributes)) {}

  template <class R, class... Args>
  void operator()(const char* name, std::optional<R> (*function)(Attributes&, Args...)) {
    egraph_.declare_primitive(
        name, {egraph_.sort(sort_of<std::remove_cvref_t<Args>>())...}, egraph_.sort(sort_of<R>()),
        [function, attributes = attributes_](PrimitiveCall& call,
                                             std::span<const Value> args) -> std::optional<Value> {
          try {
            return [&]<std::size_t... I>(std::index_sequence<I...>)->std::optional<Value> {
              std::optional<R> result =
                  function(*attributes, from<std::remove_cvref_t<Args>>(call, args[I])...);
              return result ? std::optional(to(call, *result)) : std::nullopt;
            }
            (std::index_sequence_for<Args...>{});
          } catch (const Error&) {
            return std::nullopt;
          }
        });
  }

private:
  egraph::EGraph& egraph_;
  std::shared_ptr<Attributes> attributes_;
};

std::optional<Unit> holds(bool condition) {
  return condition ? std::optional(Unit{}) : std::nullopt;
}

Op op_of(const Text& name) {
  auto op = op_named(name);
  if (!op)
    fail(ErrorKind::Value, "there is no operation {}", name);
  return *op;
}

/// The result of an elementwise op on numbers, of the dtype of `type`.
std::optional<Text> applied(Attributes& a, const Text& op, const Text& type,
                            std::initializer_list<const Text*> operands) {
  std::vector<Scalar> numbers;
  for (const Text* text : operands)
    numbers.push_back(a.scalar(*text));
  return to_text(apply(op_of(op), a.type(type).dtype, numbers));
}

DType dtype_at_front(const Text& text) {
  return dtype_named(std::string_view(text).substr(0, text.find_first_of("[:")));
}

void declare_types(Declarer& declare) {
  declare(
      "is-float", +[](Attributes&, const Text& t) { return holds(is_float(dtype_at_front(t))); });
  declare(
      "is-integer",
      +[](Attributes&, const Text& t) { return holds(is_integer(dtype_at_front(t))); });
  declare(
      "is-bool",
      +[](Attributes&, const Text& t) { return holds(dtype_at_front(t) == DType::Bool); });
  declare(
      "dtype-of",
      +[](Attributes&, const Text& t) { return std::optional<Text>(name_of(dtype_at_front(t))); });
  declare(
      "with-dtype", +[](Attributes& a, const Text& t, const Text& d) {
        return std::optional(to_text(Type{dtype_at_front(d), a.type(t).shape}));
      });
  declare(
      "passes-through", +[](Attributes&, const Text& from, const Text& between, const Text& to) {
        return holds(ir::cast_passes_through(dtype_at_front(from), dtype_at_front(between),
                                             dtype_at_front(to)));
      });
  declare(
      "is-number",
      +[](Attributes&, const Text& t) { return holds(dtype_at_front(t) != DType::Bool); });
  declare(
      "dims-dep", +[](Attributes& a, const Text& t) {
        const Shape& shape = a.type(t).shape;
        Int dep = 0;
        for (std::size_t i = 0; i < shape.size(); ++i)
          if (!(shape[i] == Expr(1)))
            dep |= Int{1} << i;
        return std::optional(dep);
      });
  declare(
      "type-of-reduce", +[](Attributes& a, const Text& op, Int axes, const Text& t) {
        return std::optional(a.result_type(op_of(op), {.axes = axes_of(axes)}, {&t, 1}));
      });
  declare(
      "type-of-gather", +[](Attributes& a, Int axis, const Text& t, const Text& index) {
        const Text operands[] = {t, index};
        return std::optional(a.result_type(Op::Gather, {.axes = {axis}}, operands));
      });
}

void declare_numbers(Declarer& declare) {
  declare(
      "is", +[](Attributes& a, const Text& v, const Text& number) {
        const Scalar s = a.scalar(v);
        return holds(s == parse_scalar(s.dtype, number));
      });
  declare(
      "is-positive", +[](Attributes& a, const Text& v) {
        const double x = a.scalar(v).as_double();
        return holds(x > 0 && std::isfinite(x));
      });
  declare(
      "is-finite",
      +[](Attributes& a, const Text& v) { return holds(std::isfinite(a.scalar(v).as_double())); });
  declare(
      "is-zero", +[](Attributes& a, const Text& v) { return holds(a.scalar(v).as_double() == 0); });
  declare(
      "is-unit",
      +[](Attributes& a, const Text& v) { return holds(std::fabs(a.scalar(v).as_double()) == 1); });
  declare(
      "is-lowest", +[](Attributes& a, const Text& v) {
        const Scalar s = a.scalar(v);
        return holds(s == identity_of(Monoid::Max, s.dtype));
      });
  declare(
      "all-ones", +[](Attributes& a, const Text& v) {
        const Scalar s = a.scalar(v);
        return holds(s == Scalar::from_bits(s.dtype, s.dtype == DType::Bool ? 1 : ~0ull));
      });
  declare(
      "number", +[](Attributes&, const Text& t, const Text& number) {
        return std::optional(to_text(parse_scalar(dtype_at_front(t), number)));
      });
  declare(
      "number-of-bits", +[](Attributes&, const Text& t, Int bits) {
        return std::optional(
            to_text(Scalar::from_bits(dtype_at_front(t), static_cast<std::uint64_t>(bits))));
      });
  declare(
      "apply", +[](Attributes& a, const Text& op, const Text& t, const Text& v) {
        return applied(a, op, t, {&v});
      });
  declare(
      "apply", +[](Attributes& a, const Text& op, const Text& t, const Text& v, const Text& w) {
        return applied(a, op, t, {&v, &w});
      });
  declare(
      "apply", +[](Attributes& a, const Text& op, const Text& t, const Text& u, const Text& v,
                   const Text& w) {
        return applied(a, op, t, {&u, &v, &w});
      });
  declare(
      "count-along", +[](Attributes& a, const Text& t, Int axes) -> std::optional<Text> {
        const Type& type = a.type(t);
        Expr count = 1;
        for (Int axis : axes_of(axes))
          count = count * type.shape.at(static_cast<std::size_t>(axis));
        if (!count.is_constant())
          return std::nullopt;
        return to_text(Scalar::of(type.dtype, count.value()));
      });
}

void declare_views(Declarer& declare) {
  declare(
      "type-of-view", +[](Attributes& a, const Text& t, const Text& m) {
        return std::optional(a.type_of_moved(t, m));
      });
  declare(
      "view-then", +[](Attributes& a, const Text& t, const Text& first, const Text& second) {
        return std::optional(a.joined_moves(t, first, second));
      });
  declare(
      "view-dep", +[](Attributes& a, const Text& t, const Text& m, Int dep) {
        return std::optional(a.dep_of_moved(t, m, dep));
      });
  declare(
      "view-value", +[](Attributes& a, const Text& t, const Text& m, const Text& v) {
        return a.value_of_moved(t, m, v);
      });
  declare(
      "is-total",
      +[](Attributes& a, const Text& t, const Text& m) { return holds(a.is_total(t, m)); });
  declare(
      "keeps-size",
      +[](Attributes& a, const Text& t, const Text& m) { return holds(a.keeps_size(t, m)); });
  declare(
      "grows", +[](Attributes& a, const Text& t, const Text& m) { return holds(a.grows(t, m)); });
  declare(
      "has-elements",
      +[](Attributes& a, const Text& t, Int axes) { return holds(a.has_elements(t, axes)); });
  declare(
      "first-along",
      +[](Attributes& a, const Text& t, Int axes) { return a.first_along(t, axes); });
  declare(
      "spread-along",
      +[](Attributes& a, const Text& t, Int axes) { return a.spread_along(t, axes); });
  declare(
      "repeated-dims", +[](Attributes& a, const Text& t, Int dep) -> std::optional<Int> {
        const Shape& shape = a.type(t).shape;
        Int repeated = 0;
        for (std::size_t i = 0; i < shape.size(); ++i)
          if ((dep >> i & 1) == 0 && !(shape[i] == Expr(1)) && shape[i].lower() >= 1)
            repeated |= Int{1} << i;
        return repeated != 0 ? std::optional(repeated) : std::nullopt;
      });
  declare(
      "source-axes", +[](Attributes& a, const Text& t, const Text& m, Int axes) {
        auto found = a.reduced_source(t, m, axes);
        return found ? std::optional(found->first) : std::nullopt;
      });
  declare(
      "source-view", +[](Attributes& a, const Text& t, const Text& m, Int axes) {
        auto found = a.reduced_source(t, m, axes);
        return found ? std::optional(found->second) : std::nullopt;
      });
  declare(
      "lift-along", +[](Attributes& a, const Text& t, const Text& m, Int k, Int l) {
        auto lift = a.lift(t, m, k, l);
        return lift ? std::optional(lift->along) : std::nullopt;
      });
  declare(
      "lift-summed", +[](Attributes& a, const Text& t, const Text& m, Int k, Int l) {
        auto lift = a.lift(t, m, k, l);
        return lift ? std::optional(lift->summed) : std::nullopt;
      });
  declare(
      "lift",
      +[](Attributes& a, const Text& which, const Text& t, const Text& m, Int k,
          Int l) -> std::optional<Text> {
        auto lift = a.lift(t, m, k, l);
        if (!lift)
          return std::nullopt;
        return which == "inner"   ? lift->inner
               : which == "outer" ? lift->outer
               : which == "first" ? lift->first
                                  : lift->rest;
      });
  declare(
      "axes-join",
      +[](Attributes&, Int inner, Int outer) { return std::optional(joined_axes(inner, outer)); });
  declare(
      "axes-without",
      +[](Attributes&, Int set, Int axes) { return std::optional(without_axes(set, axes)); });
  // A program on its own says the sizes of its dims with it: (let $N (declare-dim "N" 1 9 1)).
  declare(
      "declare-dim", +[](Attributes& a, const Text& name, Int low, Int high, Int divisor) {
        a.declare_dim(Expr::symbol(name, low, high, divisor));
        return std::optional(name);
      });
}

} // namespace

void declare_primitives(egraph::EGraph& egraph, std::shared_ptr<Attributes> attributes) {
  Declarer declare(egraph, std::move(attributes));
  declare_types(declare);
  declare_numbers(declare);
  declare_views(declare);
}

} // namespace egret::saturate

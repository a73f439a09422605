#include "compiler/scatter_coordinates.h"

#include "kernel/analysis.h"

#include "egret/error.h"

#include <algorithm>

namespace egret::compiler {

namespace {

using kernel::BodyValue;

/// base + coefficient * value, of integers; no value: the base alone.
struct Affine {
  Expr base = Expr(0), coefficient = Expr(0);
  int value = -1;
};

class Finder {
public:
  explicit Finder(kernel::Stage& stage) : s_(stage) {}

  std::optional<ScatterCoordinate> run(int index, const Expr& extent) {
    const BodyValue* select = applied(index, Op::Select);
    if (select == nullptr)
      return std::nullopt;
    if (kernel::place_test(s_, *select))
      return chosen(*select, extent);
    const Affine otherwise = affine(select->args[2]);
    if (otherwise.value >= 0 || !proves_less(otherwise.base, Expr(0)))
      return std::nullopt;
    const auto tested = range_of(select->args[0]);
    if (!tested)
      return std::nullopt;
    const Affine found = affine(select->args[1], tested->value);
    if (found.value != tested->value || !proves_less(Expr(0), found.coefficient) ||
        !proves_less_equal(Expr(0), found.base) ||
        !proves_less_equal(found.base + found.coefficient * (tested->count - Expr(1)) + Expr(1),
                           extent))
      return std::nullopt;
    return ScatterCoordinate{found.base, found.coefficient, found.value, tested->count};
  }

private:
  const BodyValue& at(int value) const { return s_.body[std::size_t(value)]; }

  const BodyValue* applied(int value, Op op) const {
    const BodyValue& v = at(value);
    return v.kind == BodyValue::Kind::Apply && v.op == op ? &v : nullptr;
  }

  static bool is_index_type(DType type) { return type == DType::I64 || type == DType::I32; }

  /// Sums and products of 32 bits might overflow: those of 64 bits are taken apart alone, and
  /// `whole` is not.
  Affine affine(int value, int whole = -1) const {
    const BodyValue& v = at(value);
    const Affine itself{Expr(0), Expr(1), value};
    if (value == whole)
      return itself;
    if (v.kind == BodyValue::Kind::Index && is_index_type(v.dtype))
      return {v.index, Expr(0), -1};
    if (v.kind == BodyValue::Kind::Constant && is_index_type(v.dtype))
      return {Expr(v.constant.as_int()), Expr(0), -1};
    if (v.kind != BodyValue::Kind::Apply || v.dtype != DType::I64)
      return itself;
    if (v.op == Op::Cast && at(v.args[0]).kind == BodyValue::Kind::Index)
      return affine(v.args[0]);
    if (v.op != Op::Add && v.op != Op::Mul)
      return itself;
    const Affine a = affine(v.args[0], whole), b = affine(v.args[1], whole);
    if (v.op == Op::Add) {
      if (a.value >= 0 && b.value >= 0 && a.value != b.value)
        return itself;
      return {a.base + b.base, a.coefficient + b.coefficient, std::max(a.value, b.value)};
    }
    if (a.value >= 0 && b.value >= 0)
      return itself;
    const Affine& factor = a.value < 0 ? a : b;
    const Affine& rest = a.value < 0 ? b : a;
    return {rest.base * factor.base, rest.coefficient * factor.base, rest.value};
  }

  struct Range { ///< 0 <= value < count
    int value;
    Expr count;
  };
  /// Of a condition 0 <= x and x < n.
  std::optional<Range> range_of(int condition) const {
    const BodyValue* both = applied(condition, Op::And);
    if (both == nullptr)
      return std::nullopt;
    for (const int first : {0, 1}) {
      const int above = both->args[std::size_t(first)], below = both->args[std::size_t(1 - first)];
      const BodyValue* less = applied(below, Op::Lt);
      if (less == nullptr || !is_not_negative(above, less->args[0]))
        continue;
      if (auto count = limit(below, less->args[0]))
        return Range{less->args[0], std::move(*count)};
    }
    return std::nullopt;
  }

  /// n of x < n, a number or a size.
  std::optional<Expr> limit(int condition, int x) const {
    const BodyValue* less = applied(condition, Op::Lt);
    if (less == nullptr || less->args[0] != x)
      return std::nullopt;
    const Affine n = affine(less->args[1]);
    if (n.value >= 0)
      return std::nullopt;
    for (const Expr& v : variables_of(n.base))
      if (v.is_axis())
        return std::nullopt;
    return n.base;
  }

  /// Whether it is not(x < 0).
  bool is_not_negative(int condition, int x) const {
    const BodyValue* no = applied(condition, Op::Xor);
    if (no == nullptr)
      return false;
    for (const int first : {0, 1}) {
      const BodyValue& truth = at(no->args[std::size_t(1 - first)]);
      const auto below = limit(no->args[std::size_t(first)], x);
      if (truth.kind == BodyValue::Kind::Constant && truth.constant.as_int() == 1 && below &&
          *below == Expr(0))
        return true;
    }
    return false;
  }

  /// A choice between two coordinates of one line.
  std::optional<ScatterCoordinate> chosen(BodyValue select, const Expr& extent) {
    auto first = run(select.args[1], extent);
    const auto second = run(select.args[2], extent);
    if (!first || !second || !(first->base == second->base) ||
        !(first->coefficient == second->coefficient) || !(first->count == second->count) ||
        at(first->component).dtype != at(second->component).dtype)
      return std::nullopt;
    select.dtype = at(first->component).dtype;
    select.args = {select.args[0], first->component, second->component};
    s_.body.push_back(std::move(select));
    first->component = static_cast<int>(s_.body.size()) - 1;
    return first;
  }

  kernel::Stage& s_;
};

} // namespace

std::optional<ScatterCoordinate> scatter_coordinate(kernel::Stage& stage, int index,
                                                    const Expr& extent) {
  try {
    return Finder(stage).run(index, extent);
  } catch (const Error&) { // numbers beyond 64 bits: no coordinate that expressions can hold
    return std::nullopt;
  }
}

} // namespace egret::compiler

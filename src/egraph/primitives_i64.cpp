// bool and i64. Arithmetic that overflows, division by zero and shifts out of range fail instead of
// wrapping.
#include "egraph/primitives.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace egret::egraph {
namespace {
using Int = std::int64_t;
using MaybeInt = std::optional<Int>;

} // namespace

void add_i64_primitives(Signature& s) {
  define(
      s, "+", +[](Int a, Int b) -> MaybeInt {
        Int out;
        return __builtin_add_overflow(a, b, &out) ? std::nullopt : MaybeInt(out);
      });
  define(
      s, "-", +[](Int a, Int b) -> MaybeInt {
        Int out;
        return __builtin_sub_overflow(a, b, &out) ? std::nullopt : MaybeInt(out);
      });
  define(
      s, "*", +[](Int a, Int b) -> MaybeInt {
        Int out;
        return __builtin_mul_overflow(a, b, &out) ? std::nullopt : MaybeInt(out);
      });
  auto divides =
      +[](Int a, Int b) { return b != 0 && !(b == -1 && a == std::numeric_limits<Int>::min()); };
  static const auto can_divide = divides;
  define(
      s, "/",
      +[](Int a, Int b) -> MaybeInt { return can_divide(a, b) ? MaybeInt(a / b) : std::nullopt; });
  define(
      s, "%",
      +[](Int a, Int b) -> MaybeInt { return can_divide(a, b) ? MaybeInt(a % b) : std::nullopt; });
  define(
      s, "&", +[](Int a, Int b) { return a & b; });
  define(
      s, "|", +[](Int a, Int b) { return a | b; });
  define(
      s, "^", +[](Int a, Int b) { return a ^ b; });
  define(
      s, "<<", +[](Int a, Int b) -> MaybeInt {
        return b >= 0 && b < 64 ? MaybeInt(static_cast<Int>(static_cast<std::uint64_t>(a) << b))
                                : std::nullopt;
      });
  define(
      s, ">>",
      +[](Int a, Int b) -> MaybeInt { return b >= 0 && b < 64 ? MaybeInt(a >> b) : std::nullopt; });
  define(
      s, "not-i64", +[](Int a) { return ~a; });
  define(
      s, "neg", +[](Int a) -> MaybeInt {
        return a == std::numeric_limits<Int>::min() ? std::nullopt : MaybeInt(-a);
      });
  define(
      s, "abs", +[](Int a) -> MaybeInt {
        return a == std::numeric_limits<Int>::min() ? std::nullopt : MaybeInt(a < 0 ? -a : a);
      });
  define(
      s, "log2", +[](Int a) -> MaybeInt {
        return a > 0 ? MaybeInt(std::bit_width(static_cast<std::uint64_t>(a)) - 1) : std::nullopt;
      });
  define(
      s, "min", +[](Int a, Int b) { return std::min(a, b); });
  define(
      s, "max", +[](Int a, Int b) { return std::max(a, b); });
  define(
      s, "<", +[](Int a, Int b) { return when(a < b); });
  define(
      s, ">", +[](Int a, Int b) { return when(a > b); });
  define(
      s, "<=", +[](Int a, Int b) { return when(a <= b); });
  define(
      s, ">=", +[](Int a, Int b) { return when(a >= b); });
  define(
      s, "bool-=", +[](Int a, Int b) { return a == b; });
  define(
      s, "bool-<", +[](Int a, Int b) { return a < b; });
  define(
      s, "bool->", +[](Int a, Int b) { return a > b; });
  define(
      s, "bool-<=", +[](Int a, Int b) { return a <= b; });
  define(
      s, "bool->=", +[](Int a, Int b) { return a >= b; });
  define(
      s, "to-f64", +[](Int a) { return static_cast<double>(a); });

  define(
      s, "not", +[](bool a) { return !a; });
  define(
      s, "and", +[](bool a, bool b) { return a && b; });
  Primitive any_of;
  any_of.name = "or";
  any_of.params = {sorts::kBool};
  any_of.rest = {sorts::kBool};
  any_of.result = sorts::kBool;
  any_of.concurrent = true;
  any_of.body = [](PrimContext&, const Value* args, std::size_t count, Value& out) {
    out = std::any_of(args, args + count, [](Value v) { return v != 0; });
    return true;
  };
  s.add_primitive(std::move(any_of));
  define(
      s, "xor", +[](bool a, bool b) { return a != b; });
  define(
      s, "=>", +[](bool a, bool b) { return !a || b; });
  define(
      s, "guard", +[](bool a) { return when(a); });
  define(
      s, "filter", +[](bool a) { return when(a); });
}

void add_builtin_primitives(Signature& s) {
  Primitive different;
  different.name = "!=";
  different.params = {sorts::kUnit, sorts::kUnit};
  different.any = true;
  different.concurrent = true;
  different.result = sorts::kUnit;
  different.body = [](PrimContext&, const Value* args, std::size_t, Value& out) {
    out = 0;
    return args[0] != args[1];
  };
  s.add_primitive(different);
  Primitive same = different;
  same.name = "value-eq";
  same.body = [](PrimContext&, const Value* args, std::size_t, Value& out) {
    out = 0;
    return args[0] == args[1];
  };
  s.add_primitive(same);
  Primitive equal = different;
  equal.name = "bool-eq";
  equal.result = sorts::kBool;
  equal.body = [](PrimContext&, const Value* args, std::size_t, Value& out) {
    out = args[0] == args[1];
    return true;
  };
  s.add_primitive(equal);
  Primitive unequal = equal;
  unequal.name = "bool-!=";
  unequal.body = [](PrimContext&, const Value* args, std::size_t, Value& out) {
    out = args[0] != args[1];
    return true;
  };
  s.add_primitive(unequal);
  // Any fixed order on values, so that a merge can choose deterministically.
  Primitive least = different;
  least.name = "ordering-min";
  least.result_is_arg = true;
  least.body = [](PrimContext&, const Value* args, std::size_t, Value& out) {
    out = std::min(args[0], args[1]);
    return true;
  };
  s.add_primitive(least);
  Primitive greatest = least;
  greatest.name = "ordering-max";
  greatest.body = [](PrimContext&, const Value* args, std::size_t, Value& out) {
    out = std::max(args[0], args[1]);
    return true;
  };
  s.add_primitive(greatest);
  add_i64_primitives(s);
  add_f64_primitives(s);
  add_text_primitives(s);
  add_big_primitives(s);
}

} // namespace egret::egraph

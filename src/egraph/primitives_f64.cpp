// f64, as IEEE 754 has it, except that NaN equals itself as a value.
#include "egraph/primitives.h"

#include <cmath>
#include <limits>

namespace egret::egraph {
namespace {
using Maybe = std::optional<double>;
} // namespace

void add_f64_primitives(Signature& s) {
  define(
      s, "neg", +[](double a) { return -a; });
  define(
      s, "+", +[](double a, double b) { return a + b; });
  define(
      s, "-", +[](double a, double b) { return a - b; });
  define(
      s, "*", +[](double a, double b) { return a * b; });
  define(
      s, "/", +[](double a, double b) { return b != 0 ? Maybe(a / b) : std::nullopt; });
  define(
      s, "%", +[](double a, double b) { return b != 0 ? Maybe(std::fmod(a, b)) : std::nullopt; });
  define(
      s, "^", +[](double a, double b) { return std::pow(a, b); });
  define(
      s, "pow", +[](double a, double b) { return std::pow(a, b); });
  define(
      s, "sqrt", +[](double a) { return a >= 0 ? Maybe(std::sqrt(a)) : std::nullopt; });
  define(
      s, "exp", +[](double a) { return std::exp(a); });
  define(
      s, "log", +[](double a) { return a > 0 ? Maybe(std::log(a)) : std::nullopt; });
  define(
      s, "abs", +[](double a) { return std::abs(a); });
  define(
      s, "min", +[](double a, double b) { return b < a || std::isnan(a) ? b : a; });
  define(
      s, "max", +[](double a, double b) { return b > a || std::isnan(a) ? b : a; });
  define(
      s, "<", +[](double a, double b) { return when(a < b); });
  define(
      s, ">", +[](double a, double b) { return when(a > b); });
  define(
      s, "<=", +[](double a, double b) { return when(a <= b); });
  define(
      s, ">=", +[](double a, double b) { return when(a >= b); });
  define(
      s, "bool-=", +[](double a, double b) { return a == b; });
  define(
      s, "bool-<", +[](double a, double b) { return a < b; });
  define(
      s, "bool->", +[](double a, double b) { return a > b; });
  define(
      s, "bool-<=", +[](double a, double b) { return a <= b; });
  define(
      s, "bool->=", +[](double a, double b) { return a >= b; });
  define(
      s, "to-i64", +[](double a) { // towards zero; the nearest number where there is no such
        constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
        if (std::isnan(a))
          return std::int64_t{0};
        if (a >= 9223372036854775808.0)
          return ~kLeast;
        return a <= -9223372036854775808.0 ? kLeast : static_cast<std::int64_t>(a);
      });
}

} // namespace egret::egraph

// Built-in primitives, and a short way to declare one from a C++ function.
#pragma once

#include "egraph/signature.h"

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace egret::egraph {

/// The unit value.
struct Unit {};

/// How a C++ type stands for a sort.
template <class T>
struct Codec;
template <>
struct Codec<Unit> {
  static constexpr SortId kSort = sorts::kUnit;
  static Unit from(const Pools&, Value) { return {}; }
  static Value to(Pools&, Unit) { return 0; }
};
template <>
struct Codec<bool> {
  static constexpr SortId kSort = sorts::kBool;
  static bool from(const Pools&, Value v) { return v != 0; }
  static Value to(Pools&, bool x) { return x; }
};
template <>
struct Codec<std::int64_t> {
  static constexpr SortId kSort = sorts::kI64;
  static std::int64_t from(const Pools& pools, Value v) { return pools.to_i64(v); }
  static Value to(Pools& pools, std::int64_t x) { return pools.from_i64(x); }
};
template <>
struct Codec<double> {
  static constexpr SortId kSort = sorts::kF64;
  static double from(const Pools& pools, Value v) { return pools.to_f64(v); }
  static Value to(Pools& pools, double x) { return pools.from_f64(x); }
};
template <>
struct Codec<std::string> {
  static constexpr SortId kSort = sorts::kString;
  static const std::string& from(const Pools& pools, Value v) { return pools.to_string(v); }
  static Value to(Pools& pools, const std::string& x) { return pools.from_string(x); }
};
template <>
struct Codec<BigInt> {
  static constexpr SortId kSort = sorts::kBigInt;
  static const BigInt& from(const Pools& pools, Value v) { return pools.to_big(v); }
  static Value to(Pools& pools, const BigInt& x) { return pools.from_big(x); }
};
template <>
struct Codec<BigRat> {
  static constexpr SortId kSort = sorts::kBigRat;
  static const BigRat& from(const Pools& pools, Value v) { return pools.to_rat(v); }
  static Value to(Pools& pools, const BigRat& x) { return pools.from_rat(x); }
};

/// A primitive whose result is larger fails, so that a program that doubles a value again and again
/// ends in a message and not in all memory. Numbers also bound the time of the next operation.
inline constexpr std::size_t kMostText = std::size_t{1} << 24;     ///< bytes of a string
inline constexpr std::size_t kMostElements = std::size_t{1} << 24; ///< words of a container
template <class T>
bool fits(const T& result) {
  if constexpr (std::is_same_v<T, std::string>)
    return result.size() <= kMostText;
  else if constexpr (std::is_same_v<T, BigInt>)
    return result.bits() <= BigInt::kMostBits;
  else if constexpr (std::is_same_v<T, BigRat>)
    return fits(result.numerator()) && fits(result.denominator());
  else
    return true;
}

/// The result of a primitive that holds or fails.
using Holds = std::optional<Unit>;
inline Holds when(bool condition) {
  return condition ? Holds(Unit{}) : std::nullopt;
}

/// Declares the primitive `name` from a function of plain C++ types; an empty optional, or a
/// result that does not fit, means that it fails.
template <class R, class... Args>
void define(Signature& signature, const std::string& name, R (*function)(Args...)) {
  Primitive primitive;
  primitive.name = name;
  primitive.params = {Codec<std::remove_cvref_t<Args>>::kSort...};
  if constexpr (requires(R r) { r.has_value(); })
    primitive.result = Codec<typename R::value_type>::kSort;
  else
    primitive.result = Codec<R>::kSort;
  primitive.concurrent =
      primitive.result == Codec<Unit>::kSort || primitive.result == Codec<bool>::kSort;
  primitive.body = [function](PrimContext& context, const Value* args, std::size_t, Value& out) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      R result = function(Codec<std::remove_cvref_t<Args>>::from(context.pools, args[I])...);
      if constexpr (requires(R r) { r.has_value(); }) {
        if (!result || !fits(*result))
          return false;
        out = Codec<typename R::value_type>::to(context.pools, *result);
      } else {
        if (!fits(result))
          return false;
        out = Codec<R>::to(context.pools, result);
      }
      return true;
    }
    (std::index_sequence_for<Args...>{});
  };
  signature.add_primitive(std::move(primitive));
}

void add_builtin_primitives(Signature& signature);
void add_i64_primitives(Signature& signature);
void add_f64_primitives(Signature& signature);
void add_text_primitives(Signature& signature);
void add_big_primitives(Signature& signature);

} // namespace egret::egraph

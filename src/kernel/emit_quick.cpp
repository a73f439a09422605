// Emitter: arithmetic in f32 by fewer instructions, where the errors of Emitter::quick_arithmetic
// are allowed, and how it finds out of what a value was made.
#include "kernel/emit.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel {

namespace {

/// Where the rounding of x / log 2 is 2^6: below, exponentials that are as far off stay finite.
constexpr double kHugeExponent = 0x1p30;

} // namespace

ValueId Emitter::quick_apply(Op op, const std::vector<ValueId>& args) {
  switch (op) {
  case Op::Exp:
    return quick_exponential(args[0]);
  case Op::Div:
    return quick_quotient(args[0], args[1]);
  case Op::Add:
    return quick_sum(args[0], args[1]);
  default:
    return b_.apply(op, DType::F32, args);
  }
}

ValueId Emitter::without_splats(ValueId v) const {
  while (const auto* splat = made<inst::Splat>(v))
    v = splat->value;
  return v;
}

/// The reciprocal of what many values are divided by is made once: that of a number for all, that
/// of a row or a place for all of it.
ValueId Emitter::quick_quotient(ValueId a, ValueId b) {
  const ValueId divisor = without_splats(b);
  if (const auto* number = made<inst::Constant>(divisor)) {
    const double reciprocal = 1 / number->value.as_double();
    if (!std::isnormal(static_cast<float>(reciprocal)))
      return b_.apply(Op::Div, DType::F32, {a, b});
    return b_.apply(Op::Mul, DType::F32, {a, b_.constant(Scalar::of(DType::F32, reciprocal))});
  }
  const ValueId reciprocal = b_.made_once(divisor) ? b_.apply(Op::Recip, DType::F32, {divisor})
                                                   : b_.quick(Op::Recip, divisor);
  return b_.apply(Op::Mul, DType::F32, {a, reciprocal});
}

/// The factors of a product with a number or with a reciprocal, these last; -1 if it is none.
std::pair<ValueId, ValueId> Emitter::scaled_by(ValueId v) const {
  const auto* product = made<inst::Apply>(v);
  if (product && product->op == Op::Mul)
    for (std::size_t k : {1u, 0u}) {
      const ValueId factor = without_splats(product->args[k]);
      const auto* op = made<inst::Apply>(factor);
      const auto* number = made<inst::Constant>(factor);
      if (made<inst::Argument>(factor) || (op && op->op == Op::Recip) ||
          (number && number->value.as_double() != -1))
        return {product->args[1 - k], product->args[k]};
    }
  return {-1, -1};
}

/// `v` without splats if it is a value times -1, or -1.
ValueId Emitter::as_negative(ValueId v) const {
  const ValueId minus = without_splats(v);
  const auto* product = made<inst::Apply>(minus);
  if (product && product->op == Op::Mul)
    for (ValueId factor : product->args) {
      const auto* number = made<inst::Constant>(factor);
      if (number && number->value.as_double() == -1)
        return minus;
    }
  return -1;
}

/// What a maximum that is made here is taken off stays the rounded product that it is one of.
ValueId Emitter::quick_sum(ValueId a, ValueId b) {
  for (const auto& [product, other] : {std::pair{a, b}, {b, a}})
    if (const auto [value, factor] = scaled_by(product); value >= 0) {
      if (const ValueId minus = as_negative(other); minus >= 0) {
        const std::vector<ValueId>& factors = made<inst::Apply>(minus)->args;
        const auto is_load = [&](ValueId v) { return made<inst::Load>(v) != nullptr; };
        if (std::none_of(factors.begin(), factors.end(), is_load))
          continue;
      }
      return b_.fma(value, factor, other);
    }
  return b_.apply(Op::Add, DType::F32, {a, b});
}

/// Whether a term of an exponent may be a finite number of any size: what a mask puts in a score's
/// place, by a number or from memory. A score itself, scaled or not, is taken to be none.
bool Emitter::may_be_huge(ValueId v) const {
  const auto huge = [this](ValueId arg) { return may_be_huge(arg); };
  return std::visit(
      overloaded{
          [](const inst::Constant& x) {
            const double number = x.value.as_double();
            return std::isfinite(number) && std::abs(number) >= kHugeExponent;
          },
          [](const inst::Argument&) { return true; }, [](const inst::Load&) { return true; },
          [&](const inst::Splat& x) { return huge(x.value); },
          [&](const inst::Shuffle& x) { return std::any_of(x.args.begin(), x.args.end(), huge); },
          [&](const inst::Fma& x) { return std::any_of(x.args.begin(), x.args.end(), huge); },
          [&](const inst::Apply& x) {
            if (const auto [value, factor] = scaled_by(v); value >= 0)
              return huge(value);
            const std::ptrdiff_t terms = x.op == Op::Select ? 1 : 0;
            return std::any_of(x.args.begin() + terms, x.args.end(), huge);
          },
          [](const auto&) { return false; }},
      b_.made_by(v).op);
}

/// 2 to the power of x / log 2. Of x = a - m the product with m is made once for many a; so is the
/// one with the factor of a, where a is not there by itself.
ValueId Emitter::quick_exponential(ValueId x) {
  const ValueId scale = b_.constant(Scalar::of(DType::F32, 1.4426950408889634));
  const auto scaled = [&](ValueId v) { return b_.apply(Op::Mul, DType::F32, {v, scale}); };
  const Inst sum = b_.made_by(x); // a copy: values are made below
  ValueId power = -1;
  if (const auto* fma = get_if<inst::Fma>(sum)) {
    if (const ValueId minus = as_negative(fma->args[2]); minus >= 0)
      power = b_.fma(fma->args[0], scaled(without_splats(fma->args[1])), scaled(minus));
  } else if (const auto* op = get_if<inst::Apply>(sum); op && op->op == Op::Add) {
    for (std::size_t k = 0; power < 0 && k < 2; ++k)
      if (const ValueId minus = as_negative(op->args[1 - k]); minus >= 0) {
        ValueId factor = scale, shift = scaled(minus);
        if (may_be_huge(op->args[k])) {
          // Rounded, m / log 2 is off by more than an exponential can be. Floats that large are
          // equal or so far apart that any base gives 1 or nothing: 2 needs no product.
          const auto number = [&](double x) { return b_.constant(Scalar::of(DType::F32, x)); };
          const ValueId huge = b_.apply(Op::Lt, DType::Bool,
                                        {number(kHugeExponent * kHugeExponent),
                                         b_.apply(Op::Mul, DType::F32, {minus, minus})});
          factor = b_.apply(Op::Select, DType::F32, {huge, number(1), scale});
          shift = b_.apply(Op::Select, DType::F32, {huge, minus, shift});
        }
        power = b_.fma(op->args[k], factor, shift);
      }
  }
  return b_.quick(Op::Exp2, power >= 0 ? power : scaled(x));
}

} // namespace egret::kernel

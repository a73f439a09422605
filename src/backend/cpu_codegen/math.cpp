// Transcendental functions.
#include "backend/cpu_codegen/interleave.h"
#include "backend/cpu_codegen/math_f32.h"
#include "backend/cpu_codegen/math_f64.h"
#include "backend/cpu_codegen/ops.h"

#include "support/fail.h"

namespace egret::backend::cpu {

namespace {

Num inlined(Op op, Num x) {
  const bool wide = x.bits() == 64;
  switch (op) {
  case Op::Exp:
    return wide ? exp_f64(x) : exp_f32(x);
  case Op::Exp2:
    return wide ? exp2_f64(x) : exp2_f32(x);
  case Op::Expm1:
    return wide ? expm1_f64(x) : expm1_f32(x);
  case Op::Log:
    return wide ? log_f64(x) : log_f32(x);
  case Op::Log2:
    return wide ? log2_f64(x) : log2_f32(x);
  case Op::Log1p:
    return wide ? log1p_f64(x) : log1p_f32(x);
  case Op::Sin:
    return wide ? sin_f64(x) : sin_f32(x);
  case Op::Cos:
    return wide ? cos_f64(x) : cos_f32(x);
  case Op::Tanh:
    return wide ? tanh_f64(x) : tanh_f32(x);
  case Op::Erf:
    return wide ? call_library("egret_erf_f64", x) : erf_f32(x);
  case Op::Sigmoid:
    return wide ? sigmoid_f64(x) : sigmoid_f32(x);
  default:
    break;
  }
  ensure(false, "cpu renderer: {} has no code for floats", info_of(op).name);
  return x;
}

} // namespace

Num math(Op op, Num x) {
  Num result = inlined(op, x);
  mark_chain(result);
  return result;
}

Num power(Num x, Num y) {
  return x.bits() == 64 ? call_library("egret_pow_f64", x, {y}) : power_f32(x, y);
}

Num floor_mod(Num x, Num y) {
  return x.bits() == 64 ? call_library("egret_mod_f64", x, {y}) : floor_mod_f32(x, y);
}

} // namespace egret::backend::cpu

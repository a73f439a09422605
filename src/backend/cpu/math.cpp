// Transcendental functions.
#include "backend/cpu/interleave.h"
#include "backend/cpu/math_f32.h"
#include "backend/cpu/ops.h"

#include "support/fail.h"

#include <string>

namespace egret::backend::cpu {

namespace {

Num inlined(Op op, Num x);

} // namespace

Num math(Op op, Num x) {
  if (x.bits() == 64) {
    std::string name = "egret_" + std::string(info_of(op).name) + "_f64";
    return call_library(name.c_str(), x);
  }
  Num result = inlined(op, x);
  mark_chain(result);
  return result;
}

namespace {

Num inlined(Op op, Num x) {
  switch (op) {
  case Op::Exp:
    return exp_f32(x);
  case Op::Exp2:
    return exp2_f32(x);
  case Op::Expm1:
    return expm1_f32(x);
  case Op::Log:
    return log_f32(x);
  case Op::Log2:
    return log2_f32(x);
  case Op::Log1p:
    return log1p_f32(x);
  case Op::Sin:
    return sin_f32(x);
  case Op::Cos:
    return cos_f32(x);
  case Op::Tanh:
    return tanh_f32(x);
  case Op::Erf:
    return erf_f32(x);
  case Op::Sigmoid:
    return sigmoid_f32(x);
  default:
    break;
  }
  ensure(false, "cpu renderer: {} has no code for floats", info_of(op).name);
  return x;
}

} // namespace

Num power(Num x, Num y) {
  return x.bits() == 64 ? call_library("egret_pow_f64", x, {y}) : power_f32(x, y);
}

Num floor_mod(Num x, Num y) {
  return x.bits() == 64 ? call_library("egret_mod_f64", x, {y}) : floor_mod_f32(x, y);
}

} // namespace egret::backend::cpu

// The transcendental functions on f32 numbers of any lane count, inlined. Errors are in
// docs/math.md.
#pragma once

#include "backend/cpu_codegen/num.h"

namespace egret::backend::cpu {

Num exp_f32(Num x);
Num exp2_f32(Num x);
Num expm1_f32(Num x);
Num log_f32(Num x);
Num log2_f32(Num x);
Num log1p_f32(Num x);
Num sin_f32(Num x);
Num cos_f32(Num x);
Num tanh_f32(Num x);
Num erf_f32(Num x);
Num sigmoid_f32(Num x);
Num power_f32(Num x, Num y);
Num floor_mod_f32(Num x, Num y);

} // namespace egret::backend::cpu

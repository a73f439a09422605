// Transcendental functions on f64 numbers of any lane count, inlined. Errors are in docs/math.md.
#pragma once

#include "backend/cpu_codegen/num.h"

namespace egret::backend::cpu {

Num exp_f64(Num x);
Num exp2_f64(Num x);
Num expm1_f64(Num x);
Num log_f64(Num x);
Num log2_f64(Num x);
Num log1p_f64(Num x);
Num sin_f64(Num x);
Num cos_f64(Num x);
Num tanh_f64(Num x);
Num sigmoid_f64(Num x);

} // namespace egret::backend::cpu

// 1 + tanh(u) and 1 - tanh(u)^2, of gelu and of gradients of tangents, from one exponential and one
// reciprocal where their results are rounded to 16 bits.
#pragma once

#include "kernel/program.h"
#include "kernel/rounded_uses.h"

namespace egret::kernel {

/// With e = exp(-2 u) and r = 1 / (1 + e), 1 + tanh(u) is 2 r and 1 - tanh(u)^2 is 4 r (e r).
/// Nothing cancels in them: beside the error of u their relative error is at most 2^-18 where they
/// are above 2^-25, and 2^-16 below that, down to 2^-124; the sums are off by 2^-24. e is kept
/// below 2^127.5, where r counts as 0. Infinities and NaN give what the sums give.
///
/// Replaces the sums that uses.tangents names, in a program of a GPU. New values are appended to
/// `uses`: what is to stay as it is made here is F32 there.
void expand_tangents(KernelProgram& program, RoundedUses& uses);

} // namespace egret::kernel

// Factors of derivatives, made harmless where the derivative is not finite. Such a place gets the
// gradient 0 (docs/autodiff.md): then a zero that comes from above, as from the branch that a
// select does not take, stays a zero. The guard is put on the factor itself, not on the product, so
// that second derivatives are safe for the same reason.
#pragma once

#include "autodiff/rules.h"

namespace egret::autodiff {

Value square(Value a);
/// a where it is positive, else `otherwise` (also for NaN).
Value positive_or(Value a, double otherwise);
/// a where it is positive, else infinity: a divisor that gives 0 outside the domain.
Value positive(Value a);
/// a, but infinity in place of 0; a itself when that is known not to be 0.
Value nonzero(Value a);
/// a where it is less than infinity, else `otherwise` (also for NaN). For values that are bounded
/// below.
Value finite_or(Value a, double otherwise);
/// a where it is finite, else 0.
Value finite(Value a);
/// The result of an exponential, 0 where it overflowed; itself when its argument is known to be at
/// most 0, as in a softmax.
Value finite_exp(const Site& s);
/// g where a is larger than b, half of it where they are equal.
Value max_share(Value g, Value a, Value b);

} // namespace egret::autodiff

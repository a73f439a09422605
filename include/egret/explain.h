// Why two operations run in one kernel or in two.
#pragma once

#include "egret/tensor.h"

#include <string>

namespace egret {

/// What reading both values would run: which kernels make them, whether that is one, why not where
/// the compiler has a reason, what each kernel reads, writes and is predicted to take, and what the
/// other way would cost. Nothing is computed. Error(State) for a value that is known already, of
/// which nothing runs.
std::string explain(const Tensor& a, const Tensor& b);

} // namespace egret

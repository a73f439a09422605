// Activations, element by element.
#pragma once

#include "egret/tensor.h"

namespace egret {

enum class Gelu { Erf, Tanh };
Tensor sigmoid(const Tensor& a);
Tensor relu(const Tensor& a); ///< a where a > 0, else 0; gradient 0 at 0
Tensor leaky_relu(const Tensor& a, double slope = 0.01);
Tensor elu(const Tensor& a, double alpha = 1);
/// a Φ(a): exact with erf, or 0.5 a (1 + tanh(√(2/π) (a + 0.044715 a³))) (Hendrycks and Gimpel
/// 2016)
Tensor gelu(const Tensor& a, Gelu form = Gelu::Erf);
Tensor silu(const Tensor& a);     ///< a sigmoid(a)
Tensor softplus(const Tensor& a); ///< log(1 + exp(a)), without overflow

} // namespace egret

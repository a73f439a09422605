// Activations, element by element.
#pragma once

#include "egret/tensor.h"

namespace egret {

enum class Gelu { Erf, Tanh };
Tensor sigmoid(const Tensor& a);
Tensor relu(const Tensor& a); ///< 0 where a <= 0, else a (NaN stays NaN); gradient 0 at 0
Tensor leaky_relu(const Tensor& a, double slope = 0.01);
Tensor elu(const Tensor& a, double alpha = 1);
/// a Φ(a): exact with erf, or 0.5 a (1 + tanh(√(2/π) (a + 0.044715 a³))) (Hendrycks and Gimpel
/// 2016)
Tensor gelu(const Tensor& a, Gelu form = Gelu::Erf);
Tensor silu(const Tensor& a);     ///< a sigmoid(a)
Tensor softplus(const Tensor& a); ///< log(1 + exp(a)), without overflow

Tensor log_sigmoid(const Tensor& a); ///< log(sigmoid(a)), without overflow
/// scale (a, or alpha (exp(a) - 1) where a < 0), Klambauer et al. 2017
Tensor selu(const Tensor& a);
Tensor celu(const Tensor& a, double alpha = 1); ///< max(0, a) + min(0, alpha (exp(a/alpha) - 1))
Tensor mish(const Tensor& a);                   ///< a tanh(softplus(a))
Tensor relu6(const Tensor& a);                  ///< a between 0 and 6
Tensor hardtanh(const Tensor& a, double low = -1, double high = 1);
Tensor hardsigmoid(const Tensor& a);                          ///< relu6(a + 3) / 6
Tensor hardswish(const Tensor& a);                            ///< a hardsigmoid(a)
Tensor hardshrink(const Tensor& a, double edge = 0.5);        ///< 0 where |a| <= edge
Tensor softshrink(const Tensor& a, double edge = 0.5);        ///< a moved towards 0 by `edge`, or 0
Tensor tanhshrink(const Tensor& a);                           ///< a - tanh(a)
Tensor softsign(const Tensor& a);                             ///< a / (1 + |a|)
Tensor threshold(const Tensor& a, double edge, double value); ///< `value` where a <= edge
/// a where a > 0, else slope · a; slope has one element, or one for each position of axis 1 of a.
Tensor prelu(const Tensor& a, const Tensor& slope);
/// The first half along an axis times the sigmoid of the second one.
Tensor glu(const Tensor& a, std::int64_t axis = -1);
Tensor softmin(const Tensor& a, std::int64_t axis = -1); ///< softmax(-a)

} // namespace egret

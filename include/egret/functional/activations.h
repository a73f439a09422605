// Activations, element by element.
#pragma once

#include "egret/tensor.h"

namespace egret {

enum class Gelu { Erf, Tanh };
Tensor sigmoid(const Operand& a);
Tensor relu(const Operand& a); ///< 0 where a <= 0, else a (NaN stays NaN); gradient 0 at 0
Tensor leaky_relu(const Operand& a, double slope = 0.01);
Tensor elu(const Operand& a, double alpha = 1);
/// a Φ(a): exact with erf, or 0.5 a (1 + tanh(√(2/π) (a + 0.044715 a³))) (Hendrycks and Gimpel
/// 2016)
Tensor gelu(const Operand& a, Gelu form = Gelu::Erf);
Tensor silu(const Operand& a);     ///< a sigmoid(a)
Tensor softplus(const Operand& a); ///< log(1 + exp(a)), without overflow

Tensor log_sigmoid(const Operand& a); ///< log(sigmoid(a)), without overflow
/// scale (a, or alpha (exp(a) - 1) where a < 0), Klambauer et al. 2017
Tensor selu(const Operand& a);
Tensor celu(const Operand& a, double alpha = 1); ///< max(0, a) + min(0, alpha (exp(a/alpha) - 1))
Tensor mish(const Operand& a);                   ///< a tanh(softplus(a))
Tensor relu6(const Operand& a);                  ///< a between 0 and 6
Tensor hardtanh(const Operand& a, double low = -1, double high = 1);
Tensor hardsigmoid(const Operand& a);                   ///< relu6(a + 3) / 6
Tensor hardswish(const Operand& a);                     ///< a hardsigmoid(a)
Tensor hardshrink(const Operand& a, double edge = 0.5); ///< 0 where |a| <= edge
Tensor softshrink(const Operand& a, double edge = 0.5); ///< a moved towards 0 by `edge`, or 0
Tensor tanhshrink(const Operand& a);                    ///< a - tanh(a)
Tensor softsign(const Operand& a);                      ///< a / (1 + |a|)
Tensor threshold(const Operand& a, double edge, double value); ///< `value` where a <= edge
/// a where a > 0, else slope · a; slope has one element, or one for each position of axis 1 of a.
Tensor prelu(const Operand& a, const Operand& slope);
/// The first half along an axis times the sigmoid of the second one.
Tensor glu(const Operand& a, std::int64_t axis = -1);
Tensor softmin(const Operand& a, std::int64_t axis = -1); ///< softmax(-a)

} // namespace egret

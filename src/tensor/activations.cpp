// Activations.
#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>

namespace egret {

using namespace detail;

Tensor sigmoid(const Operand& a) {
  return unary(Op::Sigmoid, as_float(a, "sigmoid"), "sigmoid");
}
Tensor relu(const Operand& a) {
  Access::held(a, "relu");
  return where(a <= 0, 0, a); // NaN is not below 0 and stays
}
Tensor leaky_relu(const Operand& a, double slope) {
  const Tensor x = as_float(a, "leaky_relu");
  return where(x > 0, x, x * slope);
}
Tensor elu(const Operand& a, double alpha) {
  return wide(a, "elu", [alpha](const Tensor& x) { return where(x > 0, x, expm1(x) * alpha); });
}

Tensor gelu(const Operand& a, Gelu form) {
  return wide(a, "gelu", [form](const Tensor& x) {
    const DType type = x.dtype();
    if (form == Gelu::Erf)
      return x * 0.5 * (erf(x * constant(type, std::sqrt(0.5))) + 1);
    const Tensor inner =
        (x + x * x * x * constant(type, 0.044715)) * constant(type, std::sqrt(2 / M_PI));
    return x * 0.5 * (tanh(inner) + 1);
  });
}

Tensor silu(const Operand& a) {
  return wide(a, "silu", [](const Tensor& x) { return x * sigmoid(x); });
}

Tensor softplus(const Operand& a) {
  return wide(a, "softplus",
              [](const Tensor& x) { return maximum(x, 0) + log1p(exp(neg(abs(x)))); });
}

Tensor log_sigmoid(const Operand& a) {
  return wide(a, "log_sigmoid", [](const Tensor& x) { return neg(softplus(neg(x))); });
}

Tensor selu(const Operand& a) {
  constexpr double alpha = 1.6732632423543772848170429916717;
  constexpr double scale = 1.0507009873554804934193349852946;
  return wide(a, "selu", [](const Tensor& x) {
    const DType type = x.dtype();
    return where(x > 0, x * constant(type, scale), expm1(x) * constant(type, scale * alpha));
  });
}

Tensor celu(const Operand& a, double alpha) {
  if (alpha == 0)
    fail(ErrorKind::Value, "celu: alpha is 0, by which the operand is divided");
  return wide(a, "celu",
              [alpha](const Tensor& x) { return where(x > 0, x, expm1(x * (1 / alpha)) * alpha); });
}

Tensor mish(const Operand& a) {
  return wide(a, "mish", [](const Tensor& x) { return x * tanh(softplus(x)); });
}

Tensor hardtanh(const Operand& a, double low, double high) {
  require_float(a, "hardtanh");
  // As PyTorch does, the gradient at the bounds themselves is 0.
  const Tensor bottom = literal(a.dtype(), low), top = literal(a.dtype(), high);
  return where(a <= bottom, bottom, where(a >= top, top, a));
}

Tensor relu6(const Operand& a) {
  return hardtanh(as_float(a, "relu6"), 0, 6);
}

Tensor hardsigmoid(const Operand& a) {
  return wide(a, "hardsigmoid",
              [](const Tensor& x) { return relu6(x + 3) * constant(x.dtype(), 1.0 / 6); });
}

Tensor hardswish(const Operand& a) {
  return wide(a, "hardswish",
              [](const Tensor& x) { return x * (relu6(x + 3) * constant(x.dtype(), 1.0 / 6)); });
}

Tensor hardshrink(const Operand& a, double edge) {
  const Tensor x = as_float(a, "hardshrink");
  return where(abs(x) <= edge, 0, x);
}

Tensor softshrink(const Operand& a, double edge) {
  if (!(edge >= 0))
    fail(ErrorKind::Value, "softshrink: the edge is {}; it must not be negative", edge);
  const Tensor x = as_float(a, "softshrink");
  return where(x > edge, x - edge, where(x < -edge, x + edge, where(isnan(x), x, 0)));
}

Tensor tanhshrink(const Operand& a) {
  return wide(a, "tanhshrink", [](const Tensor& x) { return x - tanh(x); });
}

Tensor softsign(const Operand& a) {
  return wide(a, "softsign", [](const Tensor& x) {
    const Tensor size = where(x < 0, neg(x), x); // its slope at 0 does not matter: x is 0 there
    return x / (size + 1);
  });
}

Tensor threshold(const Operand& a, double edge, double value) {
  Access::held(a, "threshold");
  return where(a <= edge, literal(a.dtype(), value), a);
}

Tensor prelu(const Operand& a, const Operand& slope) {
  const Tensor x = as_float(a, "prelu");
  Access::held(slope, "prelu");
  const bool one = slope.shape().empty() || slope.shape() == Shape{Expr(1)};
  Shape line(x.shape().size(), Expr(1));
  if (!one) {
    if (x.rank() < 2 || slope.shape() != Shape{x.shape()[1]})
      fail(
          ErrorKind::Shape,
          "prelu: slope {} does not fit {}; it has one element, or one for each position of axis 1",
          shape_of(slope), shape_of(a));
    line[1] = x.shape()[1];
  }
  return where(x > 0, x, x * reshape(slope.to(x.dtype()), line));
}

Tensor glu(const Operand& a, std::int64_t axis) {
  const Tensor x = as_float(a, "glu");
  axis = axis_of(axis, x.rank(), x.shape(), "glu");
  const Expr& size = x.shape()[static_cast<std::size_t>(axis)];
  if (!(floormod(size, 2) == Expr(0)))
    fail(ErrorKind::Shape, "glu: axis {} of {} has an odd size; it is split into halves", axis,
         shape_of(a));
  const Expr half = floordiv(size, 2);
  return x.narrow(axis, 0, half) * sigmoid(x.narrow(axis, half, half));
}

Tensor softmin(const Operand& a, std::int64_t axis) {
  return softmax(neg(as_float(a, "softmin")), axis);
}

} // namespace egret

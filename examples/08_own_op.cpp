// An operation of one's own is a function of tensors. It fuses with its neighbours as any other
// does, and its gradient follows from its parts, or from what it says instead.
//
//   1 kernel
//   values   [-1, 0, 0, 1] f32[4]
//   gradient [1, 1, 1, 1] f32[4]
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"

#include <iostream>

using namespace egret;

namespace {

/// x rounded to steps of `step`, with the gradient of x itself: what is detached counts as a
/// constant (the straight-through estimator, Bengio et al. 2013).
Tensor in_steps(const Tensor& x, double step) {
  const Tensor rounded = floor(x * (1 / step) + 0.5) * step;
  return x + (rounded - x).detach();
}

} // namespace

int main() {
  const Tensor x = tensor({-0.8, -0.3, 0.4, 0.6});
  const Counters before = counters();
  const Tensor y = in_steps(x, 1).eval();
  std::cout << (counters() - before).kernels_launched << " kernel\n";
  std::cout << "values   " << y << "\n";

  const Tensor at = x.detach().set_requires_grad();
  const Tensor slope = grad(in_steps(at, 1).sum(), at);
  std::cout << "gradient " << slope << "\n";
  return slope.to_vector() == std::vector<float>(4, 1.0f) ? 0 : 1;
}

// Gradients: a line fitted to noisy points, by hand.
#include "egret/functional.h"
#include "egret/grad.h"

#include <cmath>
#include <iostream>

using namespace egret;

int main() {
  Generator random(1);
  const Tensor x = rand({200, 1}, random).eval();
  const Tensor y = (x * 3 - 1 + randn({200, 1}, random) * 0.05).eval();

  Tensor slope = scalar(0.0).set_requires_grad(), offset = scalar(0.0).set_requires_grad();
  for (int step = 0; step < 300; ++step) {
    slope.zero_grad();
    offset.zero_grad();
    const Tensor loss = mse_loss(x * slope + offset, y);
    loss.backward();
    NoGrad guard; // updates are not recorded
    slope -= slope.grad() * 0.5;
    offset -= offset.grad() * 0.5;
    eval({slope, offset}); // or the recipe of all steps would be computed at the end
  }
  std::cout << "slope " << slope.item() << ", offset " << offset.item() << "\n";

  // Gradients can be differentiated again: the curvature of sin at 1 is -sin(1).
  const Tensor at = tensor(std::vector<double>{1.0}).set_requires_grad();
  const Tensor curvature = grad(grad(sin(at), at), at);
  std::cout << "sin''(1) = " << curvature.item() << "\n";

  const GradCheck check = gradcheck([](const Tensor& t) { return softmax(t * t); },
                                    tensor(std::vector<double>{0.1, 0.2, 0.3}));
  std::cout << "largest error of a gradient, in tolerances: " << check.max_error << "\n";

  const bool fits = std::abs(slope.item() - 3) < 0.1 && std::abs(offset.item() + 1) < 0.1;
  return fits && check ? 0 : 1;
}

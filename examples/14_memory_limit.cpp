// A training step under a memory limit: the compiler holds fewer values and computes some of them
// again. The losses stay the same to the last bit.
#include <egret/egret.h>

#include <iostream>

using namespace egret;

namespace {

struct Training {
  nn::Mlp model;
  optim::Sgd optimizer;
  EGRET_FIELDS(model, optimizer)
};

Training start() {
  Generator g(1);
  nn::Mlp model({64, 128, 128, 128, 128, 128, 128, 1}, g);
  return {model, optim::Sgd(nn::named_parameters(model), {.lr = 0.05})};
}

Tensor step_of(Training& t, const Tensor& x, const Tensor& y) {
  Tensor loss = mse_loss(t.model(x), y);
  t.optimizer.zero_grad();
  loss.backward();
  t.optimizer.step();
  return loss;
}

} // namespace

int main() {
  Generator g(2);
  Tensor x = randn({1024, 64}, g), y = sin(x.sum(-1, true)).eval();

  Training plain = start(), small = start();
  auto step = compile(&step_of);
  auto limited = compile(&step_of, {.memory_limit = 3 << 20});
  for (int i = 0; i < 20; ++i) {
    const float a = step(plain, x, y).item(), b = limited(small, x, y).item();
    if (a != b) {
      std::cerr << "step " << i << ": " << a << " and " << b << "\n";
      return 1;
    }
    if (i % 5 == 4)
      std::cout << "step " << i + 1 << ": loss " << a << " with and without the limit\n";
  }
  std::cout << limited.explain().substr(0, 1500) << "...\n"; // what is computed again, at what cost

  // A limit that is too small is refused, with one that is not.
  auto tight = compile(&step_of, {.memory_limit = 64 << 10});
  try {
    tight(small, x, y);
  } catch (const Error& error) {
    std::cout << error.what() << "\n";
  }
}

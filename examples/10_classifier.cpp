// A classifier trained by a compiled step: two spirals that no straight line tells apart.
#include <egret/egret.h>

#include <cmath>
#include <iostream>

using namespace egret;

namespace {

struct Points {
  Tensor place, spiral; // [2n, 2], [2n]
};

Points two_spirals(std::int64_t n, Generator& random) {
  Tensor turn = rand({2 * n}, random) * 5.0 + 0.5;
  Tensor spiral = (arange(2 * n) >= n).to(DType::I64);
  Tensor angle = turn + spiral * M_PI;
  Tensor place = stack({turn * cos(angle), turn * sin(angle)}, 1) + 0.1 * randn({2 * n, 2}, random);
  eval({place, spiral});
  return {place, spiral};
}

} // namespace

int main() {
  Generator random(7);
  const Points points = two_spirals(500, random);
  nn::Mlp model({2, 64, 64, 2}, random);
  optim::AdamW optimizer(nn::named_parameters(model), {.lr = 1e-2});

  // Traced and compiled at the first call, replayed afterwards. What is passed by reference is
  // updated in place.
  auto step = compile([](nn::Mlp& net, optim::AdamW& opt, const Tensor& x, const Tensor& y) {
    Tensor loss = cross_entropy(net(x), y);
    opt.zero_grad();
    loss.backward();
    opt.step();
    return loss;
  });

  data::Loader loader({points.place, points.spiral}, {.batch = 100, .seed = 1});
  Tensor loss;
  for (std::int64_t epoch = 0; epoch < 60; ++epoch)
    for (const auto& batch : loader.epoch(epoch))
      loss = step(model, optimizer, batch[0], batch[1]);

  const double right =
      (model(points.place).argmax(-1) == points.spiral).to(DType::F32).mean().item();
  std::cout << "loss " << loss.item() << ", " << 100 * right << " % right\n"
            << "traced " << step.traces() << " time(s)\n";
  return right > 0.97 ? 0 : 1;
}

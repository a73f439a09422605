// compile(): a training step traced once and replayed, with its state updated in place.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"

#include <iostream>

using namespace egret;

struct Linear {
  Tensor weight, bias;
  Linear(std::int64_t in, std::int64_t out, Generator& random)
      : weight((randn({in, out}, random) * 0.5).eval()), bias(zeros({out}).eval()) {
    weight.set_requires_grad();
    bias.set_requires_grad();
  }
  Tensor operator()(const Tensor& x) const { return matmul(x, weight) + bias; }
  EGRET_FIELDS(weight, bias)
};

struct Mlp {
  Linear first, second;
  Tensor operator()(const Tensor& x) const { return second(tanh(first(x))); }
  EGRET_FIELDS(first, second)
};

int main() {
  Generator random(3);
  Mlp model{{2, 16, random}, {16, 2, random}};
  Tensor rate = scalar(0.5f); // what changes from call to call is a tensor

  // Points inside and outside of a circle.
  const Tensor points = uniform({256, 2}, -1, 1, random).eval();
  const Tensor inside = (square(points).sum(1) < 0.5).to(DType::I64).eval();

  auto step = compile(
      [&rate](Mlp& m, const Tensor& x, const Tensor& target) {
        const Tensor loss = cross_entropy(m(x), target);
        auto parameters = named_tensors(m);
        for (auto& [name, p] : parameters)
          p.zero_grad();
        loss.backward();
        NoGrad guard;
        for (auto& [name, p] : parameters)
          p -= p.grad() * rate;
        return loss;
      },
      {.name = "training step"});

  const double first = step(model, points, inside).item();
  std::cout << step.last_report() << "\n";
  const Counters before = counters();
  double last = first;
  for (int i = 0; i < 500; ++i) {
    if (i == 300)
      rate.assign(0.1); // seen by the next call, without a new trace
    last = step(model, points, inside).item();
  }
  const Counters spent = counters() - before;
  std::cout << "500 steps: loss " << first << " to " << last << ", " << spent.kernels_launched
            << " kernels, " << spent.compiles << " compiles, " << spent.device_allocations
            << " device allocations\n";
  const double right = (argmax(model(points), 1) == inside).to(DType::F32).mean().item();
  std::cout << 100 * right << " % of the points are told apart\n";
  return right > 0.9 && spent.compiles == 0 && spent.device_allocations == 0 ? 0 : 1;
}

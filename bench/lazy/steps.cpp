// Training steps as a plain loop beside the same steps compiled, in turn: microseconds of each, and
// of the plain one what recording takes.
//
//   build/release/bin/lazy_steps [SECONDS [mnist|gpt]]
//
// Told are the best, the tenth and the median of turns of a few steps, and the ratios of these.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/models.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

using namespace egret;
using tool::recorded_step;
using tool::Training;

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Times {
public:
  void add(double time) { all_.push_back(time * 1e6); }
  double at(double part) {
    std::sort(all_.begin(), all_.end());
    return all_.at(static_cast<std::size_t>(part * static_cast<double>(all_.size() - 1)));
  }
  std::string text() {
    return fmt::format("best {:9.1f} us, tenth {:9.1f}, median {:9.1f}", at(0), at(0.1), at(0.5));
  }

private:
  std::vector<double> all_;
};

template <class T>
void measure(const char* name, T (*make)(), const Tensor& x, const Tensor& y, double time,
             int steps) {
  T plain = make(), other = make();
  auto compiled = compile(&recorded_step<T>, {.name = name});
  double recording = 0;
  const auto plain_step = [&] {
    const double begin = seconds();
    const Tensor loss = recorded_step(plain, x, y);
    recording += seconds() - begin;
    loss.eval();
  };
  for (int i = 0; i < 8 * steps; ++i) {
    plain_step();
    compiled(other, x, y);
  }
  const Counters before = counters();
  plain_step();
  const Counters of_plain = counters() - before;
  Times plain_times, recording_times, compiled_times;
  for (const double end = seconds() + time; seconds() < end;) {
    double begin = seconds();
    for (int i = 0; i < steps; ++i)
      compiled(other, x, y);
    compiled_times.add((seconds() - begin) / steps);
    recording = 0;
    begin = seconds();
    for (int i = 0; i < steps; ++i)
      plain_step();
    plain_times.add((seconds() - begin) / steps);
    recording_times.add(recording / steps);
  }
  fmt::print("{}: {} operations recorded, {} kernels\n", name, of_plain.ops_recorded,
             of_plain.kernels_launched);
  fmt::print("  compiled   {}\n  plain      {}\n  recording  {}\n", compiled_times.text(),
             plain_times.text(), recording_times.text());
  fmt::print(
      "  plain / compiled: {:.3f} of the best, {:.3f} of the tenths, {:.3f} of the medians\n",
      plain_times.at(0) / compiled_times.at(0), plain_times.at(0.1) / compiled_times.at(0.1),
      plain_times.at(0.5) / compiled_times.at(0.5));
}

using MnistTraining = Training<nn::Mlp, optim::Sgd>;
using GptTraining = Training<models::Gpt, optim::AdamW>;

MnistTraining make_mnist() {
  Generator g(1);
  nn::Mlp model({784, 128, 10}, g);
  return {model, optim::Sgd(nn::named_parameters(model), {.lr = 0.01})};
}

GptTraining make_gpt() {
  Generator g(1);
  models::Gpt model(
      {.vocabulary = 256, .context = 128, .layers = 4, .width = 128, .heads = 4, .tied = true}, g);
  return {model, optim::AdamW(nn::named_parameters(model), {.lr = 1e-3})};
}

} // namespace

int main(int argc, char** argv) {
  const double time = argc > 1 ? std::atof(argv[1]) : 2;
  const std::string wanted = argc > 2 ? argv[2] : "";
  if (!(time > 0) || argc > 3 || (argc > 2 && wanted != "mnist" && wanted != "gpt")) {
    fmt::print(stderr, "lazy_steps [SECONDS [mnist|gpt]]\n");
    return 2;
  }
  Generator g(3);
  if (wanted != "gpt") {
    const Tensor x = randn({64, 784}, g).eval(), y = randint({64}, 0, 10, g).eval();
    measure("mnist", &make_mnist, x, y, time, 8);
  }
  if (wanted != "mnist") {
    const Tensor x = randint({16, 128}, 0, 256, g).eval(), y = randint({16, 128}, 0, 256, g).eval();
    measure("gpt", &make_gpt, x, y, time, 1);
  }
}

// Training steps of a GPT under memory limits: kernels, bytes moved, peak and time of each, and
// whether the losses have the same bits.
//
//   build/release/bin/memory_limits tiny|gpt2 [STEPS [BATCH [TOKENS [bf16]]]]
//
// With bf16 the model computes under autocast. EGRET_DEVICE says where.
#include "egret/autocast.h"
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/models.h"
#include "egret/optim.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace egret;

namespace {

struct Size {
  models::GptOptions shape;
  std::int64_t batch, tokens;
  DType products = DType::F32;
};

const Size kTiny{
    {.vocabulary = 256, .context = 128, .layers = 4, .width = 128, .heads = 4, .tied = true},
    16,
    128};
const Size kGpt2{
    {.vocabulary = 50304, .context = 1024, .layers = 12, .width = 768, .heads = 12, .tied = true},
    1,
    128};

struct Training {
  models::Gpt model;
  optim::AdamW optimizer;
  DType products;
  EGRET_FIELDS(model, optimizer)
};

Tensor step_of(Training& t, const Tensor& x, const Tensor& y) {
  Tensor loss;
  {
    Autocast scope(t.products);
    loss = cross_entropy(t.model(x), y);
  }
  t.optimizer.zero_grad();
  loss.backward();
  t.optimizer.step();
  return loss;
}

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A training of its own, under a limit or none.
class Run {
public:
  Run(const Size& size, std::optional<std::int64_t> limit)
      : generator_(1), model_(size.shape, generator_),
        training_{model_, optim::AdamW(nn::named_parameters(model_), {.lr = 1e-3}), size.products},
        x_(randint({size.batch, size.tokens}, 0, size.shape.vocabulary, generator_)),
        y_(randint({size.batch, size.tokens}, 0, size.shape.vocabulary, generator_)),
        step_(compile(&step_of, {.name = "step", .memory_limit = limit})) {
    std::vector<Tensor> start = {x_, y_};
    for (auto& named : named_tensors(training_))
      start.push_back(named.tensor);
    eval(start);
  }

  /// The first one compiles, and its time does not count.
  void step() {
    const Counters before = counters();
    reset_peak_bytes();
    const std::clock_t cpu = std::clock();
    const auto begin = std::chrono::steady_clock::now();
    losses_.push_back(step_(training_, x_, y_).item());
    (losses_.size() == 1 ? compiling_ : times_.emplace_back()) = since(begin);
    if (losses_.size() > 1)
      cpu_times_.push_back(static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC);
    peak_ = counters().peak_bytes - before.bytes_in_use;
    const Counters moved = counters() - before;
    kernels_ = moved.kernels_launched;
    bytes_ = moved.bytes_read + moved.bytes_written;
  }

  std::uint64_t peak() const { return peak_; }

  void show(const std::string& name, const Run& plain) const {
    const auto bits = [](double a, double b) {
      return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
    };
    const bool same = std::equal(losses_.begin(), losses_.end(), plain.losses_.begin(),
                                 plain.losses_.end(), bits);
    fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.3f} | {:.1f} | {:.1f} | {:.2f} | {:.1f} | {:.2f} "
               "| {:.1f} | {} |\n",
               name, kernels_, static_cast<double>(bytes_) / 1e6, static_cast<double>(peak_) / 1e6,
               static_cast<double>(peak_) / static_cast<double>(plain.peak_), 1e3 * median(),
               1e3 * best(times_), best(times_) / best(plain.times_), 1e3 * best(cpu_times_),
               best(cpu_times_) / best(plain.cpu_times_), compiling_,
               same ? "same bits" : "DIFFERENT");
  }

private:
  static double best(const std::vector<double>& times) {
    return *std::min_element(times.begin(), times.end());
  }
  double median() const {
    std::vector<double> sorted = times_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }

  Generator generator_;
  models::Gpt model_;
  Training training_;
  Tensor x_, y_;
  Compiled<Tensor (*)(Training&, const Tensor&, const Tensor&)> step_;
  std::vector<double> losses_, times_, cpu_times_;
  std::uint64_t peak_ = 0, kernels_ = 0, bytes_ = 0;
  double compiling_ = 0;
};

} // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "tiny";
  const int steps = argc > 2 ? std::max(3, std::atoi(argv[2])) : 10;
  Size size = name == "gpt2" ? kGpt2 : kTiny;
  if (argc > 3)
    size.batch = std::max(1, std::atoi(argv[3]));
  if (argc > 4)
    size.tokens = std::clamp<std::int64_t>(std::atoi(argv[4]), 1, size.shape.context);
  if (argc > 5) {
    if (std::string(argv[5]) != "bf16") {
      fmt::print(stderr, "memory_limits: {}: only bf16 is known\n", argv[5]);
      return 2;
    }
    size.products = DType::BF16;
  }
  fmt::print("{}: {} layers, width {}, batch {} of {} tokens, {} steps in turn; the CPU time is of "
             "all threads\n",
             name, size.shape.layers, size.shape.width, size.batch, size.tokens, steps);
  std::vector<std::pair<std::string, std::unique_ptr<Run>>> runs;
  runs.emplace_back("none", std::make_unique<Run>(size, std::nullopt));
  Run& plain = *runs[0].second;
  plain.step();
  plain.step(); // the first one makes the optimizer's state, too
  for (const double share : {1.0, 0.75, 0.5, 0.35, 0.25}) {
    const auto limit = static_cast<std::int64_t>(share * static_cast<double>(plain.peak()));
    try {
      auto run = std::make_unique<Run>(size, limit);
      run->step();
      run->step();
      runs.emplace_back(fmt::format("{:.2f}: {:.2f} MB", share, static_cast<double>(limit) / 1e6),
                        std::move(run));
    } catch (const Error& error) {
      fmt::print("{:.2f}: {}\n", share, error.what());
    }
  }
  for (int i = 2; i < steps; ++i)
    for (auto& [label, run] : runs)
      run->step();
  fmt::print("| limit | kernels | MB moved | peak MB | peak | median ms | best ms | to none | "
             "best CPU ms | to none | first step s | losses |\n"
             "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const auto& [label, run] : runs)
    run->show(label, plain);
}

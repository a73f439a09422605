// A whole training: batches made in the background, validation, a log, and a checkpoint that it can
// be continued from. Stop it in the middle and start it again: it goes on, to the same bits.
#include <egret/egret.h>

#include <filesystem>
#include <iostream>

using namespace egret;

namespace {

// Everything that steps depend on, in one tree: that is what a checkpoint holds.
struct Training {
  Generator generator{1};
  nn::Sequential<nn::Linear, nn::Tanh, nn::Dropout, nn::Linear> model{
      nn::Linear(2, 32, generator), nn::Tanh{}, nn::Dropout{0.05}, nn::Linear(32, 1, generator)};
  optim::AdamW optimizer{nn::named_parameters(model), {.lr = 1e-2}};
  data::PrefetchLoader batches;
  EGRET_FIELDS(generator, model, optimizer, batches)
};

Tensor answer(const Tensor& x) {
  return x.prod(-1, true);
}

} // namespace

int main() {
  const auto folder = std::filesystem::temp_directory_path() / "egret-example-training";
  std::filesystem::create_directories(folder);
  Generator random(2);
  const Tensor points = randn({512, 2}, random), unseen = randn({128, 2}, random);
  Training training{.batches = data::PrefetchLoader(
                        data::Loader({points, answer(points)}, {.batch = 64, .seed = 3}))};

  auto step = compile([](Training& t, const Tensor& in, const Tensor& out) {
    Tensor loss = mse_loss(t.model(in, &t.generator), out); // the generator: it trains
    t.optimizer.zero_grad();
    loss.backward();
    t.optimizer.step();
    return loss;
  });

  training::Loop loop(training, {.steps = 400,
                                 .log_every = 50,
                                 .evaluate_every = 100,
                                 .patience = 5,
                                 .checkpoint = folder / "last.safetensors",
                                 .checkpoint_every = 100,
                                 .best = folder / "best.safetensors"});
  if (loop.has_checkpoint())
    loop.resume();
  loop.add_log(std::make_unique<io::CsvLog>(
      folder / "log.csv", std::vector<std::string>{"loss", "validation"}, loop.step()));
  const training::Outcome outcome = loop.run(
      [&](std::int64_t) {
        auto batch = training.batches.next();
        return step(training, batch[0], batch[1]);
      },
      [&] {
        return io::Measurements{
            {"validation", mse_loss(training.model(unseen), answer(unseen)).item()}};
      });

  std::cout << "after " << outcome.steps << " steps the best validation is " << *outcome.best
            << ", of step " << outcome.best_step << "\n";
  std::filesystem::remove_all(folder); // an example leaves nothing behind
  return *outcome.best < 0.5 ? 0 : 1;
}

#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/optim.h"
#include "egret/prefetch.h"
#include "egret/training.h"
#include "support/files.h"

#include <cmath>
#include <gtest/gtest.h>

namespace egret::training {
namespace {

/// A regression whose batches, dropout and schedule all have state.
struct Training {
  Generator generator{3};
  nn::Mlp model{{4, 8, 1}, generator};
  nn::Dropout dropout{0.2};
  optim::AdamW optimizer{nn::named_parameters(model), {.lr = 0.02}};
  optim::Plateau plateau{{.lr = 0.02, .factor = 0.5, .patience = 1}};
  data::PrefetchLoader batches{make_batches()};
  EGRET_FIELDS(generator, model, dropout, optimizer, plateau, batches)

  static data::PrefetchLoader make_batches() {
    Generator g(5);
    const Tensor x = randn({37, 4}, g);
    return data::PrefetchLoader(
        data::Loader({x, x.square().sum(-1, true)}, {.batch = 8, .seed = 2}));
  }
};

Tensor train_step(Training& t, const Tensor& x, const Tensor& y) {
  Tensor loss = mse_loss(t.model(t.dropout(x, &t.generator)), y);
  t.optimizer.zero_grad();
  loss.backward();
  t.optimizer.step();
  return loss;
}

std::unique_ptr<io::MetricLog> csv(const std::filesystem::path& path,
                                   std::optional<std::int64_t> keep_to = {}) {
  return std::make_unique<io::CsvLog>(path, std::vector<std::string>{"loss", "other", "validation"},
                                      keep_to);
}

struct Attempt {
  explicit Attempt(LoopOptions options) : loop(training, std::move(options)) {}
  Outcome operator()(Loop::Observer observer = {}) {
    auto step = compile(&train_step);
    loop.set_observer(std::move(observer));
    return loop.run(
        [&](std::int64_t) {
          auto batch = training.batches.next();
          return step(training, batch[0], batch[1]);
        },
        [&] {
          auto batch = training.batches.next(); // moves the loader, which must be saved too
          const double loss = mse_loss(training.model(batch[0]), batch[1]).item();
          training.optimizer.set_lr(training.plateau.update(loss));
          return io::Measurements{{"validation", loss}};
        });
  }
  Training training;
  Loop loop;
};

TEST(Loop, AResumedRunWritesTheSameBits) {
  test::TempFolder folder;
  auto options = [&](const char* name) {
    return LoopOptions{.steps = 40,
                       .evaluate_every = 7,
                       .checkpoint = folder / name,
                       .checkpoint_every = 5,
                       .best = folder / (std::string(name) + ".best"),
                       .metadata = {{"model", "mlp"}}};
  };
  Attempt whole(options("whole"));
  whole.loop.add_log(csv(folder / "whole.csv"));
  const Outcome want = whole();
  for (std::int64_t stop : {3, 5, 14, 22, 39}) { // an exception leaves what a kill would leave
    std::filesystem::remove(folder / "parts");
    std::filesystem::remove(folder / "parts.best");
    Outcome got;
    for (int attempt = 0; attempt < 2; ++attempt) {
      Attempt part(options("parts"));
      EXPECT_EQ(part.loop.has_checkpoint(), attempt == 1 && stop > 5);
      if (part.loop.has_checkpoint()) {
        EXPECT_EQ(part.loop.resume().at("model"), "mlp");
        EXPECT_EQ(part.loop.step(), (stop - 1) / 5 * 5);
      }
      part.loop.add_log(csv(folder / "parts.csv", part.loop.step()));
      try {
        got = part([&](const Report& r) {
          if (attempt == 0 && r.step == stop) // before the checkpoint of this step
            throw std::runtime_error("killed");
          return true;
        });
        EXPECT_EQ(attempt, 1);
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "killed");
      }
    }
    EXPECT_EQ(test::read_file(folder / "parts"), test::read_file(folder / "whole")) << stop;
    EXPECT_EQ(test::read_file(folder / "parts.best"), test::read_file(folder / "whole.best"))
        << stop;
    EXPECT_EQ(test::read_file(folder / "parts.csv"), test::read_file(folder / "whole.csv")) << stop;
    EXPECT_EQ(got.best, want.best);
    EXPECT_EQ(got.best_step, want.best_step);
    EXPECT_EQ(got.loss, want.loss);
  }
  Attempt again(options("whole"));
  again.loop.resume();
  const Outcome nothing = again();
  EXPECT_EQ(nothing.steps, 40);
  EXPECT_FALSE(nothing.loss);
  EXPECT_EQ(nothing.best, want.best);
}

/// A loop over nothing, with given evaluations.
struct Curve {
  struct State {
    Tensor value = scalar(0.0);
    EGRET_FIELDS(value)
  };
  explicit Curve(LoopOptions options) : loop(state, std::move(options)) {}
  Outcome operator()(const std::vector<double>& evaluations) {
    std::size_t i = 0;
    return loop.run(
        [&](std::int64_t step) {
          state.value.assign(static_cast<double>(step + 1));
          return state.value * 1.0;
        },
        [&] {
          return io::Measurements{{"validation", evaluations.at(i++)}, {"other", 1}};
        });
  }
  State state;
  Loop loop;
};

double saved(const std::filesystem::path& path) {
  return io::load_safetensors(path).at("value").item();
}

TEST(Loop, StopsWhenPatienceRunsOutAndKeepsTheBest) {
  test::TempFolder folder;
  LoopOptions options{.steps = 100,
                      .evaluate_every = 2,
                      .patience = 3,
                      .checkpoint = folder / "last",
                      .best = folder / "best"};
  Curve curve(options);
  const Outcome o = curve({5, 3, 4, 3, std::nan("")});
  EXPECT_TRUE(o.stopped_early);
  EXPECT_EQ(o.steps, 10);
  EXPECT_EQ(o.best, 3);
  EXPECT_EQ(o.best_step, 4);
  EXPECT_EQ(o.loss, 10);
  EXPECT_EQ(saved(folder / "best"), 4);
  EXPECT_EQ(saved(folder / "last"), 10);
  Curve resumed(options); // still out of patience
  resumed.loop.resume();
  EXPECT_EQ(resumed({}).steps, 10);
  options.patience = 5;
  Curve patient(options);
  patient.loop.resume();
  EXPECT_EQ(patient({2, 3, 3, 3, 3, 3}).best_step, 12);
}

TEST(Loop, HigherMayBeBetter) {
  Curve curve({.steps = 4, .evaluate_every = 1, .higher_is_better = true});
  const Outcome o = curve({0.1, 0.9, 0.9, 0.5});
  EXPECT_EQ(o.best, 0.9);
  EXPECT_EQ(o.best_step, 2);
}

TEST(Loop, EvaluatesAndLogsWhenItIsDue) {
  test::TempFolder folder;
  Curve curve({.steps = 7, .log_every = 3, .evaluate_every = 2});
  curve.loop.add_log(csv(folder / "a.csv"));
  std::vector<std::int64_t> seen;
  curve.loop.set_observer([&](const Report& r) {
    EXPECT_EQ(r.loss.has_value(), r.step % 3 == 0 || r.step == 7);
    EXPECT_EQ(r.measured.empty(), r.step % 2 != 0 && r.step != 7);
    seen.push_back(r.step);
    return true;
  });
  curve({1, 2, 3, 4});
  EXPECT_EQ(seen, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(test::read_file(folder / "a.csv"),
            "step,loss,other,validation\n2,,1,1\n3,3,,\n4,,1,2\n6,6,1,3\n7,7,1,4\n");
}

TEST(Loop, AnObserverMayEndIt) {
  test::TempFolder folder;
  Curve curve({.steps = 100, .checkpoint = folder / "a"});
  curve.loop.set_observer([](const Report& r) { return r.step < 4; });
  EXPECT_EQ(curve({}).steps, 4);
  EXPECT_EQ(saved(folder / "a"), 4);
}

} // namespace
} // namespace egret::training

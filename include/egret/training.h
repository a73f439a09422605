// The training loop: measurements, logs, early stopping, checkpoints, and resumption of a run that
// was stopped.
//
// clang-format off
//   struct Training {
//     models::Gpt model;
//     optim::AdamW optimizer;
//     Generator dropout;
//     data::PrefetchLoader batches;
//     EGRET_FIELDS(model, optimizer, dropout, batches)
//   } training = ...;
//   auto step = compile([](Training& t, const Tensor& x, const Tensor& y) { ...; return loss; });
//
//   training::Loop loop(training, {.steps = 5000, .evaluate_every = 250,
//                                  .checkpoint = "run.safetensors", .checkpoint_every = 500});
//   if (loop.has_checkpoint())
//     loop.resume();
//   loop.add_log(std::make_unique<io::CsvLog>("run.csv", columns, loop.step()));
//   loop.run([&](std::int64_t) {
//              auto b = training.batches.next();
//              return step(training, b[0], b[1]);
//            },
//            [&] { return io::Measurements{{"validation", validation_loss()}}; });
// clang-format on
//
// A run that was killed at any moment and resumed writes the same bits into its checkpoints and
// logs as one that never stopped, when everything that its steps depend on is in the tree or
// follows from the step's number, and the same kernels run (a search by measurement may choose
// others).
#pragma once

#include "egret/checkpoint.h"
#include "egret/metrics.h"
#include "egret/tree.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace egret::training {

struct LoopOptions {
  std::int64_t steps = 1000;  ///< in all, those before a resumed checkpoint among them
  std::int64_t log_every = 1; ///< steps between records; others read the loss for a checkpoint only
  std::int64_t evaluate_every = 0;   ///< steps between evaluations; 0: after the last step only
  std::string judged = "validation"; ///< the measurement that tells whether a model is better
  bool higher_is_better = false;
  std::int64_t patience =
      0; ///< evaluations in a row without a better one that end the run; 0: none
  std::filesystem::path checkpoint = {}; ///< written at the end and every `checkpoint_every` steps
  std::int64_t checkpoint_every = 0;     ///< 0: at the end only
  std::filesystem::path best = {};       ///< checkpoint of the best evaluation
  /// Goes into all checkpoints; names that start with "loop." are taken.
  io::Metadata metadata = {};
};

/// Error(Value) naming the step when a loss is NaN or infinite: what comes after it is of no use.
void check_loss(double loss, std::int64_t step);

/// The first floating-point tensor of a tree that has a NaN or an infinity; nullopt when none has.
std::optional<std::string> first_not_finite(const std::vector<NamedTensor>& tensors);

/// What is told after a step.
struct Report {
  std::int64_t step = 0;      ///< steps done
  std::optional<double> loss; ///< when it was read
  io::Measurements measured;  ///< when it was evaluated
};

struct Outcome {
  std::int64_t steps = 0;     ///< done in all
  std::optional<double> loss; ///< of the last step, unless none was done
  std::optional<double> best; ///< the best evaluation, with its step
  std::int64_t best_step = 0;
  bool stopped_early = false; ///< patience ran out
};

class Loop {
public:
  using Step =
      std::function<Tensor(std::int64_t step)>; ///< does step number `step` (from 0); the loss
  using Evaluate = std::function<io::Measurements()>;
  using Observer = std::function<bool(const Report&)>; ///< false ends the run, with a checkpoint

  /// `state`: the tree that checkpoints hold; it must outlive the loop. Error(Value) for options
  /// that make no sense.
  template <class T>
  Loop(T& state, LoopOptions options)
      : Loop(std::move(options), [&state] { return named_tensors(state); }) {}

  bool has_checkpoint() const; ///< whether the file options.checkpoint is there
  /// Puts the checkpoint into the state and goes to its step. Error(File) when it is damaged or no
  /// loop wrote it, Error(Value) and Error(Shape) when its tensors do not fit; nothing is changed
  /// then. Returns the metadata.
  io::Metadata resume();

  std::int64_t step() const noexcept { return step_; } ///< steps done
  void add_log(std::unique_ptr<io::MetricLog> log);    ///< gets "loss" and what evaluations give
  void set_observer(Observer observer) { observer_ = std::move(observer); }

  /// Runs the steps that are left. An evaluation is judged by options.judged, which it must give
  /// (Error(Value)); NaN is never better. Where a checkpoint can never be written is an Error(File)
  /// before the first step. A loss that is read and not finite ends the run with Error(Value), as
  /// does a state that has become so when it is to be saved. After an exception the last checkpoint
  /// stands.
  Outcome run(const Step& step, const Evaluate& evaluate = {});

private:
  using Tensors = std::function<std::vector<NamedTensor>()>;
  Loop(LoopOptions options, Tensors tensors);

  bool out_of_patience() const;
  bool due(std::int64_t every) const;
  void judge(const io::Measurements& measured);
  void check_state() const;
  void save(const std::filesystem::path& path) const;

  LoopOptions options_;
  Tensors tensors_;
  std::vector<std::unique_ptr<io::MetricLog>> logs_;
  Observer observer_;
  std::int64_t step_ = 0;
  std::int64_t saved_step_ = -1; ///< of the checkpoint that stands
  std::optional<double> best_;
  std::int64_t best_step_ = 0;
  std::int64_t worse_ = 0; ///< evaluations since the best
  bool finite_ = false;    ///< the state was when the run began
};

} // namespace egret::training

// egret train addition: a small transformer learns to add, and what the compiler did for it is
// told.
#include "train.h"

#include "addition.h"
#include "console.h"

#include "egret/checkpoint.h"
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/optim.h"
#include "support/output_file.h"

#include <chrono>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

using Clock = std::chrono::steady_clock;

struct AdditionTraining {
  models::Gpt model;
  optim::AdamW optimizer;
  EGRET_FIELDS(model, optimizer)

  AdditionTraining(const models::GptOptions& shape, Generator generator)
      : model(shape, generator),
        optimizer(nn::named_parameters(model), {.beta2 = 0.98, .decay_matrices_only = true}) {}
};

/// One step; returns the loss.
Tensor addition_step(AdditionTraining& training, const Tensor& tokens, const Tensor& answers) {
  Tensor loss = cross_entropy(addition::answer_logits(training.model, tokens), answers);
  training.optimizer.zero_grad();
  loss.backward();
  optim::clip_grad_norm(training.optimizer.parameters(), 1.0);
  training.optimizer.step();
  return loss;
}

/// What one step costs, measured on a training of its own so that the real one is not touched.
struct StepCost {
  std::uint64_t operations = 0, kernels = 0;
  std::uint64_t peak_bytes =
      0; ///< of the training's own memory, its parameters and optimizer state included
  double step_seconds = 0; ///< the median
};

class MeasuredStep {
public:
  /// Compiles the step, runs it, and finds everything but its time.
  MeasuredStep(const AdditionOptions& options, const CompileOptions& how)
      : others_(counters().bytes_in_use), generator_(options.seed),
        training_(options.shape, generator_), step_(compile(&addition_step, how)) {
    std::vector<std::int64_t> problems(static_cast<std::size_t>(options.batch));
    for (std::size_t i = 0; i < problems.size(); ++i)
      problems[i] = static_cast<std::int64_t>(i * 3571) % addition::kProblems;
    batch_ = addition::batch_of(problems);
    eval(named_values(training_));

    Counters before = counters();
    run();
    cost_.operations = (counters() - before).ops_recorded;
    reset_peak_bytes();
    before = counters();
    run();
    cost_.kernels = (counters() - before).kernels_launched;
    cost_.peak_bytes = counters().peak_bytes - others_;
  }
  void time() {
    const auto start = Clock::now();
    run();
    times_.push_back(seconds_since(start));
  }
  StepCost cost() {
    const auto middle = times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 2);
    std::nth_element(times_.begin(), middle, times_.end());
    cost_.step_seconds = *middle;
    return cost_;
  }

private:
  void run() { step_(training_, batch_.tokens, batch_.answers).item(); }

  std::uint64_t others_; ///< bytes of others
  Generator generator_;
  AdditionTraining training_;
  addition::Batch batch_;
  Compiled<Tensor (*)(AdditionTraining&, const Tensor&, const Tensor&)> step_;
  StepCost cost_;
  std::vector<double> times_;
};

/// What a search that is shown may take.
constexpr double kSearchSeconds = 15;
/// Steps of each kind that are timed.
constexpr int kRounds = 30;

void tell_comparison(const AdditionOptions& options, nlohmann::ordered_json& result) {
  log("Comparing with the same step run operation by operation, and with kernels that a search of "
      "{:.0f} s chooses ...",
      kSearchSeconds);
  MeasuredStep op_by_op(options, {.name = "step, op by op", .fuse = false, .effort = Effort::None}),
      greedy(options, {.name = "step", .effort = Effort::None}),
      found(options,
            {.name = "step, searched", .effort = Effort::Search, .budget_seconds = kSearchSeconds});
  for (int round = 0; round < kRounds; ++round) // in turn, so that noise falls on all
    for (MeasuredStep* step : {&op_by_op, &greedy, &found})
      step->time();
  const StepCost plain = op_by_op.cost(), fused = greedy.cost(), searched = found.cost();
  double tokens =
      static_cast<double>(options.batch * (addition::kQuestion + addition::kAnswer - 1));
  log("{}", styled(Style::Bold, "What the compiler did"));
  log("  {:<33} {:>11} {:>11} {:>11}", fmt::format("{} operations in a step", fused.operations),
      "op by op", "greedy", "searched");
  const auto row = [&](const char* what, auto&& shown) {
    log("  {:<33} {:>11} {:>11} {:>11}", what, shown(plain), shown(fused), shown(searched));
  };
  row("kernels", [](const StepCost& c) { return std::to_string(c.kernels); });
  row("peak memory",
      [](const StepCost& c) { return bytes_text(static_cast<double>(c.peak_bytes)); });
  row("time of a step",
      [](const StepCost& c) { return fmt::format("{:.2f} ms", 1e3 * c.step_seconds); });
  row("tokens a second", [&](const StepCost& c) { return count_text(tokens / c.step_seconds); });
  auto json = [&](const StepCost& cost) {
    return nlohmann::ordered_json{{"kernels", cost.kernels},
                                  {"peak_bytes", cost.peak_bytes},
                                  {"step_seconds", cost.step_seconds},
                                  {"tokens_per_second", tokens / cost.step_seconds}};
  };
  result["operations"] = fused.operations;
  result["fused"] = json(fused);
  result["op_by_op"] = json(plain);
  result["searched"] = json(searched);
}

} // namespace

void train_addition(const AdditionOptions& options) {
  output_target("train addition --out", options.out);
  Generator generator(options.seed);
  AdditionTraining training(options.shape, generator);
  addition::Split split(options.seed, options.held_out);
  auto parameters = training.optimizer.parameters();
  log("A transformer of {} layers, width {}, {} heads: {} parameters. {} problems, {} of them "
      "never trained on.",
      options.shape.layers, options.shape.width, options.shape.heads, nn::count(parameters),
      addition::kProblems, options.held_out);

  optim::WarmupCosine schedule{.peak = options.lr,
                               .warmup = std::max<std::int64_t>(1, options.steps / 20),
                               .total = options.steps,
                               .least = options.lr / 100};
  auto step =
      compile(&addition_step, {.name = "addition training", .memory_limit = options.memory_limit});
  addition::Solver solver(training.model);
  std::span<const std::int64_t> quick =
      std::span(split.held_out).first(std::min<std::size_t>(split.held_out.size(), 250));

  const double tokens_a_step =
      static_cast<double>(options.batch * (addition::kQuestion + addition::kAnswer - 1));
  const auto start = Clock::now();
  double loss = 0;
  double match = 0;
  Counters first_counts;
  double first_step = 0; // seconds of the first one, which compiles
  double stepping = 0;   // of the others
  Progress progress;
  for (std::int64_t i = 0; i < options.steps; ++i) {
    std::vector<std::int64_t> problems(static_cast<std::size_t>(options.batch));
    for (std::size_t k = 0; k < problems.size(); ++k)
      problems[k] = split.training[(static_cast<std::size_t>(i) * problems.size() + k) %
                                   split.training.size()];
    auto batch = addition::batch_of(problems);
    training.optimizer.set_lr(schedule.at(i));
    const Counters before = counters();
    auto step_start = Clock::now();
    loss = step(training, batch.tokens, batch.answers).item();
    (i > 0 ? stepping : first_step) += seconds_since(step_start);
    training::check_loss(loss, i + 1);
    if (i == 0)
      first_counts = counters() - before;
    bool last = i + 1 == options.steps;
    if ((i + 1) % options.evaluate_every == 0 || last)
      match = solver.exact_match(quick);
    progress.update(
        [&] {
          double rate = i > 0 ? tokens_a_step * static_cast<double>(i) / stepping : 0;
          return fmt::format(
              "step {:>5}/{}  loss {:.4f}  {:>6} tokens/s  exact match {:5.1f} %  {}", i + 1,
              options.steps, loss, count_text(rate), 100 * match,
              seconds_text(seconds_since(start)));
        },
        last);
  }
  progress.finish();
  const double seconds = seconds_since(start);
  match = solver.exact_match(split.held_out);
  log("{} of {} problems that were never trained on are answered exactly: {}",
      std::llround(match * static_cast<double>(options.held_out)), options.held_out,
      styled(match >= 0.99 ? Style::Good : Style::Bad, fmt::format("{:.1f} %", 100 * match)));

  auto metadata = addition::metadata_of(options.shape);
  metadata["steps"] = std::to_string(options.steps);
  check_trained(training);
  save_checkpoint(options.out, training, metadata);
  log("Saved to {}. The first step, which compiled {} kernels, took {}", options.out,
      first_counts.kernels_compiled, seconds_text(first_step));

  std::vector<std::string> questions;
  for (std::size_t i = 0; i < 5 && i < split.held_out.size(); ++i)
    questions.push_back(addition::text_of(split.held_out[i]).substr(0, addition::kQuestion));
  auto answers = solver.solve(questions);
  for (std::size_t i = 0; i < questions.size(); ++i)
    log("  {}{:04}", questions[i], addition::number_of(answers[i]));
  log("Ask it yourself: egret ask --model {} 123+456", options.out);

  nlohmann::ordered_json result = {
      {"task", "addition"},
      {"steps", options.steps},
      {"seconds", seconds},
      {"loss", loss},
      {"exact_match", match},
      {"held_out", options.held_out},
      {"parameters", nn::count(parameters)},
      {"tokens_per_second",
       options.steps > 1 ? tokens_a_step * static_cast<double>(options.steps - 1) / stepping : 0},
      {"compile_seconds", first_step},
      {"checkpoint", options.out}};
  if (options.compare)
    tell_comparison(options, result);
  if (options.json)
    fmt::print("{}\n", result.dump());
  else
    fmt::print("exact match {:.1f} %\n", 100 * match);
}

} // namespace egret::tool

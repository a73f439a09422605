// egret train text: a GPT over the characters of a text.
#include "train.h"

#include "console.h"

#include "egret/autocast.h"
#include "egret/compile.h"
#include "egret/data.h"
#include "egret/optim.h"
#include "egret/prefetch.h"
#include "egret/text_model.h"
#include "egret/training.h"
#include "models/language/folder.h"
#include "support/output_file.h"
#include "support/read_text.h"

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

using Clock = std::chrono::steady_clock;

struct TextTraining {
  models::Gpt model;
  optim::AdamW optimizer;
  Generator generator; ///< of dropout
  data::PrefetchLoader batches;
  EGRET_FIELDS(model, optimizer, generator, batches)
};

Tensor loss_of(const models::Gpt& model, const Tensor& inputs, const Tensor& targets,
               DType products, Generator* generator) {
  const Autocast scope(products);
  return cross_entropy(model(inputs, generator), targets);
}

Tensor text_step(TextTraining& t, const Tensor& inputs, const Tensor& targets, DType products) {
  Tensor loss = loss_of(t.model, inputs, targets, products, &t.generator);
  t.optimizer.zero_grad();
  loss.backward();
  optim::clip_grad_norm(t.optimizer.parameters(), 1.0);
  t.optimizer.step();
  return loss;
}

/// The text as numbers, what is trained on and what is not.
struct Text {
  data::CharCodec codec;
  std::vector<std::int64_t> training, held_out;
};

Text load_text(const TextOptions& o) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 40; // a corpus, bounded by memory
  const std::string text = read_text(o.data, kMost);
  if (text.empty())
    throw Error(ErrorKind::Value, fmt::format("{}: the file is empty", o.data));
  data::CharCodec codec = data::CharCodec::of_text(text);
  const auto held =
      static_cast<std::size_t>(std::llround(o.held_out * static_cast<double>(text.size())));
  const std::size_t trained = text.size() - held;
  const auto context = static_cast<std::size_t>(o.shape.context);
  if (std::min(held, trained) <= context)
    throw Error(
        ErrorKind::Value,
        fmt::format("{}: {} characters, {} of them held out: both parts must be longer than "
                    "--context {}",
                    o.data, text.size(), held, context));
  auto numbers = codec.encode(text);
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(trained);
  return {std::move(codec), {numbers.begin(), middle}, {middle, numbers.end()}};
}

/// What a run depends on beside its steps; a resumed one must agree.
io::Metadata settings_of(const TextOptions& o, const Text& text) {
  std::uint64_t hash = 0;
  for (const auto* part : {&text.training, &text.held_out})
    for (std::int64_t number : *part)
      hash = hash * 0x100000001b3U ^ static_cast<std::uint64_t>(number + 1);
  return {{"run.batch", std::to_string(o.batch)},
          {"run.data", fmt::format("{} characters, {:016x}",
                                   text.training.size() + text.held_out.size(), hash)},
          {"run.dropout", fmt::format("{}", o.shape.dropout)},
          {"run.held-out", fmt::format("{}", o.held_out)},
          {"run.lr", fmt::format("{}", o.lr)},
          {"run.precision", o.precision},
          {"run.seed", std::to_string(o.seed)},
          {"run.weight-decay", fmt::format("{}", o.weight_decay)}};
}

void expect_same_run(const io::Metadata& wanted, const std::string& file) {
  const io::Metadata found = io::SafetensorsFile(file).metadata();
  for (const auto& [name, value] : wanted) {
    const auto other = found.find(name);
    const std::string shown = name.starts_with("run.") ? name.substr(4) : name;
    if (other == found.end() || other->second != value)
      throw Error(ErrorKind::Value,
                  fmt::format("{}: cannot resume: --{} is {} now, the checkpoint has {}", file,
                              shown, value, other == found.end() ? "none" : other->second));
  }
}

TextTraining make_training(const TextOptions& o, const data::TextWindows& windows) {
  Generator g(o.seed);
  models::Gpt model(o.shape, g);
  // One epoch without an end: each step draws its own positions.
  constexpr std::int64_t kSteps = std::int64_t{1} << 40;
  auto make = [windows, batch = o.batch, seed = o.seed](std::int64_t, std::int64_t step) {
    auto [inputs, targets] =
        windows.random(batch, (seed << 40U) + static_cast<std::uint64_t>(step));
    return std::vector<Tensor>{inputs, targets};
  };
  optim::AdamW optimizer(
      nn::named_parameters(model),
      {.lr = o.lr, .beta2 = 0.99, .weight_decay = o.weight_decay, .decay_matrices_only = true});
  return {std::move(model), std::move(optimizer), g, data::PrefetchLoader(kSteps, make)};
}

std::unique_ptr<io::MetricLog> log_of(const TextOptions& o, std::optional<std::int64_t> keep_to) {
  const std::filesystem::path path = o.log;
  if (path.extension() == ".csv")
    return std::make_unique<io::CsvLog>(path, std::vector<std::string>{"loss", "validation"},
                                        keep_to);
  if (path.extension() == ".jsonl")
    return std::make_unique<io::JsonLinesLog>(path, keep_to);
  return std::make_unique<io::TensorBoardLog>(path);
}

/// The mean loss of held-out windows, one after the other.
class Validation {
public:
  Validation(const Text& text, const TextOptions& o)
      : windows_(text.held_out, o.shape.context), batch_(std::min(o.batch, windows_.in_order())),
        batches_(std::min(kMostBatches, windows_.in_order() / batch_)) {}

  double operator()(const models::Gpt& model) {
    double sum = 0;
    for (std::int64_t i = 0; i < batches_; ++i) {
      auto [inputs, targets] = windows_.in_order(i * batch_, batch_);
      sum += loss_(model, inputs, targets).item();
    }
    return sum / static_cast<double>(batches_);
  }

private:
  static Tensor loss(const models::Gpt& model, const Tensor& inputs, const Tensor& targets) {
    return loss_of(model, inputs, targets, DType::F32, nullptr);
  }
  static constexpr std::int64_t kMostBatches = 32;
  data::TextWindows windows_;
  std::int64_t batch_, batches_;
  decltype(compile(&loss)) loss_ = compile(&loss, {.name = "text validation"});
};

} // namespace

void train_text(const TextOptions& given) {
  TextOptions o = given;
  for (const auto& [option, path] : {std::pair("--out", o.out), {"--best", o.best}})
    if (!path.empty())
      output_target(fmt::format("train text {}", option), path);
  if (!o.exported.empty())
    models::language::require_new_folder(o.exported);
  const Text text = load_text(o);
  o.shape.vocabulary = text.codec.size();
  io::Metadata metadata = models::text_metadata(o.shape, text.codec);
  metadata.merge(settings_of(o, text));
  const data::TextWindows windows(text.training, o.shape.context);
  TextTraining training = make_training(o, windows);
  Validation validation(text, o);

  training::Loop loop(training, {.steps = o.steps,
                                 .log_every = 10,
                                 .evaluate_every = o.evaluate_every,
                                 .patience = o.patience,
                                 .checkpoint = o.out,
                                 .checkpoint_every = o.checkpoint_every,
                                 .best = o.best,
                                 .metadata = metadata});
  const bool resumed = o.resume && loop.has_checkpoint();
  if (resumed) {
    expect_same_run(metadata, o.out);
    loop.resume();
  }
  if (!o.log.empty())
    loop.add_log(log_of(o, o.resume ? std::optional(loop.step()) : std::nullopt));
  log("{} characters, {} different ones, the last {} held out; a transformer of {} layers, width "
      "{}: "
      "{} parameters{}",
      text.training.size() + text.held_out.size(), text.codec.size(), text.held_out.size(),
      o.shape.layers, o.shape.width, nn::count(training.optimizer.parameters()),
      resumed ? fmt::format("; continues after step {}", loop.step()) : "");

  const optim::WarmupCosine schedule{.peak = o.lr,
                                     .warmup = std::min<std::int64_t>(100, o.steps / 10),
                                     .total = o.steps,
                                     .least = o.lr / 10};
  const DType products = o.precision == "bf16" ? DType::BF16 : DType::F32;
  auto step = compile(&text_step, {.name = "text training", .memory_limit = o.memory_limit});
  double stepping = 0; // seconds of steps but the first, which compiles, and what they trained on
  std::int64_t timed = 0;
  bool first = true;
  Clock::time_point begin;
  const auto start = Clock::now();
  auto tokens_per_second = [&] {
    return timed > 0 ? static_cast<double>(timed * o.batch * o.shape.context) / stepping : 0;
  };
  std::optional<double> validated, loss;
  const auto shown = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.4f}", *value) : std::string("-");
  };
  Progress progress;
  loop.set_observer([&](const training::Report& report) {
    if (report.loss)
      loss = report.loss;
    if (auto found = report.measured.find("validation"); found != report.measured.end())
      validated = found->second;
    progress.update(
        [&] {
          return fmt::format(
              "step {:>5}/{}  loss {}  validation {}  {:>6} tokens/s  {}", report.step, o.steps,
              shown(loss), shown(validated), count_text(tokens_per_second()),
              seconds_text(std::chrono::duration<double>(Clock::now() - start).count()));
        },
        report.step == o.steps || !report.measured.empty());
    return true;
  });
  const training::Outcome outcome = loop.run(
      [&](std::int64_t i) {
        begin = Clock::now();
        auto batch = training.batches.next();
        training.optimizer.set_lr(schedule.at(i));
        Tensor value = step(training, batch[0], batch[1], products).eval();
        if (!first) {
          stepping += std::chrono::duration<double>(Clock::now() - begin).count();
          ++timed;
        }
        first = false;
        return value;
      },
      [&] {
        return io::Measurements{{"validation", validation(training.model)}};
      });
  progress.finish();
  log("{}Saved to {}. Let it write: egret generate --model {} --prompt \"The \"",
      outcome.stopped_early
          ? fmt::format("Stopped after step {}, nothing got better. ", outcome.steps)
          : "",
      o.out, o.out);
  if (!o.exported.empty()) {
    models::export_text_model(models::load_text_model(o.best.empty() ? o.out : o.best), o.exported);
    log("Exported to {}. Talk with it: egret chat --model {}", o.exported, o.exported);
  }
  if (o.json)
    fmt::print("{}\n",
               nlohmann::ordered_json{
                   {"task", "text"},
                   {"steps", outcome.steps},
                   {"loss", outcome.loss ? nlohmann::ordered_json(*outcome.loss) : nullptr},
                   {"validation", outcome.best ? nlohmann::ordered_json(*outcome.best) : nullptr},
                   {"best_step", outcome.best_step},
                   {"stopped_early", outcome.stopped_early},
                   {"tokens_per_second", tokens_per_second()},
                   {"checkpoint", o.out}}
                   .dump());
  else
    fmt::print("validation loss {}\n", shown(outcome.best));
}

} // namespace egret::tool

// egret finetune: a language model learns from a file of conversations or texts.
#include "commands.h"
#include "console.h"
#include "effort_options.h"
#include "interrupts.h"
#include "memory_option.h"
#include "number_option.h"

#include "egret/error.h"
#include "egret/finetune.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

using Clock = std::chrono::steady_clock;

struct FinetuneOptions {
  std::string model, data, out, dtype;
  finetune::Options how;
  std::optional<std::int64_t> rank;
  std::optional<double> alpha;
  std::vector<std::string> targets;
  bool json = false;
};

std::string shown(const std::optional<double>& value) {
  return value ? fmt::format("{:.4f}", *value) : std::string("-");
}

/// A line for each step that a terminal has time for, and one for each measurement.
class Report {
public:
  bool operator()(const finetune::Progress& p) {
    if (p.loss)
      loss_ = p.loss;
    if (p.held_out)
      held_out_ = p.held_out;
    // The first step compiles.
    if (++told_ == 2)
      timed_from_ = Clock::now();
    const auto timed = static_cast<double>((told_ - 2) * p.step_tokens);
    progress_.update(
        [&] {
          return fmt::format("step {:>5}/{}  loss {}  held-out loss {}  {:>6} tokens/s  {}", p.step,
                             p.steps, shown(loss_), shown(held_out_),
                             count_text(told_ > 2 ? timed / seconds_since(timed_from_) : 0),
                             seconds_text(seconds_since(start_)));
        },
        p.held_out.has_value() || p.step == p.steps);
    return !Interrupts::requested();
  }
  void finish() { progress_.finish(); }

private:
  Progress progress_;
  std::optional<double> loss_, held_out_;
  std::int64_t told_ = 0;
  Clock::time_point start_ = Clock::now(), timed_from_;
};

nlohmann::ordered_json or_null(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

void finetune_model(FinetuneOptions o) {
  if (o.rank)
    o.how.lora = finetune::Lora{.rank = *o.rank,
                                .alpha = o.alpha.value_or(2 * static_cast<double>(*o.rank)),
                                .targets = o.targets};
  else if (o.alpha || !o.targets.empty())
    throw UsageError("finetune: --alpha and --targets are for --lora RANK");
  if (!o.dtype.empty())
    o.how.dtype = dtype_named(o.dtype);
  const Interrupts interrupts(Interrupts::Reads::GoOn, Interrupts::Also::Terminate);
  Interrupts::clear();
  Report report;
  const finetune::Outcome done =
      finetune::run(o.model, o.data, o.out, o.how, [&](const auto& p) { return report(p); });
  report.finish();
  log("{} samples in {} rows, {} samples held out; {} parameters trained", done.samples, done.rows,
      done.held_out_samples, count_text(static_cast<double>(done.parameters)));
  if (done.stopped) {
    log("Stopped after step {}; --resume continues", done.steps);
    throw CLI::RuntimeError(kInterrupted);
  }
  log("Saved to {}. Talk with it: egret chat --model {}{}", o.out, o.rank ? o.model : o.out,
      o.rank ? " --adapter " + o.out : "");
  if (o.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"steps", done.steps},
                                              {"parameters", done.parameters},
                                              {"samples", done.samples},
                                              {"held_out_samples", done.held_out_samples},
                                              {"rows", done.rows},
                                              {"loss", or_null(done.loss)},
                                              {"held_out_before", or_null(done.held_out_before)},
                                              {"held_out", or_null(done.held_out)},
                                              {"out", o.out}}
                           .dump());
  else if (done.held_out)
    fmt::print("held-out loss {} before, {} after\n", shown(done.held_out_before),
               shown(done.held_out));
}

} // namespace

void add_finetune_command(CLI::App& app) {
  auto options = std::make_shared<FinetuneOptions>();
  finetune::Options& how = options->how;
  auto* command = app.add_subcommand("finetune", "Train a language model on answers and texts");
  command->footer(
      "A line of FILE is {\"messages\": [{\"role\": ..., \"content\": ...}, ...]}, of which the\n"
      "answers (role assistant) are learnt, {\"prompt\": ..., \"completion\": ...} or\n"
      "{\"text\": ...} (docs/finetuning.md). With --lora, adapters are trained and saved as PEFT\n"
      "has them, otherwise all weights. Ctrl-C stops with a checkpoint that --resume continues.\n"
      "Equal options give equal bytes.");
  command->add_option("--model", options->model, "A folder with config.json and safetensors")
      ->required();
  command->add_option("--data", options->data, "The samples, as JSON lines")->required();
  command->add_option("--out", options->out, "A folder that is not there, or empty")->required();
  command->add_option("--lora", options->rank, "Train adapters of this rank beside the matrices")
      ->check(whole_within(1, 1 << 16));
  command
      ->add_option("--alpha", options->alpha, "Adapters count alpha / rank times (default: 2 rank)")
      ->check(number_above(0));
  command
      ->add_option("--targets", options->targets,
                   "Matrices with adapters, as in q,v,o (default: those of queries and values)")
      ->delimiter(',');
  command->add_option("--tokenizer", how.tokenizer,
                      "A tokenizer.json, or a folder that has one (default: the model's)");
  command
      ->add_option(
          "--length", how.length,
          "Tokens of a row, which holds whole samples (default: the context, at most 1024)")
      ->check(whole_within(2, 1 << 24));
  command->add_option("--batch", how.batch, "Rows a step")
      ->check(whole_within(1, 65536))
      ->capture_default_str();
  auto* epochs = command->add_option("--epochs", how.epochs, "Rounds over the rows")
                     ->check(whole_within(1, 100000))
                     ->capture_default_str();
  command->add_option("--steps", how.steps, "Training steps, instead of rounds")
      ->check(whole_within(1, 100000000))
      ->excludes(epochs);
  command->add_option("--lr", how.lr, "Largest learning rate; it falls to 0 along a cosine")
      ->check(number_above(0))
      ->capture_default_str();
  command->add_option("--warmup", how.warmup, "Steps in which the rate rises")
      ->check(whole_within(0, 100000000))
      ->capture_default_str();
  command->add_option("--weight-decay", how.weight_decay, "Of matrices, as AdamW has it")
      ->check(number_from(0))
      ->capture_default_str();
  command->add_option("--clip", how.clip, "Most norm of the gradients; 0: any")
      ->check(number_from(0))
      ->capture_default_str();
  command->add_option("--held-out", how.held_out, "Share of the samples that is never trained on")
      ->check(number_within(0, 0.99))
      ->capture_default_str();
  command
      ->add_option("--evaluate-every", how.evaluate_every,
                   "Steps between measurements of the held-out loss (default: at the ends)")
      ->check(whole_within(1, 100000000));
  command
      ->add_option("--checkpoint-every", how.checkpoint_every,
                   "Steps between checkpoints (default: only where it is stopped)")
      ->check(whole_within(1, 100000000));
  command->add_flag("--resume", how.resume, "Continue from the checkpoint in the output folder");
  command->add_option("--seed", how.seed, "Start of all random numbers")
      ->check(is_seed())
      ->capture_default_str();
  command
      ->add_option("--precision", options->dtype,
                   "Of products (default: bf16 for models stored in it, else f32)")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command->add_option("--ignore-key", how.ignored_keys,
                      "A key of config.json that egret does not know and may ignore");
  command->add_flag("--json", options->json, "Print the result as JSON");
  add_memory_option(*command, how.memory_limit, "a training step");
  add_computation(*command, [options] { finetune_model(*options); });
}

} // namespace egret::tool

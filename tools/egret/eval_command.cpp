// egret eval: measurements of a language model.
#include "commands.h"
#include "console.h"
#include "effort_options.h"
#include "interrupts.h"
#include "language.h"
#include "number_option.h"

#include "support/fail.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct EvalOptions {
  LanguageOptions language;
  models::PerplexityOptions windows;
  std::string text;
};

void measure_perplexity(EvalOptions o) {
  const Tokenizer tokenizer = tokenizer_of(o.language);
  const std::vector<int> tokens = tokenizer.encode(read_text(o.text));
  if (tokens.size() < 2)
    fail(ErrorKind::Value, "{}: {} tokens; two are the least", o.text, tokens.size());
  if (o.windows.length > 0 && o.windows.stride > o.windows.length)
    throw UsageError(fmt::format("eval ppl: --stride {} is more than --length {}", o.windows.stride,
                                 o.windows.length));
  if (o.windows.length > 0)
    o.language.context = o.windows.length;
  models::LanguageModel model = load_language_model(o.language);
  const Interrupts interrupts(Interrupts::Reads::GoOn);
  Interrupts::clear();
  Progress progress;
  const models::Perplexity found =
      models::perplexity(model, tokens, o.windows, [&](std::int64_t read) {
        progress.update([&] { return fmt::format("{} of {} tokens", read, tokens.size()); });
        return !Interrupts::requested();
      });
  progress.finish();
  if (Interrupts::requested()) {
    log("Stopped after {} tokens: perplexity {:.4f}", found.tokens, found.value);
    throw CLI::RuntimeError(kInterrupted);
  }
  if (o.language.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"perplexity", found.value},
                                              {"loss", found.loss},
                                              {"tokens", found.tokens}}
                           .dump());
  else
    fmt::print("perplexity {:.4f} ({} tokens, {:.4f} nats each)\n", found.value, found.tokens,
               found.loss);
}

} // namespace

void add_eval_command(CLI::App& app) {
  auto* eval = app.add_subcommand("eval", "Measure a language model");
  eval->require_subcommand(1);
  auto options = std::make_shared<EvalOptions>();
  LanguageOptions& language = options->language;
  auto* command = eval->add_subcommand("ppl", "The perplexity of a text");
  command->footer(
      "The text is read in windows; each token is scored once, in the first window that\n"
      "has it. Perplexity is e to the mean of -log p.");
  command->add_option("--model", language.model, "A folder, or a GGUF file")->required();
  command->add_option("--text", options->text, "The text, UTF-8")->required();
  auto* length = command
                     ->add_option("--length", options->windows.length,
                                  "Tokens of a window (default: the model's context, at most 4096)")
                     ->check(whole_within(2, 1 << 24));
  command
      ->add_option("--stride", options->windows.stride,
                   "Tokens between the beginnings of windows (default: half of one)")
      ->check(whole_within(1, 1 << 24));
  add_load_options(*command, language);
  command->get_option("--context")->excludes(length);
  command->add_flag("--json", language.json, "Print the result as JSON");
  add_computation(*command, [options] { measure_perplexity(*options); });
}

} // namespace egret::tool

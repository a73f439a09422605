// egret generate: a trained model continues a text.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "number_option.h"

#include "egret/text_model.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct GenerateOptions {
  std::string model = "text.safetensors", prompt, device;
  models::SampleOptions sample;
  bool json = false;
};

void generate(const GenerateOptions& o) {
  const models::TextModel model = models::load_text_model(o.model);
  std::string text;
  bool started = false;
  models::continue_text(model, o.prompt, o.sample, [&](char c) {
    text += c;
    if (o.json)
      return;
    if (!started)
      fmt::print("{}", o.prompt);
    started = true;
    std::fputc(c, stdout);
    if (stdout_is_terminal())
      std::fflush(stdout); // a reader sees each character as it comes
  });
  if (!o.json) {
    fmt::print("{}\n", started ? "" : o.prompt);
    return;
  }
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  fmt::print("{}\n", nlohmann::ordered_json{{"prompt", o.prompt}, {"text", text}}.dump(
                         -1, ' ', false, kReplace));
}

} // namespace

void add_generate_command(CLI::App& app) {
  auto options = std::make_shared<GenerateOptions>();
  auto* command = app.add_subcommand("generate", "Let a trained model continue a text");
  command->footer("The model comes from: egret train text --data FILE --out MODEL\n"
                  "Equal options give equal text.");
  command->add_option("--model", options->model, "The checkpoint")->capture_default_str();
  command->add_option("--prompt", options->prompt, "What the text starts with");
  command->add_option("--length", options->sample.length, "Characters to write")
      ->check(whole_within(0, 100000000))
      ->capture_default_str();
  command
      ->add_option("--temperature", options->sample.temperature,
                   "Below 1: likely characters more often; 0: always the likeliest")
      ->check(number_within(0, 1000))
      ->capture_default_str();
  command->add_option("--top-k", options->sample.top_k, "Only among the likeliest so many; 0: all")
      ->check(whole_within(0, 256))
      ->capture_default_str();
  command->add_option("--seed", options->sample.seed, "Start of all random numbers")
      ->check(is_seed())
      ->capture_default_str();
  command
      ->add_option("--keep", options->sample.keep,
                   "Characters that begin a new context when one is full; 0: half of it")
      ->check(whole_within(0, 1 << 20))
      ->capture_default_str();
  command->add_flag("!--no-cache", options->sample.cache,
                    "Read the whole context again for each character");
  command->add_flag("--json", options->json, "Print prompt and text as JSON");
  add_device_option(*command, options->device);
  auto effort = std::make_shared<EffortOptions>();
  add_effort_options(*command, *effort);
  command->callback([options, effort] {
    const EffortInForce in_force(*effort);
    turn_to(options->device);
    generate(*options);
  });
}

} // namespace egret::tool

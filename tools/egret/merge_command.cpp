// egret merge: a model's folder with an adapter added to its matrices.
#include "commands.h"
#include "console.h"
#include "device_option.h"

#include "egret/language_model.h"

#include <CLI/CLI.hpp>
#include <memory>

namespace egret::tool {

namespace {

struct MergeOptions {
  std::string model, adapter, out, device;
  std::vector<std::string> ignored_keys;
};

} // namespace

void add_merge_command(CLI::App& app) {
  auto options = std::make_shared<MergeOptions>();
  auto* command = app.add_subcommand("merge", "Write a language model with an adapter added to it");
  command->footer("The new folder needs no adapter any more; each matrix is rounded once, to the\n"
                  "dtype that it has in the model.");
  command->add_option("--model", options->model, "A folder with config.json and safetensors")
      ->required();
  command
      ->add_option("--adapter", options->adapter,
                   "A folder with a LoRA adapter of egret finetune or PEFT for the model")
      ->required();
  command->add_option("--out", options->out, "A folder that is not there, or empty")->required();
  command->add_option("--ignore-key", options->ignored_keys,
                      "A key of config.json that egret does not know and may ignore");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    models::merge_adapter(options->model, options->adapter, options->out, options->ignored_keys);
    log("Saved to {}", options->out);
  });
}

} // namespace egret::tool

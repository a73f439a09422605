// egret dequantize: a quantized folder as one of floats, which other programs read.
#include "commands.h"
#include "console.h"
#include "device_option.h"

#include "egret/language_model.h"

#include <CLI/CLI.hpp>
#include <memory>

namespace egret::tool {

namespace {

struct DequantizeCommandOptions {
  std::string model, out, dtype, device;
  models::DequantizeOptions write;
};

} // namespace

void add_dequantize_command(CLI::App& app) {
  auto options = std::make_shared<DequantizeCommandOptions>();
  auto* command =
      app.add_subcommand("dequantize", "Write a quantized language model with weights in floats");
  command->footer(
      "The new folder has the tensors that transformers knows, with the values that the\n"
      "quantized model computes with.");
  command->add_option("model", options->model, "A folder that egret quantize wrote")->required();
  command->add_option("out", options->out, "A folder that is not there, or empty")->required();
  command
      ->add_option("--dtype", options->dtype,
                   "Of the matrices that were quantized (default: as before, as their scales are)")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  command->add_option("--ignore-key", options->write.ignored_keys,
                      "A key of config.json that egret does not know and may ignore");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    if (!options->dtype.empty())
      options->write.dtype = dtype_named(options->dtype);
    models::dequantize_language_model(options->model, options->out, options->write);
    log("Saved to {}", options->out);
  });
}

} // namespace egret::tool

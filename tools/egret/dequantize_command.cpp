// egret dequantize: a quantized folder or a GGUF file as a folder of floats, which other programs
// read.
#include "commands.h"
#include "console.h"
#include "device_option.h"

#include "egret/language_model.h"
#include "support/path_status.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

namespace egret::tool {

namespace {

struct DequantizeCommandOptions {
  std::string model, out, dtype, device;
  models::DequantizeOptions write;
};

void dequantize(const DequantizeCommandOptions& o) {
  models::DequantizeOptions write = o.write;
  if (!o.dtype.empty())
    write.dtype = dtype_named(o.dtype);
  if (path_is_folder(o.model))
    models::dequantize_language_model(o.model, o.out, write);
  else if (!models::import_gguf(o.model, o.out,
                                {.dtype = write.dtype, .ignored_keys = write.ignored_keys}))
    log("{} has no tokenizer, and neither has the folder", o.model);
  log("Saved to {}", o.out);
}

} // namespace

void add_dequantize_command(CLI::App& app) {
  auto options = std::make_shared<DequantizeCommandOptions>();
  auto* command =
      app.add_subcommand("dequantize", "Write a quantized language model with weights in floats");
  command->footer(
      "The new folder has the tensors that transformers knows, with the values that the\n"
      "quantized model computes with; of a GGUF file also its configuration and tokenizer.");
  command->add_option("model", options->model, "A folder that egret quantize wrote, or a GGUF file")
      ->required();
  command->add_option("out", options->out, "A folder that is not there, or empty")->required();
  command
      ->add_option(
          "--dtype", options->dtype,
          "Of the matrices that were quantized (default: as before, as their scales are; of "
          "a GGUF file f32)")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}));
  command->add_option("--ignore-key", options->write.ignored_keys,
                      "A key of config.json that egret does not know and may ignore");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    dequantize(*options);
  });
}

} // namespace egret::tool

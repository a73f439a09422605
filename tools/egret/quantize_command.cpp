// egret quantize: a language model's folder with matrices of integers.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "number_option.h"

#include "egret/language_model.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct QuantizeCommandOptions {
  std::string model, out, device;
  models::QuantizeOptions how;
  bool json = false;
};

void quantize(const QuantizeCommandOptions& o) {
  const auto report = models::quantize_language_model(o.model, o.out, o.how);
  double before = 0, after = 0;
  auto rows = nlohmann::ordered_json::array();
  for (const models::QuantizedMatrix& matrix : report) {
    before += static_cast<double>(matrix.bytes_before);
    after += static_cast<double>(matrix.bytes_after);
    rows.push_back({{"name", matrix.name},
                    {"error", matrix.error},
                    {"bytes_before", matrix.bytes_before},
                    {"bytes_after", matrix.bytes_after}});
    if (!o.json)
      fmt::print("{:<56} error {:.4f}\n", matrix.name, matrix.error);
  }
  if (o.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"matrices", rows}}.dump());
  log("{} matrices, {} before, {} now", report.size(), bytes_text(before), bytes_text(after));
}

} // namespace

void add_quantize_command(CLI::App& app) {
  auto options = std::make_shared<QuantizeCommandOptions>();
  auto* command = app.add_subcommand("quantize", "Write a language model with smaller weights");
  command->footer("Matrices become integers with a scale for each group of neighbours in a row;\n"
                  "generate, chat and serve read the new folder and keep them packed in memory.\n"
                  "error: the 2-norm of the difference over that of the matrix.");
  command->add_option("model", options->model, "A folder with config.json and safetensors")
      ->required();
  command->add_option("out", options->out, "A folder that is not there, or empty")->required();
  command->add_option("--bits", options->how.bits, "Of an integer")
      ->check(CLI::IsMember({4, 8}))
      ->capture_default_str();
  command
      ->add_option("--group", options->how.group,
                   "Neighbours with one scale (default: 32 of 4 bits, a whole row of 8)")
      ->check(whole_within(1, 1 << 20));
  command->add_option("--ignore-key", options->how.ignored_keys,
                      "A key of config.json that egret does not know and may ignore");
  command->add_flag("--json", options->json, "Print the matrices as JSON");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    quantize(*options);
  });
}

} // namespace egret::tool

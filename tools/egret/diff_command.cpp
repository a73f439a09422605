// egret diff: where two saved runs differ first, and who made the difference.
#include "commands.h"
#include "console.h"
#include "number_option.h"

#include "compiler/values/run_diff.h"
#include "support/printable.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct DiffCommand {
  std::string first, second;
  double tolerance = 1;
  bool json = false;
};

nlohmann::ordered_json json_of(const compiler::RunDiff& diff) {
  nlohmann::ordered_json json = {{"culprit", name_of(diff.culprit)}, {"names", diff.names},
                                 {"compared", diff.compared},        {"differing", diff.differing},
                                 {"only_first", diff.alone[0]},      {"only_second", diff.alone[1]},
                                 {"complete", diff.complete()}};
  for (const int r : {0, 1})
    if (diff.cut_short[r])
      json["cut_short"].push_back(r == 0 ? "first" : "second");
  if (diff.run >= 0)
    json["run"] = diff.run == 0 ? "first" : "second";
  if (diff.differing > 0) {
    json["nodes"] = diff.nodes;
    json["node"] = diff.text_of_node;
    json["lines"] = diff.lines;
    json["detail"] = diff.detail;
  }
  return json;
}

void diff(const DiffCommand& command) {
  const compiler::SavedRun first = compiler::read_saved_run(command.first);
  const compiler::SavedRun second = compiler::read_saved_run(command.second);
  const compiler::RunDiff found = diff_runs(first, second, {.scale = command.tolerance});
  if (command.json)
    fmt::print("{}\n", json_of(found).dump(2, ' ', false,
                                           nlohmann::ordered_json::error_handler_t::replace));
  else
    fmt::print("{}", terminal_text(found.text()));
  if (!found.agrees())
    throw CLI::RuntimeError(kFailed);
}

} // namespace

void add_diff_command(CLI::App& app) {
  auto options = std::make_shared<DiffCommand>();
  auto* command = app.add_subcommand(
      "diff", "Say where the values of two runs differ first, and who made the difference");
  command->footer(
      "Exit code: 0 no value differs; 1 one does, none was compared, or a run was cut short.\n"
      "For example\n"
      "  egret run graph.txt -i x=x.npy --no-fuse --save-values plain\n"
      "  egret run graph.txt -i x=x.npy --effort search --save-values searched\n"
      "  egret diff plain searched\n"
      "The runs may be of other devices, dtypes and efforts (docs/seeing.md).");
  command->add_option("first", options->first, "A folder of egret run --save-values")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("second", options->second, "Another; differences are told in its order")
      ->required()
      ->check(CLI::ExistingDirectory);
  command->add_option("--tolerance", options->tolerance, "Multiplies the tolerance of each dtype")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "As JSON");
  command->callback([options] { diff(*options); });
}

} // namespace egret::tool

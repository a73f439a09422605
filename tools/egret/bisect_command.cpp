// egret bisect: which rule, region or kernel makes a graph's result wrong.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "graph_file.h"
#include "graph_inputs.h"
#include "number_option.h"

#include "compiler/bisect.h"
#include "runtime/runtime.h"
#include "support/printable.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct BisectCommand {
  std::string graph, device;
  std::vector<std::string> inputs, rules;
  EffortOptions effort{.effort = "quick"};
  std::uint64_t seed = 1;
  bool fuse = true, json = false;
};

nlohmann::ordered_json json_of(const compiler::BisectReport& report) {
  return {{"culprit", name_of(report.culprit)},
          {"names", report.names},
          {"detail", report.detail},
          {"nodes", report.nodes}};
}

void bisect(const BisectCommand& command) {
  const ir::Graph graph = graph_of_text(command.graph, read_text(command.graph));
  const GraphInputs inputs = load_inputs(graph, command.inputs, command.seed);
  const EffortInForce effort(command.effort);
  auto& runtime = runtime::Runtime::instance();
  compiler::Options options;
  options.fuse = command.fuse;
  options.rules.files = rule_files(command.rules);
  runtime.complete(options);
  compiler::KernelCache kernels;
  const compiler::BisectReport report =
      compiler::bisect(graph, inputs.arrays, options, runtime.device(), kernels);
  if (command.json)
    fmt::print("{}\n", json_of(report).dump(2));
  else
    fmt::print("{}", terminal_text(report.text()));
  if (report.culprit != compiler::BisectReport::Culprit::None)
    throw CLI::RuntimeError(kFailed);
}

} // namespace

void add_bisect_command(CLI::App& app) {
  auto options = std::make_shared<BisectCommand>();
  auto* command = app.add_subcommand(
      "bisect", "Say which rule, region or kernel makes a graph's result wrong (docs/bisect.md)");
  command->footer("Exit code: 0 all is right, 1 a culprit was found. For example\n"
                  "  egret bisect graph.txt --effort search --allow reassociates\n"
                  "  egret bisect graph.txt --rules mine.egg --input x=x.npy");
  command->add_option("program", options->graph, "The graph's text (docs/graph.md)")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("-i,--input", options->inputs, "NAME=FILE.npy; inputs without are random")
      ->take_all();
  command->add_option("--seed", options->seed, "Of random inputs")
      ->check(is_seed())
      ->capture_default_str();
  add_effort_options(*command, options->effort);
  add_rules_option(*command, options->rules);
  command->add_flag("!--no-fuse", options->fuse, "One kernel an operation");
  command->add_flag("--json", options->json, "As JSON");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    bisect(*options);
  });
}

} // namespace egret::tool

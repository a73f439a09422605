// egret run: a graph in its text form, with arrays from and to NPY files.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "graph_file.h"
#include "graph_inputs.h"
#include "memory_option.h"

#include "egret/io.h"
#include "egret/ir.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct RunOptions {
  std::string graph;
  std::vector<std::string> inputs, outputs;
  std::string record, device;
  EffortOptions effort;
  std::optional<std::int64_t> memory_limit;
  bool fuse = true, explain = false, json = false;
};

/// The labels of the graph's outputs: what follows % in the last line of its text.
std::vector<std::string> output_labels(const std::string& text) {
  std::vector<std::string> labels;
  std::string line = text.substr(text.rfind("outputs"));
  for (std::size_t at = line.find('%'); at != std::string::npos; at = line.find('%', at + 1)) {
    auto end = line.find_first_of(", \t\r\n#", at);
    labels.push_back(line.substr(at + 1, end == std::string::npos ? end : end - at - 1));
  }
  return labels;
}

nlohmann::ordered_json json_of(const std::string& name, const Tensor& value) {
  nlohmann::ordered_json json = {
      {"name", name}, {"dtype", name_of(value.dtype())}, {"shape", value.sizes()}};
  if (is_float(value.dtype()))
    json["values"] = value.to_vector<double>();
  else
    json["values"] = value.to_vector<std::int64_t>();
  return json;
}

void run(const RunOptions& options) {
  std::string text = read_text(options.graph);
  const ir::Graph graph = graph_of_text(options.graph, text);
  auto labels = output_labels(text);
  auto files = files_by_name(options.outputs, "--output");
  for (const auto& [name, file] : files)
    if (std::find(labels.begin(), labels.end(), name) == labels.end())
      throw UsageError(
          fmt::format("the graph has no output '{}'; its outputs: {}", name, listed(labels)));

  for (const auto& [name, file] : files)
    output_target("run --output", file);

  GraphInputs inputs = load_inputs(graph, options.inputs, {});
  auto& runtime = runtime::Runtime::instance();
  const EffortInForce effort(options.effort);
  const std::unique_ptr<Record> record = record_of_text(options.record, options.graph, text);
  auto program =
      runtime.program(graph, {.fuse = options.fuse, .memory_limit = options.memory_limit});
  auto results = program->run(run_inputs(graph, inputs.arrays).slots);
  if (record)
    record->close();
  if (options.explain)
    log_line(terminal_text(program->report().text()));
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ir::Node& node = graph[graph.outputs[i]];
    auto sizes = inputs.dims.values(node.shape);
    Shape shape(sizes.begin(), sizes.end());
    std::size_t count = size_of(node.dtype);
    for (std::int64_t size : sizes)
      count *= static_cast<std::size_t>(size);
    std::vector<std::byte> bytes(count);
    runtime.copy_out(bytes.data(), results[i], bytes.size());
    Tensor value = from_bytes(node.dtype, shape, bytes);
    if (auto file = files.find(labels[i]); file != files.end())
      io::save_npy(file->second, value);
    else if (options.json)
      fmt::print("{}\n", json_of(labels[i], value).dump());
    else
      fmt::print("%{} = {}\n", terminal_text(labels[i]), to_string(value));
  }
}

} // namespace

void add_run_command(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  auto* command = app.add_subcommand("run", "Run a graph in its text form (docs/graph.md)");
  command->footer("For example, with double.txt holding\n"
                  "  %x: f32[3] = input \"x\"\n"
                  "  %y: f32[3] = add(%x, %x)\n"
                  "  outputs %y\n"
                  "  egret run double.txt --input x=x.npy --output y=y.npy");
  command->add_option("graph", options->graph, "The graph's text")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("-i,--input", options->inputs, "NAME=FILE.npy for each input")->take_all();
  command
      ->add_option("-o,--output", options->outputs,
                   "LABEL=FILE.npy; outputs without one are printed")
      ->take_all();
  add_effort_options(*command, options->effort);
  add_memory_option(*command, options->memory_limit, "the run");
  command->add_flag("!--no-fuse", options->fuse, "One kernel an operation");
  command->add_flag("--explain", options->explain, "Say on stderr what the compiler did");
  command->add_option(
      "--record", options->record,
      "Write what was compiled, and the time of each launch, to this file, for egret "
      "view (docs/seeing.md)");
  command->add_flag("--json", options->json, "Print outputs as JSON, one a line");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    run(*options);
  });
}

} // namespace egret::tool

// egret run: a graph in its text form, with arrays from and to NPY files.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "graph_file.h"
#include "graph_inputs.h"
#include "memory_option.h"
#include "number_option.h"
#include "run_values.h"

#include "compiler/values/saved_run.h"
#include "egret/io.h"
#include "egret/ir.h"
#include "egret/profile.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"
#include "support/read_text.h"
#include "support/sizes.h"
#include "tensor/graph_debug.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

using backend::reference::HostArray;

namespace {

struct RunOptions {
  std::string graph;
  std::vector<std::string> inputs, outputs, rules;
  std::string record, trace, device;
  ValueOptions values;
  EffortOptions effort;
  std::optional<std::int64_t> memory_limit;
  std::optional<std::uint64_t> seed; ///< of inputs without a file; empty: each has one
  bool fuse = true, explain = false, json = false, debug = false, slowest_first = false;
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

std::vector<runtime::StoragePtr> print_debug(detail::DebugRun run, const RunOptions& options) {
  const DebugReport report =
      options.slowest_first ? run.report.slowest_first() : std::move(run.report);
  log_line(terminal_text(report.text()));
  return std::move(run.outputs);
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

/// The graph's outputs.
std::vector<HostArray> run_program(const ir::Graph& graph, const GraphInputs& inputs,
                                   const compiler::Options& wishes, const RunOptions& options) {
  auto& runtime = runtime::Runtime::instance();
  const RunInputs memory = run_inputs(graph, inputs.arrays);
  std::vector<runtime::StoragePtr> stored;
  if (options.debug && !options.fuse) {
    const ir::Graph sized = ir::with_dims(
        graph, [&](const Expr& symbol) { return std::optional<Expr>(inputs.dims.value(symbol)); });
    stored = print_debug(detail::run_op_by_op(sized, memory.slots), options);
  } else {
    const auto program = runtime.program(graph, wishes);
    stored = options.debug
                 ? print_debug(detail::run_kernel_by_kernel(*program, memory.slots), options)
                 : program->run(memory.slots);
    if (options.explain)
      log_line(terminal_text(program->report().text()));
  }
  std::vector<HostArray> results;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const ir::Node& node = graph[graph.outputs[i]];
    HostArray& array = results.emplace_back(node.dtype, inputs.dims.values(node.shape));
    runtime.copy_out(array.bytes.data(), stored[i], array.bytes.size());
  }
  return results;
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
  if (!options.values.folder.empty())
    compiler::make_run_folder(options.values.folder);

  GraphInputs inputs = load_inputs(graph, options.inputs, options.seed);
  const EffortInForce effort(options.effort);
  const auto trace = options.trace.empty() ? nullptr : std::make_unique<Profile>(options.trace);
  if (trace)
    note_lines(options.graph, ir::parse_located(text));
  const std::unique_ptr<Record> record = record_of_text(options.record, options.graph, text);
  compiler::Options wishes{.fuse = options.fuse, .memory_limit = options.memory_limit};
  wishes.rules.files = rule_files(options.rules);
  std::vector<HostArray> results;
  if (!options.values.folder.empty() || options.values.find_nan)
    results = run_with_values(options.graph, text, inputs.arrays, wishes, options.values);
  else
    results = run_program(graph, inputs, wishes, options);
  if (record)
    record->close();
  if (trace)
    trace->close();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Shape shape(results[i].dims.begin(), results[i].dims.end());
    Tensor value = from_bytes(results[i].dtype, shape, results[i].bytes);
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
  command->add_option("--seed", options->seed, "Inputs without a file are random, of this seed")
      ->check(is_seed());
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
  command->add_option("--trace", options->trace,
                      "Write passes, launches, copies and memory to this file, for Perfetto and "
                      "chrome://tracing");
  add_rules_option(*command, options->rules);
  auto* debug = command->add_flag(
      "--debug", options->debug,
      "Say on stderr of each kernel, or with --no-fuse of each operation, its values and time");
  command->add_flag("--slowest-first", options->slowest_first, "Those of --debug by time")
      ->needs(debug);
  auto* save = command->add_option(
      "--save-values", options->values.folder,
      "Write what each kernel stores to this folder, for egret diff (docs/seeing.md); a run that "
      "was cut short goes on");
  command
      ->add_option_function<std::string>(
          "--values-limit",
          [options](const std::string& size) {
            try {
              options->values.most_bytes = parse_bytes(size, "--values-limit");
            } catch (const Error& error) {
              throw CLI::ValidationError(error.what());
            }
          },
          "Of the elements in that folder, such as 64MB; 1GB by default. Beyond it only summaries")
      ->type_name("SIZE")
      ->needs(save);
  auto* find_nan = command->add_flag(
      "--find-nan", options->values.find_nan,
      "Name the first node that makes a NaN or infinity of finite values; exit code 1 if one does");
  debug->excludes(save)->excludes(find_nan);
  command->add_flag("--json", options->json, "Print outputs as JSON, one a line");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    run(*options);
  });
}

} // namespace egret::tool

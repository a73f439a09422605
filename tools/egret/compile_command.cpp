// egret compile: what the compiler makes of a graph, and why, without running it.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "graph_file.h"
#include "graph_inputs.h"
#include "memory_option.h"
#include "number_option.h"

#include "compiler/bisect.h"
#include "compiler/c_library.h"
#include "compiler/pipeline.h"
#include "compiler/report_json.h"
#include "egret/device.h"
#include "egret/passes.h"
#include "ir/text.h"
#include "onnx/export.h"
#include "runtime/runtime.h"
#include "saturate/saturate.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>

namespace egret::tool {

namespace {

using compiler::CompileReport;

struct CompileCommand {
  std::string graph, program, loops_program, optimized, plan, record, schedules, emit, exported,
      device;
  EffortOptions effort{.effort = "quick"};
  std::vector<std::string> rules, steady, print_after;
  saturate::SaturateOptions saturate;
  std::optional<std::int64_t> memory_limit;
  bool report = false, json = false, print_changed = false, list_passes = false;
};

/// What --emit prints of all kernels, and the backend that has it; empty: any.
struct Form {
  std::string (*text)(const runtime::Program&);
  std::string_view backend;
};
const std::map<std::string, Form> kForms = {
    {"tree", {[](const runtime::Program& p) { return p.schedules(); }, ""}},
    {"program", {[](const runtime::Program& p) { return p.loops(); }, ""}},
    {"c", {[](const runtime::Program& p) { return p.code(); }, "c"}},
    {"llvm", {[](const runtime::Program& p) { return p.code(); }, "cpu"}},
    {"cuda", {[](const runtime::Program& p) { return p.code(); }, "cuda"}}};

/// By input, whether it is one of the names.
std::vector<bool> steady_inputs(const ir::Graph& graph, const std::vector<std::string>& names) {
  std::vector<bool> steady(graph.inputs().size());
  for (const std::string& name : names) {
    bool found = false;
    for (std::size_t slot = 0; slot < steady.size(); ++slot)
      if (graph[graph.inputs()[slot]].attrs.name == name)
        found = steady[slot] = true;
    if (!found)
      throw UsageError(fmt::format("--steady: the graph has no input '{}'", name));
  }
  return steady;
}

/// The graph as a C library: inputs and outputs are parameters.
void write_library(const std::string& path, const ir::Graph& graph,
                   const compiler::Options& options) {
  backend::c::LibraryInterface interface;
  interface.name = compiler::library_name(path);
  for (const ir::NodeId id : graph.inputs())
    interface.inputs.push_back({graph[id].attrs.name, {}, 0});
  for (std::size_t output = 0; output < graph.outputs.size(); ++output) {
    const ir::Node& node = graph[graph.outputs[output]];
    backend::c::LibraryInterface::Result result;
    result.name = graph.outputs.size() == 1 ? "result" : fmt::format("result{}", output);
    result.number = output;
    result.dtype = node.dtype;
    result.shape = node.shape;
    interface.results.push_back(std::move(result));
  }
  compiler::write_c_library(
      path, compiler::c_library(graph, options, interface, runtime::Runtime::instance().device()));
}

/// The graph in the form that the ending of `path` tells.
void export_graph(const std::filesystem::path& path, const std::string& text,
                  const ir::Graph& graph, const compiler::Options& options) {
  if (path.extension() != ".onnx")
    return write_library(path, graph, options);
  onnx::Interface interface = onnx::interface_of(graph, path.stem());
  interface.lines = ir::parse_located(text).lines;
  onnx::write_model(path, graph, interface);
}

void list_passes() {
  for (const compiler::Pass& pass : compiler::pipeline())
    fmt::print("{:<23} {:<10} {}\n", pass.name, compiler::name_of(pass.phase), pass.what);
}

/// Prints what the passes made that --print-after names, and with --print-changed what each pass
/// made that changed something.
std::function<void(const compiler::PassEvent&)> pass_printer(const CompileCommand& command) {
  if (command.print_after.empty() && !command.print_changed)
    return {};
  return [names = command.print_after,
          changed = command.print_changed](const compiler::PassEvent& event) {
    const bool named = std::find(names.begin(), names.end(), event.pass) != names.end();
    if (!named && !changed)
      return;
    const std::string heading = event.fusion_plan.empty()
                                    ? fmt::format("-- after {}", event.pass)
                                    : fmt::format("-- after {}, {}", event.pass, event.fusion_plan);
    if (named || event.changed())
      fmt::print("{}\n{}{}", heading, terminal_text(event.after),
                 event.after.ends_with('\n') ? "" : "\n");
    else
      fmt::print("{}: unchanged\n", heading);
  };
}

void compile(const CompileCommand& command) {
  if (command.list_passes)
    return list_passes();
  if (command.graph.empty())
    throw UsageError("compile: a graph's text is required");
  for (const auto& [option, path] : {std::pair("--program", command.program),
                                     {"--loops-program", command.loops_program},
                                     {"--graph-out", command.optimized},
                                     {"--plan", command.plan},
                                     {"--export", command.exported}})
    if (!path.empty())
      output_target(fmt::format("compile {}", option), path);
  const std::string text = read_text(command.graph);
  const ir::Graph graph = graph_of_text(command.graph, text);
  const std::unique_ptr<Record> record = record_of_text(command.record, command.graph, text);
  compiler::Options options;
  options.rules = command.saturate;
  options.memory_limit = command.memory_limit;
  options.rules.files = rule_files(command.rules);
  if (!command.steady.empty())
    options.steady = steady_inputs(graph, command.steady);
  options.after_pass = pass_printer(command);
  if (!command.schedules.empty())
    options.schedules =
        compiler::parse_requested_schedules(read_text(command.schedules), command.schedules);
  const EffortInForce effort(command.effort);
  auto& runtime = runtime::Runtime::instance();
  runtime.complete(options);
  if (!command.program.empty())
    write_output("compile --program", command.program,
                 saturate::program_text(passes::normalize()(graph), options.rules));
  if (!command.exported.empty())
    export_graph(command.exported, text, graph, options);
  const std::string device = egret::device();
  if (const std::string_view backend = command.emit.empty() ? "" : kForms.at(command.emit).backend;
      !backend.empty() && backend != device.substr(0, device.find(':')))
    throw UsageError(fmt::format("--emit {}: wants --device {}", command.emit, backend));
  auto program = runtime.program(graph, options);
  if (command.effort.checked)
    program->run(run_inputs(graph, compiler::random_inputs(graph, 1)).slots);
  if (record)
    record->close();
  const CompileReport& report = program->report();
  if (!command.optimized.empty())
    write_output("compile --graph-out", command.optimized, ir::print(report.graph));
  if (!command.loops_program.empty())
    write_output("compile --loops-program", command.loops_program, program->loop_terms());
  if (!command.plan.empty())
    write_output("compile --plan", command.plan, program->plan() + program->loops());
  if (!command.emit.empty())
    fmt::print("{}", terminal_text(kForms.at(command.emit).text(*program)));
  else if (command.json)
    fmt::print("{}\n", compiler::json_of(report).dump(2));
  else if (command.report)
    fmt::print("{}", terminal_text(report.text()));
  else
    fmt::print("{} ops, {} kernels\n", report.ops_normalized, report.kernels.size());
}

} // namespace

void add_compile_command(CLI::App& app) {
  auto options = std::make_shared<CompileCommand>();
  auto* command = app.add_subcommand("compile", "Compile a graph in its text form and say how");
  command->footer("For example\n"
                  "  egret compile graph.txt --effort quick --report\n"
                  "  egret compile graph.txt --allow reassociates --json\n"
                  "  egret compile graph.txt --print-after partition\n"
                  "  egret compile graph.txt --emit tree > schedules.txt\n"
                  "  egret compile graph.txt --schedule schedules.txt --emit program\n"
                  "  egret compile graph.txt --export model.c\n"
                  "  egret compile graph.txt --device cuda --export model.so\n"
                  "  egret compile graph.txt --export model.onnx\n"
                  "  egret compile graph.txt --program rules.egg\n"
                  "  egret egraph run --tensors rules.egg");
  command->add_option("graph", options->graph, "The graph's text (docs/graph.md)")
      ->check(CLI::ExistingFile);
  add_effort_options(*command, options->effort);
  command->add_option("--group", options->saturate.groups, "Only these groups of rules")
      ->take_all();
  add_rules_option(*command, options->rules);
  command->add_option("--rule-seconds", options->saturate.seconds, "Time for the rules")
      ->check(is_seconds())
      ->capture_default_str();
  command->add_option("--rule-rows", options->saturate.rows, "Size at which the rules stop")
      ->check(whole_within(1, std::int64_t{1} << 40))
      ->capture_default_str();
  add_memory_option(*command, options->memory_limit, "the program");
  command
      ->add_option("--steady", options->steady,
                   "Inputs that keep their values from run to run, as captured weights do")
      ->take_all();
  command->add_flag("--report", options->report, "Say what each pass did");
  auto* json = command->add_flag("--json", options->json, "The report as JSON");
  command->add_flag("--list-passes", options->list_passes,
                    "List the compiler's passes in order (docs/compiler.md)");
  const CLI::Validator is_pass(
      [](const std::string& name) -> std::string {
        try {
          compiler::find_pass(name, "pass");
          return {};
        } catch (const Error& error) {
          return error.what();
        }
      },
      "PASS");
  command->add_option("--print-after", options->print_after, "Print what these passes made")
      ->check(is_pass)
      ->take_all()
      ->excludes(json);
  command
      ->add_flag("--print-changed", options->print_changed,
                 "Print what each pass made that changed something")
      ->excludes(json);
  command->add_option("--program", options->program,
                      "Write the rules, the graph's terms and the schedule to this file");
  command->add_option("--loops-program", options->loops_program,
                      "Write the rules, facts and trees of the kernels' loops to this file");
  command->add_option("--graph-out", options->optimized, "Write the graph that is compiled");
  command->add_option("--plan", options->plan,
                      "Write the order of launches, the memory and the kernels' loops");
  command->add_option("--record", options->record,
                      "Write what each pass did to this file, for egret view (docs/seeing.md)");
  command
      ->add_option("--schedule", options->schedules,
                   "Schedules of kernels, one `KERNEL = SCHEDULE` a line (docs/loops.md)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  command
      ->add_option("--emit", options->emit,
                   "Print of all kernels: tree (their schedules, which --schedule reads), program "
                   "(loops and statements), c (with --device c), llvm (a CPU's), or cuda (a GPU's)")
      ->check(CLI::IsMember({"tree", "program", "c", "llvm", "cuda"}))
      ->excludes(json);
  command
      ->add_option(
          "--export", options->exported,
          "Write a C library for the device that needs nothing of egret, NAME.c or NAME.so, and "
          "NAME.h, or an ONNX model, NAME.onnx (docs/export.md)")
      ->check(CLI::Validator(
          [](const std::string& name) -> std::string {
            const std::string ending = std::filesystem::path(name).extension();
            return ending == ".c" || ending == ".so" || ending == ".onnx"
                       ? ""
                       : fmt::format("`{}` is no NAME.c, NAME.so or NAME.onnx", printable(name));
          },
          ""))
      ->type_name("NAME.c|NAME.so|NAME.onnx");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    compile(*options);
  });
}

} // namespace egret::tool

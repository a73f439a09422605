// egret profile: where the time of a graph goes, kernel by kernel.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "graph_file.h"
#include "graph_inputs.h"
#include "memory_option.h"
#include "number_option.h"

#include "compiler/record/origins.h"
#include "compiler/search/machine.h"
#include "ir/text.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"
#include "runtime/trace.h"
#include "support/call_sites.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace egret::tool {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct ProfileOptions {
  std::string graph, trace, device;
  std::vector<std::string> inputs;
  EffortOptions effort;
  std::optional<std::int64_t> memory_limit;
  int runs = 10;
  bool json = false;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Times {
  std::vector<std::vector<double>> seconds; ///< by launch and run
  std::vector<double> runs;  ///< seconds of whole runs, launches not waited for one by one
  std::vector<double> apart; ///< of runs whose launches were

  /// The part of a run, one by one, that its launches take.
  double covered() const {
    std::vector<double> parts;
    for (std::size_t run = 0; run < apart.size(); ++run) {
      double sum = 0;
      for (const std::vector<double>& launch : seconds)
        sum += run < launch.size() ? launch[run] : 0;
      parts.push_back(sum / apart[run]);
    }
    return median(std::move(parts));
  }
};

/// Runs and times; the first runs, which touch memory for the first time, do not count.
void measure(const runtime::Program& program, std::span<const runtime::RunInput> inputs, int runs,
             const std::function<void(const runtime::LaunchRecord&)>& see, Times& times) {
  auto& device = runtime::Runtime::instance().device();
  const std::vector<compiler::KernelReport>& kernels = program.report().kernels;
  const auto timed_run = [&] {
    const auto begin = Clock::now();
    program.run(inputs);
    device.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  constexpr int kUncounted = 2;
  for (int run = -kUncounted; run < runs; ++run)
    if (const double seconds = timed_run(); run >= 0)
      times.runs.push_back(seconds);
  times.seconds.resize(kernels.size());
  const runtime::Observing observing({.launch = [&](const runtime::LaunchRecord& launch) {
    const auto number = static_cast<std::size_t>(&launch.kernel - kernels.data());
    times.seconds.at(number).push_back(
        std::chrono::duration<double>(launch.end - launch.begin).count());
    if (see)
      see(launch);
  }});
  for (int run = 0; run < runs; ++run)
    times.apart.push_back(timed_run());
}

/// "3-5,8"
std::string lines_text(const std::set<int>& lines) {
  std::string text;
  for (auto at = lines.begin(); at != lines.end();) {
    const int first = *at;
    int last = first;
    while (++at != lines.end() && *at == last + 1)
      last = *at;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last > first)
      text += fmt::format("-{}", last);
  }
  return text;
}

/// What one launch took, beside what the machine can do.
struct Row {
  std::size_t launch;
  const compiler::KernelReport* kernel;
  double seconds, share, of_ceiling;
  std::set<int> lines; ///< of the graph's text
  double bytes() const { return static_cast<double>(kernel->bytes_read + kernel->bytes_written); }
};

std::vector<Row> rows_of(const compiler::CompileReport& report, const Times& times,
                         const std::vector<compiler::NodeOrigin>& origins,
                         const compiler::Machine& machine) {
  std::vector<Row> rows;
  double total = 0;
  for (std::size_t i = 0; i < report.kernels.size(); ++i) {
    Row row{i, &report.kernels[i], median(times.seconds[i]), 0, 0, {}};
    const double least = std::max(row.bytes() / machine.bytes_per_second,
                                  row.kernel->flops / machine.flops_per_second);
    row.of_ceiling = least / row.seconds;
    total += row.seconds;
    for (const ir::NodeId node : row.kernel->nodes)
      row.lines.insert(origins.at(node).lines.begin(), origins.at(node).lines.end());
    rows.push_back(row);
  }
  for (Row& row : rows)
    row.share = row.seconds / total;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

void print_table(const std::vector<Row>& rows, const Times& times,
                 const compiler::Machine& machine) {
  fmt::print("{:>6}  {:<28} {:>11} {:>7} {:>9} {:>9} {:>11}  {:<9} {}\n", "launch", "kernel",
             "time", "share", "GB/s", "GFLOP/s", "of ceiling", "lines", "ops");
  double total = 0;
  for (const Row& row : rows) {
    total += row.seconds;
    std::string ops;
    for (const std::string& op : row.kernel->ops)
      ops += ops.empty() ? op : " " + op;
    constexpr std::size_t kMostOps = 48;
    if (ops.size() > kMostOps)
      ops = ops.substr(0, kMostOps) + "...";
    fmt::print("{:>6}  {:<28} {:>8.1f} us {:>5.1f} % {:>9.2f} {:>9.2f} {:>9.1f} %  {:<9} {}\n",
               row.launch, terminal_text(row.kernel->name), 1e6 * row.seconds, 100 * row.share,
               1e-9 * row.bytes() / row.seconds, 1e-9 * row.kernel->flops / row.seconds,
               100 * row.of_ceiling, lines_text(row.lines), ops);
  }
  fmt::print("{} launches one by one: {:.1f} us, {:.1f} % of a run that waits for each; a run: "
             "{:.1f} us; ceilings: {:.1f} GB/s, {:.1f} GFLOP/s\n",
             rows.size(), 1e6 * total, 100 * times.covered(), 1e6 * median(times.runs),
             1e-9 * machine.bytes_per_second, 1e-9 * machine.flops_per_second);
}

Json json_of(const std::vector<Row>& rows, const Times& times, const compiler::Machine& machine) {
  Json kernels = Json::array();
  for (const Row& row : rows)
    kernels.push_back({{"launch", row.launch},
                       {"name", row.kernel->name},
                       {"form", row.kernel->form},
                       {"ops", row.kernel->ops},
                       {"seconds", row.seconds},
                       {"share", row.share},
                       {"bytes", row.bytes()},
                       {"flops", row.kernel->flops},
                       {"lines", row.lines},
                       {"of_ceiling", row.of_ceiling}});
  return {{"run_seconds", median(times.runs)},
          {"run_seconds_one_by_one", median(times.apart)},
          {"launches_of_run", times.covered()},
          {"bytes_per_second", machine.bytes_per_second},
          {"flops_per_second", machine.flops_per_second},
          {"launches", kernels}};
}

void profile(const ProfileOptions& options) {
  std::optional<OutputFile> file;
  if (!options.trace.empty())
    file.emplace("profile --trace", options.trace);
  const auto trace = std::make_shared<runtime::Trace>();
  runtime::Observer observer = trace->observer();
  const auto see = std::exchange(observer.launch, {}); // of runs that are timed by launches only
  std::optional<call_sites::Wanted> sites;
  std::optional<runtime::Observing> observing;
  if (file) {
    sites.emplace();
    observing.emplace(observer);
  }
  const std::string text = read_text(options.graph);
  const ir::Graph graph = graph_of_text(options.graph, text);
  const ir::LocatedGraph located = ir::parse_located(text);
  const GraphInputs inputs = load_inputs(graph, options.inputs, 1);
  auto& runtime = runtime::Runtime::instance();
  const EffortInForce effort(options.effort);
  compiler::OriginRecord origins(located.graph, options.graph, text, located.lines);
  note_lines(options.graph, located);
  compiler::Options wishes;
  wishes.memory_limit = options.memory_limit;
  wishes.after_pass = [&](const compiler::PassEvent& event) { origins.pass(event); };
  const auto program = runtime.program(graph, wishes);
  if (program->report().kernels.empty())
    throw UsageError("profile: the graph has no kernel, so that nothing takes time");
  const RunInputs memory = run_inputs(graph, inputs.arrays);
  Times times;
  measure(*program, memory.slots, options.runs, file ? see : nullptr, times);
  const compiler::Machine machine = compiler::measure_machine(runtime.device());
  const std::vector<Row> rows =
      rows_of(program->report(), times, origins.finished(program->report()), machine);
  if (options.json)
    fmt::print("{}\n", json_of(rows, times, machine).dump(2));
  else
    print_table(rows, times, machine);
  if (file) {
    observing.reset();
    file->write(trace->text());
    file->commit();
  }
}

} // namespace

void add_profile_command(CLI::App& app) {
  auto options = std::make_shared<ProfileOptions>();
  auto* command =
      app.add_subcommand("profile", "Time the kernels of a graph, and say how fast they could be");
  command->footer(
      "For example\n"
      "  egret profile graph.txt --effort quick\n"
      "  egret profile graph.txt --trace trace.json     for chrome://tracing, Perfetto\n"
      "Each launch is waited for; inputs without a file are random (docs/seeing.md).");
  command->add_option("graph", options->graph, "The graph's text (docs/graph.md)")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("-i,--input", options->inputs, "NAME=FILE.npy; the others are random")
      ->take_all();
  command->add_option("--runs", options->runs, "How often it runs; the median counts")
      ->check(whole_within(1, 100000))
      ->capture_default_str();
  command->add_option("--trace", options->trace,
                      "Write passes, launches, copies and memory to this file");
  command->add_flag("--json", options->json, "Print the table as JSON");
  add_effort_options(*command, options->effort);
  add_memory_option(*command, options->memory_limit, "the run");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    profile(*options);
  });
}

} // namespace egret::tool

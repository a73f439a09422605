// egret profile: where the time of a graph goes, kernel by kernel.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "graph_file.h"
#include "graph_inputs.h"
#include "memory_option.h"
#include "number_option.h"

#include "compiler/search/machine.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

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

/// A time on one of the trace's rows.
struct Span {
  std::string name;
  Clock::time_point begin;
  double seconds;
  Json about;
};

struct Profile {
  std::vector<std::vector<double>> seconds; ///< by launch and run
  std::vector<Span> passes, launches;
  std::vector<double> runs; ///< seconds of whole runs, launches not waited for one by one
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Runs and times; the first runs, which touch memory for the first time, do not count.
void measure(const runtime::Program& program, std::span<const runtime::RunInput> inputs, int runs,
             Profile& profile) {
  auto& device = runtime::Runtime::instance().device();
  const std::vector<compiler::KernelReport>& kernels = program.report().kernels;
  constexpr int kUncounted = 2;
  for (int run = -kUncounted; run < runs; ++run) {
    const auto begin = Clock::now();
    program.run(inputs);
    device.synchronize();
    if (run >= 0)
      profile.runs.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  profile.seconds.resize(kernels.size());
  struct Unhook {
    ~Unhook() { runtime::set_launch_hook({}); }
  } unhook;
  runtime::set_launch_hook([&](const runtime::LaunchRecord& launch) {
    const auto number = static_cast<std::size_t>(&launch.kernel - kernels.data());
    const double seconds = std::chrono::duration<double>(launch.end - launch.begin).count();
    profile.seconds.at(number).push_back(seconds);
    profile.launches.push_back({launch.kernel.name, launch.begin, seconds,
                                Json{{"launch", number},
                                     {"ops", launch.kernel.ops},
                                     {"schedule", launch.kernel.schedule}}});
  });
  for (int run = 0; run < runs; ++run)
    program.run(inputs);
}

/// What one launch took, beside what the machine can do.
struct Row {
  std::size_t launch;
  const compiler::KernelReport* kernel;
  double seconds, share, of_ceiling;
  double bytes() const { return static_cast<double>(kernel->bytes_read + kernel->bytes_written); }
};

std::vector<Row> rows_of(const compiler::CompileReport& report, const Profile& profile,
                         const compiler::Machine& machine) {
  std::vector<Row> rows;
  double total = 0;
  for (std::size_t i = 0; i < report.kernels.size(); ++i) {
    Row row{i, &report.kernels[i], median(profile.seconds[i]), 0, 0};
    const double least = std::max(row.bytes() / machine.bytes_per_second,
                                  row.kernel->flops / machine.flops_per_second);
    row.of_ceiling = least / row.seconds;
    total += row.seconds;
    rows.push_back(row);
  }
  for (Row& row : rows)
    row.share = row.seconds / total;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

void print_table(const std::vector<Row>& rows, const Profile& profile,
                 const compiler::Machine& machine) {
  fmt::print("{:>6}  {:<28} {:>11} {:>7} {:>9} {:>9} {:>11}  {}\n", "launch", "kernel", "time",
             "share", "GB/s", "GFLOP/s", "of ceiling", "ops");
  double total = 0;
  for (const Row& row : rows) {
    total += row.seconds;
    std::string ops;
    for (const std::string& op : row.kernel->ops)
      ops += ops.empty() ? op : " " + op;
    constexpr std::size_t kMostOps = 48;
    if (ops.size() > kMostOps)
      ops = ops.substr(0, kMostOps) + "...";
    fmt::print("{:>6}  {:<28} {:>8.1f} us {:>5.1f} % {:>9.2f} {:>9.2f} {:>9.1f} %  {}\n",
               row.launch, terminal_text(row.kernel->name), 1e6 * row.seconds, 100 * row.share,
               1e-9 * row.bytes() / row.seconds, 1e-9 * row.kernel->flops / row.seconds,
               100 * row.of_ceiling, ops);
  }
  fmt::print("{} launches one by one: {:.1f} us; a run: {:.1f} us; ceilings: {:.1f} GB/s, {:.1f} "
             "GFLOP/s\n",
             rows.size(), 1e6 * total, 1e6 * median(profile.runs), 1e-9 * machine.bytes_per_second,
             1e-9 * machine.flops_per_second);
}

Json json_of(const std::vector<Row>& rows, const Profile& profile,
             const compiler::Machine& machine) {
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
                       {"of_ceiling", row.of_ceiling}});
  return {{"run_seconds", median(profile.runs)},
          {"bytes_per_second", machine.bytes_per_second},
          {"flops_per_second", machine.flops_per_second},
          {"launches", kernels}};
}

/// As Chrome's and Perfetto's viewers read it: complete events, in microseconds.
std::string trace_text(const Profile& profile) {
  const Clock::time_point begin = profile.passes.front().begin;
  Json events = Json::array();
  const auto row = [&](int number, const char* name, const std::vector<Span>& spans) {
    events.push_back({{"name", "thread_name"},
                      {"ph", "M"},
                      {"pid", 1},
                      {"tid", number},
                      {"args", {{"name", name}}}});
    for (const Span& span : spans)
      events.push_back(
          {{"name", span.name},
           {"ph", "X"},
           {"cat", name},
           {"pid", 1},
           {"tid", number},
           {"ts", std::chrono::duration<double, std::micro>(span.begin - begin).count()},
           {"dur", 1e6 * span.seconds},
           {"args", span.about}});
  };
  row(1, "compiler", profile.passes);
  row(2, "launches", profile.launches);
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump(
             -1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

void profile(const ProfileOptions& options) {
  if (!options.trace.empty())
    output_target("profile --trace", options.trace);
  const ir::Graph graph = graph_of_text(options.graph, read_text(options.graph));
  const GraphInputs inputs = load_inputs(graph, options.inputs, 1);
  auto& runtime = runtime::Runtime::instance();
  const EffortInForce effort(options.effort);
  Profile profile;
  compiler::Options wishes;
  wishes.memory_limit = options.memory_limit;
  if (!options.trace.empty())
    wishes.after_pass = [&](const compiler::PassEvent& event) {
      profile.passes.push_back({std::string(event.pass), event.begin, event.seconds,
                                Json{{"fusion_plan", event.fusion_plan}}});
    };
  const auto program = runtime.program(graph, wishes);
  if (program->report().kernels.empty())
    throw UsageError("profile: the graph has no kernel, so that nothing takes time");
  const RunInputs memory = run_inputs(graph, inputs.arrays);
  measure(*program, memory.slots, options.runs, profile);
  const compiler::Machine machine = compiler::measure_machine(runtime.device());
  const std::vector<Row> rows = rows_of(program->report(), profile, machine);
  if (options.json)
    fmt::print("{}\n", json_of(rows, profile, machine).dump(2));
  else
    print_table(rows, profile, machine);
  if (!options.trace.empty())
    write_output("profile --trace", options.trace, trace_text(profile));
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
  command->add_option("--trace", options->trace, "Write passes and launches to this file");
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

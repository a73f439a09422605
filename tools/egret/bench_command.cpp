// egret bench: times workloads by name and verifies each in the same run.
#include "bench.h"
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "number_option.h"
#include "sweep/sweep.h"

#include "egret/device.h"
#include "egret/effort.h"
#include "runtime/runtime.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>

namespace egret::tool {

namespace {

struct BenchOptions {
  std::vector<std::string> names;
  std::string device, against;
  EffortOptions effort;
  int threads = 0;
  bench::MeasureOptions measure;
  bool list = false, json = false;
  sweep::Options sweep;
};

const char* shown(bench::Judged judged) {
  return judged == bench::Judged::Cpu ? "cpu" : judged == bench::Judged::Cuda ? "cuda" : "both";
}

bool judged_here(const bench::Workload& workload) {
  const bool cpu = !runtime::Runtime::instance().target().is_gpu();
  return workload.judged == bench::Judged::Both ||
         workload.judged == (cpu ? bench::Judged::Cpu : bench::Judged::Cuda);
}

/// Names as given, or those that a name with * stands for; without names, what is judged on the
/// device in use.
std::vector<const bench::Workload*> chosen(const std::vector<std::string>& names) {
  std::vector<const bench::Workload*> list;
  for (const auto& workload : bench::workloads())
    if (names.empty() && judged_here(workload))
      list.push_back(&workload);
  for (const auto& name : names) {
    std::size_t before = list.size();
    auto star = name.find('*');
    for (const auto& workload : bench::workloads())
      if (workload.name == name ||
          (star != std::string::npos && workload.name.starts_with(name.substr(0, star)) &&
           workload.name.ends_with(name.substr(star + 1))))
        list.push_back(&workload);
    if (list.size() == before)
      throw UsageError(
          fmt::format("no workload is named '{}'; egret bench --list shows them", name));
  }
  return list;
}

std::string speed(const bench::Measurement& m) {
  const double seconds = m.ms_median / 1e3;
  if (m.tokens_per_second > 0)
    return count_text(m.tokens_per_second) + " tokens/s";
  const bool arithmetic = m.flops > 8 * m.bytes;
  const double rate = (arithmetic ? m.flops : m.bytes) / seconds / 1e9;
  const char* unit = arithmetic ? "FLOP/s" : "B/s";
  return rate >= 1e4 ? fmt::format("{:.2f} T{}", rate / 1e3, unit)
                     : fmt::format("{:.1f} G{}", rate, unit);
}

const char* shown(bench::Limit limit) {
  switch (limit) {
  case bench::Limit::PeakFma:
    return "of FMA peak";
  case bench::Limit::Copy:
    return "of copy";
  case bench::Limit::Read:
    return "of read";
  case bench::Limit::None:
    break;
  }
  return "";
}

void set_threads(int threads) { // read when the device is made
  if (threads > 0)
    setenv("EGRET_THREADS", std::to_string(threads).c_str(), 1);
}

bench::MeasureOptions measured(const BenchOptions& options) {
  bench::MeasureOptions how = options.measure;
  if (!options.against.empty())
    how.against =
        options.against == "greedy" ? Effort::None : parse_effort(options.against, "--against");
  return how;
}

void run_sweep(const BenchOptions& options) {
  if (!options.names.empty())
    throw UsageError(
        fmt::format("--sweep draws its programs: it takes no workload ('{}')", options.names[0]));
  sweep::Options how = options.sweep;
  if (how.kind != "all")
    try {
      sweep::kind_named(how.kind);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  how.json = options.json;
  how.measure = measured(options);
  const bool right = sweep::run(how, [&] {
    set_threads(options.threads);
    turn_to(options.device);
    static const EffortInForce effort(options.effort); // as long as the process
  });
  if (!right)
    throw Error(ErrorKind::Value, "bench: draws failed (see the summary)");
}

void run_bench(const BenchOptions& options) {
  if (options.list) {
    for (const auto& workload : bench::workloads())
      fmt::print("{:<37} {:<5} {}\n", workload.name, shown(workload.judged), workload.what);
    return;
  }
  if (!options.sweep.kind.empty())
    return run_sweep(options);
  set_threads(options.threads);
  turn_to(options.device);
  auto list = chosen(options.names);
  const EffortInForce effort(options.effort);
  const bench::MeasureOptions how = measured(options);
  if (!options.json)
    fmt::print("{:<34} {:>10} {:>10} {:>15} {:>17} {:>7} {:>9}  {}\n", "workload", "median ms",
               "best ms", "speed", "", "kernels", "compile s", "verified (error)");
  bool all = true;
  for (const auto* workload : list) {
    auto m = bench::measure(*workload, how);
    all = all && (m.verified || m.is_ceiling);
    if (options.json) {
      fmt::print("{}\n", m.json());
    } else {
      std::string share = m.ceiling > 0 && !m.is_ceiling
                              ? fmt::format("{:.2f} {}", m.of_ceiling, shown(workload->limit))
                          : m.of_cublas > 0 ? fmt::format("{:.3f} of cuBLAS", m.of_cublas)
                                            : "";
      std::string verified =
          m.is_ceiling ? "" : fmt::format("{} ({:.1e})", m.verified ? "yes" : "NO", m.max_error);
      fmt::print("{:<34} {:>10.4f} {:>10.4f} {:>15} {:>17} {:>7} {:>9.2f}  {}\n", m.name,
                 m.ms_median, m.ms_min, speed(m), share, m.kernels, m.compile_seconds, verified);
      if (m.ratio > 0)
        fmt::print(
            "  {:.3f} of the time with effort {} ({:.4f} ms; {} rounds in turn, half of them "
            "{:.3f} to {:.3f})\n",
            m.ratio, options.against, m.against_ms, m.rounds, m.ratio_low, m.ratio_high);
    }
    flush_stdout();
  }
  if (!all)
    throw Error(ErrorKind::Value,
                "bench: a result differs from the reference (see the column 'verified')");
}

void add_sweep_options(CLI::App& command, sweep::Options& options) {
  std::string kinds = "all";
  for (const sweep::Kind& kind : sweep::kinds())
    kinds += ", " + kind.name;
  auto* sweep = command.add_option("--sweep", options.kind, "Random programs of a kind: " + kinds);
  const auto of_sweep = [&](const char* name, auto& value, const char* what) {
    return command.add_option(name, value, what)->needs(sweep);
  };
  of_sweep("--count", options.count, "How many draws")
      ->check(whole_within(1, 1000000))
      ->capture_default_str();
  of_sweep("--seed", options.seed, "Start of the draws' random numbers")
      ->check(is_seed())
      ->capture_default_str();
  of_sweep("--only", options.only, "This draw alone")->check(is_seed());
  of_sweep("--mb", options.mb,
           "MiB of a draw's inputs and outputs at most; 0: sized for the device")
      ->check(number_within(0, 65536))
      ->capture_default_str();
  of_sweep("--timeout", options.timeout, "Seconds of a draw at most")
      ->check(is_seconds())
      ->capture_default_str();
  command.add_flag("--draws", options.draws, "Print the draws' parameters, run nothing")
      ->needs(sweep);
}

} // namespace

void add_bench_command(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  auto* command = app.add_subcommand("bench", "Time workloads, and verify each in the same run");
  command->footer(
      "A name may hold one *, as in matmul_f32_*. Without names those are run that are judged\n"
      "on the device.\n"
      "Times are of a run whose plan is made; the first call's extra time is compile_seconds.");
  command->add_option("names", options->names, "Workloads");
  command->add_flag("--list", options->list, "List them");
  add_device_option(*command, options->device);
  command->add_option("--threads", options->threads, "Threads of the CPU; 0: one a core")
      ->check(whole_within(0, 4096))
      ->capture_default_str();
  add_effort_options(*command, options->effort);
  command
      ->add_option("--against", options->against,
                   "Run in turn with this effort too, and say how the times compare; greedy: none")
      ->check(CLI::IsMember({"greedy", "none", "quick", "search", "exhaustive"}));
  command->add_option("--seconds", options->measure.seconds, "Time at least as long")
      ->check(is_seconds())
      ->capture_default_str();
  command->add_option("--reps", options->measure.reps, "Time at least as many runs")
      ->check(whole_within(3, 1000000))
      ->capture_default_str();
  auto* trace = command->add_option("--trace", options->measure.trace,
                                    "Write a trace of one run of each workload to this folder");
  command->add_flag("--json", options->json, "One JSON object a line");
  add_sweep_options(*command, options->sweep);
  trace->excludes(command->get_option("--sweep"));
  command->callback([options] { run_bench(*options); });
}

} // namespace egret::tool

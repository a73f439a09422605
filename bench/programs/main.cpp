// Runs and times the programs: one JSON line each. bench/peers/programs.py does the same in
// PyTorch.
#include "programs.h"

#include "bench.h"
#include "compiler/measurement_process.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "number_option.h"

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <fnmatch.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

namespace egret::programs {

namespace {

using Json = nlohmann::json;

struct Options {
  std::string device, only = "*", save, scale = "full", shard = "0/1";
  tool::EffortOptions effort;
  int threads = 0;
  bool list = false, explain = false, verify = false;
  tool::bench::MeasureOptions measure{.seconds = 0.5, .reps = 5};
};

std::vector<Program> chosen(const Options& options) {
  Programs all(options.scale == "small");
  add_convolutions(all);
  add_recurrences(all);
  add_orders(all);
  add_scatters(all);
  add_windows(all);
  add_samplings(all);
  add_products(all);
  add_layouts(all);
  add_updates(all);
  add_attentions(all);
  add_experts(all);
  add_losses(all);
  add_statistics(all);
  add_networks(all);
  add_backbones(all);
  add_simulations(all);
  add_algorithms(all);
  unsigned shard = 0, shards = 1;
  if (std::sscanf(options.shard.c_str(), "%u/%u", &shard, &shards) != 2 || shard >= shards)
    throw Error(ErrorKind::Value,
                fmt::format("programs: --shard takes K/N with K < N, not '{}'", options.shard));
  std::vector<Program> result;
  for (std::size_t i = 0; i < all.list().size(); ++i)
    if (i % shards == shard && fnmatch(options.only.c_str(), all.list()[i].name.c_str(), 0) == 0)
      result.push_back(all.list()[i]);
  return result;
}

/// What a program is, for other languages.
Json described(const Program& program) {
  Json inputs = Json::array();
  for (const Input& input : program.inputs) {
    Json one = {{"shape", input.shape}, {"dtype", name_of(input.dtype)}};
    if (input.below > 0) {
      one["below"] = input.below;
    } else {
      one["scale"] = input.scale;
      one["shift"] = input.shift;
    }
    inputs.push_back(std::move(one));
  }
  return {{"name", program.name}, {"inputs", std::move(inputs)}};
}

/// FOLDER/family/name.N.raw for each result, and FOLDER/family/name.json with shapes and dtypes.
void save(const std::string& folder, const Program& program, const Tensors& results) {
  const std::filesystem::path base = std::filesystem::path(folder) / program.name;
  std::filesystem::create_directories(base.parent_path());
  Json list = Json::array();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::vector<std::byte> bytes = results[i].to_bytes();
    std::ofstream file(base.string() + "." + std::to_string(i) + ".raw", std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    if (!file)
      throw Error(ErrorKind::File, fmt::format("programs: {} cannot be written", folder));
    list.push_back({{"shape", results[i].sizes()}, {"dtype", name_of(results[i].dtype())}});
  }
  std::ofstream(base.string() + ".json") << list.dump() << "\n";
}

double seconds_of(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  sync();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Tensors inputs_of(const Program& program, std::uint64_t set) {
  Tensors inputs;
  for (const Input& input : program.inputs) {
    inputs.push_back(make(input, set, inputs.size()));
    if (program.differentiates && is_float(input.dtype))
      inputs.back().set_requires_grad();
  }
  return inputs;
}

std::vector<Tensors> input_sets(const Program& program) {
  std::vector<Tensors> sets = {inputs_of(program, 0)};
  double bytes = 0;
  for (const Tensor& input : sets[0])
    bytes += static_cast<double>(input.numel()) * static_cast<double>(size_of(input.dtype()));
  for (std::uint64_t i = 1; i < tool::bench::sets_of(bytes); ++i)
    sets.push_back(inputs_of(program, i));
  return sets;
}

Json measured(const Program& program, const Options& options) {
  auto compiled = compile(program.run, {.name = program.name});
  std::vector<Tensors> sets;
  tool::bench::unsearched([&] { sets = input_sets(program); });
  Tensors results;
  const double first = seconds_of([&] { results = compiled(sets[0]); });
  if (options.explain)
    fmt::print(stderr, "{}\n{}\n", program.name, compiled.explain());
  if (!options.save.empty())
    save(options.save, program, results);
  std::size_t next = 0;
  const auto run = [&] {
    results.clear();
    results = compiled(sets[++next % sets.size()]);
  };
  const Counters before = counters();
  run();
  sync();
  const std::uint64_t kernels = (counters() - before).kernels_launched;
  const auto times = tool::bench::time_runs(run, options.measure);
  if (!options.measure.trace.empty())
    tool::bench::trace_run(run, options.measure.trace, program.name);
  return {{"name", program.name},
          {"device", device()},
          {"ms_median", 1e3 * times.median()},
          {"ms_min", 1e3 * times.seconds.front()},
          {"compile_seconds", std::max(0.0, first - times.median())},
          {"kernels", kernels}};
}

/// The largest difference between two results, in tolerances of an element's magnitude plus the
/// root mean square of all. Integers are equal.
double apart(const Tensor& result, const std::vector<double>& expected) {
  const std::vector<double> values = result.to_vector<double>();
  if (values.size() != expected.size())
    return std::numeric_limits<double>::infinity();
  double squares = 0, worst = 0;
  for (const double e : expected)
    squares += e * e;
  const double typical = std::sqrt(squares / std::max(1.0, static_cast<double>(expected.size())));
  const double tolerance = !is_float(result.dtype())      ? 0
                           : is_low(result.dtype())       ? 3e-2
                           : result.dtype() == DType::F64 ? 1e-9
                                                          : 2e-4;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i])))
      continue;
    const double far = std::abs(values[i] - expected[i]) /
                       (tolerance * (std::abs(expected[i]) + typical) + 1e-300);
    worst = std::isnan(far) ? std::numeric_limits<double>::infinity() : std::max(worst, far);
  }
  return worst;
}

/// The results of the compiled program beside those of the reference.
Json verified(const Program& program) {
  auto compiled = compile(program.run, {.name = program.name});
  const Tensors inputs = inputs_of(program, 0);
  const Tensors results = compiled(inputs);
  double worst = 0;
  for (std::size_t i = 0; i < results.size(); ++i)
    worst =
        std::max(worst, apart(results[i],
                              tool::bench::by_reference([&] { return program.run(inputs)[i]; })));
  if (worst > 1)
    throw Error(ErrorKind::Value,
                fmt::format("a result differs from the reference: {} tolerances", worst));
  return {{"name", program.name}, {"device", device()}, {"worst", worst}};
}

/// Whether every program ran.
bool run(const Options& options) {
  if (options.threads > 0) // read when the device is made
    setenv("EGRET_THREADS", std::to_string(options.threads).c_str(), 1);
  const std::vector<Program> programs = chosen(options);
  if (options.list) {
    for (const Program& program : programs)
      fmt::print("{}\n", described(program).dump());
    return true;
  }
  tool::turn_to(options.device);
  const tool::EffortInForce effort(options.effort);
  bool all = true;
  for (const Program& program : programs) {
    Json line;
    try {
      line = options.verify ? verified(program) : measured(program, options);
    } catch (const std::exception& error) {
      line = {{"name", program.name}, {"device", device()}, {"error", error.what()}};
      all = false;
    }
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
  return all;
}

int command(int argc, char** argv) {
  CLI::App app("Times small whole programs, one JSON line each (docs/benchmarks.md)");
  Options options;
  tool::add_device_option(app, options.device);
  tool::add_effort_options(app, options.effort);
  app.add_option("--threads", options.threads, "Threads of the CPU; 0: one a core")
      ->check(tool::whole_within(0, 4096));
  app.add_option("--only", options.only, "Programs whose name matches, as 'attention/*'");
  app.add_option("--scale", options.scale, "Sizes: full, or small ones for tests")
      ->check(CLI::IsMember({"full", "small"}));
  app.add_option("--shard", options.shard, "K/N: every N-th program, from the K-th (from 0)");
  app.add_option("--save", options.save, "Write the results of each program to this folder");
  app.add_option("--trace", options.measure.trace,
                 "Write a trace of one run of each program to this folder");
  app.add_option("--seconds", options.measure.seconds, "Time at least as long")
      ->check(tool::is_seconds());
  app.add_option("--reps", options.measure.reps, "Time at least as many runs")
      ->check(tool::whole_within(3, 1000000));
  app.add_flag("--list", options.list, "Print names and inputs as JSON lines, run nothing");
  app.add_flag("--verify", options.verify, "Compare with the reference, time nothing");
  app.add_flag("--explain", options.explain,
               "Also print the kernels of each program, to standard error");
  CLI11_PARSE(app, argc, argv);
  return run(options) ? 0 : 1;
}

} // namespace

} // namespace egret::programs

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "worker") == 0) // this program is its own worker
    return egret::compiler::serve_measurements(0);
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) > 0)
    setenv("EGRET_WORKER", self, 0);
  try {
    return egret::programs::command(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

#include "bench.h"
#include "console.h"

#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/device.h"
#include "egret/profile.h"
#include "egret/random.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"
#include "support/fail.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool::bench {

namespace {

/// The outputs of a run, made when those of the run before are gone: each run works in the same
/// memory, as the ceiling that it is compared with does.
void run_again(const Case& c, std::vector<Tensor>& outputs) {
  outputs.clear();
  outputs = c.run();
}

using Clock = std::chrono::steady_clock;
/// Fills memory of the outputs' sizes with NaN and lets go of it, after the outputs themselves: the
/// next run gets that memory, so one that writes nothing is found out.
void poison(std::vector<Tensor> outputs) {
  std::vector<Tensor> fills;
  for (const Tensor& output : outputs)
    if (is_float(output.dtype()))
      fills.push_back(
          full(output.shape(), std::numeric_limits<double>::quiet_NaN(), output.dtype()));
  outputs.clear();
  eval(fills);
}

/// While it lives nothing is searched.
class Unsearched {
public:
  Unsearched() : own_(effort_setting()) { set_effort(Effort::None); }
  ~Unsearched() { set_effort(own_); }
  Unsearched(const Unsearched&) = delete;
  Unsearched& operator=(const Unsearched&) = delete;

private:
  std::optional<Effort> own_;
};
template <class F>
auto without_search(F&& run) {
  const Unsearched scope;
  return run();
}

/// Adds up the phases of what is launched while it lives.
class Phases {
public:
  std::uint64_t seen() const { return seen_; }

private:
  std::atomic<std::uint64_t> seen_ = 0;
  runtime::Observing observing_{{.launch = [this](const runtime::LaunchRecord& launch) {
    seen_ += static_cast<std::uint64_t>(launch.kernel.phases);
  }}};
};

/// What the device in use has left: of a CPU, what the system says is available; 0: unknown.
double free_memory() {
  const backend::Device& device = runtime::Runtime::instance().device();
  if (!device.host_memory())
    return static_cast<double>(device.memory().free);
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (word == "MemAvailable:" && file >> word)
      return 1024 * std::strtod(word.c_str(), nullptr);
  return 0;
}

/// A host gives out more memory than it has and then ends whoever uses it, so it is asked first.
void check_memory(const Workload& workload) {
  const double free = free_memory();
  if (workload.memory > 0 && free > 0 && workload.memory > 0.95 * free)
    fail(ErrorKind::Memory,
         "bench: {} needs about {} of memory on {}, where {} is free; a device with more, or fewer "
         "programs on this one, would help",
         workload.name, bytes_text(workload.memory), device(), bytes_text(free));
}

/// A ceiling as a row of the table: its kernels check nothing, so it is not verified.
Measurement measure_ceiling(const Workload& workload, Measurement m) {
  m.ceiling = ceiling(workload.limit, workload.ceiling_bytes);
  m.of_ceiling = 1;
  (workload.limit == Limit::PeakFma ? m.flops : m.bytes) =
      workload.limit == Limit::PeakFma ? 1e9 : workload.ceiling_bytes;
  if (m.ceiling == 0)
    fail(ErrorKind::Value, "bench: {} is not known of {}", workload.name, m.device);
  m.ms_median = m.ms_min = 1e3 * (m.flops + m.bytes) / m.ceiling;
  m.kernels = m.phases = m.candidates = 1;
  m.is_ceiling = true;
  return m;
}

} // namespace

void Check::include(const Check& other) {
  ok = ok && other.ok;
  max_error = std::max(max_error, other.max_error);
}

std::vector<double> by_reference(const std::function<Tensor()>& make) {
  return values_by_reference([&] { return make().to_vector<double>(); });
}

std::vector<double> values_by_reference(const std::function<std::vector<double>()>& make) {
  auto& runtime = runtime::Runtime::instance();
  struct Restore {
    runtime::Runtime& runtime;
    runtime::Engine engine;
    ~Restore() { runtime.use(engine); }
  } restore{runtime, runtime.engine()};
  runtime.use(runtime::Engine::Reference);
  return make();
}

Check compare(const std::vector<double>& actual, const std::vector<double>& expected,
              double tolerance) {
  Check check{actual.size() == expected.size() && !actual.empty(), 0};
  double largest = 0;
  for (double e : expected)
    largest = std::max(largest, std::abs(e));
  for (std::size_t i = 0; check.ok && i < actual.size(); ++i) {
    double difference = std::abs(actual[i] - expected[i]);
    if (std::isnan(difference) && !(std::isnan(actual[i]) && std::isnan(expected[i])))
      return {false, std::numeric_limits<double>::infinity()};
    if (difference > 0)
      check.max_error = std::max(check.max_error, difference / largest);
  }
  check.ok = check.ok && check.max_error <= tolerance;
  return check;
}

Tensor random_tensor(const std::vector<std::int64_t>& shape, std::uint64_t seed, DType dtype,
                     double deviation) {
  Generator generator(seed);
  Tensor t = normal(Shape(shape.begin(), shape.end()), 0, deviation, generator, dtype);
  t.eval();
  return t;
}

Tensor some_rows(const Tensor& matrix, const std::vector<std::int64_t>& rows) {
  std::vector<std::byte> chosen;
  for (std::int64_t row : rows) {
    auto bytes = matrix.narrow(0, row, 1).to_bytes();
    chosen.insert(chosen.end(), bytes.begin(), bytes.end());
  }
  Shape shape = matrix.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  return from_bytes(matrix.dtype(), shape, chosen);
}

std::vector<std::int64_t> sample_rows(std::int64_t rows, std::int64_t count) {
  std::vector<std::int64_t> chosen;
  for (std::int64_t i = 0; i < std::min(rows, count); ++i)
    chosen.push_back(count > 1 ? i * (rows - 1) / (count - 1) : 0);
  return chosen;
}

Case pure_case(const std::string& name, const Function& function, const MakeInputs& make,
               std::function<Sample(const std::vector<Tensor>&)> sample, double tolerance) {
  auto compiled = std::make_shared<Compiled<Function>>(compile(function, {.name = name}));
  auto sets = std::make_shared<std::vector<std::vector<Tensor>>>();
  sets->push_back(make(0));
  double bytes = 0;
  for (const Tensor& input : sets->front())
    bytes += static_cast<double>(input.numel()) * static_cast<double>(size_of(input.dtype()));
  for (std::uint64_t i = 1; i < sets_of(bytes); ++i)
    sets->push_back(make(i));
  auto last = std::make_shared<std::size_t>(0); // the set of the run before
  Case result;
  result.run = [=] {
    *last = (*last + 1) % sets->size();
    return std::vector<Tensor>{(*compiled)((*sets)[*last])};
  };
  result.check = [=, sample = std::move(sample)](const std::vector<Tensor>& outputs) {
    Sample s = sample((*sets)[*last]);
    auto expected = by_reference([&] { return function(s.inputs); });
    auto all = outputs[0].to_vector<float>();
    std::vector<double> actual;
    for (std::int64_t element : s.elements)
      actual.push_back(all[static_cast<std::size_t>(element)]);
    return compare(actual, expected, tolerance);
  };
  return result;
}

namespace {

/// Rounds in turn with the effort in force and another: what disturbs one disturbs the other.
void compare_efforts(const Case& c, std::vector<Tensor>& outputs, Effort other,
                     const MeasureOptions& options, Measurement& m) {
  const std::optional<Effort> own = effort_setting();
  const int together = std::max(1, static_cast<int>(1 / std::max(1e-6, m.ms_median)));
  backend::Device& device = runtime::Runtime::instance().device();
  set_effort(other);
  run_again(c, outputs); // compiles
  std::vector<double> own_times, other_times;
  auto sample = [&](std::optional<Effort> which, std::vector<double>& times) {
    set_effort(which);
    run_again(c, outputs); // finds its plan
    device.synchronize();
    const auto start = Clock::now();
    for (int i = 0; i < together; ++i)
      run_again(c, outputs);
    device.synchronize();
    times.push_back(seconds_since(start) / together);
    return times.back() * (together + 1);
  };
  for (double spent = 0; spent < 2 * options.seconds || own_times.size() < 5;) {
    spent += sample(own, own_times);
    spent += sample(other, other_times);
  }
  set_effort(own);
  auto median = [](std::vector<double> times) {
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  m.rounds = own_times.size();
  m.against_ms = 1e3 * median(other_times);
  m.ratio = 1e3 * median(own_times) / m.against_ms;
  std::vector<double> quotients;
  for (std::size_t i = 0; i < own_times.size(); ++i)
    quotients.push_back(own_times[i] / other_times[i]);
  std::sort(quotients.begin(), quotients.end());
  m.ratio_low = quotients[quotients.size() / 4];
  m.ratio_high = quotients[quotients.size() * 3 / 4];
}

} // namespace

void unsearched(const std::function<void()>& run) {
  without_search(run);
}

void trace_run(const std::function<void()>& run, const std::string& folder,
               const std::string& name) {
  const std::filesystem::path file = std::filesystem::path(folder) / (name + ".json");
  std::error_code unmade; // then the trace cannot be written either, which is said
  std::filesystem::create_directories(file.parent_path(), unmade);
  Profile profile(file.string());
  run();
  profile.close();
}

Measurement measure_case(const Case& c, const MeasureOptions& options) {
  Measurement m;
  m.flops = c.flops;
  m.bytes = c.bytes;

  Counters before = counters();
  auto start = Clock::now();
  auto outputs = c.run();
  const double first = seconds_since(start);
  Counters made = counters() - before;
  m.candidates = made.candidates_tried > 0 ? made.candidates_tried : made.kernels_compiled;
  m.cache_hit =
      made.measurements == 0 && (made.choices_remembered > 0 || made.kernels_compiled == 0);
  m.search_seconds = static_cast<double>(made.search_microseconds) * 1e-6;

  reset_peak_bytes();
  before = counters();
  {
    Phases phases;
    run_again(c, outputs);
    m.phases = phases.seen();
  }
  m.kernels = (counters() - before).kernels_launched;
  m.peak_bytes = counters().peak_bytes;

  const Times times = time_runs([&] { run_again(c, outputs); }, options);
  m.reps = times.runs;
  m.ms_median = 1e3 * times.median();
  m.ms_min = 1e3 * times.seconds.front();
  m.compile_seconds = std::max(0.0, first - times.median());
  m.tokens_per_second = c.tokens / times.median();

  if (options.against)
    compare_efforts(c, outputs, *options.against, options, m);
  without_search([&] { poison(std::move(outputs)); });
  outputs = c.run();
  const Check check = without_search([&] { return c.check(outputs); });
  m.verified = check.ok;
  m.max_error = check.max_error;
  return m;
}

Measurement measure(const Workload& workload, const MeasureOptions& options) {
  Measurement m;
  if (workload.make) {
    check_memory(workload);
    const Case c = without_search(workload.make);
    m = measure_case(c, options);
    if (!options.trace.empty())
      trace_run(c.run, options.trace, workload.name);
    m.ceiling = without_search([&] { return ceiling(workload.limit, m.bytes); });
    if (m.ceiling > 0)
      m.of_ceiling =
          (workload.limit == Limit::PeakFma ? m.flops : m.bytes) / (1e-3 * m.ms_median) / m.ceiling;
    if (c.product)
      m.cublas_ms = 1e3 * without_search([&] { return cublas_seconds(*c.product, options); });
    m.of_cublas = m.cublas_ms / m.ms_median;
  } else {
    m.device = device();
    m = without_search([&] { return measure_ceiling(workload, std::move(m)); });
  }
  m.name = workload.name;
  m.device = device();
  m.dtype = workload.dtype;
  return m;
}

std::string Measurement::json() const {
  nlohmann::ordered_json fields = {
      {"name", name},
      {"device", device},
      {"dtype", dtype},
      {"ms_median", ms_median},
      {"ms_min", ms_min},
      {"reps", reps},
      {"flops", flops},
      {"bytes", bytes},
      {"kernels", kernels},
      {"phases", phases},
      {"peak_bytes", peak_bytes},
      {"search_seconds", search_seconds},
      {"compile_seconds", compile_seconds},
      {"candidates", candidates},
      {"verified", is_ceiling ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(verified)},
      {"max_error", std::isfinite(max_error) ? nlohmann::ordered_json(max_error)
                                             : nlohmann::ordered_json("inf")},
      {"cache_hit", cache_hit},
      {"ceiling", ceiling},
      {"of_ceiling", of_ceiling}};
  if (tokens_per_second > 0)
    fields["tokens_per_second"] = tokens_per_second;
  if (cublas_ms > 0) {
    fields["cublas_ms"] = cublas_ms;
    fields["of_cublas"] = of_cublas;
  }
  if (ratio > 0) {
    fields["against_ms"] = against_ms;
    fields["ratio"] = ratio;
    fields["ratio_low"] = ratio_low;
    fields["ratio_high"] = ratio_high;
    fields["rounds"] = rounds;
  }
  return fields.dump();
}

} // namespace egret::tool::bench

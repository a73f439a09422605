#include "bench.h"

#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/random.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
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
double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

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

/// Adds up the phases of what is launched while it lives.
class Phases {
public:
  Phases() {
    runtime::set_launch_hook([this](const runtime::LaunchRecord& launch) {
      seen_ += static_cast<std::uint64_t>(launch.kernel.phases);
    });
  }
  ~Phases() { runtime::set_launch_hook({}); }
  Phases(const Phases&) = delete;
  Phases& operator=(const Phases&) = delete;
  std::uint64_t seen() const { return seen_; }

private:
  std::atomic<std::uint64_t> seen_ = 0;
};

/// A ceiling as a row of the table: its kernels check nothing, so it is not verified.
Measurement measure_ceiling(const Workload& workload, Measurement m) {
  m.ceiling = ceiling(workload.limit, workload.ceiling_bytes);
  m.of_ceiling = 1;
  (workload.limit == Limit::PeakFma ? m.flops : m.bytes) =
      workload.limit == Limit::PeakFma ? 1e9 : workload.ceiling_bytes;
  m.ms_median = m.ms_min = 1e3 * (m.flops + m.bytes) / m.ceiling;
  m.kernels = m.phases = m.candidates = 1;
  return m;
}

} // namespace

void Check::include(const Check& other) {
  ok = ok && other.ok;
  max_error = std::max(max_error, other.max_error);
}

std::vector<double> by_reference(const std::function<Tensor()>& make) {
  auto& runtime = runtime::Runtime::instance();
  struct Restore {
    runtime::Runtime& runtime;
    runtime::Engine engine;
    ~Restore() { runtime.use(engine); }
  } restore{runtime, runtime.engine()};
  runtime.use(runtime::Engine::Reference);
  return make().to_vector<double>();
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
  auto bytes = matrix.to_bytes();
  std::size_t row = bytes.size() / static_cast<std::size_t>(matrix.size(0));
  std::vector<std::byte> chosen(row * rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    std::memcpy(chosen.data() + i * row, bytes.data() + static_cast<std::size_t>(rows[i]) * row,
                row);
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

Case pure_case(const std::string& name, const Function& function, const std::vector<Tensor>& inputs,
               std::function<Sample()> sample, double tolerance) {
  auto compiled = std::make_shared<Compiled<Function>>(compile(function, {.name = name}));
  Case result;
  result.run = [compiled, inputs] { return std::vector<Tensor>{(*compiled)(inputs)}; };
  result.check = [function, sample = std::move(sample),
                  tolerance](const std::vector<Tensor>& outputs) {
    Sample s = sample();
    auto expected = by_reference([&] { return function(s.inputs); });
    auto all = outputs[0].to_vector<float>();
    std::vector<double> actual;
    for (std::int64_t element : s.elements)
      actual.push_back(all[static_cast<std::size_t>(element)]);
    return compare(actual, expected, tolerance);
  };
  return result;
}

Measurement measure(const Workload& workload, const MeasureOptions& options) {
  Measurement m;
  m.name = workload.name;
  m.device = runtime::Runtime::instance().target().device;
  m.dtype = workload.dtype;
  if (!workload.make)
    return measure_ceiling(workload, std::move(m));
  Case c = workload.make();
  m.flops = c.flops;
  m.bytes = c.bytes;

  Counters before = counters();
  auto start = Clock::now();
  auto outputs = c.run();
  const double first = since(start);
  Counters made = counters() - before;
  m.candidates = made.kernels_compiled;
  m.cache_hit = made.kernels_compiled == 0;

  reset_peak_bytes();
  before = counters();
  {
    Phases phases;
    run_again(c, outputs);
    m.phases = phases.seen();
  }
  m.kernels = (counters() - before).kernels_launched;
  m.peak_bytes = counters().peak_bytes;

  // Short runs are timed several at a time, so that the clock is not what is measured.
  start = Clock::now();
  run_again(c, outputs);
  const int together = std::max(1, static_cast<int>(1e-3 / std::max(1e-9, since(start))));
  for (double spent = 0; spent < 0.1;) { // warm up
    start = Clock::now();
    for (int i = 0; i < together; ++i)
      run_again(c, outputs);
    spent += since(start);
  }
  std::vector<double> times;
  double spent = 0;
  while (spent < options.seconds || times.size() < static_cast<std::size_t>(options.reps)) {
    start = Clock::now();
    for (int i = 0; i < together; ++i)
      run_again(c, outputs);
    double t = since(start);
    spent += t;
    times.push_back(t / together);
    if (spent > 10 * options.seconds && times.size() >= 3)
      break;
  }
  std::sort(times.begin(), times.end());
  m.reps = static_cast<std::int64_t>(times.size()) * together;
  m.ms_median = 1e3 * times[times.size() / 2];
  m.ms_min = 1e3 * times.front();
  m.compile_seconds = std::max(0.0, first - times[times.size() / 2]);

  poison(std::move(outputs));
  outputs = c.run();
  Check check = c.check(outputs);
  m.verified = check.ok;
  m.max_error = check.max_error;
  m.ceiling = ceiling(workload.limit, m.bytes);
  if (m.ceiling > 0)
    m.of_ceiling =
        (workload.limit == Limit::PeakFma ? m.flops : m.bytes) / (1e-3 * m.ms_median) / m.ceiling;
  return m;
}

std::string Measurement::json() const {
  return nlohmann::ordered_json{{"name", name},
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
                                {"verified", verified},
                                {"max_error", std::isfinite(max_error)
                                                  ? nlohmann::ordered_json(max_error)
                                                  : nlohmann::ordered_json("inf")},
                                {"cache_hit", cache_hit},
                                {"ceiling", ceiling},
                                {"of_ceiling", of_ceiling}}
      .dump();
}

} // namespace egret::tool::bench

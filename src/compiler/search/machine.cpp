#include "compiler/search/machine.h"

#include "compiler/compile.h"
#include "compiler/search/cost_model.h"
#include "compiler/search/timing.h"
#include "egret/error.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

namespace egret::compiler {

namespace {

using Clock = std::chrono::steady_clock;
using ir::NodeId;

/// In place of a region's hash in the keys of figures.
constexpr std::uint64_t kMachineRegion = 0x6d616368696e65; // "machine"

/// The figures by the name under which they are remembered.
struct Figure {
  std::string_view schedule;
  double Machine::*value;
};
constexpr std::array<Figure, 4> kFigures{{{"machine_launch", &Machine::launch_seconds},
                                          {"machine_bytes", &Machine::bytes_per_second},
                                          {"machine_flops", &Machine::flops_per_second},
                                          {"machine_cycle", &Machine::cycle_seconds}}};

/// y = 2 x.
ir::Graph scaling(std::int64_t elements) {
  ir::Graph g;
  const NodeId x = g.input("x", DType::F32, {Expr(elements)});
  g.outputs = {g.binary(Op::Add, x, x)};
  return g;
}

ir::Graph exponentials(std::int64_t elements) {
  ir::Graph g;
  const NodeId x = g.input("x", DType::F32, {Expr(elements)});
  g.outputs = {g.unary(Op::Exp, g.unary(Op::Tanh, x))};
  return g;
}

ir::Graph product(std::int64_t n) {
  ir::Graph g;
  const Shape cube{Expr(n), Expr(n), Expr(n)};
  const NodeId a = g.input("a", DType::F32, {Expr(n), Expr(n)});
  const NodeId b = g.input("b", DType::F32, {Expr(n), Expr(n)});
  const NodeId left = g.expand(g.reshape(a, {Expr(n), Expr(n), Expr(1)}), cube);
  const NodeId right = g.expand(g.reshape(b, {Expr(1), Expr(n), Expr(n)}), cube);
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {1})};
  return g;
}

/// A compiled graph with memory for all that it works on, filled with zeros.
class Probe {
public:
  Probe(backend::Device& device, const ir::Graph& graph)
      : device_(device), compiled_(compile_graph(graph, {}, device, cache_)) {
    for (const kernel::Slot& slot : compiled_.plan.slots) {
      const auto bytes = static_cast<std::size_t>(slot.bytes.value());
      const std::vector<std::byte> zeros(bytes);
      memory_.push_back(
          std::unique_ptr<void, Release>(device.allocate(bytes), Release{&device, bytes}));
      device.copy_in(memory_.back().get(), zeros.data(), bytes);
    }
    for (const kernel::Step& step : compiled_.plan.steps)
      for (int slot : step.slots)
        pointers_.push_back(memory_[static_cast<std::size_t>(slot)].get());
    void** next = pointers_.data();
    for (const kernel::Step& step : compiled_.plan.steps) {
      backend::Work& work = work_.emplace_back();
      work.artifact = compiled_.artifacts[static_cast<std::size_t>(step.kernel)].get();
      work.program = &compiled_.plan.kernels[static_cast<std::size_t>(step.kernel)].program;
      work.block.pointers = next;
      next += step.slots.size();
    }
  }

  /// Seconds of a run, the first decile of rounds that together take about `seconds`.
  double time(double seconds) {
    run(1);
    const double once = std::max(run(1), 1e-9);
    const int repeat = std::clamp(static_cast<int>(2e-4 / once), 1, 200);
    const int rounds = std::clamp(static_cast<int>(seconds / (once * repeat)), 5, 60);
    std::vector<double> samples;
    for (int i = 0; i < rounds; ++i)
      samples.push_back(run(repeat) / repeat);
    return timing_of(samples).seconds;
  }
  const Compiled& compiled() const { return compiled_; }

private:
  struct Release {
    backend::Device* device;
    std::size_t bytes;
    void operator()(void* memory) const noexcept { device->release(memory, bytes); }
  };

  double run(int times) {
    device_.synchronize();
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i)
      device_.submit(work_);
    device_.synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  backend::Device& device_;
  KernelCache cache_;
  Compiled compiled_;
  std::vector<std::unique_ptr<void, Release>> memory_;
  std::vector<void*> pointers_;
  std::vector<backend::Work> work_;
};

/// The seconds that a measured run took for each cycle that the model counts.
double seconds_a_cycle(const Probe& probe, const kernel::Target& target, double seconds) {
  const kernel::KernelEntry& entry = probe.compiled().plan.kernels.at(0);
  return seconds / std::max(1.0, arithmetic_cycles(entry.program, target, {}));
}

} // namespace

Machine usual_machine(const kernel::Target& target) {
  if (target.threads > 0)
    return {3e-6, 3e12, 4e13, 0, false};
  constexpr double kHertz = 3e9;
  return {0.3e-6, kHertz * std::min(8.0, 5.0 * target.workers),
          kHertz * target.workers * target.vector_bytes / 4 * (target.has_fma ? 4 : 2), 1 / kHertz,
          false};
}

Machine measure_machine(backend::Device& device) {
  constexpr double kEach = 0.03; // seconds
  constexpr std::int64_t kStream = std::int64_t{1} << 24;
  const kernel::Target& target = device.target();
  const bool gpu = target.threads > 0;
  Machine machine;
  machine.measured = true;
  machine.launch_seconds = Probe(device, scaling(16)).time(kEach);
  machine.bytes_per_second = 8.0 * kStream / Probe(device, scaling(kStream)).time(2 * kEach);
  const std::int64_t n = gpu ? 2048 : 384;
  Probe matrices(device, product(n));
  const double seconds = matrices.time(kEach);
  machine.flops_per_second = 2.0 * static_cast<double>(n * n * n) / seconds;
  if (!gpu) { // the geometric mean of two kinds of loops
    Probe values(device, exponentials(8192));
    const double alone = std::max(values.time(kEach) - machine.launch_seconds, 1e-7);
    machine.cycle_seconds = std::sqrt(seconds_a_cycle(matrices, target, seconds) *
                                      seconds_a_cycle(values, target, alone));
  }
  return machine;
}

Machine machine_of(backend::Device& device, TuningDatabase& database, TuningKey key,
                   bool may_measure) {
  key.region = kMachineRegion;
  Machine machine = usual_machine(device.target());
  std::size_t known = 0;
  for (const TuningTrial& trial : database.trials(key))
    for (const Figure& figure : kFigures)
      if (trial.schedule == figure.schedule && trial.seconds >= 0 && std::isfinite(trial.seconds)) {
        machine.*figure.value = trial.seconds;
        ++known;
      }
  machine.measured = known == kFigures.size();
  if (machine.measured || !may_measure)
    return machine.measured ? machine : usual_machine(device.target());
  try {
    machine = measure_machine(device);
  } catch (const Error&) { // no memory for it, say: the round figures will do
    return usual_machine(device.target());
  }
  for (const Figure& figure : kFigures)
    database.put(
        key, TuningTrial{std::string(figure.schedule), "timed", "", machine.*figure.value, 0, 0});
  return machine;
}

} // namespace egret::compiler

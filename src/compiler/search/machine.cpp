#include "compiler/search/machine.h"

#include "compiler/compile.h"
#include "compiler/search/cost_model.h"
#include "compiler/search/plan_timer.h"
#include "compiler/search/timing.h"
#include "egret/error.h"

#include <algorithm>
#include <cmath>

namespace egret::compiler {

namespace {

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

/// A compiled graph with what times it.
class Probe {
public:
  Probe(backend::Device& device, const ir::Graph& graph)
      : compiled_(compile_graph(graph, {}, device, cache_)), timer_(device, compiled_, 0, false) {}

  /// Seconds of a run, the first decile of rounds that together take about `seconds`.
  double time(double seconds) {
    PlanTimer* const timer = &timer_;
    return timing_of(time_in_turn({&timer, 1}, seconds)[0]).seconds;
  }
  const Compiled& compiled() const { return compiled_; }

private:
  KernelCache cache_;
  Compiled compiled_;
  PlanTimer timer_;
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

#include "compiler/search/cost_model.h"

#include "compiler/search/candidates.h"
#include "kernel/phases.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret::compiler {

namespace reference = backend::reference;
using kernel::Block;
using kernel::Stmt;

namespace {

constexpr double kBarrierSeconds = 0.5e-6, kGpuBarrierSeconds = 1e-6;
/// Of a GPU, a round figure of present machines.
constexpr double kGpuCycleSeconds = 1 / 1.7e9;

/// Elements from lane to lane; nothing when that is no constant.
std::optional<std::int64_t> lane_stride(const Expr& e) {
  for (const Expr& v : variables_of(e))
    if (kernel::lanes_of(v)) {
      const Expr next = substitute(e, [&](const Expr& x) -> std::optional<Expr> {
        return x == v ? std::optional(v + Expr(1)) : std::nullopt;
      });
      return (next - e).constant();
    }
  return 0;
}

/// How often the loop runs, on average over the first, the middle and the last iterations of the
/// loops around it: ends that depend on those (parts of a row, triangles) are far from their
/// bounds.
double trips_of(const kernel::For& s, const reference::Bindings& sizes) {
  const Expr length = s.end - s.begin;
  const double step = static_cast<double>(std::max<std::int64_t>(1, s.step.lower()));
  const std::vector<Expr> variables = variables_of(length);
  constexpr int kPlaces = 3;
  double sum = 0;
  for (int place = 0; place < kPlaces; ++place) {
    const Expr here = substitute(length, [&](const Expr& v) -> std::optional<Expr> {
      for (const auto& [symbol, value] : sizes.values())
        if (v == symbol)
          return Expr(value);
      if (std::find(variables.begin(), variables.end(), v) == variables.end() ||
          v.upper() == std::numeric_limits<std::int64_t>::max() ||
          v.lower() == std::numeric_limits<std::int64_t>::min())
        return std::nullopt;
      const std::int64_t middle = v.lower() + (v.upper() - v.lower()) / 2;
      return Expr(place == 0 ? v.lower() : place == 1 ? middle : v.upper());
    });
    const std::int64_t upper = here.upper();
    if (upper == std::numeric_limits<std::int64_t>::max()) // by data: how often is not known
      return 1;
    sum += std::ceil(
        static_cast<double>(std::clamp<std::int64_t>(upper, 0, std::int64_t{1} << 40)) / step);
    if (variables.empty())
      return sum;
  }
  return sum / kPlaces;
}

/// Problems of a group that stand for all of them: the share of all items that each stands for, and
/// its sizes beside `known` ones.
std::vector<std::pair<double, reference::Bindings>>
problems_to_try(const std::vector<kernel::ProblemGroup>& groups, int number,
                const reference::Bindings& known) {
  constexpr std::size_t kMost = 16;
  const kernel::ProblemGroup& group = groups[static_cast<std::size_t>(number)];
  const std::size_t count = std::min(kMost, group.problems());
  std::vector<std::pair<double, reference::Bindings>> result;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t item = (2 * static_cast<std::int64_t>(i) + 1) * group.begin.back() /
                              (2 * static_cast<std::int64_t>(count));
    const std::size_t problem = group.problem_of(item);
    reference::Bindings sizes = known;
    sizes.set(group.item, item - group.begin[problem]);
    for (std::size_t s = 0; s < group.sizes.size(); ++s)
      sizes.set(group.sizes[s], group.values[s][problem]);
    result.emplace_back(1.0 / static_cast<double>(count), std::move(sizes));
  }
  return result;
}

/// Cycles of one thread of a GPU that has the machine to itself: its instructions, and for what an
/// iteration of a loop reads from memory and the one before it wrote, the time that this takes.
class ThreadCycles {
public:
  ThreadCycles(const kernel::KernelProgram& program, const kernel::Target& target,
               const reference::Bindings& sizes)
      : program_(program), sizes_(sizes) {
    const int threads = std::max(32, program.launch.threads);
    blocks_ =
        std::max(1.0, static_cast<double>(target.workers) * std::max(1, target.threads / threads));
  }

  double of(const Block& block) const {
    double sum = 0;
    for (const Stmt& s : block)
      sum += of(s);
    return sum;
  }

private:
  static constexpr double kSharedLatency = 30, kMemoryLatency = 300;

  ThreadCycles(const ThreadCycles& outside, const reference::Bindings& sizes)
      : program_(outside.program_), sizes_(sizes), blocks_(outside.blocks_) {}

  double of(const Stmt& s) const {
    return std::visit(
        overloaded{[](const kernel::Let& x) {
                     return get_if<kernel::inst::Constant>(x.inst) ||
                                    get_if<kernel::inst::Argument>(x.inst)
                                ? 0.0
                                : 1.0;
                   },
                   [](const kernel::Assign&) { return 1.0; },
                   [](const kernel::Store&) { return 1.0; },
                   [&](const kernel::For& x) { return loop(x); },
                   [&](const kernel::If& x) { return 1 + std::max(of(x.body), of(x.otherwise)); },
                   [](const kernel::Barrier&) { return 1.0; },
                   [](const kernel::Intrinsic&) { return 1.0; },
                   [&](const kernel::Acquire& x) { return 1 + of(x.body); },
                   [&](const kernel::InProblem& x) {
                     double sum = 0;
                     const auto samples = problems_to_try(program_.groups, x.group, sizes_);
                     for (const auto& [share, sizes] : samples)
                       sum += share * ThreadCycles(*this, sizes).of(x.body);
                     return sum;
                   }},
        s.node);
  }

  double loop(const kernel::For& x) const {
    const auto variables = variables_of(x.end - x.begin);
    // How often a loop runs whose end is data is not known.
    const bool data = std::any_of(variables.begin(), variables.end(),
                                  [](const Expr& v) { return kernel::value_of(v).has_value(); });
    const double times = data ? 1 : trips_of(x, sizes_), body = of(x.body) + 1;
    if (x.bind == kernel::Bind::Grid)
      return std::ceil(times / blocks_) * body;
    return times * std::max(body, latency(x.body));
  }

  /// Until what a block stores can be read by its next iteration.
  double latency(const Block& block) const {
    double most = 0;
    for (std::size_t i = 0; i < program_.buffers.size(); ++i)
      if (touches(block, static_cast<int>(i), true) && touches(block, static_cast<int>(i), false))
        most = std::max(most, program_.buffers[i].space == kernel::Space::Shared ? kSharedLatency
                                                                                 : kMemoryLatency);
    return most;
  }

  /// Whether a block itself loads from or stores to a buffer; nested loops speak for themselves.
  static bool touches(const Block& block, int buffer, bool stores) {
    return std::any_of(block.begin(), block.end(), [&](const Stmt& s) {
      if (get_if<kernel::For>(s))
        return false;
      const auto* store = get_if<kernel::Store>(s);
      const auto* load = kernel::made_by<kernel::inst::Load>(s);
      bool found =
          stores ? store && store->to.buffer == buffer : load && load->from.buffer == buffer;
      kernel::each_block(
          s, [&](const Block& inner) { found = found || touches(inner, buffer, stores); });
      return found;
    });
  }

  const kernel::KernelProgram& program_;
  const reference::Bindings& sizes_;
  double blocks_ = 1; ///< that run at a time
};

class CpuCycles {
public:
  CpuCycles(const kernel::KernelProgram& program, const kernel::Target& target,
            const reference::Bindings& sizes)
      : program_(program), vector_(std::max(target.vector_bytes, 8)), sizes_(sizes) {}

  struct Sum {
    double shared = 0, alone = 0; ///< cycles in loops over the workers, and of each worker
  };
  Sum of(const Block& block) const {
    Sum sum;
    for (const Stmt& s : block) {
      const Sum one = of(s);
      sum.shared += one.shared;
      sum.alone += one.alone;
    }
    return sum;
  }

private:
  CpuCycles(const CpuCycles& outside, const reference::Bindings& sizes)
      : program_(outside.program_), vector_(outside.vector_), sizes_(sizes) {}

  Sum of(const Stmt& s) const {
    return std::visit(
        overloaded{[&](const kernel::Let& x) {
                     return Sum{0, inst(x.inst)};
                   },
                   [](const kernel::Assign&) { return Sum{}; },
                   [&](const kernel::Store& x) {
                     const kernel::Type& type = program_.values[static_cast<std::size_t>(x.value)];
                     return Sum{0, access(x.to.index, x.mask, type, 1.0)};
                   },
                   [&](const kernel::For& x) {
                     const double times = trips_of(x, sizes_);
                     Sum body = of(x.body);
                     body.alone += 1.0 / std::max(1, x.unroll);
                     if (x.bind == kernel::Bind::Core)
                       return Sum{(body.shared + body.alone) * times, 0};
                     return Sum{body.shared * times, body.alone * times};
                   },
                   [&](const kernel::If& x) {
                     // Which of them is not known: parts of a batch and remainders are not all the
                     // most.
                     const Sum yes = of(x.body), no = of(x.otherwise);
                     return Sum{(yes.shared + no.shared) / 2, (yes.alone + no.alone) / 2 + 0.5};
                   },
                   [](const kernel::Barrier&) { return Sum{}; },
                   [](const kernel::Intrinsic& x) {
                     return Sum{0, x.id == kernel::IntrinsicId::Prefetch ? 0.5 : 0};
                   },
                   [](const kernel::Acquire&) { return Sum{}; },
                   [&](const kernel::InProblem& x) {
                     Sum sum;
                     const auto samples = problems_to_try(program_.groups, x.group, sizes_);
                     for (const auto& [share, sizes] : samples) {
                       const Sum one = CpuCycles(*this, sizes).of(x.body);
                       sum.shared += share * one.shared;
                       sum.alone += share * one.alone;
                     }
                     return sum;
                   }},
        s.node);
  }

  /// Vector registers that a value takes.
  double parts(int lanes, DType dtype) const {
    return std::max(1.0, static_cast<double>(lanes) * static_cast<double>(size_of(dtype)) /
                             static_cast<double>(vector_));
  }

  double access(const Expr& index, const std::vector<Guard>& guards, const kernel::Type& type,
                double each) const {
    const double mask = guards.empty() ? 0 : 0.5;
    if (type.lanes == 1)
      return each * 0.5 + mask;
    const auto stride = lane_stride(index);
    if (!stride || std::abs(*stride) > 1)
      return type.lanes * each * 0.75 + mask;
    return (*stride == 0 ? 0.5 : parts(type.lanes, type.dtype) * each * 0.5) + mask;
  }

  double inst(const kernel::Inst& i) const {
    namespace inst = kernel::inst;
    const double width = parts(i.type.lanes, i.type.dtype);
    return std::visit(
        overloaded{
            [](const inst::Constant&) { return 0.0; }, [](const inst::Argument&) { return 0.0; },
            [](const inst::Read&) { return 0.0; },
            [&](const inst::Apply& x) {
              return 0.5 * width * std::max(0.5, double(info_of(x.op).flops));
            },
            [&](const inst::Fma&) { return 0.5 * width; },
            [&](const inst::Index&) { return 0.5 * width; },
            [&](const inst::Test&) { return 0.5 * width; },
            [&](const inst::Load& x) { return access(x.from.index, x.mask, i.type, 1.0); },
            [](const inst::Splat&) { return 0.5; }, [](const inst::Extract&) { return 1.0; },
            [&](const inst::Shuffle&) { return width; },
            [&](const inst::ReduceLanes&) { return 1.5 * std::log2(std::max(2, i.type.lanes)); },
            [](const kernel::Intrinsic&) { return 1.0; }},
        i.op);
  }

  const kernel::KernelProgram& program_;
  int vector_;
  const reference::Bindings& sizes_;
};

bool streams(const Block& block) {
  return any_statement(block, [](const Stmt& s) {
    const auto* store = get_if<kernel::Store>(s);
    return store && store->policy == kernel::CachePolicy::Streaming;
  });
}

double size_or_upper(const Expr& e, const reference::Bindings& sizes) {
  const auto variables = variables_of(e);
  const bool known = std::all_of(variables.begin(), variables.end(), [&](const Expr& v) {
    return std::any_of(sizes.values().begin(), sizes.values().end(),
                       [&](const auto& entry) { return entry.first == v; });
  });
  return static_cast<double>(known ? sizes.value_of(e) : e.upper());
}

double cpu_memory_seconds(const kernel::KernelProgram& program, const kernel::Target& target,
                          const Machine& machine, double read, double written, double workers,
                          bool cold) {
  const double bytes = read + written;
  if (!cold && bytes <= static_cast<double>(target.l2_bytes) * workers)
    return bytes / (32 * workers) * machine.cycle_seconds;
  if (!cold &&
      bytes <= static_cast<double>(target.l3_bytes) / 2) // streaming stores leave the caches
    return (streams(program.body) ? read + 3 * written : bytes) / (12 * workers) *
           machine.cycle_seconds;
  const double share = std::min(1.0, workers / std::min(2.0, static_cast<double>(target.workers)));
  return (streams(program.body) ? bytes : bytes + written) / (machine.bytes_per_second * share);
}

double workers_of(const kernel::KernelProgram& program, const kernel::Target& target,
                  const reference::Bindings& sizes) {
  return std::clamp(size_or_upper(program.launch.workers, sizes), 1.0,
                    static_cast<double>(std::max(1, target.workers)));
}

} // namespace

double arithmetic_cycles(const kernel::KernelProgram& program, const kernel::Target& target,
                         const reference::Bindings& sizes) {
  const auto cycles = CpuCycles(program, target, sizes).of(program.body);
  return cycles.shared / workers_of(program, target, sizes) + cycles.alone;
}

double least_seconds(const kernel::KernelProgram& program, const kernel::Region& region,
                     const kernel::Target& target, const Machine& machine,
                     const reference::Bindings& sizes, bool cold) {
  if (program.launch.threads > 0)
    return 0;
  // A fused multiply-add of vectors does most: two operations an element in half a cycle.
  constexpr double kCyclesPerFlop = 0.25;
  const kernel::Cost cost = kernel::cost_of(region);
  const auto workers = static_cast<double>(std::max(1, target.workers));
  const double lanes = std::max(target.vector_bytes, 8) / static_cast<double>(size_of(DType::F32));
  const double least =
      kCyclesPerFlop * size_or_upper(cost.flops, sizes) / lanes / workers * machine.cycle_seconds;
  // Where the program takes less, it has instructions that do more, or leaves some work out.
  const double taken = arithmetic_cycles(program, target, sizes) * machine.cycle_seconds;
  const double memory =
      cpu_memory_seconds(program, target, machine, size_or_upper(cost.bytes_read, sizes),
                         size_or_upper(cost.bytes_written, sizes), workers, cold);
  return machine.launch_seconds + std::max(least <= taken ? least : 0, memory);
}

double predict(const kernel::KernelProgram& program, const kernel::Region& region,
               const kernel::Target& target, const Machine& machine,
               const reference::Bindings& sizes, bool cold) {
  const kernel::Cost cost = kernel::cost_of(region);
  const double read = size_or_upper(cost.bytes_read, sizes),
               written = size_or_upper(cost.bytes_written, sizes);
  const auto barriers = static_cast<double>(kernel::phases_of(program) - 1);
  if (program.launch.threads > 0)
    return machine.launch_seconds + barriers * kGpuBarrierSeconds +
           std::max({(read + written) / machine.bytes_per_second,
                     size_or_upper(cost.flops, sizes) / machine.flops_per_second,
                     ThreadCycles(program, target, sizes).of(program.body) * kGpuCycleSeconds});
  const double workers = workers_of(program, target, sizes);
  const double arithmetic = arithmetic_cycles(program, target, sizes) * machine.cycle_seconds;
  const double memory = cpu_memory_seconds(program, target, machine, read, written, workers, cold);
  // Several workers also wait for each other at the end.
  const double meetings = barriers + (workers > 1 ? 1 : 0);
  return machine.launch_seconds + meetings * kBarrierSeconds * workers +
         std::max(arithmetic, memory);
}

} // namespace egret::compiler

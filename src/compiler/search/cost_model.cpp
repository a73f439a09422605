#include "compiler/search/cost_model.h"

#include "compiler/search/candidates.h"
#include "kernel/phases.h"

#include <algorithm>
#include <cmath>

namespace egret::compiler {

namespace reference = backend::reference;
using kernel::Block;
using kernel::Inst;
using kernel::InstKind;
using kernel::Stmt;
using kernel::StmtKind;

namespace {

constexpr double kBarrierSeconds = 0.5e-6, kGpuBarrierSeconds = 1e-6;

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
  Sum of(const Stmt& s) const {
    switch (s.kind) {
    case StmtKind::Let:
      return {0, inst(s.inst)};
    case StmtKind::Store:
      return {0, access(s.inst, program_.buffers[static_cast<std::size_t>(s.inst.buffer)].dtype,
                        lanes_of_value(s), 1.0)};
    case StmtKind::Prefetch:
      return {0, 0.5};
    case StmtKind::For: {
      const double times = trips(s);
      Sum body = of(s.body);
      body.alone += 1.0 / std::max(1, s.unroll);
      if (s.bind == kernel::Bind::Core)
        return {(body.shared + body.alone) * times, 0};
      return {body.shared * times, body.alone * times};
    }
    case StmtKind::If: {
      const Sum yes = of(s.body), no = of(s.otherwise);
      return {std::max(yes.shared, no.shared), std::max(yes.alone, no.alone) + 0.5};
    }
    default:
      return {0, 0};
    }
  }

  int lanes_of_value(const Stmt& s) const {
    return s.args.empty() ? 1 : program_.values[static_cast<std::size_t>(s.args[0])].lanes;
  }

  double trips(const Stmt& s) const {
    const Expr length = substitute(s.end - s.begin, [&](const Expr& v) -> std::optional<Expr> {
      for (const auto& [symbol, value] : sizes_.values())
        if (v == symbol)
          return Expr(value);
      return std::nullopt;
    });
    const auto most =
        static_cast<double>(std::clamp<std::int64_t>(upper_of(length), 0, std::int64_t{1} << 40));
    return std::ceil(most / static_cast<double>(std::max<std::int64_t>(1, s.step.lower())));
  }

  /// As upper(), but where a minimum is added, the least of what each of its operands would give:
  /// min(10 i, 758) + 10 - 10 i is at most 10.
  static std::int64_t upper_of(const Expr& e) {
    const ExprNode& node = e.node();
    for (std::size_t i = 0; node.kind == ExprKind::Sum && i < node.operands.size(); ++i) {
      const Expr& part = node.operands[i];
      if (part.node().kind != ExprKind::Min || node.coefficients[i] < 0)
        continue;
      const Expr times(node.coefficients[i]);
      const Expr rest = e - times * part;
      return std::min(upper_of(rest + times * part.node().operands[0]),
                      upper_of(rest + times * part.node().operands[1]));
    }
    return e.upper();
  }

  /// Vector registers that a value takes.
  double parts(int lanes, DType dtype) const {
    return std::max(1.0, static_cast<double>(lanes) * static_cast<double>(size_of(dtype)) /
                             static_cast<double>(vector_));
  }

  double access(const Inst& i, DType dtype, int lanes, double each) const {
    const double mask = i.mask.empty() ? 0 : 0.5;
    if (lanes == 1)
      return each * 0.5 + mask;
    const auto stride = lane_stride(i.expr);
    if (!stride || std::abs(*stride) > 1)
      return lanes * each * 0.75 + mask;
    return (*stride == 0 ? 0.5 : parts(lanes, dtype) * each * 0.5) + mask;
  }

  double inst(const Inst& i) const {
    const double width = parts(i.type.lanes, i.type.dtype);
    switch (i.kind) {
    case InstKind::Constant:
    case InstKind::Scalar:
    case InstKind::ReadVar:
      return 0;
    case InstKind::Apply:
      return 0.5 * width * std::max(0.5, info_of(i.op).flops);
    case InstKind::Fma:
    case InstKind::Index:
    case InstKind::Test:
      return 0.5 * width;
    case InstKind::Load:
      return access(i, i.type.dtype, i.type.lanes, 1.0);
    case InstKind::Splat:
      return 0.5;
    case InstKind::Extract:
      return 1;
    case InstKind::Shuffle:
      return width;
    case InstKind::ReduceLanes:
      return 1.5 * std::log2(std::max(2, i.type.lanes));
    default:
      return 1;
    }
  }

  const kernel::KernelProgram& program_;
  int vector_;
  const reference::Bindings& sizes_;
};

bool streams(const Block& block) {
  return std::any_of(block.begin(), block.end(), [](const Stmt& s) {
    return (s.kind == StmtKind::Store && s.inst.policy == kernel::CachePolicy::Streaming) ||
           streams(s.body) || streams(s.otherwise);
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

double predict(const kernel::KernelProgram& program, const kernel::Region& region,
               const kernel::Target& target, const Machine& machine,
               const reference::Bindings& sizes, bool cold) {
  const kernel::Cost cost = kernel::cost_of(region);
  const double read = size_or_upper(cost.bytes_read, sizes),
               written = size_or_upper(cost.bytes_written, sizes);
  const auto barriers = static_cast<double>(kernel::phases_of(program) - 1);
  if (program.launch.threads > 0)
    return machine.launch_seconds + barriers * kGpuBarrierSeconds +
           std::max((read + written) / machine.bytes_per_second,
                    size_or_upper(cost.flops, sizes) / machine.flops_per_second);
  const double workers = workers_of(program, target, sizes);
  const double arithmetic = arithmetic_cycles(program, target, sizes) * machine.cycle_seconds;
  const double memory = cpu_memory_seconds(program, target, machine, read, written, workers, cold);
  // Several workers also wait for each other at the end.
  const double meetings = barriers + (workers > 1 ? 1 : 0);
  return machine.launch_seconds + meetings * kBarrierSeconds * workers +
         std::max(arithmetic, memory);
}

} // namespace egret::compiler

#include "kernel/gpu_nest.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <numeric>

namespace egret::kernel {

std::vector<Expr> unflatten(const Expr& flat, std::span<const Expr> extents) {
  std::vector<Expr> at(extents.size());
  Expr rest = flat;
  for (std::size_t i = extents.size(); i-- > 0;) {
    if (i == 0) {
      at[i] = rest;
      break;
    }
    // An empty box has no points to number, so the divisor may be taken as 1.
    Expr divisor = extents[i].lower() >= 1 ? extents[i] : max(extents[i], Expr(1));
    at[i] = floormod(rest, divisor);
    rest = floordiv(rest, divisor);
  }
  return at;
}

int gpu_lanes(const Region& region, int axis, std::int64_t vector_bytes) {
  std::int64_t narrowest = 8, widest = 1;
  bool found = false, alone = region.axes.size() == 1;
  auto count = [&](std::optional<std::int64_t> stride, DType dtype) {
    const auto size = std::int64_t(size_of(dtype));
    widest = std::max(widest, size);
    if (stride != 1)
      return;
    found = true;
    narrowest = std::min(narrowest, std::max<std::int64_t>(size, 2));
  };
  for (const Stage& stage : region.stages) {
    if (!contains(stage.axes, axis))
      continue;
    for (const Load& load : stage.loads)
      if (load.source == Source::Operand)
        count(stride_of(region, stage, load, axis), region.operands[load.number].dtype);
  }
  for (const Output& out : region.outputs)
    if (contains(result_axes(region.stages[out.stage]), axis))
      count(stride_of(region, out, axis), out.dtype);
  if (!found)
    return 1;
  const int lanes =
      power_of_two_upto(std::min<std::int64_t>(vector_bytes / narrowest, 64 / widest));
  const std::int64_t divisor = region.axes[axis].extent.divisor();
  return alone ? lanes : int(std::gcd<std::int64_t>(lanes, divisor == 0 ? lanes : divisor));
}

CachePolicy gpu_store_policy(const Region& region, const Target& target) {
  Cost cost = cost_of(region);
  bool exceeds = proves_less(Expr(2 * target.l2_bytes), cost.bytes_read + cost.bytes_written);
  return exceeds ? CachePolicy::Streaming : CachePolicy::Default;
}

std::string gpu_threads_refused(std::int64_t threads) {
  return threads < 32 || threads > 1024 || threads % 32 != 0
             ? "a block's threads are no multiple of 32 up to 1024"
             : "";
}

Lowered within_block(KernelProgram program, const Target& target) {
  std::int64_t shared = 0;
  for (const Buffer& b : program.buffers)
    if (b.space == Space::Shared)
      shared += b.elements.value() * std::int64_t(size_of(b.dtype));
  if (shared > target.block_shared_bytes - 8192)
    return {false, {}, "more shared memory than a block can have"};
  return {true, std::move(program), ""};
}

void advance_ring(ProgramBuilder& builder, VarId stage, VarId parity, int stages) {
  const auto number = [&](std::int64_t value) {
    return builder.constant(Scalar::of(DType::I32, double(value)));
  };
  const ValueId phase = builder.read(parity);
  const ValueId next = builder.apply(Op::Add, DType::I32, {builder.read(stage), number(1)});
  const ValueId again = builder.apply(Op::Eq, DType::Bool, {next, number(stages)});
  builder.set(stage, builder.apply(Op::Select, DType::I32, {again, number(0), next}));
  const ValueId other = builder.apply(Op::Xor, DType::I32, {phase, number(1)});
  builder.set(parity, builder.apply(Op::Select, DType::I32, {again, other, phase}));
}

void keep_registers(Launch& launch) {
  launch.blocks_per_core = std::max(1, 512 / launch.threads);
}

void store_once(Emitter& emitter, const std::vector<int>& outputs, const Point& point,
                const Expr& number) {
  const std::vector<Output>& all = emitter.region().outputs;
  std::vector<Value> values; // all of them first: an output may lie in the memory of an operand
  for (int o : outputs)
    values.push_back(emitter.result(all[o].stage, all[o].component, point));
  Point first = point;
  first.mask.push_back({number, Expr(0), Expr(1)});
  for (std::size_t i = 0; i < outputs.size(); ++i)
    emitter.store(outputs[i], first, values[i]);
}

void passes_by_slices(
    ProgramBuilder& builder, int passes, const Expr& units, std::int64_t slices, bool finishes,
    const std::function<void(int pass, const Expr& unit, const Expr& slice)>& body) {
  const int counter = builder.counter("blocks", 2);
  for (int pass = 0; pass < passes + int(finishes); ++pass) {
    if (pass > 0)
      builder.grid_barrier(counter, Expr(0));
    const Expr each(pass < passes ? slices : 1);
    builder.grid_loop(units * each, [&](const Expr& item) {
      body(pass, floordiv(item, each), floormod(item, each));
    });
  }
}

int power_of_two_upto(std::int64_t n) {
  int p = 1;
  while (2 * std::int64_t(p) <= n && p < (1 << 20))
    p *= 2;
  return p;
}

} // namespace egret::kernel

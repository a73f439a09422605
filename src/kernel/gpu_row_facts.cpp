#include "kernel/gpu_row_facts.h"

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"
#include "kernel/map_axes.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace egret::kernel {

namespace {

/// Where a row that is read or written along the vectors begins in memory, over the region's axes;
/// nothing when that is the same for all rows or for an access that does not go along them.
std::optional<Expr> row_start(const Region& region, const RowFacts& f, const Expr& offset,
                              const std::vector<int>& axes) {
  bool by_row = false;
  const Expr start = substitute(offset, [&](const Expr& v) -> std::optional<Expr> {
    if (!v.is_axis())
      return std::nullopt;
    const int a = axes[v.axis_number()];
    by_row = by_row || contains(f.passes.parallel, a);
    return a == f.inner ? Expr(0) : Expr::axis(a, region.axes[a].extent);
  });
  return by_row ? std::optional(start) : std::nullopt;
}

constexpr std::int64_t kSectorBytes = 32; ///< bytes
/// Values of 32 bits that a thread may keep of a row.
constexpr std::int64_t kKeptElements = 64;

} // namespace

std::int64_t bytes_touched(const Region& region, int axis) {
  std::int64_t bytes = 0;
  const auto count = [&](std::optional<std::int64_t> stride, DType dtype) {
    const auto size = std::int64_t(size_of(dtype));
    const std::int64_t apart = std::min(std::abs(stride.value_or(kSectorBytes)), kSectorBytes);
    bytes += std::min(apart * size, kSectorBytes);
  };
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads)
      if (load.source == Source::Operand && stage.axes.size() == region.axes.size())
        count(usual_stride_of(region, stage, load, axis), region.operands[load.number].dtype);
  for (const Output& out : region.outputs)
    if (result_axes(region.stages[out.stage]).size() == region.axes.size())
      count(usual_stride_of(region, out, axis), out.dtype);
  return bytes;
}

RowFacts::RowFacts(const Region& region, Online online)
    : passes(plan_passes(region, true, online)) {
  if (!passes.reason.empty())
    return;
  std::vector<int> stages = all_stages(region);
  for (const Stage& s : region.stages)
    argmax = argmax || (s.kind == StageKind::Reduce && s.monoid == Monoid::ArgMax);
  inner = passes.reduced.back();
  score = vector_score(region, stages, inner);
  // Places must come in ascending order, so that argmax runs along the last axis only.
  for (int a : passes.reduced)
    if (auto s = vector_score(region, stages, a);
        !argmax && (s > score || (s == score && s <= 0 &&
                                  bytes_touched(region, a) < bytes_touched(region, inner)))) {
      inner = a;
      score = s;
    }
}

bool is_one_long_sum(const Region& region, const Target& target) {
  if (region.stages.size() != 1)
    return false;
  const Stage& stage = region.stages[0];
  if (stage.kind != StageKind::Reduce || stage.monoid == Monoid::ArgMax ||
      stage.over.size() != stage.axes.size() || stage.over.size() < 2)
    return false;
  constexpr std::int64_t kMuch = 1 << 14;
  std::int64_t terms = 1;
  for (int a : stage.over) {
    const auto n = region.axes[a].extent.constant();
    if (!n || vector_score(region, std::vector{0}, a) >= 0)
      return false;
    terms = std::min(terms * std::min(*n, kMuch), kMuch + 1);
  }
  const std::int64_t blocks = region.axes[stage.over[0]].extent.value();
  return terms > kMuch && blocks <= kMuch && blocks >= 2 * std::int64_t(target.workers) &&
         std::all_of(region.outputs.begin(), region.outputs.end(),
                     [](const Output& o) { return o.combine == Combine::Store; });
}

bool RowFacts::suits(const Region& region, const Target& target) const {
  if (score > 0)
    return true;
  if (is_one_long_sum(region, target))
    return false;
  const std::int64_t bytes = bytes_touched(region, inner);
  return std::all_of(passes.parallel.begin(), passes.parallel.end(), [&](int a) {
    const bool apart = std::all_of(region.outputs.begin(), region.outputs.end(),
                                   [&](const Output& o) { return stride_of(region, o, a) != 0; });
    return !apart || (bytes > 0 && bytes <= bytes_touched(region, a));
  });
}

Expr RowFacts::vectors(const Region& region, int lanes, bool shifted) const {
  Expr n(1);
  for (int a : passes.reduced) {
    const Expr& extent = region.axes[a].extent;
    n = n *
        (a == inner ? ceildiv(shifted ? extent + Expr(lanes - 1) : extent, Expr(lanes)) : extent);
  }
  return n;
}

bool reads_weights(const Region& region, const RowFacts& f) {
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads) {
      if (load.source != Source::Operand)
        continue;
      const std::vector<bool> axes = axes_of_load(region, stage, load);
      const bool by_row = std::any_of(f.passes.parallel.begin(), f.passes.parallel.end(),
                                      [&](int a) { return axes[a]; });
      if (axes[f.inner] && !by_row)
        return true;
    }
  return false;
}

std::int64_t kept_elements(std::int64_t threads, const Target& target) {
  return std::min(kKeptElements, std::max<std::int64_t>(target.registers / threads / 2, 8));
}

Shifted shifted_rows(const Region& region, const RowFacts& f, const Target& target) {
  Shifted s;
  if (f.passes.reduced.size() != 1 || f.argmax || f.passes.parallel.empty() ||
      !region.axes[f.inner].extent.is_constant())
    return s;
  std::vector<Expr> starts;
  std::int64_t narrowest = 4;
  auto access = [&](const Expr& offset, const std::vector<int>& axes, DType dtype) {
    if (auto start = row_start(region, f, offset, axes)) {
      starts.push_back(*start);
      narrowest = std::min<std::int64_t>(narrowest, std::int64_t(size_of(dtype)));
    }
  };
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads)
      if (load.source == Source::Operand && load.indirect.empty() &&
          region.operands[load.number].role == Role::Tensor &&
          stride_of(region, stage, load, f.inner) == 1)
        access(offset_of(region, load), stage.axes, region.operands[load.number].dtype);
  for (const Output& out : region.outputs)
    if (stride_of(region, out, f.inner) == 1)
      access(offset_of(out), result_axes(region.stages[out.stage]), out.dtype);
  if (starts.empty() || narrowest < 2)
    return s;
  const int lanes = int(target.vector_bytes / narrowest);
  if (2 * gpu_lanes(region, f.inner, target.vector_bytes) >= lanes) // half as wide is good enough
    return s;
  for (const Expr& start : starts)
    if ((start - starts[0]).divisor() % lanes != 0)
      return s;
  if (region.axes[f.inner].extent.value() < 8 * lanes)
    return s;
  return {lanes, starts[0]};
}

std::vector<RowLoad> row_loads(const Region& r, const RowFacts& f, int lanes) {
  const auto copied = [&](const Operand& operand, const Expr& offset) {
    const std::int64_t bytes = lanes * std::int64_t(size_of(operand.dtype));
    if ((bytes != 4 && bytes != 8 && bytes != 16) || operand.alignment % bytes != 0)
      return false;
    const Expr along = Expr::axis(f.inner, r.axes[f.inner].extent);
    return (offset - along).divisor() % lanes == 0 && r.axes[f.inner].extent.divisor() % lanes == 0;
  };
  std::vector<RowLoad> loads;
  std::vector<std::pair<int, Expr>> seen;
  for (std::size_t s = 0; s < r.stages.size(); ++s) {
    const Stage& stage = r.stages[s];
    if (f.passes.level[s] > 0 || stage.axes.size() != r.axes.size())
      continue;
    for (const Load& load : stage.loads) {
      if (load.source != Source::Operand || !load.indirect.empty() || !load.map.is_total() ||
          stride_of(r, stage, load, f.inner) != 1)
        continue;
      const std::vector<bool> by = axes_of_load(r, stage, load);
      if (!f.passes.parallel.empty() &&
          std::none_of(f.passes.parallel.begin(), f.passes.parallel.end(),
                       [&](int a) { return by[a]; }))
        continue; // the same for all rows
      const std::pair element{load.number, at_axes(r, offset_of(r, load), stage.axes)};
      if ((lanes != 0 && !copied(r.operands[load.number], element.second)) ||
          std::find(seen.begin(), seen.end(), element) != seen.end())
        continue;
      seen.push_back(element);
      loads.push_back({&stage, &load});
    }
  }
  return loads;
}

} // namespace egret::kernel

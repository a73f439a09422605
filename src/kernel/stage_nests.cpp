#include "kernel/stage_nests.h"

#include "kernel/analysis.h"
#include "kernel/nest.h"
#include "kernel/scatter_axes.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <utility>

namespace egret::kernel {

StageNests::StageNests(const Region& region, const Arithmetic& arithmetic)
    : r_(region), b_(region.name), e_(b_, region), stored_(stored_stages(region)),
      arithmetic_(arithmetic) {}

void StageNests::all() {
  int last = -1;
  for (std::size_t s = 0; s < r_.stages.size(); ++s)
    if (stored_.stages[s] || is_output(r_, int(s)))
      last = int(s);
  for (int s = 0; s <= last; ++s)
    if (stored_.stages[s] || is_output(r_, s)) {
      nest(s);
      if (stored_.stages[s] && s != last)
        barrier();
    }
  if (stored_.waiting.empty())
    return;
  barrier();
  copying_ = true;
  for (int o : stored_.waiting)
    if (!is_empty(r_, result_axes(r_.stages[r_.outputs[o].stage])))
      loops(r_.outputs[o].stage);
}

void StageNests::nest(int s) {
  const Stage& stage = r_.stages[s];
  if (stored_.stages[s])
    make_memory(s);
  if (is_empty(r_, result_axes(stage)))
    return;
  open_updates(s);
  loops(s);
  close_updates(s);
}

void StageNests::make_memory(int s) {
  const Stage& stage = r_.stages[s];
  std::vector<int> axes = result_axes(stage), buffers;
  for (std::size_t c = 0; c < stage.yields.size(); ++c)
    buffers.push_back(b_.workspace(fmt::format("stage{}_{}", s, c),
                                   compute_dtype(stage.yield_dtypes[c]), points_of(r_, axes)));
  e_.provide_memory(s, buffers, [this, axes](const Point& p) {
    Expr offset(0);
    for (int a : axes)
      offset = offset * r_.axes[a].extent + p.at[a];
    return offset;
  });
}

std::vector<int> StageNests::free_axes(int s) const {
  const Stage& stage = r_.stages[s];
  std::vector<int> axes = result_axes(stage);
  if (stage.kind == StageKind::Scan)
    std::erase(axes, stage.over[0]);
  for (const Output& out : r_.outputs) {
    if (out.stage != s || out.combine == Combine::Store)
      continue;
    auto independent = independent_axes(r_, out);
    std::erase_if(axes, [&](int a) { return !contains(independent, a); });
  }
  return axes;
}

void StageNests::open_updates(int s) {
  updated_.resize(r_.outputs.size(), -1);
  bool copied = false;
  for (std::size_t o = 0; o < r_.outputs.size(); ++o) {
    const Output& out = r_.outputs[o];
    if (out.stage != s || out.combine == Combine::Store)
      continue;
    updated_[o] = e_.output_buffer(int(o));
    if (out.combine != Combine::Add || !is_low(out.dtype))
      continue;
    updated_[o] = b_.workspace(fmt::format("sums{}", o), DType::F32, element_count(out.shape));
    convert(e_.output_buffer(int(o)), updated_[o], element_count(out.shape));
    copied = true;
  }
  if (copied)
    barrier();
}

void StageNests::close_updates(int s) {
  bool waits = false;
  for (std::size_t o = 0; o < r_.outputs.size(); ++o)
    if (r_.outputs[o].stage == s && updated_[o] >= 0 && updated_[o] != e_.output_buffer(int(o))) {
      if (!std::exchange(waits, true))
        barrier();
      convert(updated_[o], e_.output_buffer(int(o)), element_count(r_.outputs[o].shape));
    }
}

std::vector<int> StageNests::ordered_axes(int s) const {
  const Stage& stage = r_.stages[s];
  std::vector<int> free = free_axes(s), axes;
  for (int a : result_axes(stage))
    if (!contains(free, a) && (copying_ || !(stage.kind == StageKind::Scan && a == stage.over[0])))
      axes.push_back(a);
  return axes;
}

void StageNests::ordered(int s, const Point& point) {
  const Stage& stage = r_.stages[s];
  const std::vector<int> axes = ordered_axes(s);
  std::vector<Expr> extents;
  for (int a : axes)
    extents.push_back(r_.axes[a].extent);
  serial_loops(b_, extents, [&](std::span<const Expr> at) {
    Point p = point;
    for (std::size_t i = 0; i < axes.size(); ++i)
      p.at[axes[i]] = at[i];
    if (copying_) {
      for (int o : stored_.waiting)
        if (r_.outputs[o].stage == s)
          e_.store(o, p, e_.result(s, r_.outputs[o].component, p));
      return;
    }
    switch (stage.kind) {
    case StageKind::Map:
      map(s, p);
      break;
    case StageKind::Reduce:
      deliver(s, p, reduce(s, p));
      break;
    case StageKind::Scan:
      scan(s, p);
      break;
    case StageKind::Sort:
      ensure(false, "stage {} sorts: it has templates of its own", s);
    }
  });
}

void StageNests::map(int s, const Point& p) {
  deliver(s, p, e_.yields(s, p));
}

StageNests::Reduction StageNests::start(int s, int lanes) {
  const Stage& stage = r_.stages[s];
  Reduction reduction;
  for (std::size_t y = 0; y < stage.yields.size(); ++y) {
    reduction.accumulators.emplace_back(e_, s, int(y), arithmetic_, points_of(r_, stage.over));
    reduction.states.emplace_back(b_, reduction.accumulators.back().identity(lanes));
  }
  return reduction;
}

void StageNests::Reduction::add(const Point& p, const Expr& place) {
  // Lanes are points of the result, so that no mask need be looked at.
  std::vector<State> next;
  for (std::size_t y = 0; y < states.size(); ++y)
    next.push_back(accumulators[y].add(states[y].read(), p, place, false));
  for (std::size_t y = 0; y < states.size(); ++y)
    states[y].write(next[y]);
}

std::vector<Value> StageNests::Reduction::results() {
  std::vector<Value> values;
  for (std::size_t y = 0; y < states.size(); ++y)
    values.push_back(accumulators[y].finish(states[y].read()));
  return values;
}

std::vector<Value> StageNests::reduce(int s, const Point& point) {
  const Stage& stage = r_.stages[s];
  Reduction reduction = start(s, point.lanes);
  std::vector<Expr> extents;
  for (int a : stage.over)
    extents.push_back(r_.axes[a].extent);
  serial_loops(b_, extents, [&](std::span<const Expr> at) {
    Point p = point;
    Expr place(0);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      p.at[stage.over[i]] = at[i];
      place = place * extents[i] + at[i];
    }
    reduction.add(p, place);
  });
  return reduction.results();
}

void StageNests::scan(int s, const Point& point) {
  const Stage& stage = r_.stages[s];
  Reduction reduction = start(s, point.lanes);
  const Expr& extent = r_.axes[stage.over[0]].extent;
  b_.loop(Expr(0), extent, Expr(1), extent, Bind::Serial, [&](const Expr& at) {
    Point p = point;
    p.at[stage.over[0]] = at;
    reduction.add(p, at);
    deliver(s, p, reduction.results());
  });
}

void StageNests::deliver(int s, const Point& p, const std::vector<Value>& values) {
  for (std::size_t o = 0; o < r_.outputs.size(); ++o) {
    const Output& out = r_.outputs[o];
    if (out.stage != s || contains(stored_.waiting, int(o)))
      continue;
    if (out.combine == Combine::Store)
      e_.store(int(o), p, values[out.component]);
    else
      e_.scatter(int(o), updated_[o], p, values);
  }
  if (stored_.stages[s])
    e_.store_memory(s, p, values);
}

} // namespace egret::kernel

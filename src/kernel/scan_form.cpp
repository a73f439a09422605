#include "kernel/scan_form.h"

#include "kernel/analysis.h"
#include "kernel/map_axes.h"

#include <fmt/format.h>

#include <algorithm>

namespace egret::kernel {

namespace {

/// Results of a scan that anything takes: the product of linear maps' factors is in their state.
std::size_t results_of(const Stage& stage) {
  return stage.monoid == Monoid::Linear ? 1 : stage.yields.size();
}

} // namespace

FoundScan find_scan(const Region& region) {
  const auto no = [](std::string why) { return FoundScan{false, {}, std::move(why)}; };
  FoundScan found;
  ScanForm& f = found.form;
  f.axis = -1;
  std::vector<bool> scanned; // by stage: made of what a scan has
  std::vector<int> all(region.axes.size());
  for (std::size_t a = 0; a < all.size(); ++a)
    all[a] = int(a);
  for (std::size_t s = 0; s < region.stages.size(); ++s) {
    const Stage& stage = region.stages[s];
    if (stage.kind == StageKind::Reduce || stage.kind == StageKind::Sort)
      return no("it has a reduction or a sort");
    const bool reads = std::any_of(stage.loads.begin(), stage.loads.end(), [&](const Load& l) {
      return l.source == Source::Stage && scanned[std::size_t(l.number)];
    });
    scanned.push_back(reads || stage.kind == StageKind::Scan);
    f.flops += flops_of(stage);
    if (scanned.back() && stage.axes != all)
      return no("its scans and what is made of them have different axes");
    if (stage.kind != StageKind::Scan)
      continue;
    if (reads)
      return no("one scan reads another");
    if (f.axis >= 0 && f.axis != stage.over[0])
      return no("its scans run along different axes");
    f.axis = stage.over[0];
    f.scans.push_back(int(s));
    f.commutes = f.commutes && stage.monoid != Monoid::Linear;
  }
  if (f.axis < 0)
    return no("it has no scan");
  for (const Stage& stage : region.stages)
    for (const Load& l : stage.loads)
      if (l.source == Source::Stage &&
          std::size_t(l.component) >= results_of(region.stages[std::size_t(l.number)]))
        return no("a product of factors is a result");
  for (const Output& out : region.outputs)
    if (out.combine != Combine::Store || region.stages[out.stage].axes != all ||
        std::size_t(out.component) >= results_of(region.stages[out.stage]))
      return no("an output is no map of all axes");
  for (int a : all)
    if (a != f.axis)
      f.outer.push_back(a);
  found.ok = true;
  return found;
}

int lane_axis(const Region& region, const ScanForm& form, std::int64_t scanned) {
  const std::vector<int> stages = all_stages(region);
  int axis = form.axis;
  std::int64_t best = std::max<std::int64_t>(scanned, 0);
  for (int a : form.outer) {
    const bool apart = std::all_of(region.outputs.begin(), region.outputs.end(),
                                   [&](const Output& o) { return stride_of(region, o, a) != 0; });
    const std::int64_t score = vector_score(region, stages, a);
    if (apart && score > best) {
      best = score;
      axis = a;
    }
  }
  return axis;
}

ScanCut cut_scan(const Expr& extent, std::int64_t piece, std::int64_t together) {
  ScanCut cut;
  const bool cuts = piece > 0 && !proves_less_equal(extent, Expr(piece));
  cut.piece = cuts ? Expr(piece) : extent;
  cut.pieces = cuts ? ceildiv(extent, Expr(piece)) : Expr(1);
  const bool groups = together > 0 && !proves_less_equal(cut.pieces, Expr(together));
  cut.together = groups ? Expr(together) : cut.pieces;
  cut.groups = groups ? ceildiv(cut.pieces, Expr(together)) : Expr(1);
  return cut;
}

ScanStatesOf::ScanStatesOf(Emitter& emitter, const ScanForm& form, const Arithmetic& arithmetic)
    : e_(emitter), b_(emitter.builder()), f_(form) {
  const Region& region = emitter.region();
  for (int s : form.scans) {
    accumulators_.emplace_back();
    for (std::size_t y = 0; y < results_of(region.stages[s]); ++y)
      accumulators_.back().emplace_back(emitter, s, int(y), arithmetic,
                                        region.axes[form.axis].extent);
  }
}

template <class F>
ScanStates ScanStatesOf::each(F f) {
  ScanStates out(accumulators_.size());
  for (std::size_t s = 0; s < accumulators_.size(); ++s)
    for (std::size_t y = 0; y < accumulators_[s].size(); ++y)
      out[s].push_back(f(accumulators_[s][y], s, y));
  return out;
}

ScanStates ScanStatesOf::identities(int lanes) {
  return each([&](Accumulator& a, std::size_t, std::size_t) { return a.identity(lanes); });
}

ScanStates ScanStatesOf::terms(const Point& point) {
  return each(
      [&](Accumulator& a, std::size_t, std::size_t) { return a.where(point.mask, a.term(point)); });
}

ScanStates ScanStatesOf::add(const ScanStates& states, const Point& point) {
  return each([&](Accumulator& a, std::size_t s, std::size_t y) {
    return a.add(states[s][y], point, Expr(0), true);
  });
}

ScanStates ScanStatesOf::merge(const ScanStates& x, const ScanStates& y) {
  return each([&](Accumulator& a, std::size_t s, std::size_t i) {
    return a.merge_splat(x[s][i], y[s][i]);
  });
}

ScanStates ScanStatesOf::up_to_lane(const ScanStates& states) {
  return each(
      [&](Accumulator& a, std::size_t s, std::size_t y) { return a.up_to_lane(states[s][y]); });
}

ScanStates ScanStatesOf::last_lane(const ScanStates& states) {
  return each([&](Accumulator& a, std::size_t s, std::size_t y) {
    return a.lane_of(states[s][y], b_.type_of(states[s][y][0]).lanes - 1);
  });
}

ScanStates ScanStatesOf::across_lanes(const ScanStates& states) {
  return each(
      [&](Accumulator& a, std::size_t s, std::size_t y) { return a.across_lanes(states[s][y]); });
}

ScanStates ScanStatesOf::before_thread(const ScanStates& states, int threads, const Expr& lane) {
  return each([&](Accumulator& a, std::size_t s, std::size_t y) {
    return a.is_ordered() ? a.in_order(states[s][y], threads, lane).before
                          : a.before_thread(states[s][y], threads);
  });
}

ScanStates ScanStatesOf::across_threads(const ScanStates& states, int threads, const Expr& lane) {
  return each([&](Accumulator& a, std::size_t s, std::size_t y) {
    return a.is_ordered() ? a.in_order(states[s][y], threads, lane).all
                          : a.across_threads(states[s][y], threads);
  });
}

ScanStatesOf::OfThreads ScanStatesOf::of_threads(const ScanStates& states, int threads,
                                                 const Expr& lane) {
  OfThreads found;
  found.all.resize(accumulators_.size());
  found.before = each([&](Accumulator& a, std::size_t s, std::size_t y) {
    Accumulator::InOrder one = a.is_ordered()
                                   ? a.in_order(states[s][y], threads, lane)
                                   : Accumulator::InOrder{a.before_thread(states[s][y], threads),
                                                          a.across_threads(states[s][y], threads)};
    found.all[s].push_back(std::move(one.all));
    return std::move(one.before);
  });
  return found;
}

ScanStates ScanStatesOf::where(const std::vector<Guard>& mask, const ScanStates& states) {
  return each(
      [&](Accumulator& a, std::size_t s, std::size_t y) { return a.where(mask, states[s][y]); });
}

void ScanStatesOf::deliver(const std::vector<Point>& points, const std::vector<ScanStates>& states,
                           CachePolicy policy) {
  // All values before the first store: an output may take over the memory of an operand.
  const std::vector<Output>& outputs = e_.region().outputs;
  std::vector<Value> values;
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t s = 0; s < f_.scans.size(); ++s) {
      std::vector<Value> results;
      for (std::size_t y = 0; y < accumulators_[s].size(); ++y)
        results.push_back(accumulators_[s][y].finish(states[i][s][y]));
      e_.provide(f_.scans[s], points[i], std::move(results));
    }
    for (const Output& out : outputs)
      values.push_back(e_.result(out.stage, out.component, points[i]));
  }
  for (std::size_t i = 0; i < values.size(); ++i)
    e_.store(int(i % outputs.size()), points[i / outputs.size()], values[i], policy);
}

ScanStatesOf::Buffers
ScanStatesOf::buffers(const std::function<int(DType, const std::string&)>& make,
                      const std::string& name) {
  Buffers out(accumulators_.size());
  for (std::size_t s = 0; s < accumulators_.size(); ++s)
    for (std::size_t y = 0; y < accumulators_[s].size(); ++y) {
      out[s].emplace_back();
      for (const Type& t : accumulators_[s][y].types(1))
        out[s][y].push_back(
            make(t.dtype, fmt::format("{}{}_{}_{}", name, f_.scans[s], y, out[s][y].size())));
    }
  return out;
}

ScanStatesOf::Buffers ScanStatesOf::workspaces(const std::string& name, const Expr& states) {
  return buffers([&](DType t, const std::string& n) { return b_.workspace(n, t, states); }, name);
}

ScanStatesOf::Buffers ScanStatesOf::shared(const std::string& name, std::int64_t states) {
  return buffers([&](DType t, const std::string& n) { return b_.shared(n, t, states); }, name);
}

ScanStates ScanStatesOf::load(const Buffers& from, const Expr& offset, int lanes,
                              const std::vector<Guard>& mask) {
  return each([&](Accumulator& a, std::size_t s, std::size_t y) {
    return a.where(mask, load_state(b_, from[s][y], offset, lanes, mask));
  });
}

void ScanStatesOf::store(const Buffers& to, const Expr& offset, const ScanStates& states,
                         const std::vector<Guard>& mask) {
  for (std::size_t s = 0; s < to.size(); ++s)
    for (std::size_t y = 0; y < to[s].size(); ++y)
      store_state(b_, to[s][y], offset, states[s][y], mask);
}

namespace {

bool is_wide(DType type) {
  return size_of(type) > 4;
}

/// A value's bits, 32 at a time, the low ones first.
std::vector<ValueId> words_of(ProgramBuilder& b, ValueId value) {
  const DType type = b.type_of(value).dtype;
  if (is_wide(type)) {
    const ValueId bits = b.apply(Op::Bitcast, DType::U64, {value}),
                  half = b.constant(Scalar::of(DType::U64, std::int64_t{32}));
    return {b.cast(bits, DType::U32),
            b.cast(b.apply(Op::Shr, DType::U64, {bits, half}), DType::U32)};
  }
  if (is_float(type))
    value = b.cast(value, DType::F32);
  return {size_of(type) == 4 || is_float(type) ? b.apply(Op::Bitcast, DType::U32, {value})
                                               : b.cast(value, DType::U32)};
}

ValueId from_words(ProgramBuilder& b, const std::vector<ValueId>& words, DType type) {
  if (is_wide(type)) {
    const ValueId half = b.constant(Scalar::of(DType::U64, std::int64_t{32})),
                  high = b.apply(Op::Shl, DType::U64, {b.cast(words[1], DType::U64), half});
    return b.apply(Op::Bitcast, type,
                   {b.apply(Op::Or, DType::U64, {high, b.cast(words[0], DType::U64)})});
  }
  if (is_float(type))
    return b.cast(b.apply(Op::Bitcast, DType::F32, {words[0]}), type);
  return size_of(type) == 4 ? b.apply(Op::Bitcast, type, {words[0]}) : b.cast(words[0], type);
}

} // namespace

std::int64_t ScanStatesOf::words() {
  std::int64_t count = 0;
  each([&](Accumulator& a, std::size_t, std::size_t) {
    for (const Type& t : a.types(1))
      count += is_wide(t.dtype) ? 2 : 1;
    return State{};
  });
  return count;
}

void ScanStatesOf::publish(int counter, const Expr& number, const ScanStates& states) {
  Expr word = number * Expr(words());
  for (const auto& of_scan : states)
    for (const State& state : of_scan)
      for (const ValueId part : state)
        for (const ValueId bits : words_of(b_, part)) {
          b_.publish_word(counter, word, bits);
          word = word + Expr(1);
        }
}

ScanStates ScanStatesOf::await(int counter, const Expr& number, const std::vector<Guard>& mask) {
  Expr word = number * Expr(words());
  return each([&](Accumulator& a, std::size_t, std::size_t) {
    State state;
    for (const Type& t : a.types(1)) {
      std::vector<ValueId> bits;
      for (int i = 0; i < (is_wide(t.dtype) ? 2 : 1); ++i, word = word + Expr(1))
        bits.push_back(b_.await_word(counter, word, mask));
      state.push_back(from_words(b_, bits, t.dtype));
    }
    return a.where(mask, state);
  });
}

Expr ScanPieces::begin(const Expr& piece) const {
  return piece * cut_.piece;
}

Expr ScanPieces::end(const Expr& piece) const {
  return min(r_.axes[std::size_t(f_.axis)].extent, (piece + Expr(1)) * cut_.piece);
}

Expr ScanPieces::place(const Point& row, const Expr& count, const Expr& number) const {
  Expr flat(0);
  for (int a : f_.outer)
    if (a != vector_axis_)
      flat = flat * r_.axes[std::size_t(a)].extent + row.at[std::size_t(a)];
  flat = flat * count + number;
  return vector_axis_ == f_.axis
             ? flat
             : flat * r_.axes[std::size_t(vector_axis_)].extent + row.at[std::size_t(vector_axis_)];
}

std::vector<Guard> ScanPieces::ends_group(const Expr& piece, const Expr& group) const {
  const Expr next = group + Expr(1);
  return {{piece, next * cut_.together - Expr(1), next * cut_.together},
          {next, Expr(0), cut_.groups}};
}

} // namespace egret::kernel

#include "kernel/gpu_stream_rows.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_contraction_side.h"
#include "kernel/gpu_nest.h"

#include <algorithm>
#include <limits>

namespace egret::kernel {

GpuStreamRows::GpuStreamRows(Emitter& emitter, const StreamForm& form, const Arithmetic& arithmetic,
                             Layout layout)
    : r_(emitter.region()), e_(emitter), b_(emitter.builder()), f_(form), arithmetic_(arithmetic),
      l_(std::move(layout)) {}

void GpuStreamRows::begin_rows(const Point& batch, const Expr& first_row, const TileRange& range) {
  batch_ = batch;
  first_row_ = first_row;
  range_ = range;
  maximum_.clear();
}

Expr GpuStreamRows::place_of(const Expr& first, int fragment) const {
  return first + Expr(std::int64_t(kPlaces) * fragment) + floormod(l_.lane, 4) * Expr(2);
}

Point GpuStreamRows::row_at(const Expr& in_tile) const {
  Point p = batch_;
  const Expr row = first_row_ + in_tile;
  put_index(p, r_, f_.rows, row);
  const Guard inside{row, Expr(0), f_.rows.extent};
  if (!proves_less(inside.value, inside.hi))
    p.mask.push_back(inside);
  return p;
}

Point GpuStreamRows::point(int half, const Expr& first, int fragment) const {
  Point p = row_point(half);
  const Expr place = place_of(first, fragment);
  p.lanes = 2;
  put_lanes(p, r_, f_.places, place, 2);
  const auto inside = places_inside(first, fragment);
  p.mask.insert(p.mask.end(), inside.begin(), inside.end());
  return p;
}

std::vector<Guard> GpuStreamRows::places_inside(const Expr& first, int fragment) const {
  return whole ? std::vector<Guard>()
               : unproved(lanes_inside(f_.places, place_of(first, fragment), 2));
}

void GpuStreamRows::provide_scores(std::size_t product, int fragments_down, const Expr& first,
                                   int fragment, ValueId four) {
  for (int half = 0; half < 2; ++half)
    provide_pair(product, 2 * fragments_down + half, first, fragment,
                 b_.shuffle(four, four, {2 * half, 2 * half + 1}));
}

void GpuStreamRows::provide_pair(std::size_t product, int half, const Expr& first, int fragment,
                                 ValueId two) {
  const int stage = f_.products[product].stage;
  e_.provide(stage, point(half, first, fragment),
             {e_.convert({two, DType::F32}, r_.stages[std::size_t(stage)].yield_dtypes[0])});
}

// --- Running values

bool GpuStreamRows::scales(int stage) const {
  return std::find(f_.scaled_by.begin(), f_.scaled_by.end(), stage) != f_.scaled_by.end();
}

bool GpuStreamRows::scales_columns(int stage) const {
  return std::any_of(f_.sums.begin(), f_.sums.end(), [&](const ContractionForm& s) {
    return f_.scaled_by[std::size_t(s.stage)] == stage;
  });
}

GpuStreamRows::RowValue GpuStreamRows::running(int stage) {
  RowValue v{stage, Accumulator(e_, stage, 0, arithmetic_, f_.places.extent), {}};
  const int lanes = scales(stage) || is_scaled(stage) ? 1 : 2;
  for (int h = 0; h < halves(); ++h)
    v.halves.emplace_back(b_, v.accumulator.identity(lanes));
  return v;
}

void GpuStreamRows::start(const StreamPass& pass) {
  values_.clear();
  for (int s : pass.rows)
    values_.push_back(running(s));
}

/// Points of a pair of places, one of which may not exist: identities there.
ValueId GpuStreamRows::tile_value(const RowValue& v, int half, const Expr& first) {
  Accumulator a = v.accumulator;
  State state = a.identity(2);
  for (int j = 0; j < l_.places / kPlaces; ++j) {
    l_.prepare(first, j);
    state = add(a, state, half, first, j);
  }
  return a.across_lanes(state)[0];
}

/// What rows that do not exist come to does not matter: nobody reads it.
State GpuStreamRows::add(Accumulator& a, const State& state, int half, const Expr& first,
                         int fragment) {
  const State next = a.add(state, point(half, first, fragment), Expr(0), false);
  return a.keep(places_inside(first, fragment), next, state);
}

void GpuStreamRows::add(const Expr& first) {
  scale_.clear();
  for (RowValue& v : values_)
    for (int h = 0; h < halves() && !is_scaled(v.stage); ++h) {
      if (scales(v.stage)) {
        add_maximum(v, h, first);
        continue;
      }
      State state = v.halves[std::size_t(h)].read();
      for (int j = 0; j < l_.places / kPlaces; ++j) {
        l_.prepare(first, j);
        state = add(v.accumulator, state, h, first, j);
      }
      v.halves[std::size_t(h)].write(state);
    }
}

/// A maximum, and the sums of rows that it scales. Each lane has a sum of its own, and where
/// columns are scaled, too, all four lanes of a row have the same maximum.
void GpuStreamRows::add_maximum(RowValue& v, int half, const Expr& first) {
  const auto h = std::size_t(half);
  const ValueId before = v.halves[h].read()[0];
  ValueId largest = b_.apply(Op::Max, DType::F32, {before, tile_value(v, half, first)});
  if (scales_columns(v.stage))
    largest = v.accumulator.across_threads({largest}, 4)[0];
  e_.provide(v.stage, row_point(half), {{or_zero(b_, largest), DType::F32}});
  const ValueId scale = rescale(b_, before, largest, e_.quick_arithmetic);
  scale_[{v.stage, half}] = scale;
  for (RowValue& sum : values_)
    if (f_.scaled_by[std::size_t(sum.stage)] == v.stage) {
      const ValueId more = tile_value(sum, half, first);
      sum.halves[h].write({b_.fma(sum.halves[h].read()[0], scale, more)});
    }
  v.halves[h].write({largest});
}

std::optional<ValueId> GpuStreamRows::scale_of(std::size_t sum, int half) const {
  const int maximum = f_.scaled_by[std::size_t(f_.sums[sum].stage)];
  return maximum < 0 ? std::nullopt : std::optional(scale_.at({maximum, half}));
}

void GpuStreamRows::finish_maximum(RowValue& v, int half) {
  const auto h = std::size_t(half);
  const ValueId mine = v.halves[h].read()[0];
  const ValueId all = v.accumulator.across_threads({mine}, 4)[0];
  e_.provide(v.stage, row_point(half),
             {v.accumulator.finish({unless_spoiled(v.stage, row_point(half), all)})});
  maximum_[{v.stage, half}] = all;
  for (RowValue& sum : values_)
    if (f_.scaled_by[std::size_t(sum.stage)] == v.stage) {
      const ValueId part =
          b_.apply(Op::Mul, DType::F32,
                   {sum.halves[h].read()[0], rescale(b_, mine, all, e_.quick_arithmetic)});
      const ValueId total = sum.accumulator.across_threads({part}, 4)[0];
      e_.provide(sum.stage, row_point(half),
                 {sum.accumulator.finish(
                     {unless_spoiled(sum.stage, row_point(half), unless_lowest(b_, all, total))})});
    }
}

/// Row values of all lanes that share a row, as results of their stages.
void GpuStreamRows::finish() {
  e_.forget_maps();
  for (RowValue& v : values_)
    for (int h = 0; h < halves() && !is_scaled(v.stage); ++h) {
      if (scales(v.stage)) {
        finish_maximum(v, h);
        continue;
      }
      State all = v.accumulator.across_threads(
          v.accumulator.across_lanes(v.halves[std::size_t(h)].read()), 4);
      if (all.size() == 1)
        all[0] = unless_spoiled(v.stage, row_point(h), all[0]);
      e_.provide(v.stage, row_point(h), {v.accumulator.finish(all)});
    }
}

std::vector<ValueId> GpuStreamRows::unfinished(int half) {
  const auto h = std::size_t(half);
  std::map<int, ValueId> by_stage;
  for (RowValue& v : values_) {
    if (is_scaled(v.stage))
      continue;
    const State all =
        v.accumulator.across_threads(v.accumulator.across_lanes(v.halves[h].read()), 4);
    by_stage[v.stage] = all.at(0);
    if (!scales(v.stage))
      continue;
    const ValueId scale = rescale(b_, v.halves[h].read()[0], all[0], e_.quick_arithmetic);
    for (RowValue& sum : values_)
      if (f_.scaled_by[std::size_t(sum.stage)] == v.stage)
        by_stage[sum.stage] = sum.accumulator.across_threads(
            {b_.apply(Op::Mul, DType::F32, {sum.halves[h].read()[0], scale})}, 4)[0];
  }
  std::vector<ValueId> values;
  for (const RowValue& v : values_)
    values.push_back(by_stage.at(v.stage));
  return values;
}

ValueId GpuStreamRows::no_number() {
  return b_.constant(Scalar::of(DType::F32, std::numeric_limits<double>::quiet_NaN()));
}

ValueId GpuStreamRows::unless_spoiled(int stage, const Point& row, ValueId value) {
  const Expr tiles = ceildiv(f_.places.extent, l_.tile > 0 ? l_.tile : l_.places);
  const std::vector<Guard> everywhere =
      unproved({{range_.begin, Expr(0), Expr(1)}, {range_.end, tiles, tiles + Expr(1)}});
  if (everywhere.empty() || b_.type_of(value).dtype != DType::F32)
    return value;
  for (const RowCondition& c : f_.conditions) {
    const int maximum = f_.scaled_by[std::size_t(stage)];
    if (c.stage != stage || !c.certain ||
        (maximum >= 0 && depends_on_stage(r_, stage, c.value, maximum)))
      continue;
    const ValueId v = b_.cast(e_.value(stage, c.value, row).id, DType::F32);
    const ValueId masked = b_.constant(c.op == Op::Add ? identity_of(Monoid::Max, DType::F32)
                                                       : Scalar::of(DType::F32, 0.0));
    const ValueId stays =
        b_.apply(Op::Eq, DType::Bool, {b_.apply(c.op, DType::F32, {masked, v}), masked});
    const ValueId kept = b_.apply(Op::Or, DType::Bool, {stays, b_.test(everywhere, 1)});
    value = b_.apply(Op::Select, DType::F32, {kept, value, no_number()});
  }
  return value;
}

// --- Sums over columns

void GpuStreamRows::prepare_left(const ContractionForm& sum, int down, const Expr& first,
                                 int fragment) {
  const int rounded = factor_of(r_, sum, sum.left).value;
  const BodyValue& v = r_.stages[std::size_t(sum.stage)].body[std::size_t(rounded)];
  if (v.kind != BodyValue::Kind::Apply || v.op != Op::Cast)
    return;
  for (int j = 0; j < 2; ++j) {
    l_.prepare(first, fragment + j);
    for (int half = 0; half < 2; ++half)
      e_.value(sum.stage, v.args[0], point(2 * down + half, first, fragment + j));
  }
}

ValueId GpuStreamRows::left_fragment(const ContractionForm& sum, int down, const Expr& first,
                                     int fragment) {
  std::vector<ValueId> quarters;
  for (int j = 0; j < 2; ++j) {
    l_.prepare(first, fragment + j);
    for (int half = 0; half < 2; ++half)
      quarters.push_back(pair_of(sum, 2 * down + half, first, fragment + j));
  }
  const ValueId upper = b_.shuffle(quarters[0], quarters[1], {0, 1});
  const ValueId lower = b_.shuffle(quarters[2], quarters[3], {0, 1});
  return b_.shuffle(upper, lower, {0, 1, 2, 3});
}

/// Two neighbours as one word, the first in its low half; 0 for places that do not exist.
ValueId GpuStreamRows::pair_of(const ContractionForm& sum, int half, const Expr& first,
                               int fragment) {
  const Point p = point(half, first, fragment);
  const ValueId raw =
      b_.splat(e_.narrow(e_.value(sum.stage, factor_of(r_, sum, sum.left).value, p)), 2);
  ValueId bits = b_.cast(b_.apply(Op::Bitcast, DType::U16, {raw}), DType::U32);
  const std::vector<Guard> mask = places_inside(first, fragment);
  if (!mask.empty()) {
    const ValueId zero = b_.constant(Scalar::of(DType::U32, std::int64_t(0)), 2);
    bits = b_.apply(Op::Select, DType::U32, {b_.splat(b_.test(mask, 2), 2), bits, zero});
  }
  return word_of(bits);
}

ValueId GpuStreamRows::left_pair(const ContractionForm& sum, int half, const Expr& first,
                                 int fragment) {
  l_.prepare(first, fragment);
  const Value v =
      e_.value(sum.stage, factor_of(r_, sum, sum.left).value, point(half, first, fragment));
  const ValueId two = b_.splat(b_.cast(v.id, DType::F32), 2);
  const std::vector<Guard> mask = places_inside(first, fragment);
  if (mask.empty())
    return two;
  return b_.apply(
      Op::Select, DType::F32,
      {b_.splat(b_.test(mask, 2), 2), two, b_.constant(Scalar::of(DType::F32, 0.0), 2)});
}

// --- Results

void GpuStreamRows::store_rows() {
  std::vector<int> outputs;
  for (std::size_t o = 0; o < r_.outputs.size(); ++o)
    if (sum_of_output_[o] < 0)
      outputs.push_back(int(o));
  if (outputs.empty())
    return;
  for (int h = 0; h < halves(); ++h)
    store_once(e_, outputs, row_point(h), floormod(l_.lane, 4));
}

void GpuStreamRows::store_sum(std::size_t s, int columns,
                              const std::function<ValueId(int half, int fragment)>& sums) {
  std::vector<int> outputs;
  for (std::size_t o = 0; o < r_.outputs.size(); ++o)
    if (sum_of_output_[o] == int(s))
      outputs.push_back(int(o));
  const bool joins = std::all_of(outputs.begin(), outputs.end(),
                                 [&](int o) { return joins_fragments(f_.sums[s], o); });
  for (int h = 0; h < halves(); ++h)
    for (int j = 0; j < columns / kPlaces;) {
      const int count = joins && j + kJoined <= columns / kPlaces ? kJoined : 1;
      std::vector<std::vector<Value>> results(outputs.size()); // by fragment
      Point p;
      for (int k = j; k < j + count; ++k) {
        p = column_point(f_.sums[s], h, Expr(std::int64_t(kPlaces) * k) + quarter() * Expr(2), 2);
        provide_sum(s, h, p, sums(h, k));
        for (std::size_t i = 0; i < outputs.size(); ++i) {
          const Output& out = r_.outputs[std::size_t(outputs[i])];
          results[i].push_back(e_.result(out.stage, out.component, p));
        }
      }
      if (count > 1)
        p = column_point(f_.sums[s], h, (Expr(j) + quarter()) * Expr(kPlaces), kPlaces);
      for (std::size_t i = 0; i < outputs.size(); ++i)
        e_.store(outputs[i], p, count > 1 ? joined(results[i]) : results[i][0]);
      j += count;
    }
}

Expr GpuStreamRows::quarter() const {
  return floormod(l_.lane, kJoined);
}

Point GpuStreamRows::column_point(const ContractionForm& sum, int half, const Expr& column,
                                  int lanes) const {
  Point p = row_point(half);
  p.lanes = lanes;
  put_lanes(p, r_, sum.depth, column, lanes);
  const auto inside = lanes_inside(sum.depth, column, lanes);
  p.mask.insert(p.mask.end(), inside.begin(), inside.end());
  return p;
}

/// What was summed, as what its stage gives at a point of two neighbours.
void GpuStreamRows::provide_sum(std::size_t s, int half, const Point& p, ValueId two) {
  const int stage = f_.sums[s].stage, maximum = f_.scaled_by[std::size_t(stage)];
  ValueId value = unless_spoiled(stage, row_point(half), two);
  if (maximum >= 0)
    value = unless_lowest(b_, maximum_.at({maximum, half}), value);
  e_.provide(stage, p,
             {e_.convert({value, DType::F32}, r_.stages[std::size_t(stage)].yield_dtypes[0])});
}

/// Whether a fragment's row is 16 bytes beside each other in the output: a quarter of them is all
/// that a lane has, less than memory writes at once.
bool GpuStreamRows::joins_fragments(const ContractionForm& sum, int output) const {
  const Output& out = r_.outputs[std::size_t(output)];
  const int axis = sum.depth.axes.back();
  if (kPlaces * size_of(out.dtype) != 16 ||
      r_.axes[std::size_t(axis)].extent.divisor() % kPlaces != 0)
    return false;
  const std::vector<int> axes = result_axes(r_.stages[std::size_t(out.stage)]);
  const auto at = std::find(axes.begin(), axes.end(), axis);
  if (at == axes.end() || stride_of(r_, out, axis) != 1)
    return false;
  const Expr column = Expr::axis(int(at - axes.begin()), r_.axes[std::size_t(axis)].extent);
  return (offset_of(out) - column).divisor() % kPlaces == 0;
}

/// Four fragments' neighbours of a row, of which each of its four lanes has a quarter: a whole
/// fragment's row for each lane. The transposition of four by four words in two steps.
Value GpuStreamRows::joined(const std::vector<Value>& quarters) {
  std::vector<ValueId> words;
  for (const Value& v : quarters)
    words.push_back(pair_as_word(b_.splat(e_.narrow(v), 2)));
  for (int distance = kJoined / 2; distance > 0; distance /= 2) {
    const ValueId mask = b_.constant(Scalar::of(DType::I32, std::int64_t(distance)));
    const ValueId upper =
        b_.test({{floormod(floordiv(l_.lane, distance), 2), Expr(1), Expr(2)}}, 1);
    for (int k = 0; k < kJoined; ++k) {
      if (k & distance)
        continue;
      ValueId &low = words[std::size_t(k)], &high = words[std::size_t(k | distance)];
      const auto either = [&](ValueId a, ValueId b) {
        return b_.apply(Op::Select, DType::U32, {upper, a, b});
      };
      const ValueId other = b_.shuffle_xor(either(low, high), mask);
      const ValueId first = either(other, low), second = either(high, other);
      low = first;
      high = second;
    }
  }
  std::vector<ValueId> pairs;
  for (const ValueId word : words)
    pairs.push_back(word_as_pair(word, quarters[0].dtype));
  return {b_.shuffle(b_.shuffle(pairs[0], pairs[1], {0, 1, 2, 3}),
                     b_.shuffle(pairs[2], pairs[3], {0, 1, 2, 3}), {0, 1, 2, 3, 4, 5, 6, 7}),
          quarters[0].dtype};
}

/// Two of 16 bits as a word, the first in its low half.
ValueId GpuStreamRows::pair_as_word(ValueId pair) {
  const ValueId bits = b_.cast(b_.apply(Op::Bitcast, DType::U16, {pair}), DType::U32);
  return word_of(bits);
}
ValueId GpuStreamRows::word_of(ValueId bits) {
  const ValueId sixteen = b_.constant(Scalar::of(DType::U32, std::int64_t(16)));
  const ValueId high = b_.apply(Op::Shl, DType::U32, {b_.extract(bits, 1), sixteen});
  return b_.apply(Op::Or, DType::U32, {b_.extract(bits, 0), high});
}
ValueId GpuStreamRows::word_as_pair(ValueId word, DType dtype) {
  const ValueId sixteen = b_.constant(Scalar::of(DType::U32, std::int64_t(16)));
  const ValueId both =
      b_.shuffle(b_.splat(word, 1), b_.apply(Op::Shr, DType::U32, {word, sixteen}), {0, 1});
  return b_.apply(Op::Bitcast, dtype, {b_.cast(both, DType::U16)});
}

} // namespace egret::kernel

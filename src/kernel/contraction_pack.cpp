#include "kernel/contraction_pack.h"

#include "kernel/analysis.h"
#include "kernel/contraction_segments.h"
#include "kernel/contraction_window.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

namespace {

constexpr int kMostLanes = 64; ///< of a value

/// Whether every lane of the vector starting at `first` is below `extent`.
Guard whole(const Expr& first, std::int64_t count, const Expr& extent) {
  return {extent - first - Expr(count), Expr(0), Expr(INT64_MAX)};
}
Guard cut(const Expr& first, std::int64_t count, const Expr& extent) {
  return {extent - first - Expr(count), Expr(INT64_MIN / 2), Expr(0)};
}

/// Rows become columns: log2(n) rounds, each interleaving the upper with the lower half of the
/// rows.
std::vector<ValueId> transpose(ProgramBuilder& b, std::vector<ValueId> rows) {
  const int n = int(rows.size());
  std::vector<int> low, high;
  for (int i = 0; i < n / 2; ++i) {
    low.insert(low.end(), {i, n + i});
    high.insert(high.end(), {n / 2 + i, n + n / 2 + i});
  }
  for (int round = 1; round < n; round *= 2) {
    std::vector<ValueId> next;
    for (int i = 0; i < n / 2; ++i) {
      next.push_back(b.shuffle(rows[i], rows[i + n / 2], low));
      next.push_back(b.shuffle(rows[i], rows[i + n / 2], high));
    }
    rows = std::move(next);
  }
  return rows;
}

} // namespace

void put_index(Point& point, const Region& region, const AxisGroup& group, const Expr& index) {
  Expr rest = group.place(index);
  if (group.slices > 1)
    point.at[group.slice_axis] = floormod(floordiv(index, group.run), group.slices);
  for (std::size_t i = group.axes.size(); i-- > 0;) {
    const bool padded = group.padded > 0 && i + 1 == group.axes.size();
    const Expr extent = padded ? Expr(group.padded) : region.axes[group.axes[i]].extent;
    if (i == 0) {
      point.at[group.axes[i]] = rest;
      return;
    }
    // In an empty box nothing runs, so the divisor may be taken as 1.
    const Expr divisor = extent.lower() >= 1 ? extent : max(extent, Expr(1));
    point.at[group.axes[i]] = floormod(rest, divisor);
    rest = floordiv(rest, divisor);
  }
}

void put_index_within(Point& point, const Region& region, const AxisGroup& group,
                      const Expr& index) {
  if (group.slices == 1) {
    put_index(point, region, group, min(index, group.extent - Expr(1)));
    if (group.padded > 0) {
      Expr& place = point.at[std::size_t(group.axes.back())];
      place = min(place, Expr(group.places - 1));
    }
    return;
  }
  AxisGroup of_slice = group;
  of_slice.slices = 1;
  put_index(point, region, of_slice, min(group.place(index), group.slice_extent() - Expr(1)));
  point.at[group.slice_axis] = floormod(floordiv(index, group.run), group.slices);
}

void put_run(Point& point, const Region& region, const AxisGroup& group, const Expr& first) {
  put_index(point, region, group, first);
  Expr& place = point.at[std::size_t(group.axes.back())];
  place = place + (point.lanes > 1 ? lane_variable(point.lanes) : Expr(0));
}

void put_vector(Point& point, const Region& region, const AxisGroup& group, const Expr& first) {
  if (group.padded == 0) {
    put_index(point, region, group,
              first + (point.lanes > 1 ? lane_variable(point.lanes) : Expr(0)));
    return;
  }
  put_run(point, region, group, first);
  const Expr& place = point.at[std::size_t(group.axes.back())];
  if (!proves_less(place, Expr(group.places)))
    point.mask.push_back({place, Expr(0), Expr(group.places)});
}

void store_results(Emitter& emitter, const ContractionForm& form, const Point& point,
                   std::span<const ValueId> sums) {
  const Region& region = emitter.region();
  const DType type = region.stages[std::size_t(form.stage)].yield_dtypes[0];
  const int axis = form.columns.slice_axis;
  std::vector<Point> points(sums.size(), point);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (axis >= 0)
      points[i].at[std::size_t(axis)] = Expr(std::int64_t(i));
    emitter.provide(form.stage, points[i], {emitter.convert({sums[i], form.accumulator}, type)});
  }
  // All values before the first store: an output may take over the memory of an operand.
  struct Result {
    int output;
    const Point& point;
    Value value;
  };
  std::vector<Result> results;
  for (std::size_t o = 0; o < region.outputs.size(); ++o) {
    const Output& out = region.outputs[o];
    const bool of_slices =
        axis >= 0 && contains(result_axes(region.stages[std::size_t(out.stage)]), axis);
    for (std::size_t i = 0; i < (of_slices ? sums.size() : 1); ++i)
      results.push_back({int(o), points[i], emitter.result(out.stage, out.component, points[i])});
  }
  for (const Result& r : results)
    emitter.store(r.output, r.point, r.value);
}

namespace {

/// The first steps of a side's segments; one segment where some step would be of two.
std::vector<std::int64_t> segments_of_steps(const Region& region, const ContractionForm& form,
                                            const Side& side, const Tiles& tiles, bool window) {
  if (window || tiles.matrix || form.depth.extent.divisor() % tiles.width != 0)
    return {0};
  std::vector<std::int64_t> segments = segments_of_depth(region, form, side);
  for (std::int64_t& first : segments) {
    if (first % tiles.width != 0)
      return {0};
    first /= tiles.width;
  }
  return segments;
}

} // namespace

PackedSide::PackedSide(Emitter& emitter, const ContractionForm& form, const Side& side,
                       const AxisGroup& panels, int width, const Tiles& tiles, bool rows_of_chunks,
                       const WindowReader* window, int window_lanes)
    : e_(emitter), b_(emitter.builder()), form_(form), side_(side), panels_(panels), width_(width),
      t_(tiles), rows_of_chunks_(rows_of_chunks), window_(window),
      lanes_(window != nullptr ? window_lanes : tiles.lanes),
      whole_depth_(form.depth.extent.divisor() % (tiles.matrix ? 2 * kChunk : tiles.width) == 0) {
  const std::int64_t steps = (t_.kc + t_.lanes - 1) / t_.lanes * t_.lanes;
  const std::int64_t spill = width_ % t_.lanes == 0 ? 0 : t_.lanes;
  panel_elements_ = Expr(steps * width_ + spill);
  steps_ = steps_of(form, tiles);
  segments_ = segments_of_steps(e_.region(), form, side, tiles, window != nullptr);
}

Expr steps_of(const ContractionForm& form, const Tiles& tiles) {
  if (tiles.matrix)
    return ceildiv(form.depth.extent, 2 * kChunk) * Expr(kChunk);
  return tiles.width == 1 ? form.depth.extent : ceildiv(form.depth.extent, tiles.width);
}

DType word_of(const ContractionForm& form, const Tiles& tiles) {
  return tiles.width == 1 ? form.accumulator : DType::U32;
}

namespace {

/// A factor as 16 bits.
ValueId half_of_pair(Emitter& emitter, const ContractionForm& form, int factor,
                     const Point& point) {
  ProgramBuilder& b = emitter.builder();
  ValueId v = emitter.narrow(emitter.value(form.stage, factor, point));
  if (!is_float(form.accumulator))
    v = b.cast(v, DType::I16);
  return b.apply(Op::Bitcast, DType::U16, {v});
}

} // namespace

ValueId step_of_side(Emitter& emitter, const ContractionForm& form, const Side& side,
                     const Tiles& tiles, const Point& point, const Expr& step, bool half) {
  ProgramBuilder& b = emitter.builder();
  Point p = point;
  if (tiles.width == 1) {
    put_index(p, emitter.region(), form.depth, step);
    const Value v = emitter.value(form.stage, side.value, p);
    return b.splat(b.cast(v.id, form.accumulator), p.lanes);
  }
  const int factor = paired_factor_of(emitter.region(), form, side).value;
  const auto bits = [&](int number) {
    put_index(p, emitter.region(), form.depth, step * Expr(2) + Expr(number));
    return b.splat(b.cast(half_of_pair(emitter, form, factor, p), DType::U32), p.lanes);
  };
  const ValueId lower = bits(0);
  if (half)
    return lower;
  const ValueId upper = b.apply(Op::Shl, DType::U32,
                                {bits(1), b.constant(Scalar::of(DType::U32, std::int64_t{16}), 1)});
  return b.apply(Op::Or, DType::U32, {lower, upper});
}

ValueId PackedSide::vector_at(Point point, const Expr& step, bool half) {
  if (window_ != nullptr)
    return t_.width > 1 ? window_->pairs_at(point, step, half) : window_->vector_at(point, step);
  return step_of_side(e_, form_, side_, t_, point, step, half);
}

ValueId PackedSide::along_steps(Point point, const Expr& first, bool tail) {
  const Expr lane = lane_variable(t_.lanes);
  if (t_.width == 1 || 2 * t_.lanes > kMostLanes) {
    if (tail)
      point.mask.push_back({first + lane, Expr(0), steps_});
    return vector_at(std::move(point), first + lane);
  }
  // Neighbours of 16 bits, in pairs.
  const Factor factor = paired_factor_of(e_.region(), form_, side_);
  const Expr k = first * Expr(2) + lane_variable(2 * t_.lanes);
  const Guard inside{k, Expr(0), form_.depth.extent};
  point.lanes = 2 * t_.lanes;
  put_index(point, e_.region(), form_.depth, k);
  if (tail)
    point.mask.push_back(inside);
  ValueId bits = b_.splat(half_of_pair(e_, form_, factor.value, point), point.lanes);
  if (tail && !factor.is_padded_load)
    bits = b_.apply(Op::Select, DType::U16,
                    {b_.test({inside}, point.lanes), bits,
                     b_.constant(Scalar::of(DType::U16, std::int64_t{0}), point.lanes)});
  return b_.words(bits);
}

std::int64_t PackedSide::length_of(std::size_t segment) const {
  const std::int64_t end = segment + 1 < segments_.size() ? segments_[segment + 1] : steps_.value();
  return end - segments_[segment];
}

void PackedSide::over_steps(const Expr& start, const Expr& from, const Expr& until,
                            const std::function<void(const Expr&, const Expr&)>& body) {
  if (segments_.size() == 1) {
    b_.loop(from, until, Expr(1), Expr(t_.kc), Bind::Serial,
            [&](const Expr& k) { body(k, start + k); });
    return;
  }
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const Expr begin(segments_[i]), length(length_of(i));
    b_.loop(max(start + from - begin, Expr(0)), min(start + until - begin, length), Expr(1), length,
            Bind::Serial, [&](const Expr& j) { body(begin - start + j, begin + j); });
  }
}

Expr PackedSide::whole_steps(const Expr& start, const Expr& count) const {
  if (whole_depth_)
    return count;
  const Expr whole = t_.matrix ? floordiv(form_.depth.extent, 2 * kChunk) * Expr(kChunk)
                               : floordiv(form_.depth.extent, t_.width);
  return min(count, max(whole - start, Expr(0)));
}

bool PackedSide::by_depth() const {
  // Vectors that are stored over the end of a row must not meet the work of others.
  return side_.order != Side::Order::Depth && width_ % t_.lanes == 0 && !rows_of_chunks_ &&
         (whole_depth_ || !t_.matrix);
}

void PackedSide::pack_steps(int buffer, const Expr& offset, const Point& batch, const Expr& first,
                            const Expr& end, const Expr& part, const Expr& from,
                            const Expr& until) {
  const Expr lane = t_.lanes > 1 ? lane_variable(t_.lanes) : Expr(0);
  const Expr start = part * Expr(t_.kc);
  const auto store = [&](const Expr& p, bool masked, const Expr& k, const Expr& step, bool half) {
    for (int v = 0; v < width_; v += t_.lanes) {
      Point point = batch;
      point.lanes = t_.lanes;
      const Expr index = p * Expr(width_) + Expr(v);
      put_vector(point, e_.region(), panels_, index);
      if (masked)
        point.mask.push_back(panels_.inside(index + lane));
      const Expr place = offset + (p - first) * panel_elements_ + k * Expr(width_) + Expr(v) + lane;
      b_.store(buffer, place, vector_at(point, step, half));
    }
  };
  const Expr pairs = floordiv(form_.depth.extent, t_.width) - start; // whole ones of the part
  const auto panel = [&](const Expr& p, bool masked) {
    over_steps(start, from, whole_depth_ ? until : min(until, max(pairs, from)),
               [&](const Expr& k, const Expr& step) { store(p, masked, k, step, false); });
    if (!whole_depth_)
      b_.when({{pairs, from, until}}, [&] { store(p, masked, pairs, start + pairs, true); });
  };
  const Expr whole = floordiv(panels_.extent, width_);
  b_.loop(first, min(end, whole), Expr(1), max(whole, Expr(1)), Bind::Serial,
          [&](const Expr& p) { panel(p, false); });
  if (!proves_less_equal(end, whole))
    b_.when({{whole, first, end}}, [&] { panel(whole, true); });
}

void PackedSide::pack_panel(int buffer, const Expr& offset, const Point& batch, const Expr& panel,
                            const Expr& part) {
  const Expr first = panel * Expr(width_), start = part * Expr(t_.kc);
  const Expr count = min(Expr(t_.kc), steps_ - start);
  if (rows_of_chunks_)
    chunks(buffer, offset, batch, first, start, count);
  else if (t_.lanes > 1 && side_.order == Side::Order::Depth && window_ == nullptr)
    along_depth(buffer, offset, batch, first, start, count);
  else
    along_panel(buffer, offset, batch, first, start, count);
}

void PackedSide::along_panel(int buffer, const Expr& offset, const Point& batch, const Expr& first,
                             const Expr& start, const Expr& count) {
  const Expr lane = lanes_ > 1 ? lane_variable(lanes_) : Expr(0);
  const std::int64_t touched = (width_ + lanes_ - 1) / lanes_ * lanes_;
  const Expr whole_count = whole_steps(start, count);
  // Of whole panels, where that says more than the bounds of loops.
  const bool bounded =
      window_ == nullptr || proves_less_equal(first + Expr(touched), panels_.extent);
  const Expr within = bounded ? first : min(first, panels_.extent - Expr(touched));
  const auto row = [&](const Expr& k, const Expr& step, bool masked, bool half) {
    for (std::int64_t v = 0; v < touched; v += lanes_) {
      Point point = batch;
      point.lanes = lanes_;
      const Expr index = (masked ? first : within) + Expr(v);
      put_vector(point, e_.region(), panels_, index);
      if (masked)
        point.mask.push_back(panels_.inside(index + lane));
      b_.store(buffer, offset + k * Expr(width_) + Expr(v) + lane, vector_at(point, step, half));
    }
  };
  const auto rows = [&](bool masked) {
    over_steps(start, Expr(0), whole_count,
               [&](const Expr& k, const Expr& step) { row(k, step, masked, false); });
    if (!whole_depth_ && !t_.matrix)
      b_.when({{whole_count, Expr(0), count}},
              [&] { row(whole_count, start + whole_count, masked, true); });
  };
  b_.when({whole(first, touched, panels_.extent)}, [&] { rows(false); });
  b_.when({cut(first, touched, panels_.extent)}, [&] { rows(true); });
  if (!whole_depth_ && t_.matrix)
    b_.when({{whole_count, Expr(0), count}},
            [&] { transposed(buffer, offset, batch, first, start, whole_count, true); });
}

void PackedSide::chunks(int buffer, const Expr& offset, const Point& batch, const Expr& first,
                        const Expr& start, const Expr& count) {
  constexpr int kTogether = 4; // rows of one iteration
  const Expr lane = lane_variable(kChunk);
  const auto store = [&](const Expr& k, const Expr& row, ValueId words) {
    b_.store(buffer, offset + k * Expr(width_) + row * Expr(kChunk) + lane, words);
  };
  const auto by_rows = [&](const Expr& k, bool tail) {
    b_.loop(Expr(0), Expr(width_), Expr(kTogether), Expr(width_), Bind::Serial, [&](const Expr& i) {
      for (int j = 0; j < kTogether; ++j) {
        const Expr row = i + Expr(j);
        Point point = batch;
        put_index_within(point, e_.region(), panels_, first + row);
        store(k, row, along_steps(std::move(point), start + k, tail));
      }
    });
  };
  const auto by_steps = [&](const Expr& k, bool masked) {
    for (int v = 0; v < width_; v += kChunk) {
      std::vector<ValueId> steps;
      for (int s = 0; s < kChunk; ++s) {
        Point point = batch;
        point.lanes = kChunk;
        const Expr index = first + Expr(v) + lane;
        put_index(point, e_.region(), panels_, index);
        if (masked)
          point.mask.push_back(panels_.inside(index));
        steps.push_back(vector_at(std::move(point), start + k + Expr(s)));
      }
      const std::vector<ValueId> rows = transpose(b_, std::move(steps));
      for (int i = 0; i < kChunk; ++i)
        store(k, Expr(v + i), rows[std::size_t(i)]);
    }
  };
  const Expr whole_count = whole_steps(start, count);
  const auto all = [&](auto&& chunk) {
    b_.loop(Expr(0), whole_count, Expr(kChunk), Expr(t_.kc), Bind::Serial, chunk);
  };
  if (side_.order == Side::Order::Depth) {
    all([&](const Expr& k) { by_rows(k, false); });
  } else {
    b_.when({whole(first, width_, panels_.extent)},
            [&] { all([&](const Expr& k) { by_steps(k, false); }); });
    b_.when({cut(first, width_, panels_.extent)},
            [&] { all([&](const Expr& k) { by_steps(k, true); }); });
  }
  if (!whole_depth_)
    b_.when({{whole_count, Expr(0), count}}, [&] { by_rows(whole_count, true); });
}

void PackedSide::along_depth(int buffer, const Expr& offset, const Point& batch, const Expr& first,
                             const Expr& start, const Expr& count) {
  const Expr lanes(t_.lanes);
  bool vectors = segments_.size() > 1 && proves_less_equal(steps_, Expr(t_.kc));
  for (std::size_t i = 0; vectors && i < segments_.size(); ++i)
    vectors = length_of(i) >= t_.lanes;
  if (vectors) {
    by_segments(buffer, offset, batch, first);
    return;
  }
  const Expr full =
      t_.matrix ? whole_steps(start, count) : floordiv(whole_steps(start, count), lanes) * lanes;
  b_.loop(Expr(0), full, lanes, Expr(t_.kc), Bind::Serial,
          [&](const Expr& k) { transposed(buffer, offset, batch, first, start, k, false); });
  b_.when({t_.matrix ? Guard{full, Expr(0), count} : Guard{count - full, Expr(1), lanes + Expr(1)}},
          [&] { transposed(buffer, offset, batch, first, start, full, true); });
}

void PackedSide::by_segments(int buffer, const Expr& offset, const Point& batch,
                             const Expr& first) {
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const std::int64_t begin = segments_[i], length = length_of(i), whole = length / t_.lanes;
    const auto block = [&](const Expr& at) {
      transposed(buffer, offset, batch, first, Expr(0), at, false);
    };
    b_.loop(Expr(0), Expr(whole), Expr(1), Expr(whole), Bind::Serial,
            [&](const Expr& j) { block(Expr(begin) + j * Expr(t_.lanes)); });
    if (length % t_.lanes != 0) // the last block ends with the segment and stores some steps again
      block(Expr(begin + length - t_.lanes));
  }
}

void PackedSide::transposed(int buffer, const Expr& offset, const Point& batch, const Expr& first,
                            const Expr& start, const Expr& at, bool tail) {
  const Expr lane = lane_variable(t_.lanes);
  const ValueId zero = b_.constant(Scalar::of(word(), std::int64_t{0}), t_.lanes);
  std::vector<std::vector<ValueId>> groups;
  for (int v = 0; v < width_; v += t_.lanes) {
    std::vector<ValueId> rows(std::size_t(t_.lanes), zero);
    for (int i = 0; i < t_.lanes && v + i < width_; ++i) {
      Point point = batch;
      point.lanes = t_.lanes;
      // Behind the last panel element the last one is repeated: what comes of it is never stored.
      put_index_within(point, e_.region(), panels_, first + Expr(v + i));
      rows[std::size_t(i)] = along_steps(std::move(point), start + at, tail);
    }
    groups.push_back(transpose(b_, std::move(rows)));
  }
  for (int i = 0; i < t_.lanes; ++i)
    for (std::size_t g = 0; g < groups.size(); ++g)
      b_.store(buffer,
               offset + (at + Expr(i)) * Expr(width_) + Expr(std::int64_t(g) * t_.lanes) + lane,
               groups[g][std::size_t(i)]);
}

} // namespace egret::kernel

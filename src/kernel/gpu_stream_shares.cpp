#include "kernel/gpu_stream_shares.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_nest.h"
#include "support/checked.h"

#include <algorithm>

namespace egret::kernel {

namespace {

constexpr int kFragment = GpuStreamRows::kPlaces;

/// Rows of a tile that there are, of any.
std::int64_t rows_of(const StreamForm& form, const StreamTiles& tiles) {
  return std::min<std::int64_t>(form.rows.extent.upper(), tiles.rows());
}

} // namespace

std::string shares_refused(const Region& region, const StreamForm& form) {
  if (form.passes != 1 || form.sums.empty())
    return "its places are gone along more than once, or nothing is summed over columns";
  for (const int stage : form.row_stages) {
    const DType dtype = compute_dtype(region.stages[std::size_t(stage)].acc_dtype);
    if (dtype != DType::F32)
      return "a row's value is no f32";
  }
  if (!form.batch.extent.is_constant() || !form.rows.extent.is_constant())
    return "how many rows there are is not known";
  return "";
}

bool shares_pay(const Region& region, const StreamForm& form) {
  constexpr std::int64_t kMostRows = 2 * kStreamRows;
  if (!shares_refused(region, form).empty())
    return false;
  const std::int64_t rows = form.rows.extent.value();
  return rows > 0 && rows <= kMostRows && form.batch.extent.value() > 0;
}

std::int64_t share_elements(const StreamForm& form, const StreamTiles& tiles) {
  const std::int64_t rows = rows_of(form, tiles);
  std::int64_t n = round_up<std::int64_t>(rows * std::int64_t(form.row_stages.size()), 2);
  for (const ContractionForm& s : form.sums)
    n += rows * stream_columns(s, tiles);
  return n;
}

StreamShares::StreamShares(Emitter& emitter, const StreamForm& form, GpuStreamRows& rows,
                           const StreamTiles& tiles, const Arithmetic& arithmetic,
                           const Expr& count)
    : e_(emitter), b_(emitter.builder()), r_(emitter.region()), f_(form), of_rows_(rows), t_(tiles),
      arithmetic_(arithmetic), pass_(stream_pass(r_, form, 0)),
      thread_(thread_variable(tiles.threads())), rows_(rows_of(form, tiles)) {
  warps_ = b_.shared("parts", DType::F32, t_.across * elements());
  if (t_.split > 1) {
    blocks_ = b_.workspace("shares", DType::F32, count * Expr(t_.split * elements()));
    arrived_ = b_.counter("arrived", count.value());
  }
}

TileRange StreamShares::part_of(const TileRange& range, const Expr& share) const {
  const Expr tiles = range.end - range.begin;
  return {range.begin + floordiv(tiles * share, t_.split),
          range.begin + floordiv(tiles * (share + Expr(1)), t_.split)};
}

/// Behind the row values, at an even number: pairs of columns are accessed at once.
Expr StreamShares::column(std::size_t sum, const Expr& row, const Expr& column) const {
  std::int64_t before = round_up<std::int64_t>(row_values(), 2);
  for (std::size_t s = 0; s < sum; ++s)
    before += rows_ * stream_columns(f_.sums[s], t_);
  return Expr(before) + row * Expr(std::int64_t(stream_columns(f_.sums[sum], t_))) + column;
}

void StreamShares::put(const Expr& group, int half, const Expr& lane,
                       const std::function<ValueId(std::size_t sum, int fragment)>& sums) {
  const Expr row = of_rows_.row_in_tile(half), begin = group * Expr(elements());
  const std::vector<ValueId> values = of_rows_.unfinished(half);
  b_.when(unproved({{row, Expr(0), Expr(rows_)}}), [&] {
    b_.when({{floormod(lane, 4), Expr(0), Expr(1)}}, [&] {
      for (std::size_t v = 0; v < values.size(); ++v)
        b_.store(warps_, begin + row_value(v, row), values[v]);
    });
    for (std::size_t s = 0; s < f_.sums.size(); ++s)
      for (int j = 0; j < stream_columns(f_.sums[s], t_) / kFragment; ++j) {
        const Expr at = Expr(std::int64_t(kFragment) * j) + floormod(lane, 4) * Expr(2);
        b_.store(warps_, begin + column(s, row, at) + lane_variable(2), sums(s, j));
      }
  });
}

/// Items 0 to `items` by all threads of the block.
void StreamShares::each_item(std::int64_t items, const std::function<void(const Expr&)>& body) {
  for (std::int64_t first = 0; first < items; first += t_.threads()) {
    const Expr item = thread_ + Expr(first);
    e_.forget_maps();
    b_.when(unproved({{item, Expr(0), Expr(items)}}), [&] { body(item); });
  }
  e_.forget_maps();
}

StreamShares::Combined StreamShares::combine_rows(const Shares& from, const Expr& row) {
  Combined all;
  const auto value = [&](std::size_t v, int share) {
    return b_.load(from.buffer, from.first + Expr(share * elements()) + row_value(v, row), 1);
  };
  const auto number_of = [&](int stage) {
    return std::size_t(std::find(pass_.rows.begin(), pass_.rows.end(), stage) - pass_.rows.begin());
  };
  for (std::size_t v = 0; v < pass_.rows.size(); ++v) {
    const int stage = pass_.rows[v];
    if (f_.scaled_by[std::size_t(stage)] >= 0)
      continue;
    const Op op = op_of(r_.stages[std::size_t(stage)].monoid);
    std::vector<ValueId> values;
    for (int i = 0; i < from.count; ++i)
      values.push_back(value(v, i));
    ValueId combined = values[0];
    for (int i = 1; i < from.count; ++i)
      combined = b_.apply(op, DType::F32, {combined, values[std::size_t(i)]});
    all.values[stage] = combined;
    if (std::find(f_.scaled_by.begin(), f_.scaled_by.end(), stage) != f_.scaled_by.end())
      for (const ValueId own : values)
        all.scales[stage].push_back(rescale(b_, own, combined));
  }
  for (const int stage : pass_.rows) {
    const int maximum = f_.scaled_by[std::size_t(stage)];
    if (maximum < 0)
      continue;
    ValueId sum = b_.constant(Scalar::of(DType::F32, 0.0));
    for (int i = 0; i < from.count; ++i)
      sum = b_.fma(value(number_of(stage), i), all.scales.at(maximum)[std::size_t(i)], sum);
    all.values[stage] = sum;
  }
  return all;
}

/// Two neighbouring columns of a sum.
ValueId StreamShares::combine_sum(const Shares& from, const Combined& rows, std::size_t sum,
                                  const Expr& element) {
  const int maximum = f_.scaled_by[std::size_t(f_.sums[sum].stage)];
  ValueId all = b_.constant(Scalar::of(DType::F32, 0.0), 2);
  for (int i = 0; i < from.count; ++i) {
    const ValueId own =
        b_.load(from.buffer, from.first + Expr(i * elements()) + element + lane_variable(2), 2);
    all = maximum < 0 ? b_.apply(Op::Add, DType::F32, {all, own})
                      : b_.fma(own, b_.splat(rows.scales.at(maximum)[std::size_t(i)], 2), all);
  }
  return all;
}

void StreamShares::finish(const Expr& number, const Expr& share) {
  b_.barrier();
  const Shares of_warps{warps_, Expr(0), t_.across};
  if (t_.split == 1) {
    store_results(of_warps);
    return;
  }
  const Expr first = number * Expr(t_.split * elements());
  pass_on(of_warps, first + share * Expr(elements()));
  b_.last_arriver(arrived_, number, Expr(t_.split), [&] {
    store_results({blocks_, first, t_.split});
  });
}

/// What all warps of the block have together.
void StreamShares::pass_on(const Shares& from, const Expr& to) {
  for (std::size_t s = 0; s < f_.sums.size(); ++s) {
    const std::int64_t pairs = stream_columns(f_.sums[s], t_) / 2;
    each_item(rows_ * pairs, [&](const Expr& item) {
      const Expr row = floordiv(item, pairs), pair = floormod(item, pairs);
      const Combined rows = combine_rows(from, row);
      const Expr element = column(s, row, pair * Expr(2));
      b_.store(blocks_, to + element + lane_variable(2), combine_sum(from, rows, s, element));
      if (s > 0)
        return;
      b_.when({{pair, Expr(0), Expr(1)}}, [&] {
        for (std::size_t v = 0; v < pass_.rows.size(); ++v)
          b_.store(blocks_, to + row_value(v, row), rows.values.at(pass_.rows[v]));
      });
    });
  }
}

void StreamShares::provide_rows(const Combined& rows, const Point& row) {
  for (const int stage : pass_.rows) {
    Accumulator a(e_, stage, 0, arithmetic_, f_.places.extent);
    const int maximum = f_.scaled_by[std::size_t(stage)];
    ValueId value = rows.values.at(stage);
    if (maximum >= 0)
      value = unless_lowest(b_, rows.values.at(maximum), value);
    e_.provide(stage, row, {a.finish({of_rows_.unless_spoiled(stage, row, value)})});
  }
}

void StreamShares::store_results(const Shares& from) {
  const std::vector<int> sum_of_output = sums_of_outputs(r_, f_);
  const auto outputs_of = [&](int sum) {
    std::vector<int> outputs;
    for (std::size_t o = 0; o < r_.outputs.size(); ++o)
      if (sum_of_output[o] == sum)
        outputs.push_back(int(o));
    return outputs;
  };
  if (const std::vector<int> outputs = outputs_of(-1); !outputs.empty())
    each_item(rows_, [&](const Expr& row) {
      const Point p = of_rows_.row_at(row);
      provide_rows(combine_rows(from, row), p);
      for (const int o : outputs)
        e_.store(
            o, p,
            e_.result(r_.outputs[std::size_t(o)].stage, r_.outputs[std::size_t(o)].component, p));
    });
  for (std::size_t s = 0; s < f_.sums.size(); ++s) {
    const ContractionForm& sum = f_.sums[s];
    const std::int64_t pairs = stream_columns(sum, t_) / 2;
    each_item(rows_ * pairs, [&](const Expr& item) {
      const Expr row = floordiv(item, pairs), at = floormod(item, pairs) * Expr(2);
      const Combined rows = combine_rows(from, row);
      Point p = of_rows_.row_at(row);
      provide_rows(rows, p);
      const int maximum = f_.scaled_by[std::size_t(sum.stage)];
      ValueId value =
          of_rows_.unless_spoiled(sum.stage, p, combine_sum(from, rows, s, column(s, row, at)));
      if (maximum >= 0)
        value = unless_lowest(b_, rows.values.at(maximum), value);
      p.lanes = 2;
      put_lanes(p, r_, sum.depth, at, 2);
      const auto inside = lanes_inside(sum.depth, at, 2);
      p.mask.insert(p.mask.end(), inside.begin(), inside.end());
      e_.provide(
          sum.stage, p,
          {e_.convert({value, DType::F32}, r_.stages[std::size_t(sum.stage)].yield_dtypes[0])});
      for (const int o : outputs_of(int(s)))
        e_.store(
            o, p,
            e_.result(r_.outputs[std::size_t(o)].stage, r_.outputs[std::size_t(o)].component, p));
    });
  }
}

} // namespace egret::kernel

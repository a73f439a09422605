#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_sums.h"
#include "support/fail.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace egret::kernel {

namespace {

/// Bytes of a row of results that a warp collects before it stores them.
constexpr int kRowBytes = 128;
constexpr int kStagedBytes = 16;
/// Results of a thread that are in registers before they are stored.
constexpr int kMostHeld = 64;

/// Whether the point's lanes are neighbours in an output.
bool is_contiguous(const Region& region, const Output& out, const Point& point) {
  const std::vector<int> axes = result_axes(region.stages[out.stage]);
  const Expr offset = substitute(offset_of(out), [&](const Expr& v) {
    return v.is_axis() ? std::optional(point.at[axes[std::size_t(v.axis_number())]]) : std::nullopt;
  });
  const auto step = coefficient_of(offset, lane_variable(point.lanes));
  return step && *step == Expr(1);
}

/// Whether the sums go through shared memory, and what is made of them is made in the order in
/// which it is stored: results as wide as the sums take no less of that memory, and each of several
/// would go through it in turn. Of 16 bits, all results take half of it.
bool collects_sums(const Region& region, const ContractionForm& form) {
  return form.accumulator == DType::F32 &&
         std::ranges::any_of(region.outputs, [&](const Output& o) {
           return size_of(o.dtype) >= size_of(form.accumulator);
         });
}

} // namespace

Fragments::Fragments(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles)
    : e_(emitter), b_(emitter.builder()), f_(form), t_(tiles),
      warp_(floordiv(thread_variable(tiles.threads()), 32)),
      lane_(floormod(thread_variable(tiles.threads()), 32)) {
  const Region& r = e_.region();
  const int axis = f_.columns.axes.back();
  across_ = std::any_of(r.outputs.begin(), r.outputs.end(),
                        [&](const Output& o) { return stride_of(r, o, axis) == 1; });
  if (!tiles.staged || !across_)
    return;
  if (collects_sums(r, f_)) {
    sums_ = rows_of("sums", f_.accumulator);
    return;
  }
  // One buffer for all outputs of one type in turn, of rows that lie in different banks: of the
  // narrowest, as neighbours of wider ones fill the memory's sectors by themselves.
  std::optional<DType> type;
  for (const Output& out : r.outputs)
    if (stride_of(r, out, axis) == 1 && (!type || size_of(out.dtype) < size_of(*type)))
      type = out.dtype;
  Staging shared;
  for (const Output& out : r.outputs) {
    const bool collected =
        stride_of(r, out, axis) == 1 && size_of(out.dtype) <= 4 && out.dtype == type;
    if (collected && shared.buffer < 0)
      shared = rows_of(fmt::format("results{}", staging_.size()), out.dtype);
    staging_.push_back(collected ? shared : Staging{});
  }
}

Fragments::Staging Fragments::rows_of(const std::string& name, DType type) {
  const int size = int(size_of(type));
  Staging s;
  s.columns = std::min(kRowBytes / size, t_.bn / (t_.unit == GpuUnit::Wgmma ? 1 : t_.warps_n));
  s.pitch = s.columns + kStagedBytes / size;
  s.buffer = b_.shared(name, type, std::int64_t(t_.threads() / 32) * 16 * s.pitch, kStagedBytes);
  return s;
}

Expr Fragments::begin_of(const Staging& s) const {
  return warp_ * Expr(16 * s.pitch);
}

Expr Fragments::pair_in(const Staging& s, int half, std::size_t fragment) const {
  return begin_of(s) + (floordiv(lane_, 4) + Expr(8 * half)) * Expr(s.pitch) +
         floormod(lane_, 4) * Expr(2) + Expr(8 * std::int64_t(fragment)) + lane_variable(2);
}

Fragments::Stored Fragments::stored(int first, int columns, int lanes) const {
  const int across = columns / lanes, count = 16 * across;
  const Expr number = lane_ + Expr(first);
  Stored v{floordiv(number, across), floormod(number, across) * Expr(lanes), lanes, {}};
  if (first + 32 > count)
    v.exists.push_back({number, Expr(0), Expr(count)});
  return v;
}

ValueId Fragments::load(const Staging& s, const Stored& v) {
  return b_.load(s.buffer, begin_of(s) + v.down * Expr(s.pitch) + v.right + lane_variable(v.lanes),
                 v.lanes, v.exists);
}

// Where an axis ends within 16 bytes, as an image's does, vectors are as wide as it allows.
int Fragments::lanes_of(std::span<const int> outputs, std::size_t bytes, const GpuTile& tile,
                        const Expr& row, const Expr& column, int columns) const {
  const Region& r = e_.region();
  const auto apart = [&](int o, int lanes) {
    const Stored v = stored(0, columns, lanes);
    return !is_contiguous(r, r.outputs[std::size_t(o)],
                          point_at(r, f_, tile, row + v.down, column + v.right, lanes));
  };
  int lanes = kStagedBytes / int(bytes);
  while (lanes > 2 && std::ranges::any_of(outputs, [&](int o) { return apart(o, lanes); }))
    lanes /= 2;
  return lanes;
}

void Fragments::deliver(const GpuTile& tile, const Expr& row, const Expr& column,
                        std::span<const VarId> variables) {
  if (sums_.buffer >= 0)
    sums_first(tile, row, column, variables);
  else if (staging_.empty())
    direct(tile, row, column, variables);
  else
    staged(tile, row, column, variables);
}

void Fragments::direct(const GpuTile& tile, const Expr& row, const Expr& column,
                       std::span<const VarId> variables) {
  const Expr first = column + floormod(lane_, 4) * Expr(2);
  const int step = across_ ? 2 : 1;
  const auto slices = std::size_t(f_.columns.slices); // a fragment of each, side by side
  for (int half = 0; half < 2; ++half)
    for (std::size_t j = 0; j < variables.size(); j += slices)
      for (int i = 0; i < 2; i += step) {
        std::vector<ValueId> all;
        for (std::size_t s = 0; s < slices; ++s) {
          const ValueId sums = b_.read(variables[j + s]);
          all.push_back(step == 2 ? b_.shuffle(sums, sums, {2 * half, 2 * half + 1})
                                  : b_.extract(sums, 2 * half + i));
        }
        store_results(e_, f_,
                      point_at(e_.region(), f_, tile, row + floordiv(lane_, 4) + Expr(8 * half),
                               first + Expr(8 * int(j) + i), step),
                      all);
      }
}

void Fragments::staged(const GpuTile& tile, const Expr& row, const Expr& column,
                       std::span<const VarId> variables) {
  const Region& r = e_.region();
  std::size_t together = variables.size(); // fragments that are collected
  for (const Staging& s : staging_)
    if (s.buffer >= 0)
      together = std::min(together, std::size_t(s.columns / 8));
  const Expr pair = floormod(lane_, 4) * Expr(2), line = floordiv(lane_, 4);
  for (std::size_t first = 0; first < variables.size(); first += together) {
    const auto part = variables.subspan(first, std::min(together, variables.size() - first));
    const Expr begin = column + Expr(8 * std::int64_t(first));
    const int columns = 8 * int(part.size());
    std::vector<Delivery> results;
    for (int half = 0; half < 2; ++half)
      for (std::size_t j = 0; j < part.size(); ++j) {
        const ValueId sums = b_.read(part[j]);
        results.push_back(results_of(e_, f_, tile, row + line + Expr(8 * half),
                                     begin + pair + Expr(8 * std::int64_t(j)),
                                     b_.shuffle(sums, sums, {2 * half, 2 * half + 1})));
      }
    for (int o = 0; o < int(staging_.size()); ++o) {
      const Staging& s = staging_[std::size_t(o)];
      if (s.buffer < 0) {
        for (const Delivery& d : results)
          e_.store(o, d.point, d.values[std::size_t(o)]);
        continue;
      }
      b_.subgroup_barrier(); // the last results have been read
      for (std::size_t i = 0; i < results.size(); ++i)
        b_.store(s.buffer, pair_in(s, int(i / part.size()), i % part.size()),
                 b_.splat(e_.narrow(results[i].values[std::size_t(o)]), 2));
      b_.subgroup_barrier();
      const int lanes =
          lanes_of({&o, 1}, size_of(r.outputs[std::size_t(o)].dtype), tile, row, begin, columns);
      for (int i = 0; i < 16 * (columns / lanes); i += 32) {
        const Stored v = stored(i, columns, lanes);
        Point p = point_at(r, f_, tile, row + v.down, begin + v.right, lanes);
        p.mask.insert(p.mask.end(), v.exists.begin(), v.exists.end());
        e_.store(o, p, e_.widen(load(s, v)));
      }
    }
  }
}

// A loop, as one code then serves all columns: what is made of a sum may be long.
void Fragments::sums_first(const GpuTile& tile, const Expr& row, const Expr& column,
                           std::span<const VarId> variables) {
  const Region& r = e_.region();
  std::size_t together = std::min(variables.size(), std::size_t(sums_.columns / 8));
  while (variables.size() % together != 0)
    --together;
  const int columns = 8 * int(together);
  const Expr chunks(std::int64_t(variables.size() / together));
  std::vector<int> contiguous; // outputs
  std::size_t widest = 0;      // bytes
  for (std::size_t o = 0; o < r.outputs.size(); ++o) {
    widest = std::max(widest, size_of(r.outputs[o].dtype));
    if (stride_of(r, r.outputs[o], f_.columns.axes.back()) == 1)
      contiguous.push_back(int(o));
  }
  b_.loop(Expr(0), chunks, Expr(1), chunks, Bind::Serial, [&](const Expr& chunk) {
    b_.subgroup_barrier(); // the last sums have been read
    for (std::size_t first = 0; first < variables.size(); first += together) {
      const Expr number(std::int64_t(first / together));
      b_.when({{chunk, number, number + Expr(1)}}, [&] {
        for (int half = 0; half < 2; ++half)
          for (std::size_t j = 0; j < together; ++j) {
            const ValueId sums = b_.read(variables[first + j]);
            b_.store(sums_.buffer, pair_in(sums_, half, j),
                     b_.shuffle(sums, sums, {2 * half, 2 * half + 1}));
          }
      });
    }
    b_.subgroup_barrier();
    const Expr begin = column + chunk * Expr(columns);
    const int lanes = lanes_of(contiguous, widest, tile, row, begin, columns);
    const int count = 16 * (columns / lanes);
    const int most = std::max(1, kMostHeld / (lanes * int(r.outputs.size())));
    for (int i = 0; i < count;) {
      std::vector<Delivery> results; // of which what is read is under way at once
      for (int n = 0; n < most && i < count; ++n, i += 32) {
        const Stored v = stored(i, columns, lanes);
        results.push_back(
            results_of(e_, f_, tile, row + v.down, begin + v.right, load(sums_, v), v.exists));
      }
      for (const Delivery& d : results)
        for (std::size_t o = 0; o < r.outputs.size(); ++o)
          e_.store(int(o), d.point, d.values[o]);
    }
  });
}

} // namespace egret::kernel

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

/// Whether the point's lanes are neighbours in an output.
bool is_contiguous(const Region& region, const Output& out, const Point& point) {
  const std::vector<int> axes = result_axes(region.stages[out.stage]);
  const Expr offset = substitute(offset_of(out), [&](const Expr& v) {
    return v.is_axis() ? std::optional(point.at[axes[std::size_t(v.axis_number())]]) : std::nullopt;
  });
  const auto step = coefficient_of(offset, lane_variable(point.lanes));
  return step && *step == Expr(1);
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
  // One piece for all outputs of one type in turn, of rows that lie in different banks: of the
  // narrowest, as neighbours of wider ones fill the memory's sectors by themselves.
  std::optional<DType> type;
  for (const Output& out : r.outputs)
    if (stride_of(r, out, axis) == 1 && (!type || size_of(out.dtype) < size_of(*type)))
      type = out.dtype;
  int buffer = -1;
  for (const Output& out : r.outputs) {
    const int size = int(size_of(out.dtype));
    Staging s;
    if (stride_of(r, out, axis) == 1 && size <= 4 && out.dtype == type) {
      s.columns = std::min(kRowBytes / size, t_.bn / (t_.unit == GpuUnit::Wgmma ? 1 : t_.warps_n));
      s.pitch = s.columns + kStagedBytes / size;
      s.buffer = buffer >= 0
                     ? buffer
                     : b_.shared(fmt::format("results{}", staging_.size()), out.dtype,
                                 std::int64_t(t_.threads() / 32) * 16 * s.pitch, kStagedBytes);
      buffer = s.buffer;
    }
    staging_.push_back(s);
  }
}

void Fragments::deliver(const GpuTile& tile, const Expr& row, const Expr& column,
                        std::span<const VarId> variables) {
  if (staging_.empty())
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
    std::vector<Delivery> results;
    for (int half = 0; half < 2; ++half)
      for (std::size_t j = 0; j < part.size(); ++j) {
        const ValueId sums = b_.read(part[j]);
        results.push_back(results_of(e_, f_, tile, row + line + Expr(8 * half),
                                     column + pair + Expr(8 * std::int64_t(first + j)),
                                     b_.shuffle(sums, sums, {2 * half, 2 * half + 1})));
      }
    for (std::size_t o = 0; o < staging_.size(); ++o) {
      const Staging& s = staging_[o];
      if (s.buffer < 0) {
        for (const Delivery& d : results)
          e_.store(int(o), d.point, d.values[o]);
        continue;
      }
      const Expr piece = warp_ * Expr(16 * s.pitch);
      b_.subgroup_barrier(); // the last results have been read
      for (std::size_t i = 0; i < results.size(); ++i) {
        const Expr at = piece + (line + Expr(8 * std::int64_t(i / part.size()))) * Expr(s.pitch) +
                        pair + Expr(8 * std::int64_t(i % part.size())) + lane_variable(2);
        b_.store(s.buffer, at, b_.splat(e_.narrow(results[i].values[o]), 2));
      }
      b_.subgroup_barrier();
      const int columns = 8 * int(part.size());
      const auto place = [&](int lanes, const Expr& number) {
        const int across = columns / lanes;
        return std::pair{floordiv(number, across), floormod(number, across) * Expr(lanes)};
      };
      const auto point = [&](int lanes, const Expr& number) {
        const auto [down, right] = place(lanes, number);
        return point_at(r, f_, tile, row + down, column + Expr(8 * std::int64_t(first)) + right,
                        lanes);
      };
      // Where an axis ends within 16 bytes, as an image's does, pieces are as wide as it allows.
      int lanes = kStagedBytes / int(size_of(r.outputs[o].dtype));
      while (lanes > 2 && !is_contiguous(r, r.outputs[o], point(lanes, lane_)))
        lanes /= 2;
      const int across = columns / lanes;
      for (int i = 0; i < 16 * across; i += 32) {
        const Expr number = lane_ + Expr(i);
        const auto [down, right] = place(lanes, number);
        Point p = point(lanes, number);
        std::vector<Guard> exists;
        if (i + 32 > 16 * across)
          exists.push_back({number, Expr(0), Expr(16 * across)});
        p.mask.insert(p.mask.end(), exists.begin(), exists.end());
        const ValueId v =
            b_.load(s.buffer, piece + down * Expr(s.pitch) + right + lane_variable(lanes), lanes,
                    std::move(exists));
        e_.store(int(o), p, e_.widen(v));
      }
    }
  }
}

} // namespace egret::kernel

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
    constexpr int kSumBytes = 4;
    sums_.columns =
        std::min(kRowBytes / kSumBytes, t_.bn / (t_.unit == GpuUnit::Wgmma ? 1 : t_.warps_n));
    sums_.pitch = sums_.columns + kStagedBytes / kSumBytes;
    sums_.buffer = b_.shared("sums", f_.accumulator,
                             std::int64_t(t_.threads() / 32) * 16 * sums_.pitch, kStagedBytes);
    return;
  }
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
      const auto point = [&](int lanes, const Expr& number) {
        const auto [down, right] = place_of(number, columns, lanes);
        return point_at(r, f_, tile, row + down, column + Expr(8 * std::int64_t(first)) + right,
                        lanes);
      };
      const int lanes = lanes_stored(std::vector{int(o)}, [&](int n) { return point(n, lane_); });
      const int across = columns / lanes;
      for (int i = 0; i < 16 * across; i += 32) {
        const Expr number = lane_ + Expr(i);
        const auto [down, right] = place_of(number, columns, lanes);
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

std::pair<Expr, Expr> Fragments::place_of(const Expr& number, int columns, int lanes) {
  const int across = columns / lanes;
  return {floordiv(number, across), floormod(number, across) * Expr(lanes)};
}

// Where an axis ends within 16 bytes, as an image's does, pieces are as wide as it allows.
int Fragments::lanes_stored(std::span<const int> outputs,
                            const std::function<Point(int)>& point) const {
  const Region& r = e_.region();
  int lanes = kStagedBytes;
  for (const int o : outputs)
    lanes = std::min(lanes, kStagedBytes / int(size_of(r.outputs[std::size_t(o)].dtype)));
  while (lanes > 2 && std::ranges::any_of(outputs, [&](int o) {
           return !is_contiguous(r, r.outputs[std::size_t(o)], point(lanes));
         }))
    lanes /= 2;
  return lanes;
}

// A loop, as one code then serves all columns: what is made of a sum may be long.
void Fragments::sums_first(const GpuTile& tile, const Expr& row, const Expr& column,
                           std::span<const VarId> variables) {
  const Region& r = e_.region();
  std::size_t together = std::min(variables.size(), std::size_t(sums_.columns / 8));
  while (variables.size() % together != 0)
    --together;
  const int columns = 8 * int(together);
  const Expr piece = warp_ * Expr(16 * sums_.pitch);
  const Expr turns(std::int64_t(variables.size() / together));
  std::vector<int> outputs; // those whose neighbours are stored at once
  for (std::size_t o = 0; o < r.outputs.size(); ++o)
    if (stride_of(r, r.outputs[o], f_.columns.axes.back()) == 1)
      outputs.push_back(int(o));
  b_.loop(Expr(0), turns, Expr(1), turns, Bind::Serial, [&](const Expr& turn) {
    b_.subgroup_barrier(); // the last sums have been read
    for (std::size_t first = 0; first < variables.size(); first += together) {
      const Expr number(std::int64_t(first / together));
      b_.when({{turn, number, number + Expr(1)}}, [&] {
        for (int half = 0; half < 2; ++half)
          for (std::size_t j = 0; j < together; ++j) {
            const ValueId sums = b_.read(variables[first + j]);
            const Expr at = piece + (floordiv(lane_, 4) + Expr(8 * half)) * Expr(sums_.pitch) +
                            floormod(lane_, 4) * Expr(2) + Expr(8 * std::int64_t(j));
            b_.store(sums_.buffer, at + lane_variable(2),
                     b_.shuffle(sums, sums, {2 * half, 2 * half + 1}));
          }
      });
    }
    b_.subgroup_barrier();
    const Expr begin = column + turn * Expr(columns);
    const int lanes = lanes_stored(outputs, [&](int n) {
      const auto [down, right] = place_of(lane_, columns, n);
      return point_at(r, f_, tile, row + down, begin + right, n);
    });
    const int pieces = 16 * (columns / lanes);
    const int most = std::max(1, kMostHeld / (lanes * int(r.outputs.size())));
    for (int i = 0; i < pieces;) {
      std::vector<Delivery> results; // of which what is read is under way at once
      for (int n = 0; n < most && i < pieces; ++n, i += 32) {
        const Expr number = lane_ + Expr(i);
        const auto [down, right] = place_of(number, columns, lanes);
        std::vector<Guard> exists;
        if (i + 32 > pieces)
          exists.push_back({number, Expr(0), Expr(pieces)});
        const ValueId sums =
            b_.load(sums_.buffer, piece + down * Expr(sums_.pitch) + right + lane_variable(lanes),
                    lanes, exists);
        results.push_back(results_of(e_, f_, tile, row + down, begin + right, sums, exists));
      }
      for (const Delivery& d : results)
        for (std::size_t o = 0; o < r.outputs.size(); ++o)
          e_.store(int(o), d.point, d.values[o]);
    }
  });
}

} // namespace egret::kernel

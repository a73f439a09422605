#include "kernel/gpu_sums.h"

#include "kernel/contraction_pack.h"
#include "support/checked.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Lanes of a warp along the rows and along the columns of what it multiplies by itself.
constexpr int kLanesDown = 4, kLanesAcross = 8;
/// Sums of a thread that are neighbours along a row.
constexpr int kVector = 4;

/// Every thread has rows in groups of up to four and vectors of four columns, spread over the part
/// of its warp so that a warp reads shared memory without conflicts.
class FmaSums : public RingSums {
public:
  FmaSums(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles,
          const SharedSide& left, const SharedSide& right)
      : RingSums(emitter, form, tiles), left_(left), right_(right),
        rows_(tiles.bm / tiles.warps_m / kLanesDown),
        vectors_(tiles.bn / tiles.warps_n / (kLanesAcross * kVector)),
        together_(rows_ % 4 == 0   ? 4
                  : rows_ % 2 == 0 ? 2
                                   : 1),
        down_(floordiv(lane_, kLanesAcross)), across_(floormod(lane_, kLanesAcross)) {
    make_variables(rows_ * vectors_, kVector);
  }

  void add(const Expr& stage) override {
    const DType type = f_.accumulator;
    const Expr depth(t_.bk / t_.warps_k);
    b_.loop(Expr(0), depth, Expr(1), depth, Bind::Unroll, [&](const Expr& step) {
      const Expr k = set_ * depth + step;
      std::vector<ValueId> left, right;
      for (int i = 0; i < rows_; i += together_) {
        const Expr lane = together_ > 1 ? lane_variable(together_) : Expr(0);
        const ValueId v = b_.load(left_.buffer(), left_.at(stage, row(i), k) + lane, together_);
        for (int j = 0; j < together_; ++j)
          left.push_back(b_.extract(v, j));
      }
      for (int j = 0; j < vectors_; ++j)
        right.push_back(b_.load(right_.buffer(),
                                right_.at(stage, column(j), k) + lane_variable(kVector), kVector));
      for (int i = 0; i < rows_; ++i)
        for (int j = 0; j < vectors_; ++j) {
          const VarId sum = variables_[std::size_t(i * vectors_ + j)];
          const ValueId l = b_.splat(left[std::size_t(i)], kVector), r = right[std::size_t(j)];
          b_.set(sum, is_float(type) ? b_.fma(l, r, b_.read(sum))
                                     : b_.apply(Op::Add, type,
                                                {b_.read(sum), b_.apply(Op::Mul, type, {l, r})}));
        }
    });
  }

  void deliver(const GpuTile& tile) override {
    const int slices = int(f_.columns.slices);
    for (int i = 0; i < rows_; ++i)
      for (int j = 0; j < vectors_; j += slices) {
        std::vector<ValueId> sums;
        for (int s = 0; s < slices; ++s)
          sums.push_back(b_.read(variables_[std::size_t(i * vectors_ + j + s)]));
        store_results(e_, f_, point_at(e_.region(), f_, tile, row(i), column(j), kVector), sums);
      }
  }

private:
  Expr row(int i) const {
    return warp_row_ * Expr(rows_ * kLanesDown) + down_ * Expr(together_) +
           Expr(i / together_ * together_ * kLanesDown + i % together_);
  }
  Expr column(int j) const {
    return warp_column_ * Expr(vectors_ * kLanesAcross * kVector) + across_ * Expr(kVector) +
           Expr(j * kLanesAcross * kVector);
  }

  const SharedSide &left_, &right_;
  int rows_, vectors_;
  int together_; ///< rows that are read at once
  Expr down_, across_;
};

/// Every warp has fragments of 16 rows by 8 columns.
class MmaSums : public RingSums {
public:
  MmaSums(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles,
          const SharedSide& left, const SharedSide& right)
      : RingSums(emitter, form, tiles), left_(left), right_(right),
        fragments_(emitter, form, tiles), down_(tiles.bm / tiles.warps_m / 16),
        across_(tiles.bn / tiles.warps_n / 8) {
    make_variables(down_ * across_, 4);
  }

  void add(const Expr& stage) override {
    const Expr steps(t_.bk / 16);
    b_.loop(Expr(0), steps, Expr(1), steps, Bind::Unroll, [&](const Expr& part) {
      const Expr k = part * Expr(16);
      const Expr in = floormod(lane_, 8), which = floordiv(lane_, 8);
      const Expr low = floormod(which, 2), high = floordiv(which, 2);
      std::vector<ValueId> left, right;
      for (int i = 0; i < down_; ++i) {
        // Matrices of 8 x 8: upper and lower rows of the first eight steps, then of the others.
        const Expr first = warp_row_ * Expr(16 * down_) + Expr(16 * i);
        const Expr row = left_.along_depth() ? first + low * Expr(8) + in : first + low * Expr(8);
        const Expr step = left_.along_depth() ? k + high * Expr(8) : k + high * Expr(8) + in;
        left.push_back(
            b_.load_matrix(left_.buffer(), left_.at(stage, row, step), 4, !left_.along_depth()));
      }
      for (int j = 0; j < across_; j += 2) {
        const Expr first = warp_column_ * Expr(8 * across_) + Expr(8 * j);
        const Expr column =
            right_.along_depth() ? first + high * Expr(8) + in : first + high * Expr(8);
        const Expr step = right_.along_depth() ? k + low * Expr(8) : k + low * Expr(8) + in;
        const ValueId both = b_.load_matrix(right_.buffer(), right_.at(stage, column, step), 4,
                                            !right_.along_depth());
        right.push_back(b_.shuffle(both, both, {0, 1}));
        right.push_back(b_.shuffle(both, both, {2, 3}));
      }
      for (int i = 0; i < down_; ++i)
        for (int j = 0; j < across_; ++j) {
          const VarId sum = variables_[std::size_t(i * across_ + j)];
          b_.set(sum, b_.matrix_multiply(left_.dtype(), left[std::size_t(i)], right[std::size_t(j)],
                                         b_.read(sum)));
        }
    });
  }

  void deliver(const GpuTile& tile) override {
    for (int i = 0; i < down_; ++i)
      fragments_.deliver(
          tile, warp_row_ * Expr(16 * down_) + Expr(16 * i), warp_column_ * Expr(8 * across_),
          std::span(variables_).subspan(std::size_t(i * across_), std::size_t(across_)));
  }

private:
  const SharedSide &left_, &right_;
  Fragments fragments_;
  int down_, across_; ///< fragments of a warp
};

} // namespace

TileOrder::TileOrder(const ContractionForm& form, int bm, int bn, std::int64_t group)
    : f_(form), bm_(bm), bn_(bn), down_(ceildiv(form.rows.extent, bm)),
      across_(ceildiv(form.columns.extent, bn)) {
  // A group that divides the rows evenly keeps the interval of a tile's number known, and with it
  // which tiles need no masks.
  group_ = std::max<std::int64_t>(group, 1);
  const auto down = down_.constant();
  while (group_ > 1 && (!down || *down % group_ != 0))
    --group_;
}

GpuTile TileOrder::at(const Region& region, const Expr& number) const {
  GpuTile tile;
  tile.number = number;
  tile.share = Expr(0);
  tile.batch.at.resize(region.axes.size());
  const Expr one(1);
  const Expr inner = max(down_ * across_, one), per_group = max(across_, one) * Expr(group_);
  put_index(tile.batch, region, f_.batch, floordiv(number, inner));
  const Expr rest = floormod(number, inner), inside = floormod(rest, per_group);
  const Expr row = floordiv(rest, per_group) * Expr(group_) + floormod(inside, group_);
  tile.first_row = row * Expr(bm_);
  tile.first_column = floordiv(inside, group_) * Expr(bn_);
  return tile;
}

GpuSums::GpuSums(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles)
    : e_(emitter), b_(emitter.builder()), f_(form), t_(tiles) {
  thread_ = thread_variable(tiles.threads());
  const Expr warp = floordiv(thread_, 32);
  lane_ = floormod(thread_, 32);
  const int of_set = tiles.sum_threads() / 32;
  const Expr in_set = tiles.warps_k > 1 ? floormod(warp, of_set) : warp;
  set_ = tiles.warps_k > 1 ? floordiv(warp, of_set) : Expr(0);
  warp_row_ = floordiv(in_set, tiles.warps_n);
  warp_column_ = floormod(in_set, tiles.warps_n);
}

void GpuSums::make_variables(int count, int lanes) {
  lanes_ = lanes;
  for (int i = 0; i < count; ++i)
    variables_.push_back(b_.variable({f_.accumulator, lanes}));
}

void GpuSums::clear() {
  const ValueId zero = b_.constant(Scalar::of(f_.accumulator, 0.0), lanes_);
  for (const VarId v : variables_)
    b_.set(v, zero);
}

Expr GpuSums::slot(const Expr& offset, int variable) const {
  const Expr thread =
      t_.warps_k > 1 ? floormod(thread_, t_.sum_threads()) : thread_ - Expr(128 * t_.producers);
  return offset + (Expr(std::int64_t(variable) * t_.sum_threads()) + thread) * Expr(lanes_) +
         lane_variable(lanes_);
}

std::vector<Guard> GpuSums::has_sums() const {
  return t_.warps_k > 1 ? std::vector<Guard>{{set_, Expr(0), Expr(1)}} : std::vector<Guard>{};
}

void GpuSums::join() {
  const std::int64_t elements = std::int64_t(t_.bm) * t_.bn;
  if (t_.warps_k > 1 && joined_ < 0)
    joined_ = b_.shared("joined", f_.accumulator, t_.warps_k / 2 * elements, 16);
  for (int half = t_.warps_k / 2; half > 0; half /= 2) {
    b_.when({{set_, Expr(half), Expr(2 * half)}},
            [&] { save(joined_, (set_ - Expr(half)) * Expr(elements)); });
    b_.barrier();
    b_.when({{set_, Expr(0), Expr(half)}}, [&] { restore(joined_, set_ * Expr(elements)); });
    b_.barrier();
  }
}

void GpuSums::save(int buffer, const Expr& offset) {
  for (std::size_t i = 0; i < variables_.size(); ++i)
    b_.store(buffer, slot(offset, int(i)), b_.read(variables_[i]));
}

void GpuSums::restore(int buffer, const Expr& offset) {
  for (std::size_t i = 0; i < variables_.size(); ++i)
    b_.set(variables_[i],
           b_.apply(Op::Add, f_.accumulator,
                    {b_.read(variables_[i]), b_.load(buffer, slot(offset, int(i)), lanes_)}));
}

void GpuSums::restore(const SavedShares& shares) {
  // A share is back from the second cache after some 0.3 us, however little it is: registers hold
  // what comes meanwhile.
  constexpr std::size_t kMostHeld = 64;
  const std::size_t of_share = variables_.size() * std::size_t(lanes_);
  const std::int64_t together = std::int64_t(std::clamp<std::size_t>(kMostHeld / of_share, 1, 8)),
                     step = shares.step *
                            std::min(together, ceil_quotient(shares.most.upper(), shares.step));
  const bool even = shares.begin.lower() >= 0 && shares.begin.upper() < shares.step &&
                    shares.end.divisor() % step == 0;
  b_.loop(shares.begin, shares.end, Expr(step), shares.most + Expr(step), Bind::Serial,
          [&](const Expr& first) {
            std::vector<ValueId> values;
            for (std::int64_t s = 0; s < step; s += shares.step) {
              const Expr share = first + Expr(s);
              std::vector<Guard> exists;
              if (s > 0 && !even)
                exists.push_back({share, Expr(0), shares.end});
              for (std::size_t i = 0; i < variables_.size(); ++i)
                values.push_back(
                    b_.load(shares.buffer, slot(shares.offset_of(share), int(i)), lanes_, exists));
            }
            for (std::size_t i = 0; i < values.size(); ++i) {
              const VarId sum = variables_[i % variables_.size()];
              b_.set(sum, b_.apply(Op::Add, f_.accumulator, {b_.read(sum), values[i]}));
            }
          });
}

Point point_at(const Region& region, const ContractionForm& form, const GpuTile& tile,
               const Expr& row, const Expr& column, int lanes) {
  Point p = tile.batch;
  p.lanes = lanes;
  put_index(p, region, form.rows, tile.first_row + row);
  put_lanes(p, region, form.columns, tile.first_column + column, lanes);
  p.mask = lanes_inside(form.columns, tile.first_column + column, lanes);
  const Guard inside{tile.first_row + row, Expr(0), form.rows.extent};
  if (!proves_less(inside.value, inside.hi))
    p.mask.push_back(inside);
  return p;
}

Delivery results_of(Emitter& emitter, const ContractionForm& form, const GpuTile& tile,
                    const Expr& row, const Expr& column, ValueId sums,
                    const std::vector<Guard>& where) {
  const Region& r = emitter.region();
  Delivery d;
  d.point = point_at(r, form, tile, row, column, emitter.builder().type_of(sums).lanes);
  d.point.mask.insert(d.point.mask.end(), where.begin(), where.end());
  emitter.provide(
      form.stage, d.point,
      {emitter.convert({sums, form.accumulator}, r.stages[form.stage].yield_dtypes[0])});
  // All values before the first store: an output may take over the memory of an operand.
  for (const Output& out : r.outputs)
    d.values.push_back(emitter.result(out.stage, out.component, d.point));
  return d;
}

std::unique_ptr<RingSums> make_sums(Emitter& emitter, const ContractionForm& form,
                                    const GpuTiles& tiles, const SharedSide& left,
                                    const SharedSide& right) {
  if (tiles.unit == GpuUnit::Mma)
    return std::make_unique<MmaSums>(emitter, form, tiles, left, right);
  return std::make_unique<FmaSums>(emitter, form, tiles, left, right);
}

} // namespace egret::kernel

#include "kernel/gpu_group_sums.h"

#include <span>

namespace egret::kernel {

namespace {

/// Parts of the left and of the right side whose products are added, the smallest first.
struct Term {
  int left, right;
};
constexpr Term kTerms[] = {{2, 0}, {1, 1}, {0, 2}, {1, 0}, {0, 1}, {0, 0}};

} // namespace

GroupSums::GroupSums(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles,
                     TileSums* sink)
    : GpuSums(emitter, form, tiles), sink_(sink), pieces_(tiles.bm / tiles.warps_m / kProductRows),
      across_(tiles.bn / 8),
      row_(floormod(floordiv(thread_, 128) - Expr(tiles.producers), tiles.warps_m) *
           Expr(pieces_ * kProductRows)) {
  make_variables(pieces_ * across_, 4);
  if (sink_ == nullptr)
    fragments_.emplace(emitter, form, tiles);
  if (tiles.split_parts > 0)
    for (int i = 0; i < pieces_ * across_; ++i)
      fresh_.push_back(b_.variable({DType::F32, 4}));
}

void GroupSums::queue(const SwizzledSide& left, const SwizzledSide& right, const Expr& stage,
                      int left_part, int right_part, DType element, const std::vector<VarId>& sums,
                      const std::vector<Guard>& added) {
  for (int k = 0; k < t_.bk; k += kProductSteps)
    for (int i = 0; i < pieces_; ++i) {
      ProgramBuilder::QueuedProduct p;
      p.sums.assign(sums.begin() + i * across_, sums.begin() + (i + 1) * across_);
      p.element = element;
      p.left = {{left.buffer(), left.at(stage, row_ + Expr(i * kProductRows), Expr(k), left_part)},
                left.transposed(),
                left.group()};
      p.right = {{right.buffer(), right.at(stage, Expr(0), Expr(k), right_part)},
                 right.transposed(),
                 right.group()};
      if (k == 0)
        p.added = added;
      b_.matrix_multiply_async(p);
    }
}

void GroupSums::add(const SwizzledSide& left, const SwizzledSide& right, const Expr& stage,
                    const Expr& part, DType element) {
  queue(left, right, stage, 0, 0, element, variables_, {{part, Expr(1), Expr(INT64_MAX)}});
}

void GroupSums::queue_split(const SwizzledSide& left, const SwizzledSide& right,
                            const Expr& stage) {
  const std::vector<Guard> never{{Expr(0), Expr(1), Expr(2)}};
  b_.matrix_fence(fresh_);
  for (const Term& t : kTerms)
    queue(left, right, stage, t.left, t.right, DType::BF16, fresh_,
          &t == kTerms ? never : std::vector<Guard>{});
  b_.matrix_commit();
}

void GroupSums::wait_split() {
  b_.matrix_wait(0, fresh_);
}

void GroupSums::take_split() {
  for (std::size_t i = 0; i < fresh_.size(); ++i)
    b_.set(variables_[i],
           b_.apply(Op::Add, DType::F32, {b_.read(variables_[i]), b_.read(fresh_[i])}));
}

void GroupSums::mend_split(SwizzledSide& left, SwizzledSide& right, const GpuTile& tile,
                           const Expr& depth, const Expr& steps) {
  // Zeros times numbers are zeros; times anything else they are not.
  const ValueId zeros = b_.constant(Scalar::of(DType::F32, 0.0), 4),
                zero = b_.constant(Scalar::of(DType::F32, 0.0));
  ValueId all = zeros;
  for (const VarId v : variables_)
    all = b_.fma(b_.read(v), zeros, all);
  const ValueId one = b_.reduce_lanes(Monoid::Sum, all);
  const ValueId finite = b_.cast(b_.apply(Op::Eq, DType::Bool, {one, zero}), DType::I32);
  b_.when({{value_symbol(finite), Expr(0), Expr(1)}}, [&] {
    clear();
    const Expr quarter = floordiv(lane_, 4), pair = floormod(lane_, 4) * Expr(2);
    b_.loop(depth, depth + steps, Expr(1), f_.depth.extent, Bind::Serial, [&](const Expr& k) {
      for (int i = 0; i < pieces_; ++i) {
        const Expr row = tile.first_row + first_row(i) + quarter;
        const ValueId upper = left.value_at(tile, row, k),
                      lower = left.value_at(tile, row + Expr(8), k);
        const ValueId rows = b_.shuffle(upper, lower, {0, 0, 1, 1});
        for (int j = 0; j < across_; ++j) {
          const Expr column = tile.first_column + Expr(8 * j) + pair;
          const ValueId first = right.value_at(tile, column, k),
                        second = right.value_at(tile, column + Expr(1), k);
          const VarId sum = variables_[std::size_t(i * across_ + j)];
          b_.set(sum, b_.fma(rows, b_.shuffle(first, second, {0, 1, 0, 1}), b_.read(sum)));
        }
      }
    });
  });
}

Expr GroupSums::first_row(int piece) const {
  return row_ + Expr(piece * kProductRows) + floormod(floordiv(thread_, 32), 4) * Expr(16);
}

void GroupSums::deliver(const GpuTile& tile) {
  for (int i = 0; i < pieces_; ++i) {
    const auto part = std::span(variables_).subspan(std::size_t(i * across_), std::size_t(across_));
    if (sink_ != nullptr)
      sink_->take(tile, first_row(i), part);
    else
      fragments_->deliver(tile, first_row(i), Expr(0), part);
  }
}

} // namespace egret::kernel

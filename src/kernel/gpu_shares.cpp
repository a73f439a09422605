#include "kernel/gpu_shares.h"

#include "kernel/analysis.h"

namespace egret::kernel {

namespace {

/// Rows of what a warp leaves at a time, and sums of a fragment's lane.
constexpr int kShareRows = 16, kSums = 4;

class Shares : public TileSums {
public:
  Shares(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles)
      : e_(emitter), b_(emitter.builder()), f_(form), t_(tiles),
        order_(form, tiles.bm, tiles.bn, tiles.group), fragments_(emitter, form, tiles),
        down_(tiles.bm / kShareRows), across_(tiles.bn / 8),
        thread_(thread_variable(tiles.threads())) {
    while (across_ % together_ != 0)
      --together_;
    buffer_ = b_.workspace("shares", f_.accumulator,
                           order_.count() * Expr(t_.split * std::int64_t(t_.bm) * t_.bn));
  }

  void take(const GpuTile& tile, const Expr& row, std::span<const VarId> variables) override {
    for (std::size_t j = 0; j < variables.size(); ++j)
      b_.store(buffer_, at(tile.number, tile.share, floordiv(row, kShareRows), Expr(int(j))),
               b_.read(variables[j]));
  }

  void finish() override {
    const int warps = t_.threads() / 32, chunks = across_ / together_, of_tile = down_ * chunks;
    const Expr all = order_.count() * Expr(of_tile);
    std::vector<VarId> sums;
    for (int j = 0; j < together_; ++j)
      sums.push_back(b_.variable({f_.accumulator, kSums}));
    b_.grid_loop(ceildiv(all, Expr(warps)), [&](const Expr& item) {
      const Expr number = item * Expr(warps) + floordiv(thread_, 32);
      b_.when({{number, Expr(0), all}}, [&] {
        const Expr inside = floormod(number, of_tile);
        const Expr row = floordiv(inside, chunks), chunk = floormod(inside, chunks);
        const GpuTile tile = order_.at(e_.region(), floordiv(number, of_tile));
        const Expr first = chunk * Expr(together_);
        for (int j = 0; j < together_; ++j)
          b_.set(sums[std::size_t(j)], share(tile, Expr(0), row, first + Expr(j)));
        b_.loop(Expr(1), Expr(t_.split), Expr(1), Expr(t_.split), Bind::Serial, [&](const Expr& s) {
          for (int j = 0; j < together_; ++j) {
            const VarId sum = sums[std::size_t(j)];
            b_.set(sum, b_.apply(Op::Add, f_.accumulator,
                                 {b_.read(sum), share(tile, s, row, first + Expr(j))}));
          }
        });
        fragments_.deliver(tile, row * Expr(kShareRows), first * Expr(8), sums);
      });
    });
  }

private:
  ValueId share(const GpuTile& tile, const Expr& share, const Expr& row, const Expr& fragment) {
    return b_.load(buffer_, at(tile.number, share, row, fragment), kSums);
  }

  /// Of a lane's sums of a fragment; rows count by 16.
  Expr at(const Expr& tile, const Expr& share, const Expr& row, const Expr& fragment) const {
    const Expr flat =
        ((tile * Expr(t_.split) + share) * Expr(down_) + row) * Expr(across_) + fragment;
    return flat * Expr(32 * kSums) + floormod(thread_, 32) * Expr(kSums) + lane_variable(kSums);
  }

  Emitter& e_;
  ProgramBuilder& b_;
  const ContractionForm& f_;
  const GpuTiles& t_;
  TileOrder order_;
  Fragments fragments_;
  int down_, across_;
  int together_ = 4; ///< fragments of a warp at a time
  Expr thread_;
  int buffer_ = -1;
};

} // namespace

std::unique_ptr<TileSums> shares_of_tiles(Emitter& emitter, const ContractionForm& form,
                                          const GpuTiles& tiles) {
  return std::make_unique<Shares>(emitter, form, tiles);
}

} // namespace egret::kernel

#include "kernel/gpu_wgmma.h"

#include "kernel/analysis.h"
#include "kernel/gpu_group_sums.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_shares.h"
#include "kernel/gpu_sums.h"
#include "kernel/gpu_wgmma_side.h"
#include "support/fail.h"

#include <algorithm>
#include <optional>
#include <span>

namespace egret::kernel {

namespace {

/// Of a multiprocessor.
constexpr int kMultiprocessorRegisters = 65536;
/// Of a thread that computes and splits values, and those that hold what was loaded.
constexpr int kSplittingRegisters = 96, kLoadedRegisters = 40;

/// Steps along the depth of all tiles in one row, cut into items of work: equal shares of every
/// tile's depth, those that are at the same piece of it one after the other, as they read much in
/// common; or whole tiles, and behind them shares of the tiles that are left, which may begin and
/// end within a tile. How they are cut follows from the schedule and the shape.
class WorkItems {
public:
  WorkItems(const Expr& tiles, const Expr& parts, const GpuTiles& t) : parts_(parts), all_(tiles) {
    whole_ = count_ = tiles;
    if (t.split > 1) {
      split_ = t.split;
      each_ = ceildiv(parts, split_);
      count_ = tiles * Expr(split_);
    }
    if (t.shares == 0)
      return;
    shares_ = Expr(t.shares);
    whole_ = floordiv(tiles, t.shares) * Expr(t.shares);
    left_ = tiles - whole_;
    each_ = ceildiv(left_ * parts, shares_);
    // Not all of them need be of use.
    shares_ = ceildiv(left_ * parts, each_);
    count_ = whole_ + shares_;
  }

  bool cuts() const { return !(left_ == Expr(0)); }
  Expr count() const { return count_; }
  /// Tiles that are cut, the last ones.
  Expr cut_tiles() const { return left_; }
  /// Sums that wait: a share has parts of two tiles at the most.
  Expr slots() const { return shares_ * Expr(2); }

  /// A tile's part in an item.
  struct Part {
    Expr tile;
    Expr begin, end; ///< steps along its depth
    Expr share;      ///< its number: of the tile's, or of those behind the whole tiles
  };
  /// The tiles of an item, one after the other.
  void each_part(ProgramBuilder& b, const Expr& item,
                 const std::function<void(const Part&)>& body) const {
    if (split_ > 1) {
      const Expr share = floordiv(item, all_), begin = share * each_;
      return body({floormod(item, all_), begin, min(begin + each_, parts_), share});
    }
    if (!cuts())
      return body({item, Expr(0), parts_, Expr(0)});
    const Expr first = start(item), last = min(start(item + Expr(1)), all_ * parts_);
    b.loop(floordiv(first, parts_), ceildiv(last, parts_), Expr(1), all_, Bind::Serial,
           [&](const Expr& tile) {
             const Expr from = tile * parts_;
             body({tile, max(first - from, Expr(0)), min(last - from, parts_),
                   max(item - whole_, Expr(0))});
           });
  }

  /// Of a tile that is cut: its number among those, the shares that have parts of it, and where the
  /// sums of one of them wait.
  Expr cut_number(const Expr& tile) const { return tile - whole_; }
  Expr first_share(const Expr& number) const { return floordiv(number * parts_, each_); }
  Expr last_share(const Expr& number) const {
    return floordiv((number + Expr(1)) * parts_ - Expr(1), each_);
  }
  Expr slot(const Expr& number, const Expr& share) const {
    return share * Expr(2) + number - floordiv(share * each_, parts_);
  }
  Expr shares() const { return shares_; }
  Expr parts() const { return parts_; }

private:
  Expr start(const Expr& item) const {
    return min(item, whole_) * parts_ + max(item - whole_, Expr(0)) * each_;
  }

  Expr parts_, all_;
  std::int64_t split_ = 1;
  Expr whole_, left_ = Expr(0), each_ = Expr(1), shares_ = Expr(0), count_;
};

class WgmmaContraction {
public:
  WgmmaContraction(const Region& region, const ContractionForm& form, const GpuTiles& tiles,
                   const Schedule& schedule, const SwizzledView& left, const SwizzledView& right,
                   const MakeTileSums& make)
      : r_(region), f_(form), t_(tiles), s_(schedule), b_(region.name), e_(b_, region),
        left_(e_, f_, f_.rows, left, "left", t_.bm, t_),
        right_(e_, f_, f_.columns, right, "right", t_.bn, t_), copies_(left.copied || right.copied),
        splits_(left.split > 0), sink_(make ? make(e_) : nullptr), sums_(e_, f_, t_, sink_.get()),
        thread_(thread_variable(t_.threads())), stage_(b_.variable({DType::I32, 1})),
        parity_(b_.variable({DType::I32, 1})) {
    full_ = b_.shared("full", DType::U64, t_.stages);
    empty_ = b_.shared("empty", DType::U64, t_.stages);
    if (t_.turns > 1)
      order_ = b_.shared("order", DType::U64, t_.turns);
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = t_.threads();
    launch.resident = true;
    launch.blocks_per_core = s_.blocks_per_core > 0 ? s_.blocks_per_core : 1;
    launch.least_shared = s_.least_shared;
    const TileOrder order(f_, t_.bm, t_.bn, t_.group);
    parts_ = ceildiv(f_.depth.extent, t_.bk);
    const WorkItems items(order.count(), parts_, t_);
    launch.workers = max(ceildiv(items.count(), Expr(t_.turns)), Expr(1));
    if (items.cuts()) {
      partial_ = b_.workspace("partial", f_.accumulator,
                              items.slots() * Expr(std::int64_t(t_.bm) * t_.bn));
      counter_ = b_.counter("arrived", items.cut_tiles().value());
    }
    b_.when({{thread_, Expr(0), Expr(1)}}, [&] {
      for (int i = 0; i < t_.stages; ++i) {
        b_.mbarrier_init(full_, Expr(i),
                         (bulk_bytes() > 0 ? 1 : 0) + (copies_ || splits_ ? t_.copy_threads() : 0));
        b_.mbarrier_init(empty_, Expr(i), t_.warps_m);
      }
      for (int i = 0; i < t_.turns && order_ >= 0; ++i)
        b_.mbarrier_init(order_, Expr(i), t_.warps_m);
    });
    b_.barrier();
    const Expr group = floordiv(thread_, 128), producers(t_.producers);
    b_.either(
        {{group, Expr(0), producers}}, [&] { produce(order, items); },
        [&] { consume(order, items); });
    if (sink_) {
      if (moves_registers()) { // all threads have about as much to do from here on
        // Warps that copy nothing would else take the registers that consumers still wait for.
        b_.barrier();
        const int even = kMultiprocessorRegisters / t_.threads() / 8 * 8;
        b_.either(
            {{group, Expr(0), producers}}, [&] { b_.reallocate_registers(even, true); },
            [&] { b_.reallocate_registers(even, false); });
      }
      b_.grid_barrier(b_.counter("met", 2), Expr(0));
      sink_->finish();
    }
    return b_.finish(launch);
  }

private:
  ValueId i32(std::int64_t value) { return b_.constant(Scalar::of(DType::I32, double(value))); }
  /// The next piece of the ring; after the last one begins its next phase.
  void advance() { advance_ring(b_, stage_, parity_, t_.stages); }

  /// Accumulators of many columns need more registers than an even share.
  bool moves_registers() const {
    return t_.consumer_threads() >= 256 &&
           t_.bm / t_.warps_m / kProductRows * t_.bn * (splits_ ? 2 : 1) >= (sink_ ? 256 : 192) &&
           copying_registers() < launched_registers();
  }

  /// Of both sides' bulk copies, a piece of the ring.
  int bulk_bytes() const { return left_.bulk_bytes() + right_.bulk_bytes(); }
  /// Registers of a thread that copies, and of one that multiplies: all together as many as the
  /// block is launched with.
  int copying_registers() const {
    if (splits_)
      return kSplittingRegisters;
    const int parts = left_.registers() + right_.registers();
    return parts > 0 ? (48 + parts + 7) / 8 * 8 : 40;
  }
  int launched_registers() const {
    return launch_registers(std::max(int(s_.blocks_per_core), 1), t_.threads());
  }
  int multiplying_registers() const {
    const int all = launched_registers() * t_.threads();
    return (all - copying_registers() * t_.copy_threads()) / t_.consumer_threads() / 8 * 8;
  }

  /// One thread asks for boxes, all of them copy pieces.
  void produce(const TileOrder& order, const WorkItems& items) {
    if (moves_registers())
      b_.reallocate_registers(copying_registers(), false);
    const std::vector<Guard> one{{thread_, Expr(0), Expr(1)}}, all;
    b_.when(copies_ || splits_ ? all : one, [&] {
      b_.set(parity_, i32(1)); // the ring is empty at the start
      each_part(items, [&](const WorkItems::Part& work) {
        const GpuTile tile = order.at(r_, work.tile);
        b_.loop(work.begin, work.end, Expr(1), parts_, Bind::Serial, [&](const Expr& part) {
          const Expr stage = value_symbol(b_.read(stage_)), depth = part * Expr(t_.bk);
          if (splits_) {
            produce_split(tile, depth, stage);
            return;
          }
          b_.mbarrier_wait(empty_, stage, b_.read(parity_));
          if (bulk_bytes() > 0)
            b_.when(copies_ ? one : all, [&] {
              b_.mbarrier_arrive(full_, stage, bulk_bytes());
              if (!left_.copied())
                left_.copy_box(tile, tile.first_row, depth, stage, full_);
              if (!right_.copied())
                right_.copy_box(tile, tile.first_column, depth, stage, full_);
            });
          if (left_.copied())
            left_.copy_pieces(tile, tile.first_row, depth, stage);
          if (right_.copied())
            right_.copy_pieces(tile, tile.first_column, depth, stage);
          if (copies_)
            b_.mbarrier_arrive_copies(full_, stage);
          advance();
        });
      });
      if (copies_) { // a thread does not end before its copies
        b_.commit_copies();
        b_.wait_copies(0);
      }
    });
  }

  /// One piece of the ring. As much is on its way as there are registers for, the first of it while
  /// others still read the piece.
  void produce_split(const GpuTile& tile, const Expr& depth, const Expr& stage) {
    SplitTile left(left_, tile, tile.first_row, depth),
        right(right_, tile, tile.first_column, depth);
    const int count = left.count() + right.count();
    const auto load = [&](int i) {
      if (i < count)
        i < left.count() ? left.load(i) : right.load(i - left.count());
    };
    const int ahead = std::max(kLoadedRegisters / std::max(left.registers(), right.registers()), 1);
    for (int i = 0; i < ahead; ++i)
      load(i);
    b_.mbarrier_wait(empty_, stage, b_.read(parity_));
    for (int i = 0; i < count; ++i) {
      i < left.count() ? left.put(i, stage) : right.put(i - left.count(), stage);
      load(i + ahead);
    }
    b_.copy_fence();
    b_.mbarrier_arrive(full_, stage);
    advance();
  }

  void each_part(const WorkItems& items, const std::function<void(const WorkItems::Part&)>& body) {
    if (t_.turns == 1)
      return b_.grid_loop(items.count(),
                          [&](const Expr& item) { items.each_part(b_, item, body); });
    const Expr turns(t_.turns); // those of all turns lie side by side
    b_.grid_loop(ceildiv(items.count(), turns), [&](const Expr& turn) {
      const Expr first = turn * turns;
      b_.loop(first, min(first + turns, items.count()), Expr(1), items.count(), Bind::Serial,
              [&](const Expr& item) { items.each_part(b_, item, body); });
    });
  }

  void consume(const TileOrder& order, const WorkItems& items) {
    if (moves_registers())
      b_.reallocate_registers(multiplying_registers(), true);
    const DType element = factor_of(r_, f_, f_.left).dtype;
    const VarId previous = b_.variable({DType::I32, 1});
    const Expr in_group = floormod(thread_, 128), turns(t_.turns),
               set = floordiv(thread_ - Expr(t_.copy_threads()), 128 * t_.warps_m);
    const auto release = [&] {
      const Expr stage = value_symbol(b_.read(previous));
      b_.when({{in_group, Expr(0), Expr(1)}}, [&] { b_.mbarrier_arrive(empty_, stage); });
    };
    const auto multiply = [&](const WorkItems::Part& work) {
      GpuTile tile = order.at(r_, work.tile);
      tile.share = work.share;
      if (splits_) {
        multiply_split(work, tile);
        finish(items, work, tile);
        return;
      }
      b_.loop(work.begin, work.end, Expr(1), parts_, Bind::Serial, [&](const Expr& part) {
        const Expr done = part - work.begin;
        const ValueId at = b_.read(stage_);
        b_.mbarrier_wait(full_, value_symbol(at), b_.read(parity_));
        if (copies_)
          b_.copy_fence();
        b_.matrix_fence();
        sums_.add(left_, right_, value_symbol(at), done, element);
        b_.matrix_commit();
        // The products before these are done: their piece is free.
        b_.when({{done, Expr(1), parts_}}, [&] {
          b_.matrix_wait(1);
          release();
        });
        b_.set(previous, at);
        advance();
      });
      if (t_.turns > 1)
        b_.when({{in_group, Expr(0), Expr(1)}},
                [&] { b_.mbarrier_arrive(order_, floormod(set + Expr(1), t_.turns)); });
      b_.matrix_wait(0);
      release();
      finish(items, work, tile);
    };
    if (t_.turns == 1)
      return each_part(items, multiply);
    // A set's products begin behind the last ones of the set before: by then the pieces of one
    // round of the ring before its own are full, so that parities tell its rounds apart.
    const VarId phase = b_.variable({DType::I32, 1});
    b_.set(phase, b_.index(floordiv(turns - Expr(1) - set, turns - Expr(1)), DType::I32, 1));
    pass(set);
    b_.grid_loop(ceildiv(items.count(), turns), [&](const Expr& turn) {
      const Expr item = turn * turns + set;
      b_.when({{item, Expr(0), items.count()}}, [&] {
        const ValueId now = b_.read(phase);
        b_.mbarrier_wait(order_, set, now);
        b_.set(phase, b_.apply(Op::Xor, DType::I32, {now, i32(1)}));
        items.each_part(b_, item, multiply);
        pass(turns - Expr(1));
      });
    });
  }

  void multiply_split(const WorkItems::Part& work, const GpuTile& tile) {
    sums_.clear();
    b_.loop(work.begin, work.end, Expr(1), parts_, Bind::Serial, [&](const Expr&) {
      const Expr stage = value_symbol(b_.read(stage_));
      b_.mbarrier_wait(full_, stage, b_.read(parity_));
      sums_.queue_split(left_, right_, stage);
      sums_.wait_split();
      b_.when({{floormod(thread_, 128), Expr(0), Expr(1)}},
              [&] { b_.mbarrier_arrive(empty_, stage); });
      sums_.take_split();
      advance();
    });
    const Expr first = work.begin * Expr(t_.bk), end = work.end * Expr(t_.bk);
    sums_.mend_split(left_, right_, tile, first, min(end, f_.depth.extent) - first);
  }

  /// Stores a tile's sums, or adds those of its parts up.
  void finish(const WorkItems& items, const WorkItems::Part& work, const GpuTile& tile) {
    if (!items.cuts()) {
      sums_.deliver(tile);
      return;
    }
    const Expr steps = work.end - work.begin;
    b_.when({{steps, parts_, parts_ + Expr(1)}}, [&] { sums_.deliver(tile); });
    b_.when({{steps, Expr(1), parts_}}, [&] { combine(items, work, tile); });
  }

  /// Goes on in the ring behind so many tiles that others multiply.
  void pass(const Expr& tiles) {
    const Expr at = value_symbol(b_.read(stage_)) + tiles * parts_;
    const Expr round = floormod(value_symbol(b_.read(parity_)) + floordiv(at, t_.stages), 2);
    const ValueId parity = b_.index(round, DType::I32, 1);
    b_.set(stage_, b_.index(floormod(at, t_.stages), DType::I32, 1));
    b_.set(parity_, parity);
  }

  /// Parts of one tile meet in memory: the block that comes last adds them up in order.
  void combine(const WorkItems& items, const WorkItems::Part& work, const GpuTile& tile) {
    const Expr elements(std::int64_t(t_.bm) * t_.bn), number = items.cut_number(work.tile);
    sums_.save(partial_, items.slot(number, work.share) * elements);
    const Expr first = items.first_share(number), end = items.last_share(number) + Expr(1);
    b_.last_arriver_of_group(1, t_.consumer_threads(), counter_, number, end - first, [&] {
      sums_.clear();
      sums_.restore({partial_, first, end, items.shares(), 1,
                     [&](const Expr& share) { return items.slot(number, share) * elements; }});
      sums_.deliver(tile);
    });
  }

  const Region& r_;
  const ContractionForm& f_;
  const GpuTiles& t_;
  const Schedule& s_;
  ProgramBuilder b_;
  Emitter e_;
  SwizzledSide left_, right_;
  bool copies_; ///< some side comes in pieces
  bool splits_; ///< both sides are values that the producers split
  std::unique_ptr<TileSums> sink_;
  GroupSums sums_;
  Expr thread_, parts_;
  VarId stage_, parity_; ///< of the ring: its next piece, and the parity of the phase to wait for
  int full_ = -1, empty_ = -1;
  int order_ = -1;                  ///< of sets that take turns: may set i begin to multiply?
  int partial_ = -1, counter_ = -1; ///< of tiles that are cut along the depth
};

} // namespace

std::string tensor_map_reason(const Region& region, const ContractionForm& form, const Side& side,
                              const AxisGroup& group, int panel) {
  return tensor_view(region, form, side, group, panel, kSwizzledRow, false).reason;
}

Lowered lower_wgmma(const Region& region, const ContractionForm& found, const GpuTiles& tiles,
                    const Schedule& schedule, const MakeTileSums& sums) {
  const bool splits = tiles.split_parts > 0;
  if (splits && (sums || tiles.turns > 1))
    return {false, {}, "products of split values are whole tiles that are stored"};
  const ContractionForm form = sums || splits ? found : ordered_for_pieces(region, found);
  const auto view = [&](const Side& side, const AxisGroup& group, int panel) {
    return splits ? split_view(region, form, side, panel)
                  : swizzled_view(region, form, side, group, panel);
  };
  const SwizzledView left = view(form.left, form.rows, tiles.bm),
                     right = view(form.right, form.columns, tiles.bn);
  for (const SwizzledView* v : {&left, &right})
    if (!v->reason.empty())
      return {false, {}, v->reason};
  if (sums && !(left.own_box && right.own_box))
    return {false, {}, "a factor of products that are not stored is no box of its own axes"};
  if (copy_registers(left, tiles.bm, tiles.copy_threads()) +
          copy_registers(right, tiles.bn, tiles.copy_threads()) >
      kMostCopyRegisters)
    return {false, {}, "more pieces than the threads that copy have registers for"};
  if (is_empty(region, result_axes(region.stages[form.stage])) || form.depth.extent.lower() < 1)
    return {false, {}, "a depth that may be empty"};
  if (tiles.turns > 1 && (sums || tiles.split > 1 || tiles.shares > 0))
    return {false, {}, "tiles in turn are whole ones that are stored"};
  if (tiles.split > 1 || tiles.shares > 0) {
    const TileOrder order(form, tiles.bm, tiles.bn, tiles.group);
    const auto count = order.count().constant(), depth = form.depth.extent.constant();
    if (sums)
      return {false, {}, "the depth of products that are not stored is not split"};
    if (!count || !depth)
      return {false, {}, "a split depth needs a known number of tiles and a known depth"};
    if (tiles.shares > 0 && *count % tiles.shares == 0)
      return {false, {}, "the last wave of tiles is full"};
    const std::int64_t parts = (*depth + tiles.bk - 1) / tiles.bk;
    if ((parts + tiles.split - 1) / tiles.split * (tiles.split - 1) >= parts)
      return {false, {}, "the depth has not as many pieces as it is to be shared out"};
  }
  const auto shares = [&](Emitter& emitter) { return shares_of_tiles(emitter, form, tiles); };
  return {true,
          WgmmaContraction(region, form, tiles, schedule, left, right,
                           tiles.split > 1 ? MakeTileSums(shares) : sums)
              .run(),
          ""};
}

} // namespace egret::kernel

// The generator of contractions: products of matrices in any layout, batched, with work on the
// operands before and on the result after. Both sides are copied into panels (or read where they
// are, when that costs nothing), a register tile of rows by vectors of columns goes along the
// depth, and the maps that follow are applied to the tile before it is stored. Register tiles may
// be those of a matrix unit: then the sums go through memory to the maps.
#include "kernel/contraction_layouts.h"
#include "kernel/contraction_pack.h"
#include "kernel/contraction_tiles.h"
#include "kernel/contraction_window.h"

#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/nest.h"
#include "support/fail.h"

#include <algorithm>
#include <optional>

namespace egret::kernel {

namespace {

/// Maps of more work than this (in additions an element) are written as a loop over the tile
/// instead of once for each register.
constexpr double kHeavyEpilogue = 8;

class Contraction {
public:
  /// `window`: of the form, where the tiles read one.
  Contraction(const Region& region, const ContractionForm& form, const Tiles& tiles,
              const WindowedContraction* window, const Target& target)
      : r_(region), f_(form), t_(tiles), b_(region.name), e_(b_, region),
        window_(window != nullptr
                    ? std::optional<WindowReader>(std::in_place, e_, *window, t_.lanes)
                    : std::nullopt),
        fma_(target.has_fma), left_(e_, f_, f_.left, f_.rows, t_.mr, t_, t_.matrix),
        right_(e_, f_, f_.right, f_.columns, t_.nr(), t_, false, window_ ? &*window_ : nullptr,
               window_ ? lanes_of_packing(region, form, tiles.lanes) : 0) {
    e_.quick_bf16 =
        t_.width > 1 && is_float(f_.accumulator); // products of subnormal numbers are 0 already
  }

  KernelProgram run() {
    const std::vector<int> result = result_axes(r_.stages[f_.stage]);
    if (is_empty(r_, result))
      return b_.finish(Expr(1));
    steps_ = steps_of(f_, t_);
    blocks_ = steps_.constant() == 0 ? Expr(1) : max(ceildiv(steps_, t_.kc), Expr(1));
    row_panels_ = ceildiv(f_.rows.extent, t_.mr);
    column_panels_ = ceildiv(f_.columns.extent, t_.nr());
    panels_down_ = t_.mc / t_.mr;
    panels_across_ = t_.nc / t_.nr();
    if (auto n = row_panels_.constant())
      panels_down_ = std::min(panels_down_, *n);
    if (auto n = column_panels_.constant())
      panels_across_ = std::min(panels_across_, *n);
    down_ = ceildiv(row_panels_, panels_down_);
    across_ = ceildiv(column_panels_, panels_across_);
    each_ = t_.split > 1 ? ceildiv(blocks_, t_.split) : blocks_;
    declare_memory();
    if (window_)
      window_->fill_table();
    if (t_.shared)
      together();
    else
      apart();
    const Expr work = f_.batch.extent * f_.rows.extent * f_.columns.extent *
                      (2 * f_.depth.extent + Expr(std::int64_t(f_.epilogue_flops) + 2));
    const Expr tasks = (t_.shared ? Expr(1) : f_.batch.extent) * down_ * across_ * Expr(t_.split);
    return b_.finish(useful_workers(tasks, floordiv(work, 8)));
  }

private:
  /// Parts of the depth that a worker does one after the other.
  bool several_blocks() const { return !(each_ == Expr(1)); }
  bool splits() const { return t_.split > 1; }
  /// Each panel of the right side, just before the rows go by.
  bool packs_from_window() const { return window_ && t_.pack_right; }

  void declare_memory() {
    const auto panels = [&](const char* name, const Expr& count, const PackedSide& side) {
      const Expr elements = (t_.shared ? blocks_ : each_) * count * side.panel_elements();
      const DType word = word_of(f_, t_);
      return t_.shared ? b_.workspace(name, word, elements)
                       : b_.worker_memory(name, word, elements);
    };
    if (t_.own_left)
      left_buffer_ =
          b_.worker_memory("left", word_of(f_, t_), Expr(panels_down_) * left_.panel_elements());
    else if (t_.pack_left)
      left_buffer_ = panels("left", t_.shared ? row_panels_ : Expr(panels_down_), left_);
    if (packs_from_window())
      right_buffer_ = b_.worker_memory("right", word_of(f_, t_), right_.panel_elements());
    else if (t_.pack_right)
      right_buffer_ = panels("right", t_.shared ? column_panels_ : Expr(panels_across_), right_);
    if (window_)
      window_->declare(t_.shared);
    const std::int64_t tile = std::int64_t(t_.mr) * t_.nr();
    if (several_blocks())
      sums_buffer_ =
          b_.worker_memory("sums", f_.accumulator, Expr(panels_down_ * panels_across_ * tile));
    tile_buffer_ = b_.worker_memory("tile", f_.accumulator, Expr(tile));
    if (splits())
      partial_buffer_ = b_.workspace("partial", f_.accumulator,
                                     Expr(t_.split) * f_.batch.extent * row_panels_ *
                                         column_panels_ * Expr(tile));
  }

  Point batch_point(const Expr& batch) const {
    Point p;
    p.at.resize(r_.axes.size());
    put_index(p, r_, f_.batch, batch);
    return p;
  }

  /// All workers pack for all: one batch element after the other.
  void together() {
    b_.loop(Expr(0), f_.batch.extent, Expr(1), f_.batch.extent, Bind::Serial,
            [&](const Expr& batch) {
              const Point p = batch_point(batch);
              if (!(batch == Expr(0)))
                b_.barrier(); // the panels of the last batch element are still being read
              const auto pack = [&](bool wanted, PackedSide& side, int buffer, const Expr& count) {
                if (!wanted)
                  return;
                const Expr size = side.panel_elements();
                if (side.by_depth()) {
                  const std::vector<Expr> extents{blocks_,
                                                  Expr((t_.kc + kStepsInTurn - 1) / kStepsInTurn)};
                  core_loop(b_, extents, [&](std::span<const Expr> at) {
                    const Expr steps = min(Expr(t_.kc), steps_ - at[0] * Expr(t_.kc));
                    const Expr from = at[1] * Expr(kStepsInTurn);
                    side.pack_steps(buffer, at[0] * count * size, p, Expr(0), count, at[0], from,
                                    min(steps, from + Expr(kStepsInTurn)));
                  });
                  return;
                }
                const std::vector<Expr> extents{blocks_, count};
                core_loop(b_, extents, [&](std::span<const Expr> at) {
                  side.pack_panel(buffer, (at[0] * count + at[1]) * size, p, at[1], at[0]);
                });
              };
              if (window_)
                window_->copy(p);
              pack(t_.pack_left && !t_.own_left, left_, left_buffer_, row_panels_);
              pack(t_.pack_right && !window_, right_, right_buffer_, column_panels_);
              b_.barrier();
              const std::vector<Expr> extents{down_, across_, Expr(t_.split)};
              core_loop(b_, extents,
                        [&](std::span<const Expr> at) { block(p, batch, at[0], at[1], at[2]); });
              if (splits()) {
                b_.barrier();
                add_up(batch, Expr(1));
              }
            });
  }

  /// Packs the panels from `first` to `end`, of `all`, of one part of the depth.
  void pack_block(PackedSide& side, int buffer, const Expr& offset, const Point& batch,
                  const Expr& first, const Expr& end, const Expr& all, const Expr& part) {
    if (side.by_depth()) {
      const Expr steps = min(Expr(t_.kc), steps_ - part * Expr(t_.kc));
      b_.loop(Expr(0), steps, Expr(kStepsInTurn), Expr(t_.kc), Bind::Serial, [&](const Expr& k) {
        side.pack_steps(buffer, offset, batch, first, end, part, k,
                        min(steps, k + Expr(kStepsInTurn)));
      });
      return;
    }
    b_.loop(first, end, Expr(1), all, Bind::Serial, [&](const Expr& i) {
      side.pack_panel(buffer, offset + (i - first) * side.panel_elements(), batch, i, part);
    });
  }

  /// Every worker packs what its block needs.
  void apart() {
    const std::vector<Expr> extents{f_.batch.extent, down_, across_, Expr(t_.split)};
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      const Point p = batch_point(at[0]);
      const Expr begin = at[3] * each_, parts = min(each_, blocks_ - begin);
      const auto pack = [&](bool wanted, PackedSide& side, int buffer, const Expr& first,
                            std::int64_t count, const Expr& all) {
        if (!wanted)
          return;
        b_.loop(Expr(0), parts, Expr(1), each_, Bind::Serial, [&](const Expr& local) {
          pack_block(side, buffer, local * Expr(count) * side.panel_elements(), p, first,
                     min(first + Expr(count), all), all, begin + local);
        });
      };
      if (window_)
        window_->copy(p);
      pack(t_.pack_left, left_, left_buffer_, at[1] * Expr(panels_down_), panels_down_,
           row_panels_);
      pack(t_.pack_right && !window_, right_, right_buffer_, at[2] * Expr(panels_across_),
           panels_across_, column_panels_);
      block(p, at[0], at[1], at[2], at[3]);
    });
    if (splits()) {
      b_.barrier();
      add_up(Expr(0), f_.batch.extent);
    }
  }

  /// The shares of every tile of some elements of the batch are added up in order, and what is made
  /// of them is stored.
  void add_up(const Expr& first, const Expr& count) {
    const std::vector<Expr> extents{count, column_panels_, row_panels_};
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      Place place;
      place.number = first + at[0];
      place.batch = batch_point(place.number);
      place.column_panel = at[1];
      place.row_panel = at[2];
      place.first_row = at[2] * Expr(t_.mr);
      place.first_column = at[1] * Expr(t_.nr());
      const auto sum = [&](int vectors, bool narrow) {
        place.vectors = vectors;
        place.narrow = narrow;
        std::vector<VarId> sums;
        for (int i = 0; i < t_.mr * vectors; ++i)
          sums.push_back(sum_register(i));
        clear(sums);
        b_.loop(Expr(0), Expr(t_.split), Expr(1), Expr(t_.split), Bind::Serial,
                [&](const Expr& share) {
                  for (std::size_t i = 0; i < sums.size(); ++i) {
                    const ValueId part =
                        b_.load(partial_buffer_, partial_offset(place, share, int(i)), t_.lanes);
                    b_.set(sums[i], b_.apply(Op::Add, f_.accumulator, {b_.read(sums[i]), part}));
                  }
                });
        results(place, sums);
      };
      const Expr whole = floordiv(f_.columns.extent, t_.nr());
      b_.when({{at[1], Expr(0), whole}}, [&] { sum(t_.nv, false); });
      if (!(whole == column_panels_)) {
        b_.when({{at[1], whole, column_panels_}}, [&] { sum(vectors_of_last(), true); });
      }
    });
  }

  /// Where a tile is: its panels, counted from the first of all and from the first of its block,
  /// and its part of the depth.
  struct Place {
    Point batch;
    Expr row_panel, column_panel, row_local, column_local, depth_block;
    Expr first_block, end_block; ///< of the depth, what the worker does
    Expr number, share;          ///< of the batch element, and of the share of the depth
    Expr first_row, first_column;
    int vectors = 1;     ///< of columns
    bool narrow = false; ///< the last column panel, where columns may be missing
  };

  void block(const Point& batch, const Expr& number, const Expr& down, const Expr& across,
             const Expr& share) {
    const Expr begin = share * each_, end = splits() ? min(blocks_, begin + each_) : blocks_;
    b_.loop(begin, end, Expr(1), blocks_, Bind::Serial, [&](const Expr& c) {
      Place place;
      place.batch = batch;
      place.depth_block = c;
      place.first_block = begin;
      place.end_block = end;
      place.number = number;
      place.share = share;
      const Expr first_row_panel = down * Expr(panels_down_),
                 first_column_panel = across * Expr(panels_across_);
      if (t_.own_left)
        pack_block(left_, left_buffer_, Expr(0), batch, first_row_panel,
                   min(first_row_panel + Expr(panels_down_), row_panels_), row_panels_, c);
      const auto rows = [&](Place at) {
        if (packs_from_window())
          right_.pack_panel(right_buffer_, Expr(0), batch, at.column_panel, c);
        const Expr count = min(Expr(panels_down_), row_panels_ - first_row_panel);
        b_.loop(Expr(0), count, Expr(1), Expr(panels_down_), Bind::Serial, [&](const Expr& i) {
          at.row_local = i;
          at.row_panel = first_row_panel + i;
          at.first_row = at.row_panel * Expr(t_.mr);
          tile(at);
        });
        if (t_.late)
          b_.when({{c, blocks_ - Expr(1), blocks_}}, [&] {
            at.row_local = count - Expr(1);
            at.row_panel = first_row_panel + at.row_local;
            at.first_row = at.row_panel * Expr(t_.mr);
            deliver_tile(at, f_.epilogue_flops <= kHeavyEpilogue);
          });
      };
      // Panels with all their columns, and the last one when it is narrower.
      const Expr whole = floordiv(f_.columns.extent, t_.nr());
      const Expr end = min(Expr(panels_across_), whole - first_column_panel);
      b_.loop(Expr(0), end, Expr(1), Expr(panels_across_), Bind::Serial, [&](const Expr& j) {
        put_column(place, first_column_panel, j);
        place.vectors = t_.nv;
        rows(place);
      });
      if (whole == column_panels_)
        return;
      const Expr rest = floormod(f_.columns.extent, t_.nr());
      const auto here = [&] {
        put_column(place, first_column_panel, whole - first_column_panel);
        place.vectors = vectors_of_last();
        place.narrow = true;
        rows(place);
      };
      b_.when({{first_column_panel, whole - Expr(panels_across_ - 1), whole + Expr(1)},
               {rest, Expr(1), Expr(t_.nr())}},
              here);
    });
  }

  /// Vectors of the last column panel, where that is narrower: as many of each slice.
  int vectors_of_last() const {
    const Expr rest = floormod(f_.columns.extent, t_.nr());
    const std::int64_t of_slice = rest.upper() / f_.columns.slices;
    return int((of_slice + t_.lanes - 1) / t_.lanes * f_.columns.slices);
  }

  void put_column(Place& place, const Expr& first, const Expr& local) const {
    place.column_local = local;
    place.column_panel = first + local;
    place.first_column = place.column_panel * Expr(t_.nr());
  }

  Expr lane() const { return t_.lanes > 1 ? lane_variable(t_.lanes) : Expr(0); }

  /// Offset of a packed panel.
  Expr packed(const PackedSide& side, const Place& at, const Expr& global, const Expr& all,
              const Expr& local, std::int64_t some) const {
    if (t_.own_left && &side == &left_)
      return local * side.panel_elements();
    if (packs_from_window() && &side == &right_)
      return Expr(0);
    return (t_.shared ? at.depth_block * all + global
                      : (at.depth_block - at.first_block) * Expr(some) + local) *
           side.panel_elements();
  }

  /// One register tile along its part of the depth.
  void tile(const Place& at) {
    if (t_.matrix) {
      matrix_tile(at);
      return;
    }
    std::vector<VarId> sums;
    for (int i = 0; i < t_.mr * at.vectors; ++i)
      sums.push_back(sum_register(i));
    start(at, sums);
    const Expr from = at.depth_block * Expr(t_.kc);
    const Expr all = min(Expr(t_.kc), steps_ - from);
    // Of a pair that the depth's end cuts, packed panels hold zeros.
    const bool cut = !(t_.pack_left && t_.pack_right) && f_.depth.extent.divisor() % t_.width != 0;
    const Expr count = cut ? min(all, floordiv(f_.depth.extent, t_.width) - from) : all;
    const Expr whole = floordiv(count, t_.unroll) * Expr(t_.unroll);
    b_.loop(Expr(0), whole, Expr(t_.unroll), Expr(t_.kc), Bind::Serial, [&](const Expr& k) {
      for (int u = 0; u < t_.unroll; ++u)
        step(at, sums, from, k + Expr(u));
    });
    b_.loop(whole, count, Expr(1), Expr(t_.kc), Bind::Serial,
            [&](const Expr& k) { step(at, sums, from, k); });
    if (cut)
      b_.when({{count, Expr(0), all}}, [&] { step(at, sums, from, count, true); });
    finish(at, sums);
  }

  /// Registers are shared by all tiles that are written.
  VarId sum_register(int i) {
    while (int(registers_.size()) <= i)
      registers_.push_back(b_.variable({f_.accumulator, t_.lanes}));
    return registers_[std::size_t(i)];
  }

  /// Where sums wait that go along the next part of the depth.
  Expr sums_place(const Place& at) const {
    const std::int64_t tile = std::int64_t(t_.mr) * t_.nr();
    return (at.column_local * Expr(panels_down_) + at.row_local) * Expr(tile);
  }
  Expr sum_offset(const Place& at, int i) const {
    return sums_place(at) + Expr(std::int64_t(i) * t_.lanes) + lane();
  }

  // --- Tiles of a matrix unit: those of the sums row by row, then those of the factors.

  void matrix_tile(const Place& at) {
    const int down = t_.mr / kTileRows, across = at.vectors;
    const Expr width(std::int64_t(across) * t_.lanes);
    const Guard first{at.depth_block, Expr(0), Expr(1)}, later{at.depth_block, Expr(1), blocks_};
    b_.when({first}, [&] { clear_sums(b_, down, across); });
    if (several_blocks())
      b_.when({later}, [&] { load_sums(b_, down, across, sums_buffer_, sums_place(at), width); });
    const Expr from = at.depth_block * Expr(t_.kc);
    const Expr count = min(Expr(t_.kc), steps_ - from);
    const auto chunk = [&](const Expr& k) {
      multiply_tiles(
          b_, down, across, [&](int tile, int i) { load_left(tile, at, i, from, k); },
          [&](int tile, int v) { load_right(tile, at, v, from, k); });
    };
    const Expr several(std::int64_t(t_.unroll) * kChunk);
    const Expr whole = floordiv(count, several) * several;
    b_.loop(Expr(0), whole, several, Expr(t_.kc), Bind::Serial, [&](const Expr& k) {
      for (int u = 0; u < t_.unroll; ++u)
        chunk(k + Expr(std::int64_t(u) * kChunk));
    });
    if (t_.unroll > 1)
      b_.loop(whole, count, Expr(kChunk), Expr(t_.kc), Bind::Serial, chunk);
    if (several_blocks())
      b_.when({{at.depth_block, Expr(0), blocks_ - Expr(1)}},
              [&] { store_sums(b_, down, across, sums_buffer_, sums_place(at), width); });
    const bool light = f_.epilogue_flops <= kHeavyEpilogue;
    b_.when({{at.depth_block, blocks_ - Expr(1), blocks_}}, [&] {
      if (t_.late)
        b_.when({{at.row_local, Expr(1), Expr(panels_down_)}}, [&] {
          Place before = at;
          before.row_panel = at.row_panel - Expr(1);
          before.first_row = at.first_row - Expr(t_.mr);
          deliver_tile(before, light);
        });
      store_sums(b_, down, across, tile_buffer_, Expr(0), width);
      if (!t_.late)
        deliver_tile(at, light);
    });
  }

  /// Row `i` of the register tile's tiles, of rows that hold a chunk of the depth each.
  void load_left(int tile, const Place& at, int i, const Expr& from, const Expr& k) {
    if (t_.pack_left) {
      const Expr panel = packed(left_, at, at.row_panel, row_panels_, at.row_local, panels_down_);
      b_.tile_load(tile, left_buffer_,
                   panel + k * Expr(t_.mr) + Expr(std::int64_t(i) * kTileRows * kChunk),
                   Expr(kChunk));
      return;
    }
    Point p = at.batch;
    // Rows are whole tiles. Behind the last one it is read again; what comes of it is never stored.
    put_index(p, r_, f_.rows,
              min(at.first_row + Expr(std::int64_t(i) * kTileRows),
                  f_.rows.extent - Expr(std::int64_t(kTileRows))));
    const Load& load = load_of(f_.left);
    tile_in_place(tile, f_.left, p, from + k,
                  Expr(*stride_of(r_, r_.stages[std::size_t(f_.stage)], load, f_.rows.axes[0])));
  }

  /// Tile `v` of the columns, of rows that hold a pair of each column.
  void load_right(int tile, const Place& at, int v, const Expr& from, const Expr& k) {
    const Expr column(std::int64_t(v) * t_.lanes);
    if (t_.pack_right) {
      const Expr panel =
          packed(right_, at, at.column_panel, column_panels_, at.column_local, panels_across_);
      b_.tile_load(tile, right_buffer_, panel + k * Expr(t_.nr()) + column, Expr(t_.nr()));
      return;
    }
    Point p = at.batch;
    put_index(p, r_, f_.columns, at.first_column + column);
    tile_in_place(tile, f_.right, p, from + k, Expr(2 * f_.right.tile));
  }

  const Load& load_of(const Side& side) const {
    const Stage& stage = r_.stages[std::size_t(f_.stage)];
    return stage
        .loads[std::size_t(stage.body[std::size_t(paired_factor_of(r_, f_, side).value)].load)];
  }

  void tile_in_place(int tile, const Side& side, Point p, const Expr& step, const Expr& stride) {
    put_index(p, r_, f_.depth, step * Expr(2));
    const Load& load = load_of(side);
    const auto element = element_at(r_, r_.stages[std::size_t(f_.stage)], load, p);
    ensure(element.has_value(), "region {}: a tile at a place that depends on data", r_.name);
    b_.tile_load(tile, e_.operand_buffer(load.number), *element, stride);
  }

  /// The results of the tile buffer's sums. `light`: all vectors of a row are written out, those of
  /// a matrix unit in pairs, which fill a line of 16-bit results.
  void deliver_tile(const Place& at, bool light) {
    const Expr rows = min(Expr(t_.mr), f_.rows.extent - at.first_row);
    // `v`: the first of as many vectors as there are slices.
    const auto row = [&](const Expr& r, const Expr& v, int lanes) {
      const Expr lane = lanes > 1 ? lane_variable(lanes) : Expr(0);
      std::vector<ValueId> sums;
      for (int i = 0; i < slices(); ++i)
        sums.push_back(b_.load(
            tile_buffer_, (r * Expr(at.vectors) + v + Expr(i)) * Expr(t_.lanes) + lane, lanes));
      deliver(at, r, v, sums, at.narrow, lanes);
    };
    b_.loop(Expr(0), rows, Expr(1), Expr(t_.mr), Bind::Serial, [&](const Expr& r) {
      if (!light) {
        const Expr count(at.vectors / slices());
        b_.loop(Expr(0), count, Expr(1), count, Bind::Serial,
                [&](const Expr& v) { row(r, v * Expr(slices()), t_.lanes); });
        return;
      }
      for (int v = 0; v < at.vectors;) {
        const int together = t_.matrix && v + 1 < at.vectors ? 2 : 1;
        row(r, Expr(v), together * t_.lanes);
        v += together * slices();
      }
    });
  }

  int slices() const { return int(f_.columns.slices); }

  void clear(const std::vector<VarId>& sums) {
    const ValueId zero = b_.constant(Scalar::of(f_.accumulator, 0.0), t_.lanes);
    for (const VarId v : sums)
      b_.set(v, zero);
  }

  Expr partial_offset(const Place& at, const Expr& share, int i) const {
    const std::int64_t tile = std::int64_t(t_.mr) * t_.nr();
    const Expr number = (share * f_.batch.extent + at.number) * column_panels_ + at.column_panel;
    return (number * row_panels_ + at.row_panel) * Expr(tile) + Expr(std::int64_t(i) * t_.lanes) +
           lane();
  }

  void start(const Place& at, const std::vector<VarId>& sums) {
    if (!several_blocks()) {
      clear(sums);
      return;
    }
    const Expr local = at.depth_block - at.first_block;
    b_.when({{local, Expr(0), Expr(1)}}, [&] { clear(sums); });
    b_.when({{local, Expr(1), each_}}, [&] {
      for (std::size_t i = 0; i < sums.size(); ++i)
        b_.set(sums[i], b_.load(sums_buffer_, sum_offset(at, int(i)), t_.lanes));
    });
  }

  /// `half`: of a pair, the depth has the first only.
  void step(const Place& at, const std::vector<VarId>& sums, const Expr& from, const Expr& k,
            bool half = false) {
    std::vector<ValueId> right;
    for (int v = 0; v < at.vectors; ++v)
      right.push_back(right_vector(at, v, from, k, half));
    for (int r = 0; r < t_.mr; ++r) {
      const ValueId left = b_.splat(left_element(at, r, from, k, half), t_.lanes);
      for (int v = 0; v < at.vectors; ++v) {
        const VarId sum = sums[std::size_t(r * at.vectors + v)];
        b_.set(sum, add_product(left, right[std::size_t(v)], b_.read(sum)));
      }
    }
  }

  ValueId add_product(ValueId a, ValueId b, ValueId sum) {
    if (t_.width > 1 || (fma_ && is_float(f_.accumulator)))
      return b_.fma(a, b, sum);
    return b_.apply(Op::Add, f_.accumulator, {sum, b_.apply(Op::Mul, f_.accumulator, {a, b})});
  }

  ValueId left_element(const Place& at, int r, const Expr& from, const Expr& k, bool half) {
    if (t_.pack_left) {
      const Expr panel = packed(left_, at, at.row_panel, row_panels_, at.row_local, panels_down_);
      return b_.load(left_buffer_, panel + k * Expr(t_.mr) + Expr(r), 1);
    }
    Point p = at.batch;
    // Behind the last row it is read again; what comes of it is never stored.
    put_index(p, r_, f_.rows, min(at.first_row + Expr(r), f_.rows.extent - Expr(1)));
    return t_.width > 1 && !half ? words_in_place(f_.left, std::move(p), from + k, 1)
                                 : step_of_side(e_, f_, f_.left, t_, p, from + k, half);
  }

  ValueId right_vector(const Place& at, int v, const Expr& from, const Expr& k, bool half) {
    const Expr column = Expr(std::int64_t(v) * t_.lanes) + lane();
    if (t_.pack_right) {
      const Expr panel =
          packed(right_, at, at.column_panel, column_panels_, at.column_local, panels_across_);
      return b_.load(right_buffer_, panel + k * Expr(t_.nr()) + column, t_.lanes);
    }
    Point p = at.batch;
    if (window_) {
      p.lanes = t_.lanes;
      put_run(p, r_, f_.columns, at.first_column + Expr(std::int64_t(v) * t_.lanes));
      return window_->vector_at(p, from + k);
    }
    if (t_.width > 1 && f_.right.pairs) { // the last panel is whole
      put_index(p, r_, f_.columns, at.first_column + Expr(std::int64_t(v) * t_.lanes));
      return words_in_place(f_.right, std::move(p), from + k, t_.lanes);
    }
    p.lanes = t_.lanes;
    put_vector(p, r_, f_.columns, at.first_column + Expr(std::int64_t(v) * t_.lanes));
    if (at.narrow)
      p.mask.push_back(f_.columns.inside(at.first_column + column));
    return step_of_side(e_, f_, f_.right, t_, p, from + k, half);
  }

  /// Pairs that lie in memory side by side, those of a lane behind those of the one before.
  ValueId words_in_place(const Side& side, Point p, const Expr& step, int lanes) {
    put_index(p, r_, f_.depth, step * Expr(2));
    const Load& load = load_of(side);
    const auto element = element_at(r_, r_.stages[std::size_t(f_.stage)], load, p);
    ensure(element.has_value(), "region {}: pairs that depend on data", r_.name);
    return b_.words(
        b_.load(e_.operand_buffer(load.number), *element + lane_variable(2 * lanes), 2 * lanes));
  }

  /// Keeps the sums for the next part of the depth, or hands the results on.
  void finish(const Place& at, const std::vector<VarId>& sums) {
    const auto hand_on = [&] {
      if (!splits()) {
        results(at, sums);
        return;
      }
      for (std::size_t i = 0; i < sums.size(); ++i)
        b_.store(partial_buffer_, partial_offset(at, at.share, int(i)), b_.read(sums[i]));
    };
    if (!several_blocks()) {
      hand_on();
      return;
    }
    const Expr left = at.end_block - at.depth_block;
    b_.when({{left, Expr(2), each_ + Expr(1)}}, [&] {
      for (std::size_t i = 0; i < sums.size(); ++i)
        b_.store(sums_buffer_, sum_offset(at, int(i)), b_.read(sums[i]));
    });
    b_.when({{left, Expr(1), Expr(2)}}, hand_on);
  }

  void results(const Place& at, const std::vector<VarId>& sums) {
    // Missing rows or columns of a tile, if any: negative.
    Expr missing = f_.rows.extent - at.first_row - Expr(t_.mr);
    if (at.narrow)
      missing = min(missing, f_.columns.slice_extent() - f_.columns.place(at.first_column) -
                                 Expr(std::int64_t(at.vectors) / slices() * t_.lanes));
    const Guard whole{missing, Expr(0), Expr(INT64_MAX)},
        cut{missing, Expr(INT64_MIN / 2), Expr(0)};
    const bool light = f_.epilogue_flops <= kHeavyEpilogue;
    if (light)
      b_.when({whole}, [&] {
        for (int r = 0; r < t_.mr; ++r)
          for (int v = 0; v < at.vectors; v += slices()) {
            std::vector<ValueId> all;
            for (int i = 0; i < slices(); ++i)
              all.push_back(b_.read(sums[std::size_t(r * at.vectors + v + i)]));
            deliver(at, Expr(r), Expr(v), all, false, t_.lanes);
          }
      });
    b_.when({light ? cut : Guard{Expr(0), Expr(0), Expr(1)}}, [&] {
      for (std::size_t i = 0; i < sums.size(); ++i)
        b_.store(tile_buffer_, Expr(std::int64_t(i) * t_.lanes) + lane(), b_.read(sums[i]));
      deliver_tile(at, false);
    });
  }

  /// Everything that is made of one vector of sums, or of one of each slice, stored to where it
  /// belongs. `vector`: the number of the first.
  void deliver(const Place& at, const Expr& row, const Expr& vector, std::span<const ValueId> sums,
               bool masked, int lanes) {
    Point p = at.batch;
    p.lanes = lanes;
    put_index(p, r_, f_.rows, at.first_row + row);
    const Expr first = at.first_column + vector * Expr(t_.lanes);
    put_vector(p, r_, f_.columns, first);
    if (masked && f_.columns.padded == 0)
      p.mask.push_back(f_.columns.inside(first + (lanes > 1 ? lane_variable(lanes) : Expr(0))));
    store_results(e_, f_, p, sums);
  }

  const Region& r_;
  const ContractionForm& f_;
  const Tiles& t_;
  ProgramBuilder b_;
  Emitter e_;
  std::optional<WindowReader> window_;
  bool fma_;
  PackedSide left_, right_;
  int left_buffer_ = -1, right_buffer_ = -1, sums_buffer_ = -1, tile_buffer_ = -1,
      partial_buffer_ = -1;
  Expr steps_;  ///< along the depth
  Expr blocks_; ///< parts of the depth
  Expr each_;   ///< of them, what one share has
  Expr row_panels_, column_panels_;
  std::int64_t panels_down_ = 1, panels_across_ = 1; ///< panels in a block of results
  Expr down_, across_;                               ///< blocks of results
  std::vector<VarId> registers_;
};

constexpr Knob kContractionKnobs[] = {{"mr", 1, 64},       {"nr", 1, 512},       {"kc", 1, 1 << 20},
                                      {"mc", 1, 1 << 20},  {"nc", 1, 1 << 20},   {"unroll", 1, 16},
                                      {"pack_left", 0, 1}, {"pack_right", 0, 1}, {"shared", 0, 2},
                                      {"late", 0, 1},      {"window", 0, 1},     {"padded", 0, 1}};
/// Products that one iteration may be written out as, and bytes of panels and sums that a worker
/// may have.
constexpr std::int64_t kMostProducts = 1024, kMostBytes = 512 << 20;
/// Columns of a block for which a worker packs by itself.
constexpr std::int64_t kFrugalColumns = 512;

class ContractionGenerator : public Generator {
public:
  std::string name() const override { return "contraction"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const FoundContraction found = find_contraction(region, false, true);
    if (!found.ok || is_dots(found.form))
      return {};
    return contraction_space(region, found.form, target);
  }

  /// Workers pack what their blocks need, and not all panels for all: the sums are the same.
  std::optional<Schedule> frugal(const Schedule& schedule) const override {
    if (schedule.knob("shared", 1) == 0)
      return std::nullopt;
    Schedule s = schedule;
    s.knobs["shared"] = 0;
    s.knobs["nc"] = std::min<std::int64_t>(s.knob("nc", kFrugalColumns), kFrugalColumns);
    return s;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    const FoundContraction found = find_contraction(region, false, true);
    if (!found.ok)
      return {false, {}, found.reason};
    if (auto why = refused_settings(schedule, target, kContractionKnobs, Takes::Matrix);
        !why.empty())
      return {false, {}, why};
    if (!schedule.mma.empty()) {
      if (schedule.mma != kPairs && schedule.mma != kIntegerPairs && schedule.mma != kMatrix)
        return {false, {}, fmt::format("contraction takes no @mma of {}", schedule.mma)};
      const auto refused = schedule.mma == kPairs          ? pairs_refused
                           : schedule.mma == kIntegerPairs ? integer_pairs_refused
                                                           : matrix_refused;
      if (auto why = refused(region, found.form, target); !why.empty())
        return {false, {}, why};
    }
    const Tiles tiles = tiles_of(schedule, region, found.form, target);
    std::optional<WindowedContraction> windowed;
    if (tiles.window) {
      if (!schedule.mma.empty() && !(schedule.mma == kPairs && tiles.pack_right))
        return {false, {}, "a copy of windows has no tiles, and pairs only on their way to panels"};
      windowed = with_window(region, found.form, target, tiles.lanes, tiles.pack_right);
      if (!windowed)
        return {false, {}, "the right side reads no windows that can be copied"};
    }
    ContractionForm form = windowed ? windowed->form : found.form;
    if (tiles.padded) {
      const auto padded =
          tiles.window ? std::nullopt : with_whole_vectors(region, form, tiles.lanes);
      if (!padded || !schedule.mma.empty())
        return {false, {}, "its columns are no runs that could be padded to whole vectors"};
      form = *padded;
    }
    form.columns.run = tiles.lanes;
    if (tiles.matrix && tile_roles(tiles.mr / kTileRows, tiles.nv).left == 0)
      return {false, {}, "a register tile of more tiles than a matrix unit has"};
    if (std::int64_t(tiles.mr) * tiles.nv * tiles.unroll > kMostProducts)
      return {false, {}, "a register tile of too much code"};
    if (schedule.split_reduce > 1 && tiles.split == 1)
      return {false, {}, "a depth that is one part, or of unknown size, is not split"};
    const double copied =
        windowed ? double(windowed->elements(tiles.lanes)) * double(size_of(form.accumulator))
                 : 0.0;
    if (worker_bytes(form, tiles) + copied > double(kMostBytes))
      return {false, {}, "blocks for which a worker would need too much memory"};
    return {true, Contraction(region, form, tiles, windowed ? &*windowed : nullptr, target).run(),
            ""};
  }

  /// The right side in the panels that it would be packed into, of each slice for itself.
  std::vector<LayoutWish> layouts(const Region& region, const Target& target) const override {
    const FoundContraction found = find_contraction(region, false, true);
    if (!found.ok || is_dots(found.form))
      return {};
    return panels_of_right(region, found.form, target);
  }

private:
  /// One row times a matrix that is contiguous along the depth: each of its elements is used once,
  /// so it is read where it is, as dot products (rows), and never packed.
  static bool is_dots(const ContractionForm& form) {
    return form.rows.extent == Expr(1) && form.right.order == Side::Order::Depth;
  }
};

} // namespace

const Generator& contraction_generator() {
  static const ContractionGenerator generator;
  return generator;
}

} // namespace egret::kernel

// The generator of streams on a CPU: a worker has a block of rows and goes along the places, tile
// by tile. It copies the tile's factors into panels and then takes some rows at a time through it:
// their scores stay in the first-level cache, rows are combined in vectors along the places, and
// what is summed over the places (row values, or rows of a result) is carried from tile to tile.
// Sums that a maximum scales are scaled again when it grows, so that one pass makes both. Where the
// CPU has a matrix unit, scores and sums of bf16 are made by its tiles.
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/families.h"
#include "kernel/label_terms.h"
#include "kernel/nest.h"
#include "kernel/stream_blocks.h"
#include "kernel/stream_rows.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// More than any index of a place.
constexpr std::int64_t kFar = std::int64_t{1} << 48;

class CpuStream {
public:
  CpuStream(const Region& region, const StreamForm& form, const StreamBlocks& blocks,
            const Target& target)
      : r_(region), f_(form), t_(blocks), arithmetic_(arithmetic_of(target)), b_(region.name),
        e_(b_, region) {
    e_.quick_bf16 = t_.matrix; // products of subnormal numbers are 0 already
    for (const ContractionForm& p : f_.products)
      depth_tiles_.push_back(tiles_for(p));
    for (std::size_t p = 0; p < f_.products.size(); ++p) {
      const ContractionForm& form_p = f_.products[p];
      left_.emplace_back(e_, form_p, form_p.left, f_.rows, t_.mr, depth_tiles_[p], t_.matrix);
      right_.emplace_back(e_, form_p, form_p.right, f_.places, t_.nr(), depth_tiles_[p]);
    }
  }

  KernelProgram run() {
    std::vector<int> parallel = f_.batch.axes;
    parallel.insert(parallel.end(), f_.rows.axes.begin(), f_.rows.axes.end());
    if (is_empty(r_, parallel))
      return b_.finish(Expr(1));
    declare_memory();
    const Expr down = ceildiv(f_.rows.extent, t_.rows);
    const std::vector<Expr> extents{f_.batch.extent, down};
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      batch_.at.assign(r_.axes.size(), Expr());
      put_index(batch_, r_, f_.batch, at[0]);
      // From both ends in turn: with a causal mask the last rows have the most to do, and a worker
      // gets neighbours.
      const Expr pair = floordiv(at[1], 2), second = floormod(at[1], 2);
      const Expr number =
          f_.bounds.empty() ? at[1] : pair + second * (down - Expr(1) - pair - pair);
      block(number);
    });
    Expr work(0);
    for (const auto* forms : {&f_.products, &f_.sums})
      for (const ContractionForm& form : *forms)
        work = work + form.depth.extent;
    return b_.finish(
        useful_workers(f_.batch.extent * down, f_.batch.extent * f_.rows.extent * f_.places.extent *
                                                   floordiv(work + Expr(8), 4)));
  }

private:
  /// Sizes by which a product's sides are packed: the whole depth in one part.
  Tiles tiles_for(const ContractionForm& p) const {
    Tiles tiles;
    tiles.lanes = t_.lanes;
    tiles.mr = t_.mr;
    tiles.nv = t_.nv;
    tiles.kc = p.depth.extent.value();
    if (t_.matrix) {
      tiles.matrix = true;
      tiles.width = 2;
      tiles.kc = (tiles.kc + 2 * kChunk - 1) / (2 * kChunk) * kChunk;
    }
    return tiles;
  }

  Expr lane() const { return t_.lanes > 1 ? lane_variable(t_.lanes) : Expr(0); }
  int across() const { return t_.places / t_.lanes; } ///< vectors of a tile
  std::int64_t columns_of(std::size_t s) const {
    return (f_.sums[s].depth.extent.value() + t_.lanes - 1) / t_.lanes * t_.lanes;
  }

  // --- Memory of a worker

  /// What a row stage has seen of a block's rows. One number a row for a maximum that scales sums
  /// and for its sums, a vector for others.
  struct RowState {
    int stage = -1;
    Accumulator accumulator;
    std::vector<int> buffers;
    int result = -1; ///< the finished value
    int scale = -1;  ///< of a maximum: what its sums have been multiplied by, by row of the group
  };

  void declare_memory() {
    const auto floats = [&](const std::string& name, const Expr& n) {
      return b_.worker_memory(name, DType::F32, n);
    };
    const auto panels = [&](const std::string& name, const Expr& n) {
      return b_.worker_memory(name, t_.matrix ? DType::U32 : DType::F32, n);
    };
    for (std::size_t p = 0; p < f_.products.size(); ++p) {
      left_buffer_.push_back(
          panels(fmt::format("left{}", p), Expr(t_.rows / t_.mr) * left_[p].panel_elements()));
      right_buffer_.push_back(panels(fmt::format("right{}", p),
                                     Expr(t_.places / t_.nr()) * right_[p].panel_elements()));
      score_buffer_.push_back(
          floats(fmt::format("scores{}", p), Expr(std::int64_t(t_.mr) * t_.places)));
    }
    for (std::size_t s = 0; s < f_.sums.size(); ++s) {
      const std::int64_t factors = std::int64_t(t_.mr) * t_.places;
      summed_buffer_.push_back(panels(fmt::format("summed{}", s),
                                      Expr(t_.places * columns_of(s) / (t_.matrix ? 2 : 1))));
      factor_buffer_.push_back(b_.worker_memory(
          fmt::format("factors{}", s), t_.matrix ? DType::U16 : DType::F32, Expr(factors)));
      carried_buffer_.push_back(floats(fmt::format("sums{}", s), Expr(t_.rows * columns_of(s))));
    }
    for (int stage : f_.row_stages) {
      RowState v{stage, Accumulator(e_, stage, 0, arithmetic_, f_.places.extent), {}, -1, -1};
      const DType result = compute_dtype(r_.stages[std::size_t(stage)].yield_dtypes[0]);
      v.result = b_.worker_memory(fmt::format("result{}", stage), result, Expr(t_.rows));
      if (is_scale(stage)) {
        v.scale = floats(fmt::format("scale{}", stage), Expr(t_.mr));
        v.buffers = {floats(fmt::format("state{}", stage), Expr(t_.rows))};
      } else if (f_.scaled_by[std::size_t(stage)] >= 0) {
        v.buffers = {floats(fmt::format("state{}", stage), Expr(t_.rows * t_.lanes))};
      } else {
        for (const Type& type : v.accumulator.types(t_.lanes))
          v.buffers.push_back(b_.worker_memory(fmt::format("state{}_{}", stage, v.buffers.size()),
                                               type.dtype, Expr(t_.rows * t_.lanes)));
      }
      rows_.push_back(std::move(v));
    }
  }

  /// Whether a row stage is a maximum that scales sums of its pass.
  bool is_scale(int stage) const {
    return std::find(f_.scaled_by.begin(), f_.scaled_by.end(), stage) != f_.scaled_by.end();
  }

  RowState& row_state(int stage) {
    for (RowState& v : rows_)
      if (v.stage == stage)
        return v;
    ensure(false, "region {}: stage {} is no row value", r_.name, stage);
    return rows_[0];
  }

  // --- A block of rows

  void block(const Expr& number) {
    first_row_ = number * Expr(t_.rows);
    block_rows_ = min(Expr(t_.rows), f_.rows.extent - first_row_);
    groups_ = ceildiv(block_rows_, t_.mr);
    for (std::size_t p = 0; p < f_.products.size(); ++p)
      each_group([&](const Expr& g) {
        left_[p].pack_panel(left_buffer_[p], g * left_[p].panel_elements(), batch_,
                            number * Expr(t_.rows / t_.mr) + g, Expr(0));
      });
    range_ = tiles_that_count(r_, f_, batch_, first_row_, t_.rows, t_.places);
    for (int pass = 0; pass < f_.passes; ++pass)
      run_pass(pass);
    store_results();
  }

  void each_group(const std::function<void(const Expr&)>& body) {
    b_.loop(Expr(0), groups_, Expr(1), Expr(t_.rows / t_.mr), Bind::Serial, body);
  }

  void each_row(const std::function<void(const Expr&)>& body) {
    b_.loop(Expr(0), block_rows_, Expr(1), Expr(t_.rows), Bind::Serial, body);
  }

  /// `row`: counted from the block's first.
  Point row_point(const Expr& row) const {
    Point p = batch_;
    put_index(p, r_, f_.rows, first_row_ + row);
    return p;
  }

  // --- A pass along the places

  void run_pass(int number) {
    const StreamPass pass = stream_pass(r_, f_, number);
    pass_ = number;
    b_.loop(Expr(0), groups_ * Expr(t_.mr), Expr(1), Expr(t_.rows), Bind::Serial,
            [&](const Expr& row) { start_row(pass, row); });
    const Expr most = max(ceildiv(f_.places.extent, t_.places), Expr(1));
    const TileRange range = checked_range();
    b_.loop(range.begin, range.end, Expr(1), most, Bind::Serial, [&](const Expr& t) {
      first_place_ = t * Expr(t_.places);
      tile_places_ = min(Expr(t_.places), f_.places.extent - first_place_);
      for (std::size_t p : pass.products)
        pack_places(p, t);
      for (std::size_t s : pass.sums)
        t_.matrix ? pack_pairs(s) : pack_summed(s);
      each_group([&](const Expr& g) { b_.when(counting(g), [&] { group(pass, g); }); });
    });
    each_row([&](const Expr& row) { finish_row(pass, row); });
  }

  /// What the bounds take for granted of the rows in this pass, but not of a maximum that scales: a
  /// sum beside it looks at what became of it in the end.
  std::vector<RowCondition> conditions_of_pass() const {
    std::vector<RowCondition> conditions;
    for (const RowCondition& c : f_.conditions) {
      const int maximum = f_.scaled_by[std::size_t(c.stage)];
      if (f_.level[std::size_t(c.stage)] == pass_ &&
          (maximum < 0 || !depends_on_stage(r_, c.stage, c.value, maximum)))
        conditions.push_back(c);
    }
    return conditions;
  }

  /// All tiles, where the values of some row are such that masked points count.
  TileRange checked_range() {
    skips_ = Expr(1);
    const std::vector<RowCondition> conditions = conditions_of_pass();
    if (f_.bounds.empty() || conditions.empty())
      return range_;
    const auto number = [&](std::int64_t n) { return b_.constant(Scalar::of(DType::I64, n)); };
    const VarId all = b_.variable({DType::I64, 1});
    b_.set(all, number(1));
    each_row([&](const Expr& row) {
      provide_finished(row, pass_ - 1);
      for (const RowCondition& c : conditions) {
        const ValueId v = b_.cast(e_.value(c.stage, c.value, row_point(row)).id, DType::F32);
        const ValueId mask = b_.constant(c.op == Op::Add ? identity_of(Monoid::Max, DType::F32)
                                                         : Scalar::of(DType::F32, 0.0));
        const ValueId stays =
            b_.apply(Op::Eq, DType::Bool, {b_.apply(c.op, DType::F32, {mask, v}), mask});
        b_.set(all, b_.apply(Op::Select, DType::I64, {stays, b_.read(all), number(0)}));
      }
    });
    skips_ = value_symbol(b_.read(all));
    const Expr end = ceildiv(f_.places.extent, t_.places);
    return {skips_ * range_.begin, end + skips_ * (range_.end - end)};
  }

  void start_row(const StreamPass& pass, const Expr& row) {
    for (int stage : pass.rows) {
      RowState& v = row_state(stage);
      const int lanes = is_scale(stage) ? 1 : t_.lanes;
      State state = v.accumulator.identity(lanes);
      state.resize(v.buffers.size());
      store_state(b_, v.buffers, row * Expr(lanes) + (lanes > 1 ? lane() : Expr(0)), state);
    }
    const ValueId zero = b_.constant(Scalar::of(DType::F32, 0.0), t_.lanes);
    for (std::size_t s : pass.sums)
      for (std::int64_t c = 0; c < columns_of(s); c += t_.lanes)
        b_.store(carried_buffer_[s], row * Expr(columns_of(s)) + Expr(c) + lane(), zero);
  }

  void pack_places(std::size_t p, const Expr& t) {
    const std::int64_t panels = t_.places / t_.nr();
    b_.loop(Expr(0), ceildiv(tile_places_, t_.nr()), Expr(1), Expr(panels), Bind::Serial,
            [&](const Expr& j) {
              right_[p].pack_panel(right_buffer_[p], j * right_[p].panel_elements(), batch_,
                                   t * Expr(panels) + j, Expr(0));
            });
  }

  /// The places' rows of a sum, columns behind the last one as zeros.
  void pack_summed(std::size_t s) {
    const ContractionForm& sum = f_.sums[s];
    b_.loop(Expr(0), tile_places_, Expr(1), Expr(t_.places), Bind::Serial, [&](const Expr& j) {
      for (std::int64_t c = 0; c < columns_of(s); c += t_.lanes) {
        Point p = columns_point(sum, batch_, c);
        put_index(p, r_, f_.places, first_place_ + j);
        const ValueId v = e_.value(sum.stage, sum.right.value, p).id;
        b_.store(summed_buffer_[s], j * Expr(columns_of(s)) + Expr(c) + lane(),
                 b_.splat(b_.cast(v, DType::F32), t_.lanes));
      }
    });
  }

  /// The same in pairs of places, zeros behind the last one.
  void pack_pairs(std::size_t s) {
    const ContractionForm& sum = f_.sums[s];
    const int factor = factor_of(r_, sum, sum.right).value;
    const auto pair = [&](const Expr& j, int there) {
      for (std::int64_t c = 0; c < columns_of(s); c += t_.lanes) {
        const auto half = [&](int number) {
          if (number >= there)
            return b_.constant(Scalar::of(DType::U32, std::int64_t{0}), t_.lanes);
          Point p = columns_point(sum, batch_, c);
          put_index(p, r_, f_.places, first_place_ + j * Expr(2) + Expr(number));
          const ValueId v = e_.narrow(e_.value(sum.stage, factor, p));
          return b_.cast(b_.splat(b_.apply(Op::Bitcast, DType::U16, {v}), t_.lanes), DType::U32);
        };
        const ValueId lower = half(0);
        const ValueId upper = b_.apply(
            Op::Shl, DType::U32, {half(1), b_.constant(Scalar::of(DType::U32, std::int64_t{16}))});
        b_.store(summed_buffer_[s], j * Expr(columns_of(s)) + Expr(c) + lane(),
                 b_.apply(Op::Or, DType::U32, {lower, upper}));
      }
    };
    const Expr most(t_.places / 2), whole = floordiv(tile_places_, 2),
                                    some = ceildiv(tile_places_, 2);
    b_.loop(Expr(0), whole, Expr(1), most, Bind::Serial, [&](const Expr& j) { pair(j, 2); });
    b_.when({{whole, Expr(0), some}}, [&] { pair(whole, 1); });
    b_.loop(some, ceildiv(tile_places_, 2 * kChunk) * Expr(kChunk), Expr(1), most, Bind::Serial,
            [&](const Expr& j) { pair(j, 0); });
  }

  /// A vector of a sum's columns from column `c` on.
  Point columns_point(const ContractionForm& sum, const Point& at, std::int64_t c) const {
    Point p = at;
    p.lanes = t_.lanes;
    const Expr column = Expr(c) + lane();
    put_index(p, r_, sum.depth, column);
    if (c + t_.lanes > sum.depth.extent.value())
      p.mask.push_back({column, Expr(0), sum.depth.extent});
    return p;
  }

  /// Whether some point of the group's rows in this tile counts.
  std::vector<Guard> counting(const Expr& g) const {
    std::vector<Guard> guards;
    for (const Expr& bound : f_.bounds)
      if (const auto most = largest_bound(r_, f_, bound, batch_, first_row_ + g * Expr(t_.mr),
                                          t_.mr, first_place_, t_.places))
        guards.push_back({*most + (Expr(1) - skips_) * Expr(kFar), Expr(0), Expr(INT64_MAX)});
    return guards;
  }

  // --- Some rows in one tile

  void group(const StreamPass& pass, const Expr& g) {
    for (std::size_t p : pass.products) {
      t_.matrix ? make_score_tiles(p, g) : make_scores(p, g);
      clear_missing(p);
    }
    const Expr rows = min(Expr(t_.mr), block_rows_ - g * Expr(t_.mr));
    b_.loop(Expr(0), rows, Expr(1), Expr(t_.mr), Bind::Serial, [&](const Expr& i) {
      const Guard whole{first_place_, Expr(0), f_.places.extent - Expr(t_.places - 1)},
          cut{first_place_, f_.places.extent - Expr(t_.places - 1), f_.places.extent};
      b_.when({whole}, [&] { combine_row(pass, g, i, false); });
      b_.when({cut}, [&] { combine_row(pass, g, i, true); });
    });
    fill_missing(pass, rows);
    for (std::size_t s : pass.sums)
      t_.matrix ? add_product_tiles(s, g) : add_products(s, g);
  }

  /// Scores of panels that the last tile lacks: they are masked, but read.
  void clear_missing(std::size_t p) {
    const Expr panels(t_.places / t_.nr());
    const ValueId zero = b_.constant(Scalar::of(DType::F32, 0.0), t_.lanes);
    b_.loop(ceildiv(tile_places_, t_.nr()), panels, Expr(1), panels, Bind::Serial,
            [&](const Expr& j) {
              for (int i = 0; i < t_.mr; ++i)
                for (int v = 0; v < t_.nv; ++v)
                  b_.store(score_buffer_[p],
                           Expr(std::int64_t(i) * t_.places + std::int64_t(v) * t_.lanes) +
                               j * Expr(t_.nr()) + lane(),
                           zero);
            });
  }

  /// The zeros of rows that a group lacks; what comes of them is never stored.
  void fill_missing(const StreamPass& pass, const Expr& rows) {
    const ValueId zero = b_.constant(t_.matrix ? Scalar::of(DType::U16, std::int64_t{0})
                                               : Scalar::of(DType::F32, 0.0),
                                     t_.lanes);
    b_.loop(rows, Expr(t_.mr), Expr(1), Expr(t_.mr), Bind::Serial, [&](const Expr& i) {
      for (std::size_t s : pass.sums)
        for (int v = 0; v < across(); ++v)
          b_.store(factor_buffer_[s],
                   i * Expr(t_.places) + Expr(std::int64_t(v) * t_.lanes) + lane(), zero);
      for (int stage : pass.rows)
        if (is_scale(stage))
          b_.store(row_state(stage).scale, i, b_.constant(Scalar::of(DType::F32, 0.0)));
    });
  }

  /// Register tiles along `depth` steps, `unroll` of them in one turn.
  void along(const Expr& depth, std::int64_t most, const std::function<void(const Expr&)>& step) {
    const Expr whole = floordiv(depth, t_.unroll) * Expr(t_.unroll);
    b_.loop(Expr(0), whole, Expr(t_.unroll), Expr(most), Bind::Serial, [&](const Expr& k) {
      for (int u = 0; u < t_.unroll; ++u)
        step(k + Expr(u));
    });
    b_.loop(whole, depth, Expr(1), Expr(most), Bind::Serial, step);
  }

  ValueId add_product(ValueId a, ValueId b, ValueId sum) {
    if (arithmetic_.fma)
      return b_.fma(a, b, sum);
    return b_.apply(Op::Add, DType::F32, {sum, b_.apply(Op::Mul, DType::F32, {a, b})});
  }

  VarId sum_register(int i) {
    while (int(registers_.size()) <= i)
      registers_.push_back(b_.variable({DType::F32, t_.lanes}));
    return registers_[std::size_t(i)];
  }

  void make_scores(std::size_t p, const Expr& g) {
    const ValueId zero = b_.constant(Scalar::of(DType::F32, 0.0), t_.lanes);
    const std::int64_t depth = f_.products[p].depth.extent.value();
    b_.loop(Expr(0), ceildiv(tile_places_, t_.nr()), Expr(1), Expr(t_.places / t_.nr()),
            Bind::Serial, [&](const Expr& j) {
              for (int i = 0; i < t_.mr * t_.nv; ++i)
                b_.set(sum_register(i), zero);
              along(Expr(depth), depth, [&](const Expr& k) {
                std::vector<ValueId> right;
                for (int v = 0; v < t_.nv; ++v)
                  right.push_back(b_.load(right_buffer_[p],
                                          j * right_[p].panel_elements() + k * Expr(t_.nr()) +
                                              Expr(std::int64_t(v) * t_.lanes) + lane(),
                                          t_.lanes));
                for (int i = 0; i < t_.mr; ++i) {
                  const ValueId left = b_.splat(
                      b_.load(left_buffer_[p],
                              g * left_[p].panel_elements() + k * Expr(t_.mr) + Expr(i), 1),
                      t_.lanes);
                  for (int v = 0; v < t_.nv; ++v) {
                    const VarId sum = sum_register(i * t_.nv + v);
                    b_.set(sum, add_product(left, right[std::size_t(v)], b_.read(sum)));
                  }
                }
              });
              for (int i = 0; i < t_.mr; ++i)
                for (int v = 0; v < t_.nv; ++v)
                  b_.store(score_buffer_[p],
                           Expr(std::int64_t(i) * t_.places + std::int64_t(v) * t_.lanes) +
                               j * Expr(t_.nr()) + lane(),
                           b_.read(sum_register(i * t_.nv + v)));
            });
  }

  void make_score_tiles(std::size_t p, const Expr& g) {
    const int down = t_.mr / kTileRows;
    const std::int64_t steps = depth_tiles_[p].kc;
    b_.loop(Expr(0), ceildiv(tile_places_, t_.nr()), Expr(1), Expr(t_.places / t_.nr()),
            Bind::Serial, [&](const Expr& j) {
              clear_sums(b_, down, t_.nv);
              b_.loop(Expr(0), Expr(steps), Expr(kChunk), Expr(steps), Bind::Serial,
                      [&](const Expr& k) {
                        const Expr left = g * left_[p].panel_elements() + k * Expr(t_.mr),
                                   right = j * right_[p].panel_elements() + k * Expr(t_.nr());
                        multiply_tiles(
                            b_, down, t_.nv,
                            [&](int tile, int i) {
                              b_.tile_load(tile, left_buffer_[p],
                                           left + Expr(i * kTileRows * kChunk), Expr(kChunk));
                            },
                            [&](int tile, int v) {
                              b_.tile_load(tile, right_buffer_[p], right + Expr(v * kChunk),
                                           Expr(t_.nr()));
                            });
                      });
              store_sums(b_, down, t_.nv, score_buffer_[p], j * Expr(t_.nr()), Expr(t_.places));
            });
  }

  /// A vector of the tile's places, for row `row` of the block.
  Point place_point(const Expr& row, int v, bool cut) const {
    Point p = row_point(row);
    p.lanes = t_.lanes;
    const Expr place = first_place_ + Expr(std::int64_t(v) * t_.lanes) + lane();
    put_index(p, r_, f_.places, place);
    if (cut)
      p.mask.push_back({place, Expr(0), f_.places.extent});
    return p;
  }

  /// Row `i` of the group in this tile: its row values, and the factors of the sums. `cut`: there
  /// may be fewer places than the tile has room for, at least one.
  void combine_row(const StreamPass& pass, const Expr& g, const Expr& i, bool cut) {
    const Expr row = g * Expr(t_.mr) + i;
    provide_finished(row, pass_ - 1);
    const Expr in_group = i * Expr(t_.places) + lane();
    std::vector<Point> points;
    for (int v = 0; v < across(); ++v)
      points.push_back(place_point(row, v, cut));
    const auto at = [&](int v) { return in_group + Expr(std::int64_t(v) * t_.lanes); };
    for (std::size_t p : pass.products)
      for (int v = 0; v < across(); ++v) {
        const int stage = f_.products[p].stage;
        const ValueId sum = b_.load(score_buffer_[p], at(v), t_.lanes);
        e_.provide(stage, points[std::size_t(v)],
                   {e_.convert({sum, DType::F32}, r_.stages[std::size_t(stage)].yield_dtypes[0])});
      }
    for (int stage : pass.rows)
      if (f_.scaled_by[std::size_t(stage)] < 0)
        add_to_row(row_state(stage), row, i, points);
    for (int stage : pass.rows)
      if (f_.scaled_by[std::size_t(stage)] >= 0)
        add_to_scaled(row_state(stage), row, points);
    for (std::size_t s : pass.sums)
      for (int v = 0; v < across(); ++v) {
        if (t_.matrix) {
          b_.store(factor_buffer_[s], at(v), factor_bits(s, points[std::size_t(v)], cut));
          continue;
        }
        const ValueId factor =
            e_.value(f_.sums[s].stage, f_.sums[s].left.value, points[std::size_t(v)]).id;
        b_.store(factor_buffer_[s], at(v), b_.splat(b_.cast(factor, DType::F32), t_.lanes));
      }
  }

  /// Factors of a sum as a tile's rows hold them, zeros behind the last place.
  ValueId factor_bits(std::size_t s, const Point& p, bool cut) {
    const ContractionForm& sum = f_.sums[s];
    const Value factor = e_.value(sum.stage, factor_of(r_, sum, sum.left).value, p);
    const ValueId bits = b_.splat(b_.apply(Op::Bitcast, DType::U16, {e_.narrow(factor)}), t_.lanes);
    if (!cut)
      return bits;
    return b_.apply(Op::Select, DType::U16,
                    {b_.test(p.mask, t_.lanes), bits,
                     b_.constant(Scalar::of(DType::U16, std::int64_t{0}), t_.lanes)});
  }

  State add_tile(RowState& v, State state, const std::vector<Point>& points) {
    for (const Point& p : points)
      state = v.accumulator.add(state, p, Expr(0), true);
    return state;
  }

  void add_to_row(RowState& v, const Expr& row, const Expr& i, const std::vector<Point>& points) {
    if (!is_scale(v.stage)) {
      const Expr at = row * Expr(t_.lanes) + lane();
      store_state(b_, v.buffers, at, add_tile(v, load_state(b_, v.buffers, at, t_.lanes), points));
      return;
    }
    const State tile = add_tile(v, v.accumulator.identity(t_.lanes), points);
    const ValueId before = b_.load(v.buffers[0], row, 1);
    const ValueId now =
        b_.apply(Op::Max, DType::F32, {before, v.accumulator.across_lanes(tile)[0]});
    scale_[v.stage] = rescale(b_, before, now);
    b_.store(v.buffers[0], row, now);
    b_.store(v.scale, i, scale_[v.stage]);
    e_.provide(v.stage, row_point(row), {{or_zero(b_, now), DType::F32}});
  }

  void add_to_scaled(RowState& v, const Expr& row, const std::vector<Point>& points) {
    const Expr at = row * Expr(t_.lanes) + lane();
    const ValueId scale = scale_.at(f_.scaled_by[std::size_t(v.stage)]);
    const ValueId before =
        b_.apply(Op::Mul, DType::F32, {b_.load(v.buffers[0], at, t_.lanes), scale});
    store_state(b_, v.buffers, at, add_tile(v, {before}, points));
  }

  /// The group's rows of a sum, in register tiles.
  void add_products(std::size_t s, const Expr& g) {
    const std::int64_t columns = columns_of(s);
    for (std::int64_t c = 0; c < columns; c += std::int64_t(t_.nc) * t_.lanes) {
      const int vectors = int(std::min<std::int64_t>(t_.nc, (columns - c) / t_.lanes));
      const auto carried = [&](int i, int v) {
        return (g * Expr(t_.mr) + Expr(i)) * Expr(columns) + Expr(c + std::int64_t(v) * t_.lanes) +
               lane();
      };
      const int maximum = f_.scaled_by[std::size_t(f_.sums[s].stage)];
      for (int i = 0; i < t_.mr; ++i)
        for (int v = 0; v < vectors; ++v) {
          ValueId sum = b_.load(carried_buffer_[s], carried(i, v), t_.lanes);
          if (maximum >= 0)
            sum =
                b_.apply(Op::Mul, DType::F32, {sum, b_.load(row_state(maximum).scale, Expr(i), 1)});
          b_.set(sum_register(i * vectors + v), sum);
        }
      along(tile_places_, t_.places, [&](const Expr& k) {
        std::vector<ValueId> right;
        for (int v = 0; v < vectors; ++v)
          right.push_back(b_.load(summed_buffer_[s],
                                  k * Expr(columns) + Expr(c + std::int64_t(v) * t_.lanes) + lane(),
                                  t_.lanes));
        for (int i = 0; i < t_.mr; ++i) {
          const ValueId left = b_.splat(
              b_.load(factor_buffer_[s], Expr(std::int64_t(i) * t_.places) + k, 1), t_.lanes);
          for (int v = 0; v < vectors; ++v) {
            const VarId sum = sum_register(i * vectors + v);
            b_.set(sum, add_product(left, right[std::size_t(v)], b_.read(sum)));
          }
        }
      });
      for (int i = 0; i < t_.mr; ++i)
        for (int v = 0; v < vectors; ++v)
          b_.store(carried_buffer_[s], carried(i, v), b_.read(sum_register(i * vectors + v)));
    }
  }

  /// The same by tiles. The sums are scaled where they lie.
  void add_product_tiles(std::size_t s, const Expr& g) {
    const std::int64_t columns = columns_of(s);
    const int maximum = f_.scaled_by[std::size_t(f_.sums[s].stage)];
    const Expr first = g * Expr(t_.mr) * Expr(columns);
    if (maximum >= 0)
      b_.loop(Expr(0), Expr(t_.mr), Expr(1), Expr(t_.mr), Bind::Serial, [&](const Expr& i) {
        const ValueId scale = b_.load(row_state(maximum).scale, i, 1);
        for (std::int64_t c = 0; c < columns; c += t_.lanes) {
          const Expr at = first + i * Expr(columns) + Expr(c) + lane();
          b_.store(
              carried_buffer_[s], at,
              b_.apply(Op::Mul, DType::F32, {b_.load(carried_buffer_[s], at, t_.lanes), scale}));
        }
      });
    const int down = t_.mr / kTileRows;
    for (std::int64_t c = 0; c < columns; c += std::int64_t(t_.nc) * t_.lanes) {
      const int vectors = int(std::min<std::int64_t>(t_.nc, (columns - c) / t_.lanes));
      load_sums(b_, down, vectors, carried_buffer_[s], first + Expr(c), Expr(columns));
      b_.loop(
          Expr(0), ceildiv(tile_places_, 2 * kChunk), Expr(1), Expr(t_.places / (2 * kChunk)),
          Bind::Serial, [&](const Expr& k) {
            multiply_tiles(
                b_, down, vectors,
                [&](int tile, int i) {
                  b_.tile_load(tile, factor_buffer_[s],
                               Expr(std::int64_t(i) * kTileRows * t_.places) + k * Expr(2 * kChunk),
                               Expr(t_.places));
                },
                [&](int tile, int v) {
                  b_.tile_load(tile, summed_buffer_[s],
                               k * Expr(kChunk * columns) + Expr(c + std::int64_t(v) * t_.lanes),
                               Expr(columns));
                });
          });
      store_sums(b_, down, vectors, carried_buffer_[s], first + Expr(c), Expr(columns));
    }
  }

  // --- Results

  /// Row values of passes up to `last`, as results of their stages.
  void provide_finished(const Expr& row, int last) {
    for (RowState& v : rows_)
      if (f_.level[std::size_t(v.stage)] <= last)
        e_.provide(v.stage, row_point(row),
                   {{b_.load(v.result, row, 1), r_.stages[std::size_t(v.stage)].yield_dtypes[0]}});
  }

  void finish_row(const StreamPass& pass, const Expr& row) {
    for (int stage : pass.rows) {
      RowState& v = row_state(stage);
      State state;
      if (is_scale(stage))
        state = whole_maximum(v, row);
      else
        state = v.accumulator.across_lanes(
            load_state(b_, v.buffers, row * Expr(t_.lanes) + lane(), t_.lanes));
      if (const int m = f_.scaled_by[std::size_t(stage)]; m >= 0)
        state = {no_number_if_none(m, row, state[0])};
      b_.store(v.result, row, v.accumulator.finish(state).id);
    }
  }

  /// The state of which the maximum's value is what was kept.
  State whole_maximum(RowState& v, const Expr& row) {
    const ValueId m = b_.load(v.buffers[0], row, 1);
    return State(v.accumulator.types(1).size(), m);
  }

  /// What a sum is where nothing was larger than the lowest number: no number, as the formula says,
  /// unless there are no terms.
  ValueId no_number_if_none(int maximum, const Expr& row, ValueId sum) {
    const ValueId m = b_.load(row_state(maximum).buffers[0], row, 1);
    const ValueId checked = unless_lowest(b_, m, sum);
    const std::vector<Guard> some = unproved({{f_.places.extent, Expr(1), Expr(INT64_MAX)}});
    if (some.empty())
      return checked;
    return b_.apply(Op::Select, DType::F32, {b_.test(some, 1), checked, sum});
  }

  void store_results() {
    each_row([&](const Expr& row) {
      provide_finished(row, f_.passes);
      for (std::size_t o = 0; o < r_.outputs.size(); ++o)
        if (sum_of_output_[o] < 0)
          store({int(o)}, row_point(row));
      for (std::size_t s = 0; s < f_.sums.size(); ++s)
        store_sum(s, row);
    });
  }

  void store_sum(std::size_t s, const Expr& row) {
    const int stage = f_.sums[s].stage, maximum = f_.scaled_by[std::size_t(stage)];
    std::vector<int> outputs;
    for (std::size_t o = 0; o < r_.outputs.size(); ++o)
      if (sum_of_output_[o] == int(s))
        outputs.push_back(int(o));
    for (std::int64_t c = 0; c < columns_of(s); c += t_.lanes) {
      const Point p = columns_point(f_.sums[s], row_point(row), c);
      ValueId sum =
          b_.load(carried_buffer_[s], row * Expr(columns_of(s)) + Expr(c) + lane(), t_.lanes);
      if (maximum >= 0)
        sum = no_number_if_none(maximum, row, sum);
      e_.provide(stage, p,
                 {e_.convert({sum, DType::F32}, r_.stages[std::size_t(stage)].yield_dtypes[0])});
      store(outputs, p);
    }
  }

  /// All values before the first store: an output may take over the memory of an operand.
  void store(const std::vector<int>& outputs, const Point& p) {
    std::vector<Value> values;
    for (int o : outputs)
      values.push_back(
          e_.result(r_.outputs[std::size_t(o)].stage, r_.outputs[std::size_t(o)].component, p));
    for (std::size_t i = 0; i < outputs.size(); ++i)
      e_.store(outputs[i], p, values[i]);
  }

  const Region& r_;
  const StreamForm& f_;
  const StreamBlocks& t_;
  Arithmetic arithmetic_;
  ProgramBuilder b_;
  Emitter e_;
  std::vector<Tiles> depth_tiles_;                                  ///< by product
  std::vector<PackedSide> left_, right_;                            ///< by product
  std::vector<int> left_buffer_, right_buffer_, score_buffer_;      ///< by product
  std::vector<int> summed_buffer_, factor_buffer_, carried_buffer_; ///< by sum
  std::vector<RowState> rows_;
  const std::vector<int> sum_of_output_ = sums_of_outputs(r_, f_);
  std::vector<VarId> registers_;
  std::map<int, ValueId> scale_; ///< by maximum: of the row that is being combined
  Point batch_;
  Expr first_row_, block_rows_, groups_;
  Expr first_place_, tile_places_;
  TileRange range_;
  Expr skips_; ///< whether the pass leaves tiles out: 0 or 1
  int pass_ = 0;
};

/// The region without what would make sums wait for others.
Region in_few_passes(const Region& region, StreamTakes takes) {
  return prepared_for_stream(with_label_sums(region), takes);
}

class StreamGenerator : public Generator {
public:
  std::string name() const override { return "stream"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const FoundStream found = find_stream(in_few_passes(region, StreamTakes::RoundedVectors),
                                          StreamTakes::RoundedVectors);
    if (!found.ok || !stream_refused(found.form).empty())
      return {};
    return stream_space(found.form, target,
                        target.unit(FragmentLayout::Tiles) != nullptr &&
                            by_tiles(region, target).reason.empty());
  }

  Lowered lower(const Region& given, const Schedule& schedule,
                const Target& target) const override {
    const bool tiles = schedule.mma == kMatrix;
    const StreamTakes takes = tiles ? StreamTakes::MatrixUnits : StreamTakes::RoundedVectors;
    const Region region = in_few_passes(given, takes);
    const FoundStream found = tiles ? by_tiles(given, target) : find_stream(region, takes);
    if (!found.ok)
      return {false, {}, found.reason};
    if (auto why = stream_refused(found.form); !why.empty())
      return {false, {}, why};
    const StreamBlocks blocks = stream_blocks(schedule, found.form, target);
    if (auto why = blocks_refused(schedule, blocks, target); !why.empty())
      return {false, {}, why};
    return {true, CpuStream(region, found.form, blocks, target).run(), ""};
  }

private:
  /// As a matrix unit takes it.
  static FoundStream by_tiles(const Region& given, const Target& target) {
    const Region region = in_few_passes(given, StreamTakes::MatrixUnits);
    FoundStream found = find_stream(region, StreamTakes::MatrixUnits);
    if (found.ok) {
      found.reason = stream_tiles_refused(region, found.form, target);
      found.ok = found.reason.empty();
    }
    return found;
  }
};

} // namespace

const Generator& stream_generator() {
  static const StreamGenerator generator;
  return generator;
}

} // namespace egret::kernel

#include "kernel/reduce_nest.h"

#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/nest.h"

#include "support/fail.h"

#include <algorithm>
#include <map>

namespace egret::kernel {

namespace {

/// Arithmetic of a point (in additions) from which a pass is a heavy one.
constexpr double kHeavy = 16;
/// Points of a window's row that are written out.
constexpr std::int64_t kUnrolled = 8;

class ReduceNest {
public:
  ReduceNest(const Region& region, const Passes& passes, const ReduceShape& shape)
      : r_(region), p_(passes), shape_(shape), b_(region.name), e_(b_, region),
        flops_(flops_by_pass(region, passes)) {
    for (int a : p_.parallel)
      if (a != shape.tile_axis)
        outer_.push_back(a);
    // Values are kept in a worker's memory, which pieces of one row do not share.
    if (shape.pieces == 1)
      for (const Kept& k : worth_keeping(region, passes, shape.keep_flops))
        keep(k);
    for (const StagedWindow& w : shape.windows.list)
      make_copy(w);
  }

  KernelProgram run() {
    if (is_empty(r_, p_.parallel))
      return b_.finish(Expr(1));
    if (copy_windows(true, Point{std::vector<Expr>(r_.axes.size()), 1, {}}))
      b_.barrier();
    if (!shape_.windows.inner.empty())
      around_windows();
    else if (shape_.pieces == 1)
      tiles({}, [&](const std::vector<Point>& tile, std::span<const Expr>) { whole(tile); });
    else
      in_pieces();
    Expr work = points_of(r_, p_.parallel) * points_of(r_, p_.reduced);
    double flops = 1;
    for (const Stage& s : r_.stages)
      flops += flops_of(s);
    return b_.finish(useful_workers(iterations_, work * Expr(std::int64_t(flops))));
  }

private:
  /// The running states of one point and one copy: [reduction of the pass][yield].
  using Copy = std::vector<std::vector<StateVariables>>;

  // --- Tiles of parallel points
  // -------------------------------------------------------------------------------------------------

  /// All tiles, with the coordinates of `extra` axes besides, shared out among the workers.
  void tiles(std::vector<Expr> extra,
             const std::function<void(const std::vector<Point>&, std::span<const Expr>)>& body) {
    std::vector<Expr> extents;
    for (int a : outer_)
      extents.push_back(r_.axes[a].extent);
    bool chunked = false;
    Expr chunk(shape_.chunk);
    if (shape_.tile_axis >= 0) {
      chunked = !proves_less_equal(r_.axes[shape_.tile_axis].extent, chunk);
      if (chunked)
        extents.push_back(ceildiv(r_.axes[shape_.tile_axis].extent, chunk));
    }
    std::size_t parallel = extents.size();
    extents.insert(extents.end(), extra.begin(), extra.end());
    Expr iterations(1);
    for (const Expr& e : extents)
      iterations = iterations * e;
    iterations_ = max(iterations_, iterations);
    core_nest(b_, extents, [&](std::span<const Expr> at) {
      Point p;
      p.at.resize(r_.axes.size());
      for (std::size_t i = 0; i < outer_.size(); ++i)
        p.at[outer_[i]] = at[i];
      std::span<const Expr> rest = at.subspan(parallel);
      if (shape_.tile_axis < 0) {
        body({p}, rest);
        return;
      }
      const Expr& extent = r_.axes[shape_.tile_axis].extent;
      Expr begin = chunked ? at[parallel - 1] * chunk : Expr(0);
      Expr end = chunked ? min(extent, begin + chunk) : extent;
      along_tiles(p, begin, end, [&](const std::vector<Point>& tile) { body(tile, rest); });
    });
  }

  /// The tiles of [begin, end) of the tile axis.
  void along_tiles(const Point& p, const Expr& begin, const Expr& end,
                   const std::function<void(const std::vector<Point>&)>& body) {
    const Expr& extent = r_.axes[shape_.tile_axis].extent;
    vector_loop(b_, begin, end, extent, shape_.lanes_parallel ? shape_.lanes : 1, shape_.points,
                [&](std::span<const Position> positions) {
                  std::vector<Point> tile(positions.size(), p);
                  for (std::size_t i = 0; i < positions.size(); ++i) {
                    tile[i].at[shape_.tile_axis] = positions[i].at;
                    tile[i].lanes = shape_.lanes_parallel ? shape_.lanes : 1;
                    tile[i].mask = positions[i].mask;
                  }
                  body(tile);
                });
  }

  // --- Copied windows
  // ----------------------------------------------------------------------------------------------------------

  void make_copy(const StagedWindow& window) {
    const DType dtype = compute_dtype(r_.operands[window.operand].dtype);
    const std::string name = fmt::format("window{}", copies_.size());
    const Expr elements(window.elements());
    copies_.push_back(window.whole ? b_.workspace(name, dtype, elements)
                                   : b_.worker_memory(name, dtype, elements));
  }

  /// Says what the loads of copied operands give at a point.
  void provide_copies(const Point& p) {
    for (std::size_t i = 0; i < copies_.size(); ++i) {
      const StagedWindow& window = shape_.windows.list[i];
      const StagedWindow::Reader& reader = window.readers[0];
      const Stage& stage = r_.stages[reader.stage];
      const auto element = element_at(r_, stage, stage.loads[reader.load], p);
      ensure(element.has_value(), "region {}: a copied window that depends on data", r_.name);
      e_.provide_load(window.operand, *element,
                      b_.load(copies_[i], window.offset(p), p.lanes, p.mask));
    }
  }

  /// Copies those that are the same for all points, or the others. False: there are none.
  bool copy_windows(bool whole, const Point& outside) {
    bool any = false;
    for (std::size_t i = 0; i < copies_.size(); ++i)
      if (shape_.windows.list[i].whole == whole) {
        copy_window(e_, shape_.windows.list[i], copies_[i], outside, shape_.lanes);
        any = true;
      }
    return any;
  }

  /// Workers share the axes outside of the copies; each goes through those inside by itself.
  void around_windows() {
    std::vector<int> outside, inside;
    std::vector<Expr> shared, own;
    for (int a : outer_)
      if (contains(shape_.windows.inner, a)) {
        inside.push_back(a);
        own.push_back(r_.axes[a].extent);
      } else {
        outside.push_back(a);
        shared.push_back(r_.axes[a].extent);
      }
    iterations_ = points_of(r_, outside);
    core_loop(b_, shared, [&](std::span<const Expr> at) {
      Point p;
      p.at.resize(r_.axes.size());
      for (std::size_t i = 0; i < outside.size(); ++i)
        p.at[outside[i]] = at[i];
      copy_windows(false, p);
      serial_loops(b_, own, [&](std::span<const Expr> rest) {
        for (std::size_t i = 0; i < inside.size(); ++i)
          p.at[inside[i]] = rest[i];
        const Expr& extent = r_.axes[shape_.tile_axis].extent;
        along_tiles(p, Expr(0), extent, [&](const std::vector<Point>& tile) { whole(tile); });
      });
    });
  }

  // --- One tile from the first pass to the last
  // ----------------------------------------------------------------------------------

  void whole(const std::vector<Point>& tile) {
    for (int pass = 0; pass < p_.count; ++pass) {
      auto states = run_pass(pass, tile, Expr(0), Expr(0));
      for (std::size_t i = 0; i < tile.size(); ++i)
        for (std::size_t s = 0; s < p_.reductions[pass].size(); ++s)
          finish(p_.reductions[pass][s], tile[i], states[i][s]);
    }
    for (const auto& [stage, kept] : kept_)
      e_.forget_memory(stage);
    point_outputs(tile);
  }

  void point_outputs(const std::vector<Point>& tile) {
    for (const Point& p : tile) {
      std::vector<Value> values;
      for (int o : p_.point_outputs)
        values.push_back(e_.result(r_.outputs[o].stage, r_.outputs[o].component, p));
      for (std::size_t i = 0; i < values.size(); ++i)
        e_.store(p_.point_outputs[i], p, values[i], CachePolicy::Default);
    }
  }

  void finish(int stage, const Point& p, const std::vector<State>& yields) {
    std::vector<Value> values;
    for (std::size_t y = 0; y < yields.size(); ++y)
      values.push_back(accumulator(stage, int(y)).finish(yields[y]));
    e_.provide(stage, p, values);
  }

  Accumulator accumulator(int stage, int yield) {
    return Accumulator(e_, stage, yield, shape_.arithmetic, points_of(r_, p_.reduced));
  }

  /// One pass over the reduced axes, over [begin, end) of the split axis when there are pieces.
  /// Gives the combined states: [point of the tile][reduction of the pass][yield].
  std::vector<std::vector<std::vector<State>>> run_pass(int pass, const std::vector<Point>& tile,
                                                        const Expr& begin, const Expr& end) {
    int copies = flops_[pass] > kHeavy ? shape_.heavy_copies : shape_.copies;
    std::vector<std::vector<Copy>> running(tile.size());
    for (auto& of_point : running)
      for (int c = 0; c < copies; ++c)
        of_point.push_back(start(pass));
    visit(tile[0], begin, end, copies,
          [&](const Point& at, const std::vector<int>& loops, std::span<const Position> positions) {
            std::vector<std::vector<Point>> points;
            for (const Point& row : tile)
              points.push_back(inside(row, at, loops, positions));
            step(pass, points, [&](std::size_t row, std::size_t copy) {
              add(pass, points[row][copy], running[row][copy]);
            });
          });
    return combine(pass, running);
  }

  /// The loops over the reduced axes, over [begin, end) of the split axis when there are pieces;
  /// `copies` positions of the inner axis at a time.
  void visit(const Point& first, const Expr& begin, const Expr& end, int copies,
             const std::function<void(const Point&, const std::vector<int>&,
                                      std::span<const Position>)>& body) {
    std::vector<int> loops;
    for (int a : p_.reduced)
      if (a != shape_.inner_axis)
        loops.push_back(a);
    Point at = first;
    std::function<void(std::size_t)> open = [&](std::size_t i) {
      auto range = [&](int axis) {
        const Expr& extent = r_.axes[axis].extent;
        return shape_.pieces > 1 && axis == shape_.split_axis ? std::pair{begin, end}
                                                              : std::pair{Expr(0), extent};
      };
      if (i < loops.size()) {
        auto [from, to] = range(loops[i]);
        b_.loop(from, to, Expr(1), r_.axes[loops[i]].extent, Bind::Serial, [&](const Expr& v) {
          at.at[loops[i]] = v;
          open(i + 1);
        });
        return;
      }
      auto [from, to] = range(shape_.inner_axis);
      if (unrolls()) {
        b_.loop(from, to, Expr(1), to, Bind::Unroll, [&](const Expr& v) {
          const std::vector<Position> one{{v, {}}};
          body(at, loops, one);
        });
        return;
      }
      vector_loop(b_, from, to, r_.axes[shape_.inner_axis].extent,
                  shape_.lanes_parallel ? 1 : shape_.lanes, copies,
                  [&](std::span<const Position> positions) { body(at, loops, positions); });
    };
    open(0);
  }

  /// A row of a copied window is straight code: its loads are neighbours, its weights numbers.
  bool unrolls() const {
    const auto extent = r_.axes[shape_.inner_axis].extent.constant();
    return !copies_.empty() && shape_.lanes_parallel && shape_.pieces == 1 && extent &&
           *extent <= kUnrolled;
  }

  /// The points of one row at some positions of the inner axis.
  std::vector<Point> inside(const Point& row, const Point& at, const std::vector<int>& loops,
                            std::span<const Position> positions) const {
    std::vector<Point> out;
    for (const Position& position : positions) {
      Point p = row;
      for (int a : loops)
        p.at[a] = at.at[a];
      p.at[shape_.inner_axis] = position.at;
      if (!shape_.lanes_parallel) {
        p.lanes = shape_.lanes;
        p.mask = position.mask;
      }
      out.push_back(std::move(p));
    }
    return out;
  }

  /// What a point adds to the reductions of a pass.
  void add(int pass, const Point& p, const Copy& running) {
    for (std::size_t s = 0; s < p_.reductions[pass].size(); ++s) {
      int stage = p_.reductions[pass][s];
      for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y) {
        const StateVariables& state = running[s][y];
        state.write(
            accumulator(stage, int(y)).add(state.read(), p, place_of(p), !shape_.lanes_parallel));
      }
    }
  }

  /// The body of a pass: points[row][copy]; `reduce` adds one to its row's reductions.
  void step(int pass, const std::vector<std::vector<Point>>& points,
            const std::function<void(std::size_t row, std::size_t copy)>& reduce) {
    struct Pending {
      int output;
      const Point* point;
      Value value;
    };
    std::vector<Pending> stores;
    for (std::size_t row = 0; row < points.size(); ++row) {
      remember_row(pass, int(row));
      for (std::size_t c = 0; c < points[row].size(); ++c) {
        const Point& p = points[row][c];
        provide_copies(p);
        for (auto& [stage, kept] : kept_)
          if (kept.pass == pass)
            save(stage, kept.buffers[row], p);
        reduce(row, c);
        for (int o : p_.outputs[pass])
          stores.push_back({o, &p, e_.result(r_.outputs[o].stage, r_.outputs[o].component, p)});
      }
    }
    // Everything is read before anything is written: an output may lie in the memory of an operand.
    for (const Pending& s : stores)
      e_.store(s.output, *s.point, s.value, shape_.store_policy);
  }

  Expr place_of(const Point& p) const {
    Expr place(0);
    for (int a : p_.reduced)
      place = place * r_.axes[a].extent + p.at[a];
    return place;
  }

  Copy start(int pass) {
    Copy running;
    for (int stage : p_.reductions[pass]) {
      running.emplace_back();
      for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y)
        running.back().emplace_back(b_, accumulator(stage, int(y)).identity(shape_.lanes));
    }
    return running;
  }

  /// The copies of each state combined in pairs, and its lanes when they lie along the reduced
  /// axis.
  std::vector<std::vector<std::vector<State>>>
  combine(int pass, const std::vector<std::vector<Copy>>& running) {
    std::vector<std::vector<std::vector<State>>> out;
    for (const auto& of_point : running) {
      out.emplace_back();
      for (std::size_t s = 0; s < p_.reductions[pass].size(); ++s) {
        int stage = p_.reductions[pass][s];
        out.back().emplace_back();
        for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y) {
          Accumulator acc = accumulator(stage, int(y));
          std::vector<State> states;
          for (const Copy& copy : of_point)
            states.push_back(copy[s][y].read());
          while (states.size() > 1) {
            std::vector<State> half;
            for (std::size_t i = 0; i + 1 < states.size(); i += 2)
              half.push_back(acc.merge(states[i], states[i + 1]));
            if (states.size() % 2)
              half.push_back(states.back());
            states = std::move(half);
          }
          out.back().back().push_back(shape_.lanes_parallel ? states[0]
                                                            : acc.across_lanes(states[0]));
        }
      }
    }
    return out;
  }

  // --- Values kept from pass to pass
  // ---------------------------------------------------------------------------------------------

  struct Keeping {
    int pass;
    std::vector<std::vector<int>> buffers; ///< by point of the tile, by component
  };

  void keep(const Kept& k) {
    const Stage& stage = r_.stages[k.stage];
    Keeping keeping{k.pass, {}};
    Expr elements = points_of(r_, p_.reduced);
    if (shape_.lanes_parallel)
      elements = elements * Expr(shape_.lanes);
    for (int i = 0; i < shape_.points; ++i) {
      keeping.buffers.emplace_back();
      for (std::size_t c = 0; c < stage.yields.size(); ++c)
        keeping.buffers.back().push_back(
            b_.worker_memory(fmt::format("kept{}_{}_{}", k.stage, c, i),
                             compute_dtype(stage.yield_dtypes[c]), elements));
    }
    kept_[k.stage] = std::move(keeping);
  }

  Expr kept_offset(const Point& p) const {
    Expr offset = place_of(p);
    return shape_.lanes_parallel ? offset * Expr(shape_.lanes) + lane_variable(shape_.lanes)
                                 : offset;
  }

  /// Makes the kept values of one point of the tile those that results are read from.
  void remember_row(int pass, int row) {
    for (const auto& [stage, kept] : kept_)
      if (kept.pass < pass)
        e_.provide_memory(stage, kept.buffers[row],
                          [this](const Point& p) { return kept_offset(p); });
  }

  void save(int stage, const std::vector<int>& buffers, const Point& p) {
    std::vector<Value> values = e_.yields(stage, p);
    e_.provide(stage, p, values);
    for (std::size_t c = 0; c < values.size(); ++c)
      b_.store(buffers[c], kept_offset(p), b_.splat(values[c].id, p.lanes), p.mask);
  }

  // --- Pieces
  // --------------------------------------------------------------------------------------------------------------------

  void in_pieces() {
    const Expr& extent = r_.axes[shape_.split_axis].extent;
    bool stored_points = false;
    // Workers read the operand of a point for each of its pieces, so an output in its memory waits
    // for all of them.
    bool points_wait = std::any_of(p_.point_outputs.begin(), p_.point_outputs.end(),
                                   [&](int o) { return r_.outputs[o].alias >= 0; });
    for (int pass = 0; pass < p_.count; ++pass) {
      bool reduces = !p_.reductions[pass].empty();
      for (int stage : p_.reductions[pass])
        make_partials(stage);
      tiles({Expr(shape_.pieces)}, [&](const std::vector<Point>& tile, std::span<const Expr> at) {
        const Expr& number = at[0];
        recall(pass, tile);
        Expr begin = number * Expr(shape_.piece);
        auto states = run_pass(pass, tile, begin, min(extent, begin + Expr(shape_.piece)));
        for (std::size_t i = 0; i < tile.size(); ++i)
          for (std::size_t s = 0; s < p_.reductions[pass].size(); ++s)
            store_partial(p_.reductions[pass][s], tile[i], number, states[i][s]);
        if (!reduces && !points_wait)
          b_.when({{number, Expr(0), Expr(1)}}, [&] { point_outputs(tile); });
      });
      stored_points = !reduces && !points_wait;
      if (pass + 1 < p_.count || !(p_.point_outputs.empty() || stored_points))
        b_.barrier();
    }
    if (!stored_points && !p_.point_outputs.empty())
      tiles({}, [&](const std::vector<Point>& tile, std::span<const Expr>) {
        recall(p_.count, tile);
        point_outputs(tile);
      });
  }

  void make_partials(int stage) {
    Expr elements = points_of(r_, p_.parallel) * Expr(shape_.pieces);
    for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y)
      partials_[stage].push_back(accumulator(stage, int(y)).workspaces(elements));
  }

  /// Partial results lie so that a vector of them is contiguous: of points with lanes on the
  /// parallel axis, of pieces else.
  Expr partial_offset(const Point& p, const Expr& number) const {
    Expr flat(0);
    for (int a : outer_)
      flat = flat * r_.axes[a].extent + p.at[a];
    if (shape_.lanes_parallel) {
      flat = flat * Expr(shape_.pieces) + number;
      return flat * r_.axes[shape_.tile_axis].extent + p.at[shape_.tile_axis];
    }
    if (shape_.tile_axis >= 0)
      flat = flat * r_.axes[shape_.tile_axis].extent + p.at[shape_.tile_axis];
    return flat * Expr(shape_.pieces) + number;
  }

  void store_partial(int stage, const Point& p, const Expr& number,
                     const std::vector<State>& yields) {
    for (std::size_t y = 0; y < yields.size(); ++y)
      store_state(b_, partials_[stage][y], partial_offset(p, number), yields[y], p.mask);
  }

  /// Combines the pieces of all reductions before `pass`, in order, and provides their results at
  /// the points of the tile.
  void recall(int pass, const std::vector<Point>& tile) {
    for (int earlier = 0; earlier < pass; ++earlier)
      for (int stage : p_.reductions[earlier])
        for (const Point& p : tile) {
          std::vector<State> yields;
          for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y)
            yields.push_back(combine_pieces(stage, int(y), p));
          finish(stage, p, yields);
        }
  }

  State combine_pieces(int stage, int yield, const Point& p) {
    Accumulator acc = accumulator(stage, yield);
    int lanes = shape_.lanes;
    const std::vector<int>& buffers = partials_[stage][yield];
    const StateVariables all(b_, acc.identity(lanes));
    Expr count(shape_.pieces);
    vector_loop(b_, Expr(0), count, count, shape_.lanes_parallel ? 1 : lanes, 1,
                [&](std::span<const Position> at) {
                  std::vector<Guard> mask = shape_.lanes_parallel ? p.mask : at[0].mask;
                  State part = load_state(b_, buffers, partial_offset(p, at[0].at), lanes, mask);
                  all.write(acc.merge(all.read(), acc.where(at[0].mask, part)));
                });
    return shape_.lanes_parallel ? all.read() : acc.across_lanes(all.read());
  }

  const Region& r_;
  const Passes& p_;
  const ReduceShape& shape_;
  ProgramBuilder b_;
  Emitter e_;
  std::vector<double> flops_; ///< by pass
  std::vector<int> outer_;    ///< parallel axes but the tile axis
  std::vector<int> copies_;   ///< buffers, by staged window
  std::map<int, Keeping> kept_;
  std::map<int, std::vector<std::vector<int>>> partials_; ///< by stage: [yield][part of the state]
  Expr iterations_ = Expr(1);
};

} // namespace

KernelProgram lower_reduction(const Region& region, const Passes& passes,
                              const ReduceShape& shape) {
  return ReduceNest(region, passes, shape).run();
}

} // namespace egret::kernel

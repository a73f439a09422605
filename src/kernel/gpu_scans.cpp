// Scans along one axis on a GPU. Threads lie along the axis, where memory is contiguous along it: a
// row is scanned by a block or by part of a warp, tile after tile; or each thread has a row (or a
// vector of them) of its own. Where rows are few, the axis is cut into pieces: blocks combine what
// each piece has, meet at a barrier of the grid, and scan each piece from the combination of those
// before it, while it is still in the second cache.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_row_facts.h"
#include "kernel/gpu_scan_space.h"
#include "kernel/knobs.h"
#include "kernel/map_axes.h"
#include "kernel/scan_form.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Slices that are combined as one: about the square root of their number, a multiple of a warp's
/// lanes.
std::int64_t pieces_of_group(std::int64_t pieces) {
  std::int64_t size = 32;
  while (size * size < pieces)
    size += 32;
  return size;
}

struct GpuScanShape {
  int threads = 256;
  int group = 256;      ///< threads of a row along the axis: all, or a power of two up to 32
  int lanes = 1;        ///< of an access
  int vector_axis = -1; ///< the scanned axis, or the one along which lanes are rows of their own
  int copies = 4;       ///< along the axis: accesses of a thread that are under way at a time
  CachePolicy store_policy = CachePolicy::Default;
  Arithmetic arithmetic;
  int blocks_per_core = 0;
  bool one_pass = false; ///< a piece waits for what those before it have, and is read once
};

class GpuScans {
public:
  GpuScans(const Region& region, const ScanForm& form, const GpuScanShape& shape,
           const ScanCut& cut)
      : r_(region), f_(form), s_(shape), cut_(cut), pieces_(region, form, cut, shape.vector_axis),
        b_(region.name), e_(b_, region), states_(e_, form, shape.arithmetic),
        along_(shape.vector_axis == form.axis),
        block_(along_ && shape.group == shape.threads && shape.group > 32),
        extent_(region.axes[std::size_t(form.axis)].extent), t_(thread_variable(shape.threads)),
        in_group_(along_ ? floormod(t_, shape.group) : Expr(0)) {}

  KernelProgram run() {
    Launch launch;
    launch.threads = s_.threads;
    launch.blocks_per_core = s_.blocks_per_core;
    launch.resident = !cut_.whole();
    std::vector<int> all = f_.outer;
    all.push_back(f_.axis);
    if (!is_empty(r_, all)) {
      if (block_) {
        warps_ = states_.shared("warps", places());
        before_ = states_.shared("before", places() + 1);
      }
      if (cut_.whole())
        whole();
      else
        s_.one_pass ? in_one_pass() : in_pieces();
    }
    launch.workers = max(Expr(1), blocks_);
    return b_.finish(launch);
  }

private:
  std::int64_t places() const { return std::int64_t(s_.copies) * (s_.threads / 32); }

  /// All rows, with the coordinate of an extra axis besides, dealt to blocks, groups or threads.
  void rows(const std::vector<Expr>& extra,
            const std::function<void(const Point&, std::span<const Expr>)>& body) {
    std::vector<Expr> extents;
    for (int a : f_.outer)
      if (a != s_.vector_axis)
        extents.push_back(r_.axes[std::size_t(a)].extent);
    const std::size_t outer = extents.size();
    extents.insert(extents.end(), extra.begin(), extra.end());
    // Threads beside each other have rows beside each other.
    if (!along_)
      extents.push_back(ceildiv(r_.axes[std::size_t(s_.vector_axis)].extent, Expr(s_.lanes)));
    Expr count(1);
    for (const Expr& e : extents)
      count = count * e;
    const int each = along_ ? s_.threads / s_.group : s_.threads;
    const Expr blocks = ceildiv(count, Expr(each));
    blocks_ = max(blocks_, blocks);
    b_.grid_loop(blocks, [&](const Expr& block) {
      const Expr mine = along_ ? floordiv(t_, s_.group) : t_;
      const Expr flat = block * Expr(each) + mine;
      b_.when({{flat, Expr(0), count}}, [&] {
        const std::vector<Expr> at = unflatten(flat, extents);
        Point p;
        p.at.resize(r_.axes.size());
        std::size_t i = 0;
        for (int a : f_.outer)
          if (a != s_.vector_axis)
            p.at[std::size_t(a)] = at[i++];
        if (!along_) {
          const Expr& extent = r_.axes[std::size_t(s_.vector_axis)].extent;
          const Expr first = at.back() * Expr(s_.lanes);
          p.lanes = s_.lanes;
          p.at[std::size_t(s_.vector_axis)] = first + lane();
          if (extent.divisor() % s_.lanes != 0)
            p.mask.push_back({first + lane(), Expr(0), extent});
        }
        body(p, std::span(at).subspan(outer, extra.size()));
      });
    });
  }

  Expr lane() const { return s_.lanes > 1 ? lane_variable(s_.lanes) : Expr(0); }

  /// The points of a row from `begin` to `end` that this thread has, `copies` accesses at a time.
  void visit(const Point& row, const Expr& begin, const Expr& end, int copies,
             const std::function<void(const std::vector<Point>&)>& body) {
    const std::int64_t each = along_ ? std::int64_t(s_.group) * s_.lanes : 1, tile = each * copies;
    const auto points = [&](const Expr& base, std::int64_t count, bool masked) {
      std::vector<Point> points;
      for (std::int64_t c = 0; c < count; ++c) {
        Point p = row;
        const Expr first = base + Expr(c * each) + (along_ ? in_group_ * Expr(s_.lanes) : Expr(0));
        p.at[std::size_t(f_.axis)] = along_ ? first + lane() : first;
        if (along_)
          p.lanes = s_.lanes;
        if (masked)
          p.mask.push_back({even_ ? first : first + lane(), Expr(0), end});
        points.push_back(std::move(p));
      }
      body(points);
    };
    // Tiles by their numbers, so that it shows how their places are aligned.
    const Expr tiles = floordiv(end - begin, Expr(tile)), whole = begin + tiles * Expr(tile);
    b_.loop(Expr(0), tiles, Expr(1), floordiv(extent_, Expr(tile)) + Expr(1), Bind::Serial,
            [&](const Expr& i) { points(begin + i * Expr(tile), copies, false); });
    if (along_)
      b_.when({{whole, Expr(0), end}}, [&] { points(whole, copies, true); });
    else
      b_.loop(whole, end, Expr(1), extent_ + Expr(1), Bind::Serial,
              [&](const Expr& at) { points(at, 1, false); });
  }

  void whole() {
    rows({}, [&](const Point& row, std::span<const Expr>) {
      scan(row, Expr(0), extent_, states_.identities(along_ ? 1 : s_.lanes));
    });
  }

  /// Scans [begin, end) of a row, which begins with `carry`.
  void scan(const Point& row, const Expr& begin, const Expr& end, const ScanStates& carry) {
    const RunningVariables running(b_, carry);
    visit(row, begin, end, s_.copies, [&](const std::vector<Point>& points) {
      std::vector<ScanStates> made;
      for (const Point& p : points)
        made.push_back(states_.terms(p));
      const ScanStates before = running.read();
      running.write(!along_  ? by_thread(made, before)
                    : block_ ? by_block(made, before)
                             : by_group(made, before));
      states_.deliver(points, made, s_.store_policy);
    });
  }

  // Each of these makes of the terms at a thread's points what the scan has there, and gives what
  // it has behind all points of the group.

  ScanStates by_thread(std::vector<ScanStates>& points, ScanStates state) {
    for (ScanStates& p : points)
      p = state = states_.merge(state, p);
    return state;
  }

  ScanStates by_group(std::vector<ScanStates>& points, ScanStates state) {
    for (ScanStates& p : points) {
      const ScanStates mine = states_.up_to_lane(p), total = states_.last_lane(mine);
      if (s_.group == 1) {
        p = states_.merge(state, mine);
        state = states_.merge(state, total);
        continue;
      }
      const ScanStatesOf::OfThreads threads = states_.of_threads(total, s_.group, in_group_);
      p = states_.merge(states_.merge(state, threads.before), mine);
      state = states_.merge(state, threads.all);
    }
    return state;
  }

  ScanStates by_block(std::vector<ScanStates>& points, const ScanStates& state) {
    const int warps = s_.threads / 32;
    const Expr warp = floordiv(t_, 32), in_warp = floormod(t_, 32);
    std::vector<ScanStates> threads;
    for (std::size_t c = 0; c < points.size(); ++c) {
      points[c] = states_.up_to_lane(points[c]);
      const ScanStates total = states_.last_lane(points[c]);
      threads.push_back(states_.before_thread(total, 32, in_warp));
      states_.store(warps_, Expr(std::int64_t(c) * warps) + warp,
                    states_.merge(threads.back(), total), {{in_warp, Expr(31), Expr(32)}});
    }
    b_.barrier();
    // The first warp scans what all warps have, one copy after the other.
    const Expr places(this->places());
    b_.when({{warp, Expr(0), Expr(1)}}, [&] {
      const ScanStates mine = states_.load(warps_, in_warp, 1, {{in_warp, Expr(0), places}});
      const ScanStates before = states_.before_thread(mine, 32, in_warp);
      states_.store(before_, in_warp, before, {{in_warp, Expr(0), places}});
      states_.store(before_, places, states_.merge(before, mine),
                    {{in_warp, places - Expr(1), places}});
    });
    b_.barrier();
    for (std::size_t c = 0; c < points.size(); ++c) {
      const ScanStates earlier = states_.load(before_, Expr(std::int64_t(c) * warps) + warp, 1);
      points[c] =
          states_.merge(states_.merge(states_.merge(state, earlier), threads[c]), points[c]);
    }
    return states_.merge(state, states_.load(before_, places, 1));
  }

  /// What [begin, end) of a row has, in all its threads.
  ScanStates total(const Point& row, const Expr& begin, const Expr& end) {
    const int copies = along_ ? s_.copies : 1;
    std::vector<RunningVariables> running;
    for (int c = 0; c < copies; ++c)
      running.emplace_back(b_, states_.identities(s_.lanes));
    visit(row, begin, end, s_.copies, [&](const std::vector<Point>& points) {
      std::vector<ScanStates> terms;
      for (const Point& p : points)
        terms.push_back(states_.terms(p));
      for (std::size_t c = 0; c < points.size(); ++c) {
        const RunningVariables& state = running[c % std::size_t(copies)];
        state.write(states_.merge(state.read(), terms[c]));
      }
    });
    ScanStates all = running[0].read();
    for (int c = 1; c < copies; ++c)
      all = states_.merge(all, running[std::size_t(c)].read());
    if (!along_)
      return all;
    all = states_.across_lanes(all);
    return s_.group > 1 ? across_row(all) : all;
  }

  /// What all threads of a row have.
  ScanStates across_row(const ScanStates& mine) {
    if (f_.commutes || s_.group <= 32)
      return states_.across_threads(mine, s_.group, in_group_);
    // In order: over each warp, then one warp after the other.
    const Expr warp = floordiv(t_, 32), in_warp = floormod(t_, 32);
    states_.store(warps_, warp, states_.across_threads(mine, 32, in_warp),
                  {{in_warp, Expr(0), Expr(1)}});
    b_.barrier();
    ScanStates all = states_.load(warps_, Expr(0), 1);
    for (int w = 1; w < s_.threads / 32; ++w)
      all = states_.merge(all, states_.load(warps_, Expr(w), 1));
    b_.barrier();
    return all;
  }

  // --- Pieces

  void in_pieces() {
    const Expr count = points_of(r_, f_.outer);
    totals_ = states_.workspaces("total", count * cut_.pieces);
    const bool groups = !(cut_.groups == Expr(1));
    if (groups)
      carried_ = states_.workspaces("carried", count * cut_.groups);
    const int counter = b_.counter("met", 2);
    b_.loop(Expr(0), cut_.groups, Expr(1), cut_.groups, Bind::Serial, [&](const Expr& group) {
      const auto pieces = [&](const std::function<void(const Point&, const Expr&)>& body) {
        rows({cut_.together}, [&](const Point& row, std::span<const Expr> at) {
          const Expr piece = group * cut_.together + at[0];
          b_.when({{piece, Expr(0), cut_.pieces}}, [&] { body(row, piece); });
        });
      };
      pieces([&](const Point& row, const Expr& piece) {
        states_.store(totals_, pieces_.place(row, cut_.pieces, piece),
                      total(row, pieces_.begin(piece), pieces_.end(piece)), once(row));
      });
      b_.grid_barrier(counter, Expr(0));
      pieces([&](const Point& row, const Expr& piece) {
        const ScanStates carry = before(row, group, piece);
        if (groups)
          pass_on(row, group, piece, carry);
        scan(row, pieces_.begin(piece), pieces_.end(piece), carry);
      });
    });
  }

  // --- One pass (decoupled look-back, Merrill and Garland 2016): a piece is a tile of a block's
  // threads. All blocks run at the same time and take pieces in order, so that the first piece that
  // is not published waits for nothing: a piece waits for what those before it have. Pieces are
  // combined by groups of about the square root of their number: the last one of a group publishes
  // what the group has, so that a piece reads the totals of its own group and of the groups before
  // it only. No published total depends on an earlier group, and all are combined in an order that
  // the pieces' numbers decide: floats have the same bits every time. The first warp awaits the
  // pieces while the others await the groups.

  void in_one_pass() {
    const std::int64_t rows = points_of(r_, f_.outer).value(), pieces = cut_.pieces.value();
    const std::int64_t count = rows * pieces, all_words = words_of_pass(rows, pieces);
    words_ = b_.counter("words", all_words);
    const int ended = b_.counter("ended", 1);
    earlier_ = states_.shared("earlier", s_.threads / 32);
    blocks_ = Expr(count);
    // What a piece waits for is mostly there when the block's next piece is under way: each turn
    // begins to load a piece, ends the one before it, and then scans its own.
    const std::vector<RowLoad> loads = scanned_loads();
    std::vector<std::vector<VarId>> loaded; // by copy and load
    std::vector<RunningVariables> scanned;  // by copy
    for (int c = 0; c < s_.copies; ++c) {
      loaded.emplace_back();
      for (const RowLoad& l : loads)
        loaded.back().push_back(
            b_.variable({r_.operands[std::size_t(l.load->number)].dtype, s_.lanes}));
      scanned.emplace_back(b_, states_.identities(s_.lanes));
    }
    const RunningVariables total(b_, states_.identities(1));
    const VarId before = b_.variable({DType::I32, 1});
    b_.set(before, b_.constant(Scalar::of(DType::I32, std::int64_t{-1})));
    const auto end_one_before = [&] {
      const Expr number = value_symbol(b_.read(before));
      std::vector<ScanStates> made;
      for (const RunningVariables& s : scanned)
        made.push_back(s.read());
      end_piece(piece_of_row(max(Expr(0), min(number, Expr(count - 1)))), made, total.read(), count,
                {{number, Expr(0), Expr(count)}});
    };
    b_.grid_loop(Expr(count), [&](const Expr& number) {
      const PieceOfRow at = piece_of_row(number);
      in_piece(at, [&](const std::vector<Point>& points) {
        for (std::size_t c = 0; c < points.size(); ++c)
          for (std::size_t l = 0; l < loads.size(); ++l)
            b_.set(loaded[c][l],
                   b_.load(e_.operand_buffer(loads[l].load->number),
                           element_at(r_, *loads[l].stage, *loads[l].load, points[c]).value(),
                           s_.lanes, points[c].mask));
      });
      end_one_before();
      in_piece(at, [&](const std::vector<Point>& points) {
        for (std::size_t c = 0; c < points.size(); ++c) {
          for (std::size_t l = 0; l < loads.size(); ++l)
            e_.provide_load(*loads[l].stage, *loads[l].load, points[c], b_.read(loaded[c][l]));
          scanned[c].write(states_.terms(points[c]));
        }
      });
      std::vector<ScanStates> made;
      for (const RunningVariables& s : scanned)
        made.push_back(s.read());
      const ScanStates all = by_block(made, states_.identities(1));
      b_.when({{t_, Expr(0), Expr(1)}}, [&] { states_.publish(words_, at.place, all); });
      for (std::size_t c = 0; c < made.size(); ++c)
        scanned[c].write(made[c]);
      total.write(all);
      b_.set(before, b_.index(number, DType::I32, 1));
    });
    end_one_before();
    b_.clear_flags(words_, all_words, ended);
  }

  /// What is scanned is made of, contiguous along the axis: every element once.
  std::vector<RowLoad> scanned_loads() const {
    std::vector<RowLoad> loads;
    std::vector<std::pair<int, Expr>> seen;
    std::vector<int> stages = f_.scans;
    for (std::size_t i = 0; i < stages.size(); ++i) {
      const Stage& stage = r_.stages[std::size_t(stages[i])];
      for (const Load& load : stage.loads) {
        if (load.source == Source::Stage && std::ranges::find(stages, load.number) == stages.end())
          stages.push_back(load.number);
        if (load.source != Source::Operand || !load.indirect.empty() || !load.map.is_total() ||
            stride_of(r_, stage, load, f_.axis) != 1)
          continue;
        const std::pair element{load.number, at_axes(r_, offset_of(r_, load), stage.axes)};
        if (std::ranges::find(seen, element) != seen.end())
          continue;
        seen.push_back(element);
        loads.push_back({&stage, &load});
      }
    }
    return loads;
  }

  /// A piece of a row; `place`: its number among those of all rows.
  struct PieceOfRow {
    Point row;
    Expr piece, place;
  };
  PieceOfRow piece_of_row(const Expr& number) const {
    std::vector<Expr> extents;
    for (int a : f_.outer)
      extents.push_back(r_.axes[std::size_t(a)].extent);
    extents.push_back(cut_.pieces);
    const std::vector<Expr> at = unflatten(number, extents);
    PieceOfRow found{{}, at.back(), {}};
    found.row.at.resize(r_.axes.size());
    for (std::size_t i = 0; i < f_.outer.size(); ++i)
      found.row.at[std::size_t(f_.outer[i])] = at[i];
    found.place = pieces_.place(found.row, cut_.pieces, found.piece);
    return found;
  }

  /// `body` for the points of a piece that this thread has: with masks at the end of the row.
  void in_piece(const PieceOfRow& at, const std::function<void(const std::vector<Point>&)>& body) {
    const auto points = [&](bool masked) {
      std::vector<Point> all;
      for (int c = 0; c < s_.copies; ++c) {
        Point p = at.row;
        const Expr first = at.piece * cut_.piece + Expr(std::int64_t(c) * s_.group * s_.lanes) +
                           in_group_ * Expr(s_.lanes);
        p.at[std::size_t(f_.axis)] = first + lane();
        p.lanes = s_.lanes;
        if (masked)
          p.mask.push_back({even_ ? first : first + lane(), Expr(0), extent_});
        all.push_back(std::move(p));
      }
      body(all);
    };
    const Expr whole = floordiv(extent_, cut_.piece);
    if (whole == cut_.pieces)
      points(false);
    else
      b_.either(
          {{at.piece, Expr(0), whole}}, [&] { points(false); }, [&] { points(true); });
  }

  /// Stores a piece that was scanned by itself, of which the whole has `all`, behind all others of
  /// its row. `count`: pieces of all rows. Where `is_piece` does not hold, it is the first one of
  /// all, which waits for nothing, and is not stored.
  void end_piece(const PieceOfRow& at, std::vector<ScanStates>& made, const ScanStates& all,
                 std::int64_t count, const std::vector<Guard>& is_piece) {
    const std::int64_t pieces = cut_.pieces.value(), size = pieces_of_group(pieces),
                       groups = (pieces + size - 1) / size;
    const Expr warp = floordiv(t_, 32), lane = floormod(t_, 32);
    const Expr group = floordiv(at.piece, Expr(size)), in_group = floormod(at.piece, Expr(size)),
               first = Expr(count) + pieces_.place(at.row, Expr(groups), Expr(0));
    b_.when({{warp, Expr(0), Expr(1)}}, [&] {
      const ScanStates before = awaited(at.place - in_group, in_group, lane, 32, size);
      if (groups > 1)
        b_.when({{t_, Expr(0), Expr(1)}, {in_group, Expr(size - 1), Expr(size)}},
                [&] { states_.publish(words_, first + group, states_.merge(before, all)); });
      states_.store(earlier_, Expr(0), before, {{lane, Expr(0), Expr(1)}});
    });
    if (groups > 1)
      b_.when({{warp, Expr(1), Expr(s_.threads / 32)}}, [&] {
        const ScanStates before = awaited(first, group, t_ - Expr(32), s_.threads - 32, groups);
        states_.store(earlier_, warp, before, {{lane, Expr(0), Expr(1)}});
      });
    b_.barrier();
    ScanStates carry = states_.identities(1);
    if (groups > 1)
      for (int w = 1; w < s_.threads / 32; ++w)
        carry = states_.merge(carry, states_.load(earlier_, Expr(w), 1));
    carry = states_.merge(carry, states_.load(earlier_, Expr(0), 1));
    for (ScanStates& m : made)
      m = states_.merge(carry, m);
    b_.when(is_piece, [&] {
      in_piece(at, [&](const std::vector<Point>& points) {
        states_.deliver(points, made, s_.store_policy);
      });
    });
  }

  /// Elements of the counter that holds what all pieces and their groups publish.
  std::int64_t words_of_pass(std::int64_t rows, std::int64_t pieces) {
    const std::int64_t size = pieces_of_group(pieces), groups = (pieces + size - 1) / size;
    return 2 * states_.words() * rows * (pieces + (groups > 1 ? groups : 0));
  }

  /// In each warp of `threads` threads, of which this one is number `thread`: what the warp's share
  /// of the `count` states (up to `most`) from `first` on combine to.
  ScanStates awaited(const Expr& first, const Expr& count, const Expr& thread, std::int64_t threads,
                     std::int64_t most) {
    const std::int64_t each = (most + threads - 1) / threads;
    const RunningVariables sum(b_, states_.identities(1));
    b_.loop(Expr(0), Expr(each), Expr(1), Expr(each), Bind::Serial, [&](const Expr& i) {
      const Expr number = thread * Expr(each) + i;
      sum.write(states_.merge(sum.read(),
                              states_.await(words_, first + number, {{number, Expr(0), count}})));
    });
    return states_.across_threads(sum.read(), 32, floormod(t_, 32));
  }

  /// The mask of what one thread of a row stores for all.
  std::vector<Guard> once(const Point& row) const {
    std::vector<Guard> mask = row.mask;
    if (along_ && s_.group > 1)
      mask.push_back({in_group_, Expr(0), Expr(1)});
    return mask;
  }

  /// All that comes before a piece of a row: what comes before its group of pieces, and the pieces
  /// of the group before it. The threads of a row share those out.
  ScanStates before(const Point& row, const Expr& group, const Expr& piece) {
    const int lanes = along_ ? 1 : s_.lanes;
    const Expr first = group * cut_.together;
    const RunningVariables pieces(b_, states_.identities(lanes));
    const Expr step(along_ ? s_.group : 1);
    b_.loop(Expr(0), piece - first, step, cut_.pieces + step, Bind::Serial, [&](const Expr& i) {
      const Expr number = first + i + in_group_;
      std::vector<Guard> mask = row.mask;
      if (along_ && s_.group > 1)
        mask.push_back({number, Expr(0), piece});
      pieces.write(states_.merge(
          pieces.read(),
          states_.load(totals_, pieces_.place(row, cut_.pieces, number), lanes, mask)));
    });
    ScanStates all = pieces.read();
    if (along_ && s_.group > 1)
      all = across_row(all);
    if (carried_.empty())
      return all;
    const RunningVariables earlier(b_, states_.identities(lanes));
    b_.when({{group, Expr(1), cut_.groups}}, [&] {
      earlier.write(
          states_.load(carried_, pieces_.place(row, cut_.groups, group), lanes, row.mask));
    });
    return states_.merge(earlier.read(), all);
  }

  /// What comes before the next group is made beside the last piece of this one.
  void pass_on(const Point& row, const Expr& group, const Expr& piece, const ScanStates& carry) {
    const Expr next = group + Expr(1);
    b_.when(pieces_.ends_group(piece, group), [&] {
      const ScanStates mine = states_.load(totals_, pieces_.place(row, cut_.pieces, piece),
                                           along_ ? 1 : s_.lanes, row.mask);
      states_.store(carried_, pieces_.place(row, cut_.groups, next), states_.merge(carry, mine),
                    once(row));
    });
  }

  const Region& r_;
  const ScanForm& f_;
  const GpuScanShape& s_;
  const ScanCut& cut_;
  ScanPieces pieces_;
  ProgramBuilder b_;
  Emitter e_;
  ScanStatesOf states_;
  bool along_; ///< threads lie along the scanned axis
  bool block_; ///< all threads of a block have one row
  Expr extent_, t_;
  Expr in_group_; ///< this thread's place along the row
  /// Whether an access lies in the axis, and in a piece, with all its lanes or none.
  bool even_ =
      extent_.divisor() % s_.lanes == 0 && (cut_.whole() || cut_.piece.divisor() % s_.lanes == 0);
  ScanStatesOf::Buffers warps_, before_, earlier_; ///< in shared memory
  int words_ = -1;                                 ///< what is published: a counter
  ScanStatesOf::Buffers totals_, carried_;
  Expr blocks_ = Expr(1);
};

constexpr Knob kGpuScansKnobs[] = {
    {"threads", 32, 1024, 32}, {"group", 1, 1024},       {"copies", 1, 8}, {"lanes", 1, 16},
    {"piece", 0, 1 << 30},     {"together", 0, 1 << 20}, {"onepass", 0, 1}};

class GpuScansGenerator : public Generator {
public:
  std::string name() const override { return "gpu_scans"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const FoundScan found = find_scan(region);
    if (!found.ok)
      return {};
    std::vector<Schedule> out = gpu_scan_schedules(region, found.form, target);
    const CachePolicy policy = gpu_store_policy(region, target);
    for (Schedule& s : out) {
      s.generator = name();
      s.store_policy = policy;
    }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    const FoundScan found = find_scan(region);
    if (!found.ok)
      return {false, {}, found.reason};
    if (auto why = refused_settings(schedule, target, kGpuScansKnobs); !why.empty())
      return {false, {}, why};
    GpuScanShape shape;
    shape.threads = int(schedule.knob("threads", 256));
    if (auto why = gpu_threads_refused(shape.threads); !why.empty())
      return {false, {}, why};
    shape.vector_axis = gpu_scan_axis(region, found.form);
    shape.group = int(schedule.knob("group", shape.threads));
    shape.copies = int(schedule.knob("copies", 4));
    shape.lanes = int(schedule.knob("lanes", 1));
    shape.store_policy = schedule.store_policy;
    shape.arithmetic = arithmetic_of(target);
    shape.blocks_per_core = schedule.blocks_per_core;
    if (power_of_two_upto(shape.lanes) != shape.lanes)
      return {false, {}, "lanes are no power of two"};
    if (shape.group != shape.threads &&
        (shape.group > 32 || power_of_two_upto(shape.group) != shape.group))
      return {false, {}, "a row's threads are neither all of a block nor a power of two up to 32"};
    const bool ordered = !found.form.commutes && shape.vector_axis == found.form.axis;
    if (ordered && shape.group > 1 && shape.group < 32)
      return {false, {}, "part of a warp combines what is not in order"};
    if (ordered && schedule.knob("piece", 0) > 0 && schedule.knob("onepass", 0) == 0)
      return {false, {}, "a thread of a slice has points that are not in order"};
    if (shape.group > 32 && shape.threads / 32 * shape.copies > 32)
      return {false, {}, "more tiles of warps than a warp can scan"};
    const ScanCut cut = cut_scan(region.axes[std::size_t(found.form.axis)].extent,
                                 schedule.knob("piece", 0), schedule.knob("together", 0));
    if (schedule.knob("onepass", 0) != 0) {
      shape.one_pass = true;
      const bool along = shape.vector_axis == found.form.axis;
      const auto points = points_of(region, found.form.outer).constant();
      const auto pieces = cut.pieces.constant();
      if (!along || shape.group != shape.threads || shape.group <= 32 || !points || !pieces ||
          cut.whole() || !(cut.together == cut.pieces))
        return {false, {}, "one pass takes a known number of pieces, each by a whole block"};
      if (cut.piece.value() != std::int64_t(shape.threads) * shape.copies * shape.lanes)
        return {false, {}, "in one pass, a piece is what a block's threads have at a time"};
      if (*pieces > kMostScanPosts || *points > kMostScanPosts / *pieces)
        return {false, {}, "more pieces than can be waited for"};
    }
    return within_block(GpuScans(region, found.form, shape, cut).run(), target);
  }
};

} // namespace

const Generator& gpu_scans_generator() {
  static const GpuScansGenerator generator;
  return generator;
}

} // namespace egret::kernel

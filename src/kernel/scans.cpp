// Scans along one axis. Lanes lie along the axis (a vector's lanes are scanned in its register) or
// along another one. A worker does whole rows; where these are few, the axis is cut into pieces:
// workers combine what each piece has, meet, and scan each piece from the combination of those
// before it, while it is still in the cache.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/map_axes.h"
#include "kernel/nest.h"
#include "kernel/scan_form.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Points of a piece, and of what is worth cutting.
constexpr std::int64_t kScanPiece = 16384, kLongScan = 4 * kScanPiece;
/// Rows (or vectors of them) that are enough to go without cutting.
constexpr std::int64_t kEnoughRows = 16;
/// Vectors of a row below which it is a short one, and the arithmetic of a point (in additions) for
/// which vectors pay even so.
constexpr std::int64_t kShortRow = 4;
constexpr double kMuchWork = 12;
/// Of a last-level cache that is shared with others, bytes that may be counted on.
constexpr std::int64_t kMostCached = 16 << 20;

struct ScanShape {
  int lanes = 1;
  int vector_axis = -1; ///< the scanned axis, or the one along which lanes are rows of their own
  int vectors = 1;      ///< of rows, done together
  int copies = 1;       ///< of vectors along the axis: accumulators of what a piece has
  CachePolicy store_policy = CachePolicy::Default;
  Arithmetic arithmetic;
};

class ScanNest {
public:
  ScanNest(const Region& region, const ScanForm& form, const ScanShape& shape, const ScanCut& cut)
      : r_(region), f_(form), s_(shape), cut_(cut), pieces_(region, form, cut, shape.vector_axis),
        b_(region.name), e_(b_, region), states_(e_, form, shape.arithmetic),
        along_(shape.vector_axis == form.axis),
        extent_(region.axes[std::size_t(form.axis)].extent) {}

  KernelProgram run() {
    std::vector<int> all = f_.outer;
    all.push_back(f_.axis);
    if (is_empty(r_, all))
      return b_.finish(Expr(1));
    cut_.whole() ? whole() : in_pieces();
    const Expr work = points_of(r_, all) * Expr(std::int64_t(f_.flops) + 1);
    return b_.finish(useful_workers(iterations_, work));
  }

private:
  /// Rows that are done together.
  using Rows = std::vector<Point>;

  /// All rows, with the coordinate of an extra axis besides, shared out among the workers.
  void rows(const std::vector<Expr>& extra,
            const std::function<void(const Rows&, std::span<const Expr>)>& body) {
    std::vector<Expr> extents;
    const Expr tile(std::int64_t(s_.lanes) * s_.vectors);
    for (int a : f_.outer)
      if (a != s_.vector_axis)
        extents.push_back(r_.axes[std::size_t(a)].extent);
    if (!along_)
      extents.push_back(ceildiv(r_.axes[std::size_t(s_.vector_axis)].extent, tile));
    const std::size_t outer = extents.size();
    extents.insert(extents.end(), extra.begin(), extra.end());
    Expr count(1);
    for (const Expr& e : extents)
      count = count * e;
    iterations_ = max(iterations_, count);
    core_loop(b_, extents, [&](std::span<const Expr> at) {
      Point p;
      p.at.resize(r_.axes.size());
      std::size_t i = 0;
      for (int a : f_.outer)
        if (a != s_.vector_axis)
          p.at[std::size_t(a)] = at[i++];
      if (along_)
        return body({p}, at.subspan(outer));
      const Expr& extent = r_.axes[std::size_t(s_.vector_axis)].extent;
      const Expr begin = at[i] * tile;
      vector_loop(b_, begin, min(extent, begin + tile), extent, s_.lanes, s_.vectors,
                  [&](std::span<const Position> positions) {
                    Rows rows;
                    for (const Position& position : positions) {
                      rows.push_back(p);
                      rows.back().at[std::size_t(s_.vector_axis)] = position.at;
                      rows.back().lanes = s_.lanes;
                      rows.back().mask = position.mask;
                    }
                    body(rows, at.subspan(outer));
                  });
    });
  }

  /// The points of a row, or vectors of them, from `begin` to `end`.
  void visit(const Expr& begin, const Expr& end, int copies,
             const std::function<void(std::span<const Position>)>& body) {
    vector_loop(b_, begin, end, extent_, along_ ? s_.lanes : 1, copies, body);
  }

  Point point_of(const Point& row, const Position& position) const {
    Point p = row;
    p.at[std::size_t(f_.axis)] = position.at;
    if (along_) {
      p.lanes = s_.lanes;
      p.mask = position.mask;
    }
    return p;
  }

  void whole() {
    rows({}, [&](const Rows& rows, std::span<const Expr>) {
      scan(rows, Expr(0), extent_,
           std::vector<ScanStates>(rows.size(), states_.identities(along_ ? 1 : s_.lanes)));
    });
  }

  /// Scans [begin, end) of each row, which begins with its `carry`.
  void scan(const Rows& rows, const Expr& begin, const Expr& end,
            const std::vector<ScanStates>& carry) {
    std::vector<RunningVariables> running;
    for (const ScanStates& c : carry)
      running.emplace_back(b_, c);
    visit(begin, end, along_ ? 2 : 1, [&](std::span<const Position> positions) {
      std::vector<Point> points;
      std::vector<ScanStates> made;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        ScanStates state = running[i].read();
        for (const Position& position : positions) {
          points.push_back(point_of(rows[i], position));
          if (!along_) {
            state = states_.add(state, points.back());
            made.push_back(state);
            continue;
          }
          const ScanStates vector = states_.up_to_lane(states_.terms(points.back()));
          made.push_back(states_.merge(state, vector));
          state = states_.merge(state, states_.last_lane(vector));
        }
        running[i].write(state);
      }
      states_.deliver(points, made, s_.store_policy);
    });
  }

  /// What [begin, end) of each row has.
  std::vector<ScanStates> total(const Rows& rows, const Expr& begin, const Expr& end) {
    const int copies = along_ ? s_.copies : 1;
    std::vector<std::vector<RunningVariables>> running(rows.size());
    for (auto& of_row : running)
      for (int c = 0; c < copies; ++c)
        of_row.emplace_back(b_, states_.identities(s_.lanes));
    visit(begin, end, copies, [&](std::span<const Position> positions) {
      for (std::size_t c = 0; c < positions.size(); ++c)
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const RunningVariables& state = running[i][c];
          state.write(states_.add(state.read(), point_of(rows[i], positions[c])));
        }
    });
    std::vector<ScanStates> totals;
    for (const auto& of_row : running) {
      ScanStates all = of_row[0].read();
      for (int c = 1; c < copies; ++c)
        all = states_.merge(all, of_row[std::size_t(c)].read());
      totals.push_back(along_ ? states_.across_lanes(all) : all);
    }
    return totals;
  }

  // --- Pieces

  void in_pieces() {
    const Expr count = points_of(r_, f_.outer);
    totals_ = states_.workspaces("total", count * cut_.pieces);
    const bool groups = !(cut_.groups == Expr(1));
    if (groups)
      carried_ = states_.workspaces("carried", count * cut_.groups);
    b_.loop(Expr(0), cut_.groups, Expr(1), cut_.groups, Bind::Serial, [&](const Expr& group) {
      const auto pieces = [&](const std::function<void(const Rows&, const Expr&)>& body) {
        rows({cut_.together}, [&](const Rows& rows, std::span<const Expr> at) {
          const Expr piece = group * cut_.together + at[0];
          b_.when({{piece, Expr(0), cut_.pieces}}, [&] { body(rows, piece); });
        });
      };
      pieces([&](const Rows& rows, const Expr& piece) {
        const std::vector<ScanStates> totals =
            total(rows, pieces_.begin(piece), pieces_.end(piece));
        for (std::size_t i = 0; i < rows.size(); ++i)
          states_.store(totals_, pieces_.place(rows[i], cut_.pieces, piece), totals[i],
                        rows[i].mask);
      });
      b_.barrier();
      pieces([&](const Rows& rows, const Expr& piece) {
        std::vector<ScanStates> carry;
        for (const Point& row : rows)
          carry.push_back(before(row, group, piece));
        if (groups)
          pass_on(rows, group, piece, carry);
        scan(rows, pieces_.begin(piece), pieces_.end(piece), carry);
      });
    });
  }

  /// All that comes before a piece of a row: what comes before its group, and the pieces of the
  /// group before it, in order.
  ScanStates before(const Point& row, const Expr& group, const Expr& piece) {
    const int lanes = along_ ? 1 : s_.lanes;
    const RunningVariables all(b_, states_.identities(lanes));
    if (!carried_.empty())
      b_.when({{group, Expr(1), cut_.groups}}, [&] {
        all.write(states_.load(carried_, pieces_.place(row, cut_.groups, group), lanes, row.mask));
      });
    b_.loop(group * cut_.together, piece, Expr(1), cut_.pieces, Bind::Serial, [&](const Expr& i) {
      all.write(states_.merge(
          all.read(), states_.load(totals_, pieces_.place(row, cut_.pieces, i), lanes, row.mask)));
    });
    return all.read();
  }

  /// What comes before the next group is made beside the last piece of this one.
  void pass_on(const Rows& rows, const Expr& group, const Expr& piece,
               const std::vector<ScanStates>& carry) {
    const Expr next = group + Expr(1);
    b_.when(pieces_.ends_group(piece, group), [&] {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Point& row = rows[i];
        const ScanStates mine =
            states_.load(totals_, pieces_.place(row, cut_.pieces, piece), row.lanes, row.mask);
        states_.store(carried_, pieces_.place(row, cut_.groups, next),
                      states_.merge(carry[i], mine), row.mask);
      }
    });
  }

  const Region& r_;
  const ScanForm& f_;
  const ScanShape& s_;
  const ScanCut& cut_;
  ScanPieces pieces_;
  ProgramBuilder b_;
  Emitter e_;
  ScanStatesOf states_;
  bool along_; ///< lanes lie along the scanned axis
  Expr extent_;
  ScanStatesOf::Buffers totals_, carried_;
  Expr iterations_ = Expr(1);
};

/// Lanes along the scanned axis, or along another one where that suits memory better.
ScanShape shape_of(const Region& region, const ScanForm& form, const Schedule& schedule,
                   const Target& target) {
  const std::vector<int> stages = all_stages(region);
  ScanShape shape;
  shape.arithmetic = arithmetic_of(target);
  shape.store_policy = schedule.store_policy;
  shape.lanes = lanes_for(region, stages,
                          schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes);
  // Of short rows, most lanes would be empty.
  const bool is_short = about(region.axes[std::size_t(form.axis)].extent) * 2 < shape.lanes;
  shape.vector_axis =
      lane_axis(region, form, is_short ? 0 : vector_score(region, stages, form.axis));
  shape.copies = int(schedule.knob("copies", 4));
  if (shape.vector_axis == form.axis)
    return shape;
  const std::int64_t width = about(region.axes[std::size_t(shape.vector_axis)].extent);
  shape.vectors =
      int(schedule.knob("vectors", std::clamp<std::int64_t>(width / shape.lanes, 1, 8)));
  return shape;
}

/// Pieces of work that whole rows are.
std::int64_t rows_of(const Region& region, const ScanForm& form, const ScanShape& shape) {
  std::int64_t n = 1;
  for (int a : form.outer) {
    const std::int64_t extent = about(region.axes[std::size_t(a)].extent);
    const std::int64_t tile = std::int64_t(shape.lanes) * shape.vectors;
    n *= a == shape.vector_axis ? (extent + tile - 1) / tile : extent;
    n = std::min<std::int64_t>(n, std::int64_t(1) << 30);
  }
  return n;
}

constexpr Knob kScansKnobs[] = {
    {"copies", 1, 16}, {"vectors", 1, 16}, {"piece", 0, 1 << 30}, {"together", 0, 1 << 20}};

class ScansGenerator : public Generator {
public:
  std::string name() const override { return "scans"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const FoundScan found = find_scan(region);
    if (!found.ok)
      return {};
    Schedule s;
    s.generator = name();
    s.store_policy = usual_store_policy(region, target);
    const ScanShape shape = shape_of(region, found.form, s, target);
    const bool along = shape.vector_axis == found.form.axis;
    const std::int64_t rows = rows_of(region, found.form, shape),
                       length = about(region.axes[std::size_t(found.form.axis)].extent),
                       row = along ? 1 : std::int64_t(shape.lanes) * shape.vectors;
    // A short row is done sooner element by element than a vector's lanes can be combined, unless
    // there is much else to do.
    if (along && length < kShortRow * shape.lanes && found.form.flops < kMuchWork)
      return {};
    const bool cuts =
        rows < kEnoughRows && rows * length >= kLongScan / row && (!along || found.form.commutes);
    std::vector<Schedule> out;
    // What is cut follows from the region alone, so that results do not depend on the workers.
    // How many pieces are done together does not change them.
    if (cuts)
      for (const std::int64_t points : {kScanPiece, 4 * kScanPiece, kScanPiece / 4}) {
        s.knobs["piece"] = std::max<std::int64_t>(points / row, 1);
        s.knobs["together"] = together(region, rows, row * s.knobs["piece"], target);
        out.push_back(s);
      }
    s.knobs.clear();
    out.push_back(s);
    Schedule other = out.front();
    other.store_policy =
        s.store_policy == CachePolicy::Default ? CachePolicy::Streaming : CachePolicy::Default;
    out.push_back(other);
    if (!along)
      for (const int vectors : {4, 2, 1})
        if (vectors != shape.vectors) {
          s = out.front();
          s.knobs["vectors"] = vectors;
          out.push_back(s);
        }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    const FoundScan found = find_scan(region);
    if (!found.ok)
      return {false, {}, found.reason};
    if (auto why = refused_settings(schedule, target, kScansKnobs); !why.empty())
      return {false, {}, why};
    const ScanShape shape = shape_of(region, found.form, schedule, target);
    const ScanCut cut = cut_scan(region.axes[std::size_t(found.form.axis)].extent,
                                 schedule.knob("piece", 0), schedule.knob("together", 0));
    if (!cut.whole() && shape.vector_axis == found.form.axis && !found.form.commutes)
      return {false, {}, "lanes along the axis combine what is not in order"};
    return {true, ScanNest(region, found.form, shape, cut).run(), ""};
  }

private:
  /// Pieces of each row such that what workers read stays in their caches until they read it again,
  /// and such that they seldom wait for each other.
  static std::int64_t together(const Region& region, std::int64_t rows, std::int64_t points,
                               const Target& target) {
    std::int64_t bytes = 0;
    for (const Operand& o : region.operands)
      bytes += o.role == Role::Tensor ? std::int64_t(size_of(o.dtype)) : 0;
    const std::int64_t workers = std::max(target.workers, 1);
    const std::int64_t cached =
        std::max(workers * target.l2_bytes / 2, std::min(target.l3_bytes / 4, kMostCached));
    const std::int64_t pieces = cached / std::max<std::int64_t>(rows * points * bytes, 1);
    return std::clamp<std::int64_t>(pieces / workers * workers, workers, 1 << 20);
  }
};

} // namespace

const Generator& scans_generator() {
  static const ScansGenerator generator;
  return generator;
}

} // namespace egret::kernel

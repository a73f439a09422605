#include "loops/sizes.h"

#include "kernel/analysis.h"
#include "kernel/program.h"
#include "loops/facts.h"
#include "loops/spans.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace egret::loops {

namespace tree = kernel::loops;
using kernel::Bind;
using kernel::contains;
using kernel::Region;
using kernel::Stage;

namespace {

/// Which tiles of registers are looked at: all, with one or two vectors in a row, of few rows.
enum class Taste : std::uint8_t { Best, Narrow, Low };

class Sizes {
public:
  Sizes(const Region& region, const kernel::Target& target, Estimator& estimator,
        const SizesOptions& options, std::size_t& points)
      : r_(region), target_(target), estimator_(estimator), options_(options), points_(points),
        lanes_(lanes_of_region(region, target)), units_(unit_products(region, target)) {}

  std::vector<Sized> run(const std::vector<Nest>& nests) {
    std::vector<std::vector<Sized>> each;
    for (const Nest& nest : nests) {
      budget_ = points_ + options_.most_points / nests.size();
      each.push_back(top(nest));
      if (each.back().empty())
        return {};
    }
    std::vector<Sized> all;
    join_nests(each, all);
    keep_best(all, options_.keep);
    return all;
  }

private:
  bool spent() const { return points_ >= budget_ || (options_.stop && options_.stop()); }

  Span span_of(int axis) const {
    return {axis, estimator_.extent_of(axis), r_.axes[std::size_t(axis)].extent, true, false};
  }

  bool parallel(const Nest& nest, int axis) const {
    if (nest.body >= 0)
      return is_parallel(r_, nest.body, axis);
    return std::ranges::all_of(nest.parts, [&](const Nest& p) { return parallel(p, axis); });
  }

  /// Sizes of the piece of a span that parts share, largest last.
  std::vector<std::int64_t> pieces(const Span& span, bool few) const {
    std::set<std::int64_t> found{1};
    const auto n = std::int64_t(span.n);
    for (const std::int64_t f : few ? std::vector<std::int64_t>{lanes_, 32}
                                    : std::vector<std::int64_t>{4, lanes_, 4 * lanes_, 128})
      if (f > 1 && f < n)
        found.insert(f);
    if (span.extent.is_constant()) // all of it
      found.insert(span.extent.value());
    return {found.begin(), found.end()};
  }

  /// One of the outermost nests: pieces of the shared results' loops, shared out among cores, and
  /// what is inside for each piece.
  std::vector<Sized> top(const Nest& nest) {
    std::vector<Sized> found;
    std::vector<Span> spans;
    for (const int a : nest.axes)
      spans.push_back(span_of(a));
    Nest inside = nest; // a body with loops of its own, or parts
    inside.axes.clear();
    std::vector<std::vector<std::int64_t>> sizes;
    for (const Span& span : spans)
      sizes.push_back(pieces(span, spans.size() > 2));
    std::vector<std::size_t> at(spans.size(), 0);
    // A single body has its best tile of registers in every piece: others are asked for by name.
    const std::size_t before = points_, share = (budget_ - std::min(budget_, before)) / 3;
    for (int taste = 0; taste < (nest.body >= 0 ? 3 : 1); ++taste) {
      taste_ = Taste(taste);
      const std::size_t end = nest.body >= 0 ? before + share * std::size_t(taste + 1) : budget_;
      std::vector<Sized> here;
      std::ranges::fill(at, 0);
      while (true) {
        pieces_point(nest, inside, spans, sizes, at, here);
        if (spent() || points_ >= end)
          break;
        std::size_t i = 0;
        while (i < at.size() && ++at[i] == sizes[i].size())
          at[i++] = 0;
        if (i == at.size())
          break;
      }
      keep_best(here, taste == 0 ? options_.keep : options_.keep / 3);
      std::ranges::move(here, std::back_inserter(found));
    }
    taste_ = Taste::Best;
    if (nest.body >= 0 && options_.reassociate)
      in_parts(nest, found);
    keep_best(found, 2 * options_.keep);
    return found;
  }

  void pieces_point(const Nest& nest, const Nest& inside, const std::vector<Span>& spans,
                    const std::vector<std::vector<std::int64_t>>& sizes,
                    const std::vector<std::size_t>& at, std::vector<Sized>& found) {
    std::vector<Made> outer;
    std::vector<Span> left;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const auto s = split(r_, spans[i], sizes[i][at[i]]);
      if (!s)
        return;
      if (s->outer)
        outer.push_back(*s->outer);
      if (s->inner.n != 1)
        left.push_back(s->inner);
    }
    // Who is shared out: any parallel one, outermost.
    std::vector<std::size_t> first;
    for (std::size_t i = 0; i < outer.size(); ++i)
      if (outer[i].trips > 1 && parallel(nest, outer[i].axis))
        first.push_back(i);
    const std::size_t choices = std::max<std::size_t>(1, std::min<std::size_t>(first.size(), 2));
    for (std::size_t c = 0; c < choices; ++c) {
      std::vector<Made> order = outer;
      if (!first.empty() && target_.workers > 1) {
        std::rotate(order.begin(), order.begin() + std::ptrdiff_t(first[c]),
                    order.begin() + std::ptrdiff_t(first[c]) + 1);
        order[0].bind = Bind::Core;
      }
      around_.clear();
      for (const Made& loop : order)
        around_.push_back({loop.axis, loop.trips, loop.bind, false});
      double seconds = 0;
      TreePtr inner = best(inside, left, seconds);
      if (inner)
        found.push_back({loops::around(order, std::move(inner)), seconds});
      for (const int operand : worth_copying(nest, left)) {
        near_ = {{operand, around_.size()}};
        double copied = 0;
        if (TreePtr t = best(inside, left, copied))
          found.push_back({loops::around(order, tree::near(operand, std::move(t))), copied});
        near_.clear();
      }
      for (const UnitProduct& unit : units_)
        if (is_tiles(unit) && unit.stage == nest.body)
          copied_tiles(unit, inside, left, order, found);
    }
  }

  bool is_tiles(const UnitProduct& unit) const {
    return target_.unit(kernel::FragmentLayout::Tiles) != nullptr && unit.rows == kernel::kTileRows;
  }

  /// Products of tiles whose factors are copied into tiles first: the right one inside of a piece
  /// or once for all, the left one inside of a piece or not at all.
  void copied_tiles(const UnitProduct& unit, const Nest& inside, const std::vector<Span>& left,
                    const std::vector<Made>& order, std::vector<Sized>& found) {
    int rows = -1, columns = -1; // operands
    for (const Estimator::Access& access : estimator_.accesses(unit.stage))
      if (access.operand >= 0 && !access.written)
        (access.stride[std::size_t(unit.m)] != 0 ? rows : columns) = access.operand;
    if (rows < 0 || columns < 0 || rows == columns || !options_.reassociate)
      return;
    for (const bool both : {true, false})
      for (const bool once : {true, false}) {
        near_ = {{columns, once ? 0 : around_.size()}};
        if (both)
          near_.push_back({rows, around_.size()});
        double copied = 0;
        TreePtr t = best(inside, left, copied);
        near_.clear();
        if (!t)
          continue;
        if (both)
          t = tree::near(rows, std::move(t));
        if (!once)
          t = tree::near(columns, std::move(t));
        t = loops::around(order, std::move(t));
        found.push_back({once ? tree::near(columns, std::move(t)) : std::move(t), copied});
      }
  }

  /// Operands of a sum that loops inside of a piece read again and again, and not side by side.
  std::vector<int> worth_copying(const Nest& nest, const std::vector<Span>& left) const {
    std::vector<int> found;
    if (nest.body < 0 || r_.stages[std::size_t(nest.body)].kind != kernel::StageKind::Reduce)
      return found;
    for (const Estimator::Access& access : estimator_.accesses(nest.body)) {
      if (access.operand < 0 || access.written || contains(found, access.operand))
        continue;
      double again = 1, elements = 1;
      bool apart = false;
      for (const Span& span : left)
        (access.stride[std::size_t(span.axis)] == 0 ? again : elements) *= span.n;
      for (const int a : nest.terms) {
        elements *= estimator_.extent_of(a);
        apart = apart || access.stride[std::size_t(a)] > 16;
      }
      if (again >= 8 && apart && elements * access.bytes <= double(target_.l2_bytes))
        found.push_back(access.operand);
    }
    return found;
  }

  /// A reduction whose parts are made by several cores.
  void in_parts(const Nest& nest, std::vector<Sized>& found) {
    const Stage& stage = r_.stages[std::size_t(nest.body)];
    if (!regroups(stage) || nest.terms.empty() || target_.workers == 1)
      return;
    double results = 1;
    for (const int a : nest.axes)
      results *= estimator_.extent_of(a);
    if (results >= 4.0 * target_.workers)
      return;
    const Span span = span_of(nest.terms[0]);
    for (const std::int64_t piece : {std::int64_t(16), std::int64_t(256), std::int64_t(4096)}) {
      if (double(piece) * 2 > span.n)
        continue;
      const auto s = split(r_, span, piece);
      if (!s || !s->outer)
        continue;
      Made shared = *s->outer;
      shared.bind = Bind::Core;
      std::vector<Made> outer;
      for (const int a : nest.axes)
        outer.push_back(whole(span_of(a)));
      around_.clear();
      for (const Made& loop : outer)
        around_.push_back({loop.axis, loop.trips, loop.bind, false});
      around_.push_back({shared.axis, shared.trips, shared.bind, false});
      Nest inside = nest;
      inside.axes.clear();
      inside.terms.erase(inside.terms.begin());
      double seconds = 0;
      TreePtr inner = best(inside, {s->inner}, seconds);
      if (inner)
        found.push_back(
            {loops::around(outer,
                           tree::accumulate(nest.body, loops::around({shared}, std::move(inner)))),
             seconds});
    }
  }

  /// The best loops for what is left of a nest; its estimate is added to `seconds`.
  TreePtr best(const Nest& nest, std::vector<Span> left, double& seconds) {
    if (nest.body >= 0) {
      for (const int a : nest.axes)
        left.push_back(span_of(a));
      for (const int a : nest.terms)
        left.push_back(span_of(a));
      return leaf(nest, left, seconds);
    }
    // Loops that the parts share: one iteration at a time, or pieces for vectors.
    std::vector<Span> own;
    for (const int a : nest.axes)
      own.push_back(span_of(a));
    const std::size_t results = own.size();
    for (const int a : nest.terms)
      own.push_back(span_of(a));
    TreePtr found;
    double least = 0;
    const std::vector<LoopAround> before = around_;
    for (const std::int64_t piece :
         {std::int64_t(1), std::int64_t(lanes_), std::int64_t(8 * lanes_), std::int64_t(0)}) {
      std::vector<Made> outer;
      std::vector<Span> spans = left;
      std::size_t results_outer = 0;
      bool fits = piece != 0 || !own.empty();
      for (std::size_t i = 0; i < own.size() && fits; ++i) {
        // pieces of the last one only: the others go one by one
        std::int64_t size = i + 1 == own.size() ? piece : 1;
        if (size == 0)
          size = own[i].extent.is_constant() ? own[i].extent.value() : 0;
        const auto s = size > 0 ? split(r_, own[i], size) : std::nullopt;
        fits = s.has_value();
        if (!s)
          break;
        if (s->outer) {
          outer.push_back(*s->outer);
          results_outer += i < results ? 1 : 0;
        }
        if (s->inner.n != 1)
          spans.push_back(s->inner);
      }
      if (!fits || (own.empty() && piece != 1))
        continue;
      around_ = before;
      for (const Made& loop : outer)
        around_.push_back({loop.axis, loop.trips, loop.bind, false});
      double sum = 0;
      std::vector<TreePtr> parts;
      for (const Nest& part : nest.parts) {
        std::vector<Span> shared;
        for (const Span& s : spans)
          shared.push_back(s);
        TreePtr inner = best(part, std::move(shared), sum);
        if (!inner)
          break;
        parts.push_back(std::move(inner));
      }
      if (parts.size() != nest.parts.size() || (found && sum >= least))
        continue;
      TreePtr inside = std::move(parts.back());
      for (std::size_t i = parts.size() - 1; i-- > 0;)
        inside = tree::then(std::move(parts[i]), std::move(inside));
      inside = loops::around({outer.begin() + std::ptrdiff_t(results_outer), outer.end()},
                             std::move(inside));
      for (std::size_t i = nest.sums.size(); i-- > 0;)
        inside = tree::accumulate(nest.sums[i], std::move(inside));
      found = loops::around({outer.begin(), outer.begin() + std::ptrdiff_t(results_outer)},
                            std::move(inside));
      least = sum;
    }
    around_ = before;
    if (found)
      seconds += least;
    return found;
  }

  /// Loops around one body: which axis becomes lanes, how many vectors and rows are held at a time.
  TreePtr leaf(const Nest& nest, const std::vector<Span>& spans, double& seconds) {
    const Stage& stage = r_.stages[std::size_t(nest.body)];
    TreePtr found;
    double least = 0;
    auto consider = [&](int vector, std::int64_t vectors, int rows, std::int64_t height) {
      double cost = 0;
      TreePtr t = point(nest, stage, spans, vector, vectors, rows, height, cost);
      if (t && (!found || cost < least)) {
        found = std::move(t);
        least = cost;
      }
    };
    consider(-1, 1, -1, 1);
    for (const int v : vector_axes(nest.body, spans)) {
      const bool reduced = contains(stage.over, v);
      for (const std::int64_t vectors : {1, 2, 4}) {
        if (taste_ == Taste::Narrow && vectors > 2)
          continue;
        consider(v, vectors, -1, 1);
        if (stage.kind != kernel::StageKind::Reduce || spent())
          continue;
        for (const Span& row : spans) {
          if (row.axis == v || contains(stage.over, row.axis))
            continue;
          for (const std::int64_t height : {2, 4, 6, 8})
            if (height * (reduced ? 1 : vectors) < target_.vector_registers &&
                (taste_ != Taste::Low || height <= 2))
              consider(v, vectors, row.axis, height);
        }
      }
    }
    for (const UnitProduct& unit : units_)
      if (unit.stage == nest.body && options_.reassociate && taste_ == Taste::Best && !spent())
        for (const auto& [down, across] :
             is_tiles(unit)
                 ? std::vector<std::pair<int, int>>{{1, 1}, {2, 2}, {1, 2}, {2, 1}, {1, 4}}
                 : std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {1, 4}}) {
          double cost = 0;
          TreePtr t = of_matrices(nest, spans, unit, down, across, cost);
          if (t && (!found || cost < least)) {
            found = std::move(t);
            least = cost;
          }
        }
    if (found)
      seconds += least;
    return found;
  }

  /// Tiles of a matrix unit, `across` of them side by side and `down` below each other.
  TreePtr of_matrices(const Nest& nest, const std::vector<Span>& spans, const UnitProduct& unit,
                      std::int64_t down, std::int64_t across, double& cost) {
    ++points_;
    std::vector<Made> results, terms, inner;
    int tiled = 0;
    for (const Span& span : spans) {
      if (span.masked) // nothing stands between matrix loops and their body
        return nullptr;
      const std::int64_t size = span.axis == unit.m   ? unit.rows * down
                                : span.axis == unit.n ? unit.columns * across
                                : span.axis == unit.k ? unit.depth
                                                      : 0;
      std::optional<Made> around = whole(span);
      if (size > 0) {
        const auto s = split(r_, span, size);
        if (!s || s->inner.masked)
          return nullptr;
        around = s->outer;
        ++tiled;
      }
      if (around && (around->trips != 1 || !around->extent.is_constant()))
        (span.axis == unit.k ? terms : results).push_back(*around);
    }
    if (tiled != 3)
      return nullptr;
    inner = terms;
    if (down > 1)
      inner.push_back({unit.m, Expr(down), unit.rows, Bind::Unroll, double(down)});
    if (across > 1)
      inner.push_back({unit.n, Expr(across), unit.columns, Bind::Unroll, double(across)});
    inner.push_back({unit.m, Expr(unit.rows), 1, Bind::Matrix, double(unit.rows)});
    inner.push_back({unit.n, Expr(unit.columns), 1, Bind::Matrix, double(unit.columns)});
    inner.push_back({unit.k, Expr(unit.depth), 1, Bind::Matrix, double(unit.depth)});
    std::vector<LoopAround> loops = around_;
    for (const Made& m : results)
      loops.push_back({m.axis, m.trips, m.bind, false});
    for (const Made& m : inner)
      loops.push_back({m.axis, m.trips, m.bind, true});
    cost = estimator_.body_seconds(nest.body, loops, near_, around_.size());
    return loops::around(results,
                         tree::accumulate(nest.body, loops::around(inner, tree::body(nest.body))));
  }

  /// Axes whose points may become lanes: along which memory is contiguous, or else any.
  std::vector<int> vector_axes(int body, const std::vector<Span>& spans) const {
    const Stage& stage = r_.stages[std::size_t(body)];
    std::vector<int> good, other;
    for (const Span& span : spans) {
      const bool sums = contains(stage.over, span.axis);
      if (lanes_ < 2 || span.n < 2 ||
          (sums ? !regroups(stage) || !options_.reassociate : !is_parallel(r_, body, span.axis)))
        continue;
      const bool contiguous =
          std::ranges::any_of(estimator_.accesses(body), [&](const Estimator::Access& a) {
            return a.stride[std::size_t(span.axis)] == 1;
          });
      (contiguous ? good : other).push_back(span.axis);
    }
    return good.empty() ? other : good;
  }

  /// One point. `vector`: the axis of lanes, -1 for none; `vectors` of them at a time, and `height`
  /// iterations along `rows`.
  TreePtr point(const Nest& nest, const Stage& stage, const std::vector<Span>& spans, int vector,
                std::int64_t vectors, int rows, std::int64_t height, double& cost) {
    ++points_;
    std::vector<Made> results, terms, unrolled, lanes;
    std::vector<int> masks;
    for (const Span& span : spans) {
      Span left = span;
      if (span.axis == vector || span.axis == rows) {
        const std::int64_t inner = span.axis == vector ? lanes_ : 1;
        const std::int64_t times = span.axis == vector ? vectors : height;
        const auto n = span.extent.constant();
        if (n && *n < inner * times) {
          if (times > 1 || !span.whole)
            return nullptr;
          lanes.push_back({span.axis, Expr(lanes_), 1, Bind::Vector, double(lanes_)});
          masks.push_back(span.axis); // fewer points than lanes
          continue;
        }
        const auto outer = split(r_, span, inner * times);
        if (!outer)
          return nullptr;
        if (times > 1)
          unrolled.push_back({span.axis, Expr(times), inner, Bind::Unroll, double(times)});
        if (inner > 1)
          lanes.push_back({span.axis, Expr(inner), 1, Bind::Vector, double(inner)});
        if (outer->inner.masked)
          masks.push_back(span.axis);
        if (outer->outer)
          (contains(stage.over, span.axis) ? terms : results).push_back(*outer->outer);
        continue;
      }
      if (span.masked)
        masks.push_back(span.axis);
      if (span.n != 1 || !span.extent.is_constant())
        (contains(stage.over, span.axis) ? terms : results).push_back(whole(span));
    }
    // Rows before vectors, so that neighbours are written together.
    std::stable_sort(unrolled.begin(), unrolled.end(),
                     [&](const Made& a, const Made&) { return a.axis == rows && rows != vector; });
    auto by_axis = [](const Made& a, const Made& b) { return a.axis < b.axis; };
    std::stable_sort(results.begin(), results.end(), by_axis);
    std::stable_sort(terms.begin(), terms.end(), by_axis);
    // What memory holds side by side is gone through last.
    if (vector >= 0)
      std::stable_partition(results.begin(), results.end(),
                            [&](const Made& m) { return m.axis != vector; });
    std::vector<Made> inner = terms;
    inner.insert(inner.end(), unrolled.begin(), unrolled.end());
    inner.insert(inner.end(), lanes.begin(), lanes.end());

    std::vector<LoopAround> loops = around_;
    for (const Made& m : results)
      loops.push_back({m.axis, m.trips, m.bind, false});
    const bool summed = contains(nest.sums, nest.body);
    for (const Made& m : inner)
      loops.push_back({m.axis, m.trips, m.bind, stage.kind != kernel::StageKind::Map});
    cost = estimator_.body_seconds(nest.body, loops, near_, around_.size());

    std::ranges::sort(masks);
    TreePtr t = tree::body(nest.body);
    for (std::size_t i = masks.size(); i-- > 0;)
      t = tree::mask(masks[i], std::move(t));
    t = loops::around(inner, std::move(t));
    if (summed || (stage.kind == kernel::StageKind::Reduce && options_.reassociate &&
                   regroups(stage) && !inner.empty()))
      t = tree::accumulate(nest.body, std::move(t));
    return loops::around(results, std::move(t));
  }

  const Region& r_;
  const kernel::Target& target_;
  Estimator& estimator_;
  const SizesOptions& options_;
  std::size_t& points_;
  std::size_t budget_ = 0;
  int lanes_;
  std::vector<UnitProduct> units_;
  Taste taste_ = Taste::Best;
  std::vector<LoopAround> around_; ///< of what is being decided on
  std::vector<NearAround> near_;   ///< likewise
};

} // namespace

std::vector<Sized> sizes_of(const Region& region, const kernel::Target& target,
                            const std::vector<Nest>& nests, Estimator& estimator,
                            const SizesOptions& options, std::size_t& points) {
  if (target.threads > 0)
    return gpu_sizes_of(region, target, nests, estimator, options, points);
  return Sizes(region, target, estimator, options, points).run(nests);
}

} // namespace egret::loops

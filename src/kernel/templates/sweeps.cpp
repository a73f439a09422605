#include "kernel/templates/sweeps.h"

#include "kernel/analysis.h"
#include "kernel/loops/estimate.h"
#include "kernel/map_axes.h"
#include "kernel/templates/template.h"

#include <algorithm>
#include <array>
#include <set>

namespace egret::kernel {

namespace {

using loops::TreePtr;

/// Arithmetic of a point (in additions) that hides latency by itself.
constexpr double kHeavy = 16;
/// Elements that a part of a reduction has at the least, and the largest number of parts.
constexpr std::int64_t kLeastPart = 32768, kMostParts = 128;
/// How much longer lanes along one axis have to take, by the estimate, than along another that
/// reads memory worse.
constexpr double kMuchLonger = 1.5;
/// Tiles that are enough to go without splitting.
constexpr std::int64_t kEnoughTiles = 16;

/// Whether nothing but the output's own stage reads the operand whose memory it may take over.
bool reads_alone(const Region& region, const Output& out) {
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    for (const Load& load : region.stages[s].loads)
      if (int(s) != out.stage && load.source == Source::Operand && load.number == out.alias)
        return false;
  return true;
}

/// The sweep that stores an output. One that may take over an operand's memory waits for the last
/// sweep; but where later sweeps read the output itself and nothing else reads the operand, it is
/// stored as soon as it is made.
int sweep_of(const Region& region, const Passes& passes, int output, int planned) {
  const Output& out = region.outputs[std::size_t(output)];
  return out.alias >= 0 && !readers_of(region, out.stage).empty() && reads_alone(region, out)
             ? std::min(planned, passes.level[std::size_t(out.stage)])
             : planned;
}

std::int64_t tile_of(const SweepShape& shape) {
  return shape.points * (shape.lanes_parallel ? shape.lanes : 1);
}

/// Whole tiles.
std::int64_t chunk_of(const SweepShape& shape) {
  const std::int64_t tile = tile_of(shape);
  return std::max<std::int64_t>(1, shape.chunk / tile) * tile;
}

/// Parallel loops over points, in each all sweeps with the results that are made between them.
/// Where the reduction is split, each sweep is a nest of its own, whose parts the threads share;
/// their sums are combined in order.
class SweepsTree {
public:
  SweepsTree(const Region& region, const Passes& passes, const SweepShape& shape)
      : r_(region), p_(passes), s_(shape), flops_(flops_by_pass(region, passes)) {
    if (!splits()) // parts of a point do not share a thread's memory
      kept_ = worth_keeping(region, passes, s_.keep);
  }

  TreePtr tree() const {
    std::vector<TreePtr> parts;
    for (int sweep = 0; sweep <= p_.count; ++sweep) {
      if (const std::vector<int> results = results_before(r_, p_, sweep); !results.empty()) {
        TreePtr tree = points(kept_lanes(bodies(results, false)));
        parts.push_back(splits() ? tiles(std::move(tree)) : std::move(tree));
      }
      if (sweep < p_.count)
        parts.push_back(over_reduced(sweep));
    }
    TreePtr tree = in_turn(std::move(parts));
    if (!splits())
      tree = tiles(std::move(tree));
    for (int o : s_.staged.once)
      tree = loops::near(o, std::move(tree));
    return tree;
  }

private:
  bool splits() const { return s_.split_axis >= 0; }

  /// A sweep, with its sums.
  TreePtr over_reduced(int sweep) const {
    const std::vector<int>& sums = p_.reductions[std::size_t(sweep)];
    std::vector<int> maxima, others = stages_of_sweep(r_, p_, kept_, sweep);
    for (int s : sums)
      if (const int m = p_.scaled_by[std::size_t(s)]; m >= 0 && !contains(maxima, m))
        maxima.push_back(m);
    std::erase_if(others, [&](int s) { return contains(maxima, s); });
    // Much arithmetic needs fewer accumulators, and less code compiles faster.
    const bool heavy = !s_.lanes_parallel && !s_.straight && maxima.empty() &&
                       flops_[std::size_t(sweep)] > kHeavy && s_.copies % 2 == 0;
    const std::int64_t copies = heavy ? s_.copies / 2 : s_.copies;
    TreePtr tree = iteration(copies, others);
    if (!maxima.empty())
      tree = loops::then(iteration(copies, maxima), std::move(tree));
    if (!s_.straight)
      tree = serial(s_.inner_axis, copies * (s_.lanes_parallel ? 1 : s_.lanes), std::move(tree));
    for (std::size_t i = p_.reduced.size(); i-- > 0;)
      if (p_.reduced[i] != s_.inner_axis)
        tree = serial(p_.reduced[i], 1, std::move(tree));
    const auto summed = [&](TreePtr rest, std::int64_t accumulators) {
      for (int s : sums)
        if (!contains(maxima, s))
          rest = loops::accumulate(s, std::move(rest), accumulators);
      for (int m : maxima)
        rest = loops::accumulate(m, std::move(rest));
      return rest;
    };
    tree = summed(std::move(tree), std::min(copies, s_.accumulators));
    if (sweep == s_.prefetching)
      tree = loops::prefetch(s_.tile_axis, s_.points, std::move(tree));
    if (!splits())
      return tree;
    return summed(digits(r_, s_.split_axis, {{s_.part, Bind::Core}}, tiles(std::move(tree))), 1);
  }

  /// All of a reduced axis, or of a part of it.
  TreePtr serial(int axis, std::int64_t step, TreePtr rest) const {
    return axis == s_.split_axis
               ? loops::loop(axis, Expr(s_.part / step), step, Bind::Serial, std::move(rest))
               : digits(r_, axis, {{step, Bind::Serial}}, std::move(rest));
  }

  /// The vectors of an iteration, of all points of the tile.
  TreePtr iteration(std::int64_t copies, const std::vector<int>& stages) const {
    TreePtr tree = bodies(stages, true);
    tree = s_.lanes_parallel
               ? kept_lanes(std::move(tree))
               : loops::loop(s_.inner_axis, Expr(s_.lanes), 1, Bind::Vector, std::move(tree));
    const auto terms = [&](TreePtr rest) {
      return loops::loop(s_.inner_axis, Expr(copies), s_.lanes_parallel ? 1 : s_.lanes,
                         Bind::Unroll, std::move(rest));
    };
    // Points whose one accumulator each takes a term in turn do not wait for each other, and share
    // the conditions of a window's term.
    return s_.straight ? terms(points(std::move(tree))) : points(terms(std::move(tree)));
  }

  TreePtr kept_lanes(TreePtr rest) const {
    return s_.lanes_parallel
               ? loops::loop(s_.tile_axis, Expr(s_.lanes), s_.apart, Bind::Vector, std::move(rest))
               : rest;
  }

  TreePtr points(TreePtr rest) const {
    if (s_.apart > 1) // vectors that begin one point after another
      rest = loops::loop(s_.tile_axis, Expr(s_.apart), 1, Bind::Unroll, std::move(rest));
    return s_.points == s_.apart ? rest
                                 : loops::loop(s_.tile_axis, Expr(s_.points / s_.apart),
                                               s_.lanes_parallel ? s_.lanes * s_.apart : 1,
                                               Bind::Unroll, std::move(rest));
  }

  /// Where there are elements.
  TreePtr bodies(const std::vector<int>& stages, bool in_sweep) const {
    std::vector<TreePtr> parts;
    for (int s : stages)
      parts.push_back(loops::body(s));
    TreePtr tree = in_turn(std::move(parts));
    if (in_sweep)
      tree = loops::mask(s_.inner_axis, std::move(tree));
    if (in_sweep && splits() && s_.split_axis != s_.inner_axis)
      tree = loops::mask(s_.split_axis, std::move(tree));
    return s_.tile_axis < 0 ? tree : loops::mask(s_.tile_axis, std::move(tree));
  }

  /// All tiles, shared out among the threads.
  TreePtr tiles(TreePtr tree) const {
    const std::vector<int>& own = s_.staged.inner;
    std::vector<int> outer = axes_but(p_.parallel, std::array{s_.tile_axis});
    if (!own.empty()) {
      tree = digits(r_, s_.tile_axis, {{tile_of(s_), Bind::Serial}}, std::move(tree));
      for (std::size_t i = outer.size(); i-- > 0;)
        if (contains(own, outer[i]))
          tree = digits(r_, outer[i], {{1, Bind::Serial}}, std::move(tree));
      for (int o : s_.staged.windows)
        tree = loops::near(o, std::move(tree));
      outer = axes_but(std::move(outer), own);
    } else if (s_.tile_axis >= 0) {
      const std::int64_t tile = tile_of(s_);
      const std::int64_t chunk = chunk_of(s_);
      std::vector<LoopDigit> steps{{tile, bind_after(r_, outer)}};
      if (chunk > tile &&
          !proves_less_equal(r_.axes[std::size_t(s_.tile_axis)].extent, Expr(chunk)))
        steps = {{chunk, bind_after(r_, outer)}, {tile, Bind::Serial}};
      tree = digits(r_, s_.tile_axis, std::move(steps), std::move(tree));
    }
    return parallel_loops(r_, outer, std::move(tree));
  }

  const Region& r_;
  const Passes& p_;
  const SweepShape& s_;
  std::vector<double> flops_; ///< by sweep
  std::vector<Kept> kept_;
};

/// Sets the split of a shape; the reason where it cannot be cut.
std::string split(const Region& region, const ReduceAxes& axes, std::int64_t parts,
                  SweepShape& shape) {
  for (int a : axes.passes.reduced)
    if (shape.split_axis < 0 || about(region.axes[std::size_t(a)].extent) >
                                    about(region.axes[std::size_t(shape.split_axis)].extent))
      shape.split_axis = a;
  const auto extent = region.axes[std::size_t(shape.split_axis)].extent.constant();
  if (!extent)
    return "the axis to cut has no constant extent";
  if (axes.argmax && shape.split_axis != axes.passes.reduced.front())
    return "argmax is cut along its first axis only";
  const std::int64_t unit = shape.split_axis != shape.inner_axis ? 1
                            : shape.lanes_parallel               ? shape.copies
                                                                 : shape.copies * shape.lanes;
  shape.part = ((*extent + parts - 1) / parts + unit - 1) / unit * unit;
  shape.prefetching = -1;
  return *extent <= shape.part ? "too short to be cut" : "";
}

} // namespace

std::vector<std::int64_t> numbers_of_parts(const Region& region, const ReduceAxes& axes,
                                           const SweepShape& shape) {
  std::vector<std::int64_t> numbers;
  if (axes.reduced_score + axes.parallel_score <= -1000) // elements would be gathered
    return numbers;
  const std::int64_t points = about(points_of(region, axes.passes.parallel));
  const std::int64_t all =
      points * std::min(about(points_of(region, axes.passes.reduced)),
                        (std::int64_t(1) << 40) / std::max<std::int64_t>(1, points));
  std::int64_t tiles = 1;
  for (int a : axes.passes.parallel) {
    const std::int64_t extent = about(region.axes[std::size_t(a)].extent);
    tiles *= a == shape.tile_axis ? (extent + chunk_of(shape) - 1) / chunk_of(shape) : extent;
    tiles = std::min<std::int64_t>(tiles, kEnoughTiles);
  }
  if (all < 4 * kLeastPart || tiles >= kEnoughTiles)
    return numbers;
  const std::int64_t usual = std::clamp<std::int64_t>(all / kLeastPart, 2, kMostParts);
  for (std::int64_t parts : {usual, usual / 4, usual / 2, 2 * usual})
    if (parts >= 2 && std::find(numbers.begin(), numbers.end(), parts) == numbers.end())
      numbers.push_back(parts);
  return numbers;
}

bool prefers_rows(const Region& region, const ReduceAxes& axes, const Target& target) {
  if (!staged_alone(region, axes, target).windows.empty())
    return false;
  if (axes.passes.parallel.empty() || axes.parallel_axis < 0)
    return true;
  Target alone = target; // the order of additions is the same for any number of threads
  alone.workers = 1;
  loops::Estimator estimator(region, alone);
  const auto seconds = [&](const SweepShape& shape) {
    return estimator.seconds(*built_sweeps(region, axes, 1, shape).tree);
  };
  const double rows = seconds(row_shape(region, axes, {}, alone)),
               columns = seconds(column_shape(region, axes, {}, alone));
  if (rows > kMuchLonger * columns || columns > kMuchLonger * rows)
    return rows < columns;
  const int lanes = lanes_for(region, all_stages(region), target.vector_bytes);
  const bool short_rows = about(region.axes[std::size_t(axes.reduced_axis)].extent) * 2 < lanes;
  return axes.reduced_score >= axes.parallel_score && !(short_rows && axes.parallel_score >= 0);
}

Built built_sweeps(const Region& region, const ReduceAxes& axes, std::int64_t parts,
                   SweepShape shape) {
  Built built;
  if (parts > 1)
    built.reason = split(region, axes, parts, shape);
  if (built.reason.empty())
    built.tree = SweepsTree(region, axes.passes, shape).tree();
  return built;
}

std::vector<int> stages_of_sweep(const Region& region, const Passes& passes,
                                 const std::vector<Kept>& kept, int sweep) {
  const std::vector<int>& reductions = passes.reductions[std::size_t(sweep)];
  std::set<int> stages(reductions.begin(), reductions.end());
  for (const Kept& k : kept)
    if (k.pass == sweep)
      stages.insert(k.stage);
  for (int planned = 0; planned < passes.count; ++planned)
    for (int o : passes.outputs[std::size_t(planned)])
      if (sweep_of(region, passes, o, planned) == sweep)
        stages.insert(region.outputs[std::size_t(o)].stage);
  return {stages.begin(), stages.end()};
}

std::vector<int> results_before(const Region& region, const Passes& passes, int sweep) {
  std::set<int> results;
  for (int o : passes.point_outputs) {
    const int s = region.outputs[std::size_t(o)].stage;
    if (region.stages[std::size_t(s)].kind == StageKind::Map &&
        (readers_of(region, s).empty() ? passes.count : passes.level[std::size_t(s)]) == sweep)
      results.insert(s);
  }
  return {results.begin(), results.end()};
}

} // namespace egret::kernel

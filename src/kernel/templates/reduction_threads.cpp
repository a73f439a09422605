// Reductions on a GPU whose contiguous axis is a parallel one, in any number of passes over any
// axes: bias gradients, sums over a batch, norms over channels. `across` threads take vectors of
// neighbouring results, and `down` threads each of them a share of the terms, `copies` an
// iteration; what the threads of a result have is combined in shared memory. For few results the
// terms of one pass are dealt out to @split_reduce blocks, of which the last one completes the
// sums.
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/label_terms.h"
#include "kernel/map_axes.h"
#include "kernel/passes.h"
#include "kernel/templates/column_time.h"
#include "kernel/templates/sweeps.h"
#include "kernel/templates/template.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <set>

namespace egret::kernel {

namespace {

using loops::TreePtr;

constexpr char kName[] = "reduction_threads";
constexpr Knob kThreadKnobs[] = {
    {"across", 1, 1024}, {"down", 1, 1024}, {"copies", 1, 16}, {"online", 0, 2}};
/// Terms of a thread's part at the least, and blocks that share a result at the most.
constexpr std::int64_t kLeastTerms = 8, kMostBlocks = 512;
/// Copies of an iteration, where the code of so many is short enough, or loads in flight are few:
/// these are what copies are for. Its arithmetic and loads of all lanes, in additions: compilers
/// take more than linear time for straight code.
constexpr std::int64_t kUsualCopies = 4, kLoadsInFlight = 8;
constexpr double kWrittenWorkOfCopies = 4096;

/// How the terms of a result are dealt out along one reduced axis.
struct TermDigits {
  int axis = -1;
  std::int64_t threads = 1, copies = 1, blocks = 1;
};

/// The passes of a region whose vectors lie along a parallel axis.
struct Columns {
  Passes passes;
  int axis = -1; ///< of the vectors
  std::string reason;
};

/// Whether spreads are best made in the pass of their means: where that leaves fewer passes. Of
/// sums that their maximum scales no threads combine parts here.
Online online_of(const Region& region, const Passes& passes) {
  const Online online = fewest_passes(region, passes.count);
  return online == Online::Spreads ? online : Online::No;
}

Columns columns_of(const Region& region, Online online = Online::No) {
  Columns columns;
  columns.passes = plan_passes(region, false, online);
  columns.reason = columns.passes.reason;
  if (!columns.reason.empty())
    return columns;
  columns.axis = column_axis(region, columns.passes);
  if (columns.axis < 0)
    columns.reason = "has no parallel axis for lanes";
  return columns;
}

class ReductionThreadsTemplate : public Template {
public:
  std::string name() const override { return kName; }

protected:
  std::string refuses(const Region& region) const override { return columns_of(region).reason; }

  std::span<const Knob> parameters() const override { return kThreadKnobs; }

  /// The estimate does not count the loads that a multiprocessor has in flight, by which blocks of
  /// different sizes differ.
  bool ranks() const override { return false; }

  std::vector<Schedule> proposals(const Region& region, const Target& target) const override {
    const Columns c = columns_of(region);
    std::vector<Schedule> out = proposals_of(region, c, target);
    const Online online = online_of(region, c.passes);
    if (online == Online::No)
      return out;
    const Region picked = with_label_gathers(region);
    const Columns together = columns_of(picked, online);
    std::vector<Schedule> more = proposals_of(picked, together, target);
    for (Schedule& s : more)
      s.knobs["online"] = std::int64_t(online);
    // One pass reads all once, and blocks can share it.
    out.insert(together.passes.count == 1 ? out.begin() : out.end(), more.begin(), more.end());
    return out;
  }

  Built build(const Region& whole, const Schedule& schedule, const Target& target) const override {
    const auto online = Online(schedule.knob("online", 0));
    if (online == Online::No)
      return build_of(whole, columns_of(whole), schedule, target);
    Built built;
    built.region = with_label_gathers(whole);
    const Columns c = columns_of(*built.region, online);
    built.reason = c.reason;
    if (built.reason.empty() && c.passes.count >= columns_of(whole).passes.count)
      built.reason = "no sum goes along with its mean";
    if (!built.reason.empty())
      return built;
    Built tree = build_of(*built.region, c, schedule, target);
    tree.region = std::move(built.region);
    return tree;
  }

private:
  static std::vector<Schedule> proposals_of(const Region& region, const Columns& c,
                                            const Target& target) {
    const int lanes = gpu_lanes(region, c.axis, target.vector_bytes);
    const std::int64_t width = about(region.axes[std::size_t(c.axis)].extent);
    const Expr terms = points_of(region, c.passes.reduced);
    const std::int64_t depth = about(terms);
    const std::int64_t outer =
        about(points_of(region, axes_but(c.passes.parallel, std::array{c.axis})));
    const std::int64_t bytes = widest_element(region);
    const ColumnWork work = column_work(region, bytes);
    const bool splits = terms.is_constant() && points_of(region, c.passes.parallel).is_constant();
    std::vector<Schedule> out;
    // All but those of several passes, or of other reads than rows, whose widest blocks keep all
    // multiprocessors busy.
    std::vector<double> times;
    const bool by_rows = reads_rows(region, c.axis);
    for (int across : {32, 16, 8, 4, 2, 1}) {
      // Threads beyond a narrow box's columns would have nothing to do.
      if (across > 1 && std::int64_t(across / 2) * lanes >= width)
        continue;
      const std::int64_t tiles =
          std::max<std::int64_t>(outer * ((width + across * lanes - 1) / (across * lanes)), 1);
      bool fills = false;
      for (int threads : {256, 512, 128}) {
        std::int64_t down = threads / across;
        while (down > 1 && down / 2 * across >= 32 && down > depth)
          down /= 2;
        Schedule s;
        s.generator = kName;
        s.knobs = {{"across", across}, {"down", down}};
        s.store_policy = gpu_store_policy(region, target);
        const ColumnBlock block{across * std::int64_t(lanes) * bytes, across * down, down};
        const std::int64_t blocks = kThreadsOfColumns / threads * target.workers;
        const std::int64_t most = splits ? std::min(depth / (down * kLeastTerms), kMostBlocks) : 1;
        for (const std::int64_t parts : shares_of_column(c, by_rows, blocks, tiles, target)) {
          s.split_reduce = std::clamp<std::int64_t>(parts, 1, std::max<std::int64_t>(most, 1));
          if (!out.empty() && out.back() == s)
            continue;
          fills = fills || tiles * s.split_reduce >= target.workers;
          if (c.passes.count == 1 && by_rows)
            times.push_back(column_sums_clocks(block, work, tiles, depth, s.split_reduce, target));
          else if (c.passes.count != 1 && (!times.empty() || (out.empty() && tiles < blocks)))
            times.push_back(column_passes_clocks(block, tiles, depth, c.passes.count, target));
          out.push_back(s);
        }
      }
      // Wide rows of memory are read best; narrower blocks are for the multiprocessors left idle.
      if (fills && times.empty())
        break;
    }
    return times.empty() ? out : in_order_of(std::move(out), times);
  }

  /// Blocks that share a column: of sums over rows of memory, for all threads that the
  /// multiprocessors are to have, for half of them, or for a block each; of other sums for all.
  static std::vector<std::int64_t> shares_of_column(const Columns& c, bool by_rows,
                                                    std::int64_t blocks, std::int64_t tiles,
                                                    const Target& target) {
    if (c.passes.count != 1)
      return {1};
    if (!by_rows)
      return {(blocks + tiles - 1) / tiles};
    return {blocks / tiles, blocks / tiles / 2, target.workers / tiles};
  }

  static Built build_of(const Region& region, const Columns& c, const Schedule& schedule,
                        const Target& target) {
    if (!target.is_gpu())
      return {nullptr, "there are no threads of a block"};
    const Passes& p = c.passes;
    const std::int64_t across = schedule.knob("across", 32), down = schedule.knob("down", 8);
    if (auto why = gpu_threads_refused(across * down); !why.empty())
      return {nullptr, why};
    const std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    const std::int64_t lanes = gpu_lanes(region, c.axis, bytes);
    const std::int64_t blocks = schedule.split_reduce;
    const std::vector<TermDigits> terms = deal_terms(
        region, p, down, schedule.knob("copies", written_copies(region, lanes, p.count)), blocks);
    if (blocks > 1) {
      if (p.count != 1)
        return {nullptr, "several passes are not dealt out to blocks"};
      if (!points_of(region, p.reduced).is_constant() ||
          !points_of(region, p.parallel).is_constant())
        return {nullptr, "columns of unknown number or depth are not dealt out to blocks"};
      if (std::ranges::all_of(terms, [](const TermDigits& t) { return t.blocks == 1; }))
        return {nullptr, "too short for so many blocks"};
    }
    const auto columns = [&](TreePtr rest) {
      if (lanes > 1)
        rest = loop(c.axis, Expr(lanes), 1, Bind::Vector, std::move(rest));
      return across > 1 ? loop(c.axis, Expr(across), lanes, Bind::Lane, std::move(rest)) : rest;
    };
    std::vector<TreePtr> parts;
    for (int pass = 0; pass <= p.count; ++pass) {
      if (auto stored = results(region, p, pass); !stored.empty())
        parts.push_back(columns(in_turn(std::move(stored))));
      if (pass < p.count)
        parts.push_back(sweep(region, c, pass, terms, columns));
    }
    TreePtr tree =
        digits(region, c.axis, {{across * lanes, Bind::Grid}}, in_turn(std::move(parts)));
    const std::vector<int> outer = axes_but(p.parallel, std::array{c.axis});
    for (std::size_t i = outer.size(); i-- > 0;)
      tree = digits(region, outer[i], {{1, Bind::Grid}}, std::move(tree));
    return {std::move(tree), ""};
  }

  static std::vector<Schedule> in_order_of(std::vector<Schedule> schedules,
                                           const std::vector<double>& times) {
    std::vector<std::size_t> order(schedules.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t i) { return times[i]; });
    std::vector<Schedule> sorted;
    for (const std::size_t i : order)
      sorted.push_back(std::move(schedules[i]));
    return sorted;
  }

  /// Each copy's operations are written out, for each lane. Of several passes, each has its share.
  static std::int64_t written_copies(const Region& region, std::int64_t lanes, int passes) {
    double work = 0;
    std::int64_t loads = 0;
    for (const Stage& stage : region.stages) {
      work += written_work(stage);
      loads += std::ranges::count_if(
          stage.loads, [](const Load& load) { return load.source == Source::Operand; });
    }
    std::int64_t copies = kUsualCopies;
    while (copies > 1 && work * double(lanes * copies) > kWrittenWorkOfCopies * passes &&
           loads * copies >= 2 * kLoadsInFlight * passes)
      copies /= 2;
    return copies;
  }

  /// By axis, that with most terms first: threads where there are terms for them, and copies.
  static std::vector<TermDigits> deal_terms(const Region& region, const Passes& p,
                                            std::int64_t down, std::int64_t copies,
                                            std::int64_t blocks) {
    std::vector<TermDigits> terms;
    for (int a : p.reduced)
      terms.push_back({a});
    const auto extent = [&](const TermDigits& t) {
      return std::max<std::int64_t>(about(region.axes[std::size_t(t.axis)].extent), 1);
    };
    std::ranges::stable_sort(
        terms, [&](const TermDigits& a, const TermDigits& b) { return extent(a) > extent(b); });
    for (TermDigits& t : terms) {
      t.threads = std::min(down, &t == &terms.back() ? down : extent(t));
      down = std::max<std::int64_t>(down / t.threads, 1);
    }
    terms.front().copies = std::clamp<std::int64_t>(
        (extent(terms.front()) + terms.front().threads - 1) / terms.front().threads, 1, copies);
    for (TermDigits& t : terms) {
      t.blocks = std::clamp<std::int64_t>(extent(t) / (t.threads * t.copies), 1, blocks);
      blocks /= t.blocks;
    }
    return terms;
  }

  /// One pass over the terms: its sums, and what it stores.
  static TreePtr sweep(const Region& region, const Columns& c, int pass,
                       const std::vector<TermDigits>& terms,
                       const std::function<TreePtr(TreePtr)>& columns) {
    const Passes& p = c.passes;
    const std::vector<int>& sums = p.reductions[std::size_t(pass)];
    std::set<int> stages(sums.begin(), sums.end());
    for (int o : p.outputs[std::size_t(pass)])
      stages.insert(region.outputs[std::size_t(o)].stage);
    std::vector<TreePtr> bodies;
    for (int s : stages) {
      TreePtr body = loops::mask(c.axis, loops::body(s));
      for (const TermDigits& t : terms)
        body = loops::mask(t.axis, std::move(body));
      bodies.push_back(std::move(body));
    }
    TreePtr tree = columns(in_turn(std::move(bodies)));
    for (std::size_t i = terms.size(); i-- > 0;)
      if (terms[i].threads > 1)
        tree = loop(terms[i].axis, Expr(terms[i].threads), 1, Bind::Warp, std::move(tree));
    const TermDigits& first = terms.front();
    const auto over_terms = [&](const TermDigits& t) {
      if (t.copies > 1)
        tree = loop(t.axis, Expr(t.copies), t.threads, Bind::Unroll, std::move(tree));
      tree = digits(region, t.axis, {{t.threads * t.copies * t.blocks, Bind::Serial}},
                    std::move(tree));
    };
    // Of equal values the first one counts: axes in their order.
    std::vector<TermDigits> outside(terms.begin() + 1, terms.end());
    std::ranges::sort(outside, {}, &TermDigits::axis);
    if (finds_places(region, sums))
      for (; !outside.empty() && outside.back().axis > first.axis; outside.pop_back())
        over_terms(outside.back());
    over_terms(first);
    for (; !outside.empty(); outside.pop_back())
      over_terms(outside.back());
    const auto accumulated = [&] {
      for (int s : sums)
        tree = loops::accumulate(s, std::move(tree));
    };
    accumulated();
    bool parts = false;
    for (std::size_t i = terms.size(); i-- > 0;)
      if (const TermDigits& t = terms[i]; t.blocks > 1) {
        parts = true;
        tree = loop(t.axis, Expr(t.blocks), t.threads * t.copies, Bind::Grid, std::move(tree));
      }
    if (parts)
      accumulated();
    return tree;
  }

  /// Maps over the results alone that are stored before a pass.
  static std::vector<TreePtr> results(const Region& region, const Passes& p, int pass) {
    std::vector<TreePtr> bodies;
    for (int s : results_before(region, p, pass)) {
      bodies.push_back(loops::body(s));
      for (int a : result_axes(region.stages[std::size_t(s)]))
        bodies.back() = loops::mask(a, bodies.back());
    }
    return bodies;
  }

  static bool finds_places(const Region& region, const std::vector<int>& sums) {
    return std::any_of(sums.begin(), sums.end(), [&](int s) {
      return region.stages[std::size_t(s)].monoid == Monoid::ArgMax;
    });
  }
};

} // namespace

const Generator& reduction_threads_generator() {
  static const ReductionThreadsTemplate generator;
  return generator;
}

} // namespace egret::kernel

// Reductions of few terms on a GPU (windows, sums over short axes): a thread makes whole results,
// adding up its terms in registers one after the other, and neighbouring threads make neighbouring
// results, as in a map. What passes read more than once stays in registers. Where what a thread
// stores at its terms lies side by side in memory, and its neighbours' apart, a warp exchanges it
// through shared memory.
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/contraction_form.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/knobs.h"
#include "kernel/layouts.h"
#include "kernel/map_axes.h"
#include "kernel/pass_states.h"
#include "kernel/passes.h"
#include "kernel/strips.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace egret::kernel {

namespace {

/// Terms of a result at the most, those that are always few enough, and those that are written out.
constexpr std::int64_t kMostTermsOfPoint = 64, kFewTermsOfPoint = 16, kWrittenTerms = 32;
/// Results of a strip at the most, results of it and their lanes, and terms of it that are written
/// out.
constexpr int kMostOfStrip = 8, kMostLanesOfStrip = 32, kWrittenTermsOfStrip = 96;
/// Arithmetic and loads of terms that are written out, in additions, of all lanes of all results
/// together; and of those that are few. A loop costs nothing beside so much, and compilers take
/// more than linear time for straight code.
constexpr double kWrittenWork = 3072, kWrittenWorkOfFew = 12288;
/// Threads of a multiprocessor that hide how long many terms take.
constexpr std::int64_t kThreadsForTerms = 128;
/// Terms that lie side by side from which on a warp exchanges what it stores at them.
constexpr std::int64_t kTermsOfTurn = 4;
/// Rows, columns and terms of a product from which tiles of it are better: with fewer terms, what
/// it writes takes the time.
constexpr std::int64_t kSidesOfTiles = 4, kTermsOfTiles = 4;
/// Lines of memory that a warp may touch, by those that it would touch if what it reads lay side by
/// side.
constexpr std::int64_t kMostLines = 4, kPointLine = 128; // bytes
constexpr int kThreadsReadingTogether = 32;
/// Bytes of what all results share, as weights, that stay in a multiprocessor's first cache; how
/// many lines of it cost as much as one of memory; and lines that it gives a second.
constexpr std::int64_t kSharedBytes = 64 << 10, kCachedLines = 8;
constexpr double kLinesOfCache = 1.5e9;

/// Whether every result reads elements of its own: of others, such as weights, caches have a copy.
bool is_streamed(const Region& region, const Stage& stage, const Load& load,
                 std::span<const int> parallel) {
  if (load.source != Source::Operand)
    return false;
  const std::vector<bool> axes = axes_of_load(region, stage, load);
  return std::all_of(parallel.begin(), parallel.end(), [&](int a) { return axes[a]; });
}

struct PointFacts {
  Passes passes;
  std::vector<int> order; ///< parallel axes as results lie in memory, that of the vectors last
  int tile = -1;          ///< the axis of the vectors
  std::int64_t terms = 0;

  explicit PointFacts(const Region& region) : passes(plan_passes(region)) {
    if (!passes.reason.empty())
      return;
    const Expr all = points_of(region, passes.reduced);
    terms = all.is_constant() ? all.value() : 0;
    if (terms < 1 || terms > kMostTermsOfPoint) {
      passes.reason = fmt::format("its results have not 1 to {} terms", kMostTermsOfPoint);
      return;
    }
    std::int64_t best = 0;
    for (int a : passes.parallel)
      if (const auto bytes = contiguous(region, a); bytes && (tile < 0 || *bytes >= best)) {
        tile = a;
        best = *bytes;
      }
    if (tile < 0)
      passes.reason = "has no parallel axis for lanes";
    const auto apart = [&](int a) {
      const auto stride = stride_of(region, region.outputs[0], a);
      return a == tile ? 0 : stride ? std::abs(*stride) : INT64_MAX;
    };
    order = passes.parallel;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return apart(a) > apart(b); });
  }

  /// Whether what an output has of one result's terms lies side by side, and that of neighbouring
  /// results apart.
  bool is_turned(const Region& region, int output) const {
    const Output& out = region.outputs[std::size_t(output)];
    return passes.reduced.size() == 1 && terms >= kTermsOfTurn &&
           stride_of(region, out, passes.reduced[0]) == 1 && stride_of(region, out, tile) != 1;
  }

  /// Bytes of a point that lie beside those of the next along an axis, of what is streamed; nothing
  /// where results do not lie apart.
  std::optional<std::int64_t> contiguous(const Region& region, int axis) const {
    std::int64_t bytes = 0;
    for (const Output& o : region.outputs) {
      const auto stride = stride_of(region, o, axis);
      if (stride == 0)
        return std::nullopt;
      bytes += stride == 1 ? std::int64_t(size_of(o.dtype)) : 0;
    }
    for (const Stage& stage : region.stages)
      for (const Load& load : stage.loads)
        if (is_streamed(region, stage, load, passes.parallel) &&
            stride_of(region, stage, load, axis) == 1)
          bytes += std::int64_t(size_of(region.operands[std::size_t(load.number)].dtype));
    return bytes;
  }
};

/// Lanes whose accesses along the axis are aligned in memory, as those of windows are not.
int aligned_lanes(const Region& region, const PointFacts& f, std::int64_t vector_bytes) {
  const int axis = f.tile;
  std::int64_t lanes = gpu_lanes(region, axis, vector_bytes);
  const auto limit = [&](std::optional<std::int64_t> stride, const Expr& offset,
                         const std::vector<int>& axes) {
    if (stride == 0)
      return;
    if (stride != 1) { // each lane by itself, apart from its neighbours in the warp
      lanes = 1;
      return;
    }
    const auto at = std::find(axes.begin(), axes.end(), axis) - axes.begin();
    const std::int64_t divisor =
        (offset - Expr::axis(int(at), region.axes[std::size_t(axis)].extent)).divisor();
    lanes = divisor == 0 ? lanes : std::gcd(lanes, divisor);
  };
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads)
      if (is_streamed(region, stage, load, f.passes.parallel))
        limit(stride_of(region, stage, load, axis), offset_of(region, load), stage.axes);
  for (const Output& out : region.outputs)
    limit(stride_of(region, out, axis), offset_of(out),
          result_axes(region.stages[std::size_t(out.stage)]));
  return power_of_two_upto(lanes);
}

/// Whether the first caches keep what results share, once read.
bool is_cached(const Region& region, const PointFacts& f, const Stage& stage, const Load& load) {
  const Operand& operand = region.operands[std::size_t(load.number)];
  return !is_streamed(region, stage, load, f.passes.parallel) &&
         about(element_count(operand.shape)) * std::int64_t(size_of(operand.dtype)) <= kSharedBytes;
}

/// Whether warps read what lies about together, so that caches have the rest of each line when the
/// next terms ask for it.
bool reads_together(const Region& region, const PointFacts& f, int lanes) {
  std::vector<Expr> extents;
  for (int a : f.order) {
    const std::int64_t extent = std::max<std::int64_t>(about(region.axes[a].extent), 1);
    extents.emplace_back(a == f.tile ? (extent + lanes - 1) / lanes : extent);
  }
  std::int64_t touched = 0, least = 0;
  const auto count = [&](const Expr& offset, const std::vector<int>& axes, const auto& stride_along,
                         DType dtype, std::int64_t times, bool cached) {
    const auto size = std::int64_t(size_of(dtype));
    std::set<std::int64_t> lines;
    std::vector<std::optional<std::int64_t>> strides;
    for (const int axis : f.order)
      strides.push_back(stride_along(axis));
    bool varies = false;
    for (int thread = 0; thread < kThreadsReadingTogether; ++thread) {
      const std::vector<Expr> at = unflatten(Expr(thread), extents);
      std::map<int, std::int64_t> point;
      std::int64_t place = 0;
      bool divided = false;
      for (std::size_t i = 0; i < extents.size(); ++i) {
        const std::int64_t n = at[i].value() * (f.order[i] == f.tile ? lanes : 1);
        varies = varies || (n > 0 && strides[i] != 0);
        divided = divided || (n > 0 && !strides[i]);
        place += n * size * strides[i].value_or(kPointLine);
        point[f.order[i]] = n;
      }
      if (divided) { // as offsets into windows are: they have no one stride
        const Expr exact = substitute(offset, [&](const Expr& v) -> std::optional<Expr> {
          if (!v.is_axis())
            return std::nullopt;
          const auto found = point.find(axes[std::size_t(v.axis_number())]);
          return Expr(found == point.end() ? 0 : found->second);
        });
        const Expr none = substitute(offset, [](const Expr& v) -> std::optional<Expr> {
          return v.is_axis() ? std::optional(Expr(0)) : std::nullopt;
        });
        const Expr apart = exact - none;
        place = apart.is_constant() ? apart.value() * size : place;
      }
      lines.insert(floordiv(Expr(place), kPointLine).value());
    }
    const std::int64_t line = cached ? kCachedLines : 1;
    touched += times * ((std::int64_t(lines.size()) + line - 1) / line);
    least +=
        times *
        (varies ? std::max<std::int64_t>(kThreadsReadingTogether * lanes * size / kPointLine, 1)
                : 1);
  };
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads)
      if (load.source == Source::Operand)
        count(
            offset_of(region, load), stage.axes,
            [&](int axis) { return stride_of(region, stage, load, axis); },
            region.operands[std::size_t(load.number)].dtype, f.terms,
            is_cached(region, f, stage, load));
  for (std::size_t o = 0; o < region.outputs.size(); ++o) {
    const Output& out = region.outputs[o];
    const std::vector<int> axes = result_axes(region.stages[std::size_t(out.stage)]);
    const bool at_terms = std::any_of(f.passes.reduced.begin(), f.passes.reduced.end(),
                                      [&](int a) { return contains(axes, a); });
    if (!at_terms || !f.is_turned(region, int(o)))
      count(
          offset_of(out), axes, [&](int axis) { return stride_of(region, out, axis); }, out.dtype,
          at_terms ? f.terms : 1, false);
  }
  return touched <= kMostLines * least;
}

/// Whether a product has rows, columns and terms enough for tiles.
bool is_for_tiles(const Region& region, const PointFacts& f) {
  const FoundContraction product = find_contraction(region, true);
  return product.ok && f.terms > kTermsOfTiles && about(product.form.rows.extent) > kSidesOfTiles &&
         about(product.form.columns.extent) > kSidesOfTiles;
}

/// An operand that is a box of some axes, with the axis of the vectors innermost; nothing where it
/// is no box, is so already, or does not vary along that axis.
std::optional<Layout> along_vectors(const Region& region, const PointFacts& f, const Stage& stage,
                                    const Load& load) {
  const auto memory = axes_in_memory(region, stage, load);
  if (!memory || !contains(*memory, f.tile) || memory->back() == f.tile)
    return std::nullopt;
  Layout layout;
  std::size_t innermost = 0;
  for (std::size_t i = 0; i < memory->size(); ++i) {
    layout.box.push_back(region.axes[std::size_t((*memory)[i])].extent.value());
    if ((*memory)[i] == f.tile)
      innermost = i;
    else
      layout.digits.push_back({int(i), 0});
  }
  layout.digits.push_back({int(innermost), 0});
  return layout;
}

/// An operand whose neighbours are not neighbouring results, such as an image with channels last of
/// results with channels first, in the order of the results' axes. Each of these is one of the
/// operand's dims, along which windows go too.
std::optional<Layout> in_order_of_results(const Region& region, const PointFacts& f,
                                          const Stage& stage, const Load& load) {
  struct Dim {
    std::int64_t stride;
    std::size_t place; ///< among the results' axes
  };
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < f.order.size(); ++i) {
    const auto stride = stride_of(region, stage, load, f.order[i]);
    if (!stride || *stride < 1)
      return std::nullopt;
    dims.push_back({*stride, i});
  }
  std::ranges::sort(dims, [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
  std::int64_t elements = about(element_count(region.operands[std::size_t(load.number)].shape));
  Layout layout;
  std::vector<int> by_place(dims.size());
  for (std::size_t d = 0; d < dims.size(); ++d) {
    if (elements % dims[d].stride != 0)
      return std::nullopt;
    layout.box.push_back(elements / dims[d].stride);
    elements = dims[d].stride;
    by_place[dims[d].place] = int(d);
  }
  for (const int d : by_place)
    layout.digits.push_back({d, 0});
  const bool apart = dims.back().place + 1 != f.order.size();
  return elements == 1 && apart ? std::optional(layout) : std::nullopt;
}

/// The strips that a thread of the schedule makes.
Strip strip_of(const Region& region, const PointFacts& f, const Schedule& schedule) {
  const auto most = int(schedule.knob("strip", 1));
  return most < 2 || f.passes.waits() ? Strip{} : overlapping_strip(region, f.passes, f.tile, most);
}

class GpuPoints {
public:
  GpuPoints(const Region& region, const PointFacts& facts, const Schedule& schedule,
            const Target& target)
      : r_(region), f_(facts), p_(facts.passes), schedule_(schedule), b_(region.name),
        e_(b_, region), threads_(int(schedule.knob("threads", 256))),
        copies_(int(schedule.knob("results", 1))), strip_(strip_of(region, facts, schedule)),
        t_(thread_variable(threads_)), arithmetic_(arithmetic_of(target)) {
    lanes_ = aligned_lanes(region, f_,
                           schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes);
    e_.load_policy = schedule.load_policy;
    sequence_ = p_.reduced;
    if (strip_.axis >= 0) {
      copies_ = 1;
      std::erase(sequence_, strip_.along);
      sequence_.push_back(strip_.along);
    }
    for (int a : sequence_)
      reduced_.push_back(r_.axes[a].extent);
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = threads_;
    launch.blocks_per_core = schedule_.blocks_per_core;
    launch.workers = Expr(1);
    if (is_empty(r_, p_.parallel))
      return b_.finish(launch);
    for (int a : f_.order) {
      const Expr& extent = r_.axes[a].extent;
      extents_.push_back(a == f_.tile       ? ceildiv(extent, Expr(lanes_))
                         : a == strip_.axis ? ceildiv(extent, Expr(strip_.results))
                                            : extent);
      count_ = count_ * extents_.back();
    }
    const std::int64_t tile = std::int64_t(threads_) * copies_;
    const Expr blocks = ceildiv(count_, Expr(tile));
    launch.workers = max(Expr(1), blocks);
    b_.grid_loop(blocks, [&](const Expr& block) {
      const auto at = [&](bool whole) {
        whole_ = whole;
        firsts_.clear();
        std::vector<Point> points;
        for (int c = 0; c < copies_; ++c) {
          firsts_.push_back(block * Expr(tile) + Expr(std::int64_t(c) * threads_));
          for (int n = 0; n < strip_.results; ++n)
            points.push_back(point_at(firsts_.back() + t_, n));
        }
        results(points);
      };
      // Whole tiles without tests, so that their loads stand together.
      const Expr end = (block + Expr(1)) * Expr(tile);
      const Guard all{end, Expr(0), count_ + Expr(1)};
      b_.when({all}, [&] { at_strip(block * Expr(tile) + t_, at); });
      b_.when({{count_, Expr(0), end}}, [&] { at(false); });
    });
    return b_.finish(launch);
  }

private:
  /// `body`, told whether all results of this thread's strip exist.
  void at_strip(const Expr& flat, const std::function<void(bool whole)>& body) {
    if (strip_.axis < 0) {
      body(true);
      return;
    }
    const Expr& extent = r_.axes[std::size_t(strip_.axis)].extent;
    const Expr end = point_at(flat, 0).at[std::size_t(strip_.axis)] + Expr(strip_.results);
    if (extent.divisor() % strip_.results == 0) {
      body(true);
      return;
    }
    b_.when({{end, Expr(0), extent + Expr(1)}}, [&] { body(true); });
    b_.when({{extent, Expr(0), end}}, [&] { body(false); });
  }

  /// Result number `n` of the strip.
  Point point_at(const Expr& flat, int n = 0) const {
    const std::vector<Expr> at = unflatten(flat, extents_);
    Point p;
    p.at.resize(r_.axes.size());
    for (std::size_t i = 0; i < at.size(); ++i)
      p.at[f_.order[i]] = at[i];
    p.lanes = lanes_;
    if (!whole_)
      p.mask.push_back({flat, Expr(0), count_});
    if (strip_.axis >= 0) {
      Expr& across = p.at[std::size_t(strip_.axis)];
      across = across * Expr(strip_.results) + Expr(n);
      if (!whole_)
        p.mask.push_back({across, Expr(0), r_.axes[std::size_t(strip_.axis)].extent});
    }
    Expr& along = p.at[f_.tile];
    along = along * Expr(lanes_) + (lanes_ > 1 ? lane_variable(lanes_) : Expr(0));
    p.mask.push_back({along, Expr(0), r_.axes[f_.tile].extent});
    return p;
  }

  /// All passes at some points, whose results are stored together: an output may lie in the memory
  /// of an operand.
  void results(const std::vector<Point>& points) {
    for (int pass = 0; pass < p_.count; ++pass) {
      PassStates sums = states_of(pass);
      std::vector<Running> states = run_pass(pass, points);
      for (std::size_t i = 0; i < points.size(); ++i)
        sums.provide(points[i], states[i]);
    }
    std::vector<Value> values;
    for (const Point& p : points)
      for (int o : p_.point_outputs)
        values.push_back(e_.result(r_.outputs[o].stage, r_.outputs[o].component, p));
    auto value = values.begin();
    for (const Point& p : points)
      for (int o : p_.point_outputs)
        e_.store(o, p, *value++, schedule_.store_policy);
  }

  PassStates states_of(int pass) {
    return {e_, p_, pass, arithmetic_, Expr(f_.terms), lanes_, lanes_};
  }

  /// Terms that stand one after the other in the code, as far as that is not too much of it.
  std::int64_t together() const {
    const std::int64_t wished = wished_together();
    double work = 0; // of a term
    for (const Stage& stage : r_.stages)
      if (std::ranges::any_of(p_.reduced, [&](int a) { return contains(stage.axes, a); }))
        work += written_work(stage);
    const auto results = std::int64_t(lanes_) * copies_ * std::max(strip_.results, 1);
    const double all = wished <= kFewTermsOfPoint ? kWrittenWorkOfFew : kWrittenWork;
    const std::int64_t most = std::max({std::int64_t(all / std::max(work * double(results), 1.0)),
                                        kFewTermsOfPoint / results, std::int64_t(1)});
    if (wished <= most)
      return wished;
    for (std::int64_t terms = most; 2 * terms > most; --terms) // no rest, if they are not far fewer
      if (wished % terms == 0)
        return terms;
    return most;
  }

  /// All terms of a few, else the innermost axes', as far as they are few.
  std::int64_t wished_together() const {
    if (strip_.axis >= 0) {
      std::int64_t terms =
          reduced_.back().value() <= kWrittenTerms ? reduced_.back().value() : kFewTermsOfPoint;
      for (std::size_t i = reduced_.size() - 1; i-- > 0;) {
        if (terms * reduced_[i].value() * strip_.results > kWrittenTermsOfStrip)
          break;
        terms *= reduced_[i].value();
      }
      return terms;
    }
    if (f_.terms * copies_ <= kWrittenTerms)
      return f_.terms;
    std::int64_t terms = 1;
    for (std::size_t i = reduced_.size(); i-- > 0;) {
      if (terms * reduced_[i].value() > kFewTermsOfPoint)
        break;
      terms *= reduced_[i].value();
    }
    return terms > 1 ? terms : std::min(kFewTermsOfPoint, f_.terms);
  }

  std::vector<Running> run_pass(int pass, const std::vector<Point>& points) {
    const std::int64_t each = together(), turns = f_.terms / each;
    std::vector<RunningVariables> running;
    for (std::size_t i = 0; i < points.size(); ++i)
      running.emplace_back(b_, states_of(pass).start());
    b_.loop(Expr(0), Expr(turns), Expr(1), Expr(turns), Bind::Serial,
            [&](const Expr& turn) { terms(pass, points, turn * Expr(each), each, running); });
    if (f_.terms % each != 0)
      terms(pass, points, Expr(turns * each), f_.terms % each, running);
    std::vector<Running> states;
    for (const RunningVariables& r : running)
      states.push_back(r.read());
    return states;
  }

  /// Terms first, first + 1 ... of a pass, and what it stores at them.
  void terms(int pass, const std::vector<Point>& points, const Expr& first, std::int64_t count,
             const std::vector<RunningVariables>& running) {
    struct Pending {
      int output;
      Point point;
      Value value;
    };
    std::vector<Pending> stores;
    std::map<std::pair<int, std::size_t>, std::vector<Value>> turned; // by output and point
    PassStates sums = states_of(pass);
    for (std::size_t i = 0; i < points.size(); ++i) {
      Running states = running[i].read();
      for (std::int64_t k = 0; k < count; ++k) {
        const Expr place = first + Expr(k);
        const std::vector<Expr> at = unflatten(place, reduced_);
        Point q = points[i];
        for (std::size_t a = 0; a < at.size(); ++a)
          q.at[sequence_[a]] = at[a];
        Expr number = Expr(0); // of the term
        for (const int a : p_.reduced)
          number = number * r_.axes[std::size_t(a)].extent + q.at[std::size_t(a)];
        const PassStates::Spot spot{&q, number, {}};
        sums.add(states, std::span(&spot, 1), false);
        for (int o : p_.outputs[pass]) {
          const Value value = e_.result(r_.outputs[o].stage, r_.outputs[o].component, q);
          if (lanes_ == 1 && f_.is_turned(r_, o))
            turned[{o, i}].push_back(value);
          else
            stores.push_back({o, q, value});
        }
      }
      running[i].write(states);
    }
    for (const Pending& s : stores)
      e_.store(s.output, s.point, s.value, schedule_.store_policy);
    for (const auto& [of, values] : turned)
      turn(of.first, firsts_[of.second], first, values);
  }

  /// Stores what each thread has of one output at some terms of one result: a warp puts it into
  /// shared memory, and its lanes beside each other store neighbouring terms.
  void turn(int output, const Expr& first_result, const Expr& first,
            const std::vector<Value>& values) {
    constexpr int kWarp = 32, kMostLanes = 4;
    const auto count = std::int64_t(values.size());
    const DType dtype = r_.outputs[output].dtype;
    const std::int64_t pitch = together() | 1; // rows in different banks
    const auto [known, fresh] = turned_.try_emplace(output, -1);
    if (fresh)
      known->second = b_.shared(fmt::format("turned{}", output), dtype, threads_ * pitch);
    const int buffer = known->second;
    b_.subgroup_barrier(); // the lanes have read those before
    for (std::int64_t k = 0; k < count; ++k)
      b_.store(buffer, t_ * Expr(pitch) + Expr(k),
               e_.narrow(e_.convert(values[std::size_t(k)], dtype)));
    b_.subgroup_barrier();
    int lanes = kMostLanes;
    while (count % lanes != 0)
      lanes /= 2;
    const std::int64_t parts = count / lanes;
    const Expr lane = floormod(t_, kWarp), vector = lanes > 1 ? lane_variable(lanes) : Expr(0);
    for (std::int64_t i = 0; i < parts; ++i) {
      const Expr number = lane + Expr(i * kWarp),
                 thread = t_ - lane + floordiv(number, Expr(parts)),
                 term = floormod(number, Expr(parts)) * Expr(lanes) + vector;
      Point q = point_at(first_result + thread);
      q.lanes = lanes;
      q.at[p_.reduced[0]] = first + term;
      const ValueId value = b_.load(buffer, thread * Expr(pitch) + term, lanes);
      e_.store(output, q, e_.widen(value), schedule_.store_policy);
    }
  }

  const Region& r_;
  const PointFacts& f_;
  const Passes& p_;
  const Schedule& schedule_;
  ProgramBuilder b_;
  Emitter e_;
  int threads_, copies_;
  Strip strip_;
  Expr t_;
  Arithmetic arithmetic_;
  int lanes_ = 1;
  std::vector<int> sequence_; ///< the reduced axes in the order of the terms
  std::vector<Expr> reduced_; ///< their extents
  std::vector<Expr> extents_; ///< of the results' axes, of vectors where they have lanes
  Expr count_ = Expr(1);      ///< of results, or of their vectors
  std::vector<Expr> firsts_;  ///< by point: the number of the block's first one
  bool whole_ = true;         ///< all of the block's results exist
  std::map<int, int> turned_; ///< by output: where warps exchange it
};

constexpr Knob kGpuPointsKnobs[] = {
    {"threads", 32, 1024, 32}, {"results", 1, 8}, {"strip", 1, kMostOfStrip}};

class GpuPointsGenerator : public Generator {
public:
  std::string name() const override { return "gpu_points"; }

  /// Operands whose neighbours in memory are not neighbouring results, so that each lane reads a
  /// line of its own: what results share along the other axes, as weights do, with the axis of the
  /// vectors innermost; and images with their axes in the order of the results'.
  std::vector<LayoutWish> layouts(const Region& region, const Target& target) const override {
    const PointFacts f(region);
    if (!f.passes.reason.empty() || is_for_tiles(region, f))
      return {};
    const double seconds = double(about(points_of(region, f.passes.parallel))) * double(f.terms) /
                           (double(target.workers) * kLinesOfCache);
    std::vector<LayoutWish> wishes;
    for (const Stage& stage : region.stages)
      for (const Load& load : stage.loads)
        if (load.source == Source::Operand)
          if (auto layout = is_streamed(region, stage, load, f.passes.parallel)
                                ? in_order_of_results(region, f, stage, load)
                                : along_vectors(region, f, stage, load))
            wishes.push_back({load.number, std::move(*layout), "the results' order", seconds});
    return wishes;
  }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const PointFacts f(region);
    if (!f.passes.reason.empty())
      return {};
    const int lanes = aligned_lanes(region, f, target.vector_bytes);
    const std::int64_t threads = about(points_of(region, f.passes.parallel)) / lanes;
    if ((f.terms > kFewTermsOfPoint && threads < kThreadsForTerms * target.workers) ||
        !reads_together(region, f, lanes))
      return {};
    if (is_for_tiles(region, f))
      return {};
    std::vector<Schedule> out;
    const auto add = [&](decltype(Schedule::knobs) knobs) {
      Schedule s;
      s.generator = name();
      s.knobs = std::move(knobs);
      s.store_policy = gpu_store_policy(region, target);
      out.push_back(std::move(s));
    };
    for (int most = kMostOfStrip; most > 1; most /= 2)
      if (!f.passes.waits() && most * lanes <= kMostLanesOfStrip &&
          threads / most >= kThreadsForTerms * target.workers)
        if (const Strip strip = overlapping_strip(region, f.passes, f.tile, most); strip.axis >= 0)
          for (std::int64_t block : {256, 128})
            add({{"threads", block}, {"results", 1}, {"strip", most}});
    const std::int64_t usual = threads >= 4 * kThreadsForTerms * target.workers ? 2 : 1;
    for (std::int64_t results : {usual, 3 - usual, std::int64_t(4)})
      for (std::int64_t block : {256, 128, 512})
        add({{"threads", block}, {"results", results}});
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kGpuPointsKnobs); !why.empty())
      return {false, {}, why};
    const PointFacts f(region);
    if (!f.passes.reason.empty())
      return {false, {}, f.passes.reason};
    if (schedule.knob("strip", 1) > 1) {
      if (schedule.knob("results", 1) > 1)
        return {false, {}, "a thread makes one strip of results"};
      if (strip_of(region, f, schedule).axis < 0)
        return {false, {}, "no strip of its results reads less than single ones"};
    }
    return {true, GpuPoints(region, f, schedule, target).run(), ""};
  }
};

} // namespace

const Generator& gpu_points_generator() {
  static const GpuPointsGenerator generator;
  return generator;
}

} // namespace egret::kernel

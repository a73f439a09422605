// Maps over one box, with any views of their operands.
//
// On a CPU: parallel loops over the outer axes and chunks of the vector axis, and inside of each
// `vectors` vectors an iteration. On a GPU: blocks of `threads` threads, each with `vectors`
// vectors of up to 16 bytes, whose loads are all made before the first store; of several axes all
// vectors are one loop, so that short rows leave no thread idle. With `transpose`, operands that
// are contiguous along another axis than the results are staged: on a CPU in blocks of as many rows
// as lanes that are transposed in registers, on a GPU in tiles of `side` by `side` in shared
// memory. Results whose innermost axis is shorter than vectors (the parts of complex numbers, the
// channels of pixels) have vectors along the axis outside of it on a CPU: a vector for each index
// of the innermost one, which are interleaved in registers.
#include "kernel/analysis.h"
#include "kernel/contraction_form.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/map_axes.h"
#include "kernel/templates/template.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>

namespace egret::kernel {

namespace {

using loops::loop;
using loops::TreePtr;

/// Elements along the vector axis that a CPU thread does in a row, if the schedule names none.
constexpr std::int64_t kChunkOfRow = 8192;
/// Vectors that are interleaved, at the most.
constexpr std::int64_t kMostInterleaved = 4;
/// Arithmetic and loads of a GPU's thread that are written out, in additions: compilers take more
/// than linear time for straight code.
constexpr double kWrittenWork = 5120;
/// The same of a map that leaves threads idle, and threads of a multiprocessor up to which it does:
/// these make the points that would be lanes at the same time.
constexpr double kWrittenWorkBesideIdle = 256;
constexpr std::int64_t kThreadsOfMap = 128;
constexpr Knob kParameters[] = {{"vectors", 1, 16},
                                {"transpose", 0, 1},
                                {"chunk", 1024, 1 << 24, 1024},
                                {"threads", 32, 1024, 32},
                                {"side", 32, 128, 32}};

/// What all trees of a region have in common.
struct Map {
  int vector = -1, transposed = -1; ///< axes
  int interleaved = -1;             ///< innermost axis of results, of `vector` the next one
  int lanes = 1;
  std::int64_t vectors = 1;
  TreePtr bodies; ///< of all outputs at one point, under the masks of the axes that tiles may leave
};

/// A load that is contiguous along `transposed`, strided along `vector`, and can be staged.
bool is_transposed(const Region& region, const Stage& stage, const Load& load, const Map& map) {
  if (load.source != Source::Operand || !load.map.is_total() || !load.indirect.empty() ||
      stride_of(region, stage, load, map.transposed) != 1)
    return false;
  const auto s = stride_of(region, stage, load, map.vector);
  return s && *s != 0 && *s != 1;
}

TreePtr staged(const Region& region, const Map& map, TreePtr rest) {
  std::vector<int> done;
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads)
      if (is_transposed(region, stage, load, map) && !contains(done, load.number)) {
        done.push_back(load.number);
        rest = loops::near(load.number, std::move(rest));
      }
  return rest;
}

/// Whether an access of all points finds neighbours along an axis in one line of a cache.
bool shares_lines(const std::optional<std::int64_t>& stride, DType type) {
  constexpr std::int64_t kLine = 64;
  return stride && *stride != 0 && std::abs(*stride) * std::int64_t(size_of(type)) < kLine;
}

/// The axes but those that vectors or blocks go along, in an order in which lines of a cache are
/// used up: behind the others those along which operands of full size or results are contiguous.
std::vector<int> outer_axes(const Region& region, std::span<const int> inner) {
  std::vector<int> axes = axes_but(region, inner);
  const auto shared_lines = [&](int axis) {
    int count = 0;
    for (const Stage& stage : region.stages)
      for (const Load& load : stage.loads) {
        if (load.source != Source::Operand || !load.indirect.empty())
          continue;
        const auto is_read_along = [&](int a) { return stride_of(region, stage, load, a) != 0; };
        if (std::all_of(stage.axes.begin(), stage.axes.end(), is_read_along))
          count += shares_lines(stride_of(region, stage, load, axis),
                                region.operands[std::size_t(load.number)].dtype);
      }
    for (const Output& out : region.outputs)
      count += shares_lines(stride_of(region, out, axis), out.dtype);
    return count;
  };
  std::stable_sort(axes.begin(), axes.end(),
                   [&](int a, int b) { return shared_lines(a) < shared_lines(b); });
  return axes;
}

/// The axis outside of a vector axis that is too short for vectors, where all results are
/// contiguous along both; -1 where there is none.
int axis_outside(const Region& region, int inner, const Target& target) {
  if (inner < 0 || target.is_gpu())
    return -1;
  const auto places = region.axes[std::size_t(inner)].extent.constant();
  const int lanes = lanes_for(region, all_stages(region), target.vector_bytes);
  if (!places || *places < 2 || *places > kMostInterleaved || *places >= lanes)
    return -1;
  for (int a = 0; a < int(region.axes.size()); ++a)
    if (a != inner && about(region.axes[std::size_t(a)].extent) >= lanes &&
        std::all_of(region.outputs.begin(), region.outputs.end(), [&](const Output& o) {
          return stride_of(region, o, inner) == 1 && stride_of(region, o, a) == *places;
        }))
      return a;
  return -1;
}

/// As many of the lanes of a GPU's vector as the code of all stages is short enough for, at most so
/// much work: each lane's operations are written out, and threads hide the latency of much
/// arithmetic as well.
int written_lanes(const Region& region, int lanes, double most) {
  double work = 0;
  for (const Stage& stage : region.stages)
    work += written_work(stage);
  while (lanes > 1 && work * lanes > most)
    lanes /= 2;
  return lanes;
}

/// The same of a map that leaves threads idle with so many lanes.
int lanes_beside_idle(const Region& region, int lanes, const Target& target) {
  const std::int64_t points = about(points_of(region, axes_but(region, {}))) * target.sharing;
  while (lanes > 1 && points / lanes < kThreadsOfMap * target.workers &&
         written_lanes(region, lanes, kWrittenWorkBesideIdle) < lanes)
    lanes /= 2;
  return lanes;
}

/// Arithmetic and loads of a point.
double work_of(const Region& region) {
  double work = 0;
  for (const Stage& stage : region.stages)
    work += flops_of(stage) + double(stage.loads.size());
  return work;
}

/// Whether the code of several of a GPU's vectors is too long for one thread.
bool is_long(const Region& region, int lanes, std::int64_t vectors) {
  return work_of(region) * lanes * double(vectors) > kWrittenWork;
}

/// Whether a CPU goes so few times through the code of several vectors that to compile it takes
/// longer than it will ever save.
bool is_long_for_few(const Region& region, int lanes, std::int64_t vectors) {
  constexpr double kLongWork = 256, kFewTimes = 64;
  double points = 1;
  for (const Axis& axis : region.axes)
    points *= double(usual_size(axis.extent));
  return vectors > 1 && work_of(region) * double(vectors) > kLongWork &&
         points / double(lanes * vectors) < kFewTimes;
}

class ElementwiseTemplate : public Template {
public:
  std::string name() const override { return "elementwise"; }

protected:
  std::string refuses(const Region& region) const override {
    return is_plain_map(region) ? "" : "not a map over one box that stores its results";
  }

  std::span<const Knob> parameters() const override { return kParameters; }

  std::vector<Schedule> proposals(const Region& region, const Target& target) const override {
    const int vector = map_vector_axis(region);
    const bool turns = vector >= 0 && map_turned_axis(region, vector) >= 0;
    const CachePolicy usual =
        target.is_gpu() ? gpu_store_policy(region, target) : usual_store_policy(region, target);
    const CachePolicy other =
        usual == CachePolicy::Default ? CachePolicy::Streaming : CachePolicy::Default;
    std::vector<Schedule> out;
    Schedule s;
    s.generator = name();
    const auto add = [&](std::initializer_list<std::pair<const std::string, std::int64_t>> knobs,
                         std::int64_t bytes = 0) {
      for (CachePolicy policy : {usual, other}) {
        s.knobs = knobs;
        s.vector_bytes = bytes;
        s.store_policy = policy;
        out.push_back(s);
      }
    };
    if (target.is_gpu()) {
      for (int threads = 128; threads <= 512; threads *= 2) {
        for (int vectors = 1; vectors <= 4; vectors *= 2)
          add({{"threads", threads}, {"vectors", vectors}});
        if (turns)
          add({{"threads", threads}, {"transpose", 1}});
      }
      return out;
    }
    if (axis_outside(region, vector, target) >= 0) {
      for (int vectors = 1; vectors <= 4; vectors *= 2)
        add({{"vectors", vectors}, {"chunk", kChunkOfRow / 4}});
      return out;
    }
    const int lanes = vector < 0 ? 1 : lanes_for(region, all_stages(region), target.vector_bytes);
    for (int vectors = 1; vectors <= 8; vectors *= 2)
      for (std::int64_t chunk = kChunkOfRow / 4; chunk <= 4 * kChunkOfRow; chunk *= 4)
        if (!is_long_for_few(region, lanes, vectors))
          add({{"vectors", vectors}, {"chunk", chunk}});
    if (!is_long_for_few(region, lanes / 2, 4))
      add({{"vectors", 4}, {"chunk", kChunkOfRow}}, target.vector_bytes / 2);
    if (turns)
      add({{"transpose", 1}});
    return out;
  }

  Built build(const Region& region, const Schedule& schedule, const Target& target) const override {
    Map map;
    const bool transposes = schedule.knob("transpose", 0) != 0;
    map.vector = map_vector_axis(region);
    if (const int outside = axis_outside(region, map.vector, target); outside >= 0 && !transposes) {
      map.interleaved = map.vector;
      map.vector = outside;
    }
    const std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    if (map.vector >= 0)
      map.lanes = target.is_gpu() ? gpu_lanes(region, map.vector, bytes)
                                  : lanes_for(region, all_stages(region), bytes);
    map.vectors = schedule.knob("vectors", 4);
    if (target.is_gpu()) {
      const int lanes = written_lanes(region, map.lanes, kWrittenWork);
      if (!transposes && map.vectors > 1 &&
          (lanes < map.lanes || is_long(region, map.lanes, map.vectors)))
        return {nullptr, "the code of so many vectors is too long"};
      map.lanes = lanes_beside_idle(region, lanes, target);
    }
    if (transposes) {
      map.transposed = map.vector < 0 ? -1 : map_turned_axis(region, map.vector);
      if (map.transposed < 0)
        return {nullptr, "no operand is contiguous along another axis than the results"};
    }
    map.bodies = bodies(region);
    for (int a : {map.vector, map.transposed})
      if (a >= 0)
        map.bodies = loops::mask(a, std::move(map.bodies));
    if (map.transposed >= 0)
      return target.is_gpu() ? gpu_tiles(region, schedule, map) : blocks(region, map);
    return target.is_gpu() ? gpu_vectors(region, schedule, map)
                           : chunks(region, schedule.knob("chunk", kChunkOfRow), map);
  }

private:
  static TreePtr bodies(const Region& region) {
    std::vector<TreePtr> all;
    for (int s = 0; s < int(region.stages.size()); ++s)
      if (is_output(region, s))
        all.push_back(loops::body(s));
    return in_turn(std::move(all));
  }

  static Built chunks(const Region& region, std::int64_t chunk, const Map& map) {
    const std::vector<int> outer = outer_axes(region, std::array{map.vector, map.interleaved});
    TreePtr inner = map.bodies;
    if (map.vector >= 0) {
      const std::int64_t step = map.vectors * map.lanes;
      std::vector<LoopDigit> steps = {{step, Bind::Serial}, {map.lanes, Bind::Unroll}};
      if (map.lanes > 1)
        inner = loop(map.vector, Expr(map.lanes), 1, Bind::Vector, std::move(inner));
      if (map.interleaved >= 0)
        inner = loop(map.interleaved, region.axes[std::size_t(map.interleaved)].extent, 1,
                     Bind::Unroll, std::move(inner));
      if (!proves_less_equal(region.axes[std::size_t(map.vector)].extent, Expr(chunk))) {
        if (chunk % step != 0)
          return {nullptr, "a chunk is no multiple of the vectors"};
        steps.insert(steps.begin(), {chunk, bind_after(region, outer)});
      }
      inner = digits(region, map.vector, std::move(steps), std::move(inner));
    }
    return {parallel_loops(region, outer, std::move(inner)), ""};
  }

  /// Blocks of as many rows as lanes.
  static Built blocks(const Region& region, const Map& map) {
    if (map.lanes == 1)
      return {nullptr, "one lane transposes nothing"};
    const std::vector<int> outer = outer_axes(region, std::array{map.vector, map.transposed});
    TreePtr block = loop(map.transposed, Expr(map.lanes), 1, Bind::Unroll,
                         loop(map.vector, Expr(map.lanes), 1, Bind::Vector, map.bodies));
    const auto over = [&](int axis, Bind bind, TreePtr rest) {
      return loop(axis, ceildiv(region.axes[std::size_t(axis)].extent, Expr(map.lanes)), map.lanes,
                  bind, std::move(rest));
    };
    TreePtr rows = over(map.transposed, bind_after(region, outer),
                        over(map.vector, Bind::Serial, staged(region, map, std::move(block))));
    return {parallel_loops(region, outer, std::move(rows)), ""};
  }

  /// Vectors of one axis by their digits, of several in row-major order of their points.
  static Built gpu_vectors(const Region& region, const Schedule& schedule, const Map& map) {
    const std::int64_t threads = schedule.knob("threads", 256), lanes = map.lanes;
    if (region.axes.size() == 1 && map.vector == 0)
      return {digits(region, 0,
                     {{threads * map.vectors * lanes, Bind::Grid},
                      {threads * lanes, Bind::Unroll},
                      {lanes, Bind::Lane},
                      {1, Bind::Vector}},
                     map.bodies),
              ""};
    TreePtr tree = map.bodies;
    if (lanes > 1)
      tree = loop(map.vector, Expr(lanes), 1, Bind::Vector, std::move(tree));
    for (int a = int(region.axes.size()) - 1; a >= 0; --a)
      tree = digits(region, a, {{a == map.vector ? lanes : 1, Bind::Grid}}, std::move(tree));
    return {loops::collapse(int(threads), int(map.vectors), std::move(tree)), ""};
  }

  static Built gpu_tiles(const Region& region, const Schedule& schedule, const Map& map) {
    const std::int64_t threads = schedule.knob("threads", 256), side = schedule.knob("side", 64);
    if (side % map.lanes != 0 || threads % (side / map.lanes) != 0 ||
        threads / (side / map.lanes) > side || side % (threads / (side / map.lanes)) != 0)
      return {nullptr, "the threads are no rows of a tile"};
    const std::int64_t rows = threads / (side / map.lanes);
    TreePtr take =
        loop(map.vector, Expr(side / map.lanes), map.lanes, Bind::Lane,
             map.lanes > 1 ? loop(map.vector, Expr(map.lanes), 1, Bind::Vector, map.bodies)
                           : map.bodies);
    take = loop(map.transposed, Expr(rows), 1, Bind::Warp, std::move(take));
    if (rows < side)
      take = loop(map.transposed, Expr(side / rows), rows, Bind::Unroll, std::move(take));
    const auto over = [&](int axis, TreePtr rest) {
      return loop(axis, ceildiv(region.axes[std::size_t(axis)].extent, Expr(side)), side,
                  Bind::Grid, std::move(rest));
    };
    TreePtr tree = over(map.transposed, over(map.vector, staged(region, map, std::move(take))));
    const std::vector<int> outer = axes_but(region, std::array{map.vector, map.transposed});
    for (std::size_t i = outer.size(); i-- > 0;)
      tree =
          loop(outer[i], region.axes[std::size_t(outer[i])].extent, 1, Bind::Grid, std::move(tree));
    return {std::move(tree), ""};
  }
};

} // namespace

const Generator& elementwise_generator() {
  static const ElementwiseTemplate generator;
  return generator;
}

} // namespace egret::kernel

// Maps over one box on a GPU: a thread does several vectors, each an access of up to 16 bytes, a
// block a tile of them. Operands that are contiguous along another axis than the results are read
// in tiles along that axis and turned through shared memory.
#include "kernel/analysis.h"
#include "kernel/emit.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/knobs.h"
#include "kernel/map_axes.h"

#include "support/fail.h"

#include <algorithm>
#include <utility>

namespace egret::kernel {

namespace {

class GpuElementwise {
public:
  GpuElementwise(const Region& region, const Schedule& schedule, const Target& target)
      : r_(region), schedule_(schedule), b_(region.name), e_(b_, region),
        threads_(int(schedule.knob("threads", 256))), t_(thread_variable(threads_)) {
    vector_ = map_vector_axis(region);
    std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    lanes_ = vector_ < 0 ? 1 : gpu_lanes(region, vector_, bytes);
    copies_ = int(schedule.knob("vectors", 4));
    turned_ = schedule.knob("turn", 0) && vector_ >= 0 ? map_turned_axis(region, vector_) : -1;
    e_.load_policy = schedule.load_policy;
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = threads_;
    launch.blocks_per_core = schedule_.blocks_per_core;
    launch.workers = Expr(1);
    if (!is_empty(r_, all_axes()))
      launch.workers = max(Expr(1), turned_ >= 0 ? turned_tiles() : straight_tiles());
    return b_.finish(launch);
  }

private:
  std::vector<int> all_axes() const {
    std::vector<int> axes;
    for (int a = 0; a < int(r_.axes.size()); ++a)
      axes.push_back(a);
    return axes;
  }

  Expr lane() const { return lanes_ > 1 ? lane_variable(lanes_) : Expr(0); }

  /// All outputs at some points: everything is read before anything is written, as outputs may take
  /// over the memory of operands.
  void compute(const std::vector<Point>& points) {
    std::vector<Value> values;
    for (const Point& p : points)
      for (const Output& o : r_.outputs)
        values.push_back(e_.result(o.stage, o.component, p));
    auto value = values.begin();
    for (const Point& p : points)
      for (std::size_t o = 0; o < r_.outputs.size(); ++o)
        e_.store(int(o), p, *value++, schedule_.store_policy);
  }

  /// Vectors in row-major order of their points. Gives the blocks.
  Expr straight_tiles() {
    std::vector<Expr> extents;
    Expr count(1);
    for (std::size_t a = 0; a < r_.axes.size(); ++a) {
      const Expr& extent = r_.axes[a].extent;
      extents.push_back(int(a) == vector_ ? ceildiv(extent, Expr(lanes_)) : extent);
      count = count * extents.back();
    }
    const std::int64_t tile = std::int64_t(threads_) * copies_;
    Expr blocks = ceildiv(count, Expr(tile));
    b_.grid_loop(blocks, [&](const Expr& block) {
      auto at = [&](bool whole) {
        std::vector<Point> points;
        for (int c = 0; c < copies_; ++c) {
          Expr flat = block * Expr(tile) + Expr(std::int64_t(c) * threads_) + t_;
          Point p;
          p.at = unflatten(flat, extents);
          p.lanes = lanes_;
          if (!whole)
            p.mask.push_back({flat, Expr(0), count});
          if (vector_ >= 0) {
            p.at[vector_] = p.at[vector_] * Expr(lanes_) + lane();
            p.mask.push_back({p.at[vector_], Expr(0), r_.axes[vector_].extent});
          }
          points.push_back(std::move(p));
        }
        compute(points);
      };
      // Whole tiles without tests, so that their loads stand together.
      Expr end = (block + Expr(1)) * Expr(tile);
      b_.when({{end, Expr(0), count + Expr(1)}}, [&] { at(true); });
      b_.when({{count, Expr(0), end}}, [&] { at(false); });
    });
    return blocks;
  }

  // --- Tiles over the turned and the vector axis

  bool is_turned(const Stage& stage, const Load& load) const {
    if (load.source != Source::Operand || !load.map.is_total() || !load.indirect.empty() ||
        stride_of(r_, stage, load, turned_) != 1)
      return false;
    auto s = stride_of(r_, stage, load, vector_);
    return s && *s != 0 && *s != 1;
  }

  struct Turned {
    const Stage* stage;
    const Load* load;
    int memory; ///< of the tile: [turned][vector]
  };

  Expr turned_tiles() {
    const std::int64_t side = schedule_.knob("side", 64), pitch = side + 1;
    std::vector<Expr> extents;
    std::vector<int> axes;
    for (int a : all_axes())
      if (a != turned_ && a != vector_) {
        axes.push_back(a);
        extents.push_back(r_.axes[a].extent);
      }
    const Expr &rows = r_.axes[turned_].extent, &columns = r_.axes[vector_].extent;
    extents.push_back(ceildiv(rows, Expr(side)));
    extents.push_back(ceildiv(columns, Expr(side)));
    Expr blocks(1);
    for (const Expr& e : extents)
      blocks = blocks * e;
    std::vector<Turned> loads;
    for (const Stage& stage : r_.stages)
      for (const Load& load : stage.loads)
        if (is_turned(stage, load))
          loads.push_back({&stage, &load,
                           b_.shared(fmt::format("tile{}", loads.size()),
                                     r_.operands[load.number].dtype, side * pitch)});
    b_.grid_loop(blocks, [&](const Expr& block) {
      std::vector<Expr> at = unflatten(block, extents);
      Point p;
      p.at.resize(r_.axes.size());
      for (std::size_t i = 0; i < axes.size(); ++i)
        p.at[axes[i]] = at[i];
      Expr row = at[axes.size()] * Expr(side), column = at[axes.size() + 1] * Expr(side);
      for (const Turned& load : loads)
        fill(p, load, row, column, side, pitch);
      b_.barrier();
      take(p, loads, row, column, side, pitch);
      b_.barrier();
    });
    return blocks;
  }

  /// The element that a load reads at a row and a column of the tile.
  Expr offset_at(const Point& p, const Turned& load, const Expr& row, const Expr& column) const {
    return substitute(offset_of(r_, *load.load), [&](const Expr& v) -> std::optional<Expr> {
      if (!v.is_axis())
        return std::nullopt;
      int a = load.stage->axes[v.axis_number()];
      return a == turned_ ? row : a == vector_ ? column : p.at[a];
    });
  }

  /// Vectors along the turned axis into the tile, as [turned][vector].
  void fill(const Point& p, const Turned& load, const Expr& row, const Expr& column,
            std::int64_t side, std::int64_t pitch) {
    const int lanes = gpu_lanes_along(load);
    const Expr lane = lanes > 1 ? lane_variable(lanes) : Expr(0);
    const std::int64_t across = side / lanes, vectors = across * side;
    struct Item {
      Expr i, j;
      std::vector<Guard> mask;
      ValueId value;
    };
    std::vector<Item> items;
    for (std::int64_t first = 0; first < vectors; first += threads_) {
      Expr flat = Expr(first) + t_;
      Item item{
          floormod(flat, Expr(across)) * Expr(lanes) + lane, floordiv(flat, Expr(across)), {}, -1};
      item.mask = {{row + item.i, Expr(0), r_.axes[turned_].extent},
                   {column + item.j, Expr(0), r_.axes[vector_].extent}};
      if (first + threads_ > vectors)
        item.mask.push_back({flat, Expr(0), Expr(vectors)});
      item.value = b_.load(e_.operand_buffer(load.load->number),
                           offset_at(p, load, row + item.i, column + item.j), lanes, item.mask,
                           schedule_.load_policy);
      items.push_back(std::move(item));
    }
    for (const Item& item : items)
      b_.store(load.memory, item.i * Expr(pitch) + item.j, item.value, item.mask);
  }

  int gpu_lanes_along(const Turned& load) const {
    const auto size = std::int64_t(size_of(r_.operands[load.load->number].dtype));
    const std::int64_t divisor = r_.axes[turned_].extent.divisor();
    std::int64_t lanes = std::min<std::int64_t>(16 / size, 16);
    while (lanes > 1 && divisor % lanes != 0)
      lanes /= 2;
    return int(lanes);
  }

  /// Vectors along the vector axis, from the tile.
  void take(const Point& p, const std::vector<Turned>& loads, const Expr& row, const Expr& column,
            std::int64_t side, std::int64_t pitch) {
    const std::int64_t across = side / lanes_, vectors = across * side;
    std::vector<Point> points;
    for (std::int64_t first = 0; first < vectors; first += threads_) {
      Expr flat = Expr(first) + t_;
      Expr i = floordiv(flat, Expr(across)),
           j = floormod(flat, Expr(across)) * Expr(lanes_) + lane();
      Point q = p;
      q.at[turned_] = row + i;
      q.at[vector_] = column + j;
      q.lanes = lanes_;
      q.mask = {{q.at[turned_], Expr(0), r_.axes[turned_].extent},
                {q.at[vector_], Expr(0), r_.axes[vector_].extent}};
      if (first + threads_ > vectors)
        q.mask.push_back({flat, Expr(0), Expr(vectors)});
      for (const Turned& load : loads)
        e_.provide_load(load.load->number, offset_at(p, load, q.at[turned_], q.at[vector_]),
                        b_.load(load.memory, i * Expr(pitch) + j, lanes_, q.mask));
      points.push_back(std::move(q));
    }
    compute(points);
  }

  const Region& r_;
  const Schedule& schedule_;
  ProgramBuilder b_;
  Emitter e_;
  int threads_;
  Expr t_;
  int vector_ = -1, turned_ = -1, lanes_ = 1, copies_ = 1;
};

constexpr Knob kKnobs[] = {
    {"threads", 32, 1024, 32}, {"vectors", 1, 16}, {"turn", 0, 1}, {"side", 32, 128, 32}};

class GpuElementwiseGenerator : public Generator {
public:
  std::string name() const override { return "gpu_elementwise"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    if (!is_plain_map(region))
      return {};
    const int vector = map_vector_axis(region);
    const bool turns = vector >= 0 && map_turned_axis(region, vector) >= 0;
    // Bytes in flight: what one vector of a thread reads, and how many of them; but first enough
    // blocks for every multiprocessor.
    std::vector<int> axes;
    for (int a = 0; a < int(region.axes.size()); ++a)
      axes.push_back(a);
    const int lanes = vector < 0 ? 1 : gpu_lanes(region, vector, target.vector_bytes);
    const std::int64_t vectors = about(points_of(region, axes)) / lanes;
    int loads = 0;
    for (const Stage& stage : region.stages)
      for (const Load& load : stage.loads)
        loads += load.source == Source::Operand;
    const std::int64_t enough = vectors / std::max<std::int64_t>(1, 256 * 4 * target.workers);
    // Measured: small blocks for one operand, large ones for several; two vectors in flight.
    const int best = power_of_two_upto(std::clamp<std::int64_t>(enough, 1, 2));
    const std::vector<int> sizes =
        loads <= 1 ? std::vector{128, 512, 256} : std::vector{512, 256, 128};
    const CachePolicy usual = gpu_store_policy(region, target);
    const CachePolicy other =
        usual == CachePolicy::Default ? CachePolicy::Streaming : CachePolicy::Default;
    std::vector<Schedule> out;
    auto add = [&](int threads, int copies, CachePolicy policy, bool turn) {
      Schedule s;
      s.generator = name();
      s.knobs["threads"] = threads;
      s.knobs["vectors"] = copies;
      if (turn)
        s.knobs["turn"] = 1;
      s.store_policy = policy;
      if (std::find(out.begin(), out.end(), s) == out.end())
        out.push_back(std::move(s));
    };
    for (CachePolicy policy : {usual, other}) {
      if (turns) {
        add(256, 1, policy, true);
        add(512, 1, policy, true);
      }
      for (int threads : sizes)
        for (int copies : {best, best / 2, 2 * best})
          if (copies >= 1)
            add(threads, copies, policy, false);
    }
    return out;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (!is_plain_map(region))
      return {false, {}, "not a map over one box that stores its results"};
    if (auto why = refused_settings(schedule, target, kKnobs); !why.empty())
      return {false, {}, why};
    return {true, GpuElementwise(region, schedule, target).run(), ""};
  }
};

} // namespace

const Generator& gpu_elementwise_generator() {
  static const GpuElementwiseGenerator generator;
  return generator;
}

} // namespace egret::kernel

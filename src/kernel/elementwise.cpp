// Maps over one box, with any views of their operands: vectors along the axis that is contiguous
// for most bytes, in chunks that workers share out. Operands that are contiguous along another axis
// are read in square blocks and turned in registers.
#include "kernel/analysis.h"
#include "kernel/emit.h"
#include "kernel/families.h"
#include "kernel/knobs.h"
#include "kernel/map_axes.h"
#include "kernel/nest.h"
#include "kernel/transpose.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Elements along the vector axis that a worker does in a row.
constexpr std::int64_t kChunk = 8192;
/// Footprint above which results are written past the caches; a larger cache is shared with others
/// and cannot be counted on.
constexpr std::int64_t kStreamingBytes = 64 << 20;

class Elementwise {
public:
  Elementwise(const Region& region, const Schedule& schedule, const Target& target)
      : r_(region), schedule_(schedule), b_(region.name), e_(b_, region) {
    vector_ = map_vector_axis(region);
    std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    lanes_ = vector_ < 0 ? 1 : lanes_for(region, all_stages(region), bytes);
    copies_ = int(schedule.knob("vectors", 4));
    turned_ = schedule.knob("turn", 0) && lanes_ > 1 ? map_turned_axis(region, vector_) : -1;
    e_.load_policy = schedule.load_policy;
  }

  KernelProgram run() {
    std::vector<int> axes;
    for (int a = 0; a < int(r_.axes.size()); ++a)
      axes.push_back(a);
    if (is_empty(r_, axes))
      return b_.finish(Expr(1));
    if (turned_ >= 0)
      turned_nest();
    else
      straight_nest();
    double flops = 1;
    for (const Stage& s : r_.stages)
      flops += flops_of(s);
    return b_.finish(useful_workers(iterations_, points_of(r_, axes) * Expr(std::int64_t(flops))));
  }

private:
  /// The axes other than those given, and their extents.
  std::vector<int> others(std::initializer_list<int> without, std::vector<Expr>& extents) const {
    std::vector<int> axes;
    for (int a = 0; a < int(r_.axes.size()); ++a)
      if (std::find(without.begin(), without.end(), a) == without.end()) {
        axes.push_back(a);
        extents.push_back(r_.axes[a].extent);
      }
    return axes;
  }

  void count(std::span<const Expr> extents) {
    iterations_ = Expr(1);
    for (const Expr& e : extents)
      iterations_ = iterations_ * e;
  }

  Point point_at(const std::vector<int>& axes, std::span<const Expr> at) const {
    Point p;
    p.at.resize(r_.axes.size());
    for (std::size_t i = 0; i < axes.size(); ++i)
      p.at[axes[i]] = at[i];
    p.lanes = lanes_;
    return p;
  }

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

  void along_vector_axis(const Point& p, const Expr& begin, const Expr& end) {
    vector_loop(b_, begin, end, r_.axes[vector_].extent, lanes_, copies_,
                [&](std::span<const Position> positions) {
                  std::vector<Point> points(positions.size(), p);
                  for (std::size_t i = 0; i < positions.size(); ++i) {
                    points[i].at[vector_] = positions[i].at;
                    points[i].mask = positions[i].mask;
                  }
                  compute(points);
                });
  }

  void straight_nest() {
    std::vector<Expr> extents;
    std::vector<int> outer = others({vector_}, extents);
    if (vector_ < 0) {
      count(extents);
      core_nest(b_, extents, [&](std::span<const Expr> at) { compute({point_at(outer, at)}); });
      return;
    }
    const Expr& extent = r_.axes[vector_].extent;
    Expr chunk(schedule_.knob("chunk", kChunk));
    bool whole = proves_less_equal(extent, chunk);
    if (!whole)
      extents.push_back(ceildiv(extent, chunk));
    count(extents);
    core_nest(b_, extents, [&](std::span<const Expr> at) {
      Point p = point_at(outer, at.subspan(0, outer.size()));
      if (whole)
        along_vector_axis(p, Expr(0), extent);
      else
        along_vector_axis(p, at.back() * chunk, min(extent, at.back() * chunk + chunk));
    });
  }

  /// Square blocks over the turned and the vector axis; the strips that are left over go the
  /// straight way.
  void turned_nest() {
    const Expr &rows = r_.axes[turned_].extent, &columns = r_.axes[vector_].extent;
    Expr side(lanes_);
    Expr full_columns = floordiv(columns, side) * side;
    std::vector<Expr> extents;
    std::vector<int> outer = others({turned_, vector_}, extents);
    extents.push_back(ceildiv(rows, side));
    count(extents);
    core_nest(b_, extents, [&](std::span<const Expr> at) {
      Point p = point_at(outer, at.subspan(0, outer.size()));
      Expr row = at.back() * side;
      auto blocks = [&] {
        b_.loop(Expr(0), full_columns, side, columns, Bind::Serial,
                [&](const Expr& column) { block(p, row, column); });
        b_.loop(Expr(0), side, Expr(1), side, Bind::Serial, [&](const Expr& i) {
          Point q = p;
          q.at[turned_] = row + i;
          along_vector_axis(q, full_columns, columns);
        });
      };
      auto strip = [&] {
        b_.loop(row, rows, Expr(1), rows, Bind::Serial, [&](const Expr& i) {
          Point q = p;
          q.at[turned_] = i;
          along_vector_axis(q, Expr(0), columns);
        });
      };
      b_.when({{row + side, Expr(0), rows + Expr(1)}}, blocks);
      b_.when({{rows - row, Expr(0), side}}, strip);
    });
  }

  void block(const Point& p, const Expr& row, const Expr& column) {
    Expr lane = lane_variable(lanes_);
    for (const Stage& stage : r_.stages)
      for (const Load& load : stage.loads)
        if (is_turned(stage, load))
          turn(p, stage, load, row, column);
    for (int i = 0; i < lanes_; ++i) {
      Point q = p;
      q.at[turned_] = row + Expr(i);
      q.at[vector_] = column + lane;
      compute({q});
    }
  }

  bool is_turned(const Stage& stage, const Load& load) const {
    if (load.source != Source::Operand || !load.map.is_total() || !load.indirect.empty() ||
        stride_of(r_, stage, load, turned_) != 1)
      return false;
    auto s = stride_of(r_, stage, load, vector_);
    return s && *s != 0 && *s != 1;
  }

  /// Reads a block along the turned axis and provides it along the vector axis.
  void turn(const Point& p, const Stage& stage, const Load& load, const Expr& row,
            const Expr& column) {
    Expr lane = lane_variable(lanes_);
    Expr offset = offset_of(r_, load);
    auto at = [&](const Expr& r, const Expr& c) {
      return substitute(offset, [&](const Expr& v) -> std::optional<Expr> {
        if (!v.is_axis())
          return std::nullopt;
        int a = stage.axes[v.axis_number()];
        return a == turned_ ? r : a == vector_ ? c : p.at[a];
      });
    };
    std::vector<ValueId> vectors;
    for (int i = 0; i < lanes_; ++i)
      vectors.push_back(b_.load(e_.operand_buffer(load.number), at(row + lane, column + Expr(i)),
                                lanes_, {}, schedule_.load_policy));
    vectors = transpose_block(b_, std::move(vectors));
    for (int i = 0; i < lanes_; ++i)
      e_.provide_load(load.number, at(row + Expr(i), column + lane), vectors[i]);
  }

  const Region& r_;
  const Schedule& schedule_;
  ProgramBuilder b_;
  Emitter e_;
  int vector_ = -1, turned_ = -1, lanes_ = 1, copies_ = 1;
  Expr iterations_ = Expr(1);
};

constexpr Knob kKnobs[] = {{"vectors", 1, 16}, {"turn", 0, 1}, {"chunk", 256, 1 << 24, 256}};

class ElementwiseGenerator : public Generator {
public:
  std::string name() const override { return "elementwise"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    if (!is_plain_map(region))
      return {};
    double flops = 0;
    for (const Stage& s : region.stages)
      flops += flops_of(s);
    bool streams = usual_store_policy(region, target) == CachePolicy::Streaming;
    int vector = map_vector_axis(region);
    bool turns = vector >= 0 && map_turned_axis(region, vector) >= 0;
    std::vector<Schedule> schedules;
    for (CachePolicy policy : {streams ? CachePolicy::Streaming : CachePolicy::Default,
                               streams ? CachePolicy::Default : CachePolicy::Streaming})
      for (int vectors : std::vector{4, 2, 8}) {
        Schedule s;
        s.generator = name();
        s.knobs["vectors"] = vectors;
        s.store_policy = policy;
        if (turns) {
          s.knobs["turn"] = 1;
          schedules.push_back(s);
          s.knobs["turn"] = 0;
        }
        schedules.push_back(s);
      }
    Schedule usual;
    usual.generator = name();
    usual.knobs["vectors"] = 4;
    usual.store_policy = usual_store_policy(region, target);
    for (std::int64_t chunk : {2048, 32768}) {
      Schedule s = usual;
      s.knobs["chunk"] = chunk;
      schedules.push_back(std::move(s));
    }
    usual.knobs["vectors"] = 1;
    schedules.push_back(usual);
    if (target.vector_bytes > 16) {
      usual.knobs["vectors"] = 4;
      usual.vector_bytes = target.vector_bytes / 2;
      schedules.push_back(usual);
    }
    return schedules;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (!is_plain_map(region))
      return {false, {}, "not a map over one box that stores its results"};
    if (auto why = refused_settings(schedule, target, kKnobs); !why.empty())
      return {false, {}, why};
    return {true, Elementwise(region, schedule, target).run(), ""};
  }
};

} // namespace

const Generator& elementwise_generator() {
  static const ElementwiseGenerator generator;
  return generator;
}

} // namespace egret::kernel

#include "kernel/gpu_contraction_side.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "support/fail.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

namespace egret::kernel {

namespace {

/// Bytes of the widest access of a thread.
constexpr int kAccessBytes = 16;

bool mentions(const Expr& e, const Expr& variable) {
  const auto variables = variables_of(e);
  return std::find(variables.begin(), variables.end(), variable) != variables.end();
}

} // namespace

bool is_border(const Expr& bound) {
  return bound.upper() > INT32_MIN && bound.lower() < INT32_MAX;
}

void put_lanes(Point& point, const Region& region, const AxisGroup& group, const Expr& first,
               int lanes) {
  if (lanes == 1 || group.axes.empty()) {
    put_index(point, region, group, first);
    return;
  }
  const int inner = group.axes.back();
  if (group.run % lanes != 0 && group.slices > 1) {
    put_index(point, region, group, first + lane_variable(lanes));
    return;
  }
  if (group.axes.size() > 1 && region.axes[inner].extent.divisor() % lanes != 0) {
    put_index(point, region, group, first + lane_variable(lanes));
    return;
  }
  put_index(point, region, group, first);
  point.at[inner] = point.at[inner] + lane_variable(lanes);
}

std::vector<Guard> lanes_inside(const AxisGroup& group, const Expr& first, int lanes) {
  std::vector<Guard> guards;
  const Expr place = group.place(first), extent = group.slice_extent();
  if (proves_less_equal(place + Expr(lanes), extent))
    return guards;
  guards.push_back({place, Expr(0), extent});
  if (lanes > 1 && extent.divisor() % lanes != 0)
    guards.push_back(group.inside(first + lane_variable(lanes)));
  return guards;
}

namespace {
/// The same of one of the loads that a factor is made of.
int widest_of(const Region& r, const Stage& stage, const FactorPiece& piece, DType dtype,
              int axis) {
  const Load& load = stage.loads[piece.load];
  const Expr offset = offset_of(r, load);
  Expr variable(0);
  for (std::size_t i = 0; i < stage.axes.size(); ++i)
    if (stage.axes[i] == axis)
      variable = Expr::axis(int(i), r.axes[axis].extent);
  const auto slope = coefficient_of(offset, variable);
  if (!slope || !(*slope == Expr(1)))
    return 1;
  const Expr rest = offset - variable;
  const int size = int(size_of(dtype));
  int lanes = kAccessBytes / size;
  // A copy begins where a hole or another tensor begins, and where it ends.
  const auto is_split = [&](const Guard& g) {
    if (mentions(g.lo, variable) || mentions(g.hi, variable))
      return true;
    if (!mentions(g.value, variable))
      return false;
    const auto steps = coefficient_of(g.value, variable);
    return !steps || !(*steps == Expr(1)) || (g.value - variable).divisor() % lanes != 0 ||
           (is_border(g.lo) && g.lo.divisor() % lanes != 0) ||
           (is_border(g.hi) && g.hi.divisor() % lanes != 0);
  };
  const auto splits = [&](const std::vector<Guard>& guards) {
    return std::any_of(guards.begin(), guards.end(), is_split);
  };
  while (lanes > 1 &&
         (rest.divisor() % lanes != 0 || r.axes[axis].extent.divisor() % lanes != 0 ||
          r.operands[load.number].alignment % (lanes * size) != 0 || splits(piece.where) ||
          std::any_of(load.map.holes.begin(), load.map.holes.end(),
                      [&](const Hole& hole) { return splits(hole.valid); })))
    lanes /= 2;
  return lanes;
}
} // namespace

int widest_piece(const Region& r, const ContractionForm& form, const Side& side,
                 const AxisGroup& along) {
  const Factor factor = factor_of(r, form, side);
  if (factor.pieces.empty())
    return 0;
  int lanes = kAccessBytes;
  for (const FactorPiece& piece : factor.pieces)
    lanes =
        std::min(lanes, widest_of(r, r.stages[form.stage], piece, factor.dtype, along.axes.back()));
  return lanes;
}

int copied_at_once(const Region& region, const ContractionForm& form, const Side& side,
                   const AxisGroup& group) {
  const Factor factor = factor_of(region, form, side);
  if (factor.pieces.empty() || factor.dtype != form.accumulator || size_of(factor.dtype) < 4)
    return 0;
  return side.order == Side::Order::Panel && !group.axes.empty()
             ? widest_piece(region, form, side, group)
             : 1;
}

namespace {
/// The point of neighbours of a factor, and what says that they are within the depth.
struct FactorPoint {
  Point point;
  std::vector<Guard> inside;
};
FactorPoint point_of(const Region& r, const ContractionForm& form, const AxisGroup& group,
                     const Point& batch, const FactorPlace& at) {
  FactorPoint f{batch, {}};
  Point& p = f.point;
  p.lanes = at.lanes;
  if (at.along_depth && at.lanes > 1) {
    put_index(p, r, group, at.panel);
    put_lanes(p, r, form.depth, at.depth, at.lanes);
    p.mask = {group.inside(at.panel)};
    f.inside = lanes_inside(form.depth, at.depth, at.lanes);
  } else {
    put_lanes(p, r, group, at.panel, at.lanes);
    put_index(p, r, form.depth, at.depth);
    p.mask = lanes_inside(group, at.panel, at.lanes);
    f.inside = {{at.depth, Expr(0), form.depth.extent}};
  }
  p.mask.insert(p.mask.end(), at.exists.begin(), at.exists.end());
  p.mask.insert(p.mask.end(), f.inside.begin(), f.inside.end());
  return f;
}

/// The loads of tensors that a value of a stage is made of, each once and at its first point, but
/// for those in arms of choices.
class LoadWalk {
public:
  using Visit = std::function<void(int stage, int value, const Point& point)>;
  LoadWalk(const Region& region, Visit visit) : r_(region), visit_(std::move(visit)) {}

  void value(int stage, int value, const Point& point) {
    if (!seen_.insert({stage, value}).second)
      return;
    const Stage& s = r_.stages[std::size_t(stage)];
    const BodyValue& v = s.body[std::size_t(value)];
    if (v.kind == BodyValue::Kind::Load)
      return load(stage, value, point);
    for (std::size_t i = v.op == Op::Select ? v.args.size() : 0; i < v.args.size(); ++i)
      this->value(stage, v.args[i], point);
  }

private:
  void load(int stage, int value, const Point& point) {
    const Stage& s = r_.stages[std::size_t(stage)];
    const Load& load = s.loads[std::size_t(s.body[std::size_t(value)].load)];
    if (!load.indirect.empty())
      return;
    if (load.source == Source::Operand)
      return visit_(stage, value, point);
    const Stage& source = r_.stages[std::size_t(load.number)];
    if (source.kind != StageKind::Map)
      return;
    Point there = point;
    const std::vector<int> axes = result_axes(source);
    for (std::size_t i = 0; i < axes.size(); ++i)
      there.at[std::size_t(axes[i])] =
          substitute(load.map.coords[i], [&](const Expr& e) -> std::optional<Expr> {
            return e.is_axis()
                       ? std::optional(point.at[std::size_t(s.axes[std::size_t(e.axis_number())])])
                       : std::nullopt;
          });
    this->value(load.number, source.yields[std::size_t(load.component)], there);
  }

  const Region& r_;
  Visit visit_;
  std::set<std::pair<int, int>> seen_; ///< stages and values
};
} // namespace

Point point_of_factor(const Region& region, const ContractionForm& form, const AxisGroup& group,
                      const Point& batch, const FactorPlace& place) {
  return point_of(region, form, group, batch, place).point;
}

int loads_of(const Region& region, const ContractionForm& form, const Factor& factor) {
  int loads = 0;
  LoadWalk walk(region, [&](int, int, const Point&) { ++loads; });
  walk.value(form.stage, factor.value, {std::vector<Expr>(region.axes.size(), Expr(0)), 1, {}});
  return loads;
}

void load_factor(Emitter& emitter, const ContractionForm& form, const AxisGroup& group,
                 const Factor& factor, const Point& batch, const FactorPlace& at) {
  LoadWalk walk(emitter.region(), [&](int stage, int value, const Point& point) {
    emitter.value(stage, value, point);
  });
  walk.value(form.stage, factor.value, point_of(emitter.region(), form, group, batch, at).point);
}

ValueId factor_at(Emitter& emitter, const ContractionForm& form, const AxisGroup& group,
                  const Factor& factor, const Point& batch, const FactorPlace& at, DType dtype) {
  ProgramBuilder& b = emitter.builder();
  auto [p, inside] = point_of(emitter.region(), form, group, batch, at);
  const Value v = emitter.value(form.stage, factor.value, p);
  ValueId id = is_low(dtype) ? emitter.narrow(v) : b.cast(v.id, dtype);
  id = b.splat(id, at.lanes);
  // Behind the depth's end both factors are zero; what is computed of zeros may be anything.
  inside = unproved(at.zeros ? p.mask : std::move(inside));
  if (!factor.is_padded_load && !inside.empty()) {
    const ValueId held = b.splat(b.test(inside, at.lanes), at.lanes);
    id = b.apply(Op::Select, dtype, {held, id, b.constant(Scalar::of(dtype, 0.0), at.lanes)});
  }
  return id;
}

SharedSide::SharedSide(Emitter& emitter, const ContractionForm& form, const Side& side,
                       const AxisGroup& group, const std::string& name, int panel, bool along_depth,
                       DType dtype, const GpuTiles& tiles)
    : e_(emitter), b_(emitter.builder()), f_(form), side_(side), group_(group),
      factor_(factor_of(emitter.region(), form, side)), t_(tiles), panel_(panel),
      along_depth_(along_depth), dtype_(dtype) {
  const int size = int(size_of(dtype));
  // Rows of 16 bytes more than a multiple of 128 keep the rows that a warp reads at once in
  // different banks.
  pitch_ = (along_depth ? t_.bk : panel) + kAccessBytes / size;
  const int lines = along_depth ? panel : t_.bk;
  buffer_ = b_.shared(name, dtype, std::int64_t(t_.stages) * lines * pitch_, 16);
  reads_depth_ =
      side.order == Side::Order::Depth || (side.order == Side::Order::Neither && along_depth);
  const int widest = widest_copy();
  async_ = widest * size >= 4;
  chunk_ = async_ ? widest : 1;
  if (!async_ && reads_depth_ == along_depth)
    chunk_ = std::min({kAccessBytes / size, along_depth ? t_.bk : panel_, 8});
  run_ = run_of_part();
}

/// Elements that one asynchronous copy moves. 0 when the elements are not copies of memory.
int SharedSide::widest_copy() const {
  if (factor_.pieces.empty() || factor_.dtype != dtype_)
    return 0;
  if (reads_depth_ != along_depth_ || side_.order == Side::Order::Neither)
    return 1;
  int lanes = widest_piece(e_.region(), f_, side_, along_depth_ ? f_.depth : group_);
  while ((along_depth_ ? t_.bk : panel_) % lanes != 0)
    lanes /= 2;
  return lanes;
}

Expr SharedSide::at(const Expr& stage, const Expr& p, const Expr& k) const {
  const int lines = along_depth_ ? panel_ : t_.bk;
  return stage * Expr(std::int64_t(lines) * pitch_) +
         (along_depth_ ? p * Expr(pitch_) + k : k * Expr(pitch_) + p);
}

int SharedSide::chunks_of_thread() const {
  const int chunks = panel_ * t_.bk / chunk_;
  return (chunks + t_.threads() - 1) / t_.threads();
}

SharedSide::Chunk SharedSide::chunk(int i) const {
  const int chunks = panel_ * t_.bk / chunk_;
  const Expr number = thread_variable(t_.threads()) + Expr(std::int64_t(i) * t_.threads());
  Chunk c;
  if (run_ > 0) {
    const int line = int(run_) / chunk_, others = reads_depth_ ? panel_ : t_.bk;
    const int of_run = line * others / t_.threads();
    const Expr place =
        thread_variable(t_.threads()) + Expr(std::int64_t(i % of_run) * t_.threads());
    (reads_depth_ ? c.k : c.p) = floormod(place, line) * Expr(chunk_) + Expr(i / of_run * run_);
    (reads_depth_ ? c.p : c.k) = floordiv(place, line);
    return c;
  }
  if ((i + 1) * t_.threads() > chunks)
    c.exists.push_back({number, Expr(0), Expr(chunks)});
  const int line = (reads_depth_ ? t_.bk : panel_) / chunk_;
  (reads_depth_ ? c.k : c.p) = floormod(number, line) * Expr(chunk_);
  (reads_depth_ ? c.p : c.k) = floordiv(number, line);
  return c;
}

/// Neighbours along a line of the tile for which what a side is made of is the same arm of a
/// concatenation, or lies evenly in memory. 0: all of them.
std::int64_t SharedSide::even_run() const {
  const Region& r = e_.region();
  const Stage& stage = r.stages[std::size_t(f_.stage)];
  const AxisGroup& group = reads_depth_ ? f_.depth : group_;
  if (group.axes.empty() || group.slices > 1)
    return 0;
  const int axis = group.axes.back();
  const Expr& extent = r.axes[std::size_t(axis)].extent;
  std::int64_t run = group.axes.size() > 1 ? extent.constant().value_or(1) : 0;
  const auto place = std::find(stage.axes.begin(), stage.axes.end(), axis);
  const Expr variable = Expr::axis(int(place - stage.axes.begin()), extent);
  for (const int l : kernel::loads_of(stage, factor_.value)) {
    const Load& load = stage.loads[std::size_t(l)];
    run = std::gcd(run, divisor_of(offset_of(r, load), variable));
    for (const Hole& hole : load.map.holes)
      for (const Guard& g : hole.valid)
        if (g.value == variable)
          run = std::gcd(run, std::gcd(g.lo.constant().value_or(0), g.hi.constant().value_or(0)));
  }
  return run;
}

/// Elements of a line that a part of a thread's accesses goes through before the next ones: where a
/// line of the tile holds several even runs, each access is within one of them, and several
/// accesses share what parts of a complex number, say, are made of. 0: all of the line.
std::int64_t SharedSide::run_of_part() const {
  constexpr std::int64_t kSectorBytes = 32;
  if (async_)
    return 0;
  const std::int64_t line = reads_depth_ ? t_.bk : panel_, others = reads_depth_ ? panel_ : t_.bk;
  const std::int64_t run = even_run();
  const bool whole = run > 0 && run < line && line % run == 0 && run % chunk_ == 0 &&
                     run * std::int64_t(size_of(dtype_)) >= kSectorBytes &&
                     run / chunk_ * others % t_.threads() == 0;
  return whole ? run : 0;
}

void SharedSide::copy(const Point& batch, const Expr& first, const Expr& first_depth,
                      const Expr& stage) {
  if (!async_) {
    put(fetch(batch, first, first_depth), stage);
    return;
  }
  std::vector<Point> points;
  for (int i = 0; i < chunks_of_thread(); ++i) {
    const Chunk c = chunk(i);
    points.push_back(batch);
    put_index(points.back(), e_.region(), group_, first + c.p);
    put_index(points.back(), e_.region(), f_.depth, first_depth + c.k);
  }
  for (const FactorPiece& piece : factor_.pieces)
    copy_piece(piece, points, first, first_depth, stage);
}

/// Those copies of this thread, at `points`, that come from one tensor.
void SharedSide::copy_piece(const FactorPiece& piece, const std::vector<Point>& points,
                            const Expr& first, const Expr& first_depth, const Expr& stage) {
  const Region& r = e_.region();
  const Stage& reducing = r.stages[f_.stage];
  const Load& load = reducing.loads[piece.load];
  const auto copy_one = [&](int i) {
    const Chunk c = chunk(i);
    const Point& p = points[std::size_t(i)];
    b_.when(c.exists, [&] {
      std::vector<Guard> mask{group_.inside(first + c.p),
                              {first_depth + c.k, Expr(0), f_.depth.extent}};
      const std::vector<Guard> holes = conditions_at(r, reducing, load, p);
      mask.insert(mask.end(), holes.begin(), holes.end());
      const auto element = element_at(r, reducing, load, p);
      ensure(element.has_value(), "region {}: an element to copy depends on data", r.name);
      b_.copy_async(buffer_, at(stage, c.p, c.k), e_.operand_buffer(load.number), *element, chunk_,
                    std::move(mask));
    });
  };
  // Chunks of a thread that are at one place of a concatenation share its conditions.
  const auto same = [](const std::vector<Guard>& a, const std::vector<Guard>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Guard& x, const Guard& y) {
      return x.value == y.value && x.lo == y.lo && x.hi == y.hi;
    });
  };
  for (std::size_t i = 0, end = 0; i < points.size(); i = end) {
    const std::vector<Guard> where = guards_at(reducing, piece.where, points[i]);
    for (end = i + 1; end < points.size(); ++end)
      if (!same(where, guards_at(reducing, piece.where, points[end])))
        break;
    b_.when(where, [&] {
      for (std::size_t at = i; at < end; ++at)
        copy_one(int(at));
    });
  }
}

ValueId SharedSide::value_at(const Point& batch, const Expr& first, const Expr& first_depth,
                             const Chunk& c) {
  return factor_at(e_, f_, group_, factor_, batch, place_of(first, first_depth, c), dtype_);
}

void SharedSide::plan_ahead(const Point& batch, const Expr& first) {
  constexpr int kMostHeld = 64; // registers of a thread
  const Region& r = e_.region();
  const Expr step = Expr::axis(INT32_MAX, Expr(1 << 20));
  std::vector<std::pair<int, IndexMap>> found; // those of several chunks that are one load
  int held = 0;
  ahead_.clear();
  for (int i = 0; i < chunks_of_thread(); ++i) {
    const FactorPlace place = place_of(first, step * Expr(t_.bk), chunk(i));
    LoadWalk walk(r, [&](int stage, int value, const Point& point) {
      const Stage& s = r.stages[std::size_t(stage)];
      const Load& load = s.loads[std::size_t(s.body[std::size_t(value)].load)];
      const Operand& operand = r.operands[std::size_t(load.number)];
      std::optional<IndexMap> map = map_at(r, s, load, point);
      if (!map || !mentions(map->coords[0], step) ||
          std::find(found.begin(), found.end(), std::pair{load.number, *map}) != found.end())
        return;
      ahead_.push_back({i, stage, value});
      held += (chunk_ > 1 && mentions(map->coords[0], lane_variable(chunk_)) ? chunk_ : 1) *
              (size_of(operand.dtype) > 4 ? 2 : 1);
      found.emplace_back(load.number, *std::move(map));
    });
    walk.value(f_.stage, factor_.value, point_of(r, f_, group_, batch, place).point);
  }
  if (held > kMostHeld)
    ahead_.clear();
}

void SharedSide::each_ahead(const Point& batch, const Expr& first, const Expr& first_depth,
                            const std::function<void(Ahead& load, const Point& point)>& visit) {
  for (auto begin = ahead_.begin(); begin != ahead_.end();) {
    const auto end =
        std::find_if(begin, ahead_.end(), [&](const Ahead& a) { return a.chunk != begin->chunk; });
    LoadWalk walk(e_.region(), [&](int stage, int value, const Point& point) {
      for (auto a = begin; a != end; ++a)
        if (a->stage == stage && a->value == value)
          visit(*a, point);
    });
    walk.value(
        f_.stage, factor_.value,
        point_of(e_.region(), f_, group_, batch, place_of(first, first_depth, chunk(begin->chunk)))
            .point);
    begin = end;
  }
}

void SharedSide::load_ahead(const Point& batch, const Expr& first, const Expr& first_depth) {
  each_ahead(batch, first, first_depth, [&](Ahead& load, const Point& point) {
    const ValueId v = e_.value(load.stage, load.value, point).id;
    if (load.variable < 0)
      load.variable = b_.variable(b_.type_of(v));
    b_.set(load.variable, v);
  });
}

std::vector<ValueId> SharedSide::fetch(const Point& batch, const Expr& first,
                                       const Expr& first_depth) {
  each_ahead(batch, first, first_depth, [&](Ahead& load, const Point& point) {
    if (load.variable < 0) // the first part
      return;
    const Stage& stage = e_.region().stages[std::size_t(load.stage)];
    e_.provide_load(stage, stage.loads[std::size_t(stage.body[std::size_t(load.value)].load)],
                    point, b_.read(load.variable));
  });
  std::vector<ValueId> values;
  for (int i = 0; i < chunks_of_thread(); ++i)
    values.push_back(value_at(batch, first, first_depth, chunk(i)));
  return values;
}

void SharedSide::put(const std::vector<ValueId>& values, const Expr& stage) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Chunk c = chunk(int(i));
    const Expr lane = chunk_ > 1 ? lane_variable(chunk_) : Expr(0);
    b_.store(buffer_, at(stage, c.p, c.k) + lane, values[i], c.exists);
  }
}

} // namespace egret::kernel

#include "compiler/regions.h"

#include "compiler/inlining.h"
#include "compiler/scatter_coordinates.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace egret::compiler {

using ir::NodeId;
using kernel::BodyValue;
using kernel::Load;
using kernel::Output;
using kernel::Region;
using kernel::Source;
using kernel::Stage;
using kernel::StageKind;

namespace {

/// In place of a group's number: of a value that each reading group makes for itself.
constexpr int kRemade = -2;

class RegionBuilder;

/// Where a value is wanted: a point of its box as expressions over the stage's variables, and the
/// conditions under which it is used at all.
struct Point {
  std::vector<Expr> coords;
  std::vector<Guard> used_if;
};

/// The map with fills that a conversion from `type` makes into the map's own; nothing where there
/// are none.
std::optional<IndexMap> with_fills_before_cast(IndexMap map, DType type) {
  for (Hole& hole : map.holes) {
    const Scalar fill = Scalar::of(type, hole.fill.as_double());
    if (!(Scalar::of(hole.fill.dtype, fill.as_double()) == hole.fill))
      return std::nullopt;
    hole.fill = fill;
  }
  return map;
}

/// Writes one stage's body by walking the cone of its root.
class StageWriter {
public:
  StageWriter(RegionBuilder& builder, Stage& stage, Shape box)
      : builder_(builder), stage_(stage), box_(std::move(box)) {}

  /// Body value of operand `id` (any node) at `p`.
  int operand(NodeId id, const Point& p);
  /// Body value of what a reduction or scan combines at `p`. A sum starts from 0, also a sum of
  /// one: -0 becomes 0.
  int term(const ir::Node& node, const Point& p) {
    const int value = operand(node.inputs[0], p);
    const bool alone = stage_.over.empty() && stage_.monoid == Monoid::Sum && is_float(node.dtype);
    return alone ? apply(Op::Add, node.dtype, {value, constant(Scalar{node.dtype, 0})}) : value;
  }
  /// Body value computed by non-movement node `id` itself at `p`, whether or not it is stored.
  int inside(NodeId id, const Point& p);
  int constant(Scalar s) {
    BodyValue v;
    v.kind = BodyValue::Kind::Constant;
    v.dtype = s.dtype;
    v.constant = s;
    return add(std::move(v));
  }

private:
  /// Body value of `node`, no movement, where `map` leads from the stage's box.
  int viewed(NodeId node, const IndexMap& map, const Point& p);
  int base(NodeId id, const Point& p);
  int load(NodeId base, const Point& p, const IndexMap& map, std::vector<int> indirect);
  int gather(NodeId id, const Point& p);
  int condition(const std::vector<Guard>& guards);
  /// Whether a value, all of whose loads read 0 where a condition fails, is +0 there by itself.
  bool is_zero_outside(int value) const;

  int add(BodyValue value) {
    stage_.body.push_back(std::move(value));
    return static_cast<int>(stage_.body.size()) - 1;
  }
  int index(const Expr& e, DType type) {
    BodyValue v;
    v.kind = BodyValue::Kind::Index;
    v.dtype = type;
    v.index = e;
    return add(std::move(v));
  }
  int apply(Op op, DType type, std::vector<int> args) {
    BodyValue v;
    v.op = op;
    v.dtype = type;
    v.args = std::move(args);
    return add(std::move(v));
  }

  RegionBuilder& builder_;
  Stage& stage_;
  const Shape box_;
  std::map<std::string, int> done_;
};

class RegionBuilder {
public:
  RegionBuilder(const GraphFacts& facts, const Partition& partition, const Group& group,
                const std::vector<bool>& keep)
      : facts(facts), graph(facts.graph()), stored(partition.stored), group_(group), keep_(keep) {}

  BuiltRegion run() {
    number_axes();
    for (const Member& m : group_.members)
      add_member(m);
    name();
    return std::move(built);
  }

  int operand_of(NodeId base) {
    if (auto it = operand_number_.find(base); it != operand_number_.end())
      return it->second;
    const ir::Node& node = graph[base];
    kernel::Operand operand;
    operand.dtype = node.dtype;
    operand.shape = node.shape;
    operand.layout = IndexMap::row_major(node.shape);
    operand.role =
        node.op == Op::Input && node.attrs.by_value ? kernel::Role::Scalar : kernel::Role::Tensor;
    operand.alignment = node.op == Op::Input ? static_cast<std::int64_t>(size_of(node.dtype)) : 64;
    operand.name = node.op == Op::Input && !node.attrs.name.empty() ? node.attrs.name
                                                                    : fmt::format("v{}", base);
    built.region.operands.push_back(std::move(operand));
    built.operands.push_back(base);
    return operand_number_[base] = static_cast<int>(built.operands.size()) - 1;
  }

  /// The dim of a member's box that goes along an axis of the region.
  std::size_t dim_along(NodeId member, int axis) const {
    const std::vector<int>& place = member_of.at(member)->place;
    for (std::size_t d = 0; d < place.size(); ++d)
      if (place[d] >= 0 && region_axis_[place[d]] == axis)
        return d;
    ensure(false, "regions: %{} does not go along axis {}", member, axis);
    return 0;
  }

  const GraphFacts& facts;
  const ir::Graph& graph;
  const std::vector<bool>& stored;
  std::map<NodeId, int> stage_of; ///< members written so far
  std::map<NodeId, const Member*> member_of;
  BuiltRegion built;

private:
  void number_axes() {
    region_axis_.assign(group_.axes.size(), -1);
    int parallel = 0, reduced = 0;
    for (bool wanted : {false, true})
      for (std::size_t i = 0; i < group_.axes.size(); ++i)
        if (group_.reduced[i] == wanted) {
          region_axis_[i] = static_cast<int>(built.region.axes.size());
          built.region.axes.push_back(
              {group_.axes[i], wanted,
               fmt::format("{}{}", wanted ? 'r' : 'p', wanted ? reduced++ : parallel++)});
        }
  }

  void add_member(const Member& m) {
    const ir::Node& node = graph[m.node];
    Stage stage;
    for (int a : m.frame)
      if (a >= 0)
        stage.axes.push_back(region_axis_[a]);
    std::sort(stage.axes.begin(), stage.axes.end());
    Shape box;
    for (int a : stage.axes)
      box.push_back(built.region.axes[a].extent);
    Point frame;
    for (int a : m.frame)
      frame.coords.push_back(a < 0 ? Expr(0) : variable(stage, region_axis_[a]));
    stage.acc_dtype = accumulator_of(node.dtype);

    StageWriter writer(*this, stage, box);
    std::vector<int> indirect;
    switch (info_of(node.op).cls) {
    case OpClass::Reduce: {
      stage.monoid = monoid_of(node.op);
      for (std::size_t i = 0; i < m.frame.size(); ++i)
        if (m.frame[i] >= 0 && is_summed(node, i))
          stage.over.push_back(region_axis_[m.frame[i]]);
      std::sort(stage.over.begin(), stage.over.end());
      if (stage.monoid == Monoid::ArgMax) {
        stage.acc_dtype = graph[node.inputs[0]].dtype;
        if (stage.over.empty()) {
          stage.yields = {writer.constant(Scalar::of(DType::I64, std::int64_t{0}))};
          break;
        }
      }
      stage.kind = stage.over.empty() ? StageKind::Map : StageKind::Reduce;
      stage.yields = {writer.term(node, frame)};
      break;
    }
    case OpClass::Scan:
      stage.monoid = monoid_of(node.op);
      if (int a = m.frame[node.attrs.axes[0]]; a >= 0) {
        stage.kind = StageKind::Scan;
        stage.over = {region_axis_[a]};
      }
      stage.yields = {writer.term(node, frame)};
      if (stage.monoid == Monoid::Linear && stage.kind == StageKind::Scan) {
        stage.yields.push_back(writer.operand(node.inputs[1], frame));
        stage.yield_dtypes = {node.dtype, node.dtype};
      }
      break;
    case OpClass::Sort:
      if (int a = m.frame[node.attrs.axes[0]]; a >= 0) {
        stage.kind = StageKind::Sort;
        stage.over = {region_axis_[a]};
        stage.acc_dtype = graph[node.inputs[0]].dtype;
        stage.yields = {writer.operand(node.inputs[0], frame)};
      } else {
        stage.yields = {writer.constant(Scalar::of(DType::I64, std::int64_t{0}))};
      }
      break;
    case OpClass::Scatter: {
      const std::size_t axis = node.attrs.axes[0];
      Point at;
      at.coords.assign(frame.coords.begin() + axis,
                       frame.coords.begin() + axis + graph[node.inputs[1]].shape.size());
      const int value = writer.operand(node.inputs[2], frame);
      const int index = writer.operand(node.inputs[1], at);
      stage.yields = {value, index};
      stage.yield_dtypes = {node.dtype, graph[node.inputs[1]].dtype};
      break;
    }
    default:
      stage.yields = {writer.inside(m.node, frame)};
    }
    if (stage.yield_dtypes.empty())
      stage.yield_dtypes = {node.dtype};
    stage_of[m.node] = static_cast<int>(built.region.stages.size());
    member_of[m.node] = &m;
    built.region.stages.push_back(std::move(stage));
    built.region.nodes.push_back(m.node);
    if (info_of(node.op).cls == OpClass::Scatter)
      add_scatter_output(m);
    else if (keep_[m.node])
      add_output(m);
  }

  static bool is_summed(const ir::Node& node, std::size_t dim) {
    return std::find(node.attrs.axes.begin(), node.attrs.axes.end(),
                     static_cast<std::int64_t>(dim)) != node.attrs.axes.end();
  }

  /// The stage's variable that stands for a region axis.
  Expr variable(const Stage& stage, int region_axis) const {
    const int place = static_cast<int>(
        std::find(stage.axes.begin(), stage.axes.end(), region_axis) - stage.axes.begin());
    return Expr::axis(place, built.region.axes[region_axis].extent);
  }

  Output output_of(const Member& m) const {
    const ir::Node& node = graph[m.node];
    Output out;
    out.stage = static_cast<int>(built.region.stages.size()) - 1;
    out.dtype = node.dtype;
    out.shape = node.shape;
    out.layout = IndexMap::row_major(node.shape);
    const std::vector<int> axes = kernel::result_axes(built.region.stages.back());
    for (int a : axes)
      out.map.dims.push_back(built.region.axes[a].extent);
    return out;
  }

  Expr result_variable(const Member& m, int group_axis) const {
    (void)m;
    const std::vector<int> axes = kernel::result_axes(built.region.stages.back());
    const int a = region_axis_[group_axis];
    const int place = static_cast<int>(std::find(axes.begin(), axes.end(), a) - axes.begin());
    return Expr::axis(place, built.region.axes[a].extent);
  }

  void add_output(const Member& m) {
    Output out = output_of(m);
    for (int a : m.place)
      out.map.coords.push_back(a < 0 ? Expr(0) : result_variable(m, a));
    if (const ir::Node& node = graph[m.node]; info_of(node.op).cls == OpClass::Sort)
      keep_first(out, static_cast<std::size_t>(node.attrs.axes[0]));
    built.region.outputs.push_back(std::move(out));
    built.outputs.push_back(m.node);
  }

  /// Of a sorted line, what lies behind the output's end is dropped.
  static void keep_first(Output& out, std::size_t dim) {
    const Expr& place = out.map.coords[dim];
    if (!proves_less(place, out.shape[dim]))
      out.map.holes = {{{Guard{place, Expr(0), out.shape[dim]}}, Scalar::of(out.dtype, 0.0)}};
  }

  void add_scatter_output(const Member& m) {
    const ir::Node& node = graph[m.node];
    Output out = output_of(m);
    const std::size_t axis = node.attrs.axes[0], index_rank = graph[node.inputs[1]].shape.size();
    const Expr symbol = kernel::indirect_symbol(0);
    Stage& stage = built.region.stages.back();
    Expr coordinate = symbol, count = node.shape[axis];
    if (const auto known = scatter_coordinate(stage, stage.yields[1], node.shape[axis])) {
      stage.yields[1] = known->component;
      stage.yield_dtypes[1] = stage.body[std::size_t(known->component)].dtype;
      coordinate = known->base + known->coefficient * symbol;
      count = known->count;
    }
    for (std::size_t i = 0; i < m.frame.size(); ++i) {
      if (i == axis)
        out.map.coords.push_back(coordinate);
      if (i < axis || i >= axis + index_rank)
        out.map.coords.push_back(m.frame[i] < 0 ? Expr(0) : result_variable(m, m.frame[i]));
    }
    if (m.frame.size() == axis) // index of rank 0 after the last dim
      out.map.coords.push_back(coordinate);
    out.map.holes = {{{Guard{symbol, Expr(0), count}}, Scalar::of(node.dtype, 0.0)}};
    out.indirect = {1};
    out.combine = node.op == Op::ScatterSet   ? kernel::Combine::Set
                  : node.op == Op::ScatterAdd ? kernel::Combine::Add
                                              : kernel::Combine::Max;
    out.alias = operand_of(facts.view(node.inputs[0]).base);
    built.region.outputs.push_back(std::move(out));
    built.outputs.push_back(m.node);
  }

  void name() {
    std::string ops;
    int count = 0;
    for (const Member& m : group_.members) // markers are gone: those left are copies (prepare.h)
      if (const Op op = graph[m.node].op; ++count <= 4)
        ops += fmt::format("_{}", op == Op::StopGradient ? "copy" : info_of(op).name);
    if (count > 4)
      ops += fmt::format("_{}more", count - 4);
    const char* kind[] = {"map", "reduce", "matmul", "scan", "sort", "scatter", "stream"};
    built.region.name = fmt::format("{}{}", kind[static_cast<int>(group_.kind)], ops);
  }

  const Group& group_;
  const std::vector<bool>& keep_;
  std::vector<int> region_axis_; ///< by group axis
  std::map<NodeId, int> operand_number_;
};

int StageWriter::operand(NodeId id, const Point& p) {
  const View& view = builder_.facts.view(id);
  return viewed(view.base, compose(IndexMap{box_, p.coords, {}}, view.map), p);
}

int StageWriter::viewed(NodeId node, const IndexMap& map, const Point& p) {
  if (map.holes.empty())
    return base(node, {map.coords, p.used_if});
  if (builder_.stored[node] || builder_.graph[node].op == Op::Input)
    return load(node, p, map, {});
  const DType type = builder_.graph[node].dtype;
  if (builder_.graph[node].op == Op::Cast) {
    // What is converted may have the holes: a factor of a product then stays in its 16 bits.
    const NodeId source = builder_.graph[node].inputs[0];
    if (const auto before = with_fills_before_cast(map, builder_.graph[source].dtype)) {
      const View& view = builder_.facts.view(source);
      return apply(Op::Cast, type, {viewed(view.base, compose(*before, view.map), p)});
    }
  }
  // An inlined value behind holes: compute it where all conditions hold, then choose.
  Point inner{map.coords, p.used_if};
  for (const Hole& hole : map.holes)
    inner.used_if.insert(inner.used_if.end(), hole.valid.begin(), hole.valid.end());
  int value = base(node, inner);
  if (std::all_of(map.holes.begin(), map.holes.end(),
                  [](const Hole& hole) { return hole.fill.bits == 0; }) &&
      is_zero_outside(value))
    return value;
  for (auto hole = map.holes.rbegin(); hole != map.holes.rend(); ++hole) {
    const int valid = condition(hole->valid);
    const int fill = constant(hole->fill);
    value = apply(Op::Select, type, {valid, value, fill});
  }
  return value;
}

bool StageWriter::is_zero_outside(int value) const {
  std::vector<bool> zero, scales; // which numbers keep a zero and its sign
  for (int i = 0; i <= value; ++i) {
    const BodyValue& v = stage_.body[static_cast<std::size_t>(i)];
    const auto is = [&](const std::vector<bool>& set, std::size_t arg) {
      return set[static_cast<std::size_t>(v.args[arg])];
    };
    const double number = v.constant.as_double();
    scales.push_back(v.kind == BodyValue::Kind::Constant && std::isfinite(number) &&
                     !std::signbit(number));
    bool here = false;
    if (v.kind == BodyValue::Kind::Load)
      here = stage_.loads[static_cast<std::size_t>(v.load)].source == Source::Operand;
    else if (v.kind == BodyValue::Kind::Constant)
      here = v.constant.bits == 0;
    else if (v.kind == BodyValue::Kind::Apply && v.op == Op::Cast)
      here = is(zero, 0);
    else if (v.kind == BodyValue::Kind::Apply && (v.op == Op::Add || v.op == Op::Max))
      here = is(zero, 0) && is(zero, 1);
    else if (v.kind == BodyValue::Kind::Apply && v.op == Op::Mul)
      here = (is(zero, 0) && (is(zero, 1) || is(scales, 1))) || (is(zero, 1) && is(scales, 0));
    else if (v.kind == BodyValue::Kind::Apply && v.op == Op::Select)
      here = is(zero, 1) && is(zero, 2);
    zero.push_back(here);
  }
  return zero[static_cast<std::size_t>(value)];
}

int StageWriter::base(NodeId id, const Point& p) {
  std::string key = fmt::format("{}|", id);
  for (const Expr& c : p.coords)
    key += fmt::format("{:x},", c.hash());
  for (const Guard& g : p.used_if)
    key += fmt::format("?{:x},{:x},{:x}", g.value.hash(), g.lo.hash(), g.hi.hash());
  if (auto it = done_.find(key); it != done_.end())
    return it->second;
  const bool memory = builder_.stored[id] || builder_.graph[id].op == Op::Input;
  const int value = memory ? load(id, p, IndexMap{box_, p.coords, {}}, {}) : inside(id, p);
  return done_[key] = value;
}

int StageWriter::load(NodeId base, const Point& p, const IndexMap& map, std::vector<int> indirect) {
  Load load;
  load.map = map;
  if (!p.used_if.empty())
    load.map.holes.insert(load.map.holes.begin(),
                          {p.used_if, Scalar::of(builder_.graph[base].dtype, 0.0)});
  load.indirect = std::move(indirect);
  if (auto it = builder_.stage_of.find(base); it != builder_.stage_of.end()) {
    load.source = Source::Stage;
    load.number = it->second;
    ensure(load.map.holes.empty(), "regions: a stage reads another one behind a condition");
    // From the value's box to the result axes of its stage.
    const Stage& source = builder_.built.region.stages[it->second];
    load.map.coords.clear();
    for (int axis : kernel::result_axes(source)) {
      const auto place = std::find(stage_.axes.begin(), stage_.axes.end(), axis);
      if (place == stage_.axes.end()) { // the number of a slice
        load.map.coords.push_back(map.coords[builder_.dim_along(base, axis)]);
        ensure(load.map.coords.back().is_constant(),
               "regions: a stage reads another one that runs over more axes");
        continue;
      }
      load.map.coords.push_back(Expr::axis(static_cast<int>(place - stage_.axes.begin()),
                                           builder_.built.region.axes[axis].extent));
    }
  } else {
    load.source = Source::Operand;
    load.number = builder_.operand_of(base);
  }
  stage_.loads.push_back(std::move(load));
  BodyValue v;
  v.kind = BodyValue::Kind::Load;
  v.dtype = builder_.graph[base].dtype;
  v.load = static_cast<int>(stage_.loads.size()) - 1;
  return add(std::move(v));
}

int StageWriter::inside(NodeId id, const Point& p) {
  const ir::Node& node = builder_.graph[id];
  switch (node.op) {
  case Op::Constant:
    return constant(node.attrs.value);
  case Op::Iota:
    return index(p.coords[0], node.dtype);
  case Op::Gather:
    return gather(id, p);
  case Op::StopGradient:
    return operand(node.inputs[0], p);
  default: {
    std::vector<int> args;
    for (NodeId input : node.inputs)
      args.push_back(operand(input, p));
    return apply(node.op, node.dtype, std::move(args));
  }
  }
}

int StageWriter::gather(NodeId id, const Point& p) {
  const ir::Node& node = builder_.graph[id];
  const std::size_t axis = node.attrs.axes[0],
                    index_rank = builder_.graph[node.inputs[1]].shape.size();
  Point at{{p.coords.begin() + axis, p.coords.begin() + axis + index_rank}, p.used_if};
  const int index = operand(node.inputs[1], at);
  const ir::Node& data = builder_.graph[node.inputs[0]];
  const Expr symbol = kernel::indirect_symbol(0);
  IndexMap map{box_, {}, {}};
  map.coords.assign(p.coords.begin(), p.coords.begin() + axis);
  map.coords.push_back(symbol);
  map.coords.insert(map.coords.end(), p.coords.begin() + axis + index_rank, p.coords.end());
  map.holes = {{{Guard{symbol, Expr(0), data.shape[axis]}}, Scalar::of(data.dtype, 0.0)}};
  const View& view = builder_.facts.view(node.inputs[0]);
  return load(view.base, p, compose(map, view.map), {index});
}

int StageWriter::condition(const std::vector<Guard>& guards) {
  int all = -1;
  for (const Guard& g : guards) {
    const int value = index(g.value, DType::I64);
    const int below = apply(Op::Lt, DType::Bool, {value, index(g.hi, DType::I64)});
    const int one = constant(Scalar::of(DType::Bool, std::int64_t{1}));
    const int above = apply(Op::Xor, DType::Bool,
                            {apply(Op::Lt, DType::Bool, {value, index(g.lo, DType::I64)}), one});
    const int both = apply(Op::And, DType::Bool, {above, below});
    all = all < 0 ? both : apply(Op::And, DType::Bool, {all, both});
  }
  return all < 0 ? constant(Scalar::of(DType::Bool, std::int64_t{1})) : all;
}

} // namespace

BuiltRegion build_region(const GraphFacts& facts, const Partition& partition, const Group& group,
                         const std::vector<bool>& keep, const kernel::Target& target) {
  BuiltRegion built = RegionBuilder(facts, partition, group, keep).run();
  built.kind = group.kind;
  // A GPU's tensors are whole allocations of its device.
  if (target.is_gpu())
    for (kernel::Operand& operand : built.region.operands)
      operand.alignment = std::max<std::int64_t>(operand.alignment, 64);
  return built;
}

std::vector<bool> kept_values(const GraphFacts& facts, const Partition& partition) {
  const ir::Graph& graph = facts.graph();
  std::vector<int> group_of(graph.size(), -1);
  for (std::size_t g = 0; g < partition.groups.size(); ++g)
    for (const Member& m : partition.groups[g].members)
      group_of[m.node] = m.remade ? kRemade : static_cast<int>(g);
  std::vector<bool> keep(graph.size(), false);
  for (NodeId id : graph.outputs)
    keep[facts.view(id).base] = true;
  for (std::size_t g = 0; g < partition.groups.size(); ++g)
    for (const Member& m : partition.groups[g].members)
      for (const Read& read : reads_of(facts, partition.stored, m.node))
        if (group_of[read.base] != static_cast<int>(g) && group_of[read.base] != kRemade)
          keep[read.base] = true;
  return keep;
}

std::vector<BuiltRegion> build_regions(const GraphFacts& facts, const Partition& partition,
                                       const kernel::Target& target) {
  const std::vector<bool> keep = kept_values(facts, partition);
  std::vector<BuiltRegion> built;
  for (const Group& group : partition.groups)
    built.push_back(build_region(facts, partition, group, keep, target));
  return built;
}

} // namespace egret::compiler

#include "kernel/emit.h"

#include "kernel/analysis.h"

#include "support/fail.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel {

namespace {

/// An expression of a stage with its variables replaced by those of the point and its indirect
/// coordinates by values.
Expr at_point(const Expr& e, const Stage& stage, const Point& point,
              const std::vector<Expr>& indirect) {
  return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
    if (v.is_axis())
      return point.at[stage.axes[v.axis_number()]];
    if (auto j = indirect_of(v))
      return indirect.at(*j);
    return std::nullopt;
  });
}

IndexMap at_point(const IndexMap& map, const Stage& stage, const Point& point,
                  const std::vector<Expr>& indirect) {
  IndexMap out;
  for (const Expr& c : map.coords)
    out.coords.push_back(at_point(c, stage, point, indirect));
  for (const Hole& hole : map.holes) {
    Hole h;
    h.fill = hole.fill;
    for (const Guard& g : hole.valid) {
      Guard there{at_point(g.value, stage, point, indirect), at_point(g.lo, stage, point, indirect),
                  at_point(g.hi, stage, point, indirect)};
      if (!proves_less_equal(there.lo, there.value) || !proves_less(there.value, there.hi))
        h.valid.push_back(there);
    }
    if (!h.valid.empty())
      out.holes.push_back(std::move(h));
  }
  return out;
}

void append(std::vector<Guard>& mask, const std::vector<Guard>& more) {
  mask.insert(mask.end(), more.begin(), more.end());
}

/// The mask of an access that is made once for all lanes: what differs from lane to lane holds for
/// one of them at least.
std::vector<Guard> without_lanes(std::vector<Guard> mask) {
  std::erase_if(mask, [](const Guard& g) { return depends_on_lane(g); });
  return mask;
}

/// Loads of a choice that are worth a branch.
constexpr int kLoadsOfBranch = 4;

/// Whether an operation on low-precision values needs no rounding: its result is one of them, or no
/// number, or exact.
bool is_exact(Op op) {
  return op == Op::Select || op == Op::Max || op == Op::Floor || op == Op::Trunc;
}

} // namespace

std::optional<IndexMap> map_at(const Region& region, const Stage& stage, const Load& load,
                               const Point& point) {
  if (load.source != Source::Operand || !load.indirect.empty() ||
      region.operands[load.number].role == Role::Scalar)
    return std::nullopt;
  return at_point(compose(load.map, region.operands[load.number].layout), stage, point, {});
}

std::optional<Expr> element_at(const Region& region, const Stage& stage, const Load& load,
                               const Point& point) {
  const auto map = map_at(region, stage, load, point);
  return map ? std::optional(map->coords[0]) : std::nullopt;
}

std::vector<Guard> conditions_at(const Region& region, const Stage& stage, const Load& load,
                                 const Point& point) {
  const IndexMap map =
      at_point(compose(load.map, region.operands[load.number].layout), stage, point, {});
  std::vector<Guard> conditions;
  for (const Hole& hole : map.holes)
    append(conditions, hole.valid);
  return conditions;
}

std::vector<Guard> guards_at(const Stage& stage, const std::vector<Guard>& guards,
                             const Point& point) {
  std::vector<Guard> there;
  for (const Guard& g : guards)
    there.push_back({at_point(g.value, stage, point, {}), at_point(g.lo, stage, point, {}),
                     at_point(g.hi, stage, point, {})});
  return there;
}

DType compute_dtype(DType dtype) {
  return is_low(dtype) ? DType::F32 : dtype;
}

bool Emitter::KeyLess::operator()(const Key& a, const Key& b) const {
  if (a.first != b.first)
    return a.first < b.first;
  return std::lexicographical_compare(
      a.second.begin(), a.second.end(), b.second.begin(), b.second.end(),
      [](const Expr& x, const Expr& y) { return std::less<>()(&x.node(), &y.node()); });
}

Emitter::Emitter(ProgramBuilder& builder, const Region& region) : b_(builder), region_(region) {
  for (std::size_t i = 0; i < region.operands.size(); ++i) {
    const Operand& o = region.operands[i];
    std::string name = o.name.empty() ? fmt::format("in{}", i) : o.name;
    bool tensor = o.role == Role::Tensor;
    operand_buffer_.push_back(
        tensor ? b_.argument(name, o.dtype, element_count(o.shape), o.alignment, false) : -1);
    scalar_.push_back(tensor ? -1 : b_.add_scalar(o.dtype));
  }
  for (std::size_t i = 0; i < region.outputs.size(); ++i) {
    const Output& o = region.outputs[i];
    output_buffer_.push_back(
        b_.argument(fmt::format("out{}", i), o.dtype, element_count(o.shape), 64, true));
    if (o.alias >= 0 && operand_buffer_[o.alias] >= 0)
      b_.mark_aliased(operand_buffer_[o.alias]);
  }
}

bool Emitter::varies(const Expr& e) const {
  auto variables = variables_of(e);
  return std::any_of(variables.begin(), variables.end(), [&](const Expr& v) {
    auto id = value_of(v);
    return lanes_of(v) || (id && b_.type_of(*id).lanes > 1);
  });
}

bool Emitter::varies(const std::vector<Guard>& mask) const {
  return std::any_of(mask.begin(), mask.end(), [&](const Guard& g) {
    return varies(g.value) || varies(g.lo) || varies(g.hi);
  });
}

Value Emitter::widen(ValueId v) {
  DType dtype = b_.type_of(v).dtype;
  if (!is_low(dtype))
    return {v, dtype};
  ValueId wide = b_.cast(v, DType::F32);
  narrow_of_[wide] = v;
  return {wide, dtype};
}

ValueId Emitter::narrow(Value v) {
  if (!is_low(v.dtype))
    return v.id;
  auto it = narrow_of_.find(v.id);
  if (it != narrow_of_.end() && b_.visible(it->second) && b_.type_of(it->second).dtype == v.dtype)
    return it->second;
  return b_.cast(v.id, v.dtype);
}

Value Emitter::rounded(ValueId id, DType dtype) {
  return is_low(dtype) ? widen(cast_low(id, dtype)) : Value{id, dtype};
}

ValueId Emitter::cast_low(ValueId id, DType dtype) {
  const bool quick = quick_bf16 && dtype == DType::BF16 && b_.type_of(id).dtype == DType::F32;
  return quick ? b_.quick_bf16(id) : b_.cast(id, dtype);
}

Value Emitter::convert(Value v, DType dtype) {
  if (v.dtype == dtype)
    return v;
  return is_low(dtype) ? widen(cast_low(v.id, dtype)) : Value{b_.cast(v.id, dtype), dtype};
}

Value Emitter::apply(const BodyValue& v, const std::vector<Value>& args) {
  if (v.op == Op::StopGradient)
    return args[0];
  if (const auto made = apply_to_indices(v, args))
    return *made;
  if (v.op == Op::Cast)
    return convert(args[0], v.dtype);
  if (v.op == Op::Bitcast) {
    ValueId raw = narrow(args[0]);
    return widen(b_.type_of(raw).dtype == v.dtype ? raw : b_.apply(Op::Bitcast, v.dtype, {raw}));
  }
  std::vector<ValueId> ids;
  ids.reserve(args.size());
  for (const Value& a : args)
    ids.push_back(a.id);
  if (const auto folded = fold_logic(v, ids))
    return *folded;
  ValueId id = -1;
  if (v.dtype == DType::F32 && quick_arithmetic)
    id = quick_apply(v.op, ids);
  else if (v.dtype == DType::F32 && v.op == Op::Exp && beside_one)
    id = b_.exp_beside_one(ids[0]);
  else
    id = b_.apply(v.op, compute_dtype(v.dtype), std::move(ids));
  const bool exact =
      is_exact(v.op) || (v.op == Op::Mul && (is_sign(args[0].id) || is_sign(args[1].id)));
  return exact ? Value{id, v.dtype} : rounded(id, v.dtype);
}

/// Whether a value is the number 1 or -1: products with it are negations, or nothing.
bool Emitter::is_sign(ValueId v) const {
  v = without_splats(v);
  if (const auto* wide = made<inst::Apply>(v); wide && wide->op == Op::Cast)
    v = wide->args[0];
  const auto* number = made<inst::Constant>(v);
  return number && is_float(number->value.dtype) && std::abs(number->value.as_double()) == 1;
}

Value Emitter::load_operand(const Load& load, const IndexMap& map, const Point& point) {
  const Operand& operand = region_.operands[load.number];
  if (operand.role == Role::Scalar)
    return filled(widen(b_.scalar(scalar_[load.number])), map, point);
  std::vector<Guard> mask;
  for (const Hole& hole : map.holes)
    append(mask, hole.valid);
  const Expr& offset = map.coords[0];
  if (const ValueId made = provided_load(load.number, map); made >= 0)
    return {widen(made).id, operand.dtype}; // of its dtype, or widened already
  if (const ValueId memory = provided_load(load.number, {{}, {offset}, {}}); memory >= 0)
    return filled({widen(memory).id, operand.dtype}, map, point);
  ValueId v;
  if (varies(offset) || varies(mask)) {
    append(mask, point.mask);
    v = b_.load(operand_buffer_[load.number], offset, point.lanes, std::move(mask), load_policy);
  } else {
    append(mask, without_lanes(point.mask));
    v = b_.load(operand_buffer_[load.number], offset, 1, std::move(mask), load_policy);
  }
  const bool zeros = std::all_of(map.holes.begin(), map.holes.end(),
                                 [](const Hole& h) { return h.fill.bits == 0; });
  return zeros ? widen(v) : filled(widen(v), map, point); // a masked load gives 0
}

/// The value outside of the holes; fills are put in from the last hole to the first, which comes
/// first.
Value Emitter::filled(Value result, const IndexMap& map, const Point& point) {
  for (auto hole = map.holes.rbegin(); hole != map.holes.rend(); ++hole) {
    int lanes = varies(hole->valid) ? point.lanes : 1;
    ValueId held = b_.test(hole->valid, lanes);
    Value fill = widen(b_.constant(hole->fill));
    result = {b_.apply(Op::Select, compute_dtype(result.dtype), {held, result.id, fill.id}),
              result.dtype};
  }
  return result;
}

/// One emission of a stage's body: values are made when asked for, each once.
struct Emitter::Body {
  Emitter& e;
  const Stage& stage;
  const Point& point;
  std::vector<Value> made;

  Body(Emitter& emitter, const Stage& s, const Point& p)
      : e(emitter), stage(s), point(p), made(s.body.size()) {}

  Expr indirect(int value) {
    Value v = get(value);
    ValueId id = v.id;
    if (v.dtype != DType::I32 && v.dtype != DType::I64)
      id = e.b_.cast(id, DType::I64);
    return value_symbol(id);
  }

  Value load(const Load& load) {
    std::vector<Expr> coordinates;
    for (int j : load.indirect)
      coordinates.push_back(indirect(j));
    if (load.source == Source::Operand) {
      IndexMap map = at_point(compose(load.map, e.region_.operands[load.number].layout), stage,
                              point, coordinates);
      return e.load_operand(load, map, point);
    }
    ensure(load.indirect.empty() && load.map.is_total(),
           "region {}: a stage's result is read through a hole or an index", e.region_.name);
    const Stage& source = e.region_.stages[load.number];
    std::vector<int> axes = result_axes(source);
    Point there = point;
    for (std::size_t i = 0; i < axes.size(); ++i)
      there.at[axes[i]] = at_point(load.map.coords[i], stage, point, {});
    return e.result(load.number, load.component, there);
  }

  /// A wide integer that is the same in all lanes, compared with an index: what is left of it
  /// behind the index of lane 0 is compared with the lane's number, in 32 bits. -1: `v` is no such
  /// thing.
  ValueId is_at(const BodyValue& v) {
    if (v.op != Op::Eq)
      return -1;
    for (int side = 0; side < 2; ++side) {
      const BodyValue& index = stage.body[v.args[side]];
      if (index.kind != BodyValue::Kind::Index || index.dtype != DType::I64)
        continue;
      const Expr place = at_point(index.index, stage, point, {});
      const Expr lane = point.lanes > 1 ? lane_variable(point.lanes) : Expr(0);
      const Expr first = place - lane;
      if (!e.varies(place) || e.varies(first) || place.lower() < 0 || place.upper() > INT32_MAX)
        continue;
      ProgramBuilder& b = e.b_;
      const ValueId wanted = get(v.args[1 - side]).id;
      if (b.type_of(wanted).lanes != 1)
        continue;
      auto number = [&](std::int64_t n) { return b.constant(Scalar::of(DType::I64, double(n))); };
      auto choose = [&](ValueId when, ValueId yes) {
        return b.apply(Op::Select, DType::I64, {when, yes, number(-1)});
      };
      // What no index can be becomes -1, before and after the index of lane 0 is taken off.
      const ValueId low = choose(b.apply(Op::Lt, DType::Bool, {number(-1), wanted}), wanted);
      const ValueId near =
          choose(b.apply(Op::Lt, DType::Bool, {low, number(std::int64_t(INT32_MAX) + 1)}), low);
      const ValueId left = b.apply(
          Op::Add, DType::I32, {b.cast(near, DType::I32), b.index(Expr(0) - first, DType::I32, 1)});
      return b.apply(Op::Eq, DType::Bool,
                     {b.splat(left, point.lanes), b.index(lane, DType::I32, point.lanes)});
    }
    return -1;
  }

  /// The index of a choice by a place, at the point, and the number that it is compared with.
  std::optional<std::pair<Expr, Expr>> test_at_point(const BodyValue& choice) const {
    const auto test = place_test(stage, choice);
    if (!test || (test->index->dtype != DType::I64 && test->index->dtype != DType::I32))
      return std::nullopt;
    const Expr place = at_point(test->index->index, stage, point, {});
    if (test->index->dtype == DType::I32 &&
        (place.lower() < INT32_MIN || place.upper() > INT32_MAX))
      return std::nullopt; // the value wraps, the expression would not
    return std::pair(place, Expr(test->end));
  }

  /// Which way a choice goes, where the point alone says so.
  std::optional<bool> known_choice(const BodyValue& choice) const {
    const auto test = test_at_point(choice);
    if (test && proves_less(test->first, test->second))
      return true;
    return test && proves_less_equal(test->second, test->first) ? std::optional(false)
                                                                : std::nullopt;
  }

  /// A condition that is a constant where the code is being written, once it is made.
  std::optional<bool> truth(int condition) {
    const auto* constant = e.made<inst::Constant>(e.without_splats(get(condition).id));
    return constant != nullptr ? std::optional(constant->value.as_int() != 0) : std::nullopt;
  }

  /// The condition of a choice as a guard, where it is the same in all lanes and can hold and fail.
  std::optional<Guard> shared_condition(const BodyValue& choice) const {
    const auto test = test_at_point(choice);
    if (!test || e.varies(test->first) || proves_less(test->first, test->second) ||
        proves_less_equal(test->second, test->first))
      return std::nullopt;
    return Guard{test->first, Expr(INT64_MIN / 2), test->second};
  }

  bool loads_tensor(const BodyValue& v) const {
    if (v.kind != BodyValue::Kind::Load)
      return false;
    const Load& load = stage.loads[std::size_t(v.load)];
    return load.source == Source::Operand &&
           e.region_.operands[std::size_t(load.number)].role == Role::Tensor;
  }

  /// Whether a value differs from lane to lane; nothing where it reads stages.
  struct Cone {
    bool varies = false;
  };
  bool look(int i, std::vector<bool>& seen, Cone& cone) const {
    if (seen[std::size_t(i)])
      return true;
    seen[std::size_t(i)] = true;
    const BodyValue& v = stage.body[std::size_t(i)];
    const auto differs = [&](const Expr& x) { return e.varies(at_point(x, stage, point, {})); };
    if (v.kind == BodyValue::Kind::Index)
      cone.varies |= differs(v.index);
    if (v.kind == BodyValue::Kind::Load) {
      const Load& load = stage.loads[std::size_t(v.load)];
      if (load.source != Source::Operand || !load.indirect.empty())
        return false;
      const bool tensor = loads_tensor(v);
      for (const Expr& c : load.map.coords)
        cone.varies |= tensor && differs(c);
      for (const Hole& hole : load.map.holes)
        for (const Guard& g : hole.valid)
          cone.varies |= differs(g.value) || differs(g.lo) || differs(g.hi);
    }
    return std::all_of(v.args.begin(), v.args.end(), [&](int a) { return look(a, seen, cone); });
  }

  /// A choice by branches, if that is worth it.
  std::optional<Value> branch(const BodyValue& v) {
    if (!e.branches || v.op != Op::Select)
      return std::nullopt;
    const std::optional<Guard> condition = shared_condition(v);
    if (!condition)
      return std::nullopt;
    std::vector<bool> yes(stage.body.size(), false), no = yes;
    Cone cone, other;
    if (!look(v.args[1], yes, cone) || !look(v.args[2], no, other))
      return std::nullopt;
    cone.varies |= other.varies;
    int own = 0; // loads that one of the arms alone needs
    for (std::size_t i = 0; i < yes.size(); ++i)
      own += yes[i] != no[i] && loads_tensor(stage.body[i]) ? 1 : 0;
    if (own < kLoadsOfBranch)
      return std::nullopt;
    for (std::size_t i = 0; i < yes.size(); ++i)
      if (yes[i] && no[i])
        get(int(i)); // once, for both
    const VarId chosen = e.b_.variable({compute_dtype(v.dtype), cone.varies ? point.lanes : 1});
    const auto choose = [&](int arm) { return [&, arm] { e.b_.set(chosen, get(arm).id); }; };
    e.b_.either({*condition}, choose(v.args[1]), choose(v.args[2]));
    return Value{e.b_.read(chosen), v.dtype};
  }

  Value get(int i) {
    if (made[i].id >= 0 && e.b_.visible(made[i].id))
      return made[i];
    const BodyValue& v = stage.body[i];
    switch (v.kind) {
    case BodyValue::Kind::Constant:
      made[i] = e.widen(e.b_.constant(v.constant));
      e.note_constant(made[i].id, v.constant);
      break;
    case BodyValue::Kind::Load:
      made[i] = load(stage.loads[v.load]);
      break;
    case BodyValue::Kind::Index:
      made[i] = e.widen(e.index_value(at_point(v.index, stage, point, {}), v.dtype, point.lanes));
      break;
    case BodyValue::Kind::Apply: {
      if (const std::optional<bool> known = e.known(stage, i)) {
        made[i] = {e.b_.constant(Scalar::of(DType::Bool, std::int64_t(*known))), DType::Bool};
        break;
      }
      if (v.op == Op::Select)
        if (const std::optional<bool> known = e.known(stage, v.args[0])) {
          made[i] = get(v.args[*known ? 1 : 2]);
          break;
        }
      if (const std::optional<bool> known = known_choice(v)) {
        made[i] = get(v.args[*known ? 1 : 2]);
        break;
      }
      if (const std::optional<Value> chosen = branch(v)) {
        made[i] = *chosen;
        break;
      }
      if (auto held = is_at(v); held >= 0) {
        made[i] = {held, DType::Bool};
        break;
      }
      if (const std::optional<bool> known = v.op == Op::Select ? truth(v.args[0]) : std::nullopt) {
        made[i] = get(v.args[*known ? 1 : 2]);
        break;
      }
      std::vector<Value> args;
      for (int a : v.args)
        args.push_back(get(a));
      made[i] = e.apply(v, args);
      break;
    }
    }
    return made[i];
  }
};

Emitter::Key Emitter::key_of(int stage, const Point& point) const {
  Key key{stage, {}};
  for (int a : result_axes(region_.stages[stage]))
    key.second.push_back(point.at[a]);
  return key;
}

const std::vector<Value>* Emitter::provided(const Key& key) const {
  auto it = provided_.find(key);
  if (it == provided_.end())
    return nullptr;
  for (const Value& v : it->second)
    if (!b_.visible(v.id))
      return nullptr;
  return &it->second;
}

std::vector<Value> Emitter::yields(int stage, const Point& point) {
  const Stage& s = region_.stages[stage];
  Body body(*this, s, point);
  std::vector<Value> values;
  for (int y : s.yields)
    values.push_back(body.get(y));
  return values;
}

Value Emitter::value(int stage, int value, const Point& point) {
  return Body(*this, region_.stages[stage], point).get(value);
}

std::optional<std::pair<ValueId, ValueId>> Emitter::factors(int stage, int yield,
                                                            const Point& point) {
  const Stage& s = region_.stages[stage];
  const BodyValue& v = s.body[s.yields[yield]];
  if (v.kind != BodyValue::Kind::Apply || v.op != Op::Mul || v.dtype != s.acc_dtype ||
      (v.dtype != DType::F32 && v.dtype != DType::F64))
    return std::nullopt;
  Body body(*this, s, point);
  return std::pair{body.get(v.args[0]).id, body.get(v.args[1]).id};
}

void Emitter::know(int stage, int value, bool holds) {
  known_[{stage, value}] = holds;
}

void Emitter::forget_known() {
  known_.clear();
}

std::optional<bool> Emitter::known(const Stage& stage, int value) const {
  if (known_.empty())
    return std::nullopt;
  const auto it = known_.find({int(&stage - region_.stages.data()), value});
  return it == known_.end() ? std::nullopt : std::optional(it->second);
}

void Emitter::forget_maps() {
  std::erase_if(provided_, [&](const auto& entry) {
    return region_.stages[entry.first.first].kind == StageKind::Map;
  });
}

void Emitter::provide(int stage, const Point& point, std::vector<Value> values) {
  provided_[key_of(stage, point)] = std::move(values);
}

/// The element that is read, and the holes around it: of two views of one element only one may
/// have it.
Emitter::Key Emitter::key_of_load(int operand, const IndexMap& map) {
  Key key{operand, {map.coords[0]}};
  for (const Hole& hole : map.holes) {
    key.second.emplace_back(std::int64_t(hole.valid.size()));
    for (const Guard& g : hole.valid)
      key.second.insert(key.second.end(), {g.value, g.lo, g.hi});
    key.second.emplace_back(std::int64_t(hole.fill.bits));
  }
  return key;
}

void Emitter::provide_load(const Stage& stage, const Load& load, const Point& point,
                           ValueId vector) {
  const auto map = map_at(region_, stage, load, point);
  ensure(map.has_value(), "region {}: a load that depends on data is provided", region_.name);
  provided_loads_[key_of_load(load.number, *map)] = vector;
}

ValueId Emitter::provided_load(int operand, const IndexMap& map) const {
  const auto it = provided_loads_.find(key_of_load(operand, map));
  return it != provided_loads_.end() && b_.visible(it->second) ? it->second : -1;
}

void Emitter::provide_memory(int stage, std::vector<int> buffers, Offset offset) {
  memory_[stage] = {std::move(buffers), std::move(offset)};
}

void Emitter::forget_memory(int stage) {
  memory_.erase(stage);
}

void Emitter::forget_readers(int stage) {
  for (int s = stage + 1; s < int(region_.stages.size()); ++s) {
    const Stage& reader = region_.stages[s];
    if (reader.kind != StageKind::Map ||
        std::none_of(reader.loads.begin(), reader.loads.end(),
                     [&](const Load& l) { return l.source == Source::Stage && l.number == stage; }))
      continue;
    std::erase_if(provided_, [&](const auto& entry) { return entry.first.first == s; });
    forget_readers(s);
  }
}

Value Emitter::result(int stage, int component, const Point& point) {
  Key key = key_of(stage, point);
  if (const auto* values = provided(key))
    return (*values)[component];
  const Stage& s = region_.stages[stage];
  if (auto it = memory_.find(stage); it != memory_.end()) {
    Expr offset = it->second.offset(point);
    bool vector = depends_on_lane(offset);
    ValueId v = b_.load(it->second.buffers[component], offset, vector ? point.lanes : 1,
                        vector ? point.mask : without_lanes(point.mask));
    return {v, s.yield_dtypes[component]};
  }
  ensure(s.kind == StageKind::Map, "region {}: stage {} is read before it is computed",
         region_.name, stage);
  std::vector<Value> values = yields(stage, point);
  provided_[key] = values;
  return values[component];
}

void Emitter::store(int output, const Point& point, Value value, CachePolicy policy) {
  const Output& out = region_.outputs[output];
  const Stage& stage = region_.stages[out.stage];
  Stage result; // the map's variables are the result axes
  result.axes = result_axes(stage);
  IndexMap map = at_point(compose(out.map, out.layout), result, point, {});
  std::vector<Guard> mask = point.mask;
  for (const Hole& hole : map.holes)
    append(mask, hole.valid);
  ValueId v = narrow(value);
  bool vector = depends_on_lane(map.coords[0]);
  if (vector)
    v = b_.splat(v, point.lanes);
  ensure(vector || b_.type_of(v).lanes == 1, "region {}: lanes of output {} share one element",
         region_.name, output);
  b_.store(output_buffer_[output], map.coords[0], v,
           vector ? std::move(mask) : without_lanes(std::move(mask)), policy);
}

void Emitter::store_memory(int stage, const Point& point, const std::vector<Value>& values) {
  const Memory& memory = memory_.at(stage);
  Expr offset = memory.offset(point);
  bool vector = depends_on_lane(offset);
  for (std::size_t c = 0; c < values.size(); ++c)
    b_.store(memory.buffers[c], offset, vector ? b_.splat(values[c].id, point.lanes) : values[c].id,
             vector ? point.mask : without_lanes(point.mask));
}

void Emitter::scatter(int output, int memory, const Point& point,
                      const std::vector<Value>& values) {
  const Output& out = region_.outputs[output];
  Stage result;
  result.axes = result_axes(region_.stages[out.stage]);
  std::vector<Expr> indirect;
  for (int c : out.indirect) {
    ValueId id = values[c].id;
    if (values[c].dtype != DType::I32 && values[c].dtype != DType::I64)
      id = b_.cast(id, DType::I64);
    ensure(b_.type_of(id).lanes == 1, "region {}: lanes of output {} may meet", region_.name,
           output);
    indirect.push_back(value_symbol(id));
  }
  IndexMap map = at_point(compose(out.map, out.layout), result, point, indirect);
  std::vector<Guard> mask = point.mask;
  for (const Hole& hole : map.holes)
    append(mask, hole.valid);
  int lanes = depends_on_lane(map.coords[0]) ? point.lanes : 1;
  ensure(lanes == point.lanes, "region {}: lanes of output {} share one element", region_.name,
         output);
  const Value value = values[out.component];
  if (out.combine == Combine::Set) {
    b_.store(memory, map.coords[0], b_.splat(narrow(value), lanes), std::move(mask));
    return;
  }
  // One condition of the update for load and store, and each lane's for both.
  const auto by_lane = std::stable_partition(mask.begin(), mask.end(),
                                             [](const Guard& g) { return !depends_on_lane(g); });
  const std::vector<Guard> lane_mask(by_lane, mask.end());
  mask.erase(by_lane, mask.end());
  b_.when(std::move(mask), [&] {
    const ValueId old = widen(b_.load(memory, map.coords[0], lanes, lane_mask)).id;
    const Op op = out.combine == Combine::Add ? Op::Add : Op::Max;
    const ValueId sum = b_.apply(op, compute_dtype(out.dtype), {old, value.id});
    b_.store(memory, map.coords[0], b_.cast(sum, b_.buffer_dtype(memory)), lane_mask);
  });
}

} // namespace egret::kernel

// The promises of a Region, each with a message that names the place where it is broken; and its
// identity.
#include "kernel/region.h"

#include "ir/format.h"
#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// Checks that `e` mentions only sizes, the first `axes` variables with the extents of `box`, and
/// the first `indirects` indirect symbols.
void check_variables(const Expr& e, const Shape& box, std::size_t indirects,
                     const std::string& where) {
  for (const Expr& v : variables_of(e)) {
    if (v.is_axis()) {
      int n = v.axis_number();
      ensure(n >= 0 && std::size_t(n) < box.size(), "{}: variable {} of {} is not an axis of it",
             where, v, e);
      ensure(v == Expr::axis(n, box[n]), "{}: variable {} of {} has another extent than its axis",
             where, v, e);
    } else if (auto j = indirect_of(v)) {
      ensure(std::size_t(*j) < indirects, "{}: {} names an indirect coordinate that is not given",
             where, e);
    }
  }
}

void check_map(const IndexMap& map, const Shape& box, std::size_t coords, std::size_t indirects,
               const std::string& where) {
  ensure(map.dims == box, "{}: the map's box {} is not {}", where, to_string(map.dims),
         to_string(box));
  ensure(map.coords.size() == coords, "{}: {} coordinates where the target has {}", where,
         map.coords.size(), coords);
  for (const Expr& c : map.coords)
    check_variables(c, box, indirects, where);
  for (const Hole& hole : map.holes)
    for (const Guard& g : hole.valid)
      for (const Expr* e : {&g.value, &g.lo, &g.hi})
        check_variables(*e, box, indirects, where);
}

Shape box_of(const Region& region, const std::vector<int>& axes) {
  Shape box;
  for (int a : axes)
    box.push_back(region.axes[a].extent);
  return box;
}

void check_load(const Region& region, std::size_t s, std::size_t l) {
  const Stage& stage = region.stages[s];
  const Load& load = stage.loads[l];
  std::string where = fmt::format("region {}, stage {}, load {}", region.name, s, l);
  std::size_t rank = 0;
  if (load.source == Source::Operand) {
    ensure(load.number >= 0 && std::size_t(load.number) < region.operands.size(),
           "{}: no operand {}", where, load.number);
    rank = region.operands[load.number].shape.size();
  } else {
    ensure(load.number >= 0 && std::size_t(load.number) < s, "{}: stage {} is not an earlier one",
           where, load.number);
    const Stage& source = region.stages[load.number];
    ensure(load.component >= 0 && std::size_t(load.component) < source.yields.size(),
           "{}: no component {}", where, load.component);
    rank = result_axes(source).size();
  }
  check_map(load.map, box_of(region, stage.axes), rank, load.indirect.size(), where);
  for (int v : load.indirect)
    ensure(v >= 0 && std::size_t(v) < stage.body.size() && is_integer(stage.body[v].dtype),
           "{}: indirect coordinate {} is no integer value of the body", where, v);
}

void check_body(const Region& region, std::size_t s) {
  const Stage& stage = region.stages[s];
  Shape box = box_of(region, stage.axes);
  for (std::size_t i = 0; i < stage.body.size(); ++i) {
    const BodyValue& v = stage.body[i];
    std::string where = fmt::format("region {}, stage {}, value {}", region.name, s, i);
    switch (v.kind) {
    case BodyValue::Kind::Constant:
      ensure(v.constant.dtype == v.dtype, "{}: a constant of another dtype", where);
      break;
    case BodyValue::Kind::Load: {
      ensure(v.load >= 0 && std::size_t(v.load) < stage.loads.size(), "{}: no load {}", where,
             v.load);
      const Load& load = stage.loads[v.load];
      for (int j : load.indirect)
        ensure(std::size_t(j) < i, "{}: uses coordinate {} before it is made", where, j);
      DType dtype = load.source == Source::Operand
                        ? region.operands[load.number].dtype
                        : region.stages[load.number].yield_dtypes[load.component];
      ensure(v.dtype == dtype, "{}: is {}, loads {}", where, name_of(v.dtype), name_of(dtype));
      break;
    }
    case BodyValue::Kind::Index:
      check_variables(v.index, box, 0, where);
      break;
    case BodyValue::Kind::Apply: {
      const OpInfo& info = info_of(v.op);
      ensure(is_elementwise(v.op), "{}: {} is not elementwise", where, info.name);
      ensure(v.args.size() == std::size_t(info.arity), "{}: {} takes {} operands, has {}", where,
             info.name, info.arity, v.args.size());
      for (int a : v.args)
        ensure(a >= 0 && std::size_t(a) < i, "{}: operand {} is not an earlier value", where, a);
      break;
    }
    }
  }
}

void check_stage(const Region& region, std::size_t s) {
  const Stage& stage = region.stages[s];
  std::string where = fmt::format("region {}, stage {}", region.name, s);
  for (std::size_t i = 0; i < stage.axes.size(); ++i) {
    ensure(stage.axes[i] >= 0 && std::size_t(stage.axes[i]) < region.axes.size(), "{}: no axis {}",
           where, stage.axes[i]);
    ensure(i == 0 || stage.axes[i - 1] < stage.axes[i], "{}: axes are not ascending", where);
  }
  ensure((stage.kind == StageKind::Map) == stage.over.empty(),
         "{}: a map has no reduced axes, all other stages have some", where);
  ensure(stage.kind != StageKind::Scan ||
             (stage.over.size() == 1 && stage.monoid != Monoid::ArgMax),
         "{}: a scan runs along one axis with sum, max, prod or linear", where);
  ensure(stage.monoid != Monoid::Linear || stage.kind == StageKind::Map ||
             (stage.kind == StageKind::Scan && stage.yields.size() == 2),
         "{}: only scans of a term and a factor are linear", where);
  for (std::size_t i = 0; i < stage.over.size(); ++i) {
    int a = stage.over[i];
    ensure(std::find(stage.axes.begin(), stage.axes.end(), a) != stage.axes.end() &&
               (i == 0 || stage.over[i - 1] < a),
           "{}: reduced axes are not some of its axes, ascending", where);
    ensure(region.axes[a].reduction || stage.kind == StageKind::Scan ||
               stage.kind == StageKind::Sort,
           "{}: axis {} is reduced but marked parallel", where, a);
  }
  for (std::size_t l = 0; l < stage.loads.size(); ++l)
    check_load(region, s, l);
  check_body(region, s);
  ensure(!stage.yields.empty() && stage.yields.size() == stage.yield_dtypes.size(),
         "{}: yields and their dtypes do not match", where);
  ensure(stage.kind != StageKind::Sort || (stage.over.size() == 1 && stage.yields.size() == 1),
         "{}: a sort runs along one axis and has one key", where);
  for (std::size_t i = 0; i < stage.yields.size(); ++i) {
    int y = stage.yields[i];
    ensure(y >= 0 && std::size_t(y) < stage.body.size(), "{}: yields no value {}", where, y);
    if (stage.kind == StageKind::Map)
      ensure(stage.body[y].dtype == stage.yield_dtypes[i], "{}: yield {} has another dtype", where,
             i);
    else if (stage.kind == StageKind::Sort)
      ensure(is_integer(stage.body[y].dtype) && stage.yield_dtypes[i] == DType::I64,
             "{}: a sort orders integers and gives i64", where);
    else if (stage.monoid == Monoid::ArgMax)
      ensure(stage.yield_dtypes[i] == DType::I64, "{}: argmax gives i64", where);
  }
}

void check_output(const Region& region, std::size_t o) {
  const Output& out = region.outputs[o];
  std::string where = fmt::format("region {}, output {}", region.name, o);
  ensure(out.stage >= 0 && std::size_t(out.stage) < region.stages.size(), "{}: no stage {}", where,
         out.stage);
  const Stage& stage = region.stages[out.stage];
  ensure(out.component >= 0 && std::size_t(out.component) < stage.yields.size(),
         "{}: no component {}", where, out.component);
  ensure(out.dtype == stage.yield_dtypes[out.component], "{}: has another dtype than its value",
         where);
  check_map(out.map, box_of(region, result_axes(stage)), out.shape.size(), out.indirect.size(),
            where);
  check_map(out.layout, out.shape, 1, 0, where);
  ensure(out.combine != Combine::Store || out.indirect.empty(),
         "{}: only a scatter has indirect coordinates", where);
  for (int c : out.indirect)
    ensure(c >= 0 && std::size_t(c) < stage.yields.size() && is_integer(stage.yield_dtypes[c]),
           "{}: indirect coordinate {} is no integer component", where, c);
  ensure(out.alias >= -1 && out.alias < int(region.operands.size()), "{}: no operand {}", where,
         out.alias);
  ensure(out.alias < 0 || out.combine != Combine::Store ||
             may_alias(region, int(o), out.alias, true),
         "{}: may not share the memory of operand {}", where, out.alias);
}

class RegionHasher {
public:
  void add(std::uint64_t v) { h_ = combine(h_, v); }
  void add(const Expr& e) { add(e.hash()); }
  void add(const IndexMap& m) { add(m.hash()); }
  void add(const Shape& s) {
    add(s.size());
    for (const Expr& e : s)
      add(e);
  }
  void add(const std::vector<int>& v) {
    add(v.size());
    for (int i : v)
      add(std::uint64_t(std::int64_t(i)));
  }
  std::uint64_t value() const { return h_; }

private:
  std::uint64_t h_ = 0x7265676973746572u;
};

} // namespace

void verify(const Region& region) {
  ensure(!region.stages.empty() && !region.outputs.empty(), "region {}: computes nothing",
         region.name);
  for (std::size_t i = 0; i < region.operands.size(); ++i) {
    const Operand& operand = region.operands[i];
    std::string where = fmt::format("region {}, operand {}", region.name, i);
    if (operand.role == Role::Scalar)
      ensure(operand.shape.empty(), "{}: a scalar has no dims", where);
    check_map(operand.layout, operand.shape, 1, 0, where);
    ensure(operand.alignment >= 1, "{}: alignment {}", where, operand.alignment);
  }
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    check_stage(region, s);
  for (std::size_t o = 0; o < region.outputs.size(); ++o)
    check_output(region, o);
}

std::uint64_t hash_of(const Region& region) {
  RegionHasher h;
  h.add(region.axes.size());
  for (const Axis& a : region.axes) {
    h.add(a.extent);
    h.add(a.reduction);
  }
  h.add(region.operands.size());
  for (const Operand& o : region.operands) {
    h.add(std::uint64_t(o.dtype));
    h.add(o.shape);
    h.add(o.layout);
    h.add(std::uint64_t(o.role));
    h.add(std::uint64_t(o.alignment));
  }
  h.add(region.stages.size());
  for (const Stage& s : region.stages) {
    h.add(std::uint64_t(s.kind));
    h.add(s.axes);
    h.add(s.over);
    h.add(std::uint64_t(s.monoid));
    h.add(std::uint64_t(s.acc_dtype));
    h.add(s.loads.size());
    for (const Load& l : s.loads) {
      h.add(std::uint64_t(l.source));
      h.add(std::uint64_t(l.number));
      h.add(std::uint64_t(l.component));
      h.add(l.map);
      h.add(l.indirect);
    }
    h.add(s.body.size());
    for (const BodyValue& v : s.body) {
      h.add(std::uint64_t(v.kind));
      h.add(std::uint64_t(v.dtype));
      switch (v.kind) {
      case BodyValue::Kind::Constant:
        h.add(v.constant.bits);
        break;
      case BodyValue::Kind::Load:
        h.add(std::uint64_t(v.load));
        break;
      case BodyValue::Kind::Index:
        h.add(v.index);
        break;
      case BodyValue::Kind::Apply:
        h.add(std::uint64_t(v.op));
        h.add(v.args);
        break;
      }
    }
    h.add(s.yields);
    for (DType d : s.yield_dtypes)
      h.add(std::uint64_t(d));
  }
  h.add(region.outputs.size());
  for (const Output& o : region.outputs) {
    h.add(std::uint64_t(o.stage));
    h.add(std::uint64_t(o.component));
    h.add(std::uint64_t(o.dtype));
    h.add(o.shape);
    h.add(o.map);
    h.add(o.layout);
    h.add(std::uint64_t(std::int64_t(o.alias)));
    h.add(std::uint64_t(o.combine));
    h.add(o.indirect);
  }
  return h.value();
}

} // namespace egret::kernel

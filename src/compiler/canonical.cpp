#include "compiler/canonical.h"

#include <algorithm>
#include <optional>

namespace egret::compiler {

using kernel::BodyValue;
using kernel::Output;
using kernel::Region;
using kernel::Source;
using kernel::Stage;

namespace {

void flatten(Region& region) {
  for (Stage& stage : region.stages)
    for (kernel::Load& load : stage.loads)
      if (load.source == Source::Operand &&
          region.operands[load.number].role == kernel::Role::Tensor)
        load.map = compose(load.map, region.operands[load.number].layout);
  for (Output& out : region.outputs)
    out.map = compose(out.map, out.layout);
  auto flat = [](auto& memory) {
    memory.shape = {element_count(memory.shape)};
    memory.layout = IndexMap::identity(memory.shape);
  };
  for (kernel::Operand& operand : region.operands)
    if (operand.role == kernel::Role::Tensor)
      flat(operand);
  for (Output& out : region.outputs)
    flat(out);
}

/// Can variables `a` (outer) and `b` (inner, extent `eb`) of `e` be one variable a*eb + b?
bool go_together(const Expr& e, const Expr& a, const Expr& b, const Expr& eb) {
  auto ca = coefficient_of(e, a), cb = coefficient_of(e, b);
  return ca && cb && *ca == *cb * eb;
}

bool go_together(const IndexMap& map, const Expr& a, const Expr& b, const Expr& eb) {
  for (const Expr& c : map.coords)
    if (!go_together(c, a, b, eb))
      return false;
  for (const Hole& hole : map.holes)
    for (const Guard& g : hole.valid)
      if (!go_together(g.value, a, b, eb) || !go_together(g.lo, a, b, eb) ||
          !go_together(g.hi, a, b, eb))
        return false;
  return true;
}

/// Places of axes `x` and `x + 1` in a list of axes; whether both or neither are there, side by
/// side.
struct Pair {
  bool fits, present;
  int place;
};
Pair find_pair(const std::vector<int>& axes, int x) {
  auto at = std::find(axes.begin(), axes.end(), x),
       next = std::find(axes.begin(), axes.end(), x + 1);
  if (at == axes.end() && next == axes.end())
    return {true, false, 0};
  return {at != axes.end() && next == at + 1, true, static_cast<int>(at - axes.begin())};
}

bool may_merge(const Region& region, int x) {
  if (region.axes[x].reduction != region.axes[x + 1].reduction)
    return false;
  if (region.axes[x].extent.upper() <= 1 ||
      region.axes[x + 1].extent.upper() <= 1) // no variables to speak of
    return false;
  const Expr& eb = region.axes[x + 1].extent;
  // The variable of an axis without points, or with one, is a constant.
  if (!Expr::axis(0, region.axes[x].extent).is_axis() || !Expr::axis(0, eb).is_axis())
    return false;
  auto variable = [&](int place, int axis) { return Expr::axis(place, region.axes[axis].extent); };
  for (const Stage& stage : region.stages) {
    const Pair pair = find_pair(stage.axes, x);
    const Pair over = find_pair(stage.over, x);
    if (!pair.fits || !over.fits ||
        (over.present && (stage.kind == kernel::StageKind::Scan ||
                          stage.kind == kernel::StageKind::Sort || stage.monoid == Monoid::ArgMax)))
      return false;
    if (!pair.present)
      continue;
    const Expr a = variable(pair.place, x), b = variable(pair.place + 1, x + 1);
    for (const kernel::Load& load : stage.loads)
      if (load.source == Source::Operand && !go_together(load.map, a, b, eb))
        return false;
    for (const BodyValue& v : stage.body)
      if (v.kind == BodyValue::Kind::Index && !go_together(v.index, a, b, eb))
        return false;
  }
  for (const Output& out : region.outputs) {
    const Pair pair = find_pair(kernel::result_axes(region.stages[out.stage]), x);
    if (!pair.fits)
      return false;
    if (pair.present &&
        !go_together(out.map, variable(pair.place, x), variable(pair.place + 1, x + 1), eb))
      return false;
  }
  return true;
}

/// Puts a map over another box, its expressions being change(expression).
template <class Change>
void rewrite(IndexMap& map, const Shape& box, const Change& change) {
  map.dims = box;
  for (Expr& c : map.coords)
    c = change(c);
  for (Hole& hole : map.holes)
    for (Guard& g : hole.valid)
      g = {change(g.value), change(g.lo), change(g.hi)};
}

/// Replaces two neighbouring variables of a box by one.
struct Renaming {
  int place;
  Expr ea, eb;
  Shape box; ///< after

  Expr operator()(const Expr& e) const {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      if (!v.is_axis() || v.axis_number() < place)
        return std::nullopt;
      const Expr merged = Expr::axis(place, ea * eb);
      if (v.axis_number() == place)
        return floordiv(merged, eb);
      if (v.axis_number() == place + 1)
        return floormod(merged, eb);
      return Expr::axis(v.axis_number() - 1, box[v.axis_number() - 1]);
    });
  }
  void apply(IndexMap& map) const { rewrite(map, box, *this); }
};

Shape extents(const Region& region, const std::vector<int>& axes) {
  Shape s;
  for (int a : axes)
    s.push_back(region.axes[a].extent);
  return s;
}

void drop_axis(std::vector<int>& axes, int gone) {
  std::erase(axes, gone);
  for (int& a : axes)
    a -= a > gone;
}

void merge(Region& region, int x) {
  const Expr ea = region.axes[x].extent, eb = region.axes[x + 1].extent;
  Region old = region; // result axes of the stages before the change
  region.axes[x].extent = ea * eb;
  region.axes.erase(region.axes.begin() + x + 1);
  for (std::size_t s = 0; s < region.stages.size(); ++s) {
    Stage& stage = region.stages[s];
    const Pair pair = find_pair(stage.axes, x);
    drop_axis(stage.axes, x + 1);
    drop_axis(stage.over, x + 1);
    if (!pair.present)
      continue;
    const Renaming rename{pair.place, ea, eb, extents(region, stage.axes)};
    for (kernel::Load& load : stage.loads) {
      if (load.source == Source::Stage) {
        // Coordinates are plain variables or numbers of slices; the source has both axes or
        // neither.
        const Pair from = find_pair(kernel::result_axes(old.stages[load.number]), x);
        if (from.present)
          load.map.coords.erase(load.map.coords.begin() + from.place + 1);
        load.map.dims = rename.box;
        for (std::size_t j = 0; j < load.map.coords.size(); ++j) {
          if (load.map.coords[j].is_constant())
            continue;
          int v = load.map.coords[j].axis_number();
          v -= v > pair.place;
          load.map.coords[j] = Expr::axis(v, rename.box[v]);
        }
      } else {
        rename.apply(load.map);
      }
    }
    for (BodyValue& v : stage.body)
      if (v.kind == BodyValue::Kind::Index)
        v.index = rename(v.index);
  }
  for (Output& out : region.outputs) {
    const Pair pair = find_pair(kernel::result_axes(old.stages[out.stage]), x);
    if (pair.present)
      Renaming{pair.place, ea, eb, extents(region, kernel::result_axes(region.stages[out.stage]))}
          .apply(out.map);
  }
}

/// Replaces a variable of a box by two, `outer` * extent of the inner one + inner.
struct Splitting {
  int place;
  Expr outer, inner; ///< extents
  Shape box;         ///< after

  Expr operator()(const Expr& e) const {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      if (!v.is_axis() || v.axis_number() < place)
        return std::nullopt;
      if (v.axis_number() == place)
        return Expr::axis(place, outer) * inner + Expr::axis(place + 1, inner);
      return Expr::axis(v.axis_number() + 1, box[v.axis_number() + 1]);
    });
  }
  void apply(IndexMap& map) const { rewrite(map, box, *this); }
};

void add_axis(std::vector<int>& axes, int x) {
  for (int& a : axes)
    a += a > x;
  if (const auto at = std::find(axes.begin(), axes.end(), x); at != axes.end())
    axes.insert(at + 1, x + 1);
}

/// Makes two axes of axis `x`, the inner one of `by` points.
void split(Region& region, int x, std::int64_t by) {
  const Region old = region; // result axes of the stages before the change
  const Expr outer(region.axes[x].extent.value() / by), inner(by);
  region.axes.insert(region.axes.begin() + x + 1, region.axes[x]);
  region.axes[x].extent = outer;
  region.axes[x + 1].extent = inner;
  const auto place_in = [&](const std::vector<int>& axes) {
    const auto at = std::find(axes.begin(), axes.end(), x);
    return at == axes.end() ? -1 : static_cast<int>(at - axes.begin());
  };
  for (std::size_t s = 0; s < region.stages.size(); ++s) {
    Stage& stage = region.stages[s];
    const int place = place_in(stage.axes);
    add_axis(stage.axes, x);
    add_axis(stage.over, x);
    if (place < 0)
      continue;
    const Splitting halve{place, outer, inner, extents(region, stage.axes)};
    for (kernel::Load& load : stage.loads) {
      halve.apply(load.map);
      if (load.source != Source::Stage)
        continue;
      // Coordinates are plain variables or numbers of slices.
      if (const int from = place_in(kernel::result_axes(old.stages[load.number])); from >= 0) {
        load.map.coords[from] = Expr::axis(place, outer);
        load.map.coords.insert(load.map.coords.begin() + from + 1, Expr::axis(place + 1, inner));
      }
    }
    for (BodyValue& v : stage.body)
      if (v.kind == BodyValue::Kind::Index)
        v.index = halve(v.index);
  }
  for (Output& out : region.outputs) {
    const std::vector<int> axes = kernel::result_axes(old.stages[out.stage]);
    if (const int place = place_in(axes); place >= 0)
      Splitting{place, outer, inner, extents(region, kernel::result_axes(region.stages[out.stage]))}
          .apply(out.map);
  }
}

bool has_variable(const Expr& e, const Expr& variable) {
  const auto variables = variables_of(e);
  return std::find(variables.begin(), variables.end(), variable) != variables.end();
}

/// The number by which digits of a variable are taken, x / n and x % n, where all loads take the
/// same ones; nothing where none does, or something else is computed of it.
std::optional<std::int64_t> digit_of(const Stage& stage, const Expr& variable) {
  std::optional<std::int64_t> found;
  for (const kernel::Load& load : stage.loads) {
    for (const Hole& hole : load.map.holes)
      for (const Guard& g : hole.valid)
        for (const Expr& e : {g.value, g.lo, g.hi})
          if (has_variable(e, variable))
            return std::nullopt;
    std::vector<Expr> waiting = load.map.coords;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const ExprNode& node = waiting[i].node();
      if (node.kind == ExprKind::Axis || !has_variable(waiting[i], variable))
        continue;
      if (node.kind == ExprKind::Sum || node.kind == ExprKind::Product) {
        const std::vector<Expr> operands = node.operands;
        waiting.insert(waiting.end(), operands.begin(), operands.end());
        continue;
      }
      if ((node.kind != ExprKind::FloorDiv && node.kind != ExprKind::FloorMod) ||
          !(node.operands[0] == variable) || !node.operands[1].is_constant() ||
          (found && *found != node.operands[1].value()))
        return std::nullopt;
      found = node.operands[1].value();
    }
  }
  return found;
}

/// A product's factor is copied a box at a time where it lies at affine coordinates: an axis that
/// is read by digits, as heads that were joined are, becomes an axis for each.
void split_digits(Region& region) {
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    for (std::size_t i = 0; i < region.stages[s].axes.size(); ++i) {
      const int x = region.stages[s].axes[i];
      const Expr extent = region.axes[x].extent;
      const Expr variable = Expr::axis(static_cast<int>(i), extent);
      if (!extent.is_constant() || !variable.is_axis())
        continue;
      const auto by = digit_of(region.stages[s], variable);
      if (by && *by > 1 && extent.value() % *by == 0 && extent.value() > *by)
        split(region, x, *by);
    }
}

} // namespace

void canonicalize(Region& region, const kernel::Target& target) {
  flatten(region);
  if (target.is_gpu() && kernel::classify(region) == kernel::Form::Contraction)
    split_digits(region);
  for (int x = 0; x + 1 < static_cast<int>(region.axes.size());)
    if (may_merge(region, x)) {
      merge(region, x);
      x = std::max(0, x - 1);
    } else {
      ++x;
    }
}

} // namespace egret::compiler

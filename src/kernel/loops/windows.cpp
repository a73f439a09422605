#include "kernel/loops/windows.h"

#include "kernel/analysis.h"
#include "kernel/nest.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>

namespace egret::kernel::loops {

namespace {

Expr variable(const Region& region, int axis) {
  return Expr::axis(axis, region.axes[axis].extent);
}

std::int64_t size_of_axis(const Region& region, int axis) {
  return region.axes[axis].extent.constant().value_or(0);
}

} // namespace

std::optional<Access> access_of(const Region& region, const Stage& stage, const Load& load) {
  if (load.source != Source::Operand || !load.indirect.empty() ||
      region.operands[load.number].role != Role::Tensor)
    return std::nullopt;
  const IndexMap map = compose(load.map, region.operands[load.number].layout);
  if (map.holes.size() > 1)
    return std::nullopt;
  const auto over_region = [&](const Expr& e) {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      return v.is_axis() ? std::optional(variable(region, stage.axes[v.axis_number()]))
                         : std::nullopt;
    });
  };
  Access access{over_region(map.coords[0]), {}, {}};
  access.elements =
      element_count(region.operands[std::size_t(load.number)].shape).constant().value_or(0);
  for (const Hole& hole : map.holes) {
    access.fill = hole.fill;
    for (const Guard& g : hole.valid)
      access.valid.push_back({over_region(g.value), over_region(g.lo), over_region(g.hi)});
  }
  return access;
}

std::vector<int> axes_in(const Expr& e) {
  std::vector<int> axes;
  for (const Expr& v : variables_of(e))
    if (v.is_axis())
      axes.push_back(v.axis_number());
  return axes;
}

std::optional<std::int64_t> slope(const Region& region, const Expr& e, int axis) {
  const Expr v = variable(region, axis);
  if (!v.is_axis())
    return 0;
  const auto c = coefficient_of(e, v);
  return c ? c->constant() : std::nullopt;
}

std::int64_t points_at_most(const Region& region, std::span<const int> axes) {
  std::int64_t n = 1;
  for (int a : axes)
    n = std::min<std::int64_t>(n * size_of_axis(region, a), std::int64_t(1) << 40);
  return n;
}

std::optional<StagedWindow> window_over(const Region& region, const Access& access,
                                        std::span<const int> inner, int lanes_axis) {
  StagedWindow window;
  window.base = access.offset;
  window.fill = access.fill;
  std::map<int, std::int64_t> strides; // of the inner axes that matter
  for (int a : inner) {
    const auto stride = slope(region, access.offset, a);
    if (!stride || size_of_axis(region, a) < 1)
      return std::nullopt;
    if (*stride != 0)
      strides[a] = *stride;
    window.base = window.base - Expr(*stride) * variable(region, a);
  }
  std::vector<std::vector<std::pair<int, std::int64_t>>> sums; // coordinates: axes, coefficients
  std::vector<int> placed;
  for (const Guard& g : access.valid) {
    const std::vector<int> axes = axes_in(g.value);
    if (std::none_of(axes.begin(), axes.end(), [&](int a) { return contains(inner, a); })) {
      window.valid.push_back(g);
      continue;
    }
    if (std::any_of(axes.begin(), axes.end(),
                    [&](int a) { return contains(inner, a) && !strides.contains(a); })) {
      // All elements of the copy are there, whether or not they are used.
      if (access.fill.bits != 0 || access.offset.lower() < 0 ||
          access.offset.upper() >= access.elements)
        return std::nullopt;
      window.used_if.push_back(g);
      continue;
    }
    Expr rest = g.value;
    sums.emplace_back();
    for (int a : axes) {
      const auto c = slope(region, g.value, a);
      if (!c || !strides.contains(a) || contains(placed, a))
        return std::nullopt;
      sums.back().push_back({a, *c});
      placed.push_back(a);
      rest = rest - Expr(*c) * variable(region, a);
    }
    if (!(rest == Expr(0)) || !g.lo.constant() || !g.hi.constant())
      return std::nullopt;
    window.valid.push_back(g);
  }
  for (const auto& [r, stride] : strides) { // windows without padding
    if (contains(placed, r) || !region.axes[r].reduction)
      continue;
    sums.push_back({{r, 1}});
    placed.push_back(r);
    for (const auto& [p, other] : strides)
      if (!contains(placed, p) && !region.axes[p].reduction && other % stride == 0 &&
          std::abs(other) < std::abs(stride) * size_of_axis(region, r)) {
        sums.back().push_back({p, other / stride});
        placed.push_back(p);
        break;
      }
  }
  for (const auto& [a, stride] : strides)
    if (!contains(placed, a))
      sums.push_back({{a, 1}});
  std::stable_partition(sums.begin(), sums.end(), [&](const auto& sum) {
    return std::none_of(sum.begin(), sum.end(),
                        [&](const auto& term) { return term.first == lanes_axis; });
  });
  for (const auto& sum : sums) {
    WindowCoordinate coordinate;
    coordinate.stride = strides.at(sum[0].first) / sum[0].second;
    for (const auto& [a, c] : sum) {
      if (strides.at(a) != coordinate.stride * c)
        return std::nullopt;
      coordinate.value = coordinate.value + Expr(c) * variable(region, a);
    }
    coordinate.lower = coordinate.value.lower();
    coordinate.extent = coordinate.value.upper() - coordinate.lower + 1;
    window.coordinates.push_back(coordinate);
  }
  if (sums.empty() || !strides.contains(lanes_axis))
    return std::nullopt;
  for (const auto& [a, c] : sums.back())
    if (a == lanes_axis)
      window.step = c;
  if (window.step < 1)
    return std::nullopt;
  for (const int a : axes_in(window.base))
    if (contains(inner, a))
      return std::nullopt;
  return window;
}

std::optional<Access> only_access(const Region& region, int operand) {
  std::optional<Access> found;
  for (const Stage& stage : region.stages)
    for (const Load& load : stage.loads) {
      if (load.source != Source::Operand || load.number != operand)
        continue;
      auto access = access_of(region, stage, load);
      if (!access || stage.axes.size() != region.axes.size() ||
          (found && !(found->offset == access->offset && found->valid == access->valid &&
                      found->fill == access->fill)))
        return std::nullopt;
      found = std::move(access);
    }
  return found;
}

bool StagedWindow::overlaps(const Region& region, const Access& access, std::span<const int> inner,
                            std::int64_t uses) const {
  std::vector<int> those;
  for (int a : inner)
    if (slope(region, access.offset, a).value_or(1) != 0)
      those.push_back(a);
  return points_at_most(region, those) >= uses * elements();
}

std::int64_t StagedWindow::elements() const {
  std::int64_t n = 1;
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    const bool last = i + 1 == coordinates.size();
    n *= last ? (coordinates[i].extent + step - 1) / step * step : coordinates[i].extent;
    n = std::min<std::int64_t>(n, std::int64_t(1) << 40);
  }
  return n;
}

Expr StagedWindow::offset(const Point& point) const {
  Expr flat(0);
  for (std::size_t i = 0; i < coordinates.size(); ++i) {
    const Expr at =
        substitute(coordinates[i].value,
                   [&](const Expr& v) -> std::optional<Expr> {
                     return v.is_axis() ? std::optional(point.at[v.axis_number()]) : std::nullopt;
                   }) -
        Expr(coordinates[i].lower);
    if (i + 1 < coordinates.size()) {
      flat = flat * Expr(coordinates[i].extent) + at;
      continue;
    }
    const Expr each((coordinates[i].extent + step - 1) / step);
    flat = flat * each * Expr(step) + floormod(at, step) * each + floordiv(at, step);
  }
  return flat;
}

std::vector<Guard> StagedWindow::conditions(const Point& point) const {
  const auto there = [&](const Expr& e) {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      return v.is_axis() ? std::optional(point.at[v.axis_number()]) : std::nullopt;
    });
  };
  std::vector<Guard> all;
  for (const Guard& g : used_if)
    all.push_back({there(g.value), there(g.lo), there(g.hi)});
  return all;
}

void copy_window(Emitter& emitter, int operand, const StagedWindow& window, int buffer,
                 const Expr& place, const Point& outside, int lanes, bool shared) {
  ProgramBuilder& b = emitter.builder();
  const auto there = [&](const Expr& e) {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      return v.is_axis() ? std::optional(outside.at[v.axis_number()]) : std::nullopt;
    });
  };
  const WindowCoordinate& last = window.coordinates.back();
  const std::int64_t each = (last.extent + window.step - 1) / window.step;
  std::vector<Expr> extents;
  for (std::size_t i = 0; i + 1 < window.coordinates.size(); ++i)
    extents.push_back(Expr(window.coordinates[i].extent));
  const auto row = [&](std::span<const Expr> at) {
    Expr flat(0), offset = there(window.base);
    std::vector<Guard> valid;
    const auto conditions = [&](const WindowCoordinate& coordinate, const Expr& value) {
      for (const Guard& g : window.valid)
        if (g.value == coordinate.value)
          valid.push_back({value, g.lo, g.hi});
    };
    for (const Guard& g : window.valid)
      if (std::none_of(
              window.coordinates.begin(), window.coordinates.end(),
              [&](const WindowCoordinate& coordinate) { return coordinate.value == g.value; }))
        valid.push_back({there(g.value), there(g.lo), there(g.hi)});
    for (std::size_t i = 0; i < at.size(); ++i) {
      const WindowCoordinate& coordinate = window.coordinates[i];
      flat = flat * extents[i] + at[i];
      offset = offset + Expr(coordinate.stride) * (at[i] + Expr(coordinate.lower));
      conditions(coordinate, at[i] + Expr(coordinate.lower));
    }
    const std::vector<Guard> of_row = valid;
    for (std::int64_t phase = 0; phase < window.step; ++phase) {
      // A phase that has fewer elements than others ends with the fill.
      const bool cut = (last.extent - phase + window.step - 1) / window.step < each;
      const Expr begin = flat * Expr(each * window.step) + Expr(phase * each);
      vector_loop(b, Expr(0), Expr(each), Expr(each), lanes, 1, [&](std::span<const Position> p) {
        const Expr value = p[0].at * Expr(window.step) + Expr(last.lower + phase);
        valid = of_row;
        conditions(last, value);
        if (cut)
          valid.push_back({value, Expr(last.lower), Expr(last.lower + last.extent)});
        std::vector<Guard> mask = valid;
        mask.insert(mask.end(), p[0].mask.begin(), p[0].mask.end());
        ValueId v = b.load(emitter.operand_buffer(operand), offset + Expr(last.stride) * value,
                           lanes, mask);
        v = emitter.widen(v).id;
        if (window.fill.bits != 0) {
          const ValueId fill = emitter.widen(b.constant(window.fill)).id;
          v = b.apply(Op::Select, b.type_of(v).dtype, {b.test(valid, lanes), v, fill});
        }
        b.store(buffer, place + begin + p[0].at, b.splat(v, lanes), p[0].mask);
      });
    }
  };
  if (!shared) {
    serial_loops(b, extents, row);
    return;
  }
  const std::size_t distributed = std::min<std::size_t>(1, extents.size());
  core_loop(b, std::span(extents).first(distributed), [&](std::span<const Expr> first) {
    serial_loops(b, std::span(extents).subspan(distributed), [&](std::span<const Expr> rest) {
      std::vector<Expr> at(first.begin(), first.end());
      at.insert(at.end(), rest.begin(), rest.end());
      row(at);
    });
  });
}

} // namespace egret::kernel::loops

#include "kernel/contraction_segments.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <optional>
#include <set>

namespace egret::kernel {

namespace {

/// `e` as c * variable + rest with numbers c > 0 and rest.
struct Line {
  std::int64_t slope, rest;
};
std::optional<Line> line_of(const Expr& e, const Expr& variable) {
  const auto slope = coefficient_of(e, variable);
  if (!slope || slope->constant().value_or(0) <= 0)
    return std::nullopt;
  const auto rest = (e - *slope * variable).constant();
  return rest ? std::optional(Line{*slope->constant(), *rest}) : std::nullopt;
}

/// Collects the places along one axis at which something that the side reads changes.
class Places {
public:
  Places(const Expr& variable, std::int64_t extent) : variable_(variable), extent_(extent) {}

  /// Where `e` reaches `bound`.
  void add_bound(const Expr& e, const Expr& bound) {
    const auto line = line_of(e, variable_);
    const auto at = bound.constant();
    if (line && at && *at > -kFar && *at < kFar)
      add(-floor_quotient(line->rest - *at, line->slope));
  }

  /// Where quotients and remainders in `e` start anew.
  void add_quotients(const Expr& e) {
    const ExprNode& node = e.node();
    if (node.kind == ExprKind::FloorDiv || node.kind == ExprKind::FloorMod) {
      const auto line = line_of(node.operands[0], variable_);
      const std::int64_t by = node.operands[1].constant().value_or(0);
      if (line && by > 0 && line->slope % by != 0) {
        const std::int64_t last = line->slope * (extent_ - 1) + line->rest;
        for (std::int64_t at = floor_quotient(line->rest, by) + 1; at * by <= last; ++at) {
          add(-floor_quotient(line->rest - at * by, line->slope));
          if (places_.size() > kMostSegments)
            return;
        }
      }
    }
    for (const Expr& part : node.operands)
      if (!part.is_axis() && !part.is_symbol())
        add_quotients(part);
  }

  const std::set<std::int64_t>& all() const { return places_; }

private:
  static constexpr std::int64_t kFar = std::int64_t{1} << 40;

  static std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
    return a / b - (a % b < 0 ? 1 : 0);
  }
  void add(std::int64_t place) {
    if (place > 0 && place < extent_)
      places_.insert(place);
  }

  Expr variable_;
  std::int64_t extent_;
  std::set<std::int64_t> places_;
};

/// All values that one is computed from.
std::vector<int> cone_of(const Stage& stage, int value) {
  std::vector<int> cone, waiting{value};
  std::vector<bool> seen(stage.body.size(), false);
  while (!waiting.empty()) {
    const int at = waiting.back();
    waiting.pop_back();
    if (seen[std::size_t(at)])
      continue;
    seen[std::size_t(at)] = true;
    cone.push_back(at);
    const BodyValue& v = stage.body[std::size_t(at)];
    waiting.insert(waiting.end(), v.args.begin(), v.args.end());
  }
  return cone;
}

std::set<std::int64_t> places_along(const Region& region, const Stage& stage, int value, int axis,
                                    std::int64_t extent) {
  const auto place = std::find(stage.axes.begin(), stage.axes.end(), axis);
  Places places(Expr::axis(int(place - stage.axes.begin()), region.axes[std::size_t(axis)].extent),
                extent);
  for (const int i : cone_of(stage, value)) {
    const BodyValue& v = stage.body[std::size_t(i)];
    if (const auto test = place_test(stage, v)) {
      places.add_bound(test->index->index, Expr(test->end));
      places.add_quotients(test->index->index);
    }
    if (v.kind != BodyValue::Kind::Load)
      continue;
    const Load& load = stage.loads[std::size_t(v.load)];
    if (load.source == Source::Stage ||
        region.operands[std::size_t(load.number)].role == Role::Scalar)
      continue;
    places.add_quotients(offset_of(region, load));
    for (const Hole& hole : load.map.holes)
      for (const Guard& guard : hole.valid) {
        places.add_bound(guard.value, guard.lo);
        places.add_bound(guard.value, guard.hi);
        places.add_quotients(guard.value);
      }
  }
  return places.all();
}

} // namespace

std::vector<std::int64_t> segments_of_depth(const Region& region, const ContractionForm& form,
                                            const Side& side) {
  const Stage& stage = region.stages[std::size_t(form.stage)];
  std::vector<std::int64_t> segments{0};
  for (const int axis : form.depth.axes) { // outermost first
    const std::int64_t extent = region.axes[std::size_t(axis)].extent.constant().value_or(0);
    if (extent < 1)
      return {0};
    const bool innermost = axis == form.depth.axes.back();
    std::set<std::int64_t> places;
    if (innermost)
      places = places_along(region, stage, side.value, axis, extent);
    else
      for (std::int64_t i = 1; i < extent && i <= std::int64_t(kMostSegments); ++i)
        places.insert(i);
    places.insert(0);
    std::vector<std::int64_t> finer;
    for (const std::int64_t begin : segments)
      for (const std::int64_t at : places)
        finer.push_back(begin * extent + at);
    if (finer.size() > kMostSegments)
      return {0};
    segments = std::move(finer);
  }
  return segments;
}

} // namespace egret::kernel

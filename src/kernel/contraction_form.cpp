#include "kernel/contraction_form.h"

#include "kernel/analysis.h"
#include "kernel/emit.h"
#include "kernel/integer_range.h"
#include "support/checked.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

namespace {

class ContractionFinder {
public:
  ContractionFinder(const Region& region, bool vectors, bool slices)
      : r_(region), vectors_(vectors), slices_(slices) {}

  FoundContraction run() {
    FoundContraction found;
    found.reason = fill();
    found.ok = found.reason.empty();
    if (found.ok)
      found.form = std::move(f_);
    return found;
  }

private:
  /// Fills the form; gives the reason why it cannot.
  std::string fill() {
    int reducing = -1;
    for (std::size_t s = 0; s < r_.stages.size(); ++s) {
      if (r_.stages[s].kind == StageKind::Map)
        continue;
      if (reducing >= 0 || r_.stages[s].kind != StageKind::Reduce)
        return "it has more than one reduction, or a scan";
      reducing = int(s);
    }
    if (reducing < 0)
      return "it reduces nothing";
    f_.stage = reducing;
    const Stage& stage = r_.stages[reducing];
    if (stage.monoid != Monoid::Sum || stage.yields.size() != 1)
      return "it does not sum one value";
    for (const Load& load : stage.loads)
      if (load.source == Source::Stage)
        return "the product reads the result of another stage";
    if (std::string reason = find_factors(stage); !reason.empty())
      return reason;
    if (std::string reason = check_epilogue(stage); !reason.empty())
      return reason;
    return find_groups(stage);
  }

  std::string find_factors(const Stage& stage) {
    f_.accumulator = compute_dtype(stage.acc_dtype);
    if (size_of(f_.accumulator) < 4 || f_.accumulator == DType::Bool)
      return fmt::format("it accumulates in {}", name_of(f_.accumulator));
    const BodyValue& product = stage.body[through_casts(stage, stage.yields[0])];
    if (product.kind != BodyValue::Kind::Apply || product.op != Op::Mul)
      return "the summed value is no product";
    // A product of floats may be kept in more bits than it asks for, one of integers may not.
    const bool widens = is_float(product.dtype) && is_float(f_.accumulator) &&
                        size_of(product.dtype) <= size_of(f_.accumulator);
    if (product.dtype != f_.accumulator && !widens)
      return fmt::format("products in {} are summed in {}", name_of(product.dtype),
                         name_of(f_.accumulator));
    f_.left.value = product.args[0];
    f_.right.value = product.args[1];
    return "";
  }

  /// Everything else must be a map of the result at the same point.
  std::string check_epilogue(const Stage& stage) {
    const std::vector<int> parallel = result_axes(stage);
    const int sliced = sliced_axis(r_);
    if (sliced >= 0 && !slices_)
      return "its slices are combined";
    if (sliced >= 0 && (!contains(parallel, sliced) || !r_.axes[sliced].extent.is_constant()))
      return "slices are of something else than the result";
    for (std::size_t s = 0; s < r_.stages.size(); ++s)
      if (int(s) != f_.stage) {
        f_.epilogue_flops += flops_of(r_.stages[s]);
        for (int a : r_.stages[s].axes)
          if (!contains(parallel, a))
            return "a map runs over an axis that the result does not have";
      }
    for (const Output& out : r_.outputs) {
      if (out.combine != Combine::Store)
        return "an output is a scatter";
      std::vector<int> axes = result_axes(r_.stages[out.stage]);
      if (sliced >= 0 && !contains(axes, sliced))
        axes.push_back(sliced);
      if (axes.size() != parallel.size())
        return "an output does not have all axes of the result";
    }
    return "";
  }

  std::string find_groups(const Stage& stage) {
    auto left = axes_of_value(r_, stage, f_.left.value);
    auto right = axes_of_value(r_, stage, f_.right.value);
    std::vector<int> only_left, only_right, both;
    for (int a : result_axes(stage))
      (left[a] == right[a] ? both : left[a] ? only_left : only_right).push_back(a);
    const int sliced = sliced_axis(r_);
    const bool of_left = std::erase(only_left, sliced) > 0,
               of_right = std::erase(only_right, sliced) > 0;
    if (sliced >= 0 && !of_left && !of_right)
      return "both sides differ from slice to slice";
    if (only_left.empty() + only_right.empty() > (vectors_ ? 1 : 0))
      return "one side has no axis of its own";
    if (stage.over.empty())
      return "nothing is summed";
    if (only_right.empty() || (!only_left.empty() && swaps(stage, only_left, only_right))) {
      std::swap(only_left, only_right);
      std::swap(f_.left, f_.right);
      if (of_left)
        f_.columns.slice_axis = sliced;
    } else if (of_right) {
      f_.columns.slice_axis = sliced;
    }
    if (f_.columns.slice_axis != sliced)
      return "its slices are of the rows";
    f_.rows.axes = only_left;
    f_.columns.axes = only_right;
    f_.batch.axes = both;
    f_.depth.axes = stage.over;
    put_best_last(f_.rows, [&](int a) { return score(stage, f_.left.value, a); });
    // Of few rows, many are loaded for each one that is stored.
    const double stored = std::min(1.0, 8 * double(usual_size(points_of(r_, f_.rows.axes))) /
                                            double(usual_size(points_of(r_, f_.depth.axes))));
    put_best_last(f_.columns, [&](int a) {
      return 4 * stored * output_score(a) + score(stage, f_.right.value, a);
    });
    // A tile has as many rows and columns as there are, up to about this many.
    const auto tile = [&](const std::vector<int>& axes) {
      return double(std::min<std::int64_t>(usual_size(points_of(r_, axes)), 128));
    };
    const double rows = tile(f_.rows.axes), columns = tile(f_.columns.axes);
    put_best_last(f_.depth, [&](int a) {
      return rows * score(stage, f_.left.value, a) + columns * score(stage, f_.right.value, a);
    });
    for (AxisGroup* group : {&f_.rows, &f_.columns, &f_.batch, &f_.depth})
      group->extent = points_of(r_, group->axes);
    if (sliced >= 0) {
      f_.columns.slices = r_.axes[sliced].extent.value();
      f_.columns.extent = f_.columns.extent * Expr(f_.columns.slices);
    }
    if (!f_.rows.axes.empty())
      describe(stage, f_.left, f_.rows);
    describe(stage, f_.right, f_.columns);
    return "";
  }

  /// Whether the left side's axes should be the columns: those along which results are contiguous,
  /// or else along which the side itself is.
  bool swaps(const Stage& stage, const std::vector<int>& left, const std::vector<int>& right) {
    const auto best = [&](const std::vector<int>& axes, auto&& score_of) {
      double most = 0;
      for (int a : axes)
        most = std::max(most, score_of(a));
      return most;
    };
    const auto outputs = [&](int a) { return output_score(a); };
    const double l = best(left, outputs), r = best(right, outputs);
    if (l != r)
      return l > r;
    return best(left, [&](int a) { return score(stage, f_.left.value, a); }) >
           best(right, [&](int a) { return score(stage, f_.right.value, a); });
  }

  /// Bytes an element that are contiguous along an axis, in the outputs and in the loads of a
  /// value. A load that is the same along other axes counts for the elements that it has: a scale
  /// of each block weighs little beside the numbers that it scales.
  double output_score(int axis) const {
    double bytes = 0;
    for (const Output& out : r_.outputs)
      if (stride_of(r_, out, axis) == 1)
        bytes += double(size_of(out.dtype));
    return bytes;
  }
  double score(const Stage& stage, int value, int axis) const {
    const std::vector<bool> varies = axes_of_value(r_, stage, value);
    double bytes = 0;
    for (int l : loads_of(stage, value)) {
      const Load& load = stage.loads[std::size_t(l)];
      if (stride_of(r_, stage, load, axis) != 1)
        continue;
      double repeats = 1;
      for (int a : stage.axes)
        if (varies[std::size_t(a)] && stride_of(r_, stage, load, a) == 0)
          repeats *= double(std::max<std::int64_t>(usual_size(r_.axes[std::size_t(a)].extent), 1));
      bytes += double(size_of(r_.operands[std::size_t(load.number)].dtype)) / repeats;
    }
    return bytes;
  }

  template <class Score>
  static void put_best_last(AxisGroup& group, Score score_of) {
    auto best = group.axes.end();
    double most = 0;
    for (auto it = group.axes.begin(); it != group.axes.end(); ++it)
      if (const double s = score_of(*it); s > most) {
        most = s;
        best = it;
      }
    if (best != group.axes.end())
      std::rotate(best, best + 1, group.axes.end());
  }

  /// The same with the share of its elements that a load touches anew as the other axis goes on: a
  /// scale of each row or group weighs little beside the numbers that it scales.
  double traffic(const Stage& stage, int value, int axis, int other) const {
    double bytes = 0;
    for (int l : loads_of(stage, value)) {
      const Load& load = stage.loads[std::size_t(l)];
      if (usual_stride_of(r_, stage, load, axis) != 1)
        continue;
      const auto place = std::find(stage.axes.begin(), stage.axes.end(), other);
      const auto extent = double(usual_size(r_.axes[std::size_t(other)].extent));
      const auto stride = stride_of(r_, stage, load, other);
      double steps = stride == 0 ? extent : 1;
      if (!stride && place != stage.axes.end()) {
        const Expr variable =
            Expr::axis(int(place - stage.axes.begin()), r_.axes[std::size_t(other)].extent);
        steps = double(std::max<std::int64_t>(divisor_of(offset_of(r_, load), variable), 1));
      }
      bytes += double(size_of(r_.operands[std::size_t(load.number)].dtype)) / std::max(steps, 1.0);
    }
    return bytes;
  }

  void describe(const Stage& stage, Side& side, const AxisGroup& panels) const {
    const int depth = f_.depth.axes.back(), panel = panels.axes.back();
    side.run = panels.axes.size() > 1 ? r_.axes[panel].extent.divisor() : 0;
    const double along_panel = traffic(stage, side.value, panel, depth),
                 along_depth = traffic(stage, side.value, depth, panel);
    side.order = along_panel == 0 && along_depth == 0 ? Side::Order::Neither
                 : along_panel >= along_depth         ? Side::Order::Panel
                                                      : Side::Order::Depth;
    find_panels(stage, side, panel);
    side.plain = side.tile > 0 && !side.pairs; // widened by each reader: a step of an instruction
    if (const Factor factor = paired_factor_of(r_, f_, side);
        factor.is_load && size_of(factor.dtype) == 2)
      side.words = stride_of(r_, stage, stage.loads[stage.body[factor.value].load], depth) == 1 &&
                   (f_.depth.axes.size() == 1 || r_.axes[depth].extent.divisor() % 2 == 0);
    const BodyValue& v = stage.body[side.value];
    if (v.kind != BodyValue::Kind::Load)
      return;
    const Load& load = stage.loads[v.load];
    const Operand& operand = r_.operands[load.number];
    side.plain = operand.role == Role::Tensor && operand.dtype == f_.accumulator &&
                 load.map.is_total() && load.indirect.empty() && !side.pairs;
    side.panel_stride = stride_of(r_, stage, load, panel).value_or(0);
    side.depth_stride = stride_of(r_, stage, load, depth).value_or(0);
  }

  void find_panels(const Stage& stage, Side& side, int panel) const {
    const Factor factor = factor_of(r_, f_, side);
    if (!factor.is_load)
      return;
    const Load& load = stage.loads[stage.body[factor.value].load];
    const int depth = f_.depth.axes.back();
    const auto variable = [&](int axis) {
      const auto place = std::find(stage.axes.begin(), stage.axes.end(), axis);
      return Expr::axis(int(place - stage.axes.begin()), r_.axes[axis].extent);
    };
    const Expr p = variable(panel), k = variable(depth), offset = offset_of(r_, load);
    const std::int64_t tile = divisor_of(offset, p);
    if (tile < 2)
      return;
    const bool pairs = divisor_of(offset, k) == 2;
    if (pairs && (f_.depth.axes.size() > 1 || r_.axes[depth].extent.divisor() % 2 != 0 ||
                  size_of(factor.dtype) != 2))
      return;
    const int free = int(r_.axes.size()); // numbers that no variable has
    const Expr number = Expr::axis(free, ceildiv(r_.axes[panel].extent, tile)),
               place = Expr::axis(free + 1, tile),
               step = Expr::axis(free + 2, floordiv(r_.axes[depth].extent, 2)),
               half = Expr::axis(free + 3, 2);
    const Expr there = substitute(offset, [&](const Expr& v) -> std::optional<Expr> {
      if (v == p)
        return number * Expr(tile) + place;
      if (pairs && v == k)
        return step * Expr(2) + half;
      return std::nullopt;
    });
    const auto slope = [&](const Expr& v) {
      const auto c = coefficient_of(there, v);
      return c ? c->constant().value_or(0) : 0;
    };
    const bool steps = pairs ? slope(step) == 2 * tile && slope(half) == 1 : slope(k) == tile;
    if (!steps || slope(place) != (pairs ? 2 : 1) || slope(number) <= 0 || there.lower() < 0 ||
        !proves_less(Expr(there.upper()), element_count(r_.operands[load.number].shape)))
      return;
    side.tile = tile;
    side.pairs = pairs;
    side.order = Side::Order::Panel;
  }

  const Region& r_;
  bool vectors_, slices_;
  ContractionForm f_;
};

bool widens(DType from, DType to) {
  if (from == to)
    return true;
  return is_float(from) && is_float(to) && size_of(from) < size_of(to);
}

bool widens_integers(DType from, DType to) {
  return is_integer(from) && is_integer(to) && size_of(from) < size_of(to) &&
         (is_signed(to) || !is_signed(from));
}

/// Whether a body's value is a load of memory as it is, but for holes that are zero.
bool is_padded_load(const Region& region, const Stage& stage, const BodyValue& v) {
  if (v.kind != BodyValue::Kind::Load)
    return false;
  const Load& load = stage.loads[v.load];
  return load.source == Source::Operand && region.operands[load.number].role == Role::Tensor &&
         load.indirect.empty() &&
         std::all_of(load.map.holes.begin(), load.map.holes.end(),
                     [](const Hole& hole) { return hole.fill.bits == 0; });
}

/// Adds the loads between which an index chooses, one beginning where another one ends. False: a
/// value is something else.
bool add_pieces(const Region& region, const Stage& stage, int value,
                const std::vector<Guard>& where, std::vector<FactorPiece>& pieces) {
  constexpr std::size_t kMost = 64;
  constexpr std::int64_t kFar = INT64_MAX / 4;
  const BodyValue& v = stage.body[value];
  if (is_padded_load(region, stage, v)) {
    pieces.push_back({v.load, where});
    return pieces.size() <= kMost;
  }
  const auto test = place_test(stage, v);
  if (!test || test->index->dtype != DType::I64)
    return false;
  const Expr &index = test->index->index, end(test->end);
  for (const bool below : {true, false}) {
    std::vector<Guard> inside = where;
    const auto same = std::find_if(inside.begin(), inside.end(),
                                   [&](const Guard& g) { return g.value == index; });
    if (same == inside.end())
      inside.push_back(below ? Guard{index, Expr(-kFar), end} : Guard{index, end, Expr(kFar)});
    else
      *same = below ? Guard{same->value, same->lo, min(same->hi, end)}
                    : Guard{same->value, max(same->lo, end), same->hi};
    if (!add_pieces(region, stage, v.args[below ? 1 : 2], inside, pieces))
      return false;
  }
  return true;
}

Factor factor_behind(const Region& region, const ContractionForm& form, const Side& side,
                     bool (*loses_nothing)(DType, DType)) {
  const Stage& stage = region.stages[form.stage];
  int at = side.value;
  while (stage.body[at].kind == BodyValue::Kind::Apply && stage.body[at].op == Op::Cast &&
         loses_nothing(stage.body[stage.body[at].args[0]].dtype, stage.body[at].dtype))
    at = stage.body[at].args[0];
  Factor f;
  f.value = at;
  f.dtype = stage.body[at].dtype;
  f.is_padded_load = is_padded_load(region, stage, stage.body[at]);
  f.is_load = f.is_padded_load && stage.loads[stage.body[at].load].map.is_total();
  if (!add_pieces(region, stage, at, {}, f.pieces))
    f.pieces.clear();
  return f;
}

} // namespace

Factor factor_of(const Region& region, const ContractionForm& form, const Side& side) {
  return factor_behind(region, form, side, widens);
}

Factor paired_factor_of(const Region& region, const ContractionForm& form, const Side& side) {
  if (is_float(form.accumulator))
    return factor_behind(region, form, side, widens);
  Factor f = factor_behind(region, form, side, widens_integers);
  const auto range =
      size_of(f.dtype) > 2 ? range_of(region, form.stage, f.value) : std::optional<IntegerRange>();
  if (range && range->least >= INT16_MIN && range->largest <= INT16_MAX)
    f.dtype = DType::I16;
  return f;
}

FoundContraction find_contraction(const Region& region, bool vectors, bool slices) {
  return ContractionFinder(region, vectors, slices).run();
}

std::optional<ContractionForm> with_whole_vectors(const Region& region, const ContractionForm& form,
                                                  int lanes) {
  const AxisGroup& columns = form.columns;
  if (columns.axes.size() < 2 || columns.slices > 1 || columns.padded > 0 || form.right.tile > 0)
    return std::nullopt;
  const std::int64_t places =
      region.axes[std::size_t(columns.axes.back())].extent.constant().value_or(0);
  if (places < 1 || places % lanes == 0)
    return std::nullopt;
  ContractionForm padded = form;
  padded.columns.places = places;
  padded.columns.padded = round_up<std::int64_t>(places, lanes);
  padded.columns.extent =
      points_of(region, std::span(columns.axes).first(columns.axes.size() - 1)) *
      Expr(padded.columns.padded);
  return padded;
}

std::int64_t usual_size(const Expr& extent) {
  constexpr std::int64_t kUsual = 1024;
  return std::max<std::int64_t>(
      extent.constant().value_or(std::clamp(kUsual, extent.lower(), extent.upper())), 1);
}

} // namespace egret::kernel

#include "kernel/gpu_wgmma_side.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_contraction_side.h"

#include <algorithm>
#include <utility>

namespace egret::kernel {

namespace {

/// Of each of so many threads.
int pieces_of_thread(const PieceView& view, int panel, int threads) {
  return (panel * (kSwizzledRow / view.lanes) + threads - 1) / threads;
}

bool has_axes(const Expr& e) {
  const auto variables = variables_of(e);
  return std::any_of(variables.begin(), variables.end(), [](const Expr& v) { return v.is_axis(); });
}

PieceView piece_view(const Region& r, const ContractionForm& f, const Side& side,
                     const AxisGroup& group, int panel) {
  PieceView v;
  const auto because = [&](std::string why) {
    v.reason = std::move(why);
    return v;
  };
  const Factor factor = factor_of(r, f, side);
  if (!factor.is_padded_load || size_of(factor.dtype) != 2)
    return because("a factor is no array of two-byte elements");
  if (group.axes.empty() || f.depth.axes.empty())
    return because("it has no rows, columns or depth");
  const int along_depth = widest_piece(r, f, side, f.depth),
            along_panel = widest_piece(r, f, side, group);
  v.transposed = along_depth < along_panel;
  v.lanes = std::max(along_depth, along_panel);
  if (v.lanes < 2)
    return because("a factor's rows do not begin at multiples of 4 bytes");
  if (v.transposed && panel % kSwizzledRow != 0)
    return because("a tile is no multiple of 64 along a transposed factor");
  const Stage& stage = r.stages[f.stage];
  const Load& load = stage.loads[stage.body[factor.value].load];
  v.operand = load.number;
  const IndexMap map = compose(load.map, r.operands[load.number].layout);
  v.offset = map.coords[0];
  for (const Hole& hole : map.holes)
    for (const Guard& g : hole.valid)
      v.guards.push_back({g.value - g.lo, Expr(0), g.hi - g.lo});
  bool split = is_sum_over(v.offset, stage, f.depth.axes);
  for (const Guard& g : v.guards)
    split = split && is_sum_over(g.value, stage, f.depth.axes) && !has_axes(g.hi);
  return split ? v : because("a factor's places are no sums of a row's and a step's");
}

bool is_narrow(const Expr& e) {
  return e.lower() >= INT32_MIN && e.upper() <= INT32_MAX;
}

} // namespace

SwizzledView swizzled_view(const Region& region, const ContractionForm& form, const Side& side,
                           const AxisGroup& group, int panel) {
  SwizzledView v;
  v.box = tensor_view(region, form, side, group, panel, kSwizzledRow, false);
  v.own_box = v.box.reason.empty();
  if (!v.box.reason.empty())
    v.box = tensor_view(region, form, side, group, panel, kSwizzledRow, true);
  v.copied = !v.box.reason.empty();
  if (v.copied) {
    v.pieces = piece_view(region, form, side, group, panel);
    v.reason = v.pieces.reason;
  }
  return v;
}

SwizzledView split_view(const Region& region, const ContractionForm& form, const Side& side,
                        int panel) {
  SwizzledView v;
  v.split = kSplitParts;
  v.factor = factor_of(region, form, side);
  v.along_panels = side.order == Side::Order::Panel && panel % kSwizzledRow == 0;
  if (form.accumulator != DType::F32 || size_of(v.factor.dtype) > 4)
    v.reason = "its factors are no numbers of f32";
  return v;
}

int copy_registers(const SwizzledView& view, int panel, int threads) {
  return view.copied
             ? pieces_of_thread(view.pieces, panel, threads) * int(1 + view.pieces.guards.size())
             : 0;
}

ContractionForm ordered_for_pieces(const Region& region, const ContractionForm& form) {
  ContractionForm ordered = form;
  for (const bool right : {false, true}) {
    const Side& side = right ? form.right : form.left;
    AxisGroup& group = right ? ordered.columns : ordered.rows;
    if (group.axes.size() < 2 || form.depth.axes.empty() ||
        swizzled_view(region, form, side, group, kSwizzledRow).reason.empty())
      continue;
    AxisGroup best = group;
    std::int64_t longest = 0;
    for (std::size_t i = 0; i + 1 < group.axes.size(); ++i) {
      AxisGroup other = group;
      std::rotate(other.axes.begin() + std::ptrdiff_t(i),
                  other.axes.begin() + std::ptrdiff_t(i) + 1, other.axes.end());
      const std::int64_t extent = usual_size(region.axes[std::size_t(other.axes.back())].extent);
      if (extent > longest && widest_piece(region, form, side, other) > 1) {
        longest = extent;
        best = std::move(other);
      }
    }
    group = std::move(best);
  }
  return ordered;
}

SwizzledSide::SwizzledSide(Emitter& emitter, const ContractionForm& form, const AxisGroup& group,
                           const SwizzledView& view, const std::string& name, int panel,
                           const GpuTiles& tiles)
    : r_(emitter.region()), e_(emitter), b_(emitter.builder()), form_(form),
      group_of_panels_(group), view_(view), panel_(panel), t_(tiles) {
  if (is_split()) {
    buffer_ =
        b_.shared(name, DType::BF16, std::int64_t(t_.stages) * view.split * panel * t_.bk, 1024);
    return;
  }
  const int operand = view.copied ? view.pieces.operand : view.box.operand;
  buffer_ = b_.shared(name, r_.operands[std::size_t(operand)].dtype,
                      std::int64_t(t_.stages) * panel * t_.bk, 1024);
  source_ = emitter.operand_buffer(operand);
  if (view.copied)
    return;
  TensorMap map = view.box.map;
  map.buffer = source_;
  map_ = b_.tensor_map(std::move(map));
}

Expr SwizzledSide::at(const Expr& stage, const Expr& p, const Expr& k, int part) const {
  const Expr piece =
      (stage * Expr(view_.tiles()) + Expr(part)) * Expr(std::int64_t(panel_) * t_.bk);
  return transposed() ? piece + p * Expr(t_.bk) + k * Expr(kSwizzledRow)
                      : piece + p * Expr(kSwizzledRow) + k;
}

void SwizzledSide::copy_box(const GpuTile& tile, const Expr& first, const Expr& depth,
                            const Expr& stage, int barriers) {
  const TensorView& view = view_.box;
  const int boxes = view.transposed ? panel_ / kSwizzledRow : 1;
  for (int i = 0; i < boxes; ++i) {
    Point p = tile.batch;
    put_index(p, r_, group_of_panels_, first + Expr(i * kSwizzledRow));
    put_index(p, r_, form_.depth, depth);
    std::vector<Expr> place{view.depth.at(p), view.panel.at(p)};
    if (view.transposed)
      std::swap(place[0], place[1]);
    for (const TensorView::Coordinate& c : view.others)
      place.push_back(c.at(p));
    b_.bulk_tensor_copy(map_, std::move(place), buffer_, at(stage, Expr(i * kSwizzledRow), Expr(0)),
                        barriers, stage);
  }
}

Expr SwizzledSide::at_point(const Expr& e, const Point& point) const {
  const Stage& stage = r_.stages[form_.stage];
  return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
    return v.is_axis() ? std::optional(point.at[stage.axes[std::size_t(v.axis_number())]])
                       : std::nullopt;
  });
}

/// Both are values of their own, each as far outside of the loops as it can be.
ValueId SwizzledSide::sum(const Expr& a, const Expr& b) {
  const bool narrow = is_narrow(a) && is_narrow(b) && is_narrow(a + b);
  const DType dtype = narrow ? DType::I32 : DType::I64;
  if (b == Expr(0))
    return b_.index(a, dtype, 1);
  if (a == Expr(0))
    return b_.index(b, dtype, 1);
  return b_.apply(Op::Add, dtype, {b_.index(a, dtype, 1), b_.index(b, dtype, 1)});
}

void SwizzledSide::copy_pieces(const GpuTile& tile, const Expr& first, const Expr& depth,
                               const Expr& stage) {
  const PieceView& view = view_.pieces;
  const int threads = t_.copy_threads(), of_row = kSwizzledRow / view.lanes,
            pieces = panel_ * of_row;
  const Expr thread = floormod(thread_variable(t_.threads()), Expr(threads));
  const Point origin{std::vector<Expr>(r_.axes.size(), Expr(0)), 1, {}};
  for (int i = 0; i < pieces_of_thread(view, panel_, threads); ++i) {
    const Expr number = thread + Expr(std::int64_t(i) * threads);
    const Expr along = floormod(number, of_row) * Expr(view.lanes);
    const Expr line = floordiv(number, of_row);
    const Expr group = view.transposed ? floordiv(line, t_.bk) * Expr(kSwizzledRow) : line;
    const Expr k = view.transposed ? floormod(line, t_.bk) : along;
    // Rows behind the last one repeat it: their products are not stored.
    const Expr last = group_of_panels_.extent - Expr(view.transposed ? view.lanes : 1);
    Point row = tile.batch, step = origin;
    put_index(row, r_, group_of_panels_,
              min(first + (view.transposed ? group + along : group), last));
    put_index(step, r_, form_.depth, depth + k);
    const auto parts = [&](const Expr& e) {
      return std::pair{at_point(e, row), at_point(e, step) - at_point(e, origin)};
    };
    std::vector<Guard> mask;
    if (form_.depth.extent.divisor() % t_.bk != 0)
      mask.push_back({depth + k, Expr(0), form_.depth.extent});
    for (const Guard& g : view.guards) {
      const auto [row_part, step_part] = parts(g.value);
      if (!unproved({{row_part + step_part, g.lo, g.hi}}).empty())
        mask.push_back({value_symbol(sum(row_part, step_part)), g.lo, g.hi});
    }
    const Expr lanes(view.lanes);
    const auto [row_offset, step_offset] = parts(view.offset);
    const Expr from =
        value_symbol(sum(floordiv(row_offset, lanes), floordiv(step_offset, lanes))) * lanes;
    std::vector<Guard> exists;
    if ((i + 1) * threads > pieces)
      exists.push_back({number, Expr(0), Expr(pieces)});
    const Expr to = view.transposed ? at(stage, group, k) + along : at(stage, group, k);
    b_.when(exists, [&] { b_.copy_async(buffer_, to, source_, from, view.lanes, mask, true); });
  }
}

ValueId SwizzledSide::value_at(const GpuTile& tile, const Expr& panel, const Expr& depth) {
  return factor_at(e_, form_, group_of_panels_, view_.factor, tile.batch,
                   {.panel = panel, .depth = depth, .zeros = true}, DType::F32);
}

SplitTile::SplitTile(SwizzledSide& side, const GpuTile& tile, const Expr& first, const Expr& depth)
    : side_(side), batch_(tile.batch),
      registers_(8 * std::max(side.view_.factor.pieces.empty()
                                  ? loads_of(side.r_, side.form_, side.view_.factor)
                                  : 1,
                              1)) {
  constexpr int kEight = 8, kOfRow = kSwizzledRow / kEight;
  const GpuTiles& t = side.t_;
  const int threads = t.copy_threads(), count = side.panel_ * kOfRow;
  const Expr thread = floormod(thread_variable(t.threads()), Expr(threads));
  for (int begin = 0; begin < count; begin += threads) {
    const Expr number = thread + Expr(begin), line = floordiv(number, kOfRow);
    const Expr along = floormod(number, kOfRow) * Expr(kEight);
    const bool across = side.transposed();
    const Expr p = across ? floordiv(line, t.bk) * Expr(kSwizzledRow) + along : line,
               k = across ? floormod(line, t.bk) : along;
    std::vector<Guard> exists;
    if (begin + threads > count)
      exists.push_back({number, Expr(0), Expr(count)});
    eights_.push_back({p, k, {first + p, depth + k, kEight, !across, std::move(exists), true}});
  }
}

namespace {
/// The guards where all of the lanes hold or fail alike; else nothing.
std::optional<std::vector<Guard>> same_in_all_lanes(std::vector<Guard> guards, int lanes) {
  const auto splits = [&](const Expr& bound) {
    return depends_on_lane(bound) || (is_border(bound) && bound.divisor() % lanes != 0);
  };
  for (Guard& g : guards) {
    if (!depends_on_lane(g))
      continue;
    g.value = g.value - lane_variable(lanes);
    if (depends_on_lane(g.value) || g.value.divisor() % lanes != 0 || splits(g.lo) || splits(g.hi))
      return std::nullopt;
  }
  return guards;
}
} // namespace

void SplitTile::load(int number) {
  Eight& eight = eights_[std::size_t(number)];
  if (!load_joined(eight))
    load_factor(side_.e_, side_.form_, side_.group_of_panels_, side_.view_.factor, batch_,
                eight.place);
}

/// Where the values are of one tensor of a concatenation, of that one alone.
bool SplitTile::load_joined(Eight& eight) const {
  const Factor& factor = side_.view_.factor;
  if (factor.pieces.size() < 2)
    return false;
  ProgramBuilder& b = side_.b_;
  const Stage& stage = side_.r_.stages[std::size_t(side_.form_.stage)];
  const int lanes = eight.place.lanes;
  const Point at =
      point_of_factor(side_.r_, side_.form_, side_.group_of_panels_, batch_, eight.place);
  std::vector<std::vector<Guard>> where;
  for (const FactorPiece& piece : factor.pieces) {
    auto same = same_in_all_lanes(guards_at(stage, piece.where, at), lanes);
    if (!same)
      return false;
    where.push_back(std::move(*same));
  }
  eight.loaded = b.variable({DType::F32, lanes});
  b.set(eight.loaded, b.constant(Scalar::of(DType::F32, 0.0), lanes));
  for (std::size_t i = 0; i < where.size(); ++i) {
    Factor one = factor;
    one.is_padded_load = true;
    one.value = int(std::find_if(stage.body.begin(), stage.body.end(),
                                 [&](const BodyValue& v) {
                                   return v.kind == BodyValue::Kind::Load &&
                                          v.load == factor.pieces[i].load;
                                 }) -
                    stage.body.begin());
    b.when(where[i], [&] {
      b.set(eight.loaded, factor_at(side_.e_, side_.form_, side_.group_of_panels_, one, batch_,
                                    eight.place, DType::F32));
    });
  }
  return true;
}

void SplitTile::put(int number, const Expr& stage) const {
  const auto& [p, k, place, loaded] = eights_[std::size_t(number)];
  ProgramBuilder& b = side_.b_;
  const ValueId minus = b.constant(Scalar::of(DType::F32, -1.0), place.lanes);
  ValueId rest = loaded >= 0 ? b.read(loaded)
                             : factor_at(side_.e_, side_.form_, side_.group_of_panels_,
                                         side_.view_.factor, batch_, place, DType::F32);
  // Where panels are neighbours, they lie in groups of a row.
  const Expr in_row = side_.transposed() ? floormod(p, kSwizzledRow) : Expr(0);
  for (int part = 0; part < side_.view_.split; ++part) {
    const ValueId rounded = b.cast(rest, DType::BF16);
    b.store_swizzled(side_.buffer_, side_.at(stage, p - in_row, k, part) + in_row, rounded,
                     place.exists);
    if (part + 1 < side_.view_.split) // exact: what was cut off
      rest = b.fma(b.cast(rounded, DType::F32), minus, rest);
  }
}

} // namespace egret::kernel

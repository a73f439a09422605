#include "kernel/sort_form.h"

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// How many elements of a sorted row an output takes: its map drops those behind.
Expr kept_by(const Region& region, const Output& out, int axis) {
  const std::vector<int>& axes = region.stages[std::size_t(out.stage)].axes;
  const auto place = std::find(axes.begin(), axes.end(), axis) - axes.begin();
  const Expr& extent = region.axes[std::size_t(axis)].extent;
  const Expr variable = Expr::axis(int(place), extent);
  Expr kept = extent;
  for (const Hole& hole : out.map.holes)
    for (const Guard& guard : hole.valid)
      if (guard.value == variable)
        kept = min(kept, guard.hi);
  return kept;
}

} // namespace

std::optional<SortForm> sort_form(const Region& region) {
  if (region.stages.size() != 1 || region.stages[0].kind != StageKind::Sort)
    return std::nullopt;
  const Stage& stage = region.stages[0];
  SortForm form;
  form.axis = stage.over[0];
  for (const int a : stage.axes)
    if (a != form.axis)
      form.rows.push_back(a);
  form.row_count = points_of(region, form.rows);
  form.length = region.axes[std::size_t(form.axis)].extent;
  form.kept = Expr(0);
  for (const Output& out : region.outputs) {
    if (out.combine != Combine::Store)
      return std::nullopt;
    form.kept = max(form.kept, kept_by(region, out, form.axis));
  }
  const DType key = stage.body[std::size_t(stage.yields[0])].dtype;
  form.bits = int(8 * size_of(key));
  form.word = form.bits == 64 ? DType::U64 : DType::U32;
  form.position = form.length.upper() <= INT32_MAX ? DType::I32 : DType::I64;
  return form;
}

Point point_of_row(const Region& region, const SortForm& form, const Expr& row, const Expr& at) {
  std::vector<Expr> extents;
  for (const int a : form.rows)
    extents.push_back(region.axes[std::size_t(a)].extent);
  const std::vector<Expr> coordinates = unflatten(row, extents);
  Point p;
  p.at.resize(region.axes.size());
  for (std::size_t i = 0; i < form.rows.size(); ++i)
    p.at[std::size_t(form.rows[i])] = coordinates[i];
  p.at[std::size_t(form.axis)] = at;
  return p;
}

ValueId key_word(Emitter& emitter, const SortForm& form, const Point& point) {
  ProgramBuilder& b = emitter.builder();
  const Value key = emitter.yields(form.stage, point)[0];
  if (!is_signed(key.dtype))
    return b.cast(key.id, form.word);
  // The sign bit turned over puts negative numbers first.
  const DType bits = key.dtype == DType::I8    ? DType::U8
                     : key.dtype == DType::I16 ? DType::U16
                     : key.dtype == DType::I32 ? DType::U32
                                               : DType::U64;
  const ValueId word = b.cast(b.apply(Op::Bitcast, bits, {key.id}), form.word);
  const ValueId top = b.constant(Scalar::from_bits(form.word, std::uint64_t{1} << (form.bits - 1)));
  return b.apply(Op::Xor, form.word, {word, top});
}

ValueId digit_of(ProgramBuilder& b, ValueId word, ValueId shift, int bits) {
  const DType type = b.type_of(word).dtype;
  const ValueId mask = b.constant(Scalar::from_bits(type, (std::uint64_t{1} << bits) - 1));
  return b.cast(b.apply(Op::And, type, {b.apply(Op::Shr, type, {word, shift}), mask}), DType::I32);
}

void store_position(Emitter& emitter, const SortForm& form, const Expr& row, const Expr& place,
                    ValueId position, const std::vector<Guard>& mask) {
  Point p = point_of_row(emitter.region(), form, row, place);
  p.mask = mask;
  const Value value{emitter.builder().cast(position, DType::I64), DType::I64};
  for (std::size_t o = 0; o < emitter.region().outputs.size(); ++o)
    emitter.store(int(o), p, value);
}

} // namespace egret::kernel

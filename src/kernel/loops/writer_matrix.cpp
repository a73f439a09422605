// Matrix loops on a CPU: rows by vectors of columns, the depth by pairs of bf16, which one
// instruction multiplies and adds. Tiles of AMX: writer_tiles.cpp.
#include "kernel/analysis.h"
#include "kernel/loops/writer.h"

#include <fmt/format.h>

#include <bit>

namespace egret::kernel::loops {

namespace {

/// The value of 16 bits that a factor in f32 is made of; -1 when it is none.
int narrow_of(const Stage& stage, int value, bool halves) {
  const auto at = [&](int v) -> const BodyValue& { return stage.body[std::size_t(v)]; };
  while (at(value).kind == BodyValue::Kind::Apply && at(value).op == Op::Cast &&
         at(value).dtype == DType::F32)
    value = at(value).args[0];
  const DType dtype = at(value).dtype;
  return dtype == DType::BF16 || (halves && dtype == DType::F16) ? value : -1;
}

} // namespace

/// Two neighbours along the depth in a word, the later one in its upper half.
ValueId Writer::pair_of(int s, int value, const Tree& depth, const Expr& pair, const Here& h) {
  const auto half = [&](int number) {
    const Here in = enter(h, depth, pair * Expr(2) + Expr(number));
    provide_results(s, in.point);
    provide_near(s, in);
    const Value v = e_.value(s, value, in.point);
    e_.forget_loads();
    return b_.cast(b_.apply(Op::Bitcast, DType::U16, {e_.narrow(v)}), DType::U32);
  };
  const ValueId lower = half(0);
  const ValueId upper = b_.apply(Op::Shl, DType::U32,
                                 {half(1), b_.constant(Scalar::of(DType::U32, std::int64_t{16}))});
  return b_.apply(Op::Or, DType::U32, {lower, upper});
}

Writer::Factors Writer::matrix_factors(const Tree& rows, bool halves) const {
  const Tree& columns = *rows.rest;
  const int s = columns.rest->rest->stage;
  const Stage& stage = r_.stages[std::size_t(s)];
  const BodyValue& product = stage.body[std::size_t(stage.yields[0])];
  if (stage.yields.size() != 1 || stage.acc_dtype != DType::F32 ||
      product.kind != BodyValue::Kind::Apply || product.op != Op::Mul ||
      product.dtype != DType::F32)
    throw Cannot(fmt::format("stage {} is no sum of products in f32", s));
  int left = narrow_of(stage, product.args[0], halves);
  int right = narrow_of(stage, product.args[1], halves);
  if (left < 0 || right < 0)
    throw Cannot(fmt::format("the factors of stage {} are not bf16{}", s, halves ? " or f16" : ""));
  const DType dtype = stage.body[std::size_t(left)].dtype;
  if (dtype != stage.body[std::size_t(right)].dtype)
    throw Cannot(fmt::format("the factors of stage {} are of different types", s));
  const auto goes_along = [&](int value, int axis) -> bool {
    return axes_of_value(r_, stage, value)[std::size_t(axis)];
  };
  if (goes_along(left, columns.axis))
    std::swap(left, right);
  if (goes_along(left, columns.axis) || goes_along(right, rows.axis))
    throw Cannot(fmt::format("the factors of stage {} are no rows and columns", s));
  return {left, right, dtype};
}

/// Whether points beyond the axis's end are possible inside.
bool Writer::may_leave(int stage, int axis, const Here& h) const {
  return h.clip[std::size_t(axis)] && overreaches_[std::size_t(stage)][std::size_t(axis)];
}

void Writer::matrix_product(const Tree& t, const Here& h) {
  const Tree &rows = t, &columns = *t.rest, &depth = *columns.rest;
  const int s = depth.rest->stage;
  const bool tiles = tiles_around(s) != nullptr;
  if ((target_.unit(FragmentLayout::Pairs, DType::BF16) == nullptr && !tiles) ||
      dealt_ != Bind::Core)
    throw Cannot("no matrix unit that code is written for");
  const std::int64_t m = rows.extent.value(), n = columns.extent.value(), k = depth.extent.value();
  if (n < 2 || n > kMostLanes || !std::has_single_bit(std::uint64_t(n)) || k % 2 != 0 ||
      m > kMostUnroll)
    throw Cannot(fmt::format("a matrix product of {} x {} by {}", m, n, k));
  const Factors f = matrix_factors(rows, false);
  for (const Tree* l : {&rows, &columns, &depth})
    if (may_leave(s, l->axis, h))
      throw Cannot(fmt::format("matrix loops of a CPU go beyond the end of axis {}", l->axis));
  if (tiles)
    return tile_product(rows, h);
  Sums& open = *open_[std::size_t(s)].back();
  const Expr pairs(k / 2);
  b_.loop(Expr(0), pairs, Expr(1), pairs, Bind::Serial, [&](const Expr& pair) {
    Here across = enter(enter(h, rows, Expr(0)), columns, lane_variable(int(n)));
    across.point.lanes = int(n);
    const ValueId b = b_.splat(pair_of(s, f.right, depth, pair, across), int(n));
    for (std::int64_t i = 0; i < m; ++i) {
      Here in = enter(enter(h, rows, Expr(i)), columns, lane_variable(int(n)));
      in.point.lanes = int(n);
      const ValueId a = pair_of(s, f.left, depth, pair, in);
      const std::vector<State> sums = read_sums(open, in.point);
      write_sums(open, in.point, {{b_.fma(a, b, sums[0][0])}});
    }
  });
}

} // namespace egret::kernel::loops

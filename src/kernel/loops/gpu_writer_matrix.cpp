// Matrix loops on a GPU: 16 rows by 8 columns by 16 of the depth are one product of a warp. Who has
// which elements is in kernel/intrinsics.h, at MatrixMultiply.
#include "kernel/analysis.h"
#include "kernel/loops/gpu_writer.h"

#include <fmt/format.h>

#include <algorithm>

namespace egret::kernel::loops {

namespace {

constexpr int kRows = 16, kColumns = 8, kDepth = 16, kWarp = 32;

} // namespace

void GpuWriter::check_unit(int stage) const {
  const Path& way = path(stage);
  const auto rows = std::find_if(way.begin(), way.end(), [](const Step& s) {
    return s.node->kind == Kind::For && s.node->bind == Bind::Matrix;
  });
  if (rows == way.end())
    return;
  if (target_.unit(FragmentLayout::SubgroupFragments) == nullptr || target_.subgroup != kWarp)
    throw Cannot("no matrix unit that code is written for");
  const Tree &m = *rows->node, &n = *m.rest, &k = *n.rest;
  if (!(m.extent == Expr(kRows) && n.extent == Expr(kColumns) && k.extent == Expr(kDepth)))
    throw Cannot(
        fmt::format("a matrix product of {} x {} by {}, where a warp's is of {} x {} by {}",
                    m.extent.str(), n.extent.str(), k.extent.str(), kRows, kColumns, kDepth));
  matrix_factors(m, true);
  for (auto s = way.begin(); s != rows; ++s)
    if (s->node->kind == Kind::For && s->node->bind == Bind::Lane && !is_single(*s->node))
      throw Cannot(fmt::format(
          "a lane loop is around the matrix loops of stage {}, which take whole warps", stage));
}

int GpuWriter::lanes_of_loop(const Tree& loop) const {
  return loop.bind == Bind::Matrix ? 2 : Writer::lanes_of_loop(loop);
}

/// As loops: two by copies of the code, 8 by 4 threads, and vectors of two.
void GpuWriter::digits_made(const Tree& loop, std::vector<Digit>& digits,
                            std::int64_t& copies) const {
  if (loop.bind != Bind::Matrix) {
    Writer::digits_made(loop, digits, copies);
  } else if (is_vector(loop)) {
    digits.push_back({loop.axis, 2, Bind::Lane, Expr(4), 1});
    digits.push_back({loop.axis, 1, Bind::Vector, Expr(2), 1});
  } else {
    digits.push_back({loop.axis, 1, Bind::Lane, Expr(8), 4});
    copies *= 2;
  }
}

void GpuWriter::whole_warp(const Here& h, const Code& code) {
  if (h.width < kWarp)
    throw Cannot("matrix loops are inside of parts of a warp");
  if (h.width == kWarp) {
    code(h);
    return;
  }
  Here in = h;
  in.thread = floormod(h.thread, Expr(kWarp));
  in.width = kWarp;
  in.diverged = true;
  b_.when({{floordiv(h.thread, Expr(kWarp)), Expr(0), Expr(1)}}, [&] { code(in); });
}

void GpuWriter::each_of_unit(const Tree& loop, const Here& h, const Code& code) {
  if (is_vector(loop)) { // the rows have been entered
    Here in = enter(h, loop, Expr(2) * h.thread + lane_variable(2));
    in.point.lanes = 2;
    in.thread = Expr(0);
    in.width = 1;
    code(in);
    return;
  }
  whole_warp(h, [&](const Here& warp) {
    for (int half = 0; half < 2; ++half) {
      Here in = enter(warp, loop, floordiv(warp.thread, Expr(4)) + Expr(8 * half));
      in.thread = floormod(warp.thread, Expr(4));
      in.width = 4;
      code(in);
    }
  });
}

/// Two neighbours along the depth in a word, the later one in its upper half; zeros where there are
/// none. What is beyond an end is made of the last element that is there, and thrown away.
ValueId GpuWriter::pair_of_unit(int s, int value, const Tree& line, const Expr& at,
                                const Tree& depth, const Expr& first, const Here& h) {
  const auto made = [&](const Expr& digit, int lanes, std::vector<Guard>& exists) {
    Here in = enter(enter(h, line, at), depth, digit);
    in.point.lanes = lanes;
    for (int a : {line.axis, depth.axis})
      if (may_leave(s, a, h)) {
        const Expr& extent = r_.axes[std::size_t(a)].extent;
        Expr& index = in.point.at[std::size_t(a)];
        exists.push_back({index, Expr(0), extent});
        index = min(index, extent - Expr(1));
      }
    provide_results(s, in.point);
    provide_near(s, in);
    const Value v = e_.value(s, value, in.point);
    e_.forget_loads();
    return b_.splat(b_.apply(Op::Bitcast, DType::U16, {e_.narrow(v)}), lanes);
  };
  const ValueId zero = b_.constant(Scalar::of(DType::U32, std::int64_t{0}));
  const auto where = [&](const std::vector<Guard>& exists, ValueId word) {
    return exists.empty() ? word
                          : b_.apply(Op::Select, DType::U32, {b_.test(exists, 1), word, zero});
  };
  const auto joined = [&](ValueId lower, ValueId upper) {
    const ValueId bits = b_.constant(Scalar::of(DType::U32, std::int64_t{16}));
    return b_.apply(Op::Or, DType::U32, {lower, b_.apply(Op::Shl, DType::U32, {upper, bits})});
  };
  if (!may_leave(s, depth.axis, h)) {
    std::vector<Guard> exists;
    const ValueId both = made(first + lane_variable(2), 2, exists);
    return where(exists, joined(b_.cast(b_.extract(both, 0), DType::U32),
                                b_.cast(b_.extract(both, 1), DType::U32)));
  }
  const auto half = [&](int number) {
    std::vector<Guard> exists;
    const ValueId v = made(first + Expr(number), 1, exists);
    return where(exists, b_.cast(v, DType::U32));
  };
  const ValueId lower = half(0);
  return joined(lower, half(1));
}

std::optional<ValueId> GpuWriter::matrix_of_copy(int s, int value, const Tree& line,
                                                 const Tree& depth, const Here& h, int quarters) {
  const auto found = std::find_if(near_.begin(), near_.end(), [&](const NearCopy* copy) {
    return copy->body == s && copy->stage == s && copy->value == value;
  });
  if (found == near_.end())
    return std::nullopt;
  const NearCopy& copy = **found;
  // Neighbours along one of the two, rows of eight from multiples of eight on.
  const Tree* across = copy.loops.empty() ? nullptr : copy.loops.back();
  const Tree* other = across == &line ? &depth : &line;
  if ((across != &line && across != &depth) ||
      std::find(copy.loops.begin(), copy.loops.end(), other) == copy.loops.end())
    return std::nullopt;
  for (std::size_t i = 0; i < copy.loops.size(); ++i) {
    const Tree* l = copy.loops[i];
    if (l != across && copy.strides[i].divisor() % 8 != 0)
      return std::nullopt;
    if (l != &line && l != &depth && !h.digits.contains(l))
      return std::nullopt;
  }
  if (copy.base.divisor() % 8 != 0)
    return std::nullopt;
  // Lane l says where row l % 8 of quarter l / 8 begins; quarters go down before they go deep.
  const Expr row = floormod(h.thread, Expr(8)), quarter = floordiv(h.thread, Expr(8));
  const Expr down = quarters == 4 ? floormod(quarter, Expr(2)) : Expr(0);
  const Expr deep = quarters == 4 ? floordiv(quarter, Expr(2)) : floormod(quarter, Expr(2));
  std::map<const Tree*, Expr> digits = h.digits;
  digits[&line] = Expr(8) * down + (across == &line ? Expr(0) : row);
  digits[&depth] = Expr(8) * deep + (across == &line ? row : Expr(0));
  return b_.load_matrix(copy.buffer, copy.offset(digits), quarters, across == &line);
}

void GpuWriter::matrix_product(const Tree& rows, const Here& h) {
  const Tree &columns = *rows.rest, &depth = *columns.rest;
  const int s = depth.rest->stage;
  const Factors f = matrix_factors(rows, true);
  Sums& open = *open_[std::size_t(s)].back();
  whole_warp(h, [&](const Here& warp) {
    const Expr line = floordiv(warp.thread, Expr(4));
    const Expr pair = Expr(2) * floormod(warp.thread, Expr(4));
    const auto word = [&](int value, const Tree& loop, int down, int along) {
      return pair_of_unit(s, value, loop, line + Expr(down), depth, pair + Expr(along), warp);
    };
    const auto beside = [&](ValueId first, ValueId second) {
      return b_.shuffle(first, second, {0, 1});
    };
    std::optional<ValueId> a = matrix_of_copy(s, f.left, rows, depth, warp, 4);
    if (!a)
      a = b_.shuffle(beside(word(f.left, rows, 0, 0), word(f.left, rows, 8, 0)),
                     beside(word(f.left, rows, 0, 8), word(f.left, rows, 8, 8)), {0, 1, 2, 3});
    std::optional<ValueId> b = matrix_of_copy(s, f.right, columns, depth, warp, 2);
    if (!b)
      b = beside(word(f.right, columns, 0, 0), word(f.right, columns, 0, 8));
    std::vector<Point> halves;
    each_of_unit(rows, warp, [&](const Here& row) {
      each_of_unit(columns, row, [&](const Here& in) { halves.push_back(in.point); });
    });
    const ValueId before = b_.shuffle(read_sums(open, halves[0])[0][0],
                                      read_sums(open, halves[1])[0][0], {0, 1, 2, 3});
    const ValueId sums = b_.matrix_multiply(f.dtype, *a, *b, before);
    write_sums(open, halves[0], {{b_.shuffle(sums, sums, {0, 1})}});
    write_sums(open, halves[1], {{b_.shuffle(sums, sums, {2, 3})}});
  });
}

} // namespace egret::kernel::loops

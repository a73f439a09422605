// Matrices and lists of indices made from smaller things, and parts of a tensor replaced.
#include "support/fail.h"
#include "tensor/ops.h"

#include <algorithm>

namespace egret {

using namespace detail;

namespace {

// The elements of a triangle, from the columns of each row.
template <class F>
Tensor triangle(std::int64_t rows, std::int64_t columns, std::int64_t offset, const char* who,
                F&& span) {
  if (rows < 0 || columns < 0)
    fail(ErrorKind::Value, "{}: {} rows and {} columns; numbers must not be negative", who, rows,
         columns);
  constexpr std::int64_t kMost = std::int64_t{1} << 32; // elements of the matrix
  if (columns > 0 && rows > kMost / columns)
    fail(ErrorKind::Value, "{}: the indices of {} rows and {} columns are too many", who, rows,
         columns);
  std::vector<std::int64_t> at[2];
  if (columns == 0)
    rows = 0;
  // Rows lie within an offset of all columns, and of none beyond.
  offset = std::clamp(offset, -rows, columns);
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto [begin, end] = span(row + offset);
    for (std::int64_t column = std::max<std::int64_t>(0, begin); column < std::min(columns, end);
         ++column) {
      at[0].push_back(row);
      at[1].push_back(column);
    }
  }
  at[0].insert(at[0].end(), at[1].begin(), at[1].end());
  return tensor(at[0], Shape{2, static_cast<std::int64_t>(at[1].size())});
}

struct Span {
  std::int64_t begin, end;
};

} // namespace

Tensor vander(const Operand& a, std::optional<std::int64_t> columns, bool increasing) {
  constexpr const char* who = "vander";
  Access::held(a, who);
  if (a.rank() != 1)
    fail(ErrorKind::Shape, "{}: got {}; a vector is needed", who, shape_of(a));
  const std::int64_t n = columns ? *columns : a.size(0);
  if (n < 0)
    fail(ErrorKind::Value, "{}: {} columns; the number must not be negative", who, n);
  if (n == 0)
    return zeros({a.shape()[0], 0}, a.dtype());
  // Products of ones and what was given: 1, a, a a, ...
  return named(who, [&] {
    const Tensor rest = expand(unsqueeze(a, 1), {a.shape()[0], Expr(n)});
    const Tensor first = reshape(positions(n) == 0, {1, n});
    const Tensor powers = cumprod(widened(where(first, 1, rest)), 1).to(a.dtype());
    return increasing ? powers : flip(powers, 1);
  });
}

Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  return triangle(rows, columns, offset, "tril_indices", [&](std::int64_t diagonal) {
    return Span{0, diagonal + 1};
  });
}

Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  return triangle(rows, columns, offset, "triu_indices", [&](std::int64_t diagonal) {
    return Span{diagonal, columns};
  });
}

Tensor block_diag(std::span<const Tensor> blocks) {
  constexpr const char* who = "block_diag";
  if (blocks.empty())
    fail(ErrorKind::Value, "{}: no blocks are given", who);
  std::vector<Tensor> matrices;
  std::int64_t width = 0;
  for (const Tensor& block : blocks) {
    Access::held(block, who);
    if (block.rank() > 2)
      fail(ErrorKind::Shape, "{}: a block of {}; matrices are needed", who, shape_of(block));
    matrices.push_back(block.rank() == 2 ? block : block.reshape({1, -1}));
    width += matrices.back().size(1);
  }
  std::int64_t begin = 0;
  for (Tensor& m : matrices) {
    const std::int64_t own = m.size(1);
    m = pad(m, {0, begin}, {0, width - begin - own});
    begin += own;
  }
  return cat(matrices, 0);
}

Tensor cartesian_prod(std::span<const Tensor> lines) {
  constexpr const char* who = "cartesian_prod";
  if (lines.empty())
    fail(ErrorKind::Value, "{}: no vectors are given", who);
  for (const Tensor& line : lines) {
    Access::held(line, who);
    if (line.rank() != 1)
      fail(ErrorKind::Shape, "{}: got {}; vectors are needed", who, shape_of(line));
  }
  if (lines.size() == 1)
    return lines[0].clone();
  std::vector<Tensor> columns = meshgrid(lines);
  for (Tensor& column : columns)
    column = column.flatten();
  return stack(columns, 1);
}

namespace {

// Calls `visit` with every choice of r of the numbers 0 .. n-1, each at least the one before it, or
// above it without `again`, in the order of the alphabet.
template <class F>
void each_choice(std::int64_t n, std::int64_t r, bool again, F&& visit) {
  std::vector<std::int64_t> at(static_cast<std::size_t>(r));
  for (std::size_t i = 0; i < at.size(); ++i)
    at[i] = again ? 0 : static_cast<std::int64_t>(i);
  for (;;) {
    visit(at);
    std::size_t i = at.size();
    const auto last = [&](std::size_t k) {
      return again ? n - 1 : n - static_cast<std::int64_t>(at.size() - k);
    };
    while (i > 0 && at[i - 1] == last(i - 1))
      --i;
    if (i == 0)
      return;
    ++at[i - 1];
    for (; i < at.size(); ++i)
      at[i] = again ? at[i - 1] : at[i - 1] + 1;
  }
}

} // namespace

Tensor combinations(const Operand& a, std::int64_t r, bool with_replacement) {
  constexpr const char* who = "combinations";
  constexpr double kMost = 1 << 24; // numbers of the result
  Access::held(a, who);
  if (a.rank() != 1)
    fail(ErrorKind::Shape, "{}: got {}; a vector is needed", who, shape_of(a));
  if (r < 0)
    fail(ErrorKind::Value, "{}: choices of {}; the number must not be negative", who, r);
  const std::int64_t n = a.size(0);
  if (r == 0)
    return zeros({0}, a.dtype());
  if (n == 0 || (r > n && !with_replacement))
    return zeros({0, r}, a.dtype());
  // (all over some), of which each partial product is such a number, and they grow.
  const std::int64_t all = with_replacement ? n - 1 + std::min(r, std::int64_t{1} << 40) : n,
                     some = std::min(r, with_replacement ? n - 1 : n - r);
  double count = 1;
  for (std::int64_t i = 0; i < some && count * static_cast<double>(r) <= kMost; ++i)
    count = count * static_cast<double>(all - i) / static_cast<double>(i + 1);
  if (count * static_cast<double>(r) > kMost)
    fail(ErrorKind::Value, "{}: the choices of {} of {} elements are too many", who, r, n);
  std::vector<std::int64_t> index;
  each_choice(n, r, with_replacement,
              [&](const auto& at) { index.insert(index.end(), at.begin(), at.end()); });
  const auto rows = static_cast<std::int64_t>(index.size()) / r;
  return take(a, tensor(index, Shape{rows, r}), 0);
}

Tensor channel_shuffle(const Operand& a, std::int64_t groups) {
  constexpr const char* who = "channel_shuffle";
  Access::held(a, who);
  if (a.rank() < 3)
    fail(ErrorKind::Shape, "{}: got {}; it must be [batch, channels, spatial...]", who,
         shape_of(a));
  if (groups < 1 || a.size(1) % groups != 0)
    fail(ErrorKind::Value, "{}: {} groups do not divide the {} channels of {}", who, groups,
         a.size(1), shape_of(a));
  return unflatten(a, 1, {groups, a.size(1) / groups}).transpose(1, 2).flatten(1, 2);
}

Tensor slice_scatter(const Operand& a, const Operand& values, std::int64_t axis,
                     const Slice& slice) {
  constexpr const char* who = "slice_scatter";
  Access::held(a, who);
  Access::held(values, who);
  axis = axis_of(axis, a.rank(), a.shape(), who);
  std::vector<Index> where(static_cast<std::size_t>(axis), Index(Slice::all()));
  where.emplace_back(slice);
  if (const Shape wanted = a.index(where).shape(); values.shape() != wanted)
    fail(ErrorKind::Shape, "{}: values {} do not fit the slice of {}; they must be {}", who,
         shape_of(values), shape_of(a), to_string(wanted));
  return replaced(a, where, values);
}

Tensor select_scatter(const Operand& a, const Operand& values, std::int64_t axis,
                      std::int64_t position) {
  constexpr const char* who = "select_scatter";
  Access::held(a, who);
  Access::held(values, who);
  axis = axis_of(axis, a.rank(), a.shape(), who);
  std::vector<Index> where(static_cast<std::size_t>(axis), Index(Slice::all()));
  where.emplace_back(position);
  if (const Shape wanted = a.index(where).shape(); values.shape() != wanted)
    fail(ErrorKind::Shape, "{}: values {} do not fit the slice of {}; they must be {}", who,
         shape_of(values), shape_of(a), to_string(wanted));
  return replaced(a, where, values);
}

} // namespace egret

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
  Access::held(a, "vander");
  if (a.rank() != 1)
    fail(ErrorKind::Shape, "vander: got {}; a vector is needed", shape_of(a));
  const std::int64_t n = columns ? *columns : a.size(0);
  if (n < 0)
    fail(ErrorKind::Value, "vander: {} columns; the number must not be negative", n);
  if (n == 0)
    return zeros({a.shape()[0], 0}, a.dtype());
  const Shape whole = {a.shape()[0], Expr(n)};
  named("vander", [&] { return expand(constant(a.dtype(), 1), whole); }); // is it possible?
  std::vector<Tensor> powers = {ones_like(a)};
  while (std::ssize(powers) < n)
    powers.push_back(powers.back() * a);
  if (!increasing)
    std::reverse(powers.begin(), powers.end());
  return stack(powers, 1);
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

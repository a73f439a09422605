// Matrices of doubles, for rows of linear algebra.
#pragma once

#include "functions.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace egret::testing {

using Matrix = std::vector<std::vector<double>>;

inline Matrix blank(std::size_t rows, std::size_t columns) {
  return {rows, std::vector<double>(columns)};
}

inline Matrix matrix(const Array& a, const Sizes& batch) {
  const std::int64_t rows = a.shape[a.rank() - 2], columns = a.shape[a.rank() - 1];
  Sizes at = batch;
  at.insert(at.end(), {0, 0});
  Matrix m = blank(std::size_t(rows), std::size_t(columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      at[at.size() - 2] = i;
      at[at.size() - 1] = j;
      m[std::size_t(i)][std::size_t(j)] = a.wide(at);
    }
  return m;
}

// A matrix for each element of a batch.
inline Array batches(const Sizes& batch, std::int64_t rows, std::int64_t columns,
                     const std::function<Matrix(const Sizes&)>& make) {
  Sizes shape = batch;
  shape.insert(shape.end(), {rows, columns});
  Array y(shape);
  each(batch, [&](const Sizes& at) {
    const Matrix m = make(at);
    Sizes place = at;
    place.insert(place.end(), {0, 0});
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        place[place.size() - 2] = i;
        place[place.size() - 1] = j;
        y[place] = m[std::size_t(i)][std::size_t(j)];
      }
  });
  return y;
}

inline Matrix transposed(const Matrix& a, std::size_t columns) {
  Matrix t(columns, std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < columns; ++j)
      t[j][i] = a[i][j];
  return t;
}

inline Matrix product(const Matrix& a, const Matrix& b, std::size_t columns) {
  Matrix y(a.size(), std::vector<double>(columns));
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t k = 0; k < b.size(); ++k)
      for (std::size_t j = 0; j < columns; ++j)
        y[i][j] += a[i][k] * b[k][j];
  return y;
}

// Elimination with partial pivoting: the solution, and the determinant.
struct Solved {
  Matrix x;
  double det = 1;
};
inline Solved solved(Matrix a, Matrix b) {
  Solved s;
  const std::size_t n = a.size();
  for (std::size_t k = 0; k < n; ++k) {
    std::size_t best = k;
    for (std::size_t i = k; i < n; ++i)
      if (std::abs(a[i][k]) > std::abs(a[best][k]))
        best = i;
    if (best != k) {
      std::swap(a[k], a[best]);
      std::swap(b[k], b[best]);
      s.det = -s.det;
    }
    s.det *= a[k][k];
    for (std::size_t i = 0; i < n; ++i) {
      if (i == k)
        continue;
      const double f = a[i][k] / a[k][k];
      for (std::size_t j = 0; j < n; ++j)
        a[i][j] -= f * a[k][j];
      for (std::size_t j = 0; j < b[i].size(); ++j)
        b[i][j] -= f * b[k][j];
    }
  }
  for (std::size_t i = 0; i < n; ++i)
    for (double& x : b[i])
      x /= a[i][i];
  s.x = b;
  return s;
}

inline Matrix unit(std::size_t n) {
  Matrix m(n, std::vector<double>(n));
  for (std::size_t i = 0; i < n; ++i)
    m[i][i] = 1;
  return m;
}

inline Sizes with(Sizes batch, std::int64_t rows, std::int64_t columns) {
  batch.insert(batch.end(), {rows, columns});
  return batch;
}

} // namespace egret::testing

// Linear algebra beside eliminations by plain loops.
#include "matrices.h"

#include <algorithm>

namespace egret::testing {

namespace {

// Matrices well away from singular ones: a row for each, its largest element on a shifted diagonal,
// so that rows have to change places.
Array regular(Draw& d, const Sizes& batch, std::int64_t rows, std::int64_t columns) {
  Array a = d.array(with(batch, rows, columns), -0.5, 0.5);
  const std::int64_t shift = rows > 0 ? d.below(rows) : 0;
  each(a.shape, [&](const Sizes& at) {
    if ((at[at.size() - 2] + shift) % std::max(rows, columns) == at.back())
      a[at] += d.chance() ? 2 : -2;
  });
  a.repeated.clear();
  return a;
}

Instance cholesky_of(Draw& d) {
  const Sizes batch = d.shape(0, 2);
  const std::int64_t n = d.below(5);
  const bool upper = d.chance();
  Array a = d.array(with(batch, n, n), -0.5, 0.5);
  each(a.shape, [&](const Sizes& at) {
    if (at[at.size() - 2] == at.back())
      a[at] += 3;
  });
  a.repeated.clear();
  return one(
      {a}, [=](const Tensors& t) { return linalg::cholesky(t[0], upper); },
      [=](const Arrays& all) {
        return batches(batch, n, n, [&](const Sizes& at) {
          const Matrix m = matrix(all[0], at);
          Matrix l(m.size(), std::vector<double>(m.size()));
          for (std::size_t i = 0; i < m.size(); ++i)
            for (std::size_t j = 0; j <= i; ++j) {
              double x = (m[i][j] + m[j][i]) / 2;
              for (std::size_t k = 0; k < j; ++k)
                x -= l[i][k] * l[j][k];
              l[i][j] = i == j ? std::sqrt(x) : x / l[j][j];
            }
          return upper ? transposed(l, m.size()) : l;
        });
      });
}

// The triangle that counts of a matrix.
Matrix triangle(Matrix m, bool upper, bool unit_diagonal) {
  for (std::size_t i = 0; i < m.size(); ++i)
    for (std::size_t j = 0; j < m.size(); ++j)
      if (i == j ? unit_diagonal : upper == (j < i))
        m[i][j] = i == j ? 1 : 0;
  return m;
}

Instance solve_triangular_of(Draw& d) {
  const Sizes batch = d.shape(0, 2);
  const std::int64_t n = d.below(6), k = d.below(4);
  const linalg::TriangularOptions o{d.chance(), d.chance(), d.chance()};
  Array a = d.array(with(batch, n, n), -1, 1);
  each(a.shape, [&](const Sizes& at) {
    if (at[at.size() - 2] == at.back())
      a[at] += a[at] < 0 ? -1 : 1;
  });
  a.repeated.clear();
  const Array b = d.array(o.left ? with(batch, n, k) : with(batch, k, n));
  return one(
      {a, b}, [=](const Tensors& t) { return linalg::solve_triangular(t[0], t[1], o); },
      [=](const Arrays& all) {
        return batches(batch, o.left ? n : k, o.left ? k : n, [&](const Sizes& at) {
          const Matrix m = triangle(matrix(all[0], at), o.upper, o.unit_diagonal);
          const Matrix right = matrix(all[1], at);
          if (o.left)
            return solved(m, right).x;
          return transposed(solved(transposed(m, m.size()), transposed(right, m.size())).x,
                            right.size());
        });
      });
}

Instance cholesky_solve_of(Draw& d) {
  const std::int64_t n = d.between(1, 4), k = d.between(1, 3);
  const bool upper = d.chance();
  Array f = d.array({n, n}, -0.5, 0.5);
  each(f.shape, [&](const Sizes& at) {
    if (at[0] == at[1])
      f[at] += 2;
  });
  f.repeated.clear();
  return one(
      {d.array({n, k}), f},
      [=](const Tensors& t) { return linalg::cholesky_solve(t[0], t[1], upper); },
      [=](const Arrays& a) {
        return batches({}, n, k, [&](const Sizes& at) {
          Matrix l = triangle(matrix(a[1], at), upper, false);
          if (upper)
            l = transposed(l, l.size());
          return solved(product(l, transposed(l, l.size()), l.size()), matrix(a[0], at)).x;
        });
      });
}

Instance solve_of(Draw& d) {
  const Sizes batch = d.shape(0, 2);
  const std::int64_t n = d.below(5), k = d.below(4);
  const bool vectors = d.chance(0.3);
  Sizes right = d.chance(0.3) && !vectors ? d.broadcastable(batch) : batch;
  Array b = d.array(with(right, n, vectors ? 1 : k));
  if (vectors) {
    b.shape.pop_back();
    b.repeated.clear(); // it names axes of the matrix
  }
  return one(
      {regular(d, batch, n, n), b}, [=](const Tensors& t) { return linalg::solve(t[0], t[1]); },
      [=](const Arrays& a) {
        Array given = a[1];
        if (vectors)
          given.shape.push_back(1);
        Array y = batches(batch, n, vectors ? 1 : k, [&](const Sizes& at) {
          return solved(matrix(a[0], at), matrix(given, at)).x;
        });
        if (vectors)
          y.shape.pop_back();
        return y;
      });
}

Instance inv_of(Draw& d) {
  const Sizes batch = d.shape(0, 2);
  const std::int64_t n = d.below(5);
  return one(
      {regular(d, batch, n, n)}, [=](const Tensors& t) { return linalg::inv(t[0]); },
      [=](const Arrays& a) {
        return batches(batch, n, n, [&](const Sizes& at) {
          return solved(matrix(a[0], at), unit(std::size_t(n))).x;
        });
      });
}

Instance det_of(Draw& d) {
  const Sizes batch = d.shape(0, 2);
  const std::int64_t n = d.below(5);
  return {{regular(d, batch, n, n)},
          [=](const Tensors& t) {
            const linalg::SignLog s = linalg::slogdet(t[0]);
            return Tensors{linalg::det(t[0]), s.sign, s.log};
          },
          [=](const Arrays& a) {
            const Array det(batch, [&](const Sizes& at) {
              return solved(matrix(a[0], at), blank(std::size_t(n), 0)).det;
            });
            return Arrays{det, map(det, [](double x) { return x < 0 ? -1.0 : 1.0; }),
                          map(det, [](double x) { return std::log(std::abs(x)); })};
          }};
}

// Gram and Schmidt's columns, with the signs of reflections: those of r's diagonal are negative
// where the first element that is left is positive, and the last element is as it is.
Instance qr_of(Draw& d) {
  const Sizes batch = d.shape(0, 1);
  const std::int64_t m = d.between(1, 4), n = d.between(1, 4), k = std::min(m, n);
  return {{regular(d, batch, m, n)},
          [=](const Tensors& t) {
            const linalg::Qr f = linalg::qr(t[0]);
            // Signs that do not depend on the method: those that make the diagonal positive.
            const Tensor s = sign(diagonal(f.r, 0, -2, -1)).detach();
            return Tensors{f.q * unsqueeze(s, -2), f.r * unsqueeze(s, -1)};
          },
          [=](const Arrays& a) {
            const auto factors = [&](const Sizes& at) {
              const Matrix given = matrix(a[0], at);
              Matrix q = blank(std::size_t(m), std::size_t(k));
              for (std::size_t j = 0; j < std::size_t(k); ++j) {
                std::vector<double> v;
                for (const auto& row : given)
                  v.push_back(row[j]);
                for (int twice = 0; twice < 2; ++twice)
                  for (std::size_t i = 0; i < j; ++i) {
                    double dot = 0;
                    for (std::size_t l = 0; l < v.size(); ++l)
                      dot += q[l][i] * v[l];
                    for (std::size_t l = 0; l < v.size(); ++l)
                      v[l] -= dot * q[l][i];
                  }
                double length = 0;
                for (double x : v)
                  length += x * x;
                for (std::size_t l = 0; l < v.size(); ++l)
                  q[l][j] = v[l] / std::sqrt(length);
              }
              Matrix r = product(transposed(q, std::size_t(k)), given, std::size_t(n));
              for (std::size_t i = 0; i < r.size(); ++i)
                for (std::size_t j = 0; j < i; ++j)
                  r[i][j] = 0;
              return std::pair(q, r);
            };
            return Arrays{
                batches(batch, m, k, [&](const Sizes& at) { return factors(at).first; }),
                batches(batch, k, n, [&](const Sizes& at) { return factors(at).second; })};
          }};
}

Instance lstsq_of(Draw& d) {
  const Sizes batch = d.shape(0, 1);
  const std::int64_t m = d.between(1, 4), n = d.between(1, 4), k = d.between(1, 2);
  return one(
      {regular(d, batch, m, n), d.array(with(batch, m, k))},
      [=](const Tensors& t) { return linalg::lstsq(t[0], t[1]); },
      [=](const Arrays& a) {
        return batches(batch, n, k, [&](const Sizes& at) {
          const Matrix x = matrix(a[0], at), b = matrix(a[1], at);
          const Matrix t = transposed(x, std::size_t(n));
          if (m >= n)
            return solved(product(t, x, std::size_t(n)), product(t, b, std::size_t(k))).x;
          return product(t, solved(product(x, t, std::size_t(m)), b).x, std::size_t(k));
        });
      });
}

Instance multi_dot_of(Draw& d) {
  const std::int64_t count = d.between(2, 5);
  const bool row = d.chance(0.3), column = d.chance(0.3);
  Arrays operands;
  std::int64_t before = row ? 1 : d.between(1, 4);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t after = column && i + 1 == count ? 1 : d.between(1, 4);
    operands.push_back(d.array({before, after}, -1, 1));
    before = after;
  }
  if (row)
    operands.front().shape.erase(operands.front().shape.begin());
  if (column)
    operands.back().shape.pop_back();
  for (Array& a : operands)
    if (a.rank() < 2)
      a.repeated.clear(); // it names axes of a matrix
  return one(
      operands, [](const Tensors& t) { return linalg::multi_dot(t); },
      [=](const Arrays& a) {
        Arrays m = a;
        if (row)
          m.front().shape.insert(m.front().shape.begin(), 1);
        if (column)
          m.back().shape.push_back(1);
        Matrix y = matrix(m[0], {});
        for (std::size_t i = 1; i < m.size(); ++i)
          y = product(y, matrix(m[i], {}), std::size_t(m[i].shape[1]));
        Array result =
            batches({}, m.front().shape[0], m.back().shape[1], [&](const Sizes&) { return y; });
        if (column)
          result.shape.pop_back();
        if (row)
          result.shape.erase(result.shape.begin());
        return result;
      });
}

} // namespace

std::vector<Row> linalg_rows() {
  std::vector<Row> rows;
  const auto add = [&](const char* name, std::function<Instance(Draw&)> make) {
    rows.push_back({name, std::move(make), Types::Floats, true, false, 8});
  };
  add("cholesky", cholesky_of);
  add("solve_triangular", solve_triangular_of);
  add("cholesky_solve", cholesky_solve_of);
  add("solve", solve_of);
  add("inv", inv_of);
  add("det and slogdet", det_of);
  add("qr", qr_of);
  add("lstsq", lstsq_of);
  add("multi_dot", multi_dot_of);
  return rows;
}

} // namespace egret::testing

// Eigenvalues, singular values and functions of matrices beside plain loops.
#include "matrices.h"

#include <numeric>

namespace egret::testing {

namespace {

// Eigenvalues, ascending, and vectors as columns, by Jacobi's rotations one after the other.
struct Eigen {
  std::vector<double> values;
  Matrix vectors;
};

// The element of the largest absolute value of a column is positive.
double side(const Matrix& columns, std::size_t j) {
  double most = 0;
  for (const auto& row : columns)
    if (std::abs(row[j]) > std::abs(most))
      most = row[j];
  return most < 0 ? -1 : 1;
}

Eigen eigen(Matrix a) {
  const std::size_t n = a.size();
  Matrix v = unit(n);
  for (int sweep = 0; sweep < 30; ++sweep)
    for (std::size_t p = 0; p < n; ++p)
      for (std::size_t q = p + 1; q < n; ++q) {
        if (a[p][q] == 0)
          continue;
        const double angle = std::atan2(2 * a[p][q], a[q][q] - a[p][p]) / 2;
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::size_t i = 0; i < n; ++i) {
          const double x = a[i][p], y = a[i][q], u = v[i][p], w = v[i][q];
          a[i][p] = c * x - s * y;
          a[i][q] = s * x + c * y;
          v[i][p] = c * u - s * w;
          v[i][q] = s * u + c * w;
        }
        for (std::size_t i = 0; i < n; ++i) {
          const double x = a[p][i], y = a[q][i];
          a[p][i] = c * x - s * y;
          a[q][i] = s * x + c * y;
        }
      }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t j) { return a[i][i] < a[j][j]; });
  Eigen e{{}, blank(n, n)};
  for (std::size_t j = 0; j < n; ++j) {
    e.values.push_back(a[order[j]][order[j]]);
    const double sign = side(v, order[j]);
    for (std::size_t i = 0; i < n; ++i)
      e.vectors[i][j] = sign * v[i][order[j]];
  }
  return e;
}

Matrix symmetric(Matrix a) {
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      a[i][j] = a[j][i] = (a[i][j] + a[j][i]) / 2;
  return a;
}

// Thin factors of m x n by the eigenvectors of the product of the shorter side.
struct Factors {
  Matrix u, vt;
  std::vector<double> s;
};
Factors factors(const Matrix& a, std::size_t n) {
  const std::size_t m = a.size();
  const Matrix t = transposed(a, n);
  const bool wide = m < n;
  const std::size_t k = std::min(m, n);
  const Eigen e = eigen(wide ? product(a, t, m) : product(t, a, n));
  Matrix near = blank(k, k); // descending
  Factors f;
  for (std::size_t j = 0; j < k; ++j) {
    f.s.push_back(std::sqrt(std::max(e.values[k - 1 - j], 0.0)));
    for (std::size_t i = 0; i < k; ++i)
      near[i][j] = e.vectors[i][k - 1 - j];
  }
  Matrix far = product(wide ? t : a, near, k);
  for (auto& row : far)
    for (std::size_t j = 0; j < k; ++j)
      row[j] /= f.s[j];
  Matrix u = wide ? near : far, v = wide ? far : near;
  for (std::size_t j = 0; j < k; ++j) {
    const double sign = side(u, j);
    for (auto& row : u)
      row[j] *= sign;
    for (auto& row : v)
      row[j] *= sign;
  }
  f.u = u;
  f.vt = transposed(v, k);
  return f;
}

// Values that are well apart: whole steps on a shuffled diagonal, and less beside it.
Array apart(Draw& d, const Sizes& batch, std::int64_t rows, std::int64_t columns, bool signs) {
  Array a = d.array(with(batch, rows, columns), -0.25, 0.25);
  const std::int64_t first = d.below(4);
  each(a.shape, [&](const Sizes& at) {
    const std::int64_t i = at[at.size() - 2];
    if (i == at.back())
      a[at] += (1.5 + static_cast<double>((i * 3 + first) % 4)) * (signs && i % 2 == 1 ? -1 : 1);
  });
  a.repeated.clear();
  return a;
}

Array vectors(const Sizes& batch, std::int64_t n,
              const std::function<std::vector<double>(const Sizes&)>& make) {
  Sizes shape = batch;
  shape.push_back(n);
  Array y(shape);
  each(batch, [&](const Sizes& at) {
    const auto line = make(at);
    Sizes place = at;
    place.push_back(0);
    for (std::int64_t i = 0; i < n; ++i) {
      place.back() = i;
      y[place] = line[std::size_t(i)];
    }
  });
  return y;
}

Instance eigh_of(Draw& d, bool alone) {
  const Sizes batch = d.shape(0, 1, false, 2);
  const std::int64_t n = d.below(4);
  return {{apart(d, batch, n, n, true)},
          [=](const Tensors& t) {
            if (alone)
              return Tensors{linalg::eigvalsh(t[0])};
            const linalg::Eigh e = linalg::eigh(t[0]);
            return Tensors{e.values, e.vectors};
          },
          [=](const Arrays& a) {
            const auto of = [&](const Sizes& at) { return eigen(symmetric(matrix(a[0], at))); };
            Arrays y = {vectors(batch, n, [&](const Sizes& at) { return of(at).values; })};
            if (!alone)
              y.push_back(batches(batch, n, n, [&](const Sizes& at) { return of(at).vectors; }));
            return y;
          }};
}

Instance svd_of(Draw& d, bool alone) {
  const Sizes batch = d.shape(0, 1, false, 2);
  const std::int64_t m = d.between(1, 4), n = d.between(1, 3), k = std::min(m, n);
  return {{apart(d, batch, m, n, false)},
          [=](const Tensors& t) {
            if (alone)
              return Tensors{linalg::svdvals(t[0])};
            const linalg::Svd f = linalg::svd(t[0]);
            return Tensors{f.u, f.s, f.vt};
          },
          [=](const Arrays& a) {
            const auto of = [&](const Sizes& at) {
              return factors(matrix(a[0], at), std::size_t(n));
            };
            const Array s = vectors(batch, k, [&](const Sizes& at) { return of(at).s; });
            if (alone)
              return Arrays{s};
            return Arrays{batches(batch, m, k, [&](const Sizes& at) { return of(at).u; }), s,
                          batches(batch, k, n, [&](const Sizes& at) { return of(at).vt; })};
          }};
}

// The inverse of the singular values that count.
Matrix pseudo_inverse(const Matrix& a, std::size_t n, std::size_t rank) {
  const Factors f = factors(a, n);
  Matrix y = blank(n, a.size());
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < a.size(); ++j)
      for (std::size_t k = 0; k < rank; ++k)
        y[i][j] += f.vt[k][i] * f.u[j][k] / f.s[k];
  return y;
}

Instance pinv_of(Draw& d) {
  const Sizes batch = d.shape(0, 1, false, 2);
  const std::int64_t m = d.between(1, 3), n = d.between(1, 4);
  return one(
      {apart(d, batch, m, n, true)}, [](const Tensors& t) { return linalg::pinv(t[0]); },
      [=](const Arrays& a) {
        return batches(batch, n, m, [&](const Sizes& at) {
          return pseudo_inverse(matrix(a[0], at), std::size_t(n), std::size_t(std::min(m, n)));
        });
      });
}

Instance matrix_norm_of(Draw& d) {
  using linalg::MatrixNorm;
  const Sizes batch = d.shape(0, 1, false, 2);
  const std::int64_t m = d.between(1, 3), n = d.between(1, 3);
  const auto norm =
      d.pick({MatrixNorm::Frobenius, MatrixNorm::Nuclear, MatrixNorm::One, MatrixNorm::MinusOne,
              MatrixNorm::Two, MatrixNorm::MinusTwo, MatrixNorm::Inf, MatrixNorm::MinusInf});
  const bool keepdim = d.chance();
  return one(
      {apart(d, batch, m, n, true)},
      [=](const Tensors& t) { return linalg::matrix_norm(t[0], norm, keepdim); },
      [=](const Arrays& a) {
        Array y = batches(batch, 1, 1, [&](const Sizes& at) {
          const Matrix x = matrix(a[0], at);
          const Factors f = factors(x, std::size_t(n));
          std::vector<double> rows(x.size()), columns(std::size_t(n), 0.0);
          double squares = 0;
          for (std::size_t i = 0; i < x.size(); ++i)
            for (std::size_t j = 0; j < columns.size(); ++j) {
              rows[i] += std::abs(x[i][j]);
              columns[j] += std::abs(x[i][j]);
              squares += x[i][j] * x[i][j];
            }
          const auto most = [](const auto& v) { return *std::ranges::max_element(v); };
          const auto least = [](const auto& v) { return *std::ranges::min_element(v); };
          const double value = norm == MatrixNorm::Frobenius ? std::sqrt(squares)
                               : norm == MatrixNorm::Nuclear
                                   ? std::accumulate(f.s.begin(), f.s.end(), 0.0)
                               : norm == MatrixNorm::One      ? most(columns)
                               : norm == MatrixNorm::MinusOne ? least(columns)
                               : norm == MatrixNorm::Two      ? f.s.front()
                               : norm == MatrixNorm::MinusTwo ? f.s.back()
                               : norm == MatrixNorm::Inf      ? most(rows)
                                                              : least(rows);
          return Matrix{{value}};
        });
        if (!keepdim)
          y.shape.resize(y.shape.size() - 2);
        return y;
      });
}

Instance cond_of(Draw& d) {
  const std::int64_t n = d.between(1, 3);
  const bool by_values = d.chance();
  return one(
      {apart(d, {}, n, n, true)},
      [=](const Tensors& t) {
        return linalg::cond(t[0],
                            by_values ? linalg::MatrixNorm::Two : linalg::MatrixNorm::Frobenius);
      },
      [=](const Arrays& a) {
        const Factors f = factors(matrix(a[0], {}), std::size_t(n));
        double high = 0, low = 0;
        for (const double s : f.s) {
          high += s * s;
          low += 1 / (s * s);
        }
        return Array({}, by_values ? f.s.front() / f.s.back() : std::sqrt(high * low));
      });
}

// Σ a^k / k!, of a / 2^10, squared ten times.
Matrix exponential(Matrix a) {
  const std::size_t n = a.size();
  for (auto& row : a)
    for (double& x : row)
      x /= 1024;
  Matrix y = unit(n), power = unit(n);
  for (int k = 1; k < 12; ++k) {
    power = product(power, a, n);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) {
        power[i][j] /= k;
        y[i][j] += power[i][j];
      }
  }
  for (int i = 0; i < 10; ++i)
    y = product(y, y, n);
  return y;
}

Instance matrix_exp_of(Draw& d) {
  const Sizes batch = d.shape(0, 2, false, 2);
  const std::int64_t n = d.below(4);
  const double size = d.pick({0.01, 0.5, 2.0});
  Array a = d.array(with(batch, n, n), -size, size);
  a.repeated.clear();
  return one(
      {a}, [](const Tensors& t) { return linalg::matrix_exp(t[0]); },
      [=](const Arrays& all) {
        return batches(batch, n, n,
                       [&](const Sizes& at) { return exponential(matrix(all[0], at)); });
      });
}

Instance matrix_power_of(Draw& d) {
  const std::int64_t n = d.between(1, 3), power = d.between(-3, 3);
  return one(
      {apart(d, {}, n, n, true)},
      [=](const Tensors& t) { return linalg::matrix_power(t[0], power); },
      [=](const Arrays& a) {
        return batches({}, n, n, [&](const Sizes& at) {
          const Matrix given = matrix(a[0], at);
          const Matrix x = power < 0 ? solved(given, unit(std::size_t(n))).x : given;
          Matrix y = unit(std::size_t(n));
          for (std::int64_t i = 0; i < std::abs(power); ++i)
            y = product(y, x, std::size_t(n));
          return y;
        });
      });
}

} // namespace

std::vector<Row> spectral_rows() {
  std::vector<Row> rows;
  const auto add = [&](const char* name, std::function<Instance(Draw&)> make) {
    rows.push_back({name, std::move(make), Types::Floats, true, false, 16});
  };
  add("eigh", [](Draw& d) { return eigh_of(d, false); });
  add("eigvalsh", [](Draw& d) { return eigh_of(d, true); });
  add("svd", [](Draw& d) { return svd_of(d, false); });
  add("svdvals", [](Draw& d) { return svd_of(d, true); });
  add("pinv", pinv_of);
  add("matrix_norm", matrix_norm_of);
  add("cond", cond_of);
  add("matrix_exp", matrix_exp_of);
  add("linalg::matrix_power", matrix_power_of);
  return rows;
}

} // namespace egret::testing

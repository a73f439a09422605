// Differences, integrals, histograms, and matrices of parts.
#include "collections.h"

#include <algorithm>

namespace egret::testing {

namespace {

std::optional<DType> float_type(const Draw& d) {
  return whole(d.dtype) ? std::optional(DType::F32) : std::nullopt;
}

Instance diff_of(Draw& d) {
  const Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  const std::int64_t times = d.between(0, 2);
  const bool flags = d.dtype == DType::Bool;
  return one(
      {d.array(shape)}, [=](const Tensors& t) { return diff(t[0], times, axis.given); },
      [=](const Arrays& a) {
        return lines(a[0], axis.axis, [=](std::vector<double> v) {
          for (std::int64_t k = 0; k < times && !v.empty(); ++k) {
            for (std::size_t i = 0; i + 1 < v.size(); ++i)
              v[i] = flags ? double(v[i + 1] != v[i]) : v[i + 1] - v[i];
            v.pop_back();
          }
          return v;
        });
      });
}

Instance trapezoid_of(Draw& d, bool running) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const bool places = d.chance(), vector = d.chance();
  const std::int64_t n = shape[axis.axis];
  const auto type = float_type(d);
  Sizes line(shape.size(), 1);
  line[axis.axis] = n;
  return one(
      {d.array(shape), d.array(vector ? Sizes{n} : shape)},
      [=](const Tensors& t) {
        if (running)
          return places ? cumulative_trapezoid(t[0], t[1], axis.given)
                        : cumulative_trapezoid(t[0], 0.5, axis.given);
        return places ? trapezoid(t[0], t[1], axis.given) : trapezoid(t[0], 0.5, axis.given);
      },
      [=](const Arrays& a) {
        Array x = a[1];
        if (vector)
          x.shape = line;
        Array both(shape); // areas in front of each place
        each(shape, [&](const Sizes& at) {
          Sizes before = at;
          if (--before[axis.axis] >= 0)
            both[at] = (a[0][at] + a[0][before]) / 2 * (places ? x.wide(at) - x.wide(before) : 0.5);
        });
        auto areas = [=](const std::vector<double>& v) {
          std::vector<double> sums;
          double total = 0;
          for (std::size_t i = 1; i < v.size(); ++i)
            sums.push_back(total += v[i]);
          return running ? sums : std::vector<double>{total};
        };
        Array y = lines(both, axis.axis, areas);
        if (!running)
          y.shape.erase(y.shape.begin() + std::ptrdiff_t(axis.axis));
        y.type = type;
        return y;
      });
}

Instance histc_of(Draw& d) {
  const Sizes shape = d.shape(0, 2);
  const std::int64_t bins = d.pick({1, 2, 4});
  const bool all = d.chance();
  return one(
      {d.array(shape)},
      [=](const Tensors& t) { return all ? histc(t[0], bins) : histc(t[0], bins, -1, 1); },
      [=](const Arrays& a) {
        double low = -1, high = 1;
        if (all) {
          low = high = 0;
          if (!a[0].values.empty()) {
            low = *std::min_element(a[0].values.begin(), a[0].values.end());
            high = *std::max_element(a[0].values.begin(), a[0].values.end());
          }
          if (low == high) {
            --low;
            ++high;
          }
        }
        Array y({bins});
        for (double x : a[0].values)
          if (x >= low && x <= high)
            ++y.values[std::min(std::size_t(bins) - 1,
                                std::size_t((x - low) / (high - low) * double(bins)))];
        return y;
      });
}

Instance cov_of(Draw& d, bool correlated) {
  const std::int64_t variables = d.between(1, 3), n = d.between(3, 5);
  return one(
      {d.distinct({variables, n})},
      [=](const Tensors& t) { return correlated ? corrcoef(t[0]) : cov(t[0]); },
      [=](const Arrays& a) {
        auto product = [&](std::int64_t i, std::int64_t j) {
          double mi = 0, mj = 0, total = 0;
          for (std::int64_t k = 0; k < n; ++k) {
            mi += a[0][{i, k}] / double(n);
            mj += a[0][{j, k}] / double(n);
          }
          for (std::int64_t k = 0; k < n; ++k)
            total += (a[0][{i, k}] - mi) * (a[0][{j, k}] - mj);
          return total / double(n - 1);
        };
        return Array({variables, variables}, [&](const Sizes& at) {
          const double c = product(at[0], at[1]);
          return correlated ? c / std::sqrt(product(at[0], at[0]) * product(at[1], at[1])) : c;
        });
      });
}

Instance aminmax_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  return {{d.distinct(shape)},
          [=](const Tensors& t) {
            const MinMax r = aminmax(t[0], axis.given);
            return Tensors{r.min, r.max};
          },
          [=](const Arrays& a) {
            auto least = [](const std::vector<double>& v) {
              return *std::min_element(v.begin(), v.end());
            };
            auto most = [](const std::vector<double>& v) {
              return *std::max_element(v.begin(), v.end());
            };
            return Arrays{slices(a[0], {axis.axis}, false, least),
                          slices(a[0], {axis.axis}, false, most)};
          }};
}

Instance vander_of(Draw& d) {
  const std::int64_t n = d.between(1, 4), columns = d.between(0, 4);
  const bool increasing = d.chance();
  return one(
      {d.array({n})}, [=](const Tensors& t) { return vander(t[0], columns, increasing); },
      [=](const Arrays& a) {
        return Array({n, columns}, [&](const Sizes& at) {
          return std::pow(a[0].values[std::size_t(at[0])],
                          double(increasing ? at[1] : columns - 1 - at[1]));
        });
      });
}

Instance triangle_of(Draw& d) {
  const std::int64_t rows = d.between(0, 4), columns = d.between(0, 4), offset = d.between(-3, 3);
  const bool upper = d.chance();
  return one(
      {},
      [=](const Tensors&) {
        return upper ? triu_indices(rows, columns, offset) : tril_indices(rows, columns, offset);
      },
      [=](const Arrays&) {
        std::vector<double> places[2];
        each({rows, columns}, [&](const Sizes& at) {
          if (upper ? at[1] - at[0] >= offset : at[1] - at[0] <= offset)
            for (std::size_t i = 0; i < 2; ++i)
              places[i].push_back(double(at[i]));
        });
        Array y({2, std::int64_t(places[0].size())});
        y.values = places[0];
        y.values.insert(y.values.end(), places[1].begin(), places[1].end());
        return std::move(y).as(DType::I64);
      });
}

Instance block_diag_of(Draw& d) {
  const Sizes a = {d.between(0, 2), d.between(1, 3)}, b = {d.between(1, 3), d.between(0, 2)};
  return one(
      {d.array(a), d.array(b), d.array({2})}, [](const Tensors& t) { return block_diag(t); },
      [=](const Arrays& arrays) {
        Array y({a[0] + b[0] + 1, a[1] + b[1] + 2});
        each(a, [&](const Sizes& at) { y[at] = arrays[0][at]; });
        each(b, [&](const Sizes& at) { y[{a[0] + at[0], a[1] + at[1]}] = arrays[1][at]; });
        for (std::int64_t i = 0; i < 2; ++i)
          y[{a[0] + b[0], a[1] + b[1] + i}] = arrays[2].values[std::size_t(i)];
        return y;
      });
}

Instance cartesian_of(Draw& d) {
  const Sizes sizes = {d.between(0, 3), d.between(1, 3), d.between(1, 2)};
  return one(
      {d.array({sizes[0]}), d.array({sizes[1]}), d.array({sizes[2]})},
      [](const Tensors& t) { return cartesian_prod(t); },
      [=](const Arrays& a) {
        Array y({count_of(sizes), 3});
        std::size_t next = 0;
        each(sizes, [&](const Sizes& at) {
          for (std::size_t i = 0; i < 3; ++i)
            y.values[next++] = a[i].values[std::size_t(at[i])];
        });
        return y;
      });
}

Instance bilinear_of(Draw& d) {
  const std::int64_t n = d.between(1, 2), i = d.between(1, 3), j = d.between(1, 3),
                     o = d.between(1, 2);
  const bool bias = d.chance();
  return one(
      {d.array({n, i}), d.array({n, j}), d.array({o, i, j}), d.array({o})},
      [=](const Tensors& t) { return bilinear(t[0], t[1], t[2], bias ? t[3] : Tensor()); },
      [=](const Arrays& a) {
        return Array({n, o}, [&](const Sizes& at) {
          double total = bias ? a[3].values[std::size_t(at[1])] : 0;
          each({i, j}, [&](const Sizes& p) {
            total += a[0][{at[0], p[0]}] * a[2][{at[1], p[0], p[1]}] * a[1][{at[0], p[1]}];
          });
          return total;
        });
      });
}

// c / 2 + 2 times a product: of a matrix and a vector, of two vectors, of batches.
Instance added_product_of(Draw& d, int form) {
  const std::int64_t n = d.between(1, 3), k = form == 1 ? 1 : d.between(1, 3), m = d.between(1, 3),
                     b = form == 2 ? d.between(1, 2) : 1;
  const Sizes left = form == 0 ? Sizes{n, k} : form == 1 ? Sizes{n} : Sizes{b, n, k};
  const Sizes right = form == 0 ? Sizes{k} : form == 1 ? Sizes{m} : Sizes{b, k, m};
  const Sizes out = form == 0 ? Sizes{n} : Sizes{n, m};
  return one(
      {d.array(d.broadcastable(out)), d.array(left), d.array(right)},
      [=](const Tensors& t) {
        return form == 0   ? addmv(t[0], t[1], t[2], 0.5, 2)
               : form == 1 ? addr(t[0], t[1], t[2], 0.5, 2)
                           : addbmm(t[0], t[1], t[2], 0.5, 2);
      },
      [=](const Arrays& a) {
        return Array(out, [&](const Sizes& at) {
          double total = 0;
          each({b, k}, [&](const Sizes& p) {
            const std::int64_t column = form == 0 ? 0 : at[1];
            const std::int64_t columns = form == 0 ? 1 : m;
            total += a[1].values[std::size_t((p[0] * n + at[0]) * k + p[1])] *
                     a[2].values[std::size_t((p[0] * k + p[1]) * columns + column)];
          });
          return a[0].wide(at) * 0.5 + 2 * total;
        });
      });
}

Instance matrix_power_of(Draw& d) {
  const std::int64_t n = d.between(1, 3), power = d.between(0, 5);
  return one(
      {d.array({2, n, n}, -1, 1)}, [=](const Tensors& t) { return matrix_power(t[0], power); },
      [=](const Arrays& a) {
        Array y({2, n, n}, [](const Sizes& at) { return at[1] == at[2] ? 1.0 : 0.0; });
        for (std::int64_t i = 0; i < power; ++i) {
          const Array before = y;
          y = Array({2, n, n}, [&](const Sizes& at) {
            double total = 0;
            for (std::int64_t k = 0; k < n; ++k)
              total += before[{at[0], at[1], k}] * a[0][{at[0], k, at[2]}];
            return total;
          });
        }
        return y;
      });
}

Instance renorm_of(Draw& d) {
  const Sizes shape = {d.between(1, 3), d.between(1, 3), d.between(1, 2)};
  const auto axis = d.axis(3);
  const double p = d.pick({1.0, 2.0, 3.0});
  Array x = d.array(shape, 0.3, 2); // of both signs, away from 0, where a norm has an edge
  for (std::size_t i = 0; i < x.values.size(); i += 2)
    x.values[i] = -x.values[i];
  x.repeated.clear();
  return one(
      {x}, [=](const Tensors& t) { return renorm(t[0], p, axis.given, 1.5); },
      [=](const Arrays& a) {
        std::vector<double> sums(static_cast<std::size_t>(shape[axis.axis]), 0.0);
        each(shape, [&](const Sizes& at) {
          sums[std::size_t(at[axis.axis])] += std::pow(std::abs(a[0][at]), p);
        });
        return Array(shape, [&](const Sizes& at) {
          const double n = std::pow(sums[std::size_t(at[axis.axis])], 1 / p);
          return n > 1.5 ? a[0][at] * 1.5 / (n + 1e-7) : a[0][at];
        });
      });
}

} // namespace

std::vector<Row> collection_rows() {
  std::vector<Row> rows = bag_rows();
  auto add = [&](const char* name, std::function<Instance(Draw&)> make, Types types = Types::Floats,
                 bool gradient = true) {
    rows.push_back({name, std::move(make), types, gradient, false, 4});
  };
  add("diff", diff_of, Types::All);
  add(
      "trapezoid", [](Draw& d) { return trapezoid_of(d, false); }, Types::Numbers);
  add(
      "cumulative_trapezoid", [](Draw& d) { return trapezoid_of(d, true); }, Types::Numbers);
  add("histc", histc_of, Types::Floats, false);
  add("cov", [](Draw& d) { return cov_of(d, false); });
  add("corrcoef", [](Draw& d) { return cov_of(d, true); });
  add("aminmax", aminmax_of, Types::Numbers);
  add("vander", vander_of);
  add("tril_indices and triu_indices", triangle_of, Types::Floats, false);
  add("block_diag", block_diag_of, Types::Numbers);
  add("cartesian_prod", cartesian_of, Types::Numbers);
  add("bilinear", bilinear_of);
  add("addmv", [](Draw& d) { return added_product_of(d, 0); });
  add("addr", [](Draw& d) { return added_product_of(d, 1); });
  add("addbmm", [](Draw& d) { return added_product_of(d, 2); });
  add("matrix_power", matrix_power_of);
  add("renorm", renorm_of);
  return rows;
}

} // namespace egret::testing

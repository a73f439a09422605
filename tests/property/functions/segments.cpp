// Slices in segments, elements repeated by counts, quantiles and associative scans beside plain
// loops.
#include "functions.h"

#include <algorithm>
#include <numeric>

namespace egret::testing {

namespace {

using Values = std::vector<double>;

double mixed(Scatter how, double x, double u) {
  switch (how) {
  case Scatter::Set:
    return u;
  case Scatter::Max:
    return std::max(x, u);
  case Scatter::Min:
    return std::min(x, u);
  case Scatter::Prod:
    return x * u;
  default:
    return x + u;
  }
}

// Slices of `source` on `data` at a[index], by slices of one element each.
Array index_reduced(const Array& data, std::size_t axis, const Array& index, const Array& source,
                    Scatter how, bool self, bool rounds_down) {
  Array r = data, met(data.shape);
  each(source.shape, [&](const Sizes& at) {
    const auto i = std::int64_t(index.values[std::size_t(at[axis])]);
    if (i < 0 || i >= data.shape[axis])
      return;
    Sizes place = at;
    place[axis] = i;
    const bool first = met[place] == 0 && !self;
    met[place] += 1;
    r[place] = first ? source[at] : mixed(how, r[place], source[at]);
  });
  if (how == Scatter::Mean)
    for (std::size_t i = 0; i < r.values.size(); ++i)
      if (met.values[i] > 0) {
        r.values[i] /= met.values[i] + (self ? 1 : 0);
        if (rounds_down)
          r.values[i] = std::floor(r.values[i]);
      }
  return r;
}

Instance index_reduce_of(Draw& d, Scatter how) {
  const Sizes data = d.shape(1, 3, true);
  const auto axis = d.axis(data.size());
  Sizes source = data;
  source[axis.axis] = d.below(5);
  const bool self = d.chance(), rounds_down = whole(d.dtype);
  return one(
      {d.distinct(data, 1, 3), d.integers({source[axis.axis]}, -1, data[axis.axis]),
       d.distinct(source, 1.1, 2.9)},
      [=](const Tensors& t) { return index_reduce(t[0], axis.given, t[1], t[2], how, self); },
      [=](const Arrays& a) {
        return index_reduced(a[0], axis.axis, a[1], a[2], how, self, rounds_down);
      });
}

Instance segment_reduce_of(Draw& d) {
  const Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  const std::int64_t segments = d.below(4);
  const bool rounds_down = whole(d.dtype);
  const Scatter how = d.pick(
      {Scatter::Set, Scatter::Add, Scatter::Max, Scatter::Min, Scatter::Mean, Scatter::Prod});
  Sizes out = shape;
  out[axis.axis] = segments;
  return one(
      {d.distinct(shape, 1, 3), d.integers({shape[axis.axis]}, -1, segments)},
      [=](const Tensors& t) { return segment_reduce(t[0], t[1], segments, how, axis.given); },
      [=](const Arrays& a) {
        return index_reduced(Array(out), axis.axis, a[1], a[0], how, how == Scatter::Add,
                             rounds_down);
      });
}

enum class Soft : std::uint8_t { Sum, Max, LogMax };

Instance segment_soft_of(Draw& d, Soft kind) {
  const Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  const std::int64_t segments = d.below(4);
  Sizes out = shape;
  out[axis.axis] = segments;
  return one(
      {d.array(shape), d.integers({shape[axis.axis]}, -1, segments, DType::I32)},
      [=](const Tensors& t) {
        return kind == Soft::Sum   ? segment_logsumexp(t[0], t[1], segments, axis.given)
               : kind == Soft::Max ? segment_softmax(t[0], t[1], segments, axis.given)
                                   : segment_log_softmax(t[0], t[1], segments, axis.given);
      },
      [=](const Arrays& a) {
        const auto segment = [&](const Sizes& at) {
          return std::int64_t(a[1].values[std::size_t(at[axis.axis])]);
        };
        Array sums(out);
        each(shape, [&](const Sizes& at) {
          Sizes place = at;
          place[axis.axis] = segment(at);
          if (place[axis.axis] >= 0 && place[axis.axis] < segments)
            sums[place] += std::exp(a[0][at]);
        });
        if (kind == Soft::Sum)
          return map(sums, [](double x) { return std::log(x); });
        return Array(shape, [&](const Sizes& at) {
          Sizes place = at;
          place[axis.axis] = segment(at);
          const bool member = place[axis.axis] >= 0 && place[axis.axis] < segments;
          const double y = member ? a[0][at] - std::log(sums[place]) : -kInf;
          return kind == Soft::Max ? std::exp(y) : y;
        });
      });
}

Instance repeat_by_counts_of(Draw& d) {
  const Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  const std::int64_t n = shape[axis.axis], total = d.below(8);
  const bool alike = d.chance(0.3);
  return one(
      {d.array(shape), d.integers({alike ? 1 : n}, -1, 3)},
      [=](const Tensors& t) { return repeat_interleave(t[0], t[1], axis.given, total); },
      [=](const Arrays& a) {
        return lines(a[0], axis.axis, [&](const Values& v) {
          Values y;
          for (std::size_t i = 0; i < v.size(); ++i)
            for (double k = 0; k < a[1].values[alike ? 0 : i]; ++k)
              y.push_back(v[i]);
          y.resize(std::size_t(total));
          return y;
        });
      });
}

double element_between(Values v, double q, QuantileBetween how, bool counted) {
  if (counted)
    std::erase_if(v, [](double x) { return std::isnan(x); });
  for (double x : v)
    if (std::isnan(x))
      return kNan;
  if (v.empty())
    return kNan;
  std::sort(v.begin(), v.end());
  const double at = q * double(v.size() - 1);
  const double low = v[std::size_t(std::floor(at))], high = v[std::size_t(std::ceil(at))];
  switch (how) {
  case QuantileBetween::Lower:
    return low;
  case QuantileBetween::Higher:
    return high;
  case QuantileBetween::Nearest:
    return v[std::size_t(std::nearbyint(at))];
  case QuantileBetween::Midpoint:
    return low == high ? low : (low + high) / 2;
  default:
    return low == high || std::isinf(low) ? low + (std::isinf(high) ? high : 0)
                                          : low + (at - std::floor(at)) * (high - low);
  }
}

Instance quantiles_of(Draw& d, bool counted) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const auto how = d.pick({QuantileBetween::Linear, QuantileBetween::Lower, QuantileBetween::Higher,
                           QuantileBetween::Nearest, QuantileBetween::Midpoint});
  const bool several = d.chance(0.7), keepdim = d.chance();
  const Values q = several ? Values{0.25, 1, 0.5, 0.1} : Values{0.5};
  Array x = d.distinct(shape);
  if (d.special)
    for (double& v : x.values)
      if (d.chance(0.2))
        v = d.chance() ? kNan : kInf;
  return one(
      {x},
      [=](const Tensors& t) {
        if (several)
          return counted ? nanquantile(t[0], q, axis.given, keepdim, how)
                         : quantile(t[0], q, axis.given, keepdim, how);
        return counted ? nanquantile(t[0], q[0], axis.given, keepdim, how)
                       : quantile(t[0], q[0], axis.given, keepdim, how);
      },
      [=](const Arrays& a) {
        Array y;
        y.shape = {std::int64_t(q.size())};
        for (double one : q) {
          const Array part = lines(a[0], axis.axis, [&](const Values& v) {
            return Values{element_between(v, one, how, counted)};
          });
          if (y.shape.size() == 1)
            y.shape.insert(y.shape.end(), part.shape.begin(), part.shape.end());
          y.values.insert(y.values.end(), part.values.begin(), part.values.end());
        }
        if (!keepdim)
          y.shape.erase(y.shape.begin() + std::ptrdiff_t(axis.axis) + 1);
        if (!several)
          y.shape.erase(y.shape.begin());
        return y;
      });
}

Instance nanmedian_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const bool keepdim = d.chance();
  Array x = d.distinct(shape);
  if (d.special && !whole(d.dtype))
    for (double& v : x.values)
      if (d.chance(0.3))
        v = kNan;
  return {{x},
          [=](const Tensors& t) {
            const Sorted s = nanmedian(t[0], axis.given, keepdim);
            return Tensors{s.values, s.indices};
          },
          [=](const Arrays& a) {
            const auto place = [](const Values& v) {
              Values order(v.size());
              std::iota(order.begin(), order.end(), 0.0);
              std::erase_if(order, [&](double i) { return std::isnan(v[std::size_t(i)]); });
              std::stable_sort(order.begin(), order.end(), [&](double i, double j) {
                return v[std::size_t(i)] < v[std::size_t(j)];
              });
              return order.empty() ? 0.0 : order[(order.size() - 1) / 2];
            };
            Array values = lines(a[0], axis.axis,
                                 [&](const Values& v) { return Values{v[std::size_t(place(v))]}; });
            Array indices =
                lines(a[0], axis.axis, [&](const Values& v) { return Values{place(v)}; });
            indices.type = DType::I64;
            if (!keepdim)
              for (Array* r : {&values, &indices})
                r->shape.erase(r->shape.begin() + std::ptrdiff_t(axis.axis));
            return Arrays{values, indices};
          }};
}

// h[i] = a[i] h[i-1] + b[i].
Instance recurrence_of(Draw& d) {
  Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  shape[axis.axis] = d.pick<std::int64_t>({0, 1, 2, 3, 5, 8, 13});
  const bool reverse = d.chance();
  return {{d.array(shape, -1, 1), d.array(shape)},
          [=](const Tensors& t) {
            return associative_scan(
                [](const Tensors& x, const Tensors& y) {
                  return Tensors{x[0] * y[0], x[1] * y[0] + y[1]};
                },
                {t[0], t[1]}, axis.given, reverse);
          },
          [=](const Arrays& a) {
            Array products = a[0], sums = a[1];
            const std::int64_t n = shape[axis.axis];
            each(shape, [&](Sizes at) {
              if (reverse)
                at[axis.axis] = n - 1 - at[axis.axis];
              Sizes before = at;
              before[axis.axis] += reverse ? 1 : -1;
              if (before[axis.axis] < 0 || before[axis.axis] >= n)
                return;
              products[at] = products[before] * a[0][at];
              sums[at] = sums[before] * a[0][at] + a[1][at];
            });
            return Arrays{products, sums};
          }};
}

// Products of matrices do not commute.
Instance matrices_in_order(Draw& d) {
  const Sizes shape = {d.between(1, 6), 2, 2};
  const bool reverse = d.chance();
  return one(
      {d.array(shape, -1, 1)},
      [=](const Tensors& t) {
        return associative_scan([](const Tensor& x, const Tensor& y) { return matmul(x, y); }, t[0],
                                0, reverse);
      },
      [=](const Arrays& a) {
        Array y = a[0];
        const std::int64_t n = shape[0];
        for (std::int64_t k = 1; k < n; ++k) {
          const std::int64_t i = reverse ? n - 1 - k : k, before = reverse ? i + 1 : i - 1;
          for (std::int64_t r = 0; r < 2; ++r)
            for (std::int64_t c = 0; c < 2; ++c)
              y[{i, r, c}] =
                  y[{before, r, 0}] * a[0][{i, 0, c}] + y[{before, r, 1}] * a[0][{i, 1, c}];
        }
        return y;
      });
}

} // namespace

std::vector<Row> segment_rows() {
  std::vector<Row> rows;
  const auto add = [&](const char* name, std::function<Instance(Draw&)> make,
                       Types types = Types::Floats, bool special = false, double slack = 4) {
    rows.push_back({name, std::move(make), types, true, special, slack});
  };
  add(
      "index_reduce set", [](Draw& d) { return index_reduce_of(d, Scatter::Set); }, Types::Numbers);
  add(
      "index_reduce add", [](Draw& d) { return index_reduce_of(d, Scatter::Add); }, Types::Numbers);
  add(
      "index_reduce max", [](Draw& d) { return index_reduce_of(d, Scatter::Max); }, Types::Numbers);
  add(
      "index_reduce min", [](Draw& d) { return index_reduce_of(d, Scatter::Min); }, Types::Numbers);
  add(
      "index_reduce mean", [](Draw& d) { return index_reduce_of(d, Scatter::Mean); },
      Types::Numbers);
  add(
      "index_reduce prod", [](Draw& d) { return index_reduce_of(d, Scatter::Prod); },
      Types::Numbers);
  add("segment_reduce", segment_reduce_of, Types::Numbers);
  add("segment_logsumexp", [](Draw& d) { return segment_soft_of(d, Soft::Sum); });
  add("segment_softmax", [](Draw& d) { return segment_soft_of(d, Soft::Max); });
  add("segment_log_softmax", [](Draw& d) { return segment_soft_of(d, Soft::LogMax); });
  add("repeat_interleave by counts", repeat_by_counts_of, Types::Numbers, false, 0);
  add(
      "quantile of several", [](Draw& d) { return quantiles_of(d, false); }, Types::Floats, true);
  add(
      "nanquantile", [](Draw& d) { return quantiles_of(d, true); }, Types::Floats, true);
  add("nanmedian", nanmedian_of, Types::Numbers, true, 0);
  add("associative_scan", recurrence_of);
  add("associative_scan of matrices", matrices_in_order);
  return rows;
}

} // namespace egret::testing

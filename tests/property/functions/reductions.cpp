#include "functions.h"

#include <algorithm>

namespace egret::testing {

namespace {

using Values = std::vector<double>;

double total(const Values& v) {
  double s = 0;
  for (double x : v)
    s += x;
  return s;
}
double larger_or_nan(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::max(a, b);
}
double top(const Values& v) {
  double t = -kInf;
  for (double x : v)
    t = larger_or_nan(t, x);
  return t;
}
double mean(const Values& v) {
  return total(v) / double(v.size());
}
double variance(const Values& v) {
  const double m = mean(v);
  double s = 0;
  for (double x : v)
    s += (x - m) * (x - m);
  return s / double(std::max(v.size(), std::size_t{1}) - 1);
}

std::optional<DType> summed(const Draw& d) {
  return !whole(d.dtype)        ? std::nullopt
         : d.dtype == DType::U8 ? std::optional(DType::U64)
                                : std::optional(DType::I64);
}
std::optional<DType> floating(const Draw& d) {
  return whole(d.dtype) ? std::optional(DType::F32) : std::nullopt;
}
std::optional<DType> same(const Draw&) {
  return std::nullopt;
}
std::optional<DType> index(const Draw&) {
  return DType::I64;
}

using Call = std::function<Tensor(const Tensor&, const Axes&, bool)>;
using TypeOf = std::optional<DType> (*)(const Draw&);

Axes given(const std::vector<std::size_t>& axes, std::size_t rank, bool negative) {
  if (axes.empty())
    return {};
  std::vector<std::int64_t> list;
  for (std::size_t axis : axes)
    list.push_back(std::int64_t(axis) - (negative ? std::int64_t(rank) : 0));
  return list;
}

// Over some axes.
Row over(std::string name, Call call, std::function<double(const Values&)> plain, Row like,
         TypeOf type = same, bool filled = false) {
  like.name = std::move(name);
  const bool ties = !like.gradient || like.special;
  like.make = [=](Draw& d) {
    const Sizes shape = d.shape(0, 3, filled);
    const auto axes = d.axes(shape.size());
    const bool keepdim = d.chance(), negative = d.chance();
    const auto result = type(d);
    const double low = like.name.starts_with("norm") ? 0.1 : -2; // norms have a kink at 0
    return one(
        {ties && d.special ? d.array(shape) : d.distinct(shape, low)},
        [=](const Tensors& t) { return call(t[0], given(axes, shape.size(), negative), keepdim); },
        [=](const Arrays& a) {
          Array r = slices(a[0], axes, keepdim, plain);
          r.type = result;
          return r;
        });
  };
  return like;
}

// Along one axis, the length kept.
Row along(std::string name, std::function<Tensors(const Tensor&, std::int64_t)> call,
          std::vector<std::function<Values(const Values&)>> plain, std::vector<TypeOf> types,
          Row like) {
  like.name = std::move(name);
  like.make = [=](Draw& d) {
    const Sizes shape = d.shape(1, 3);
    const auto axis = d.axis(shape.size());
    std::vector<std::optional<DType>> results;
    for (TypeOf type : types)
      results.push_back(type(d));
    return Instance{{d.special ? d.array(shape) : d.distinct(shape)},
                    [=](const Tensors& t) { return call(t[0], axis.given); },
                    [=](const Arrays& a) {
                      Arrays r;
                      for (std::size_t i = 0; i < plain.size(); ++i) {
                        r.push_back(lines(a[0], axis.axis, plain[i]));
                        r.back().type = results[i];
                      }
                      return r;
                    }};
  };
  return like;
}

Values running(const Values& v, const std::function<double(double, double)>& f) {
  Values r;
  for (double x : v)
    r.push_back(r.empty() ? x : f(r.back(), x));
  return r;
}

Values last_position(const Values& v, const Values& best) {
  Values r;
  double at = -1;
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (v[i] == best[i] || std::isnan(v[i]))
      at = double(i);
    r.push_back(at);
  }
  return r;
}

Values up_to(const Values& v) {
  return running(v, larger_or_nan);
}
Values down_to(const Values& v) {
  return running(v, [](double a, double b) { return -larger_or_nan(-a, -b); });
}

Values softmax_of(const Values& v) {
  const double t = top(v);
  Values r;
  double s = 0;
  for (double x : v)
    s += std::exp(x - t);
  for (double x : v)
    r.push_back(std::exp(x - t) / s);
  return r;
}

std::size_t first_top(const Values& v, double sign) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    if (std::isnan(v[i]))
      return i;
    if (sign * v[i] > sign * v[best])
      best = i;
  }
  return best;
}

Instance arg_of(Draw& d, bool largest) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const bool keepdim = d.chance(), all = d.chance(0.2);
  return one(
      {d.array(shape)},
      [=](const Tensors& t) {
        const auto along = all ? std::optional<std::int64_t>{} : axis.given;
        return largest ? argmax(t[0], along, keepdim) : argmin(t[0], along, keepdim);
      },
      [=](const Arrays& a) {
        return slices(a[0], all ? std::vector<std::size_t>{} : std::vector{axis.axis}, keepdim,
                      [=](const Values& v) { return double(first_top(v, largest ? 1 : -1)); })
            .as(DType::I64);
      });
}

} // namespace

std::vector<Row> reduction_rows() {
  using T = const Tensor&;
  using X = const Axes&;
  const Row numbers{"", {}, Types::All, true, true, 4}, floats{"", {}, Types::All, true, true, 4},
      finite{"", {}, Types::Floats, true, false, 8}, exact{"", {}, Types::All, true, true, 0},
      flat{"", {}, Types::All, false, true, 4};
  std::vector<Row> rows = {
      over(
          "sum", [](T a, X x, bool k) { return sum(a, x, k); }, total, numbers, summed),
      over(
          "mean", [](T a, X x, bool k) { return egret::mean(a, x, k); }, mean, floats, floating),
      over(
          "var", [](T a, X x, bool k) { return var(a, x, k); }, variance, finite),
      over(
          "stddev", [](T a, X x, bool k) { return stddev(a, x, k, 0.5); },
          [](const Values& v) {
            const double n = double(v.size());
            return std::sqrt((v.size() == 1 ? 0 : variance(v) * (n - 1)) / std::max(n - 0.5, 0.0));
          },
          {"", {}, Types::Floats, false, false, 8}),
      over(
          "var_mean", [](T a, X x, bool k) { return var_mean(a, x, k, 0).mean; }, mean, floats,
          floating),
      over(
          "std_mean",
          [](T a, X x, bool k) {
            const Moments m = std_mean(a, x, k);
            return m.spread * m.spread - var(a, x, k) + m.mean;
          },
          [](const Values& v) { return v.size() < 2 ? kNan : mean(v); },
          {"", {}, Types::Floats, false, false, 16}),
      over(
          "prod", [](T a, X x, bool k) { return prod(a, x, k); },
          [](const Values& v) {
            double p = 1;
            for (double x : v)
              p *= x;
            return p;
          },
          finite),
      over(
          "max", [](T a, X x, bool k) { return max(a, x, k); }, top, exact, same, true),
      over(
          "amax", [](T a, X x, bool k) { return amax(a, x, k); }, top, exact, same, true),
      over(
          "min", [](T a, X x, bool k) { return min(a, x, k); },
          [](const Values& v) {
            double t = kInf;
            for (double x : v)
              t = -larger_or_nan(-t, -x);
            return t;
          },
          exact, same, true),
      over(
          "amin", [](T a, X x, bool k) { return amin(a, x, k); },
          [](const Values& v) {
            double t = kInf;
            for (double x : v)
              t = -larger_or_nan(-t, -x);
            return t;
          },
          exact, same, true),
      over(
          "any", [](T a, X x, bool k) { return any(a, x, k); },
          [](const Values& v) {
            return double(std::any_of(v.begin(), v.end(), [](double x) { return x != 0; }));
          },
          flat, [](const Draw&) { return std::optional(DType::Bool); }),
      over(
          "all", [](T a, X x, bool k) { return all(a, x, k); },
          [](const Values& v) {
            return double(std::all_of(v.begin(), v.end(), [](double x) { return x != 0; }));
          },
          flat, [](const Draw&) { return std::optional(DType::Bool); }),
      over(
          "count_nonzero", [](T a, X x, bool k) { return count_nonzero(a, x, k); },
          [](const Values& v) {
            return double(std::count_if(v.begin(), v.end(), [](double x) { return x != 0; }));
          },
          flat, index),
      over(
          "nansum", [](T a, X x, bool k) { return nansum(a, x, k); },
          [](const Values& v) {
            double s = 0;
            for (double x : v)
              s += std::isnan(x) ? 0 : x;
            return s;
          },
          floats, summed),
      over(
          "nanmean", [](T a, X x, bool k) { return nanmean(a, x, k); },
          [](const Values& v) {
            double s = 0, n = 0;
            for (double x : v)
              if (!std::isnan(x)) {
                s += x;
                ++n;
              }
            return s / n;
          },
          floats, floating),
  };
  for (double p : {0.0, 1.0, 2.0, 3.5, kInf, -kInf})
    rows.push_back(over(
        "norm " + std::to_string(p), [p](T a, X x, bool k) { return norm(a, x, k, p); },
        [p](const Values& v) {
          double s = p == -kInf ? kInf : 0;
          for (double x : v)
            s = p == kInf    ? std::max(s, std::abs(x))
                : p == -kInf ? std::min(s, std::abs(x))
                : p == 0     ? s + double(x != 0)
                             : s + std::pow(std::abs(x), p);
          return std::isinf(p) || p == 0 ? s : std::pow(s, 1 / p);
        },
        {"", {}, Types::Floats, p != 0, false, 8}, same, std::isinf(p)));
  rows.push_back(along(
      "cumsum", [](T a, std::int64_t x) { return Tensors{cumsum(a, x)}; },
      {[](const Values& v) { return running(v, [](double a, double b) { return a + b; }); }},
      {summed}, numbers));
  rows.push_back(along(
      "cumprod", [](T a, std::int64_t x) { return Tensors{cumprod(a, x)}; },
      {[](const Values& v) { return running(v, [](double a, double b) { return a * b; }); }},
      {same}, finite));
  rows.push_back(along("cummax",
                       [](T a, std::int64_t x) {
                         const Extreme e = cummax(a, x);
                         return Tensors{e.values, e.indices};
                       },
                       {up_to, [](const Values& v) { return last_position(v, up_to(v)); }},
                       {same, index}, {"", {}, Types::All, true, true, 1}));
  rows.push_back(along("cummin",
                       [](T a, std::int64_t x) {
                         const Extreme e = cummin(a, x);
                         return Tensors{e.values, e.indices};
                       },
                       {down_to, [](const Values& v) { return last_position(v, down_to(v)); }},
                       {same, index}, {"", {}, Types::All, true, true, 1}));
  rows.push_back(
      along("logcumsumexp", [](T a, std::int64_t x) { return Tensors{logcumsumexp(a, x)}; },
            {[](const Values& v) {
              return running(v, [](double a, double b) {
                return a == b ? a + std::log(2.0)
                              : larger_or_nan(a, b) + std::log1p(std::exp(-std::abs(a - b)));
              });
            }},
            {same}, {"", {}, Types::Floats, true, true, 4}));
  rows.push_back(along(
      "softmax", [](T a, std::int64_t x) { return Tensors{softmax(a, x)}; }, {softmax_of}, {same},
      finite));
  rows.push_back(along(
      "softmin", [](T a, std::int64_t x) { return Tensors{softmin(a, x)}; }, {[](Values v) {
        for (double& x : v)
          x = -x;
        return softmax_of(v);
      }},
      {same}, finite));
  rows.push_back(along(
      "log_softmax", [](T a, std::int64_t x) { return Tensors{log_softmax(a, x)}; },
      {[](const Values& v) {
        Values r = softmax_of(v);
        for (double& x : r)
          x = std::log(x);
        return r;
      }},
      {same}, finite));
  rows.push_back({"logsumexp",
                  [](Draw& d) {
                    const Sizes shape = d.shape(1, 3);
                    const auto axis = d.axis(shape.size());
                    const bool keepdim = d.chance();
                    return one(
                        {d.array(shape)},
                        [=](const Tensors& t) { return logsumexp(t[0], axis.given, keepdim); },
                        [=](const Arrays& a) {
                          return slices(a[0], {axis.axis}, keepdim, [](const Values& v) {
                            const double t = top(v);
                            if (!std::isfinite(t))
                              return t;
                            double s = 0;
                            for (double x : v)
                              s += std::exp(x - t);
                            return t + std::log(s);
                          });
                        });
                  },
                  Types::Floats, true, true, 4});
  rows.push_back({"argmax", [](Draw& d) { return arg_of(d, true); }, Types::All, false, true, 0});
  rows.push_back({"argmin", [](Draw& d) { return arg_of(d, false); }, Types::All, false, true, 0});
  return rows;
}

} // namespace egret::testing

#include "functions.h"

#include <algorithm>
#include <numeric>

namespace egret::testing {

namespace {

using Values = std::vector<double>;

// NaN is largest.
bool less(double a, double b) {
  return std::isnan(b) ? !std::isnan(a) : a < b;
}

Values order_of(const Values& v, bool descending) {
  Values order(v.size());
  std::iota(order.begin(), order.end(), 0.0);
  std::stable_sort(order.begin(), order.end(), [&](double i, double j) {
    const double a = v[std::size_t(i)], b = v[std::size_t(j)];
    return descending ? less(b, a) : less(a, b);
  });
  return order;
}

Values at(const Values& v, const Values& places) {
  Values r;
  for (double i : places)
    r.push_back(v[std::size_t(i)]);
  return r;
}

Values first(Values v, std::int64_t n) {
  v.resize(std::size_t(n));
  return v;
}

// Values with ties now and then, none where gradients are checked.
Array operand(Draw& d, const Sizes& shape) {
  return d.special ? d.array(shape) : d.distinct(shape);
}

// Results: values and positions, both made of each line's order.
Instance placed(Draw& d, const Sizes& shape, Draw::Axis axis,
                std::function<Sorted(const Tensor&)> call,
                std::function<Values(const Values&)> places, bool reduced = false) {
  return {{operand(d, shape)},
          [=](const Tensors& t) {
            const Sorted s = call(t[0]);
            return Tensors{s.values, s.indices};
          },
          [=](const Arrays& a) {
            Array values =
                lines(a[0], axis.axis, [&](const Values& v) { return at(v, places(v)); });
            Array indices = lines(a[0], axis.axis, places);
            indices.type = DType::I64;
            if (reduced)
              for (Array* r : {&values, &indices})
                r->shape.erase(r->shape.begin() + std::ptrdiff_t(axis.axis));
            return Arrays{values, indices};
          }};
}

Instance sort_of(Draw& d, bool long_lines) {
  Sizes shape = long_lines ? d.shape(1, 2, true, 2) : d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  if (long_lines)
    shape[axis.axis] = d.between(513, 600);
  const bool descending = d.chance();
  return placed(
      d, shape, axis, [=](const Tensor& t) { return sort(t, axis.given, descending); },
      [=](const Values& v) { return order_of(v, descending); });
}

Instance argsort_of(Draw& d) {
  const Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  const bool descending = d.chance();
  return one(
      {operand(d, shape)}, [=](const Tensors& t) { return argsort(t[0], axis.given, descending); },
      [=](const Arrays& a) {
        return lines(a[0], axis.axis, [=](const Values& v) { return order_of(v, descending); })
            .as(DType::I64);
      });
}

Instance topk_of(Draw& d) {
  const Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  const std::int64_t k = d.between(0, shape[axis.axis]);
  const bool largest = d.chance();
  return placed(
      d, shape, axis, [=](const Tensor& t) { return topk(t, k, axis.given, largest); },
      [=](const Values& v) { return first(order_of(v, largest), k); });
}

Instance kthvalue_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const std::int64_t k = d.between(1, shape[axis.axis]);
  const bool keepdim = d.chance();
  return placed(
      d, shape, axis, [=](const Tensor& t) { return kthvalue(t, k, axis.given, keepdim); },
      [=](const Values& v) { return Values{order_of(v, false)[std::size_t(k - 1)]}; }, !keepdim);
}

Instance median_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const bool keepdim = d.chance();
  return placed(
      d, shape, axis, [=](const Tensor& t) { return median(t, axis.given, keepdim); },
      [=](const Values& v) {
        for (std::size_t i = 0; i < v.size(); ++i)
          if (std::isnan(v[i]))
            return Values{double(i)};
        return Values{order_of(v, false)[(v.size() - 1) / 2]};
      },
      !keepdim);
}

Instance mode_of(Draw& d) {
  const Sizes shape = d.shape(1, 2, true, 8);
  const auto axis = d.axis(shape.size());
  const bool keepdim = d.chance();
  return placed(
      d, shape, axis, [=](const Tensor& t) { return mode(t, axis.given, keepdim); },
      [=](const Values& v) {
        const Values sorted = at(v, order_of(v, false));
        auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
        double best = sorted[0];
        std::ptrdiff_t most = 0;
        for (double x : sorted) {
          const auto n = std::count_if(v.begin(), v.end(), [&](double y) { return same(x, y); });
          if (n > most) {
            most = n;
            best = x;
          }
        }
        for (std::size_t i = v.size(); i-- > 0;)
          if (same(v[i], best))
            return Values{double(i)};
        return Values{};
      },
      !keepdim);
}

Instance quantile_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const double q = d.pick({0.0, 0.25, 0.5, 0.9, 1.0});
  return one(
      {d.distinct(shape)}, [=](const Tensors& t) { return quantile(t[0], q, axis.given, true); },
      [=](const Arrays& a) {
        return lines(a[0], axis.axis, [=](Values v) {
          std::sort(v.begin(), v.end());
          const double place = q * double(v.size() - 1);
          const auto i = std::size_t(place);
          const double above = v[std::min(i + 1, v.size() - 1)];
          return Values{v[i] + (place - double(i)) * (above - v[i])};
        });
      });
}

Instance searchsorted_of(Draw& d, bool bucket) {
  const bool vector = bucket || d.chance(), right = d.chance();
  const Sizes head = d.shape(0, 2, true);
  const std::int64_t n = d.below(9), m = d.below(5);
  Sizes line = vector ? Sizes{} : head, values = head;
  line.push_back(n);
  values.push_back(m);
  Array sorted = d.integers(line, -5, 5, DType::F32);
  sorted = lines(sorted, line.size() - 1, [](Values v) {
    std::sort(v.begin(), v.end());
    return v;
  });
  sorted.type = DType::F32;
  return one(
      {sorted, d.integers(values, -6, 6, DType::F32)},
      [=](const Tensors& t) {
        return bucket ? bucketize(t[1], t[0], right) : searchsorted(t[0], t[1], right);
      },
      [=](const Arrays& a) {
        return Array(values,
                     [&](const Sizes& where) {
                       double count = 0;
                       Sizes place = vector ? Sizes{0} : where;
                       for (place.back() = 0; place.back() < n; ++place.back())
                         count += right ? a[0][place] <= a[1][where] : a[0][place] < a[1][where];
                       return count;
                     })
            .as(DType::I64);
      });
}

} // namespace

std::vector<Row> order_rows() {
  std::vector<Row> rows;
  auto add = [&](const char* name, std::function<Instance(Draw&)> make, bool gradient = true) {
    rows.push_back({name, std::move(make), Types::All, gradient, true, 1});
  };
  add("sort", [](Draw& d) { return sort_of(d, false); });
  add(
      "sort of long lines", [](Draw& d) { return sort_of(d, true); }, false);
  add("argsort", argsort_of, false);
  add("topk", topk_of);
  add("kthvalue", kthvalue_of);
  add("median", median_of);
  add("mode", mode_of);
  add(
      "searchsorted", [](Draw& d) { return searchsorted_of(d, false); }, false);
  add(
      "bucketize", [](Draw& d) { return searchsorted_of(d, true); }, false);
  rows.push_back({"quantile", quantile_of, Types::Floats, true, false});
  return rows;
}

} // namespace egret::testing

// Bags of rows, and copies to places that are data.
#include "collections.h"

#include <algorithm>

namespace egret::testing {

namespace {

// The combination of some rows.
std::vector<double> bag(const Array& weight, const std::vector<std::int64_t>& rows,
                        const std::vector<double>& factors, Bag mode) {
  std::vector<double> y(std::size_t(weight.shape[1]),
                        mode == Bag::Max && !rows.empty() ? -kInf : 0);
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::int64_t c = 0; c < weight.shape[1]; ++c) {
      const double x = weight[{rows[i], c}] * factors[i];
      double& into = y[std::size_t(c)];
      into = mode == Bag::Max ? std::max(into, x) : into + x;
    }
  if (mode == Bag::Mean && !rows.empty())
    for (double& x : y)
      x /= double(rows.size());
  return y;
}

Instance bag_of(Draw& d, bool with_offsets) {
  const std::int64_t entries = d.between(2, 5), width = d.between(1, 3), bags = d.between(1, 3),
                     n = with_offsets ? d.between(1, 6) : d.between(1, 4);
  const Sizes shape = with_offsets ? Sizes{n} : Sizes{bags, n};
  EmbeddingBagOptions options{.mode = d.pick({Bag::Sum, Bag::Mean, Bag::Max})};
  if (d.chance())
    options.padding_idx = 1;
  const bool weighted = options.mode == Bag::Sum && d.chance();
  Array offsets({bags});
  for (std::int64_t b = 1; b < bags; ++b)
    offsets.values[std::size_t(b)] =
        std::min(double(n), offsets.values[std::size_t(b - 1)] + double(d.below(4)));
  offsets.type = DType::I64;
  Arrays operands = {d.distinct({entries, width}), d.integers(shape, 0, entries - 1), offsets};
  if (weighted)
    operands.push_back(d.array(shape));
  return one(
      operands,
      [=](const Tensors& t) {
        EmbeddingBagOptions o = options;
        if (weighted)
          o.weights = t[3];
        return with_offsets ? embedding_bag(t[0], t[1], t[2], o) : embedding_bag(t[0], t[1], o);
      },
      [=](const Arrays& a) {
        Array y({bags, width});
        for (std::int64_t b = 0; b < bags; ++b) {
          std::vector<std::int64_t> rows;
          std::vector<double> factors;
          const auto begin = with_offsets ? std::int64_t(a[2].values[std::size_t(b)]) : b * n;
          const auto end = !with_offsets  ? begin + n
                           : b + 1 < bags ? std::int64_t(a[2].values[std::size_t(b + 1)])
                                          : n;
          for (std::int64_t i = begin; i < end; ++i) {
            const auto row = std::int64_t(a[1].values[std::size_t(i)]);
            if (options.padding_idx && row == 1)
              continue;
            rows.push_back(row);
            factors.push_back(weighted ? a[3].values[std::size_t(i)] : 1);
          }
          const auto values = bag(a[0], rows, factors, options.mode);
          std::copy(values.begin(), values.end(), y.values.begin() + b * width);
        }
        return y;
      });
}

Instance index_copy_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const std::int64_t n = shape[axis.axis], count = d.between(0, n), first = d.below(n);
  Array index({count}, [=](const Sizes& at) { return double((first + at[0]) % n); });
  index.type = DType::I64;
  Sizes given = shape;
  given[axis.axis] = count;
  return one(
      {d.array(shape), index, d.array(given)},
      [=](const Tensors& t) { return index_copy(t[0], axis.given, t[1], t[2]); },
      [=](const Arrays& a) {
        Array y = a[0];
        each(given, [&](const Sizes& at) {
          Sizes to = at;
          to[axis.axis] = std::int64_t(a[1].values[std::size_t(at[axis.axis])]);
          y[to] = a[2][at];
        });
        return y;
      });
}

Instance masked_scatter_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  return one(
      {d.array(shape), d.mask(d.broadcastable(shape)), d.array({count_of(shape)})},
      [](const Tensors& t) { return masked_scatter(t[0], t[1], t[2]); },
      [=](const Arrays& a) {
        std::size_t next = 0;
        return Array(shape, [&](const Sizes& at) {
          return a[1].wide(at) != 0 ? a[2].values[next++] : a[0][at];
        });
      });
}

Instance scatter_prod_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  Sizes some = shape;
  for (auto& n : some)
    n = d.between(1, n);
  some[axis.axis] = d.between(1, 4);
  const bool self = d.chance();
  return one(
      {d.array(shape), d.integers(some, 0, shape[axis.axis] - 1), d.array(some)},
      [=](const Tensors& t) { return scatter(t[0], axis.given, t[1], t[2], Scatter::Prod, self); },
      [=](const Arrays& a) {
        Array y = a[0];
        std::vector<bool> met(y.values.size());
        each(some, [&](const Sizes& at) {
          Sizes to = at;
          to[axis.axis] = std::int64_t(a[1][at]);
          const std::size_t place = y.place(to);
          if (!met[place] && !self)
            y.values[place] = 1;
          met[place] = true;
          y.values[place] *= a[2][at];
        });
        return y;
      });
}

Instance part_scatter_of(Draw& d, bool slice) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const std::int64_t begin = d.below(shape[axis.axis]), step = d.between(1, 2);
  Sizes part = shape;
  part[axis.axis] = (shape[axis.axis] - begin + step - 1) / step;
  if (!slice)
    part.erase(part.begin() + std::ptrdiff_t(axis.axis));
  return one(
      {d.array(shape), d.array(part)},
      [=](const Tensors& t) {
        return slice ? slice_scatter(t[0], t[1], axis.given, Slice(begin, {}, step))
                     : select_scatter(t[0], t[1], axis.given, begin);
      },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& at) {
          Sizes from = at;
          const std::int64_t i = at[axis.axis] - begin;
          if (slice ? i < 0 || i % step != 0 : i != 0)
            return a[0][at];
          if (slice)
            from[axis.axis] = i / step;
          else
            from.erase(from.begin() + std::ptrdiff_t(axis.axis));
          return a[1][from];
        });
      });
}

} // namespace

std::vector<Row> bag_rows() {
  std::vector<Row> rows;
  auto add = [&](const char* name, std::function<Instance(Draw&)> make,
                 Types types = Types::Floats) {
    rows.push_back({name, std::move(make), types, true, false, 4});
  };
  add("embedding_bag", [](Draw& d) { return bag_of(d, false); });
  add("embedding_bag with offsets", [](Draw& d) { return bag_of(d, true); });
  add("index_copy", index_copy_of, Types::Numbers);
  add("masked_scatter", masked_scatter_of, Types::Numbers);
  add("scatter prod", scatter_prod_of, Types::Numbers);
  add(
      "slice_scatter", [](Draw& d) { return part_scatter_of(d, true); }, Types::All);
  add(
      "select_scatter", [](Draw& d) { return part_scatter_of(d, false); }, Types::All);
  return rows;
}

} // namespace egret::testing

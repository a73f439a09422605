#include "functions.h"

#include <algorithm>

namespace egret::testing {

namespace {

Sizes replaced(const Sizes& shape, std::size_t axis, const Sizes& dims) {
  Sizes r(shape.begin(), shape.begin() + std::ptrdiff_t(axis));
  r.insert(r.end(), dims.begin(), dims.end());
  r.insert(r.end(), shape.begin() + std::ptrdiff_t(axis) + 1, shape.end());
  return r;
}

DType index_type(Draw& d) {
  return d.pick({DType::I64, DType::I32, DType::I8});
}

// data's axis by the dims of an index, some of which is out of range.
Instance take_of(Draw& d, int kind) {
  const Sizes data = kind == 2 ? d.shape(2, 2) : d.shape(1, 3);
  const auto axis = kind == 2 ? Draw::Axis{0, 0} : d.axis(data.size());
  const Sizes dims = kind == 1 ? d.shape(1, 1) : d.shape(0, 2);
  const std::int64_t n = data[axis.axis];
  return one(
      {d.array(data), d.integers(dims, -1, n, index_type(d))},
      [=](const Tensors& t) {
        return kind == 0   ? take(t[0], t[1], axis.given)
               : kind == 1 ? index_select(t[0], axis.given, t[1])
                           : embedding(t[0], t[1]);
      },
      [=](const Arrays& a) {
        return Array(replaced(data, axis.axis, dims), [&](const Sizes& at) {
          const auto from = at.begin() + std::ptrdiff_t(axis.axis);
          const auto i = std::int64_t(a[1][Sizes(from, from + std::ptrdiff_t(dims.size()))]);
          if (i < 0 || i >= n)
            return 0.0;
          Sizes place(at.begin(), from);
          place.push_back(i);
          place.insert(place.end(), from + std::ptrdiff_t(dims.size()), at.end());
          return a[0][place];
        });
      });
}

Instance put_of(Draw& d, int kind) { // set, add, fill
  const Sizes data = d.shape(1, 3);
  const auto axis = d.axis(data.size());
  const Sizes dims = d.shape(1, kind == 2 ? 1 : 2);
  const std::int64_t n = data[axis.axis];
  return one(
      {d.array(data), d.integers(dims, -1, n, index_type(d)),
       d.array(replaced(data, axis.axis, dims))},
      [=](const Tensors& t) {
        return kind == 0   ? index_put(t[0], t[1], t[2], axis.given)
               : kind == 1 ? index_add(t[0], t[1], t[2], axis.given)
                           : index_fill(t[0], axis.given, t[1], 1);
      },
      [=](const Arrays& a) {
        Array r = a[0];
        r.type = {};
        each(a[2].shape, [&](const Sizes& at) {
          const auto from = at.begin() + std::ptrdiff_t(axis.axis);
          const auto i = std::int64_t(a[1][Sizes(from, from + std::ptrdiff_t(dims.size()))]);
          if (i < 0 || i >= n)
            return;
          Sizes place(at.begin(), from);
          place.push_back(i);
          place.insert(place.end(), from + std::ptrdiff_t(dims.size()), at.end());
          r[place] = kind == 0 ? a[2][at] : kind == 1 ? r[place] + a[2][at] : 1;
        });
        return r;
      });
}

Instance gather_of(Draw& d) {
  const Sizes data = d.shape(1, 3, true);
  const auto axis = d.axis(data.size());
  Sizes dims = data;
  for (std::size_t i = 0; i < dims.size(); ++i)
    dims[i] = i == axis.axis ? d.below(5) : d.between(1, dims[i]);
  const std::int64_t n = data[axis.axis];
  return one(
      {d.array(data), d.integers(dims, -1, n, index_type(d))},
      [=](const Tensors& t) { return gather(t[0], axis.given, t[1]); },
      [=](const Arrays& a) {
        return Array(dims, [&](Sizes at) {
          const auto i = std::int64_t(a[1][at]);
          at[axis.axis] = i;
          return i < 0 || i >= n ? 0 : a[0][at];
        });
      });
}

Instance take_along_dim_of(Draw& d) {
  Sizes data = d.shape(1, 3, true), dims = data;
  const auto axis = d.axis(data.size());
  dims[axis.axis] = d.between(1, 4);
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (i != axis.axis && d.chance(0.4))
      (d.chance() ? dims : data)[i] = 1;
  const std::int64_t n = data[axis.axis];
  return one(
      {d.array(data), d.integers(dims, 0, n - 1)},
      [=](const Tensors& t) { return take_along_dim(t[0], t[1], axis.given); },
      [=](const Arrays& a) {
        Sizes p = data, q = dims;
        p[axis.axis] = q[axis.axis] = 1;
        Sizes out = broadcast(p, q);
        out[axis.axis] = dims[axis.axis];
        return Array(out, [&](Sizes at) {
          const auto i = std::int64_t(a[1].wide(at));
          at[axis.axis] = i;
          return a[0].wide(at);
        });
      });
}

Instance scatter_of(Draw& d, Scatter how) {
  const Sizes data = d.shape(1, 3, true);
  const auto axis = d.axis(data.size());
  Sizes dims = data, source = data;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    dims[i] = i == axis.axis ? d.below(5) : d.between(1, dims[i]);
    source[i] = dims[i] + d.below(2);
  }
  const bool self = how == Scatter::Set || how == Scatter::Add || d.chance();
  const std::int64_t n = data[axis.axis];
  const bool rounds_down = whole(d.dtype);
  return one(
      {d.distinct(data), d.integers(dims, -1, n), d.distinct(source, 2.1, 4)},
      [=](const Tensors& t) { return scatter(t[0], axis.given, t[1], t[2], how, self); },
      [=](const Arrays& a) {
        Array r = a[0], met(data);
        each(dims, [&](const Sizes& at) {
          const auto i = std::int64_t(a[1][at]);
          if (i < 0 || i >= n)
            return;
          Sizes place = at;
          place[axis.axis] = i;
          double& x = r[place];
          const double u = a[2][at];
          const bool first = met[place] == 0 && !self;
          met[place] += 1;
          x = how == Scatter::Set || first ? u
              : how == Scatter::Max        ? std::max(x, u)
              : how == Scatter::Min        ? std::min(x, u)
                                           : x + u;
        });
        if (how == Scatter::Mean)
          for (std::size_t i = 0; i < r.values.size(); ++i)
            if (met.values[i] > 0) {
              r.values[i] /= met.values[i] + (self ? 1 : 0);
              if (rounds_down)
                r.values[i] = std::floor(r.values[i]);
            }
        return r;
      });
}

// a[i, 1:, j] and the like, against NumPy's rule.
Instance index_of(Draw& d, int kind, bool assign) {
  const Sizes data = {d.between(2, 4), d.between(2, 4), d.between(1, 3)};
  const Sizes dims = d.shape(0, 2, true), other = d.broadcastable(dims);
  const std::int64_t p = data[0], q = data[1], r = data[2];
  Arrays operands = {d.array(data), d.integers(dims, -p, p - 1),
                     d.integers(other, kind == 1 ? -q : -r, (kind == 1 ? q : r) - 1)};
  Sizes out = dims;
  if (kind == 0) // a[:, x]
    out = replaced({p, q, r}, 1, dims);
  else if (kind == 1) // a[x, y]
    out.push_back(r);
  else if (kind == 2) // a[x, 1:, z]: not side by side
    out.push_back(q - 1);
  else // a[x, ..., 0]
    out.push_back(q);
  if (kind == 0)
    operands[1] = d.integers(dims, -q, q - 1);
  if (assign)
    operands.push_back(d.array(out));
  auto list = [=](const Tensors& t) -> std::vector<At> {
    if (kind == 0)
      return {Slice::all(), t[1]};
    if (kind == 1)
      return {t[1], t[2]};
    if (kind == 2)
      return {t[1], Slice(1, {}), t[2]};
    return {t[1], Ellipsis{}, 0};
  };
  auto from = [=](const Arrays& a, const Sizes& at) -> Sizes {
    auto pick = [](const Array& x, const Sizes& place, std::int64_t n) {
      const auto i = std::int64_t(x.wide(place));
      return i < 0 ? i + n : i;
    };
    const auto rank = std::ptrdiff_t(dims.size());
    const Sizes front(at.begin(), at.begin() + std::min(rank, std::ptrdiff_t(at.size())));
    if (kind == 0)
      return {at[0], pick(a[1], Sizes(at.begin() + 1, at.begin() + 1 + rank), q), at.back()};
    if (kind == 1)
      return {pick(a[1], front, p), pick(a[2], front, q), at.back()};
    if (kind == 2)
      return {pick(a[1], front, p), at.back() + 1, pick(a[2], front, r)};
    return {pick(a[1], front, p), at.back(), 0};
  };
  return one(
      operands,
      [=](const Tensors& t) {
        return assign ? index_assign(t[0], list(t), t[3], true) : index(t[0], list(t));
      },
      [=](const Arrays& a) {
        if (!assign)
          return Array(out, [&](const Sizes& at) { return a[0][from(a, at)]; });
        Array result = a[0];
        each(out, [&](const Sizes& at) { result[from(a, at)] += a[3][at]; });
        return result;
      });
}

Instance one_hot_of(Draw& d) {
  const Sizes dims = d.shape(0, 2);
  const std::int64_t classes = d.below(4);
  return one(
      {d.integers(dims, -1, 4)}, [=](const Tensors& t) { return one_hot(t[0], classes); },
      [=](const Arrays& a) {
        Sizes out = dims;
        out.push_back(classes);
        return Array(out,
                     [&](const Sizes& at) {
                       return double(a[0][Sizes(at.begin(), at.end() - 1)] == double(at.back()));
                     })
            .as(DType::F32);
      });
}

Instance bincount_of(Draw& d) {
  const Sizes dims = d.shape(1, 1, false, 9);
  const std::int64_t length = d.below(5);
  const bool weighted = d.chance();
  const auto type = weighted ? std::optional<DType>{} : DType::I64;
  return one(
      {d.integers(dims, -1, 5), d.array(dims)},
      [=](const Tensors& t) { return bincount(t[0], length, weighted ? t[1] : Tensor()); },
      [=](const Arrays& a) {
        Array r({length});
        for (std::size_t i = 0; i < a[0].values.size(); ++i)
          if (a[0].values[i] >= 0 && a[0].values[i] < double(length))
            r.values[std::size_t(a[0].values[i])] += weighted ? a[1].values[i] : 1;
        r.type = type;
        return r;
      });
}

Instance isin_of(Draw& d) {
  const Sizes dims = d.shape(0, 2), set = d.shape(0, 1);
  return one(
      {d.integers(dims, 0, 5), d.integers(set, 0, 5)},
      [](const Tensors& t) { return isin(t[0], t[1]); },
      [](const Arrays& a) {
        return map(a[0],
                   [&](double x) {
                     return double(std::count(a[1].values.begin(), a[1].values.end(), x) > 0);
                   })
            .as(DType::Bool);
      });
}

} // namespace

std::vector<Row> index_rows() {
  std::vector<Row> rows;
  auto add = [&](const char* name, std::function<Instance(Draw&)> make, Types types = Types::All,
                 bool special = true, double slack = 0) {
    rows.push_back({name, std::move(make), types, true, special, slack});
  };
  add("take", [](Draw& d) { return take_of(d, 0); });
  add("index_select", [](Draw& d) { return take_of(d, 1); });
  add("embedding", [](Draw& d) { return take_of(d, 2); });
  add("index_put", [](Draw& d) { return put_of(d, 0); });
  add(
      "index_add", [](Draw& d) { return put_of(d, 1); }, Types::Numbers, false, 4);
  add("index_fill", [](Draw& d) { return put_of(d, 2); });
  add("gather", gather_of);
  add("take_along_dim", take_along_dim_of);
  add(
      "scatter", [](Draw& d) { return scatter_of(d, Scatter::Set); }, Types::Numbers, false);
  add(
      "scatter add", [](Draw& d) { return scatter_of(d, Scatter::Add); }, Types::Numbers, false, 4);
  add(
      "scatter max", [](Draw& d) { return scatter_of(d, Scatter::Max); }, Types::Numbers, false);
  add(
      "scatter min", [](Draw& d) { return scatter_of(d, Scatter::Min); }, Types::Numbers, false);
  add(
      "scatter mean", [](Draw& d) { return scatter_of(d, Scatter::Mean); }, Types::Numbers, false,
      4);
  add("index", [](Draw& d) { return index_of(d, int(d.below(4)), false); });
  add(
      "index_assign", [](Draw& d) { return index_of(d, int(d.below(4)), true); }, Types::Numbers,
      false, 4);
  add("bincount", bincount_of, Types::Numbers, false, 4);
  for (Row row : {Row{"one_hot", one_hot_of}, Row{"isin", isin_of}}) {
    row.gradient = false;
    rows.push_back(row);
  }
  return rows;
}

} // namespace egret::testing

#include "functions.h"

#include <algorithm>
#include <map>

namespace egret::testing {

namespace {

Sizes product_shape(Sizes a, const Sizes& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Einstein's sum in plain loops over all letters.
Array einstein(const std::string& left, const std::string& right, const Arrays& operands) {
  std::vector<std::string> names(1);
  for (char c : left)
    if (c == ',')
      names.emplace_back();
    else
      names.back() += c;
  std::map<char, std::int64_t> sizes;
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t k = 0; k < names[i].size(); ++k)
      sizes[names[i][k]] = std::max(sizes[names[i][k]], operands[i].shape[k]);
  Sizes out, all;
  std::string letters = right;
  for (char c : right)
    out.push_back(sizes[c]);
  all = out;
  for (auto [c, size] : sizes)
    if (right.find(c) == std::string::npos) {
      letters += c;
      all.push_back(size);
    }
  Array result(out);
  each(all, [&](const Sizes& at) {
    double product = 1;
    for (std::size_t i = 0; i < names.size(); ++i) {
      Sizes place;
      for (char c : names[i])
        place.push_back(at[letters.find(c)]);
      product *= operands[i].wide(place);
    }
    result[Sizes(at.begin(), at.begin() + std::ptrdiff_t(out.size()))] += product;
  });
  return result;
}

// A function that is the Einstein sum of its operands, whose letters have random sizes.
Instance summing(Draw& d, const std::string& left, const std::string& right,
                 std::function<Tensor(const Tensors&)> call) {
  std::map<char, std::int64_t> sizes;
  Arrays operands;
  Sizes shape;
  for (char c : left + ",") {
    if (c == ',') {
      operands.push_back(d.array(shape));
      shape.clear();
      continue;
    }
    if (!sizes.count(c))
      sizes[c] = d.chance(0.05) ? 0 : d.between(1, 4);
    shape.push_back(sizes[c]);
  }
  return one(operands, std::move(call), [=](const Arrays& a) { return einstein(left, right, a); });
}

Instance einsum_of(Draw& d) {
  struct Formula {
    const char *left, *right, *given;
  };
  const auto f = d.pick<Formula>({{"ij,jk", "ik", "ij,jk->ik"},
                                  {"ij,jk", "ik", "ij,jk"},
                                  {"bij,bjk", "bik", "bij,bjk->bik"},
                                  {"ii", "i", "ii->i"},
                                  {"ii", "", "ii"},
                                  {"ij", "ji", "ij -> ji"},
                                  {"ijk", "", "ijk->"},
                                  {"i,j", "ij", "i,j->ij"},
                                  {"i,i", "", "i,i"},
                                  {"ij,ij", "ij", "ij,ij->ij"},
                                  {"ij,jk,kl", "il", "ij,jk,kl->il"},
                                  {"bn,anm,bm", "ba", "bn,anm,bm->ba"},
                                  {"iij,jk", "ki", "iij,jk->ki"},
                                  {"abij,abjk", "abik", "...ij,...jk->...ik"},
                                  {"abij,jk", "abik", "...ij,jk->...ik"},
                                  {"abc,c", "abc", "...c,c->...c"},
                                  {"bhqd,bhkd", "bhqk", "bhqd,bhkd->bhqk"}});
  return summing(d, f.left, f.right,
                 [=](const Tensors& t) { return einsum(f.given, std::span(t)); });
}

Instance matmul_of(Draw& d) {
  const std::int64_t m = d.below(5), k = d.below(5), n = d.below(5);
  const bool row = d.chance(0.2), column = d.chance(0.2);
  const Sizes batch = d.shape(0, 2), a = row ? Sizes{k} : product_shape(batch, {m, k}),
              b = column ? Sizes{k} : product_shape(row ? batch : d.broadcastable(batch), {k, n});
  return one(
      {d.array(a), d.array(b)}, [](const Tensors& t) { return matmul(t[0], t[1]); },
      [=](const Arrays& x) {
        Sizes out = row && column ? Sizes{} : batch;
        if (!row)
          out.push_back(m);
        if (!column)
          out.push_back(n);
        return Array(out, [&](const Sizes& at) {
          double total = 0;
          Sizes left = at, right = at;
          if (!column)
            left.pop_back();
          const auto j = column ? 0 : at.back();
          right.resize(right.size() - (row ? 0 : 1) - (column ? 0 : 1));
          for (std::int64_t i = 0; i < k; ++i) {
            const Sizes p = row ? Sizes{i} : product_shape(left, {i});
            const Sizes q = column ? Sizes{i} : product_shape(right, {i, j});
            total += x[0].wide(p) * x[1].wide(q);
          }
          return total;
        });
      });
}

Instance linear_of(Draw& d) {
  const std::int64_t in = d.between(1, 4), out = d.between(1, 4);
  const Sizes head = d.shape(0, 2);
  const bool bias = d.chance();
  Arrays operands = {d.array(product_shape(head, {in})), d.array({out, in})};
  if (bias)
    operands.push_back(d.array({out}));
  return one(
      operands, [=](const Tensors& t) { return linear(t[0], t[1], bias ? t[2] : Tensor()); },
      [=](const Arrays& a) {
        return Array(product_shape(head, {out}), [&](Sizes at) {
          const auto o = at.back();
          double total = bias ? a[2].values[std::size_t(o)] : 0;
          for (at.back() = 0; at.back() < in; ++at.back())
            total += a[0][at] * a[1][{o, at.back()}];
          return total;
        });
      });
}

Instance plus_product(Draw& d, bool batch) {
  const std::int64_t b = d.between(1, 2), m = d.between(1, 3), k = d.between(0, 3),
                     n = d.between(1, 3);
  const Sizes head = batch ? Sizes{b} : Sizes{};
  const Sizes out = product_shape(head, {m, n});
  return one(
      {d.array(d.broadcastable(out)), d.array(product_shape(head, {m, k})),
       d.array(product_shape(head, {k, n}))},
      [=](const Tensors& t) {
        return batch ? baddbmm(t[0], t[1], t[2], 2, 3) : addmm(t[0], t[1], t[2], 2, 3);
      },
      [=](const Arrays& a) {
        const Array product =
            einstein(batch ? "bij,bjk" : "ij,jk", batch ? "bik" : "ik", {a[1], a[2]});
        return Array(out, [&](const Sizes& at) {
          return 2 * a[0].wide(at) + 3 * (product.values.empty() ? 0 : product[at]);
        });
      });
}

Instance kron_of(Draw& d) {
  const Sizes a = d.shape(0, 2), b = d.shape(0, 2);
  const std::size_t rank = std::max(a.size(), b.size());
  return one(
      {d.array(a), d.array(b)}, [](const Tensors& t) { return kron(t[0], t[1]); },
      [=](const Arrays& x) {
        auto full = [=](Sizes s) {
          while (s.size() < rank)
            s.insert(s.begin(), 1);
          return s;
        };
        const Sizes fa = full(a), fb = full(b);
        Sizes out;
        for (std::size_t i = 0; i < rank; ++i)
          out.push_back(fa[i] * fb[i]);
        return Array(out, [&](const Sizes& at) {
          Sizes p, q;
          for (std::size_t i = 0; i < rank; ++i) {
            p.push_back(at[i] / fb[i]);
            q.push_back(at[i] % fb[i]);
          }
          return x[0].wide(p) * x[1].wide(q);
        });
      });
}

Instance cross_of(Draw& d) {
  Sizes shape = d.shape(1, 3);
  const auto axis = d.axis(shape.size());
  shape[axis.axis] = 3;
  return one(
      {d.array(shape), d.array(shape)},
      [=](const Tensors& t) { return cross(t[0], t[1], axis.given); },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& at) {
          Sizes p = at, q = at;
          p[axis.axis] = (at[axis.axis] + 1) % 3;
          q[axis.axis] = (at[axis.axis] + 2) % 3;
          return a[0][p] * a[1][q] - a[0][q] * a[1][p];
        });
      });
}

Instance cdist_of(Draw& d) {
  const std::int64_t m = d.between(1, 3), n = d.between(1, 3), k = d.between(1, 3);
  const double p = d.pick({1.0, 2.0, 3.0, kInf});
  return one(
      {d.array({m, k}), d.array({n, k}, 3, 5)},
      [=](const Tensors& t) { return cdist(t[0], t[1], p); },
      [=](const Arrays& a) {
        return Array({m, n}, [&](const Sizes& at) {
          double s = 0;
          for (std::int64_t i = 0; i < k; ++i) {
            const double e = std::abs(a[0][{at[0], i}] - a[1][{at[1], i}]);
            s = p == kInf ? std::max(s, e) : s + std::pow(e, p);
          }
          return p == kInf ? s : std::pow(s, 1 / p);
        });
      });
}

} // namespace

std::vector<Row> product_rows() {
  std::vector<Row> rows;
  auto add = [&](const char* name, std::function<Instance(Draw&)> make) {
    rows.push_back({name, std::move(make), Types::Numbers, true, false, 4});
  };
  auto sums = [&](const char* name, std::string left, std::string right,
                  std::function<Tensor(const Tensors&)> call) {
    add(name, [=](Draw& d) { return summing(d, left, right, call); });
  };
  add("matmul", matmul_of);
  add("linear", linear_of);
  add("einsum", einsum_of);
  sums("dot", "i,i", "", [](const Tensors& t) { return dot(t[0], t[1]); });
  sums("outer", "i,j", "ij", [](const Tensors& t) { return outer(t[0], t[1]); });
  sums("mm", "ij,jk", "ik", [](const Tensors& t) { return mm(t[0], t[1]); });
  sums("mv", "ij,j", "i", [](const Tensors& t) { return mv(t[0], t[1]); });
  sums("bmm", "bij,bjk", "bik", [](const Tensors& t) { return bmm(t[0], t[1]); });
  sums("tensordot", "abc,bcd", "ad", [](const Tensors& t) { return tensordot(t[0], t[1]); });
  sums("tensordot of axes", "abc,dca", "bd", [](const Tensors& t) {
    return tensordot(t[0], t[1], {0, -1}, {2, 1});
  });
  sums("trace", "ii", "", [](const Tensors& t) { return trace(t[0]).to(t[0].dtype()); });
  add("addmm", [](Draw& d) { return plus_product(d, false); });
  add("baddbmm", [](Draw& d) { return plus_product(d, true); });
  add("kron", kron_of);
  add("cross", cross_of);
  add("cdist", cdist_of);
  rows.back().types = Types::Floats;
  return rows;
}

} // namespace egret::testing

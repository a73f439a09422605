// Losses of several classes by margins, distances of pairs, and sequences without alignment.
#include "losses.h"

#include <algorithm>

namespace egret::testing {

namespace {

Instance multi_margin_of(Draw& d) {
  const std::int64_t batch = d.between(1, 3), classes = d.between(1, 4);
  const bool one_row = d.chance(0.3), weighted = d.chance();
  const Sizes rows = one_row ? Sizes{} : Sizes{batch};
  Sizes shape = rows;
  shape.push_back(classes);
  MultiMarginOptions options{.p = d.pick({1.0, 2.0}), .margin = 0.75};
  options.reduction = draw_reduction(d);
  Arrays operands = {d.array(shape), d.integers(rows, 0, classes - 1)};
  if (weighted)
    operands.push_back(d.array({classes}, 0.5, 2));
  const auto type = loss_type(d);
  return one(
      operands,
      [=](const Tensors& t) {
        MultiMarginOptions o = options;
        if (weighted)
          o.weight = t[2];
        return multi_margin_loss(t[0], t[1], o);
      },
      [=](const Arrays& a) {
        Array losses(rows, [&](const Sizes& at) {
          const auto own = std::int64_t(a[1][at]);
          double total = 0;
          for (std::int64_t c = 0; c < classes; ++c) {
            Sizes here = at, target = at;
            here.push_back(c);
            target.push_back(own);
            if (c != own)
              total += std::pow(std::max(0.0, 0.75 - a[0][target] + a[0][here]), options.p);
          }
          return total * (weighted ? a[2].values[std::size_t(own)] : 1) / double(classes);
        });
        return reduced(std::move(losses), options.reduction, type);
      });
}

Instance multilabel_margin_of(Draw& d) {
  const std::int64_t batch = d.between(1, 3), classes = d.between(1, 5);
  Array target({batch, classes}, -1);
  target.type = DType::I64;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t count = d.between(0, classes), first = d.below(classes);
    for (std::int64_t i = 0; i < classes; ++i) // behind the first -1 anything may stand
      target[{b, i}] = i == count ? -1 : double((first + i) % classes);
  }
  const Reduction reduction = draw_reduction(d);
  const auto type = loss_type(d);
  return one(
      {d.array({batch, classes}), target},
      [=](const Tensors& t) { return multilabel_margin_loss(t[0], t[1], reduction); },
      [=](const Arrays& a) {
        Array losses({batch}, [&](const Sizes& at) {
          std::vector<std::int64_t> wanted;
          for (std::int64_t i = 0; i < classes && a[1][{at[0], i}] >= 0; ++i)
            wanted.push_back(std::int64_t(a[1][{at[0], i}]));
          double total = 0;
          for (std::int64_t c = 0; c < classes; ++c)
            if (std::find(wanted.begin(), wanted.end(), c) == wanted.end())
              for (std::int64_t w : wanted)
                total += std::max(0.0, 1 - a[0][{at[0], w}] + a[0][{at[0], c}]);
          return total / double(classes);
        });
        return reduced(std::move(losses), reduction, type);
      });
}

Instance multilabel_soft_of(Draw& d) {
  const Sizes shape = {d.between(1, 3), d.between(1, 4)};
  const bool weighted = d.chance();
  Arrays operands = {d.array(shape), d.integers(shape, 0, 1)};
  if (weighted)
    operands.push_back(d.array({shape[1]}, 0.5, 2));
  const Reduction reduction = draw_reduction(d);
  const auto type = loss_type(d);
  return one(
      operands,
      [=](const Tensors& t) {
        return multilabel_soft_margin_loss(t[0], t[1], weighted ? t[2] : Tensor(), reduction);
      },
      [=](const Arrays& a) {
        Array losses({shape[0]}, [&](const Sizes& at) {
          double total = 0;
          for (std::int64_t c = 0; c < shape[1]; ++c) {
            const double p = 1 / (1 + std::exp(-a[0][{at[0], c}])), t = a[1][{at[0], c}];
            total -= (weighted ? a[2].values[std::size_t(c)] : 1) *
                     (t * std::log(p) + (1 - t) * std::log(1 - p));
          }
          return total / double(shape[1]);
        });
        return reduced(std::move(losses), reduction, type);
      });
}

Instance poisson_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  PoissonNllOptions options{.log_input = d.chance(), .full = d.chance(), .eps = 0.125};
  options.reduction = draw_reduction(d);
  const auto type = loss_type(d);
  return one(
      {d.array(shape, 0.2, 2), d.array(shape, 0, 5)},
      [=](const Tensors& t) { return poisson_nll_loss(t[0], t[1], options); },
      [=](const Arrays& a) {
        return reduced(zip(a[0], a[1],
                           [&](double x, double t) {
                             double loss = options.log_input ? std::exp(x) - t * x
                                                             : x - t * std::log(x + 0.125);
                             if (options.full && t > 1)
                               loss += t * std::log(t) - t + 0.5 * std::log(2 * M_PI * t);
                             return loss;
                           }),
                       options.reduction, type);
      });
}

double norm_between(const Array& a, const Array& b, const Sizes& ra, const Sizes& rb, double p,
                    double eps) {
  double total = 0;
  for (std::int64_t i = 0; i < a.shape.back(); ++i) {
    Sizes x = ra, y = rb;
    x.push_back(i);
    y.push_back(i);
    total += std::pow(std::abs(a[x] - b[y] + eps), p);
  }
  return std::pow(total, 1 / p);
}

Instance triplet_of(Draw& d) {
  const Sizes shape = {d.between(1, 3), d.between(1, 4)};
  TripletOptions options{
      .margin = 0.5, .p = d.pick({1.0, 2.0, 3.0}), .eps = 0.01, .swap = d.chance()};
  options.reduction = draw_reduction(d);
  const auto type = loss_type(d);
  return one(
      {d.array(shape), d.array(shape), d.array(shape)},
      [=](const Tensors& t) { return triplet_margin_loss(t[0], t[1], t[2], options); },
      [=](const Arrays& a) {
        Array losses({shape[0]}, [&](const Sizes& at) {
          auto apart = [&](std::size_t i, std::size_t j) {
            return norm_between(a[i], a[j], at, at, options.p, options.eps);
          };
          const double far = options.swap ? std::min(apart(0, 2), apart(1, 2)) : apart(0, 2);
          return std::max(0.0, apart(0, 1) - far + 0.5);
        });
        return reduced(std::move(losses), options.reduction, type);
      });
}

Instance pdist_of(Draw& d) {
  const Sizes shape = {d.between(1, 5), d.between(1, 3)};
  const double p = d.pick({1.0, 2.0, 3.0});
  return one(
      {d.distinct(shape)}, [=](const Tensors& t) { return pdist(t[0], p); },
      [=](const Arrays& a) {
        std::vector<double> values;
        for (std::int64_t i = 0; i < shape[0]; ++i)
          for (std::int64_t j = i + 1; j < shape[0]; ++j)
            values.push_back(norm_between(a[0], a[0], {i}, {j}, p, 0));
        Array y({std::int64_t(values.size())});
        y.values = values;
        return y;
      });
}

// The probability of a target: that of all paths which spell it.
double spelled(const Array& logs, std::int64_t batch, std::int64_t times,
               const std::vector<std::int64_t>& target, std::int64_t blank) {
  double total = 0;
  each(Sizes(std::size_t(times), logs.shape[2]), [&](const Sizes& path) {
    std::vector<std::int64_t> word;
    double log = 0;
    std::int64_t before = -1;
    for (std::int64_t t = 0; t < times; ++t) {
      const std::int64_t c = path[std::size_t(t)];
      log += logs[{t, batch, c}];
      if (c != before && c != blank)
        word.push_back(c);
      before = c;
    }
    if (word == target)
      total += std::exp(log);
  });
  return total;
}

Instance ctc_of(Draw& d) {
  const std::int64_t times = d.between(1, 4), batch = d.between(1, 2), classes = d.between(2, 3),
                     length = d.between(0, 3), blank = d.below(classes);
  Array lengths({batch}), targets({batch, length}), inputs({batch});
  for (std::int64_t b = 0; b < batch; ++b) {
    lengths.values[std::size_t(b)] = double(d.between(0, length));
    inputs.values[std::size_t(b)] = double(d.between(1, times));
    for (std::int64_t i = 0; i < length; ++i)
      targets[{b, i}] = double((blank + 1 + d.below(classes - 1)) % classes);
  }
  lengths.type = targets.type = inputs.type = DType::I64;
  CtcOptions options{.blank = blank};
  options.reduction = draw_reduction(d);
  options.zero_infinity = d.chance(0.7);
  const auto type = loss_type(d);
  return one(
      {d.array({times, batch, classes}, -2, -0.2), targets, inputs, lengths},
      [=](const Tensors& t) { return ctc_loss(t[0], t[1], t[2], t[3], options); },
      [=](const Arrays& a) {
        Array losses({batch}, [&](const Sizes& at) {
          const auto b = std::size_t(at[0]);
          std::vector<std::int64_t> target;
          for (std::int64_t i = 0; i < std::int64_t(a[3].values[b]); ++i)
            target.push_back(std::int64_t(a[1][{at[0], i}]));
          double loss =
              -std::log(spelled(a[0], at[0], std::int64_t(a[2].values[b]), target, blank));
          if (options.zero_infinity && loss == kInf)
            loss = 0;
          return options.reduction == Reduction::Mean
                     ? loss / std::max<double>(1, double(target.size()))
                     : loss;
        });
        return reduced(std::move(losses), options.reduction, type);
      });
}

} // namespace

std::vector<Row> margin_rows() {
  std::vector<Row> rows;
  auto add = [&](const char* name, std::function<Instance(Draw&)> make) {
    rows.push_back({name, std::move(make), Types::Floats, true, false, 4});
  };
  add("multi_margin_loss", multi_margin_of);
  add("multilabel_margin_loss", multilabel_margin_of);
  add("multilabel_soft_margin_loss", multilabel_soft_of);
  add("poisson_nll_loss with options", poisson_of);
  add("triplet_margin_loss with options", triplet_of);
  add("pdist", pdist_of);
  add("ctc_loss", ctc_of);
  return rows;
}

} // namespace egret::testing

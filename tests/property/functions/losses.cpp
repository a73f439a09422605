#include "losses.h"

#include <algorithm>

namespace egret::testing {

namespace {

// A loss of each pair of elements: operands a and b in their ranges.
struct Range {
  double low, high;
};
Row pairs(std::string name, Range ra, Range rb,
          std::function<Tensor(const Tensor&, const Tensor&, Reduction)> call,
          std::function<double(double, double)> loss) {
  return {std::move(name),
          [=](Draw& d) {
            const Sizes shape = d.shape(0, 3);
            const Reduction reduction = draw_reduction(d);
            const auto type = loss_type(d);
            return one(
                {d.array(shape, ra.low, ra.high), d.array(shape, rb.low, rb.high)},
                [=](const Tensors& t) { return call(t[0], t[1], reduction); },
                [=](const Arrays& a) { return reduced(zip(a[0], a[1], loss), reduction, type); });
          },
          Types::Floats,
          true,
          false,
          4};
}

// One whose second operand holds 1 and -1.
Row signs(std::string name, std::function<Tensor(const Tensor&, const Tensor&, Reduction)> call,
          std::function<double(double, double)> loss) {
  return {std::move(name),
          [=](Draw& d) {
            const Sizes shape = d.shape(0, 3);
            const Reduction reduction = draw_reduction(d);
            const auto type = loss_type(d);
            Array target = d.integers(shape, 0, 1, DType::F32);
            for (double& t : target.values)
              t = 2 * t - 1;
            return one(
                {d.array(shape), target},
                [=](const Tensors& t) { return call(t[0], t[1], reduction); },
                [=](const Arrays& a) { return reduced(zip(a[0], a[1], loss), reduction, type); });
          },
          Types::Floats,
          true,
          false,
          4};
}

std::vector<double> log_softmax(const std::vector<double>& x) {
  double total = 0;
  for (double v : x)
    total += std::exp(v);
  std::vector<double> y;
  for (double v : x)
    y.push_back(v - std::log(total));
  return y;
}

// Cross-entropy and NLL with every option.
Instance classes_of(Draw& d, bool logits, bool probabilities) {
  Sizes rows = d.shape(0, 2, true);
  const std::int64_t classes = d.between(1, 5);
  const auto axis = d.axis(rows.size() + 1);
  Sizes shape = rows;
  shape.insert(shape.begin() + std::ptrdiff_t(axis.axis), classes);
  const bool weighted = d.chance();
  CrossEntropyOptions options;
  options.reduction = draw_reduction(d);
  options.label_smoothing = d.pick({0.0, 0.0, 0.25});
  options.axis = axis.given;
  if (!probabilities && d.chance())
    options.ignore_index = 0;
  Arrays operands = {d.array(shape),
                     probabilities ? d.array(shape, 0.1, 0.9) : d.integers(rows, 0, classes - 1)};
  if (!probabilities && options.ignore_index && !operands[1].values.empty())
    operands[1].values[0] = double(classes - 1); // one at least counts, unless there is one class
  if (weighted)
    operands.push_back(d.array({classes}, 0.5, 2));
  const auto type = loss_type(d);
  return one(
      operands,
      [=](const Tensors& t) {
        CrossEntropyOptions o = options;
        if (weighted)
          o.weight = t[2];
        return logits ? cross_entropy(t[0], t[1], o) : nll_loss(t[0], t[1], o);
      },
      [=](const Arrays& a) {
        const double s = options.label_smoothing;
        const Array logs = logits ? lines(a[0], axis.axis, log_softmax) : a[0];
        Array losses(rows);
        double divisor = 0;
        std::size_t i = 0;
        each(rows, [&](const Sizes& at) {
          double& loss = losses.values[i];
          double own = 0, even = 0, share = 1;
          for (std::int64_t c = 0; c < classes; ++c) {
            Sizes full = at;
            full.insert(full.begin() + std::ptrdiff_t(axis.axis), c);
            const double w = weighted ? a[2].values[std::size_t(c)] : 1, term = -w * logs[full];
            even += term / double(classes);
            if (probabilities) {
              own += term * a[1][full];
            } else if (a[1].values[i] == double(c)) {
              own = term;
              share = w;
            }
          }
          loss = (1 - s) * own + s * even;
          if (options.ignore_index && a[1].values[i] == 0)
            loss = share = 0;
          divisor += share;
          ++i;
        });
        if (options.reduction == Reduction::Mean) {
          double total = 0;
          for (double x : losses.values)
            total += x;
          losses = Array(Sizes{}, total / (probabilities ? double(losses.values.size()) : divisor));
        } else {
          losses = reduced(std::move(losses), options.reduction, type);
        }
        return std::move(losses).as(*type);
      });
}

double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

// Binary cross-entropy with weights.
Instance weighted_bce(Draw& d, bool logits) {
  const Sizes shape = d.shape(1, 3);
  const Reduction reduction = draw_reduction(d);
  const auto type = loss_type(d);
  const bool weight = d.chance(), pos = logits && d.chance();
  Arrays operands = {logits ? d.array(shape) : d.array(shape, 0.1, 0.9), d.array(shape, 0.1, 0.9)};
  if (weight)
    operands.push_back(d.array(d.broadcastable(shape), 0.5, 2));
  if (pos)
    operands.push_back(d.array(d.broadcastable(shape), 0.5, 2));
  return one(
      operands,
      [=](const Tensors& t) {
        BinaryCrossEntropyOptions o{.weight = {}, .pos_weight = {}, .reduction = reduction};
        if (weight)
          o.weight = t[2];
        if (pos)
          o.pos_weight = t[weight ? 3 : 2];
        return logits ? binary_cross_entropy_with_logits(t[0], t[1], o)
                      : binary_cross_entropy(t[0], t[1], o);
      },
      [=](const Arrays& a) {
        Array losses(shape, [&](const Sizes& at) {
          const double x = a[0][at], t = a[1][at];
          const double w = weight ? a[2].wide(at) : 1, p = pos ? a[weight ? 3 : 2].wide(at) : 1;
          const double yes = logits ? softplus(-x) : -std::max(std::log(x), -100.0);
          const double no = logits ? softplus(x) : -std::max(std::log1p(-x), -100.0);
          return w * (p * t * yes + (1 - t) * no);
        });
        return reduced(std::move(losses), reduction, type);
      });
}

double dot(const Array& a, const Array& b, Sizes at, std::int64_t n) {
  double total = 0;
  at.push_back(0);
  for (at.back() = 0; at.back() < n; ++at.back())
    total += a.wide(at) * b.wide(at);
  return total;
}

double cosine(const Array& a, const Array& b, const Sizes& at, std::int64_t n) {
  const double la = std::max(std::sqrt(dot(a, a, at, n)), 1e-8),
               lb = std::max(std::sqrt(dot(b, b, at, n)), 1e-8);
  return dot(a, b, at, n) / (la * lb);
}

Instance cosine_similarity_of(Draw& d) {
  Sizes shape = d.shape(1, 3, true);
  const std::int64_t n = shape.back();
  return one(
      {d.array(shape), d.array(shape)},
      [=](const Tensors& t) { return cosine_similarity(t[0], t[1], -1); },
      [=](const Arrays& a) {
        return Array(Sizes(shape.begin(), shape.end() - 1),
                     [&](const Sizes& at) { return cosine(a[0], a[1], at, n); });
      });
}

Instance cosine_embedding_of(Draw& d) {
  const std::int64_t rows = d.between(1, 4), n = d.between(2, 4);
  const Reduction reduction = draw_reduction(d);
  const auto type = loss_type(d);
  Array target = d.integers({rows}, 0, 1, DType::F32);
  for (double& t : target.values)
    t = 2 * t - 1;
  return one(
      {d.array({rows, n}), d.array({rows, n}), target},
      [=](const Tensors& t) { return cosine_embedding_loss(t[0], t[1], t[2], 0.25, reduction); },
      [=](const Arrays& a) {
        return reduced(Array({rows},
                             [&](const Sizes& at) {
                               const double c = cosine(a[0], a[1], at, n);
                               return a[2][at] == 1 ? 1 - c : std::max(0.0, c - 0.25);
                             }),
                       reduction, type);
      });
}

double distance(const Array& a, const Array& b, Sizes at, std::int64_t n) {
  double total = 0;
  at.push_back(0);
  for (at.back() = 0; at.back() < n; ++at.back())
    total += std::pow(a.wide(at) - b.wide(at) + 1e-6, 2);
  return std::sqrt(total);
}

Instance pairwise_distance_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  return one(
      {d.distinct(shape), d.distinct(shape, 3, 5)},
      [=](const Tensors& t) { return pairwise_distance(t[0], t[1]); },
      [=](const Arrays& a) {
        return Array(Sizes(shape.begin(), shape.end() - 1),
                     [&](const Sizes& at) { return distance(a[0], a[1], at, shape.back()); });
      });
}

Instance triplet_margin_of(Draw& d) {
  const Sizes shape = d.shape(1, 2, true);
  const Reduction reduction = draw_reduction(d);
  const auto type = loss_type(d);
  return one(
      {d.array(shape), d.array(shape, 3, 5), d.array(shape, 3, 5)},
      [=](const Tensors& t) { return triplet_margin_loss(t[0], t[1], t[2], 1, reduction); },
      [=](const Arrays& a) {
        return reduced(Array(Sizes(shape.begin(), shape.end() - 1),
                             [&](const Sizes& at) {
                               return std::max(0.0, distance(a[0], a[1], at, shape.back()) -
                                                        distance(a[0], a[2], at, shape.back()) + 1);
                             }),
                       reduction, type);
      });
}

Instance gaussian_nll_of(Draw& d) {
  const Sizes shape = d.shape(0, 3);
  const Reduction reduction = draw_reduction(d);
  const auto type = loss_type(d);
  return one(
      {d.array(shape), d.array(shape), d.array(shape, 0.5, 2)},
      [=](const Tensors& t) { return gaussian_nll_loss(t[0], t[1], t[2], 1e-6, reduction); },
      [=](const Arrays& a) {
        return reduced(Array(shape,
                             [&](const Sizes& at) {
                               const double e = a[0][at] - a[1][at], v = a[2][at];
                               return (std::log(v) + e * e / v) / 2;
                             }),
                       reduction, type);
      });
}

Instance kl_batch_mean(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const bool log_target = d.chance();
  const auto type = loss_type(d);
  return one(
      {d.array(shape, -2, 0), log_target ? d.array(shape, -2, 0) : d.array(shape, 0.1, 0.9)},
      [=](const Tensors& t) {
        return kl_div(t[0], t[1], {.log_target = log_target, .batch_mean = true});
      },
      [=](const Arrays& a) {
        double total = 0;
        for (std::size_t i = 0; i < a[0].values.size(); ++i) {
          const double t = a[1].values[i], p = a[0].values[i];
          total += log_target ? std::exp(t) * (t - p) : t * (std::log(t) - p);
        }
        return Array(Sizes{}, total / double(shape[0])).as(*type);
      });
}

} // namespace

std::vector<Row> loss_rows() {
  using T = const Tensor&;
  using R = Reduction;
  std::vector<Row> rows = {
      pairs(
          "mse_loss", {-2, 2}, {-2, 2}, [](T a, T b, R r) { return mse_loss(a, b, r); },
          [](double a, double b) { return (a - b) * (a - b); }),
      pairs(
          "l1_loss", {-2, 2}, {3, 4}, [](T a, T b, R r) { return l1_loss(a, b, r); },
          [](double a, double b) { return std::abs(a - b); }),
      pairs(
          "smooth_l1_loss", {-2, 2}, {-2, 2},
          [](T a, T b, R r) { return smooth_l1_loss(a, b, 0.7, r); },
          [](double a, double b) {
            const double e = std::abs(a - b);
            return e < 0.7 ? e * e / 1.4 : e - 0.35;
          }),
      pairs(
          "huber_loss", {-2, 2}, {-2, 2}, [](T a, T b, R r) { return huber_loss(a, b, 0.7, r); },
          [](double a, double b) {
            const double e = std::abs(a - b);
            return e <= 0.7 ? e * e / 2 : 0.7 * (e - 0.35);
          }),
      pairs(
          "binary_cross_entropy", {0.1, 0.9}, {0, 1},
          [](T a, T b, R r) { return binary_cross_entropy(a, b, r); },
          [](double p, double t) { return -(t * std::log(p) + (1 - t) * std::log1p(-p)); }),
      pairs(
          "binary_cross_entropy_with_logits", {-3, 3}, {0, 1},
          [](T a, T b, R r) { return binary_cross_entropy_with_logits(a, b, r); },
          [](double x, double t) { return softplus(x) - t * x; }),
      pairs(
          "kl_div", {-3, 0}, {0.1, 1}, [](T a, T b, R r) { return kl_div(a, b, {.reduction = r}); },
          [](double p, double t) { return t * (std::log(t) - p); }),
      pairs(
          "poisson_nll_loss", {-2, 2}, {0, 3},
          [](T a, T b, R r) { return poisson_nll_loss(a, b, r); },
          [](double x, double t) { return std::exp(x) - t * x; }),
      signs(
          "margin_ranking_loss",
          [](T a, T t, R r) { return margin_ranking_loss(a, a * 0.3 + 0.5, t, 0.2, r); },
          [](double a, double t) { return std::max(0.0, -t * (a - (a * 0.3 + 0.5)) + 0.2); }),
      signs(
          "hinge_embedding_loss", [](T a, T t, R r) { return hinge_embedding_loss(a, t, 0.8, r); },
          [](double a, double t) { return t == 1 ? a : std::max(0.0, 0.8 - a); }),
      signs(
          "soft_margin_loss", [](T a, T t, R r) { return soft_margin_loss(a, t, r); },
          [](double a, double t) { return softplus(-t * a); }),
  };
  auto add = [&](const char* name, std::function<Instance(Draw&)> make) {
    rows.push_back({name, std::move(make), Types::Floats, true, false, 4});
  };
  add("cross_entropy", [](Draw& d) { return classes_of(d, true, false); });
  add("cross_entropy of probabilities", [](Draw& d) { return classes_of(d, true, true); });
  add("nll_loss", [](Draw& d) { return classes_of(d, false, false); });
  add("binary_cross_entropy weighted", [](Draw& d) { return weighted_bce(d, false); });
  add("binary_cross_entropy_with_logits weighted", [](Draw& d) { return weighted_bce(d, true); });
  add("kl_div batch mean", kl_batch_mean);
  add("cosine_similarity", cosine_similarity_of);
  add("cosine_embedding_loss", cosine_embedding_of);
  add("pairwise_distance", pairwise_distance_of);
  add("triplet_margin_loss", triplet_margin_of);
  add("gaussian_nll_loss", gaussian_nll_of);
  return rows;
}

} // namespace egret::testing

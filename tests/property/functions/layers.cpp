#include "functions.h"

#include <algorithm>

namespace egret::testing {

namespace {

double mean_of(const std::vector<double>& v) {
  double total = 0;
  for (double x : v)
    total += x;
  return total / double(v.size());
}

double variance_of(const std::vector<double>& v, double correction = 0) {
  const double m = mean_of(v);
  double total = 0;
  for (double x : v)
    total += (x - m) * (x - m);
  return total / (double(v.size()) - correction);
}

// (a - mean) / sqrt(var + eps) over the elements that agree in what `group` says of their place.
Array normed(const Array& a, double eps, const std::function<Sizes(const Sizes&)>& group) {
  std::vector<std::pair<Sizes, std::vector<double>>> groups;
  auto find = [&](const Sizes& key) -> std::vector<double>& {
    for (auto& [k, values] : groups)
      if (k == key)
        return values;
    return groups.emplace_back(key, std::vector<double>{}).second;
  };
  each(a.shape, [&](const Sizes& at) { find(group(at)).push_back(a[at]); });
  return Array(a.shape, [&](const Sizes& at) {
    const auto& values = find(group(at));
    return (a[at] - mean_of(values)) / std::sqrt(variance_of(values) + eps);
  });
}

Array by_channel(const Array& a, const Array* weight, const Array* bias) {
  return Array(a.shape, [&](const Sizes& at) {
    const auto c = std::size_t(at[1]);
    return a[at] * (weight ? weight->values[c] : 1) + (bias ? bias->values[c] : 0);
  });
}

// Operands [batch, channels, ...] and perhaps weight and bias.
struct Channels {
  Arrays operands;
  bool weight, bias;
  Tensor weight_of(const Tensors& t) const { return weight ? t[1] : Tensor(); }
  Tensor bias_of(const Tensors& t) const { return bias ? t[weight ? 2 : 1] : Tensor(); }
  const Array* weight_of(const Arrays& a) const { return weight ? &a[1] : nullptr; }
  const Array* bias_of(const Arrays& a) const { return bias ? &a[weight ? 2 : 1] : nullptr; }
};

Channels draw_channels(Draw& d, const Sizes& shape) {
  Channels c{{d.distinct(shape)}, d.chance(0.7), d.chance()};
  if (c.weight)
    c.operands.push_back(d.array({shape[1]}));
  if (c.bias)
    c.operands.push_back(d.array({shape[1]}));
  return c;
}

Sizes spatial(Draw& d, std::int64_t batch, std::int64_t channels, std::int64_t low) {
  Sizes shape = {batch, channels};
  for (std::int64_t i = d.between(low, 2); i > 0; --i)
    shape.push_back(d.between(1, 3));
  return shape;
}

Instance group_norm_of(Draw& d) {
  const std::int64_t groups = d.between(1, 2), channels = groups * d.between(1, 3);
  const Channels c = draw_channels(d, spatial(d, d.between(1, 2), channels, 0));
  return one(
      c.operands,
      [=](const Tensors& t) { return group_norm(t[0], groups, c.weight_of(t), c.bias_of(t), 0.1); },
      [=](const Arrays& a) {
        return by_channel(normed(a[0], 0.1,
                                 [=](const Sizes& at) {
                                   return Sizes{at[0], at[1] / (channels / groups)};
                                 }),
                          c.weight_of(a), c.bias_of(a));
      });
}

Instance instance_norm_of(Draw& d) {
  const Channels c = draw_channels(d, spatial(d, d.between(0, 2), d.between(1, 3), 1));
  return one(
      c.operands,
      [=](const Tensors& t) { return instance_norm(t[0], c.weight_of(t), c.bias_of(t), 0.1); },
      [=](const Arrays& a) {
        return by_channel(normed(a[0], 0.1,
                                 [](const Sizes& at) {
                                   return Sizes{at[0], at[1]};
                                 }),
                          c.weight_of(a), c.bias_of(a));
      });
}

// Results: the normalized operand and both running statistics after the call.
Instance batch_norm_of(Draw& d) {
  const std::int64_t channels = d.between(1, 3);
  const Sizes shape = spatial(d, d.between(2, 3), channels, 0);
  Channels c = draw_channels(d, shape);
  const bool training = d.chance(), running = d.chance(0.8);
  const std::size_t stats = c.operands.size();
  Array mean0({channels}), var0({channels});
  for (std::int64_t i = 0; i < channels; ++i) {
    mean0.values[std::size_t(i)] = d.rng.uniform(-1, 1);
    var0.values[std::size_t(i)] = d.rng.uniform(0.5, 2);
  }
  mean0.type = var0.type = DType::F32;
  c.operands.push_back(mean0);
  c.operands.push_back(var0);
  const BatchNormOptions options{.training = training, .momentum = 0.25, .eps = 0.1};
  auto channel = [](const Sizes& at) { return Sizes{at[1]}; };
  return {c.operands,
          [=](const Tensors& t) {
            Tensor mean = running ? t[stats].clone() : Tensor();
            Tensor var = running ? t[stats + 1].clone() : Tensor();
            const Tensor y = batch_norm(t[0], mean, var, c.weight_of(t), c.bias_of(t), options);
            return Tensors{y, running ? mean.detach() : t[stats].clone(),
                           running ? var.detach() : t[stats + 1].clone()};
          },
          [=](const Arrays& a) {
            Array mean = a[stats], var = a[stats + 1], x;
            if (running && !training) {
              x = Array(shape, [&](const Sizes& at) {
                const auto i = std::size_t(at[1]);
                return (a[0][at] - mean.values[i]) / std::sqrt(var.values[i] + 0.1);
              });
            } else {
              x = normed(a[0], 0.1, channel);
            }
            if (running && training)
              for (std::int64_t i = 0; i < channels; ++i) {
                std::vector<double> values;
                each(shape, [&](const Sizes& at) {
                  if (at[1] == i)
                    values.push_back(a[0][at]);
                });
                auto& m = mean.values[std::size_t(i)];
                auto& v = var.values[std::size_t(i)];
                m = 0.75 * m + 0.25 * mean_of(values);
                v = 0.75 * v + 0.25 * variance_of(values, 1);
              }
            return Arrays{by_channel(x, c.weight_of(a), c.bias_of(a)),
                          std::move(mean).as(DType::F32), std::move(var).as(DType::F32)};
          }};
}

// Norms over the last axes.
Instance last_norm_of(Draw& d, bool centred) {
  const Sizes tail = d.shape(1, 2, true), head = d.shape(0, 2);
  Sizes shape = head;
  shape.insert(shape.end(), tail.begin(), tail.end());
  const bool bias = centred && d.chance();
  Arrays operands = {d.distinct(shape), d.array(tail)};
  if (bias)
    operands.push_back(d.array(tail));
  return one(
      operands,
      [=](const Tensors& t) {
        return centred ? layer_norm(t[0], t[1], bias ? t[2] : Tensor(), 0.1)
                       : rms_norm(t[0], t[1], 0.1);
      },
      [=](const Arrays& a) {
        const auto rank = static_cast<std::ptrdiff_t>(head.size());
        auto front = [=](const Sizes& at) { return Sizes(at.begin(), at.begin() + rank); };
        Array x = a[0];
        if (centred) {
          x = normed(a[0], 0.1, front);
        } else {
          std::vector<std::size_t> axes;
          for (std::size_t i = head.size(); i < shape.size(); ++i)
            axes.push_back(i);
          const Array squares = slices(a[0], axes, true, [](const std::vector<double>& v) {
            double total = 0;
            for (double e : v)
              total += e * e;
            return std::sqrt(total / double(v.size()) + 0.1);
          });
          x = zip(a[0], squares, [](double p, double q) { return p / q; });
        }
        x = zip(x, a[1], [](double p, double q) { return p * q; });
        return bias ? zip(x, a[2], [](double p, double q) { return p + q; }) : x;
      });
}

Instance normalize_of(Draw& d) {
  const Sizes shape = d.shape(1, 3, true);
  const auto axis = d.axis(shape.size());
  const double p = d.pick({1.0, 2.0, 3.0, kInf});
  return one(
      {d.distinct(shape, 0.2, 2)}, [=](const Tensors& t) { return normalize(t[0], p, axis.given); },
      [=](const Arrays& a) {
        return lines(a[0], axis.axis, [=](std::vector<double> v) {
          double length = 0;
          for (double x : v)
            length = p == kInf ? std::max(length, std::abs(x)) : length + std::pow(std::abs(x), p);
          if (p != kInf)
            length = std::pow(length, 1 / p);
          for (double& x : v)
            x /= std::max(length, 1e-12);
          return v;
        });
      });
}

Instance rope_of(Draw& d) {
  const std::int64_t tokens = d.between(1, 4), half = d.between(1, 3);
  const bool interleaved = d.chance(), batch = d.chance();
  const Sizes shape = batch ? Sizes{2, tokens, 2 * half} : Sizes{tokens, 2 * half};
  const RopeOptions options{.base = 100, .interleaved = interleaved};
  return one(
      {d.array(shape), d.integers({tokens}, 0, 9)},
      [=](const Tensors& t) { return rope(t[0], t[1], options); },
      [=](const Arrays& a) {
        return Array(shape, [&](const Sizes& at) {
          const std::int64_t j = at.back(), pair = interleaved ? j / 2 : j % half;
          const bool second = interleaved ? j % 2 : j >= half;
          Sizes other = at;
          other.back() = interleaved ? j ^ 1 : (j + half) % (2 * half);
          const double angle = a[1].values[std::size_t(at[at.size() - 2])] *
                               std::pow(100.0, -double(pair) / double(half));
          return a[0][at] * std::cos(angle) + (second ? 1 : -1) * a[0][other] * std::sin(angle);
        });
      });
}

// Heads of queries, two groups of which share keys; masks of every kind.
Instance attention_of(Draw& d) {
  const std::int64_t groups = d.between(1, 2), share = d.between(1, 2), n = d.between(1, 4),
                     m = n + d.below(3), width = d.between(1, 3), out = d.between(1, 3);
  const std::int64_t heads = groups * share;
  const bool causal = d.chance(), windowed = d.chance(), capped = d.chance();
  const int mask = int(d.below(3)); // none, bool, added
  AttentionOptions options;
  options.causal = causal;
  if (windowed)
    options.window = 2;
  if (capped)
    options.softcap = 1.5;
  const Sizes q = {2, heads, n, width}, k = {2, groups, m, width}, v = {2, groups, m, out};
  Arrays operands = {d.array(q), d.array(k), d.array(v)};
  if (mask == 1) { // every query sees its own place
    Array seen = d.mask({heads, n, m});
    each(seen.shape, [&](const Sizes& at) {
      if (at[2] == at[1] + m - n)
        seen[at] = 1;
    });
    operands.push_back(seen);
  } else if (mask == 2) {
    operands.push_back(d.array({n, m}));
  }
  return one(
      operands,
      [=](const Tensors& t) {
        AttentionOptions o = options;
        if (mask != 0)
          o.mask = t[3];
        return scaled_dot_product_attention(t[0], t[1], t[2], o);
      },
      [=](const Arrays& a) {
        return Array({2, heads, n, out}, [&](const Sizes& at) {
          const std::int64_t group = at[1] / share;
          double total = 0, sum = 0;
          for (std::int64_t j = 0; j < m; ++j) {
            const std::int64_t apart = j - (at[2] + m - n);
            const bool hidden = (causal && apart > 0) || (windowed && std::abs(apart) >= 2) ||
                                (mask == 1 && a[3][{at[1], at[2], j}] == 0);
            if (hidden)
              continue;
            double score = 0;
            for (std::int64_t i = 0; i < width; ++i)
              score += a[0][{at[0], at[1], at[2], i}] * a[1][{at[0], group, j, i}];
            score /= std::sqrt(double(width));
            if (capped)
              score = 1.5 * std::tanh(score / 1.5);
            if (mask == 2)
              score += a[3][{at[2], j}];
            sum += std::exp(score);
            total += std::exp(score) * a[2][{at[0], group, j, at[3]}];
          }
          return total / sum;
        });
      });
}

Instance alibi_of(Draw& d) {
  const std::int64_t heads = d.pick<std::int64_t>({1, 2, 4}), n = d.between(1, 3),
                     m = n + d.below(3);
  return one(
      {d.array({1})}, [=](const Tensors&) { return alibi_mask(heads, n, m); },
      [=](const Arrays&) {
        return Array({heads, n, m},
                     [&](const Sizes& at) {
                       return -std::exp2(-8 * double(at[0] + 1) / double(heads)) *
                              double(std::abs(at[2] - at[1] - (m - n)));
                     })
            .as(DType::F32);
      });
}

} // namespace

std::vector<Row> layer_rows() {
  return {
      {"group_norm", group_norm_of, Types::Floats, true, false, 4},
      {"instance_norm", instance_norm_of, Types::Floats, true, false, 4},
      {"batch_norm", batch_norm_of, Types::Floats, true, false, 4},
      {"layer_norm", [](Draw& d) { return last_norm_of(d, true); }, Types::Floats, true, false, 4},
      {"rms_norm", [](Draw& d) { return last_norm_of(d, false); }, Types::Floats, true, false, 4},
      {"normalize", normalize_of, Types::Floats, true, false, 4},
      {"rope", rope_of, Types::Floats, true, false, 4},
      {"scaled_dot_product_attention", attention_of, Types::Floats, true, false, 8},
      {"alibi_mask", alibi_of, Types::Floats, false, false},
  };
}

} // namespace egret::testing

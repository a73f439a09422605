// Small networks of linear layers, with a step of training.
#include "programs.h"

#include <cmath>

namespace egret::programs {

namespace {

/// x and target, then a weight and a bias for each layer.
std::vector<Input> layers(std::int64_t batch, const Sizes& widths, DType dtype) {
  std::vector<Input> result = {data({batch, widths.front()}, dtype), whole({batch}, widths.back())};
  for (std::size_t i = 1; i < widths.size(); ++i) {
    result.push_back(weight({widths[i], widths[i - 1]}, widths[i - 1], dtype));
    result.push_back(data({widths[i]}, dtype, 0.1));
  }
  return result;
}

Tensor mlp(const Tensors& t) {
  Tensor h = t[0];
  for (std::size_t i = 2; i < t.size(); i += 2) {
    h = linear(h, t[i], t[i + 1]);
    if (i + 2 < t.size())
      h = relu(h);
  }
  return h;
}

Tensors sgd_step(const Tensors& t) {
  const Tensors weights = some(t, 2, t.size());
  Tensors result = with_gradients(cross_entropy(mlp(t), t[1]), weights);
  for (std::size_t i = 0; i < weights.size(); ++i)
    result[i + 1] = weights[i] - result[i + 1] * 0.1;
  return result;
}

void add_steps(Programs& p) {
  const Sizes wide = {p.size(784, 20), p.size(512, 16), p.size(512, 12), 10};
  p.train("network/mlp_step", layers(p.size(256, 6), wide, DType::F32), sgd_step);
  p.train("network/mlp_step_bf16", layers(p.size(256, 6), wide, DType::BF16), sgd_step);
  p.train("network/deep_narrow_step",
          layers(p.size(1024, 7), Sizes(static_cast<std::size_t>(p.size(20, 5)), p.size(64, 6)),
                 DType::F32),
          sgd_step);
  p.train("network/tiny_step", layers(p.size(32, 4), {13, 32, 3}, DType::F32), sgd_step);
  const std::int64_t d = p.size(512, 9), h = p.size(1376, 14);
  p.train("network/swiglu_bf16_train",
          {data({p.size(512, 8), d}, DType::BF16), weight({h, d}, d, DType::BF16),
           weight({h, d}, d, DType::BF16), weight({d, h}, h, DType::BF16)},
          [](const Tensors& t) {
            const Tensor y = linear(silu(linear(t[0], t[1])) * linear(t[0], t[2]), t[3]);
            return with_gradients(y.square().mean(), t);
          });
  const std::int64_t code = p.size(24, 3), mid = p.size(300, 11), in = p.size(784, 17);
  p.train("network/autoencoder_train",
          {data({p.size(256, 5), in}), weight({mid, in}, in), weight({code, mid}, mid),
           weight({mid, code}, code), weight({in, mid}, mid)},
          [](const Tensors& t) {
            const Tensor z = linear(gelu(linear(t[0], t[1])), t[2]);
            const Tensor y = linear(gelu(linear(z, t[3])), t[4]);
            return with_gradients(mse_loss(y, t[0]) + abs(z).mean() * 0.01, some(t, 1, 5));
          });
}

void add_shapes(Programs& p) {
  const std::int64_t many = p.size(16, 3), batch = p.size(256, 5), w = p.size(64, 6);
  p.train("network/ensemble_train",
          {data({many, batch, w}), weight({many, w, w}, w), data({many, 1, w}),
           weight({many, w, 1}, w), data({many, batch, 1})},
          [](const Tensors& t) {
            const Tensor y = matmul(tanh(matmul(t[0], t[1]) + t[2]), t[3]);
            return with_gradients(mse_loss(y, t[4]), some(t, 1, 4));
          });
  const std::int64_t tokens = p.size(196, 9), d = p.size(256, 8);
  p.add("network/mixer_block",
        {data({p.size(8, 2), tokens, d}), data({d}, DType::F32, 0.2, 1),
         weight({p.size(128, 5), tokens}, tokens), weight({tokens, p.size(128, 5)}, p.size(128, 5)),
         data({d}, DType::F32, 0.2, 1), weight({2 * d, d}, d), weight({d, 2 * d}, 2 * d)},
        [](const Tensors& t) -> Tensors {
          const Tensor mixed = linear(gelu(linear(layer_norm(t[0], t[1]).transpose(), t[2])), t[3]);
          const Tensor x = t[0] + mixed.transpose();
          return {x + linear(gelu(linear(layer_norm(x, t[4]), t[5])), t[6])};
        });
  p.add("network/radiance_field",
        {data({p.size(16384, 20), 3}), weight({p.size(128, 8), 63}, 63),
         weight({p.size(128, 8), p.size(128, 8)}, p.size(128, 8)),
         weight({4, p.size(128, 8)}, p.size(128, 8))},
        [](const Tensors& t) -> Tensors {
          Tensors features = {t[0]};
          for (int i = 0; i < 10; ++i) {
            features.push_back(sin(t[0] * std::ldexp(M_PI, i)));
            features.push_back(cos(t[0] * std::ldexp(M_PI, i)));
          }
          const Tensor y = linear(relu(linear(relu(linear(cat(features, 1), t[1])), t[2])), t[3]);
          return {sigmoid(y.narrow(1, 0, 3)), relu(y.narrow(1, 3, 1))};
        });
  p.train("network/sine_layers_train",
          {data({p.size(8192, 20), 2}), weight({p.size(128, 8), 2}, 2),
           weight({p.size(128, 8), p.size(128, 8)}, p.size(128, 8)),
           weight({1, p.size(128, 8)}, p.size(128, 8)), data({p.size(8192, 20), 1})},
          [](const Tensors& t) {
            const Tensor y = linear(sin(linear(sin(linear(t[0], t[1]) * 10), t[2])), t[3]);
            return with_gradients(mse_loss(y, t[4]), some(t, 1, 4));
          });
  const std::int64_t sets = p.size(512, 5), size = p.size(50, 4);
  p.add("network/point_sets",
        {data({sets, size, 3}), weight({p.size(64, 6), 3}, 3),
         weight({p.size(128, 7), p.size(64, 6)}, p.size(64, 6)),
         weight({10, p.size(128, 7)}, p.size(128, 7)), whole({sets, size}, 2)},
        [](const Tensors& t) -> Tensors { // padding counts for nothing
          const Tensor h = relu(linear(relu(linear(t[0], t[1])), t[2]));
          const Tensor mask = (t[4] == 1).unsqueeze(-1);
          return {log_softmax(linear(where(mask, h, 0.0).max(1), t[3]))};
        });
  const std::int64_t rows = p.size(2048, 6), e = p.size(16, 3), fields = p.size(26, 4),
                     words = p.size(1000, 9);
  const std::vector<Input> table = {data({rows, 13}),
                                    whole({rows, fields}, words),
                                    data({fields * words, e}),
                                    weight({e, 13}, 13),
                                    weight({1, (fields + 1) * fields / 2 + e}, 400),
                                    whole({rows}, 2)};
  const auto recommend = [=](const Tensors& t) { // DLRM: products of all pairs of embeddings
    const Tensor dense = relu(linear(t[0], t[3]));
    const Tensor at = t[1] + arange(fields) * words;
    const Tensor all = cat({dense.unsqueeze(1), embedding(t[2], at)}, 1);
    const Tensor products = matmul(all, all.transpose()).reshape({rows, -1});
    const Tensor pairs = tril_indices(fields + 1, fields + 1, -1);
    const Tensor chosen = take(products, pairs[0] * (fields + 1) + pairs[1], 1);
    return linear(cat({dense, chosen}, 1), t[4]).squeeze(1);
  };
  p.add("network/recommender", table,
        [=](const Tensors& t) -> Tensors { return {sigmoid(recommend(t))}; });
  p.train("network/recommender_train", table, [=](const Tensors& t) {
    return with_gradients(binary_cross_entropy_with_logits(recommend(t), t[5].to(DType::F32)),
                          some(t, 2, 5));
  });
}

} // namespace

void add_networks(Programs& p) {
  add_steps(p);
  add_shapes(p);
}

} // namespace egret::programs

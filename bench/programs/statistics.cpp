// Norms with gradients, and statistics over any axes.
#include "programs.h"

namespace egret::programs {

namespace {

/// The gradient of the mean of y · the last input.
Tensors against_last(const Tensor& y, const Tensors& t) {
  return with_gradients((y * t.back()).mean(), some(t, 0, t.size() - 1));
}

void add_norms(Programs& p) {
  const std::int64_t n = p.size(16, 3), c = p.size(64, 8), side = p.size(28, 7);
  const std::vector<Input> image = {data({n, c, side, side}, DType::F32, 1, 0.5),
                                    data({c}, DType::F32, 0.2, 1), data({c}),
                                    data({n, c, side, side})};
  p.train("statistics/batch_norm_train", image, [](const Tensors& t) {
    return against_last(batch_norm(t[0], {}, {}, t[1], t[2], {.training = true}), t);
  });
  p.train("statistics/group_norm_train", image,
          [](const Tensors& t) { return against_last(group_norm(t[0], 4, t[1], t[2]), t); });
  p.train("statistics/instance_norm_train", image,
          [](const Tensors& t) { return against_last(instance_norm(t[0], t[1], t[2]), t); });
  p.train("statistics/norm_of_channels_train", image, [](const Tensors& t) { // layer norm of images
    const Tensor y = (t[0] - t[0].mean(1, true)) * rsqrt(t[0].var(1, true, 0) + 1e-6);
    return against_last(y * t[1].reshape({-1, 1, 1}) + t[2].reshape({-1, 1, 1}), t);
  });
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const std::int64_t rows = p.size(4096, 9), d = p.size(768, 13);
    const std::vector<Input> lines = {data({rows, d}, dtype, 1, 0.5), data({d}, dtype, 0.2, 1),
                                      data({d}, dtype), data({rows, d}, dtype)};
    const std::string end = dtype == DType::F32 ? "" : "_bf16";
    p.train("statistics/layer_norm_train" + end, lines,
            [](const Tensors& t) { return against_last(layer_norm(t[0], t[1], t[2]), t); });
    p.train("statistics/rms_norm_train" + end, {lines[0], lines[1], lines[3]},
            [](const Tensors& t) { return against_last(rms_norm(t[0], t[1]), t); });
  }
  p.add("statistics/add_norm_chain",
        {data({p.size(4096, 9), p.size(513, 11)}), data({p.size(4096, 9), p.size(513, 11)}),
         data({p.size(513, 11)}, DType::F32, 0.2, 1)},
        [](const Tensors& t) -> Tensors {
          const Tensor x = t[0] + t[1];
          const Tensor y = x * rsqrt(x.square().mean(-1, true) + 1e-6) * t[2];
          return {x, y, softmax(y)};
        });
  const std::int64_t rows = p.size(1024, 9), d = p.size(512, 12);
  p.train("statistics/weight_norm_train",
          {data({rows, d}), weight({d, d}, d), data({d}, DType::F32, 0.2, 1), data({rows, d})},
          [](const Tensors& t) {
            const Tensor w = t[1] * (t[2] / norm(t[1], 1)).unsqueeze(1);
            return against_last(linear(t[0], w), t);
          });
}

void add_moments(Programs& p) {
  p.add("statistics/variance_mixed_axes",
        {data({p.size(32, 3), p.size(48, 4), p.size(40, 5), p.size(50, 7)}, DType::F32, 1, 3)},
        [](const Tensors& t) -> Tensors {
          return {t[0].var({0, 2}), t[0].mean({1, 3})};
        });
  p.add("statistics/logsumexp_middle",
        {data({p.size(64, 4), p.size(500, 9), p.size(128, 5)}, DType::F32, 5)},
        [](const Tensors& t) -> Tensors { return {logsumexp(t[0], 1)}; });
  p.add("statistics/logcumsumexp", {data({p.size(512, 5), p.size(2000, 17)}, DType::F32, 5)},
        [](const Tensors& t) -> Tensors { return {logcumsumexp(t[0], 1)}; });
  p.add("statistics/softmax_first_axis", {data({p.size(1000, 9), p.size(1024, 11)}, DType::F32, 3)},
        [](const Tensors& t) -> Tensors { return {softmax(t[0], 0)}; });
  p.add("statistics/skew_kurtosis", {data({p.size(20000, 40), p.size(100, 7)}, DType::F32, 1, 2)},
        [](const Tensors& t) -> Tensors {
          const Tensor z = (t[0] - t[0].mean(0)) / t[0].std(0);
          return {pow(z, 3).mean(0), pow(z, 4).mean(0) - 3};
        });
  p.add("statistics/robust_scale", {data({p.size(8192, 40), p.size(200, 7)}, DType::F32, 1, 2)},
        [](const Tensors& t) -> Tensors {
          const Tensor m = t[0].mean(0), z = clamp((t[0] - m) / (t[0].std(0) + 1e-6), -1.5, 1.5);
          return {z, z.abs().max(), (z.abs() >= 1.5).sum(0)};
        });
  p.add("statistics/entropies", {data({p.size(8192, 9), p.size(250, 11)}, DType::F32, 3)},
        [](const Tensors& t) -> Tensors {
          const Tensor chances = softmax(t[0]);
          const Tensor each = -(chances * log(chances + 1e-9)).sum(-1);
          const Tensor mean = chances.mean(0);
          return {each, -(mean * log(mean + 1e-9)).sum() - each.mean()};
        });
  p.add("statistics/cumulative_product",
        {data({p.size(1024, 5), p.size(500, 15)}, DType::F32, 0.05, 1)},
        [](const Tensors& t) -> Tensors {
          return {cumprod(t[0], 1), cumsum(t[0], 0)};
        });
  p.add("statistics/cummax_drawdown", {data({p.size(512, 5), p.size(2520, 30)}, DType::F32, 0.02)},
        [](const Tensors& t) -> Tensors {
          const Tensor wealth = exp(cumsum(t[0], 1));
          return {(1 - wealth / cummax(wealth, 1).values).max(1)};
        });
  p.add("statistics/all_axes_sums", {data({p.size(64, 5), p.size(128, 6), p.size(256, 7)})},
        [](const Tensors& t) -> Tensors {
          return {t[0].sum(),  t[0].sum(0),      t[0].sum(1),
                  t[0].sum(2), t[0].max({0, 1}), t[0].min({1, 2})};
        });
  p.add("statistics/exponential_average", {data({p.size(1024, 5), p.size(64, 9)})},
        [](const Tensors& t) -> Tensors {
          Tensor m = t[0].select(1, 0);
          Tensors all = {m};
          for (std::int64_t i = 1; i < t[0].size(1); ++i)
            all.push_back(m = m * 0.9 + t[0].select(1, i) * 0.1);
          return {stack(all, 1)};
        });
}

void add_pairs(Programs& p) {
  p.add("statistics/cdist",
        {data({p.size(1000, 9), p.size(64, 5)}), data({p.size(1500, 11), p.size(64, 5)})},
        [](const Tensors& t) -> Tensors { return {cdist(t[0], t[1])}; });
  p.add("statistics/manhattan",
        {data({p.size(400, 9), p.size(50, 5)}), data({p.size(300, 11), p.size(50, 5)})},
        [](const Tensors& t) -> Tensors {
          return {abs(t[0].unsqueeze(1) - t[1].unsqueeze(0)).sum(-1)};
        });
  p.train("statistics/gaussian_kernel_train",
          {data({p.size(700, 9), p.size(20, 4)}), data({p.size(600, 8), p.size(20, 4)}),
           data({p.size(600, 8)})},
          [](const Tensors& t) {
            const Tensor d = t[0].square().sum(1, true) + t[1].square().sum(1) -
                             matmul(t[0], t[1].transpose()) * 2;
            return with_gradients(matmul(exp(d * -0.1), t[2]).square().mean(), t);
          });
  p.add("statistics/covariance", {data({p.size(20000, 40), p.size(64, 6)}, DType::F32, 1, 1)},
        [](const Tensors& t) -> Tensors {
          const Tensor x = t[0] - t[0].mean(0);
          return {matmul(x.transpose(), x) / static_cast<double>(t[0].size(0) - 1)};
        });
  p.add("statistics/correlation", {data({p.size(300, 6), p.size(2000, 40)})},
        [](const Tensors& t) -> Tensors { return {corrcoef(t[0])}; });
  p.add("statistics/whitening", {data({p.size(4096, 60), p.size(128, 6)})},
        [](const Tensors& t) -> Tensors {
          const Tensor x = t[0] - t[0].mean(0); // by the coupled Newton iteration for inverse roots
          const std::int64_t d = x.size(1);
          const Tensor one = eye(d),
                       c = matmul(x.transpose(), x) / static_cast<double>(x.size(0)) + one * 1e-3;
          const Tensor size = trace(c);
          Tensor y = c / size, z = one;
          for (int i = 0; i < 8; ++i) {
            const Tensor w = (one * 3 - matmul(z, y)) * 0.5;
            y = matmul(y, w);
            z = matmul(w, z);
          }
          return {matmul(x, z / sqrt(size))};
        });
}

} // namespace

void add_statistics(Programs& p) {
  add_norms(p);
  add_moments(p);
  add_pairs(p);
}

} // namespace egret::programs

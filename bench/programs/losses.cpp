// Losses and their gradients.
#include "programs.h"

#include <cmath>

namespace egret::programs {

namespace {

void add_classes(Programs& p) {
  const std::int64_t rows = p.size(2048, 9), classes = p.size(5000, 21);
  p.train("loss/cross_entropy_smoothed",
          {data({rows, classes}, DType::F32, 3), whole({rows}, classes)}, [=](const Tensors& t) {
            const Tensor target = where(t[1] % 5 == 0, -100, t[1]);
            return with_gradients(
                cross_entropy(t[0], target, {.ignore_index = -100, .label_smoothing = 0.1}),
                {t[0]});
          });
  p.train("loss/cross_entropy_by_hand",
          {data({rows, classes}, DType::BF16, 3), whole({rows}, classes)}, [=](const Tensors& t) {
            const Tensor x = t[0].to(DType::F32);
            const Tensor chosen = gather(x, 1, t[1].unsqueeze(1)).squeeze(1);
            return with_gradients((logsumexp(x) - chosen).mean(), {t[0]});
          });
  p.train("loss/head_and_cross_entropy",
          {data({p.size(512, 6), p.size(256, 8)}),
           weight({p.size(4000, 19), p.size(256, 8)}, p.size(256, 8)),
           whole({p.size(512, 6)}, p.size(4000, 19))},
          [](const Tensors& t) {
            return with_gradients(cross_entropy(linear(t[0], t[1]), t[2]), {t[0], t[1]});
          });
  p.train("loss/z_loss_accuracy", {data({rows, classes}, DType::F32, 3), whole({rows}, classes)},
          [](const Tensors& t) {
            const Tensor z = logsumexp(t[0]);
            const Tensor loss = (z - gather(t[0], 1, t[1].unsqueeze(1)).squeeze(1)).mean() +
                                z.square().mean() * 1e-4;
            Tensors result = with_gradients(loss, {t[0]});
            result.push_back((argmax(t[0], 1) == t[1]).to(DType::F32).mean());
            return result;
          });
  p.train("loss/segmentation",
          {data({p.size(4, 2), p.size(21, 5), p.size(128, 8), p.size(128, 9)}),
           whole({p.size(4, 2), p.size(128, 8), p.size(128, 9)}, p.size(21, 5))},
          [](const Tensors& t) { // classes on axis 1
            const Tensor logits = t[0].permute({0, 2, 3, 1});
            return with_gradients(cross_entropy(logits, t[1]), {t[0]});
          });
  p.train("loss/dice",
          {data({p.size(4, 2), p.size(8, 3), p.size(128, 8), p.size(128, 9)}),
           whole({p.size(4, 2), p.size(128, 8), p.size(128, 9)}, p.size(8, 3))},
          [](const Tensors& t) {
            const Tensor chances = softmax(t[0], 1);
            const Tensor truth = one_hot(t[1], t[0].size(1)).permute({0, 3, 1, 2});
            const Tensor both = (chances * truth).sum({0, 2, 3});
            const Tensor all = chances.sum({0, 2, 3}) + truth.sum({0, 2, 3});
            return with_gradients(1 - ((both * 2 + 1) / (all + 1)).mean(), {t[0]});
          });
  p.train(
      "loss/focal",
      {data({p.size(100000, 40), p.size(20, 4)}), whole({p.size(100000, 40), p.size(20, 4)}, 2)},
      [](const Tensors& t) {
        const Tensor y = t[1].to(DType::F32), c = sigmoid(t[0]);
        const Tensor right = c * y + (1 - c) * (1 - y);
        const Tensor alpha = y * 0.25 + (1 - y) * 0.75;
        const Tensor ce = binary_cross_entropy_with_logits(t[0], y, Reduction::None);
        return with_gradients((alpha * pow(1 - right, 2) * ce).mean(), {t[0]});
      });
  p.train("loss/weighted_bce",
          {data({p.size(4096, 9), p.size(300, 5)}), whole({p.size(4096, 9), p.size(300, 5)}, 2),
           data({p.size(300, 5)}, DType::F32, 0.5, 2)},
          [](const Tensors& t) {
            return with_gradients(
                binary_cross_entropy_with_logits(t[0], t[1].to(DType::F32), {.pos_weight = t[2]}),
                {t[0]});
          });
  p.train("loss/distillation",
          {data({rows, classes / 5}, DType::F32, 3), data({rows, classes / 5}, DType::F32, 3)},
          [](const Tensors& t) {
            const Tensor loss =
                kl_div(log_softmax(t[0] / 2), softmax(t[1] / 2), {.batch_mean = true}) * 4;
            return with_gradients(loss, {t[0]});
          });
}

void add_embeddings(Programs& p) {
  const std::int64_t n = p.size(512, 8), d = p.size(128, 6);
  p.train("loss/contrastive", {data({n, d}), data({n, d})},
          [](const Tensors& t) { // InfoNCE, both ways
            const Tensor s = matmul(normalize(t[0]), normalize(t[1]).transpose()) / 0.07;
            const Tensor target = arange(t[0].size(0));
            return with_gradients(
                (cross_entropy(s, target) + cross_entropy(s.transpose(), target)) / 2, t);
          });
  p.train("loss/sigmoid_pairs", {data({n, d}), data({n, d})}, [](const Tensors& t) { // SigLIP
    const Tensor s = matmul(normalize(t[0]), normalize(t[1]).transpose()) * 10 - 5;
    const Tensor sign = eye(t[0].size(0)) * 2 - 1;
    return with_gradients(-log_sigmoid(s * sign).sum() / static_cast<double>(t[0].size(0)), t);
  });
  p.train(
      "loss/triplet",
      {data({p.size(8192, 9), d}), data({p.size(8192, 9), d}), data({p.size(8192, 9), d})},
      [](const Tensors& t) { return with_gradients(triplet_margin_loss(t[0], t[1], t[2]), t); });
  p.add("loss/hardest_triplet", {data({n, d}), whole({n}, p.size(32, 3))}, [](const Tensors& t) {
    const Tensor distance = cdist(t[0], t[0]);
    const Tensor same = t[1].unsqueeze(0) == t[1].unsqueeze(1);
    const Tensor far = where(same, distance, -1.0).max(1), near = where(same, 1e6, distance).min(1);
    return Tensors{relu(far - near + 0.3).mean()};
  });
  p.train("loss/barlow_twins", {data({n, d}), data({n, d})}, [](const Tensors& t) {
    const auto whitened = [](const Tensor& a) { return (a - a.mean(0)) / (a.std(0) + 1e-5); };
    const Tensor c =
        matmul(whitened(t[0]).transpose(), whitened(t[1])) / static_cast<double>(t[0].size(0));
    const Tensor off = c - eye(c.size(0));
    return with_gradients((off.square() * (eye(c.size(0)) * 0.995 + 0.005)).sum(), t);
  });
  p.train("loss/multi_margin",
          {data({p.size(8192, 9), p.size(100, 7)}), whole({p.size(8192, 9)}, p.size(100, 7))},
          [](const Tensors& t) { return with_gradients(multi_margin_loss(t[0], t[1]), {t[0]}); });
}

void add_regressions(Programs& p) {
  const std::int64_t rows = p.size(4096, 11), d = p.size(256, 6);
  p.train("loss/huber_weighted",
          {data({rows, d}, DType::F32, 3), data({rows, d}), data({rows, 1}, DType::F32, 0.5, 1)},
          [](const Tensors& t) {
            return with_gradients((huber_loss(t[0], t[1], 1, Reduction::None) * t[2]).mean(),
                                  {t[0]});
          });
  p.train(
      "loss/variational",
      {data({rows, d}), data({rows, d}), data({rows, d}), data({rows, d}, DType::F32, 0.5, 0.5)},
      [](const Tensors& t) {
        const Tensor kl = (1 + t[1] - t[0].square() - exp(t[1])).sum(1).mean() * -0.5;
        const Tensor match = binary_cross_entropy_with_logits(t[2], t[3], Reduction::Sum) /
                             static_cast<double>(t[0].size(0));
        return with_gradients(match + kl, {t[0], t[1], t[2]});
      });
  p.train("loss/mixture_density",
          {data({rows, 16}), data({rows, 16}), data({rows, 16}, DType::F32, 0.5), data({rows, 1})},
          [](const Tensors& t) {
            const Tensor z = (t[3] - t[1]) * exp(-t[2]);
            const Tensor log_density =
                log_softmax(t[0]) - t[2] - z.square() / 2 - 0.5 * std::log(2 * M_PI);
            return with_gradients(-logsumexp(log_density).mean(), {t[0], t[1], t[2]});
          });
  p.train("loss/quantile_losses", {data({p.size(65536, 13), 9}), data({p.size(65536, 13), 1})},
          [](const Tensors& t) {
            const Tensor q = linspace(0.1, 0.9, 9), e = t[1] - t[0];
            return with_gradients(maximum(q * e, (q - 1) * e).sum(1).mean(), {t[0]});
          });
  p.add("loss/advantages",
        {data({p.size(256, 5), p.size(64, 7)}), data({p.size(256, 5), p.size(64, 7)}),
         whole({p.size(256, 5), p.size(64, 7)}, 2)},
        [](const Tensors& t) -> Tensors { // of a policy's rewards and values, backwards in time
          const std::int64_t n = t[0].size(1);
          Tensor next = zeros({t[0].size(0)}), value = zeros({t[0].size(0)});
          Tensors result;
          for (std::int64_t i = n; i-- > 0;) {
            const Tensor alive = 1 - t[2].select(1, i).to(DType::F32);
            next = t[0].select(1, i) + value * alive * 0.99 - t[1].select(1, i) +
                   next * alive * (0.99 * 0.95);
            value = t[1].select(1, i);
            result.insert(result.begin(), next);
          }
          const Tensor a = stack(result, 1);
          return {(a - a.mean()) / (a.std() + 1e-8)};
        });
  p.train("loss/policy_clipped",
          {data({p.size(65536, 20), 8}), data({p.size(65536, 20)}, DType::F32, 0.5, -2),
           data({p.size(65536, 20)}), whole({p.size(65536, 20)}, 8)},
          [](const Tensors& t) {
            const Tensor logs = log_softmax(t[0]);
            const Tensor ratio = exp(gather(logs, 1, t[3].unsqueeze(1)).squeeze(1) - t[1]);
            const Tensor gain = minimum(ratio * t[2], clamp(ratio, 0.8, 1.2) * t[2]).mean();
            const Tensor entropy = -(exp(logs) * logs).sum(1).mean();
            return with_gradients(-gain - entropy * 0.01, {t[0]});
          });
  const std::int64_t patients = p.size(2000, 30); // Cox's partial likelihood
  p.train("loss/survival", {data({patients}), whole({patients}, 2), data({patients})},
          [](const Tensors& t) {
            const Tensor order = argsort(t[2], 0, true);
            const Tensor risk = take(t[0], order, 0), event = take(t[1], order, 0).to(DType::F32);
            const Tensor gain = ((risk - logcumsumexp(risk, 0)) * event).sum();
            return with_gradients(-gain / maximum(event.sum(), 1.0), {t[0]});
          });
}

} // namespace

void add_losses(Programs& p) {
  add_classes(p);
  add_embeddings(p);
  add_regressions(p);
}

} // namespace egret::programs

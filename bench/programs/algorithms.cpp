// Steps of known algorithms: clustering, graphs, dynamic programming, iterations.
#include "programs.h"

#include <cmath>

namespace egret::programs {

namespace {

void add_clusters(Programs& p) {
  const std::int64_t n = p.size(20000, 40), d = p.size(16, 3), k = p.size(32, 4);
  p.add("algorithm/k_means", {data({n, d}), data({k, d})}, [=](const Tensors& t) -> Tensors {
    const Tensor distance = t[1].square().sum(1) - matmul(t[0], t[1].transpose()) * 2;
    const Tensor nearest = argmin(distance, 1);
    const Tensor sums = index_add(zeros({k, d}), nearest, t[0], 0);
    const Tensor counts = bincount(nearest, k);
    return {sums / maximum(counts, 1).unsqueeze(1), nearest, counts};
  });
  p.add("algorithm/k_nearest",
        {data({p.size(512, 7), d}), data({p.size(4096, 20), d}), whole({p.size(4096, 20)}, 10)},
        [](const Tensors& t) -> Tensors {
          const Sorted best = topk(cdist(t[0], t[1]), 5, -1, false);
          const Tensor votes = one_hot(take(t[2], best.indices, 0), 10).sum(1);
          return {best.values, votes};
        });
  p.add("algorithm/gaussian_mixture",
        {data({n, d}), data({k, d}), data({k, d}, DType::F32, 0.2, 0.5), data({k})},
        [](const Tensors& t) -> Tensors {
          const Tensor z = (t[0].unsqueeze(1) - t[1]) / t[2];
          const Tensor logs = log_softmax(t[3]) - log(t[2]).sum(1) - z.square().sum(-1) / 2;
          const Tensor share = softmax(logs), counts = share.sum(0);
          return {matmul(share.transpose(), t[0]) / counts.unsqueeze(1), counts,
                  logsumexp(logs).mean()};
        });
  p.train("algorithm/vector_quantize_train",
          {data({p.size(4096, 9), p.size(64, 5)}), data({p.size(512, 6), p.size(64, 5)})},
          [](const Tensors& t) {
            const Tensor nearest =
                argmin(t[1].square().sum(1) - matmul(t[0], t[1].transpose()) * 2, 1);
            const Tensor chosen = embedding(t[1], nearest);
            const Tensor passed = t[0] + (chosen - t[0]).detach();
            const Tensor loss = mse_loss(chosen, t[0].detach()) +
                                mse_loss(chosen.detach(), t[0]) * 0.25 + tanh(passed).mean();
            return with_gradients(loss, t);
          });
}

void add_graphs(Programs& p) {
  const std::int64_t n = p.size(2000, 9);
  p.add("algorithm/page_rank_dense", {data({n, n}), data({n}, DType::F32, 0.5, 0.5)},
        [](const Tensors& t) -> Tensors {
          const Tensor linked = (t[0] > 0.9).to(DType::F32);
          const Tensor ways = linked / maximum(linked.sum(0), 1.0);
          Tensor rank = t[1] / t[1].sum();
          for (int i = 0; i < 5; ++i)
            rank = matmul(ways, rank) * 0.85 + 0.15 / static_cast<double>(t[0].size(0));
          return {rank};
        });
  const std::int64_t nodes = p.size(20000, 15), edges = p.size(200000, 60);
  p.add("algorithm/page_rank_edges", {whole({edges}, nodes), whole({edges}, nodes)},
        [=](const Tensors& t) -> Tensors {
          const Tensor out = maximum(bincount(t[0], nodes), 1).to(DType::F32);
          Tensor rank = full({nodes}, 1.0 / static_cast<double>(nodes));
          for (int i = 0; i < 3; ++i) {
            const Tensor sent = take(rank / out, t[0], 0);
            rank =
                index_add(zeros({nodes}), t[1], sent, 0) * 0.85 + 0.15 / static_cast<double>(nodes);
          }
          return {rank};
        });
  p.add("algorithm/shortest_paths", {data({p.size(300, 9), p.size(300, 9)}, DType::F32, 0.5, 0.6)},
        [](const Tensors& t) -> Tensors {
          return {(t[0].unsqueeze(2) + t[0].unsqueeze(0)).min(1)}; // min-plus product
        });
  p.add("algorithm/connected_labels", {data({p.size(512, 12), p.size(512, 13)})},
        [](const Tensors& t) -> Tensors {
          const Tensor inside = t[0] > -0.3;
          const std::int64_t h = t[0].size(0), w = t[0].size(1);
          Tensor label = where(inside, arange(1, h * w + 1).reshape({h, w}), 0);
          for (int i = 0; i < 4; ++i) {
            const Tensor q = pad(label, {1, 1}, {1, 1}, 0);
            Tensor most = label;
            for (int k = 0; k < 4; ++k)
              most = maximum(most, q.narrow(0,
                                            k == 0   ? 0
                                            : k == 1 ? 2
                                                     : 1,
                                            h)
                                       .narrow(1,
                                               k == 2   ? 0
                                               : k == 3 ? 2
                                                        : 1,
                                               w));
            label = where(inside, most, 0);
          }
          return {label};
        });
}

void add_sequences(Programs& p) {
  p.add("algorithm/edit_distance",
        {whole({p.size(256, 4), p.size(24, 6)}, 4), whole({p.size(256, 4), p.size(200, 9)}, 4)},
        [](const Tensors& t) -> Tensors {
          const std::int64_t n = t[0].size(1),
                             m = t[1].size(1); // a row at a time, by a running minimum
          const Tensor line = arange(m + 1);
          Tensor row = line.unsqueeze(0).expand({t[0].size(0), m + 1});
          for (std::int64_t i = 0; i < n; ++i) {
            const Tensor other = (t[1] != t[0].narrow(1, i, 1)).to(DType::I64);
            const Tensor best = minimum(row.narrow(1, 1, m) + 1, row.narrow(1, 0, m) + other);
            const Tensor start = cat({row.narrow(1, 0, 1) + 1, best}, 1);
            row = cummin(start - line, 1).values + line;
          }
          return {row.select(1, m)};
        });
  const std::int64_t b = p.size(64, 3), steps = p.size(32, 5), s = p.size(48, 6);
  const std::vector<Input> chain = {data({b, steps, s}, DType::F32, 3), data({s, s})};
  p.add("algorithm/viterbi", chain, [](const Tensors& t) -> Tensors {
    Tensor score = t[0].select(1, 0);
    Tensors ways;
    for (std::int64_t i = 1; i < t[0].size(1); ++i) {
      const Tensor all = score.unsqueeze(2) + t[1];
      ways.push_back(argmax(all, 1));
      score = all.max(1) + t[0].select(1, i);
    }
    return {score.max(1), stack(ways, 1)};
  });
  p.train("algorithm/forward_chain_train", chain, [](const Tensors& t) { // as a CRF's
    Tensor score = t[0].select(1, 0);
    for (std::int64_t i = 1; i < t[0].size(1); ++i)
      score = logsumexp(score.unsqueeze(2) + t[1], 1) + t[0].select(1, i);
    return with_gradients(logsumexp(score).mean(), t);
  });
  p.add("algorithm/beam_step",
        {data({p.size(32, 3), 4, p.size(8000, 30)}, DType::F32, 4), data({p.size(32, 3), 4})},
        [](const Tensors& t) -> Tensors {
          const Tensor all = (log_softmax(t[0]) + t[1].unsqueeze(-1)).flatten(1);
          const Sorted best = topk(all, 4);
          return {best.values, floor_divide(best.indices, t[0].size(-1))};
        });
}

void add_iterations(Programs& p) {
  p.add("algorithm/sinkhorn", {data({p.size(700, 9), p.size(500, 11)})},
        [](const Tensors& t) -> Tensors {
          Tensor logs = t[0] / 0.1;
          for (int i = 0; i < 5; ++i) {
            logs = logs - logsumexp(logs, 1, true);
            logs = logs - logsumexp(logs, 0, true);
          }
          return {exp(logs)};
        });
  p.add("algorithm/conjugate_gradients",
        {data({p.size(500, 9), p.size(500, 9)}, DType::F32, 0.05), data({p.size(500, 9)})},
        [](const Tensors& t) -> Tensors {
          const Tensor a = matmul(t[0], t[0].transpose()) + eye(t[0].size(0));
          Tensor x = zeros_like(t[1]), r = t[1], q = r, rr = dot(r, r);
          for (int i = 0; i < 6; ++i) {
            const Tensor aq = matmul(a, q), step = rr / dot(q, aq);
            x = x + q * step;
            r = r - aq * step;
            const Tensor next = dot(r, r);
            q = r + q * (next / rr);
            rr = next;
          }
          return {x};
        });
  p.add("algorithm/mandelbrot",
        {data({p.size(1000, 12), 1}, DType::F32, 1.2),
         data({p.size(1200, 14)}, DType::F32, 1.5, -0.6)},
        [](const Tensors& t) -> Tensors {
          Tensor x = zeros({t[0].size(0), t[1].size(0)}), y = x, steps = x;
          for (int i = 0; i < 16; ++i) {
            const Tensor xx = x * x - y * y + t[1];
            y = clamp(x * y * 2 + t[0], -10, 10);
            x = clamp(xx, -10, 10);
            steps = steps + (x * x + y * y < 4).to(DType::F32);
          }
          return {steps};
        });
  p.add("algorithm/newton_roots", {data({p.size(1000000, 50)}, DType::F32, 0.9, 1)},
        [](const Tensors& t) -> Tensors { // Kepler's equation
          Tensor e = t[0];
          for (int i = 0; i < 5; ++i)
            e = e - (e - sin(e) * 0.6 - t[0]) / (1 - cos(e) * 0.6);
          return {e};
        });
  p.add("algorithm/spheres",
        {data({p.size(20000, 30), 3}), data({p.size(64, 5), 3}, DType::F32, 3),
         data({p.size(64, 5)}, DType::F32, 0.3, 0.6)},
        [](const Tensors& t) -> Tensors {
          const Tensor way = t[0] / (norm(t[0], -1, true) + 1e-6); // rays from the origin
          const Tensor along = matmul(way, t[1].transpose());
          const Tensor inside = along.square() - t[1].square().sum(1) + t[2].square();
          const Tensor far =
              where((inside > 0) & (along > 0), along - sqrt(maximum(inside, 0.0)), 1e4);
          const Tensor hit = far.min(1),
                       normal = way * hit.unsqueeze(1) - take(t[1], argmin(far, 1), 0);
          return {where(hit < 1e4, relu(normal.select(1, 2)), 0.0)};
        });
  p.add("algorithm/random_projection_hash",
        {data({p.size(20000, 30), p.size(128, 6)}), data({p.size(128, 6), 16})},
        [](const Tensors& t) -> Tensors {
          const Tensor bits = (matmul(t[0], t[1]) > 0).to(DType::I64);
          const Tensor code = (bits << arange(16)).sum(1);
          return {code, bits.to(DType::F32).mean(0)};
        });
  p.add("algorithm/game_tree_values", {data({p.size(512, 3), 4096})},
        [](const Tensors& t) -> Tensors {
          Tensor v = t[0];
          for (int i = 0; i < 6; ++i) {
            const Tensor children = v.reshape({v.size(0), -1, 4});
            v = i % 2 == 0 ? children.max(2) : children.min(2);
          }
          return {v.squeeze(1)};
        });
}

} // namespace

void add_algorithms(Programs& p) {
  add_clusters(p);
  add_graphs(p);
  add_sequences(p);
  add_iterations(p);
}

} // namespace egret::programs

// Scatters, gathers, histograms and sums by segment.
#include "programs.h"

namespace egret::programs {

namespace {

void add_sums(Programs& p) {
  const std::int64_t rows = p.size(10000, 30), many = p.size(65536, 100), d = p.size(128, 5);
  p.add("scatter/index_add", {data({rows, d}), whole({many}, rows), data({many, d})},
        [](const Tensors& t) -> Tensors { return {index_add(t[0], t[1], t[2], 0)}; });
  p.add("scatter/index_add_columns",
        {data({p.size(2048, 7), p.size(300, 11)}), whole({p.size(1024, 19)}, p.size(300, 11)),
         data({p.size(2048, 7), p.size(1024, 19)})},
        [](const Tensors& t) -> Tensors { return {index_add(t[0], t[1], t[2], 1)}; });
  const std::int64_t n = p.size(2048, 9), m = p.size(1024, 13);
  p.add("scatter/scatter_add_rows", {data({n, m}), whole({n, m}, n), data({n, m})},
        [](const Tensors& t) -> Tensors { return {scatter_add(t[0], 0, t[1], t[2])}; });
  p.add("scatter/scatter_add_columns", {data({n, m}), whole({n, m}, m), data({n, m})},
        [](const Tensors& t) -> Tensors { return {scatter_add(t[0], 1, t[1], t[2])}; });
  p.add("scatter/scatter_mean", {whole({many}, rows), data({many, d})},
        [=](const Tensors& t) -> Tensors {
          const Tensor sums = index_add(zeros({rows, d}), t[0], t[1], 0);
          const Tensor counts = bincount(t[0], rows).to(DType::F32);
          return {sums / maximum(counts, 1.0).unsqueeze(1)};
        });
  p.add("scatter/segment_max", {whole({many}, rows), data({many, d / 4 + 1})},
        [=](const Tensors& t) -> Tensors {
          const Shape shape = {rows, d / 4 + 1};
          const Tensor index = t[0].unsqueeze(1).expand(t[1].shape());
          return {scatter(full(shape, -10.0), 0, index, t[1], Scatter::Max)};
        });
  p.add("scatter/segment_softmax", {whole({many}, rows), data({many})},
        [=](const Tensors& t) -> Tensors {
          const Tensor most = scatter(full({rows}, -10.0), 0, t[0], t[1], Scatter::Max);
          const Tensor e = exp(t[1] - take(most, t[0], 0));
          const Tensor sums = index_add(zeros({rows}), t[0], e, 0);
          return {e / take(sums, t[0], 0)};
        });
  p.add("scatter/prefix_segments", {whole({p.size(1024, 8), p.size(256, 17)}, 2)},
        [](const Tensors& t) -> Tensors { // numbers of runs, and lengths so far
          const Tensor runs = cumsum(t[0], 1);
          return {runs,
                  cumsum(1 - t[0], 1) - cummax(where(t[0] == 1, cumsum(1 - t[0], 1), 0), 1).values};
        });
}

void add_counts(Programs& p) {
  p.add("scatter/bincount", {whole({p.size(1 << 20, 500)}, 1000)},
        [](const Tensors& t) -> Tensors { return {bincount(t[0], 1000)}; });
  p.add("scatter/joint_histogram", {data({p.size(1 << 19, 300)}), data({p.size(1 << 19, 300)})},
        [](const Tensors& t) -> Tensors {
          const auto bins = [](const Tensor& a) {
            return floor((a + 1) * 32).clamp(0, 63).to(DType::I64);
          };
          const Tensor counts = bincount(bins(t[0]) * 64 + bins(t[1]), 4096).reshape({64, 64});
          return {counts.to(DType::F32) / static_cast<double>(t[0].numel())};
        });
  p.add("scatter/weighted_histogram",
        {whole({p.size(1 << 19, 300)}, 256), data({p.size(1 << 19, 300)})},
        [](const Tensors& t) -> Tensors { return {bincount(t[0], 256, t[1])}; });
  p.add("scatter/row_histograms", {data({p.size(512, 5), p.size(1000, 37)}, DType::F32, 0.5, 0.5)},
        [](const Tensors& t) -> Tensors {
          const Tensor bins = floor(t[0] * 32).clamp(0, 31).to(DType::I64);
          return {scatter_add(zeros({t[0].size(0), 32}), 1, bins, ones_like(t[0]))};
        });
  p.add("scatter/image_equalize", {whole({p.size(512, 16), p.size(512, 20)}, 256, DType::U8)},
        [](const Tensors& t) -> Tensors {
          const Tensor counts = bincount(t[0].flatten(), 256);
          const Tensor table =
              cumsum(counts, 0).to(DType::F32) * (255.0 / static_cast<double>(t[0].numel()));
          return {take(table, t[0], 0)};
        });
  p.add("scatter/confusion", {whole({p.size(16384, 60)}, 100), data({p.size(16384, 60), 100})},
        [](const Tensors& t) -> Tensors { // by products of one-hot rows
          const Tensor truth = one_hot(t[0], 100), guess = one_hot(argmax(t[1], 1), 100);
          const Tensor table = matmul(truth.transpose(), guess);
          return {table, trace(table) / static_cast<double>(t[0].numel())};
        });
}

void add_tables(Programs& p) {
  const std::int64_t words = p.size(30000, 50), d = p.size(128, 6), tokens = p.size(8192, 30);
  p.train("scatter/embedding_gradient",
          {data({words, d}), whole({tokens}, words), data({tokens, d})}, [](const Tensors& t) {
            return with_gradients((embedding(t[0], t[1]) * t[2]).square().mean(), {t[0]});
          });
  p.train("scatter/embedding_bag_train", {data({words, d}), whole({p.size(2048, 7), 20}, words)},
          [](const Tensors& t) {
            const Tensor bags = embedding(t[0], t[1]).mean(1);
            return with_gradients(tanh(bags).square().mean(), {t[0]});
          });
  p.add("scatter/gather_rows",
        {data({p.size(4096, 9), p.size(1024, 17)}),
         whole({p.size(4096, 9), p.size(256, 5)}, p.size(1024, 17))},
        [](const Tensors& t) -> Tensors { return {gather(t[0], 1, t[1]) * 2}; });
  const std::int64_t nodes = p.size(4096, 20), edges = p.size(32768, 60);
  const std::vector<Input> graph = {data({nodes, d}), weight({d, d}, d), whole({edges}, nodes),
                                    whole({edges}, nodes), data({edges})};
  const auto message = [](const Tensors& t) {
    const Tensor h = matmul(t[0], t[1]);
    const Tensor sent = take(h, t[2], 0) * t[4].unsqueeze(1);
    return relu(index_add(zeros_like(h), t[3], sent, 0) + h);
  };
  p.add("scatter/graph_convolution", graph,
        [=](const Tensors& t) -> Tensors { return {message(t)}; });
  p.train("scatter/graph_convolution_train", graph, [=](const Tensors& t) {
    return with_gradients(message(t).square().mean(), {t[0], t[1], t[4]});
  });
  const std::int64_t points = p.size(1024, 12), near = p.size(8, 3);
  p.add("scatter/edge_convolution",
        {data({points, d / 2}), weight({d, d / 2 * 2}, d), whole({points * near}, points),
         whole({points * near}, points)},
        [=](const Tensors& t) -> Tensors { // the largest of a few messages (Wang et al. 2019)
          const Tensor ends = cat({take(t[0], t[2], 0), take(t[0], t[3], 0)}, 1);
          return {max(relu(linear(ends, t[1])).reshape({points, near, d}), 1)};
        });
  p.add("scatter/hashed_features", {whole({p.size(4096, 9), 16}, 1 << 30), data({1 << 12, 8})},
        [](const Tensors& t) -> Tensors {
          Tensor sum = zeros({t[0].size(0), 8});
          for (const std::int64_t prime : {73856093, 19349663, 83492791})
            sum += embedding(t[1], (t[0] * prime) % (1 << 12)).sum(1);
          return {sum};
        });
}

} // namespace

void add_scatters(Programs& p) {
  add_sums(p);
  add_counts(p);
  add_tables(p);
}

} // namespace egret::programs

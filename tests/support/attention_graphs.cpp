#include "support/attention_graphs.h"

#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"

#include <limits>

namespace egret::testing {

namespace {

constexpr double kLowest = -std::numeric_limits<double>::infinity();

Tensor scores_of(Graph& cx, const Attention& f, const Tensor& q, const Tensor& k) {
  Tensor scores = matmul(q, k.transpose()).to(DType::F32) * 0.25;
  if (f.capped)
    scores = tanh(scores / 3.0) * 3.0;
  if (f.bias)
    scores = scores + cx.tensor({f.heads, f.queries, f.keys}, DType::F32);
  const Tensor row = arange(f.queries).reshape({f.queries, 1}), column = arange(f.keys);
  switch (f.mask) {
  case Mask::None:
    return scores;
  case Mask::Causal:
    return where(lt(column, arange(1, f.queries + 1).reshape({f.queries, 1})), scores, kLowest);
  case Mask::Window:
    return where(lt(column, arange(1, f.queries + 1).reshape({f.queries, 1})),
                 where(lt(row, arange(9, f.keys + 9)), scores, kLowest), kLowest);
  case Mask::Given:
    return where(lt(cx.tensor({f.queries, f.keys}, DType::F32), 1.0), scores, kLowest);
  }
  return scores;
}

} // namespace

const std::vector<Attention>& attentions() {
  static const std::vector<Attention> list{
      {"Plain", 1, 2, 1, 40, 40, 16, 16, DType::BF16, Mask::None, false, false, false},
      {"Causal", 2, 1, 1, 70, 70, 16, 16, DType::BF16, Mask::Causal, false, false, true},
      {"CausalInHalf", 1, 2, 1, 64, 64, 32, 32, DType::F16, Mask::Causal, false, false, true},
      {"Window", 1, 1, 1, 90, 90, 16, 32, DType::BF16, Mask::Window, false, false, true},
      {"GivenMask", 1, 2, 1, 33, 50, 16, 16, DType::BF16, Mask::Given, false, false, true},
      {"Bias", 1, 2, 1, 48, 48, 16, 16, DType::BF16, Mask::Causal, true, false, false},
      {"Capped", 1, 1, 1, 80, 96, 24, 40, DType::F16, Mask::Causal, false, true, true},
      {"SharedKeys", 1, 2, 3, 32, 64, 16, 16, DType::BF16, Mask::Causal, false, false, false},
      {"OddSizes", 1, 1, 1, 37, 51, 20, 12, DType::BF16, Mask::None, false, false, true}};
  return list;
}

ir::Graph attention_graph(const Attention& f) {
  Graph cx;
  Tensor q = cx.tensor({f.batch, f.heads, f.shared * f.queries, f.width}, f.type);
  Tensor k = cx.tensor({f.batch, f.heads, f.keys, f.width}, f.type);
  Tensor v = cx.tensor({f.batch, f.heads, f.keys, f.value_width}, f.type);
  const std::int64_t rows = f.shared * f.queries;
  const Tensor up = cx.tensor({f.batch, f.heads, rows, f.value_width}, f.type);
  for (Tensor* t : {&q, &k, &v})
    t->set_requires_grad(f.gradients);
  // Queries that share their keys are rows of one product.
  const auto split = [&](const Tensor& t, std::int64_t last) {
    return t.reshape({f.batch, f.heads, f.shared, f.queries, last});
  };
  Tensor mixed;
  if (f.shared > 1) {
    const Tensor keys = k.reshape({f.batch, f.heads, 1, f.keys, f.width}),
                 values = v.reshape({f.batch, f.heads, 1, f.keys, f.value_width});
    const Tensor p = softmax(scores_of(cx, f, split(q, f.width), keys), -1);
    mixed = matmul(p.to(f.type), values).reshape({f.batch, f.heads, rows, f.value_width});
  } else {
    mixed = matmul(softmax(scores_of(cx, f, q, k), -1).to(f.type), v);
  }
  std::vector<Tensor> outputs{mixed};
  if (f.gradients) {
    const std::vector<Tensor> by = grad((mixed * up).to(DType::F32).sum(), {q, k, v});
    outputs.insert(outputs.end(), by.begin(), by.end());
  }
  ir::Graph recorded;
  const Pass record("record", [&](const ir::Graph& graph, Notes&) {
    recorded = graph;
    return graph;
  });
  if (f.gradients)
    cx.compile(record, &outputs[0], &outputs[1], &outputs[2], &outputs[3]);
  else
    cx.compile(record, &outputs[0]);
  return passes::normalize()(ir::without_dead_code(recorded));
}

} // namespace egret::testing

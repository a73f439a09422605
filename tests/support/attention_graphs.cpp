#include "support/attention_graphs.h"

#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "support/recorded_graph.h"

#include <limits>
#include <optional>
#include <random>

namespace egret::testing {

namespace {

constexpr double kMasked = -std::numeric_limits<double>::infinity();

Tensor scores_of(egret::Graph& cx, const Attention& f, const Tensor& q, const Tensor& k) {
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
    return where(lt(column, arange(1, f.queries + 1).reshape({f.queries, 1})), scores, kMasked);
  case Mask::Window:
    return where(lt(column, arange(1, f.queries + 1).reshape({f.queries, 1})),
                 where(lt(row, arange(9, f.keys + 9)), scores, kMasked), kMasked);
  case Mask::Given:
    return where(lt(cx.tensor({f.queries, f.keys}, DType::F32), 1.0), scores, kMasked);
  case Mask::Length: {
    const Tensor last = cx.tensor({1}, DType::I64) * (f.keys / 3) + f.keys / 2;
    return where(column <= last, scores, kMasked);
  }
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
      {"OddSizes", 1, 1, 1, 37, 51, 20, 12, DType::BF16, Mask::None, false, false, true},
      {"Paged", 2, 2, 1, 40, 64, 16, 16, DType::BF16, Mask::None, false, false, false, 9},
      {"PagedSharedKeys", 1, 2, 2, 33, 48, 16, 32, DType::BF16, Mask::Given, false, false, false,
       5},
      {"ToALength", 1, 2, 1, 70, 70, 16, 16, DType::BF16, Mask::Length, false, false, false}};
  return list;
}

ir::Graph attention_graph(const Attention& f) {
  egret::Graph cx;
  Tensor q = cx.tensor({f.batch, f.heads, f.shared * f.queries, f.width}, f.type);
  constexpr std::int64_t kBlock = 16;
  std::optional<Tensor> table;
  if (f.blocks > 0)
    table = cx.tensor({f.batch, f.keys / kBlock}, DType::I64);
  const auto keys_of = [&](std::int64_t width) {
    if (!table)
      return cx.tensor({f.batch, f.heads, f.keys, width}, f.type);
    const Tensor blocks = cx.tensor({f.heads, f.blocks, kBlock, width}, f.type);
    return take(blocks, *table, 1).transpose(0, 1).reshape({f.batch, f.heads, f.keys, width});
  };
  Tensor k = keys_of(f.width), v = keys_of(f.value_width);
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
  return recorded_graph(cx, outputs);
}

namespace {

/// Choices of a random composition.
class Chooser {
public:
  explicit Chooser(std::uint64_t seed) : random_(seed) {}
  std::int64_t below(std::int64_t n) { return std::int64_t(random_() % std::uint64_t(n)); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }

private:
  std::mt19937_64 random_;
};

/// Scores of [.., queries, keys] with up to three changes. `seen`: every row keeps some key, if
/// there are as many keys as rows: by masks of indices alone.
Tensor changed_scores(egret::Graph& cx, Chooser& choose, Tensor s, std::int64_t heads,
                      std::int64_t rows, std::int64_t keys, bool seen) {
  const Tensor row = arange(rows).reshape({rows, 1}), column = arange(keys);
  for (std::int64_t n = choose.below(4); n > 0; --n)
    switch (choose.below(9)) {
    case 0:
      s = where(lt(column, arange(1, rows + 1).reshape({rows, 1})), s, kMasked);
      break;
    case 1: { // a window, which may leave rows without any key
      const std::int64_t width = choose.between(1, 12);
      s = where(lt(row, arange(width, keys + width)), s, kMasked);
      break;
    }
    case 2:
      if (!seen)
        s = where(lt(cx.tensor({rows, keys}, DType::F32), choose.one_in(2) ? 0.8 : 0.0), s,
                  kMasked);
      break;
    case 3:
      s = s + cx.tensor({heads, 1, rows, keys}, DType::F32);
      break;
    case 4:
      s = s + (choose.one_in(2) ? cx.tensor({keys}, DType::F32) : cx.tensor({rows, 1}, DType::F32));
      break;
    case 5:
      s = tanh(s / 2.0) * 2.0;
      break;
    case 6: // ALiBi
      s = s + (column - row).to(DType::F32) * cx.tensor({heads, 1, 1, 1}, DType::F32);
      break;
    case 7:
      s = s * (choose.one_in(2) ? 0.5 : 3.0);
      break;
    default: // a mask that is added
      if (!seen)
        s = s + where(lt(cx.tensor({rows, keys}, DType::F32), 0.5), full({}, 0.0), kMasked);
    }
  return s;
}

/// What the values are mixed by.
Tensor weights_of(egret::Graph& cx, Chooser& choose, const Tensor& s, std::int64_t rows,
                  std::int64_t keys) {
  const Tensor top = s.max(-1, true);
  switch (choose.below(14)) {
  case 0: // a mask behind the normalisation
    return where(lt(arange(keys), arange(1, rows + 1).reshape({rows, 1})), softmax(s, -1), 0.0);
  case 1:
    return softmax(s, -1) * cx.tensor({rows, keys}, DType::F32);
  case 2: { // the maximum along the other axis
    const Tensor e = exp(s - maximum(s.max(-2, true), full({}, -1e30)));
    return e / e.sum(-1, true);
  }
  case 3: { // none
    const Tensor e = exp(s);
    return e / e.sum(-1, true);
  }
  case 4: { // one more in the divisor
    const Tensor e = exp(s - top);
    return e / (e.sum(-1, true) + 1.0);
  }
  case 5: { // a divisor that may be small
    const Tensor e = exp(s - top);
    return e / (e * cx.tensor({keys}, DType::F32)).sum(-1, true);
  }
  case 6: { // twice the maximum
    const Tensor e = exp(s - top * 2.0);
    return e / e.sum(-1, true);
  }
  case 7: { // squares
    const Tensor e = exp(s - top);
    return e * e / (e * e).sum(-1, true);
  }
  case 8:
    return exp(log_softmax(s, -1));
  case 9:
    return maximum(s, full({}, 0.0));
  default: {
    const Tensor e = exp(s - top);
    return e / e.sum(-1, true);
  }
  }
}

} // namespace

ir::Graph random_attention(std::uint64_t seed) {
  Chooser choose(seed);
  egret::Graph cx;
  constexpr DType kTypes[] = {DType::F32, DType::F32, DType::BF16, DType::F16};
  const DType type = kTypes[choose.below(4)];
  const std::int64_t heads = choose.between(1, 2), shared = choose.one_in(3) ? 2 : 1,
                     rows = choose.between(9, 30), width = choose.between(2, 6),
                     columns = choose.between(1, 7);
  // Points that a mask of indices leaves out are not looked at: in gradients, the NaN of a row
  // without any key does not reach those of keys, as it does in the reference.
  const bool gradients = choose.one_in(3);
  const std::int64_t keys = choose.between(gradients ? rows : 9, 30);
  Tensor q = cx.tensor({heads, shared, rows, width}, type),
         k = cx.tensor({heads, 1, keys, width}, type),
         v = cx.tensor({heads, 1, keys, columns}, type);
  const Tensor up = cx.tensor({heads, shared, rows, columns}, DType::F32);
  for (Tensor* t : {&q, &k, &v})
    t->set_requires_grad(gradients);
  const Tensor left = choose.one_in(4) ? q * 0.25 : q, right = choose.one_in(6) ? k * 0.5 : k;
  Tensor s = matmul(left, right.transpose()).to(DType::F32);
  s = changed_scores(cx, choose, s, heads, rows, keys, gradients);
  Tensor mixed = matmul(weights_of(cx, choose, s, rows, keys).to(type), v).to(DType::F32);
  if (choose.one_in(4))
    mixed = tanh(mixed);
  std::vector<Tensor> outputs{mixed};
  if (gradients) {
    const std::vector<Tensor> by = grad((mixed * up).sum(), {q, k, v});
    outputs.insert(outputs.end(), by.begin(), by.end());
  }
  return recorded_graph(cx, outputs);
}

} // namespace egret::testing

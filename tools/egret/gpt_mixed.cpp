#include "gpt_mixed.h"

#include "egret/functional.h"

#include <cmath>
#include <limits>

namespace egret::tool {

namespace {

/// x weight^T + bias, all of x's type.
Tensor rounded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return matmul(x, weight.to(x.dtype()).transpose()) + bias.to(x.dtype());
}

Tensor normed(const nn::LayerNorm& norm, const Tensor& x) {
  Tensor centred = x - x.mean(-1, true);
  return centred * rsqrt((centred * centred).mean(-1, true) + norm.eps) * norm.weight + norm.bias;
}

Tensor attended(const nn::MultiHeadAttention& a, const Tensor& x, DType wide) {
  const std::int64_t batch = x.size(0), positions = x.size(1), width = x.size(2);
  // [batch, positions, 3, heads, width/heads] to three of [batch, heads, positions, width/heads]
  Tensor qkv = rounded_linear(x, a.in_proj_weight, a.in_proj_bias)
                   .reshape({batch, positions, 3, a.heads, width / a.heads})
                   .permute({2, 0, 3, 1, 4});
  Tensor scores =
      matmul(qkv[0], qkv[1].transpose()).to(wide) / std::sqrt(static_cast<double>(width / a.heads));
  scores =
      where(causal_mask(positions, positions), scores, -std::numeric_limits<double>::infinity());
  Tensor e = exp(scores - scores.max(-1, true).detach());
  Tensor mixed = matmul((e / e.sum(-1, true)).to(x.dtype()), qkv[2]);
  mixed = mixed.transpose(1, 2).reshape({batch, positions, width});
  return rounded_linear(mixed, a.out_proj.weight, *a.out_proj.bias);
}

} // namespace

Tensor mixed_logits(const models::Gpt& m, const Tensor& tokens, DType dtype) {
  const Tensor& table = m.token_embedding.weight;
  const DType wide = table.dtype();
  Tensor x = embedding(table, tokens) + m.position_embedding.weight.narrow(0, 0, tokens.size(1));
  for (const nn::TransformerBlock& b : m.blocks) {
    x = x + attended(b.self_attn, normed(b.norm1, x).to(dtype), wide);
    Tensor hidden = rounded_linear(normed(b.norm2, x).to(dtype), b.linear1.weight, *b.linear1.bias);
    hidden = nn::activate(b.activation, hidden);
    x = x + rounded_linear(hidden, b.linear2.weight, *b.linear2.bias);
  }
  const Tensor& head = m.head ? m.head->weight : table;
  return matmul(normed(m.norm, x).to(dtype), head.to(dtype).transpose());
}

} // namespace egret::tool

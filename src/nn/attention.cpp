#include "egret/nn.h"
#include "support/fail.h"

#include <cmath>

namespace egret::nn {

MultiHeadAttention::MultiHeadAttention(std::int64_t width, std::int64_t heads, Generator& generator,
                                       bool causal)
    : out_proj(width, width, generator), heads(heads), causal(causal) {
  if (heads <= 0 || width % heads != 0)
    fail(ErrorKind::Value, "MultiHeadAttention: {} heads do not divide a width of {}", heads,
         width);
  // Glorot and Bengio (2010), over the three projections together as torch does.
  double bound = std::sqrt(6.0 / static_cast<double>(4 * width));
  in_proj_weight = uniform({3 * width, width}, -bound, bound, generator).set_requires_grad();
  in_proj_bias = zeros({3 * width}).set_requires_grad();
}

Tensor MultiHeadAttention::operator()(const Tensor& x) const {
  if (x.rank() == 2)
    return (*this)(x.unsqueeze(0)).squeeze(0);
  if (x.rank() != 3)
    fail(ErrorKind::Shape, "MultiHeadAttention: needs [batch, positions, width], got {}",
         to_string(x.shape()));
  Expr batch = x.shape()[0];
  Expr positions = x.shape()[1];
  std::int64_t width = out_proj.weight.size(0);
  // [batch, positions, 3, heads, width/heads] to three of [batch, heads, positions, width/heads]
  Tensor qkv = linear(x, in_proj_weight, in_proj_bias)
                   .reshape({batch, positions, 3, heads, width / heads})
                   .permute({2, 0, 3, 1, 4});
  Tensor mixed = scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {.causal = causal});
  return out_proj(mixed.transpose(1, 2).reshape({batch, positions, width}));
}

TransformerBlock::TransformerBlock(const TransformerBlockOptions& o, Generator& generator)
    : self_attn(o.width, o.heads, generator, o.causal),
      linear1(o.width, o.hidden != 0 ? o.hidden : 4 * o.width, generator),
      linear2(o.hidden != 0 ? o.hidden : 4 * o.width, o.width, generator), norm1(o.width),
      norm2(o.width), dropout{o.dropout}, activation(o.activation) {}

Tensor TransformerBlock::operator()(const Tensor& x, Generator* generator) const {
  Tensor y = x + dropout(self_attn(norm1(x)), generator);
  return y +
         dropout(linear2(dropout(activate(activation, linear1(norm2(y))), generator)), generator);
}

} // namespace egret::nn

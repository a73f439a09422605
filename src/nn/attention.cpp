#include "egret/nn/attention.h"
#include "egret/range.h"

#include "support/fail.h"

#include <cmath>
#include <optional>
#include <utility>

namespace egret::nn {

namespace {

void require_positions(const Tensor& x) {
  if (x.rank() != 3)
    fail(ErrorKind::Shape, "MultiHeadAttention: needs [batch, positions, width], got {}",
         to_string(x.shape()));
}

/// [batch, positions, heads · d] to [batch, heads, positions, d].
Tensor by_head(const Tensor& x, std::int64_t heads) {
  const Shape& shape = x.shape();
  return x.reshape({shape[0], shape[1], heads, x.size(-1) / heads}).transpose(1, 2);
}

/// Each head `times` times: [batch, heads, positions, d] to [batch, heads · times, positions, d].
Tensor repeated(const Tensor& x, std::int64_t times) {
  if (times == 1)
    return x;
  const Shape& shape = x.shape();
  return x.unsqueeze(2)
      .expand({shape[0], shape[1], times, shape[2], shape[3]})
      .reshape({shape[0], x.size(1) * times, shape[2], shape[3]});
}

} // namespace

MultiHeadAttention::MultiHeadAttention(std::int64_t width, std::int64_t heads, Generator& generator,
                                       bool causal, std::int64_t kv)
    : out_proj(width, width, generator), heads(heads), causal(causal),
      kv_heads(kv != 0 ? kv : heads) {
  if (heads <= 0 || width % heads != 0)
    fail(ErrorKind::Value, "MultiHeadAttention: {} heads do not divide a width of {}", heads,
         width);
  if (kv_heads <= 0 || heads % kv_heads != 0)
    fail(ErrorKind::Value, "MultiHeadAttention: {} heads of keys do not divide {} heads", kv_heads,
         heads);
  const std::int64_t rows = width + 2 * kv_heads * (width / heads);
  // Glorot and Bengio (2010), over the projections together as torch does.
  double bound = std::sqrt(6.0 / static_cast<double>(rows + width));
  in_proj_weight = uniform({rows, width}, -bound, bound, generator).set_requires_grad();
  in_proj_bias = zeros({rows}).set_requires_grad();
}

MultiHeadAttention::Parts MultiHeadAttention::project(const Operand& x) const {
  require_positions(x);
  const Tensor qkv = linear(x, in_proj_weight, in_proj_bias);
  const std::int64_t width = out_proj.weight.size(0), kv = kv_heads * (width / heads);
  if (kv_heads == heads) {
    // [batch, positions, 3, heads, width/heads] to three of [batch, heads, positions, width/heads]
    const Shape& shape = x.shape();
    const Tensor parts =
        qkv.reshape({shape[0], shape[1], 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    return {parts[0], parts[1], parts[2]};
  }
  return {by_head(qkv.narrow(-1, 0, width), heads), by_head(qkv.narrow(-1, width, kv), kv_heads),
          by_head(qkv.narrow(-1, width + kv, kv), kv_heads)};
}

Tensor MultiHeadAttention::attend(const Parts& parts, const Operand& mask, bool causal) const {
  const auto& [q, k, v] = parts;
  const Tensor mixed =
      scaled_dot_product_attention(q, repeated(k, heads / kv_heads), repeated(v, heads / kv_heads),
                                   {.mask = mask, .causal = causal});
  const Shape& shape = q.shape();
  return out_proj(mixed.transpose(1, 2).reshape({shape[0], shape[2], out_proj.weight.size(0)}));
}

Tensor MultiHeadAttention::operator()(const Operand& x, const Operand& mask) const {
  if (x.rank() == 2)
    return (*this)(x.unsqueeze(0), mask).squeeze(0);
  return attend(project(x), mask, causal);
}

Tensor MultiHeadAttention::across(const Operand& x, const Operand& memory,
                                  const Operand& mask) const {
  require_positions(x);
  require_positions(memory);
  const std::int64_t width = out_proj.weight.size(0), kv = kv_heads * (width / heads);
  const Tensor q = linear(x, in_proj_weight.narrow(0, 0, width), in_proj_bias.narrow(0, 0, width));
  const Tensor both = linear(memory, in_proj_weight.narrow(0, width, 2 * kv),
                             in_proj_bias.narrow(0, width, 2 * kv));
  return attend({by_head(q, heads), by_head(both.narrow(-1, 0, kv), kv_heads),
                 by_head(both.narrow(-1, kv, kv), kv_heads)},
                mask, causal);
}

KeyValueCache MultiHeadAttention::cache(const Expr& batch, std::int64_t capacity) const {
  if (capacity < 1)
    fail(ErrorKind::Value, "MultiHeadAttention: a cache of {} positions; at least 1 is needed",
         capacity);
  const Shape shape = {batch, kv_heads, capacity, out_proj.weight.size(0) / heads};
  return {zeros(shape, in_proj_weight.dtype()), zeros(shape, in_proj_weight.dtype())};
}

Tensor MultiHeadAttention::extend(const Operand& x, KeyValueCache& cache,
                                  const Operand& begin) const {
  if (!causal)
    fail(ErrorKind::Value, "MultiHeadAttention::extend: attention is not causal: positions of "
                           "before would have to see those that are new");
  const auto [q, k, v] = project(x);
  const Shape &have = cache.keys.shape(), &fresh = k.shape();
  if (have.size() != 4 || cache.values.shape() != have || have[0] != fresh[0] ||
      have[1] != fresh[1] || have[3] != fresh[3])
    fail(ErrorKind::Shape,
         "MultiHeadAttention::extend: a cache of {} and {} for keys {}; batch, heads and width of "
         "one must be equal",
         to_string(have), to_string(cache.values.shape()), to_string(fresh));
  const Tensor place = positions(fresh[2]) + begin;
  cache.keys.assign(index_put(cache.keys, place, k, 2));
  cache.values.assign(index_put(cache.values, place, v, 2));
  const Tensor seen = positions(have[2]) <= place.unsqueeze(-1); // [positions, capacity]
  return attend({q, cache.keys, cache.values}, seen, false);
}

namespace {

std::int64_t hidden_of(const TransformerBlockOptions& o) {
  return o.hidden != 0 ? o.hidden : 4 * o.width;
}

/// The feed-forward part of a block.
template <class B>
Tensor fed_forward(const B& block, const Tensor& x, Generator* generator) {
  const Tensor hidden = activate(block.activation, block.linear1(x));
  return block.dropout(block.linear2(block.dropout(hidden, generator)), generator);
}

/// x with a part added, and the norm before or after that.
template <class F>
Tensor added(const Tensor& x, const LayerNorm& norm, bool norm_first, F&& part) {
  return norm_first ? x + part(norm(x)) : norm(x + part(x));
}

} // namespace

TransformerBlock::TransformerBlock(const TransformerBlockOptions& o, Generator& generator)
    : self_attn(o.width, o.heads, generator, o.causal, o.kv_heads),
      linear1(o.width, hidden_of(o), generator), linear2(hidden_of(o), o.width, generator),
      norm1(o.width), norm2(o.width), dropout{o.dropout}, activation(o.activation),
      norm_first(o.norm_first) {}

Tensor TransformerBlock::operator()(const Operand& x, Generator* generator,
                                    const Operand& mask) const {
  std::optional<Range> range(std::in_place, "attention");
  const Tensor y = added(x, norm1, norm_first,
                         [&](const Tensor& in) { return dropout(self_attn(in, mask), generator); });
  range.emplace("mlp");
  return added(y, norm2, norm_first,
               [&](const Tensor& in) { return fed_forward(*this, in, generator); });
}

Tensor TransformerBlock::extend(const Operand& x, KeyValueCache& cache,
                                const Operand& begin) const {
  const Tensor y = added(x, norm1, norm_first,
                         [&](const Tensor& in) { return self_attn.extend(in, cache, begin); });
  return added(y, norm2, norm_first,
               [&](const Tensor& in) { return fed_forward(*this, in, nullptr); });
}

TransformerDecoderBlock::TransformerDecoderBlock(const TransformerBlockOptions& o,
                                                 Generator& generator)
    : self_attn(o.width, o.heads, generator, o.causal, o.kv_heads),
      multihead_attn(o.width, o.heads, generator, false, o.kv_heads),
      linear1(o.width, hidden_of(o), generator), linear2(hidden_of(o), o.width, generator),
      norm1(o.width), norm2(o.width), norm3(o.width), dropout{o.dropout}, activation(o.activation),
      norm_first(o.norm_first) {}

Tensor TransformerDecoderBlock::operator()(const Operand& x, const Operand& memory,
                                           Generator* generator, const Operand& memory_mask) const {
  Tensor y = added(x, norm1, norm_first,
                   [&](const Tensor& in) { return dropout(self_attn(in), generator); });
  y = added(y, norm2, norm_first, [&](const Tensor& in) {
    return dropout(multihead_attn.across(in, memory, memory_mask), generator);
  });
  return added(y, norm3, norm_first,
               [&](const Tensor& in) { return fed_forward(*this, in, generator); });
}

TransformerEncoder::TransformerEncoder(std::int64_t count, const TransformerBlockOptions& options,
                                       Generator& generator) {
  for (std::int64_t i = 0; i < count; ++i)
    layers.emplace_back(options, generator);
  if (options.norm_first)
    norm.emplace(options.width);
}

Tensor TransformerEncoder::operator()(const Operand& x, Generator* generator,
                                      const Operand& mask) const {
  Tensor y = x;
  for (const auto& layer : layers)
    y = layer(y, generator, mask);
  return norm ? (*norm)(y) : y;
}

TransformerDecoder::TransformerDecoder(std::int64_t count, const TransformerBlockOptions& options,
                                       Generator& generator) {
  for (std::int64_t i = 0; i < count; ++i)
    layers.emplace_back(options, generator);
  if (options.norm_first)
    norm.emplace(options.width);
}

Tensor TransformerDecoder::operator()(const Operand& x, const Operand& memory, Generator* generator,
                                      const Operand& memory_mask) const {
  Tensor y = x;
  for (const auto& layer : layers)
    y = layer(y, memory, generator, memory_mask);
  return norm ? (*norm)(y) : y;
}

} // namespace egret::nn

#include "egret/models.h"
#include "egret/range.h"
#include "support/fail.h"

#include <cmath>

namespace egret::models {

namespace {

void start(Tensor& parameter, double deviation, Generator& generator) {
  parameter = normal(parameter.shape(), 0, deviation, generator).set_requires_grad();
}

void start(nn::Linear& layer, double deviation, Generator& generator) {
  start(layer.weight, deviation, generator);
  if (layer.bias)
    layer.bias = zeros(layer.bias->shape()).set_requires_grad();
}

} // namespace

Gpt::Gpt(const GptOptions& o, Generator& generator)
    : token_embedding(o.vocabulary, o.width, generator, 0.02),
      position_embedding(o.context, o.width, generator, 0.02), dropout{o.dropout}, norm(o.width) {
  const double deviation = 0.02;
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(o.layers));
  for (std::int64_t i = 0; i < o.layers; ++i) {
    nn::TransformerBlock block({.width = o.width, .heads = o.heads, .dropout = o.dropout},
                               generator);
    start(block.self_attn.in_proj_weight, deviation, generator);
    start(block.self_attn.out_proj, residual, generator);
    start(block.linear1, deviation, generator);
    start(block.linear2, residual, generator);
    blocks.push_back(std::move(block));
  }
  if (!o.tied) {
    head.emplace(o.width, o.vocabulary, generator, false);
    start(*head, deviation, generator);
  }
}

void Gpt::require_tokens(const Operand& tokens, std::int64_t most, const char* what) const {
  if (tokens.rank() != 2)
    fail(ErrorKind::Shape, "Gpt: needs tokens [batch, positions], got {}",
         to_string(tokens.shape()));
  if (const Expr& positions = tokens.shape()[1]; !proves_less_equal(positions, most))
    fail(ErrorKind::Shape, "Gpt: {} positions, the {} holds {}", positions.str(), what, most);
}

Tensor Gpt::logits(const Operand& x) const {
  const Tensor y = norm(x);
  return head ? (*head)(y) : matmul(y, token_embedding.weight.transpose());
}

Tensor Gpt::operator()(const Operand& tokens, Generator* generator) const {
  require_tokens(tokens, position_embedding.weight.size(0), "context");
  Tensor x = token_embedding(tokens) + position_embedding.weight.narrow(0, 0, tokens.shape()[1]);
  x = dropout(x, generator);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const Range range(fmt::format("block {}", i));
    x = blocks[i](x, generator);
  }
  return logits(x);
}

GptCache Gpt::cache(const Expr& batch, std::int64_t capacity) const {
  const std::int64_t context = position_embedding.weight.size(0);
  if (capacity < 0 || capacity > context)
    fail(ErrorKind::Value, "Gpt: a cache of {} positions, the context holds {}", capacity, context);
  GptCache cache;
  for (const auto& block : blocks)
    cache.layers.push_back(block.self_attn.cache(batch, capacity == 0 ? context : capacity));
  cache.length = scalar(0);
  return cache;
}

Tensor Gpt::extend(const Operand& tokens, GptCache& cache) const {
  if (cache.layers.size() != blocks.size())
    fail(ErrorKind::Value, "Gpt: a cache of {} layers for {}", cache.layers.size(), blocks.size());
  if (!blocks.empty())
    require_tokens(tokens, cache.layers[0].keys.size(2), "cache");
  const Expr count = tokens.shape()[1];
  Tensor x = token_embedding(tokens) + position_embedding(positions(count) + cache.length);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    x = blocks[i].extend(x, cache.layers[i], cache.length);
  cache.length += extent(count);
  return logits(x);
}

} // namespace egret::models

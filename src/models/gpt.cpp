#include "egret/models.h"
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

Tensor Gpt::operator()(const Tensor& tokens, Generator* generator) const {
  if (tokens.rank() != 2)
    fail(ErrorKind::Shape, "Gpt: needs tokens [batch, positions], got {}",
         to_string(tokens.shape()));
  const Expr& positions = tokens.shape()[1];
  const std::int64_t context = position_embedding.weight.size(0);
  if (!proves_less_equal(positions, context))
    fail(ErrorKind::Shape, "Gpt: {} positions, the context holds {}", positions.str(), context);
  Tensor x = token_embedding(tokens) + position_embedding.weight.narrow(0, 0, positions);
  x = dropout(x, generator);
  for (const auto& block : blocks)
    x = block(x, generator);
  x = norm(x);
  return head ? (*head)(x) : matmul(x, token_embedding.weight.transpose());
}

} // namespace egret::models

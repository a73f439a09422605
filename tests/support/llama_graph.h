// A decode step of Llama's architecture as a graph, of any number of layers, small in all else.
#pragma once

#include "egret/functional.h"
#include "egret/graph.h"
#include "egret/ir.h"

#include <cmath>
#include <string>

namespace egret::testing {

struct LlamaSizes {
  std::int64_t layers = 2, heads = 4, of_head = 8, hidden = 48, vocabulary = 64, context = 16;
  std::int64_t width() const { return heads * of_head; }
};

/// One token against caches of keys and values: inputs are the token's embedding, its position,
/// weights and caches; outputs are the logits and the new caches.
inline ir::Graph llama_graph(const LlamaSizes& s) {
  Graph cx;
  const auto input = [&](const std::string& name, Shape shape, DType type = DType::F32) {
    return cx.tensor(shape, type, name);
  };
  const auto normalized = [](const Tensor& x, const Tensor& weight) {
    return x * rsqrt((x * x).mean(-1, true) + 1e-5) * weight;
  };
  Tensor position = input("position", {1}, DType::I64);
  const auto rotated = [&](const Tensor& x) {
    const std::int64_t half = s.of_head / 2;
    Tensor frequency =
        exp(arange(half).to(DType::F32) * (-std::log(10000.0) / static_cast<double>(half)));
    Tensor angle = position.to(DType::F32) * frequency;
    Tensor c = cos(angle), t = sin(angle);
    Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
    return cat({a * c - b * t, a * t + b * c}, -1);
  };
  Tensor x = input("x", {1, s.width()});
  Tensor seen = arange(s.context) <= position;
  for (std::int64_t i = 0; i < s.layers; ++i) {
    const auto weight = [&](const char* name, Shape shape) {
      return input("layer" + std::to_string(i) + "." + name, std::move(shape));
    };
    Tensor n = normalized(x, weight("attention_norm", {s.width()}));
    const auto projected = [&](const char* name) {
      return matmul(n, weight(name, {s.width(), s.width()}).transpose())
          .reshape({s.heads, 1, s.of_head});
    };
    Tensor q = rotated(projected("wq"));
    Tensor keys = index_put(weight("keys", {s.heads, s.context, s.of_head}), position,
                            rotated(projected("wk")), 1);
    Tensor values =
        index_put(weight("values", {s.heads, s.context, s.of_head}), position, projected("wv"), 1);
    Tensor scores = matmul(q, keys.transpose()) / std::sqrt(static_cast<double>(s.of_head));
    scores = where(seen, scores, -1e30);
    Tensor e = exp(scores - scores.max(-1, true));
    Tensor mixed = matmul(e / e.sum(-1, true), values).reshape({1, s.width()});
    x = x + matmul(mixed, weight("wo", {s.width(), s.width()}).transpose());
    n = normalized(x, weight("mlp_norm", {s.width()}));
    Tensor g = matmul(n, weight("gate", {s.hidden, s.width()}).transpose());
    Tensor u = matmul(n, weight("up", {s.hidden, s.width()}).transpose());
    x = x + matmul(g * sigmoid(g) * u, weight("down", {s.width(), s.hidden}).transpose());
    keys.retrieve();
    values.retrieve();
  }
  Tensor logits = matmul(normalized(x, input("norm", {s.width()})),
                         input("head", {s.vocabulary, s.width()}).transpose());
  logits.retrieve();
  return ir::parse_graph(cx.text());
}

} // namespace egret::testing

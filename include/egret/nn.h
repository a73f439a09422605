// Layers: plain structs of tensors, made from the public functions only.
//
//   struct Classifier {
//     nn::Linear hidden, out;
//     Tensor operator()(const Tensor& x) const { return out(relu(hidden(x))); }
//     EGRET_FIELDS(hidden, out)
//   };
//
// A module is any tree of tensors (tree.h). Its fields give its parameters dotted names,
// "hidden.weight". Copies of a module share their parameters, as copies of a tensor do. There is no
// training mode: what draws random numbers takes a generator, and without one it does nothing.
#pragma once

#include "egret/functional.h"
#include "egret/random.h"
#include "egret/tensor.h"
#include "egret/tree.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace egret::nn {

using StateDict = std::map<std::string, Tensor>; ///< by dotted name

/// What load_state_dict found beside what fitted.
struct LoadReport {
  std::vector<std::string> missing;    ///< in the module, not in the dict
  std::vector<std::string> unexpected; ///< in the dict, not in the module
  bool complete() const noexcept { return missing.empty() && unexpected.empty(); }
  std::string text() const; ///< "missing: a, b; unexpected: c"
};

namespace detail {
std::vector<NamedTensor> only_parameters(std::vector<NamedTensor> tensors);
StateDict as_state_dict(const std::vector<NamedTensor>& tensors);
LoadReport load(const std::vector<NamedTensor>& tensors, const StateDict& state, bool strict);
} // namespace detail

/// The tensors that require a gradient, with their names, in the order of the fields. They are
/// handles.
template <class M>
std::vector<NamedTensor> named_parameters(M& module) {
  return detail::only_parameters(named_tensors(module));
}
/// Number of elements of all parameters.
std::int64_t count(const std::vector<NamedTensor>& parameters);

/// All tensors of a module by name, values as they are now: later updates of the module do not
/// change them.
template <class M>
StateDict state_dict(M& module) {
  return detail::as_state_dict(named_tensors(module));
}
/// Puts the dict's values into the module's tensors, converted to their dtypes. Shapes must be
/// equal (Error(Shape) with both, and nothing is changed). When `strict`, missing and unexpected
/// names are Error(Value) with the list, and nothing is changed; else they are reported.
template <class M>
LoadReport load_state_dict(M& module, const StateDict& state, bool strict = true) {
  return detail::load(named_tensors(module), state, strict);
}
/// Removes the gradients of all parameters.
void zero_grad(const std::vector<NamedTensor>& parameters);

/// x weightᵀ + bias: [..., in] to [..., out].
struct Linear {
  Tensor weight;              ///< [out, in]
  std::optional<Tensor> bias; ///< [out]

  Linear() = default;
  /// Uniform in ±1/√in, as PyTorch does (He et al. 2015 with a = √5).
  Linear(std::int64_t in, std::int64_t out, Generator& generator, bool with_bias = true);
  Tensor operator()(const Tensor& x) const;
  EGRET_FIELDS(weight, bias)
};

/// Rows of a table: integers [...] to [..., width].
struct Embedding {
  Tensor weight; ///< [count, width]

  Embedding() = default;
  /// Normal with the given deviation.
  Embedding(std::int64_t count, std::int64_t width, Generator& generator, double deviation = 1);
  Tensor operator()(const Tensor& index) const;
  EGRET_FIELDS(weight)
};

/// Normalization of the last axis to mean 0 and variance 1 (Ba et al. 2016), then weight and bias.
struct LayerNorm {
  Tensor weight, bias; ///< [width]: ones, zeros
  double eps = 1e-5;

  LayerNorm() = default;
  explicit LayerNorm(std::int64_t width, double eps = 1e-5);
  Tensor operator()(const Tensor& x) const;
  EGRET_FIELDS(weight, bias, eps)
};

/// Division of the last axis by its root mean square (Zhang and Sennrich 2019), then weight.
struct RmsNorm {
  Tensor weight; ///< [width]: ones
  double eps = 1e-6;

  RmsNorm() = default;
  explicit RmsNorm(std::int64_t width, double eps = 1e-6);
  Tensor operator()(const Tensor& x) const;
  EGRET_FIELDS(weight, eps)
};

/// Zeroes elements with probability p and divides the rest by 1 - p, when a generator is given.
struct Dropout {
  double p = 0.5;

  Tensor operator()(const Tensor& x, Generator* generator) const;
  EGRET_FIELDS(p)
};

enum class Activation { Relu, Gelu, GeluTanh, Silu, Tanh };
Tensor activate(Activation activation, const Tensor& x);

/// Self-attention with several heads (Vaswani et al. 2017). Parameters have the names and shapes of
/// torch.nn.MultiheadAttention.
struct MultiHeadAttention {
  Tensor in_proj_weight; ///< [3 width, width]: queries, keys, values
  Tensor in_proj_bias;   ///< [3 width]
  Linear out_proj;       ///< [width, width]
  std::int64_t heads = 1;
  bool causal = false; ///< position i sees positions up to i only

  MultiHeadAttention() = default;
  /// Error(Value) when heads do not divide width.
  MultiHeadAttention(std::int64_t width, std::int64_t heads, Generator& generator,
                     bool causal = false);
  /// [batch, positions, width] (or without batch) to the same.
  Tensor operator()(const Tensor& x) const;
  EGRET_FIELDS(in_proj_weight, in_proj_bias, out_proj, heads, causal)
};

struct TransformerBlockOptions {
  std::int64_t width = 0, heads = 1;
  std::int64_t hidden = 0; ///< of the feed-forward part; 0: 4 width
  double dropout = 0;
  Activation activation = Activation::GeluTanh;
  bool causal = true;
};

/// x + attention(norm1(x)), then x + linear2(activation(linear1(norm2(x)))). Parameters have the
/// names and shapes of torch.nn.TransformerEncoderLayer with norm_first.
struct TransformerBlock {
  MultiHeadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;
  Dropout dropout;
  Activation activation = Activation::GeluTanh;

  TransformerBlock() = default;
  TransformerBlock(const TransformerBlockOptions& options, Generator& generator);
  Tensor operator()(const Tensor& x, Generator* generator = nullptr) const;
  EGRET_FIELDS(self_attn, linear1, linear2, norm1, norm2, dropout, activation)
};

/// Linear layers with an activation between them: Mlp({784, 128, 10}, generator).
struct Mlp {
  std::vector<Linear> layers;
  Activation activation = Activation::Relu;

  Mlp() = default;
  Mlp(const std::vector<std::int64_t>& widths, Generator& generator,
      Activation activation = Activation::Relu);
  Tensor operator()(const Tensor& x) const;
  EGRET_FIELDS(layers, activation)
};

/// Layers one after the other; a layer may be anything callable with a tensor, or with a tensor and
/// a Generator*. Parameters are named by place, "0.weight".
template <class... Layers>
struct Sequential {
  std::tuple<Layers...> layers;

  Sequential() = default;
  explicit Sequential(Layers... l) : layers(std::move(l)...) {}
  Tensor operator()(Tensor x, Generator* generator = nullptr) const {
    std::apply([&](const auto&... layer) { ((x = call(layer, x, generator)), ...); }, layers);
    return x;
  }
  template <class V>
  void visit(V& v) {
    v("", layers);
  }

private:
  template <class L>
  static Tensor call(const L& layer, const Tensor& x, Generator* generator) {
    if constexpr (std::is_invocable_v<const L&, const Tensor&, Generator*>)
      return layer(x, generator);
    else
      return layer(x);
  }
};

/// Activations as layers, for Sequential.
template <Activation A>
struct ActivationLayer {
  Tensor operator()(const Tensor& x) const { return activate(A, x); }
};
using Relu = ActivationLayer<Activation::Relu>;
using Gelu = ActivationLayer<Activation::Gelu>;
using Silu = ActivationLayer<Activation::Silu>;
using Tanh = ActivationLayer<Activation::Tanh>;

} // namespace egret::nn

// Layers without an order among positions: linear ones, tables, norms, dropout, and their
// composition.
#pragma once

#include "egret/functional.h"
#include "egret/nn/module.h"
#include "egret/random.h"

#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

namespace egret::nn {

/// x weightᵀ + bias: [..., in] to [..., out].
struct Linear {
  Tensor weight;              ///< [out, in]
  std::optional<Tensor> bias; ///< [out]

  Linear() = default;
  /// Uniform in ±1/√in, as PyTorch does (He et al. 2015 with a = √5).
  Linear(std::int64_t in, std::int64_t out, Generator& generator, bool with_bias = true);
  Tensor operator()(const Operand& x) const;
  EGRET_FIELDS(weight, bias)
};

/// Rows of a table: integers [...] to [..., width].
struct Embedding {
  Tensor weight; ///< [count, width]

  Embedding() = default;
  /// Normal with the given deviation.
  Embedding(std::int64_t count, std::int64_t width, Generator& generator, double deviation = 1);
  Tensor operator()(const Operand& index) const;
  EGRET_FIELDS(weight)
};

/// Normalization of the last axis to mean 0 and variance 1 (Ba et al. 2016), then weight and bias.
struct LayerNorm {
  Tensor weight, bias; ///< [width]: ones, zeros
  double eps = 1e-5;

  LayerNorm() = default;
  explicit LayerNorm(std::int64_t width, double eps = 1e-5);
  Tensor operator()(const Operand& x) const;
  EGRET_FIELDS(weight, bias, eps)
};

/// Division of the last axis by its root mean square (Zhang and Sennrich 2019), then weight.
struct RmsNorm {
  Tensor weight; ///< [width]: ones
  double eps = 1e-6;

  RmsNorm() = default;
  explicit RmsNorm(std::int64_t width, double eps = 1e-6);
  Tensor operator()(const Operand& x) const;
  EGRET_FIELDS(weight, eps)
};

/// group_norm: each of `groups` parts of the channels with all that follows (Wu and He 2018).
struct GroupNorm {
  Tensor weight, bias; ///< [channels]: ones, zeros
  std::int64_t groups = 1;
  double eps = 1e-5;

  GroupNorm() = default;
  /// Error(Value) when groups do not divide channels.
  GroupNorm(std::int64_t groups, std::int64_t channels, double eps = 1e-5);
  Tensor operator()(const Operand& x) const; ///< [batch, channels, ...]
  EGRET_FIELDS(weight, bias, groups, eps)
};

/// instance_norm: each channel of each example by itself (Ulyanov et al. 2016).
struct InstanceNorm {
  std::optional<Tensor> weight, bias; ///< [channels]: ones, zeros; none by default, as in PyTorch
  double eps = 1e-5;

  InstanceNorm() = default;
  explicit InstanceNorm(std::int64_t channels, bool affine = false, double eps = 1e-5);
  Tensor operator()(const Operand& x) const; ///< [batch, channels, spatial...]
  EGRET_FIELDS(weight, bias, eps)
};

/// batch_norm: each channel over the batch and all other axes (Ioffe and Szegedy 2015). While it
/// trains, which is told by a generator as everywhere (though it draws nothing), it normalizes by
/// the batch and updates the running statistics in place; else it normalizes by these.
struct BatchNorm {
  Tensor weight, bias;              ///< [channels]: ones, zeros
  Tensor running_mean, running_var; ///< [channels]: zeros, ones; no parameters
  Tensor num_batches_tracked;       ///< i64, rank 0
  double eps = 1e-5;
  double momentum = 0.1; ///< share of the batch in the new statistics

  BatchNorm() = default;
  explicit BatchNorm(std::int64_t channels, double eps = 1e-5, double momentum = 0.1);
  /// [batch, channels, ...]
  Tensor operator()(const Operand& x, Generator* generator = nullptr) const;
  EGRET_FIELDS(weight, bias, running_mean, running_var, num_batches_tracked, eps, momentum)
};

/// Zeroes elements with probability p and divides the rest by 1 - p, when a generator is given.
struct Dropout {
  double p = 0.5;

  Tensor operator()(const Operand& x, Generator* generator) const;
  EGRET_FIELDS(p)
};

enum class Activation { Relu, Gelu, GeluTanh, Silu, Tanh };
Tensor activate(Activation activation, const Operand& x);

/// Linear layers with an activation between them: Mlp({784, 128, 10}, generator).
struct Mlp {
  std::vector<Linear> layers;
  Activation activation = Activation::Relu;

  Mlp() = default;
  Mlp(const std::vector<std::int64_t>& widths, Generator& generator,
      Activation activation = Activation::Relu);
  Tensor operator()(const Operand& x) const;
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
  static Tensor call(const L& layer, const Operand& x, Generator* generator) {
    if constexpr (std::is_invocable_v<const L&, const Operand&, Generator*>)
      return layer(x, generator);
    else
      return layer(x);
  }
};

/// Activations as layers, for Sequential.
template <Activation A>
struct ActivationLayer {
  Tensor operator()(const Operand& x) const { return activate(A, x); }
};
using Relu = ActivationLayer<Activation::Relu>;
using Gelu = ActivationLayer<Activation::Gelu>;
using Silu = ActivationLayer<Activation::Silu>;
using Tanh = ActivationLayer<Activation::Tanh>;

/// The axes from `first` to `last` as one.
struct Flatten {
  std::int64_t first = 1, last = -1;

  Tensor operator()(const Operand& x) const { return x.flatten(first, last); }
  EGRET_FIELDS(first, last)
};

/// x.
struct Identity {
  Tensor operator()(const Operand& x) const { return x; }
};

} // namespace egret::nn

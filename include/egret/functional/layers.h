// Layers without parameters of their own: dropout, norms, attention.
#pragma once

#include "egret/random.h"

#include <optional>

namespace egret {

/// Zero with probability p, the rest over 1 - p. Nothing when not training.
Tensor dropout(const Operand& a, double p, Generator& generator, bool training = true);
/// (a - mean) / √(var + eps) over the last weight.rank() axes (var over count), times weight plus
/// bias.
Tensor layer_norm(const Operand& a, const Operand& weight, const Operand& bias = {},
                  double eps = 1e-5);
/// a / √(mean(a²) + eps) over the last weight.rank() axes, times weight; f32 inside for f16 and
/// bf16.
Tensor rms_norm(const Operand& a, const Operand& weight, double eps = 1e-6);

/// (a - mean) / √(var + eps) for a [batch, channels, ...] over each of `groups` parts of the
/// channels with all that follows, times weight [channels] plus bias [channels]. f32 inside for f16
/// and bf16.
Tensor group_norm(const Operand& a, std::int64_t groups, const Operand& weight = {},
                  const Operand& bias = {}, double eps = 1e-5);
/// The same for each channel by itself.
Tensor instance_norm(const Operand& a, const Operand& weight = {}, const Operand& bias = {},
                     double eps = 1e-5);

struct BatchNormOptions {
  bool training = false; ///< normalize by the batch and update the running statistics
  double momentum = 0.1; ///< share of the batch in the new statistics
  double eps = 1e-5;
};
/// (a - mean) / √(var + eps) for a [batch, channels, ...], each channel over all other axes, times
/// weight [channels] plus bias [channels]. In training mean and variance (over the count) are the
/// batch's, and the running ones are updated in place: (1 - momentum) of the old and momentum of
/// the batch's, the variance over count - 1. Otherwise they are the running ones, or the batch's
/// where none are given. f32 inside for f16 and bf16.
Tensor batch_norm(const Operand& a, Tensor running_mean, Tensor running_var,
                  const Operand& weight = {}, const Operand& bias = {},
                  const BatchNormOptions& options = {});
/// a over its p-norm along `axis`, which counts as at least eps.
Tensor normalize(const Operand& a, double p = 2, std::int64_t axis = 1, double eps = 1e-12);

struct AttentionOptions {
  /// Bool (true: may be seen) or float (added), broadcast to [..., queries, keys]
  Tensor mask = {};
  bool causal = false;              ///< as causal_mask
  std::optional<double> scale = {}; ///< 1/√d by default
  /// A query sees keys less than this far from its own place (counted as in causal_mask).
  std::optional<std::int64_t> window = {};
  std::optional<double> softcap = {}; ///< scores become softcap · tanh(scores / softcap)
};
/// softmax(q kᵀ scale + mask) v for q [..., queries, d], k [..., keys, d], v [..., keys, e]. Where
/// q has more heads (the axis before the last two) than k and v, and a multiple of them,
/// neighbouring heads share theirs.
Tensor scaled_dot_product_attention(const Operand& q, const Operand& k, const Operand& v,
                                    const AttentionOptions& options = {});
/// Float [heads, queries, keys] to add to scores: -slope · distance, slopes 2^(-8 (h+1) / heads)
/// (Press, Smith and Lewis 2022; heads a power of two).
Tensor alibi_mask(std::int64_t heads, const Expr& queries, const Expr& keys);

struct RopeOptions {
  double base = 10000;
  bool interleaved = false; ///< pairs are neighbours; otherwise i and i + d/2
};
/// Rotary embedding (Su et al. 2021): pair i of the last axis (d of them, even) of a [..., tokens,
/// d] turned by positions · base^(-2i/d). `positions` [tokens], or broadcast to [..., tokens].
Tensor rope(const Operand& a, const Operand& positions, const RopeOptions& options = {});

/// dropout() of whole channels of a [batch, channels, ...].
Tensor feature_dropout(const Operand& a, double p, Generator& generator, bool training = true);
/// Keeps mean and variance of what went through selu (Klambauer et al. 2017).
Tensor alpha_dropout(const Operand& a, double p, Generator& generator, bool training = true);
/// alpha_dropout() of whole channels of a [batch, channels, ...].
Tensor feature_alpha_dropout(const Operand& a, double p, Generator& generator,
                             bool training = true);
/// a where a >= 0, else a times a slope drawn from low..high, their mean when not training (Xu et
/// al. 2015).
Tensor rrelu(const Operand& a, Generator& generator, double low = 1.0 / 8, double high = 1.0 / 3,
             bool training = false);
/// a / (k + alpha · mean of a² over `size` neighbouring channels)^beta for a [batch, channels, ...]
/// (Krizhevsky et al. 2012); channels beyond the edge count as 0.
Tensor local_response_norm(const Operand& a, std::int64_t size, double alpha = 1e-4,
                           double beta = 0.75, double k = 1);
/// Each slice of an axis with its p-norm brought down to `most` where it is larger.
Tensor renorm(const Operand& a, double p, std::int64_t axis, double most);
/// softmax((logits + gumbel noise) / tau); with `hard` one-hot, whose gradient is the softmax's.
Tensor gumbel_softmax(const Operand& logits, Generator& generator, double tau = 1,
                      bool hard = false, std::int64_t axis = -1);

} // namespace egret

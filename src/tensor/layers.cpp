// Layers without parameters of their own: dropout, norms, attention.
#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

// The last axes, as many as weight has, whose dims must be weight's.
std::vector<std::int64_t> normed_axes(const Tensor& a, const Tensor& weight, const char* who) {
  Access::raw(a, who);
  Access::raw(weight, who);
  const auto rank = static_cast<std::size_t>(a.rank()),
             tail = static_cast<std::size_t>(weight.rank());
  bool fits = tail >= 1 && tail <= rank;
  for (std::size_t i = 0; fits && i < tail; ++i)
    fits = a.shape()[rank - tail + i] == weight.shape()[i];
  if (!fits)
    fail(ErrorKind::Shape, "{}: weight {} does not fit {}; it must equal its last dims", who,
         shape_of(weight), shape_of(a));
  std::vector<std::int64_t> axes;
  for (std::size_t i = rank - tail; i < rank; ++i)
    axes.push_back(static_cast<std::int64_t>(i));
  return axes;
}

} // namespace

Tensor dropout(const Tensor& a, double p, Generator& generator, bool training) {
  Access::raw(a, "dropout");
  if (!(p >= 0 && p <= 1))
    fail(ErrorKind::Value, "dropout: p is {}; a probability lies between 0 and 1", p);
  const Tensor x = as_float(a, "dropout");
  if (!training || p == 0)
    return x.clone();
  if (p == 1)
    return zeros_like(x);
  return where(bernoulli(x.shape(), 1 - p, generator), x * (1 / (1 - p)), 0);
}

Tensor layer_norm(const Tensor& a, const Tensor& weight, const Tensor& bias, double eps) {
  const auto axes = normed_axes(a, weight, "layer_norm");
  require_float(a, "layer_norm");
  if (bias.defined() && bias.shape() != weight.shape())
    fail(ErrorKind::Shape, "layer_norm: bias {} does not fit weight {}; they must be equal",
         shape_of(bias), shape_of(weight));
  const Tensor x = widened(a);
  const Tensor centred = x - mean(x, axes, true);
  const Tensor variance = mean(square(centred), axes, true);
  Tensor result = centred * rsqrt(variance + eps) * weight.to(x.dtype());
  if (bias.defined())
    result = result + bias.to(x.dtype());
  return rounded_to(result, a.dtype());
}

Tensor rms_norm(const Tensor& a, const Tensor& weight, double eps) {
  const auto axes = normed_axes(a, weight, "rms_norm");
  require_float(a, "rms_norm");
  const Tensor x = widened(a);
  const Tensor scale = rsqrt(mean(square(x), axes, true) + eps);
  return rounded_to(x * scale * weight.to(x.dtype()), a.dtype());
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
  constexpr const char* who = "scaled_dot_product_attention";
  for (const Tensor* t : {&q, &k, &v})
    if (Access::raw(*t, who)->form.shape.size() < 2)
      fail(ErrorKind::Shape, "{}: got {}; operands are [..., tokens, width]", who, shape_of(*t));
  const Shape &sq = q.shape(), &sk = k.shape(), &sv = v.shape();
  if (!(sq.back() == sk.back()))
    fail(ErrorKind::Shape, "{}: queries {} and keys {} differ in width ({} != {})", who,
         shape_of(q), shape_of(k), sq.back().str(), sk.back().str());
  if (!(sk[sk.size() - 2] == sv[sv.size() - 2]))
    fail(ErrorKind::Shape, "{}: keys {} and values {} differ in number ({} != {})", who,
         shape_of(k), shape_of(v), sk[sk.size() - 2].str(), sv[sv.size() - 2].str());
  const double scale =
      options.scale ? *options.scale : 1 / std::sqrt(static_cast<double>(q.size(-1)));
  Tensor scores = matmul(q, transpose(k)) * scale;
  const double lowest = -std::numeric_limits<double>::infinity();
  if (options.causal)
    scores = where(causal_mask(sq[sq.size() - 2], sk[sk.size() - 2]), scores, lowest);
  if (options.mask.defined()) {
    if (!broadcasts_to(options.mask.shape(), scores.shape()))
      fail(ErrorKind::Shape, "{}: mask {} does not broadcast to the scores' {}", who,
           shape_of(options.mask), shape_of(scores));
    if (options.mask.dtype() == DType::Bool)
      scores = where(options.mask, scores, lowest);
    else
      scores = scores + options.mask.to(scores.dtype());
  }
  return matmul(softmax(scores, -1), v);
}

} // namespace egret

// Attention, its masks, and rotary positions.
#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

// Key place less query place, i64 [queries, keys], 0 where causal_mask's diagonal lies.
Tensor distance(const Expr& queries, const Expr& keys) {
  const Tensor own = iota(queries, DType::I64) + number_of(keys - queries, DType::I64);
  return unsqueeze(iota(keys, DType::I64), 0) - unsqueeze(own, 1);
}

// Heads in groups that share keys: [.., heads, a, b] as [.., groups, heads / groups, a, b].
Tensor grouped(const Tensor& a, std::int64_t groups) {
  Shape shape = a.shape();
  const auto at = shape.end() - 3;
  const Expr each = floordiv(*at, groups);
  *at = groups;
  shape.insert(shape.end() - 2, each);
  return reshape(a, shape);
}

// A mask for scores whose heads are grouped.
Tensor grouped_mask(const Tensor& mask, std::int64_t groups) {
  if (mask.rank() < 3)
    return mask;
  return mask.shape()[mask.shape().size() - 3] == Expr(1) ? unsqueeze(mask, -3)
                                                          : grouped(mask, groups);
}

struct Heads {
  std::int64_t q, k;
};
// Of the axis before the last two, where it is there in all three.
std::optional<Heads> shared_heads(const Tensor& q, const Tensor& k, const Tensor& v,
                                  const char* who) {
  if (q.rank() < 3 || k.rank() < 3 || v.rank() < 3)
    return {};
  const Expr &hq = q.shape()[q.shape().size() - 3], &hk = k.shape()[k.shape().size() - 3];
  if (hq == hk || hq == Expr(1) || hk == Expr(1) || !hq.is_constant() || !hk.is_constant())
    return {};
  if (hq.value() % hk.value() != 0 || !(v.shape()[v.shape().size() - 3] == hk))
    fail(ErrorKind::Shape,
         "{}: {} heads of queries {} do not fall into the {} of keys {}, values {}", who,
         hq.value(), shape_of(q), hk.value(), shape_of(k), shape_of(v));
  return Heads{hq.value(), hk.value()};
}

} // namespace

Tensor scaled_dot_product_attention(const Operand& q, const Operand& k, const Operand& v,
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
  if (options.window && *options.window < 1)
    fail(ErrorKind::Value, "{}: a window of {}; it must be positive", who, *options.window);
  if (options.softcap && !(*options.softcap > 0))
    fail(ErrorKind::Value, "{}: softcap is {}; it must be positive", who, *options.softcap);
  if (const auto heads = shared_heads(q, k, v, who)) {
    AttentionOptions inner = options;
    if (inner.mask.defined())
      inner.mask = grouped_mask(inner.mask, heads->k);
    const Tensor y = scaled_dot_product_attention(grouped(q, heads->k), unsqueeze(k, -3),
                                                  unsqueeze(v, -3), inner);
    Shape shape(y.shape().begin(), y.shape().end() - 4);
    shape.insert(shape.end(), {Expr(heads->q), y.shape()[y.shape().size() - 2], y.shape().back()});
    return reshape(y, shape);
  }
  const double scale =
      options.scale ? *options.scale : 1 / std::sqrt(static_cast<double>(q.size(-1)));
  Tensor scores = matmul(q, transpose(k)) * scale;
  const double lowest = -std::numeric_limits<double>::infinity();
  if (options.softcap)
    scores = tanh(scores * (1 / *options.softcap)) * *options.softcap;
  if (options.causal)
    scores = where(causal_mask(sq[sq.size() - 2], sk[sk.size() - 2]), scores, lowest);
  if (options.window) {
    const Tensor apart = distance(sq[sq.size() - 2], sk[sk.size() - 2]);
    const Tensor near = apart > -*options.window;
    scores = where(options.causal ? near : near & (apart < *options.window), scores, lowest);
  }
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

Tensor alibi_mask(std::int64_t heads, const Expr& queries, const Expr& keys) {
  if (heads < 1 || (heads & (heads - 1)) != 0)
    fail(ErrorKind::Value, "alibi_mask: {} heads; a power of two is needed", heads);
  const Tensor h = (iota(heads, DType::I64) + 1).to(DType::F32);
  const Tensor slopes = exp2(h * constant(DType::F32, -8.0 / static_cast<double>(heads)));
  const Tensor apart = neg(abs(distance(queries, keys))).to(DType::F32);
  return reshape(slopes, {heads, 1, 1}) * apart;
}

Tensor rope(const Operand& a, const Operand& positions, const RopeOptions& options) {
  constexpr const char* who = "rope";
  Access::held(a, who);
  Access::held(positions, who);
  require_float(a, who);
  if (a.rank() < 2)
    fail(ErrorKind::Shape, "{}: got {}; it must be [..., tokens, width]", who, shape_of(a));
  const std::int64_t d = a.size(-1);
  if (d % 2 != 0)
    fail(ErrorKind::Shape, "{}: the width of {} is odd; pairs are turned", who, shape_of(a));
  if (!(options.base > 0))
    fail(ErrorKind::Value, "{}: base {}; it must be positive", who, options.base);
  const Shape tokens(a.shape().begin(), a.shape().end() - 1);
  if (!broadcasts_to(positions.shape(), tokens))
    fail(ErrorKind::Shape, "{}: positions {} do not broadcast to {}, the tokens of {}", who,
         shape_of(positions), to_string(tokens), shape_of(a));
  const Tensor x = widened(a);
  const Tensor pair = iota(d / 2, DType::I64).to(x.dtype());
  const Tensor turn =
      exp2(pair * constant(x.dtype(), -2 * std::log2(options.base) / static_cast<double>(d)));
  const Tensor angle = unsqueeze(positions.to(x.dtype()), -1) * turn;
  const Tensor c = cos(angle), s = sin(angle);
  if (!options.interleaved) {
    const Tensor low = x.narrow(-1, 0, d / 2), high = x.narrow(-1, d / 2, d / 2);
    return cat({low * c - high * s, high * c + low * s}, -1).to(a.dtype());
  }
  Shape split = a.shape();
  split.back() = d / 2;
  split.push_back(2);
  const Tensor pairs = reshape(x, split);
  const Tensor even = pairs.select(-1, 0), odd = pairs.select(-1, 1);
  return reshape(stack({even * c - odd * s, odd * c + even * s}, -1), a.shape()).to(a.dtype());
}

} // namespace egret

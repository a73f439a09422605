// Functions of tensors. All are compositions of the op table's primitives and intrinsics (op.h): a
// printed graph shows nothing else.
#pragma once

#include "egret/random.h"
#include "egret/tensor.h"

#include <optional>
#include <span>
#include <vector>

namespace egret {

// --- element by element. Floats keep their dtype; functions of calculus take integers as f32.
// Binary ones broadcast and promote as the operators do.
Tensor add(const Arg& a, const Arg& b);
Tensor sub(const Arg& a, const Arg& b);
Tensor mul(const Arg& a, const Arg& b);
Tensor div(const Arg& a, const Arg& b);          ///< integers divide to f32
Tensor floor_divide(const Arg& a, const Arg& b); ///< rounds down; an integer divided by 0 gives 0
Tensor mod(const Arg& a, const Arg& b);          ///< sign of b; an integer modulo 0 gives 0
Tensor pow(const Arg& a, const Arg& b); ///< exponents 2, 3, 0.5, -1 ... become products and roots
Tensor maximum(const Arg& a, const Arg& b); ///< NaN where either is NaN
Tensor minimum(const Arg& a, const Arg& b);
Tensor neg(const Tensor& a);
Tensor abs(const Tensor& a);
Tensor sign(const Tensor& a);
Tensor square(const Tensor& a);
Tensor reciprocal(const Tensor& a);
Tensor sqrt(const Tensor& a);
Tensor rsqrt(const Tensor& a);
Tensor exp(const Tensor& a);
Tensor exp2(const Tensor& a);
Tensor expm1(const Tensor& a);
Tensor log(const Tensor& a);
Tensor log2(const Tensor& a);
Tensor log1p(const Tensor& a);
Tensor sin(const Tensor& a);
Tensor cos(const Tensor& a);
Tensor tan(const Tensor& a);
Tensor tanh(const Tensor& a);
Tensor erf(const Tensor& a);
Tensor floor(const Tensor& a);
Tensor ceil(const Tensor& a);
Tensor trunc(const Tensor& a);
Tensor round(const Tensor& a); ///< halves to even
Tensor isnan(const Tensor& a);
Tensor isinf(const Tensor& a);
Tensor isfinite(const Tensor& a);
Tensor clamp(const Tensor& a, std::optional<Number> low, std::optional<Number> high);
/// a where `condition` (bool) holds, else b; all three broadcast.
Tensor where(const Tensor& condition, const Arg& a, const Arg& b);
Tensor masked_fill(const Tensor& a, const Tensor& mask,
                   Number value); ///< `value` where `mask` holds
Tensor eq(const Arg& a, const Arg& b);
Tensor ne(const Arg& a, const Arg& b);
Tensor lt(const Arg& a, const Arg& b);
Tensor le(const Arg& a, const Arg& b);
Tensor gt(const Arg& a, const Arg& b);
Tensor ge(const Arg& a, const Arg& b);
Tensor logical_and(const Arg& a, const Arg& b); ///< operands as bools (not zero)
Tensor logical_or(const Arg& a, const Arg& b);
Tensor logical_not(const Tensor& a);

// --- activations
enum class Gelu { Erf, Tanh };
Tensor sigmoid(const Tensor& a);
Tensor relu(const Tensor& a); ///< a where a > 0, else 0; gradient 0 at 0
Tensor leaky_relu(const Tensor& a, double slope = 0.01);
Tensor elu(const Tensor& a, double alpha = 1);
/// a Φ(a): exact with erf, or 0.5 a (1 + tanh(√(2/π) (a + 0.044715 a³))) (Hendrycks and Gimpel
/// 2016)
Tensor gelu(const Tensor& a, Gelu form = Gelu::Erf);
Tensor silu(const Tensor& a);     ///< a sigmoid(a)
Tensor softplus(const Tensor& a); ///< log(1 + exp(a)), without overflow

// --- along axes
Tensor sum(const Tensor& a, const Axes& axes = {}, bool keepdim = false);
Tensor mean(const Tensor& a, const Axes& axes = {}, bool keepdim = false);
/// Sum of squared distances from the mean over (count - correction).
Tensor var(const Tensor& a, const Axes& axes = {}, bool keepdim = false, double correction = 1);
Tensor stddev(const Tensor& a, const Axes& axes = {}, bool keepdim = false, double correction = 1);
Tensor prod(const Tensor& a, const Axes& axes = {}, bool keepdim = false);
Tensor max(const Tensor& a, const Axes& axes = {}, bool keepdim = false); ///< NaN wins
Tensor min(const Tensor& a, const Axes& axes = {}, bool keepdim = false);
Tensor argmax(const Tensor& a, std::optional<std::int64_t> axis = {},
              bool keepdim = false); ///< i64, first one
Tensor argmin(const Tensor& a, std::optional<std::int64_t> axis = {}, bool keepdim = false);
Tensor any(const Tensor& a, const Axes& axes = {}, bool keepdim = false);
Tensor all(const Tensor& a, const Axes& axes = {}, bool keepdim = false);
Tensor norm(const Tensor& a, const Axes& axes = {},
            bool keepdim = false); ///< √Σa²; gradient 0 at 0
Tensor cumsum(const Tensor& a, std::int64_t axis);
Tensor cumprod(const Tensor& a, std::int64_t axis);
Tensor softmax(const Tensor& a, std::int64_t axis = -1);
Tensor log_softmax(const Tensor& a, std::int64_t axis = -1);
Tensor logsumexp(const Tensor& a, std::int64_t axis = -1, bool keepdim = false);

// --- shapes
Tensor reshape(const Tensor& a, const Shape& shape);
Tensor permute(const Tensor& a, std::vector<std::int64_t> axes);
Tensor transpose(const Tensor& a, std::int64_t first = -2, std::int64_t second = -1);
Tensor squeeze(const Tensor& a, std::optional<std::int64_t> axis = {});
Tensor unsqueeze(const Tensor& a, std::int64_t axis);
Tensor expand(const Tensor& a, const Shape& shape);
Tensor flip(const Tensor& a, const Axes& axes);
/// Along an existing axis; the other dims agree, dtypes promote.
Tensor cat(std::span<const Tensor> tensors, std::int64_t axis = 0);
Tensor cat(std::initializer_list<Tensor> tensors, std::int64_t axis = 0);
Tensor stack(std::span<const Tensor> tensors, std::int64_t axis = 0); ///< along a new axis
Tensor stack(std::initializer_list<Tensor> tensors, std::int64_t axis = 0);
/// Pieces of `length` along an axis, the last one shorter.
std::vector<Tensor> split(const Tensor& a, std::int64_t length, std::int64_t axis = 0);
std::vector<Tensor> chunk(const Tensor& a, std::int64_t pieces, std::int64_t axis = 0);
/// `before` and `after` by axis, from the first.
Tensor pad(const Tensor& a, std::vector<std::int64_t> before, std::vector<std::int64_t> after,
           Number value = 0.0);
Tensor repeat(const Tensor& a, std::vector<std::int64_t> times); ///< the whole, `times` by axis

// --- products
/// The matrix product of the last two axes; earlier axes broadcast; a vector of rank 1 is a row on
/// the left, a column on the right, and that axis leaves the result. It is expand, multiply, sum:
/// in f16 and bf16 products and sums are formed in f32 and rounded once.
Tensor matmul(const Tensor& a, const Tensor& b);
Tensor dot(const Tensor& a, const Tensor& b);   ///< rank 1
Tensor outer(const Tensor& a, const Tensor& b); ///< rank 1
Tensor linear(const Tensor& a, const Tensor& weight,
              const Tensor& bias = {}); ///< a @ weightᵀ + bias

// --- indices (any integer dtype). An index out of range reads 0 and gets no gradient; negative
// indices of tensors do not count from the end.
/// Rows of `weight` [v, d]: result [index..., d].
Tensor embedding(const Tensor& weight, const Tensor& index);
/// data's `axis` is replaced by the dims of `index`.
Tensor take(const Tensor& data, const Tensor& index, std::int64_t axis);
/// result[i][j] = data[i][index[i][j]] for axis 1: `index` has data's rank, and its other dims are
/// at most data's (torch.gather).
Tensor gather(const Tensor& data, std::int64_t axis, const Tensor& index);
/// data with updates put (or added) at `index` along `axis`; updates has take()'s shape. Later ones
/// win.
Tensor index_put(const Tensor& data, const Tensor& index, const Tensor& updates, std::int64_t axis);
Tensor index_add(const Tensor& data, const Tensor& index, const Tensor& updates, std::int64_t axis);
Tensor one_hot(const Tensor& index, std::int64_t classes,
               DType dtype = DType::F32); ///< [index..., classes]
Tensor tril(const Tensor& a,
            std::int64_t diagonal = 0); ///< 0 above the diagonal of the last two axes
Tensor triu(const Tensor& a, std::int64_t diagonal = 0);
/// bool [queries, keys]: key j may be seen by query i, j <= i + keys - queries.
Tensor causal_mask(const Expr& queries, const Expr& keys);

// --- layers
/// Zero with probability p, the rest over 1 - p. Nothing when not training.
Tensor dropout(const Tensor& a, double p, Generator& generator, bool training = true);
/// (a - mean) / √(var + eps) over the last weight.rank() axes (var over count), times weight plus
/// bias.
Tensor layer_norm(const Tensor& a, const Tensor& weight, const Tensor& bias = {},
                  double eps = 1e-5);
/// a / √(mean(a²) + eps) over the last weight.rank() axes, times weight; f32 inside for f16 and
/// bf16.
Tensor rms_norm(const Tensor& a, const Tensor& weight, double eps = 1e-6);

struct AttentionOptions {
  Tensor mask; ///< bool (true: may be seen) or float (added), broadcast to [..., queries, keys]
  bool causal = false;         ///< as causal_mask
  std::optional<double> scale; ///< 1/√d by default
};
/// softmax(q kᵀ scale + mask) v for q [..., queries, d], k [..., keys, d], v [..., keys, e].
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

// --- losses
enum class Reduction { Mean, Sum, None };
struct CrossEntropyOptions {
  std::optional<std::int64_t> ignore_index; ///< targets that do not count, in the mean neither
  double label_smoothing = 0;
  Reduction reduction = Reduction::Mean;
};
/// -log softmax(logits)[target] for logits [..., classes] and integer targets [...].
Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     const CrossEntropyOptions& options = {});
/// -log_probabilities[target]; shapes as cross_entropy.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target,
                const CrossEntropyOptions& options = {});
Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::Mean);
Tensor l1_loss(const Tensor& a, const Tensor& b, Reduction reduction = Reduction::Mean);
/// -(t log p + (1 - t) log(1 - p)), logarithms not below -100.
Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target,
                            Reduction reduction = Reduction::Mean);
/// The same of sigmoid(logits), without overflow.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Reduction reduction = Reduction::Mean);

} // namespace egret

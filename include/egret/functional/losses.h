// Losses.
#pragma once

#include "egret/tensor.h"

#include <optional>

namespace egret {

// Those of f16 and bf16 are computed and given in f32. Operands are of one shape: losses do not
// broadcast.
enum class Reduction { Mean, Sum, None };
struct CrossEntropyOptions {
  /// Targets that do not count, in the mean neither: a mean is over those that do. Any integer, a
  /// class or not; what other libraries leave out without being asked is -100.
  std::optional<std::int64_t> ignore_index = {};
  double label_smoothing = 0;
  Reduction reduction = Reduction::Mean;
  Tensor weight = {}; ///< [classes]: factor of each class; a mean divides by the targets' weights
  /// The axis of the classes: 1 for images [batch, classes, height, width], as PyTorch has them.
  std::int64_t axis = -1;
};
/// -log softmax(logits)[target] for logits [..., classes] and integer targets [...], or targets
/// [..., classes] of floats: the probabilities of the classes (whose mean is over the rows). With
/// the classes on another `axis` targets are as the logits without it, or with it where they are
/// probabilities. A class number that is none of `classes` and not ignore_index is Error(Index)
/// where the targets are values in host memory, or execution is checked and nothing is traced; else
/// its loss, and so the mean and the sum and the gradient of its row, are NaN. Error(Axis) for an
/// axis that is out of range, Error(Shape) for targets or weights that do not fit, Error(Value) for
/// a label smoothing outside of 0..1.
Tensor cross_entropy(const Operand& logits, const Operand& target,
                     const CrossEntropyOptions& options = {});
/// -log_probabilities[target]; shapes as cross_entropy.
Tensor nll_loss(const Operand& log_probabilities, const Operand& target,
                const CrossEntropyOptions& options = {});
/// (a - b)², |a - b|: f32, of f64 f64. Error(Shape) unless shapes are equal.
Tensor mse_loss(const Operand& a, const Operand& b, Reduction reduction = Reduction::Mean);
Tensor l1_loss(const Operand& a, const Operand& b, Reduction reduction = Reduction::Mean);
/// (a - b)² / (2 beta) where |a - b| < beta, else |a - b| - beta / 2; beta 0 is l1_loss.
/// Error(Value) for a negative beta.
Tensor smooth_l1_loss(const Operand& a, const Operand& b, double beta = 1,
                      Reduction reduction = Reduction::Mean);
/// (a - b)² / 2 where |a - b| <= delta, else delta (|a - b| - delta / 2): delta times
/// smooth_l1_loss with beta = delta. Error(Value) unless delta > 0.
Tensor huber_loss(const Operand& a, const Operand& b, double delta = 1,
                  Reduction reduction = Reduction::Mean);

struct BinaryCrossEntropyOptions {
  Tensor weight = {}; ///< factor of each element; broadcasts to the operands
  /// Factor of the targets' part, of logits only; broadcasts to the operands
  Tensor pos_weight = {};
  Reduction reduction = Reduction::Mean;
};
/// -(t log p + (1 - t) log(1 - p)), logarithms not below -100.
Tensor binary_cross_entropy(const Operand& probability, const Operand& target,
                            Reduction reduction = Reduction::Mean);
Tensor binary_cross_entropy(const Operand& probability, const Operand& target,
                            const BinaryCrossEntropyOptions& options);
/// The same of sigmoid(logits), without overflow.
Tensor binary_cross_entropy_with_logits(const Operand& logits, const Operand& target,
                                        Reduction reduction = Reduction::Mean);
Tensor binary_cross_entropy_with_logits(const Operand& logits, const Operand& target,
                                        const BinaryCrossEntropyOptions& options);

struct KlDivOptions {
  bool log_target = false; ///< targets are logarithms of probabilities
  bool batch_mean = false; ///< the sum over the size of the first axis, instead of `reduction`
  Reduction reduction = Reduction::Mean;
};
/// t (log t - log p), 0 where t is 0, for log p and t.
Tensor kl_div(const Operand& log_probability, const Operand& target,
              const KlDivOptions& options = {});
/// exp(a) - t a for a logarithm `a` of the rate.
Tensor poisson_nll_loss(const Operand& a, const Operand& target,
                        Reduction reduction = Reduction::Mean);
/// (log var + (a - t)² / var) / 2, var at least eps.
Tensor gaussian_nll_loss(const Operand& a, const Operand& target, const Operand& variance,
                         double eps = 1e-6, Reduction reduction = Reduction::Mean);
/// max(0, margin - t (a - b)) for t of 1 (a is to be larger) and -1.
Tensor margin_ranking_loss(const Operand& a, const Operand& b, const Operand& target,
                           double margin = 0, Reduction reduction = Reduction::Mean);
/// a where t is 1, max(0, margin - a) where it is -1.
Tensor hinge_embedding_loss(const Operand& a, const Operand& target, double margin = 1,
                            Reduction reduction = Reduction::Mean);
/// log(1 + exp(-t a)) for t of 1 and -1.
Tensor soft_margin_loss(const Operand& a, const Operand& target,
                        Reduction reduction = Reduction::Mean);
struct FocalOptions {
  double alpha = 0.25; ///< factor where t is 1, 1 - alpha where it is 0; a negative one: none
  double gamma = 2;
  Reduction reduction = Reduction::Mean;
};
/// Binary cross-entropies of logits times (1 - p)^gamma, p the probability of the target (Lin et
/// al. 2017; torchvision's). Error(Value) for a negative gamma.
Tensor sigmoid_focal_loss(const Operand& logits, const Operand& target,
                          const FocalOptions& options = {});
/// a·b / (max(|a|, eps) max(|b|, eps)) along an axis; operands broadcast.
Tensor cosine_similarity(const Operand& a, const Operand& b, std::int64_t axis = 1,
                         double eps = 1e-8);
/// 1 - cos(a, b) where t is 1, max(0, cos(a, b) - margin) where it is -1; a and b [n, d], t [n].
Tensor cosine_embedding_loss(const Operand& a, const Operand& b, const Operand& target,
                             double margin = 0, Reduction reduction = Reduction::Mean);
/// |a - b + eps| along the last axis, in the 2-norm.
Tensor pairwise_distance(const Operand& a, const Operand& b, double eps = 1e-6,
                         bool keepdim = false);
/// max(0, d(anchor, positive) - d(anchor, negative) + margin), d of pairwise_distance.
Tensor triplet_margin_loss(const Operand& anchor, const Operand& positive, const Operand& negative,
                           double margin = 1, Reduction reduction = Reduction::Mean);

struct PoissonNllOptions {
  bool log_input = true; ///< a is the logarithm of the rate; else the rate
  bool full = false;     ///< with Stirling's approximation of log(target!), where target > 1
  double eps = 1e-8;     ///< added to a rate in its logarithm
  Reduction reduction = Reduction::Mean;
};
Tensor poisson_nll_loss(const Operand& a, const Operand& target, const PoissonNllOptions& options);

struct TripletOptions {
  double margin = 1;
  double p = 2;      ///< of the norm
  double eps = 1e-6; ///< added to each difference
  bool swap = false; ///< the negative's distance is that to anchor or positive, the smaller one
  Reduction reduction = Reduction::Mean;
};
Tensor triplet_margin_loss(const Operand& anchor, const Operand& positive, const Operand& negative,
                           const TripletOptions& options);
/// |a - b + eps| along the last axis, in the p-norm.
Tensor pairwise_distance(const Operand& a, const Operand& b, double p, double eps, bool keepdim);
/// Distances in the p-norm between all pairs of rows of a [n, d]: [n (n-1) / 2], (0,1), (0,2) ...
Tensor pdist(const Operand& a, double p = 2);

struct MultiMarginOptions {
  double p = 1; ///< 1 or 2
  double margin = 1;
  Tensor weight = {}; ///< [classes]: factor of the target's class
  Reduction reduction = Reduction::Mean;
};
/// Of scores [batch, classes] and class numbers [batch]: sum over other classes of max(0, margin -
/// a[target] + a[other])^p, over the number of classes.
Tensor multi_margin_loss(const Operand& a, const Operand& target,
                         const MultiMarginOptions& options = {});
/// Of scores [batch, classes] and targets [batch, classes]: class numbers up to the first negative
/// one. Sum over them and all other classes of max(0, 1 - a[target] + a[other]), over the number of
/// classes.
Tensor multilabel_margin_loss(const Operand& a, const Operand& target,
                              Reduction reduction = Reduction::Mean);
/// Mean over the last axis of binary cross-entropies of logits, each times weight [classes].
Tensor multilabel_soft_margin_loss(const Operand& a, const Operand& target,
                                   const Operand& weight = {},
                                   Reduction reduction = Reduction::Mean);

struct CtcOptions {
  std::int64_t blank = 0;
  Reduction reduction = Reduction::Mean; ///< a mean divides each loss by its target's length first
  bool zero_infinity = false;            ///< 0 for targets that do not fit their input
};
/// Connectionist temporal classification (Graves et al. 2006): -log of the probability that
/// log-probabilities [time, batch, classes] spell targets [batch, length] (integers; entries behind
/// a target's own length do not count), by the forward recursion, which is unrolled over time.
/// `input_lengths` and `target_lengths` are integers [batch]. A loss that is infinite has gradient
/// 0. Also [time, classes] with targets [length] and lengths of rank 0.
Tensor ctc_loss(const Operand& log_probabilities, const Operand& targets,
                const Operand& input_lengths, const Operand& target_lengths,
                const CtcOptions& options = {});

} // namespace egret

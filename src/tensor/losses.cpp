// Losses. Those of f16 and bf16 are computed and given in f32.
#include "support/fail.h"
#include "tensor/loss_parts.h"

#include <cmath>

namespace egret {

using namespace detail;

namespace detail {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
  case Reduction::Mean:
    return mean(losses);
  case Reduction::Sum:
    return sum(losses);
  default:
    return losses;
  }
}

Pair loss_operands(const Tensor& a, const Tensor& b, const char* who) {
  auto [x, y] = promoted(a, b, who);
  if (x.shape() != y.shape())
    fail(ErrorKind::Shape, "{}: shapes differ: {} and {}; losses do not broadcast", who,
         shape_of(a), shape_of(b));
  return {widened(as_float(x, who)), widened(as_float(y, who))};
}

Tensor factor(const Tensor& weight, const Tensor& like, const char* who) {
  Access::held(weight, who);
  if (!broadcasts_to(weight.shape(), like.shape()))
    fail(ErrorKind::Shape, "{}: weight {} does not broadcast to {}", who, shape_of(weight),
         shape_of(like));
  return weight.to(like.dtype());
}

} // namespace detail

namespace {

// What the user gave, checked: the classes of both on the last axis.
struct ClassOperands {
  Tensor rows, target;
};

Shape without(Shape shape, std::int64_t axis) {
  shape.erase(shape.begin() + axis);
  return shape;
}

ClassOperands class_operands(const Tensor& a, const Tensor& target,
                             const CrossEntropyOptions& options, bool probabilities,
                             const char* who) {
  Access::held(a, who);
  Access::held(target, who);
  require_float(a, who);
  if (a.rank() < 1)
    fail(ErrorKind::Shape, "{}: got a single number; the last axis holds the classes", who);
  const std::int64_t axis = axis_of(options.axis, a.rank(), a.shape(), who);
  const bool last = axis == a.rank() - 1;
  const Expr& classes = a.shape()[static_cast<std::size_t>(axis)];
  if (!probabilities) {
    require_integer(target, who, "targets");
    const Shape wanted = without(a.shape(), axis);
    if (target.shape() != wanted) {
      const bool second = last && a.rank() > 2 && target.shape() == without(a.shape(), 1);
      fail(ErrorKind::Shape,
           "{}: targets {} do not fit {}; they must be {}, one class number for each row of {}{}",
           who, shape_of(target), shape_of(a), to_string(wanted),
           last ? "the last axis" : fmt::format("axis {}", axis),
           second ? "; are the classes on axis 1? That is {.axis = 1}" : "");
    }
  } else if (target.shape() != a.shape()) {
    fail(ErrorKind::Shape, "{}: probabilities {} do not fit {}; shapes must be equal", who,
         shape_of(target), shape_of(a));
  }
  if (probabilities && options.ignore_index)
    fail(ErrorKind::Value, "{}: ignore_index goes with class numbers, not with probabilities", who);
  if (options.weight.defined() && options.weight.shape() != Shape{classes})
    fail(ErrorKind::Shape, "{}: weight {} does not fit {}; it must be [{}]", who,
         shape_of(options.weight), shape_of(a), classes.str());
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    fail(ErrorKind::Value, "{}: label smoothing is {}; it lies between 0 and 1", who,
         options.label_smoothing);
  if (last)
    return {a, target};
  return {movedim(a, axis, -1), probabilities ? movedim(target, axis, -1) : target};
}

// The value of each row at its target: a sum that has one term, so that nothing is scattered on the
// way back.
Tensor at_target(const Tensor& rows, const Tensor& target) {
  const Tensor number = class_numbers(target);
  const Tensor hit = eq(unsqueeze(number, -1), iota(rows.shape().back(), number.dtype()));
  return sum(where(hit, rows, 0), -1);
}

// `losses`: of each row with its own target; `even`: against all classes alike. Both are weighted
// already; `weights` [classes] for what a mean divides by.
Tensor finish(Tensor losses, const Tensor& even, const Tensor& target, const Expr& classes,
              const Tensor& weights, const CrossEntropyOptions& options, const char* who) {
  if (options.label_smoothing > 0)
    losses = losses * (1 - options.label_smoothing) + even * options.label_smoothing;
  losses = losses * class_check(target, classes, options.ignore_index, losses.dtype(), who);
  Tensor share;
  if (weights.defined())
    share = at_target(broadcast_to(
                          weights,
                          [&] {
                            Shape rows = target.shape();
                            rows.push_back(weights.shape()[0]);
                            return rows;
                          }(),
                          "cross_entropy"),
                      target);
  if (options.ignore_index) {
    const Tensor counts = ne(target, *options.ignore_index);
    losses = where(counts, losses, 0);
    share = share.defined() ? where(counts, share, 0) : counts.to(losses.dtype());
  }
  if (options.reduction != Reduction::Mean || !share.defined())
    return reduced(losses, options.reduction);
  return sum(losses) / sum(share);
}

// Losses of log-probabilities [..., classes].
Tensor of_classes(const Tensor& logs, const Tensor& target, const CrossEntropyOptions& options,
                  const char* who) {
  const Tensor weights =
      options.weight.defined() ? options.weight.to(logs.dtype()) : options.weight;
  const Tensor weighted = weights.defined() ? logs * weights : logs;
  const Tensor even = options.label_smoothing > 0 ? neg(mean(weighted, -1)) : Tensor();
  return finish(neg(at_target(weighted, target)), even, target, logs.shape().back(), weights,
                options, who);
}

// With targets that are probabilities of the classes.
Tensor of_probabilities(const Tensor& logs, const Tensor& target,
                        const CrossEntropyOptions& options) {
  Tensor t = target.to(logs.dtype());
  if (options.label_smoothing > 0)
    t = t * (1 - options.label_smoothing) +
        options.label_smoothing / number_of(logs.shape().back(), logs.dtype());
  const Tensor terms = logs * t;
  return reduced(
      neg(sum(options.weight.defined() ? terms * options.weight.to(logs.dtype()) : terms, -1)),
      options.reduction);
}

} // namespace

Tensor cross_entropy(const Operand& logits, const Operand& target,
                     const CrossEntropyOptions& options) {
  Access::held(logits, "cross_entropy");
  Access::held(target, "cross_entropy");
  const bool probabilities = is_float(target.dtype()) && target.rank() == logits.rank();
  const auto [rows, number] =
      class_operands(logits, target, options, probabilities, "cross_entropy");
  const Tensor x = widened(rows);
  if (probabilities)
    return of_probabilities(log_softmax(x), number, options);
  if (options.weight.defined())
    return of_classes(log_softmax(x), number, options, "cross_entropy");
  const Tensor highest = reduce(Op::ReduceMax, x, {x.rank() - 1}, true, "cross_entropy");
  const Tensor low = x - unary(Op::StopGradient, highest, "cross_entropy");
  const Tensor total = log(sum(exp(low), -1));
  const Tensor losses = total - at_target(low, number);
  const Tensor even = options.label_smoothing > 0 ? total - mean(low, -1) : Tensor();
  return finish(losses, even, number, x.shape().back(), {}, options, "cross_entropy");
}

Tensor nll_loss(const Operand& log_probabilities, const Operand& target,
                const CrossEntropyOptions& options) {
  const auto [rows, number] = class_operands(log_probabilities, target, options, false, "nll_loss");
  return of_classes(widened(rows), number, options, "nll_loss");
}

Tensor mse_loss(const Operand& a, const Operand& b, Reduction reduction) {
  auto [x, y] = loss_operands(a, b, "mse_loss");
  return reduced(square(x - y), reduction);
}

Tensor l1_loss(const Operand& a, const Operand& b, Reduction reduction) {
  auto [x, y] = loss_operands(a, b, "l1_loss");
  return reduced(abs(x - y), reduction);
}

Tensor smooth_l1_loss(const Operand& a, const Operand& b, double beta, Reduction reduction) {
  auto [x, y] = loss_operands(a, b, "smooth_l1_loss");
  if (!(beta >= 0))
    fail(ErrorKind::Value, "smooth_l1_loss: beta is {}; it must not be negative", beta);
  const Tensor distance = abs(x - y);
  if (beta == 0)
    return reduced(distance, reduction);
  return reduced(where(distance < beta, square(distance) * (0.5 / beta), distance - 0.5 * beta),
                 reduction);
}

Tensor huber_loss(const Operand& a, const Operand& b, double delta, Reduction reduction) {
  auto [x, y] = loss_operands(a, b, "huber_loss");
  if (!(delta > 0))
    fail(ErrorKind::Value, "huber_loss: delta is {}; it must be positive", delta);
  const Tensor distance = abs(x - y);
  return reduced(where(distance <= delta, square(distance) * 0.5, (distance - 0.5 * delta) * delta),
                 reduction);
}

Tensor binary_cross_entropy(const Operand& probability, const Operand& target,
                            const BinaryCrossEntropyOptions& options) {
  auto [p, t] = loss_operands(probability, target, "binary_cross_entropy");
  if (options.pos_weight.defined())
    fail(ErrorKind::Value, "binary_cross_entropy: pos_weight goes with logits "
                           "(binary_cross_entropy_with_logits)");
  const Tensor yes = maximum(log(p), -100.0), no = maximum(log1p(neg(p)), -100.0);
  Tensor losses = neg(t * yes + (1 - t) * no);
  if (options.weight.defined())
    losses = losses * factor(options.weight, losses, "binary_cross_entropy");
  return reduced(losses, options.reduction);
}

Tensor binary_cross_entropy(const Operand& probability, const Operand& target,
                            Reduction reduction) {
  return binary_cross_entropy(probability, target,
                              BinaryCrossEntropyOptions{.reduction = reduction});
}

Tensor binary_cross_entropy_with_logits(const Operand& logits, const Operand& target,
                                        const BinaryCrossEntropyOptions& options) {
  constexpr const char* who = "binary_cross_entropy_with_logits";
  auto [x, t] = loss_operands(logits, target, who);
  Tensor losses;
  if (options.pos_weight.defined()) // (1 - t) x + (1 + (w - 1) t) softplus(-x)
    losses = (1 - t) * x + ((factor(options.pos_weight, x, who) - 1) * t + 1) * softplus(neg(x));
  else
    losses = softplus(x) - x * t;
  if (options.weight.defined())
    losses = losses * factor(options.weight, losses, who);
  return reduced(losses, options.reduction);
}

Tensor binary_cross_entropy_with_logits(const Operand& logits, const Operand& target,
                                        Reduction reduction) {
  return binary_cross_entropy_with_logits(logits, target,
                                          BinaryCrossEntropyOptions{.reduction = reduction});
}

Tensor kl_div(const Operand& log_probability, const Operand& target, const KlDivOptions& options) {
  auto [p, t] = loss_operands(log_probability, target, "kl_div");
  const Tensor losses = options.log_target
                            ? exp(t) * (t - p)
                            // log of 1 where t is 0: the term is 0 - 0 p then, its gradient finite
                            : t * log(where(t > 0, t, 1)) - t * p;
  if (!options.batch_mean)
    return reduced(losses, options.reduction);
  if (losses.rank() == 0)
    fail(ErrorKind::Shape, "kl_div: a mean over the batch of a single number; it has no axis");
  return sum(losses) / number_of(losses.shape()[0], losses.dtype());
}

Tensor poisson_nll_loss(const Operand& a, const Operand& target, Reduction reduction) {
  return poisson_nll_loss(a, target, PoissonNllOptions{.reduction = reduction});
}

Tensor poisson_nll_loss(const Operand& a, const Operand& target, const PoissonNllOptions& options) {
  auto [x, t] = loss_operands(a, target, "poisson_nll_loss");
  Tensor losses = options.log_input ? exp(x) - t * x : x - t * log(x + options.eps);
  if (options.full) {
    const Tensor n = where(t > 1, t, 1);
    losses = losses + where(t > 1, n * log(n) - n + log(n * (2 * M_PI)) * 0.5, 0);
  }
  return reduced(losses, options.reduction);
}

Tensor gaussian_nll_loss(const Operand& a, const Operand& target, const Operand& variance,
                         double eps, Reduction reduction) {
  auto [x, t] = loss_operands(a, target, "gaussian_nll_loss");
  const Tensor given = factor(variance, x, "gaussian_nll_loss");
  // As PyTorch does, the bound is not seen by the gradient.
  const Tensor bound = unary(Op::StopGradient, maximum(given, eps) - given, "gaussian_nll_loss");
  const Tensor var = given + bound;
  return reduced((log(var) + square(x - t) / var) * 0.5, reduction);
}

Tensor margin_ranking_loss(const Operand& a, const Operand& b, const Operand& target, double margin,
                           Reduction reduction) {
  auto [x, y] = loss_operands(a, b, "margin_ranking_loss");
  return reduced(relu(neg(factor(target, x, "margin_ranking_loss") * (x - y)) + margin), reduction);
}

Tensor hinge_embedding_loss(const Operand& a, const Operand& target, double margin,
                            Reduction reduction) {
  auto [x, t] = loss_operands(a, target, "hinge_embedding_loss");
  return reduced(where(t == 1, x, 0) + where(t == -1, relu(margin - x), 0), reduction);
}

Tensor soft_margin_loss(const Operand& a, const Operand& target, Reduction reduction) {
  auto [x, t] = loss_operands(a, target, "soft_margin_loss");
  return reduced(softplus(neg(t * x)), reduction);
}

Tensor sigmoid_focal_loss(const Operand& logits, const Operand& target,
                          const FocalOptions& options) {
  constexpr const char* who = "sigmoid_focal_loss";
  if (!(options.gamma >= 0))
    fail(ErrorKind::Value, "{}: gamma is {}; it must not be negative", who, options.gamma);
  auto [x, t] = loss_operands(logits, target, who);
  // The logit of the target, so that neither 1 - p nor log p cancels.
  const Tensor one = sigmoid(x), other = sigmoid(neg(x));
  const Tensor missed = other * t + one * (1 - t);
  const Tensor entropy = softplus(neg(x)) * t + softplus(x) * (1 - t);
  Tensor losses = options.gamma == 0 ? entropy : entropy * pow(missed, options.gamma);
  if (options.alpha >= 0)
    losses = losses * (t * options.alpha + (1 - t) * (1 - options.alpha));
  return reduced(losses, options.reduction);
}

Tensor cosine_similarity(const Operand& a, const Operand& b, std::int64_t axis, double eps) {
  auto [x, y] = matched(a, b, "cosine_similarity");
  const DType type = as_float(x, "cosine_similarity").dtype();
  x = widened(as_float(x, "cosine_similarity"));
  y = widened(as_float(y, "cosine_similarity"));
  const Tensor lengths = maximum(norm(x, axis), eps) * maximum(norm(y, axis), eps);
  return rounded_to(sum(x * y, axis) / lengths, type);
}

Tensor cosine_embedding_loss(const Operand& a, const Operand& b, const Operand& target,
                             double margin, Reduction reduction) {
  auto [x, y] = loss_operands(a, b, "cosine_embedding_loss");
  const Tensor cosine = cosine_similarity(x, y, -1);
  const Tensor t = factor(target, cosine, "cosine_embedding_loss");
  return reduced(where(t == 1, 1 - cosine, 0) + where(t == -1, relu(cosine - margin), 0),
                 reduction);
}

Tensor pairwise_distance(const Operand& a, const Operand& b, double p, double eps, bool keepdim) {
  auto [x, y] = matched(a, b, "pairwise_distance");
  const Tensor difference = as_float(x, "pairwise_distance") - as_float(y, "pairwise_distance");
  return norm(difference + eps, -1, keepdim, p);
}

Tensor pairwise_distance(const Operand& a, const Operand& b, double eps, bool keepdim) {
  return pairwise_distance(a, b, 2, eps, keepdim);
}

Tensor triplet_margin_loss(const Operand& anchor, const Operand& positive, const Operand& negative,
                           double margin, Reduction reduction) {
  return triplet_margin_loss(anchor, positive, negative,
                             TripletOptions{.margin = margin, .reduction = reduction});
}

Tensor triplet_margin_loss(const Operand& anchor, const Operand& positive, const Operand& negative,
                           const TripletOptions& options) {
  auto [a, p] = loss_operands(anchor, positive, "triplet_margin_loss");
  const Tensor n = loss_operands(anchor, negative, "triplet_margin_loss").b;
  auto distance = [&](const Tensor& x, const Tensor& y) {
    return pairwise_distance(x, y, options.p, options.eps, false);
  };
  Tensor far = distance(a, n);
  if (options.swap)
    far = minimum(far, distance(p, n));
  return reduced(relu(distance(a, p) - far + options.margin), options.reduction);
}

} // namespace egret

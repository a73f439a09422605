// Losses. Those of f16 and bf16 are computed and given in f32.
#include "support/fail.h"
#include "tensor/ops.h"

namespace egret {

using namespace detail;

namespace {

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

// Both operands as floats of one type, with equal shapes: broadcasting here is nearly always a
// slip.
Pair loss_operands(const Tensor& a, const Tensor& b, const char* who) {
  auto [x, y] = promoted(a, b, who);
  if (x.shape() != y.shape())
    fail(ErrorKind::Shape, "{}: shapes differ: {} and {}; losses do not broadcast", who,
         shape_of(a), shape_of(b));
  return {widened(as_float(x, who)), widened(as_float(y, who))};
}

void check_classes(const Tensor& a, const Tensor& target, const CrossEntropyOptions& options,
                   const char* who) {
  Access::raw(a, who);
  Access::raw(target, who);
  require_float(a, who);
  require_integer(target, who, "targets");
  if (a.rank() < 1)
    fail(ErrorKind::Shape, "{}: got a single number; the last axis holds the classes", who);
  const Shape wanted(a.shape().begin(), a.shape().end() - 1);
  if (target.shape() != wanted)
    fail(ErrorKind::Shape,
         "{}: targets {} do not fit {}; they must be {}, one class number for each row of the "
         "last axis",
         who, shape_of(target), shape_of(a), to_string(wanted));
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
    fail(ErrorKind::Value, "{}: label smoothing is {}; it lies between 0 and 1", who,
         options.label_smoothing);
}

// The value of each row at its target: a sum that has one term, so that nothing is scattered on the
// way back.
Tensor at_target(const Tensor& rows, const Tensor& target) {
  const Tensor hit = eq(unsqueeze(target, -1), iota(rows.shape().back(), target.dtype()));
  return sum(where(hit, rows, 0), -1);
}

// `target`: the losses with their own target; `even`: those against all classes alike.
Tensor finish(Tensor losses, const Tensor& even, const Tensor& target,
              const CrossEntropyOptions& options) {
  if (options.label_smoothing > 0)
    losses = losses * (1 - options.label_smoothing) + even * options.label_smoothing;
  if (!options.ignore_index)
    return reduced(losses, options.reduction);
  const Tensor counts = ne(target, *options.ignore_index);
  losses = where(counts, losses, 0);
  if (options.reduction != Reduction::Mean)
    return reduced(losses, options.reduction);
  return sum(losses) / sum(counts).to(losses.dtype());
}

} // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& target,
                     const CrossEntropyOptions& options) {
  check_classes(logits, target, options, "cross_entropy");
  const Tensor x = widened(logits);
  const Tensor highest = reduce(Op::ReduceMax, x, {x.rank() - 1}, true, "cross_entropy");
  const Tensor low = x - unary(Op::StopGradient, highest, "cross_entropy");
  const Tensor total = log(sum(exp(low), -1));
  const Tensor losses = total - at_target(low, target);
  const Tensor even = options.label_smoothing > 0 ? total - mean(low, -1) : Tensor();
  return finish(losses, even, target, options);
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& target,
                const CrossEntropyOptions& options) {
  check_classes(log_probabilities, target, options, "nll_loss");
  const Tensor x = widened(log_probabilities);
  const Tensor even = options.label_smoothing > 0 ? neg(mean(x, -1)) : Tensor();
  return finish(neg(at_target(x, target)), even, target, options);
}

Tensor mse_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  auto [x, y] = loss_operands(a, b, "mse_loss");
  return reduced(square(x - y), reduction);
}

Tensor l1_loss(const Tensor& a, const Tensor& b, Reduction reduction) {
  auto [x, y] = loss_operands(a, b, "l1_loss");
  return reduced(abs(x - y), reduction);
}

Tensor binary_cross_entropy(const Tensor& probability, const Tensor& target, Reduction reduction) {
  auto [p, t] = loss_operands(probability, target, "binary_cross_entropy");
  const Tensor yes = maximum(log(p), -100.0), no = maximum(log1p(neg(p)), -100.0);
  return reduced(neg(t * yes + (1 - t) * no), reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Reduction reduction) {
  auto [x, t] = loss_operands(logits, target, "binary_cross_entropy_with_logits");
  return reduced(softplus(x) - x * t, reduction);
}

} // namespace egret

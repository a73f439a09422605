// Losses of several classes by margins, and distances between all pairs.
#include "egret/functional/indices.h"

#include "support/fail.h"
#include "tensor/loss_parts.h"

namespace egret {

using namespace detail;

namespace {

// Scores [batch, classes], or [classes] of one; f32 at least.
Tensor scores_of(const Tensor& a, const char* who) {
  Access::held(a, who);
  require_float(a, who);
  if (a.rank() != 1 && a.rank() != 2)
    fail(ErrorKind::Shape, "{}: got {}; it must be [batch, classes]", who, shape_of(a));
  return widened(a);
}

} // namespace

Tensor multi_margin_loss(const Operand& a, const Operand& target,
                         const MultiMarginOptions& options) {
  constexpr const char* who = "multi_margin_loss";
  const Tensor x = scores_of(a, who);
  Access::held(target, who);
  require_integer(target, who, "targets");
  const Shape rows(a.shape().begin(), a.shape().end() - 1);
  if (target.shape() != rows)
    fail(ErrorKind::Shape, "{}: targets {} do not fit {}; they must be {}", who, shape_of(target),
         shape_of(a), to_string(rows));
  if (options.p != 1 && options.p != 2)
    fail(ErrorKind::Value, "{}: p is {}; it is 1 or 2", who, options.p);
  const Expr classes = x.shape().back();
  if (options.weight.defined() && options.weight.shape() != Shape{classes})
    fail(ErrorKind::Shape, "{}: weight {} does not fit {}; it must be [{}]", who,
         shape_of(options.weight), shape_of(a), classes.str());
  const Tensor number = class_numbers(target);
  const Tensor own = eq(unsqueeze(number, -1), iota(classes, number.dtype()));
  const Tensor score = sum(where(own, x, 0), -1, true);
  Tensor terms = relu(options.margin - score + x);
  if (options.p == 2)
    terms = square(terms);
  Tensor losses = sum(where(own, 0, terms), -1) / number_of(classes, x.dtype());
  if (options.weight.defined())
    losses = losses * sum(where(own, options.weight.to(x.dtype()), 0), -1);
  losses = losses * class_check(target, classes, {}, x.dtype(), who);
  return reduced(losses, options.reduction);
}

Tensor multilabel_margin_loss(const Operand& a, const Operand& target, Reduction reduction) {
  constexpr const char* who = "multilabel_margin_loss";
  const Tensor x = scores_of(a, who);
  Access::held(target, who);
  require_integer(target, who, "targets");
  if (target.shape() != a.shape())
    fail(ErrorKind::Shape, "{}: targets {} do not fit {}; shapes must be equal", who,
         shape_of(target), shape_of(a));
  const Expr classes = x.shape().back();
  const Tensor t = target.to(DType::I64);
  const Tensor counts = cumsum((t < 0).to(DType::I64), -1) == 0; // up to the first negative one
  // [.., targets, classes]
  const Tensor meets = eq(unsqueeze(t, -1), iota(classes, DType::I64)) & unsqueeze(counts, -1);
  const Tensor wanted = any(meets, -2, true);
  const Tensor score = sum(where(meets, unsqueeze(x, -2), 0), -1, true);
  const Tensor terms = relu(1 - score + unsqueeze(x, -2));
  const Tensor losses = sum(where(unsqueeze(counts, -1) & !wanted, terms, 0), {-2, -1});
  return reduced(losses / number_of(classes, x.dtype()), reduction);
}

Tensor multilabel_soft_margin_loss(const Operand& a, const Operand& target, const Operand& weight,
                                   Reduction reduction) {
  constexpr const char* who = "multilabel_soft_margin_loss";
  auto [x, t] = loss_operands(a, target, who);
  if (x.rank() < 1)
    fail(ErrorKind::Shape, "{}: got a single number; the last axis holds the classes", who);
  Tensor losses = softplus(x) - x * t;
  if (weight.defined())
    losses = losses * factor(weight, losses, who);
  return reduced(mean(losses, -1), reduction);
}

Tensor pdist(const Operand& a, double p) {
  const Tensor x = as_float(a, "pdist");
  if (x.rank() != 2)
    fail(ErrorKind::Shape, "pdist: got {}; it must be [n, d]", shape_of(a));
  const Tensor pairs = triu_indices(x.size(0), x.size(0), 1);
  return norm(take(x, pairs[0], 0) - take(x, pairs[1], 0), -1, false, p);
}

} // namespace egret

// Connectionist temporal classification: the forward recursion over time, in logarithms.
#include "egret/functional/indices.h"

#include "support/fail.h"
#include "tensor/loss_parts.h"

#include <limits>

namespace egret {

using namespace detail;

namespace {

// log of the sum of exponentials along the last axis; -inf with gradient 0 where all are.
Tensor total_of(const Tensor& x) {
  const Tensor top = unary(Op::StopGradient, max(x, -1, true), "ctc_loss");
  const Tensor none = top == -kInfinity;
  const Tensor shift = where(none, 0, top);
  const Tensor sums = sum(exp(x - shift), -1, true);
  return squeeze(where(none, -kInfinity, log(where(none, 1, sums)) + shift), -1);
}

// Element i becomes i + by along the last axis, -inf in front.
Tensor later(const Tensor& x, std::int64_t by) {
  const auto rank = static_cast<std::size_t>(x.rank());
  std::vector<std::int64_t> before(rank, 0), after(rank, 0);
  before.back() = by;
  return pad(x, before, after, -kInfinity).narrow(-1, 0, x.shape().back());
}

struct Operands {
  Tensor logs, targets, input_lengths, target_lengths; ///< [time, batch, classes], [batch, ..]
};

Operands checked(const Tensor& logs, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths, const CtcOptions& options) {
  constexpr const char* who = "ctc_loss";
  for (const Tensor* t : {&logs, &targets, &input_lengths, &target_lengths})
    Access::held(*t, who);
  require_float(logs, who);
  require_integer(targets, who, "targets");
  require_integer(input_lengths, who, "input lengths");
  require_integer(target_lengths, who, "target lengths");
  const bool one = logs.rank() == 2;
  if (!one && logs.rank() != 3)
    fail(ErrorKind::Shape, "{}: got {}; it must be [time, batch, classes]", who, shape_of(logs));
  const Tensor l = widened(one ? unsqueeze(logs, 1) : logs);
  const Tensor t = one && targets.rank() == 1 ? unsqueeze(targets, 0) : targets;
  const Expr& batch = l.shape()[1];
  if (t.rank() != 2 || !(t.shape()[0] == batch))
    fail(ErrorKind::Shape, "{}: targets {} do not fit {}; they must be [{}, length]", who,
         shape_of(targets), shape_of(logs), batch.str());
  auto lengths = [&](const Tensor& given, const char* what) {
    const Tensor n = one && given.rank() == 0 ? unsqueeze(given, 0) : given;
    if (n.shape() != Shape{batch})
      fail(ErrorKind::Shape, "{}: {} are {}; they must be [{}]", who, what, shape_of(given),
           batch.str());
    return n.to(DType::I64);
  };
  if (l.size(0) < 1)
    fail(ErrorKind::Shape, "{}: no time in {}", who, shape_of(logs));
  if (options.blank < 0 || options.blank >= l.size(2))
    fail(ErrorKind::Value, "{}: blank is class {} of {}", who, options.blank, l.size(2));
  return {l, t.to(DType::I64), lengths(input_lengths, "input lengths"),
          lengths(target_lengths, "target lengths")};
}

} // namespace

Tensor ctc_loss(const Operand& log_probabilities, const Operand& targets,
                const Operand& input_lengths, const Operand& target_lengths,
                const CtcOptions& options) {
  const Operands o = checked(log_probabilities, targets, input_lengths, target_lengths, options);
  const std::int64_t times = o.logs.size(0), batch = o.logs.size(1), length = o.targets.size(1),
                     states = 2 * length + 1;
  // Classes of the states [batch, states]: blanks, and the targets between them.
  const Tensor blanks = full({batch, length, 1}, options.blank, DType::I64);
  const Tensor classes = cat({cat({blanks, unsqueeze(o.targets, -1)}, -1).flatten(1, -1),
                              full({batch, 1}, options.blank, DType::I64)},
                             1);
  const Tensor logs = gather(o.logs, 2, unsqueeze(classes, 0).expand({times, batch, states}));
  // A blank between different targets may be left out.
  const Tensor two_before = pad(classes, {0, 2}, {0, 0}, options.blank).narrow(1, 0, states);
  const Tensor skips = ne(classes, options.blank) & ne(classes, two_before);
  const Tensor state = iota(states, DType::I64);
  Tensor paths = where(state < 2, logs[0], -kInfinity);
  for (std::int64_t t = 1; t < times; ++t) {
    const Tensor from =
        stack({paths, later(paths, 1), where(skips, later(paths, 2), -kInfinity)}, -1);
    paths = where(unsqueeze(o.input_lengths, 1) > t, total_of(from) + logs[t], paths);
  }
  const Tensor last = unsqueeze(o.target_lengths * 2, 1);
  const Tensor ends = eq(state, last) | eq(state, last - 1);
  Tensor losses = neg(total_of(where(ends, paths, -kInfinity)));
  if (options.zero_infinity)
    losses = where(losses == kInfinity, 0, losses);
  if (options.reduction == Reduction::Mean)
    losses = losses / maximum(o.target_lengths, 1).to(losses.dtype());
  const Tensor result = reduced(losses, options.reduction);
  return log_probabilities.rank() == 2 && options.reduction == Reduction::None ? squeeze(result, 0)
                                                                               : result;
}

} // namespace egret

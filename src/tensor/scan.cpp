// Loops over time.
#include "egret/functional/reductions.h"
#include "egret/functional/shapes.h"

#include "support/fail.h"
#include "tensor/ops.h"

#include <algorithm>
#include <utility>

namespace egret {

using namespace detail;

namespace {

constexpr const char* kWho = "scan";

using Tensors = std::vector<Tensor>;
using Step = std::function<ScanStep(const Tensors& state, const Tensors& x)>;

std::int64_t length_of(const Tensors& xs, const ScanOptions& options) {
  if (xs.empty() && !options.length)
    fail(ErrorKind::Value, "{}: neither xs nor a length is given", kWho);
  if (options.length && *options.length < 0)
    fail(ErrorKind::Value, "{}: a length of {}; it must not be negative", kWho, *options.length);
  std::optional<std::int64_t> length = options.length;
  for (const Tensor& x : xs) {
    Access::held(x, kWho);
    if (x.rank() == 0 || !x.shape()[0].is_constant())
      fail(ErrorKind::Shape, "{}: xs of {}; they need a first axis of a known size", kWho,
           shape_of(x));
    if (length && x.size(0) != *length)
      fail(ErrorKind::Shape, "{}: xs of {} in a loop of {} steps", kWho, shape_of(x), *length);
    length = x.size(0);
  }
  return *length;
}

/// Whether `now` is what `before`, of the first step, was.
void require_same(const Tensors& now, const Tensors& before, const char* what, std::int64_t step) {
  if (now.size() != before.size())
    fail(ErrorKind::Shape, "{}: step {} gives {} tensors of {}, not {}", kWho, step, now.size(),
         what, before.size());
  for (std::size_t i = 0; i < now.size(); ++i) {
    Access::held(now[i], kWho);
    if (now[i].shape() != before[i].shape())
      fail(ErrorKind::Shape, "{}: step {} makes {} of {} in {} {}; shapes must stay", kWho, step,
           shape_of(now[i]), shape_of(before[i]), what, i);
    if (now[i].dtype() != before[i].dtype())
      fail(ErrorKind::DType, "{}: step {} makes {} of {} in {} {}; dtypes must stay", kWho, step,
           name_of(now[i].dtype()), name_of(before[i].dtype()), what, i);
  }
}

/// The outputs of a loop without steps: `step` says of zeros which there would be.
Tensors no_outputs(const Step& step, const Tensors& state, const Tensors& xs) {
  Tensors zero;
  for (const Tensor& x : xs)
    zero.push_back(zeros({x.shape().begin() + 1, x.shape().end()}, x.dtype()));
  const ScanStep made = step(state, zero);
  require_same(made.state, state, "state", 0);
  Tensors outputs;
  for (const Tensor& output : made.outputs) {
    Access::held(output, kWho);
    Shape shape = output.shape();
    shape.insert(shape.begin(), Expr(0));
    outputs.push_back(zeros(shape, output.dtype()));
  }
  return outputs;
}

} // namespace

ScanResult scan(const Step& step, const Tensors& state, const Tensors& xs,
                const ScanOptions& options) {
  if (!step)
    fail(ErrorKind::Value, "{}: step is empty", kWho);
  ScanResult result;
  for (const Tensor& s : state) {
    Access::held(s, kWho);
    result.state.push_back(s.clone()); // a step may give it back
  }
  const std::int64_t length = length_of(xs, options);
  if (length == 0) {
    result.outputs = no_outputs(step, state, xs);
    return result;
  }
  std::vector<Tensors> outputs; // by output and step
  Tensors first;                // of the first step
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t t = options.reverse ? length - 1 - i : i;
    Tensors x;
    for (const Tensor& all : xs)
      x.push_back(all.select(0, t));
    ScanStep made = step(result.state, x);
    require_same(made.state, state, "state", t);
    if (i == 0) {
      first = made.outputs;
      outputs.resize(first.size());
    }
    require_same(made.outputs, first, "output", t);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      outputs[o].push_back(made.outputs[o]);
    result.state = std::move(made.state);
  }
  for (Tensors& of_steps : outputs) {
    if (options.reverse)
      std::ranges::reverse(of_steps);
    result.outputs.push_back(stack(of_steps, 0));
  }
  return result;
}

Tensor scan(const std::function<Tensor(const Tensor& state, const Tensor& x)>& step,
            const Operand& state, const Operand& xs, const ScanOptions& options) {
  if (!step)
    fail(ErrorKind::Value, "{}: step is empty", kWho);
  const Step of_lists = [&](const Tensors& h, const Tensors& x) {
    const Tensor next = step(h[0], x[0]);
    return ScanStep{{next}, {next}};
  };
  return scan(of_lists, Tensors{state}, Tensors{xs}, options).outputs[0];
}

} // namespace egret

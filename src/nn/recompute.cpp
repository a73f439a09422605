#include "egret/recompute.h"

#include "egret/grad.h"
#include "egret/tracing.h"

namespace egret::nn {

namespace {

/// Where a generator stands, so that a part draws the same numbers again.
Tensor place_of(const Generator* generator) {
  return generator != nullptr ? generator->counter.detach() : Tensor();
}

void go_to(Generator* generator, const Tensor& place) {
  if (generator != nullptr)
    generator->counter.assign(place);
}

/// Computes the gradients, so that nothing holds on to the values that they are made of.
void settle(const std::vector<NamedTensor>& parameters, const Tensor& also) {
  std::vector<Tensor> values;
  for (const auto& parameter : parameters)
    if (const Tensor gradient = parameter.tensor.grad(); gradient.defined())
      values.push_back(gradient);
  if (also.defined())
    values.push_back(also);
  eval(values);
}

} // namespace

Tensor backward_in_parts(const std::vector<Part>& parts, const Tensor& x,
                         const std::function<Tensor(const Tensor&)>& loss,
                         const std::vector<NamedTensor>& parameters, Generator* generator) {
  if (tracing()) { // one graph: the compiler chooses what is kept and what is recomputed
    Tensor y = x.detach();
    for (const Part& part : parts)
      y = part(y, generator);
    Tensor value = loss(y);
    value.backward();
    return value.detach();
  }
  std::vector<Tensor> between = {x.detach()}, places;
  {
    NoGrad no_grad;
    for (const Part& part : parts) {
      places.push_back(place_of(generator));
      between.push_back(part(between.back(), generator).eval());
    }
  }
  const Tensor end = place_of(generator);

  Tensor input = between.back().detach().set_requires_grad();
  Tensor value = loss(input);
  value.backward();
  Tensor gradient = input.grad();
  Tensor result = value.detach();
  settle(parameters, gradient);
  result.eval();

  for (std::size_t i = parts.size(); i-- > 0;) {
    between.pop_back(); // the output of this part is not needed any more
    input = between.back().detach();
    if (i > 0)
      input.set_requires_grad();
    go_to(generator, places[i]);
    parts[i](input, generator).backward(gradient);
    gradient = i > 0 ? input.grad() : Tensor();
    settle(parameters, gradient);
  }
  go_to(generator, end);
  return result;
}

} // namespace egret::nn

#include "runtime/dims.h"

#include "support/fail.h"

namespace egret::runtime {
namespace {

void bind_dim(const Expr& symbol, std::int64_t size, std::string_view input, std::int64_t& value,
              bool& bound) {
  if (bound && value != size)
    fail(ErrorKind::Shape, "run: dim {} is {} in one input and {} in `{}`", symbol.str(), value,
         size, input);
  if (size < symbol.lower() || size > symbol.upper() ||
      (symbol.divisor() > 1 && size % symbol.divisor() != 0))
    fail(ErrorKind::Shape, "run: dim {} of input `{}` is {}; the plan was made for {} to {}{}",
         symbol.str(), input, size, symbol.lower(), symbol.upper(),
         symbol.divisor() > 1 ? fmt::format(" in multiples of {}", symbol.divisor()) : "");
  value = size;
  bound = true;
}

} // namespace

DimValues::DimValues(const ir::Graph& graph, const kernel::Plan& plan,
                     std::span<const RunInput> inputs)
    : plan_(plan), values_(plan.dims.size()) {
  if (plan.dims.empty() && plan.guards.empty())
    return;
  std::vector<bool> bound(values_.size());
  for (std::size_t slot = 0; slot < graph.inputs().size(); ++slot) {
    const ir::Node& input = graph[graph.inputs()[slot]];
    for (std::size_t axis = 0; axis < input.shape.size(); ++axis)
      for (std::size_t d = 0; d < plan.dims.size(); ++d)
        if (input.shape[axis] == plan.dims[d]) {
          bool has = bound[d];
          bind_dim(plan.dims[d], (*inputs[slot].shape)[axis].value(), input.attrs.name, values_[d],
                   has);
          bound[d] = has;
        }
  }
  for (std::size_t d = 0; d < bound.size(); ++d)
    ensure(bound[d], "dim {} of a plan is bound by no input", plan.dims[d].str());
  for (const kernel::PlanGuard& guard : plan.guards) {
    const std::int64_t value = (*this)(guard.condition.value);
    if (value < (*this)(guard.condition.lo) || value >= (*this)(guard.condition.hi))
      fail(ErrorKind::Shape, "run: {} is {}, outside what the plan was made for ({})",
           guard.condition.value.str(), value, guard.why);
  }
}

std::int64_t DimValues::operator()(const Expr& e) const {
  if (e.is_constant())
    return e.value();
  return evaluate(e, [&](const Expr& variable) -> std::int64_t {
    for (std::size_t d = 0; d < plan_.dims.size(); ++d)
      if (plan_.dims[d] == variable)
        return values_[d];
    fail(ErrorKind::Shape, "run: dim {} has no value", variable.str());
  });
}

} // namespace egret::runtime

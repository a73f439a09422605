#include "backend/reference/terms.h"

#include "support/fail.h"

namespace egret::backend::reference {

ArrayView whole(const Cells& cells) {
  ArrayView view{&cells, cells.dims(), 0, Dims(cells.dims().size(), 1)};
  for (std::size_t i = view.dims.size(); i-- > 1;)
    view.strides[i - 1] = view.strides[i] * view.dims[i];
  return view;
}

bool is_view(Op op) {
  return op == Op::Permute || op == Op::Expand || op == Op::Shrink || op == Op::Flip;
}

ArrayView moved(const ir::Node& node, ArrayView from, const Bindings& bindings, const Dims& dims) {
  ArrayView to{from.cells, dims, from.start, from.strides};
  switch (node.op) {
  case Op::Permute:
    for (std::size_t i = 0; i < dims.size(); ++i)
      to.strides[i] = from.strides[static_cast<std::size_t>(node.attrs.axes[i])];
    break;
  case Op::Expand:
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (from.dims[i] == 1)
        to.strides[i] = 0;
    break;
  case Op::Shrink: {
    const Dims before = bindings.values_of(node.attrs.before);
    for (std::size_t i = 0; i < dims.size(); ++i)
      to.start += before[i] * from.strides[i];
    break;
  }
  case Op::Flip:
    for (const std::int64_t axis : node.attrs.axes) {
      const auto i = static_cast<std::size_t>(axis);
      to.start += (from.dims[i] - 1) * from.strides[i];
      to.strides[i] = -from.strides[i];
    }
    break;
  default:
    throw InternalError("internal error: no view");
  }
  return to;
}

int Terms::add(const ArrayView& view) {
  ensure(view.dims == dims_, "reference: a view of {} among terms of {}", to_string(view.dims),
         to_string(dims_));
  steps_.push_back({.cells = view.cells, .view = start_.size()});
  start_.push_back(view.start);
  strides_.push_back(view.strides);
  values_.emplace_back();
  return static_cast<int>(steps_.size()) - 1;
}

int Terms::add(const ir::Node& node, DType operand, const std::vector<int>& args) {
  Step step{.op = node.op, .type = node.dtype, .operand = operand, .arity = args.size()};
  for (std::size_t i = 0; i < args.size(); ++i)
    step.args[i] = static_cast<std::size_t>(args[i]);
  steps_.push_back(step);
  values_.emplace_back();
  return static_cast<int>(steps_.size()) - 1;
}

const Estimate& Terms::at(const std::vector<std::int64_t>& positions) {
  static const Estimate none;
  for (std::size_t s = 0; s < steps_.size(); ++s) {
    const Step& step = steps_[s];
    if (step.cells) {
      values_[s] = step.cells->at(positions[step.view]);
      continue;
    }
    const auto arg = [&](std::size_t i) -> const Estimate& {
      return i < step.arity ? values_[step.args[i]] : none;
    };
    values_[s] = with_errors_ ? apply(step.op, step.type, step.operand, arg(0), arg(1), arg(2))
                              : Estimate{apply(step.op, step.type, step.operand, arg(0).value,
                                               arg(1).value, arg(2).value)};
  }
  return values_.back();
}

} // namespace egret::backend::reference

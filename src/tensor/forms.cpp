#include "tensor/forms.h"

#include <vector>

namespace egret::detail {
namespace {

// One multiplication a word.
class Key {
public:
  void add(std::uint64_t word) noexcept {
    word_ = (word_ ^ word) * 0x9e3779b97f4a7c15u;
    word_ ^= word_ >> 29;
  }
  void add(const std::vector<Expr>& exprs) noexcept {
    for (const Expr& e : exprs)
      add(reinterpret_cast<std::uintptr_t>(&e.node())); // equal ones are one
    add(exprs.size());
  }
  void add(const ir::Attrs& attrs) noexcept {
    add(static_cast<std::uint64_t>(attrs.dtype) |
        static_cast<std::uint64_t>(attrs.value.dtype) << 8 | attrs.axes.size() << 16);
    if (attrs.value.bits != 0)
      add(attrs.value.bits);
    for (const std::int64_t axis : attrs.axes)
      add(static_cast<std::uint64_t>(axis));
    for (const auto* exprs : {&attrs.shape, &attrs.before, &attrs.after})
      if (!exprs->empty())
        add(*exprs);
  }
  std::uint64_t value() const noexcept { return word_; }

private:
  std::uint64_t word_ = 0;
};

} // namespace

FormPtr make_form(Op op, DType dtype, Shape shape, ir::Attrs attrs) {
  return std::make_shared<const ir::Node>(
      ir::Node{op, dtype, std::move(shape), {}, std::move(attrs)});
}

bool Forms::Derived::is(Operands given, const ir::Attrs& attrs) const noexcept {
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (operands[i].get() != (i < given.size() ? given[i]->get() : nullptr))
      return false;
  return form->attrs == attrs;
}

std::uint64_t Forms::key_of(Op op, Operands operands, const ir::Attrs& attrs) noexcept {
  Key key;
  key.add(static_cast<std::uint64_t>(op));
  for (const FormPtr* operand : operands)
    key.add(reinterpret_cast<std::uintptr_t>(operand->get()));
  key.add(attrs);
  return key.value();
}

const FormPtr& Forms::put(std::uint64_t key, Operands operands, const FormPtr& form) {
  Derived derived;
  for (std::size_t i = 0; i < operands.size(); ++i)
    derived.operands[i] = *operands[i];
  derived.form = form;
  return derived_.put(key, std::move(derived)).form;
}

const FormPtr& Forms::same(FormPtr form) {
  Key key;
  key.add(static_cast<std::uint64_t>(form->op) | static_cast<std::uint64_t>(form->dtype) << 8);
  key.add(form->shape);
  key.add(form->attrs);
  const auto is = [&](const Single& one) {
    return one.form->op == form->op && one.form->dtype == form->dtype &&
           one.form->shape == form->shape && one.form->attrs == form->attrs;
  };
  if (const Single* known = forms_.find(key.value(), is))
    return known->form;
  return forms_.put(key.value(), {std::move(form)}).form;
}

} // namespace egret::detail

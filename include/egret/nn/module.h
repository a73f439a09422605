// What all modules have: names, values and gradients of their tensors.
#pragma once

#include "egret/tensor.h"
#include "egret/tree.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace egret::nn {

using StateDict = std::map<std::string, Tensor>; ///< by dotted name

/// What load_state_dict found beside what fitted.
struct LoadReport {
  std::vector<std::string> missing;    ///< in the module, not in the dict
  std::vector<std::string> unexpected; ///< in the dict, not in the module
  bool complete() const noexcept { return missing.empty() && unexpected.empty(); }
  std::string text() const; ///< "missing: a, b; unexpected: c"
};

namespace detail {
std::vector<NamedTensor> only_parameters(std::vector<NamedTensor> tensors);
StateDict as_state_dict(const std::vector<NamedTensor>& tensors);
LoadReport load(const std::vector<NamedTensor>& tensors, const StateDict& state, bool strict);
void move(const std::vector<NamedTensor>& tensors, const Device& device);

/// Binds the float tensors of a tree to converted ones; a handle that is met twice becomes one.
class Converter final : public TreeVisitor {
public:
  explicit Converter(DType type);
  void tensor(const std::string& path, Tensor& value) override;

private:
  struct Converted {
    Tensor before, now;
  };
  DType type_;
  std::vector<Converted> converted_;
};
} // namespace detail

/// The tensors that require a gradient, with their names, in the order of the fields. They are
/// handles.
template <class M>
std::vector<NamedTensor> named_parameters(M& module) {
  return detail::only_parameters(named_tensors(module));
}
/// Number of elements of all parameters.
std::int64_t count(const std::vector<NamedTensor>& parameters);

/// All tensors of a module by name, values as they are now: later updates of the module do not
/// change them.
template <class M>
StateDict state_dict(M& module) {
  return detail::as_state_dict(named_tensors(module));
}
/// Puts the dict's values into the module's tensors, converted to their dtypes. Shapes must be
/// equal (Error(Shape) with both, and nothing is changed). When `strict`, missing and unexpected
/// names are Error(Value) with the list, and nothing is changed; else they are reported.
template <class M>
LoadReport load_state_dict(M& module, const StateDict& state, bool strict = true) {
  return detail::load(named_tensors(module), state, strict);
}
/// Moves all tensors of a module, and the gradients of its parameters, to a device. Optimizers that
/// have its parameters move their states at their next step. Error(Device) when the device cannot
/// be had; nothing has changed then.
template <class M>
void to(M& module, const Device& device) {
  detail::move(named_tensors(module), device);
}
/// Converts the tensors of a module that are floats. They are other tensors then, without
/// gradients: an optimizer that was made of the old parameters refuses its next step by the name
/// of one (Error(State)); make it after the conversion. Error(DType) unless `type` is a float
/// type; nothing has changed then.
template <class M>
void to(M& module, DType type) {
  detail::Converter converter(type);
  visit_tree(module, converter);
}
/// Removes the gradients of all parameters.
void zero_grad(const std::vector<NamedTensor>& parameters);

} // namespace egret::nn

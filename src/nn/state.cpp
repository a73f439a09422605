// Names and values of a module's tensors.
#include "egret/grad.h"
#include "egret/nn.h"
#include "support/fail.h"

#include <set>

namespace egret::nn {

namespace {

constexpr std::size_t kShown = 8; ///< names in a message

std::string listed(const std::vector<std::string>& names) {
  std::size_t shown = std::min(names.size(), kShown);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  return shown < names.size() ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

} // namespace

std::string LoadReport::text() const {
  std::string text;
  if (!missing.empty())
    text += "missing: " + listed(missing);
  if (!unexpected.empty())
    text += (text.empty() ? "" : "; ") + ("unexpected: " + listed(unexpected));
  return text;
}

std::int64_t count(const std::vector<NamedTensor>& parameters) {
  std::int64_t sum = 0;
  for (const auto& parameter : parameters)
    sum += parameter.tensor.numel();
  return sum;
}

void zero_grad(const std::vector<NamedTensor>& parameters) {
  for (auto parameter : parameters)
    parameter.tensor.zero_grad();
}

namespace detail {

std::vector<NamedTensor> only_parameters(std::vector<NamedTensor> tensors) {
  std::erase_if(tensors, [](const NamedTensor& named) {
    return !named.tensor.defined() || !named.tensor.requires_grad();
  });
  return tensors;
}

StateDict as_state_dict(const std::vector<NamedTensor>& tensors) {
  StateDict state;
  for (const auto& [name, tensor] : tensors)
    if (tensor.defined())
      state.emplace(name, tensor.detach());
  return state;
}

LoadReport load(const std::vector<NamedTensor>& tensors, const StateDict& state, bool strict) {
  LoadReport report;
  std::set<std::string> known;
  for (const auto& [name, tensor] : tensors) {
    known.insert(name);
    auto found = state.find(name);
    if (found == state.end())
      report.missing.push_back(name);
    else if (found->second.shape() != tensor.shape())
      fail(ErrorKind::Shape, "load_state_dict: '{}' is {} in the module and {} in the state", name,
           to_string(tensor.shape()), to_string(found->second.shape()));
  }
  for (const auto& [name, tensor] : state)
    if (!known.contains(name))
      report.unexpected.push_back(name);
  if (strict && !report.complete())
    fail(ErrorKind::Value, "load_state_dict: {} (strict = false loads the rest)", report.text());
  NoGrad no_grad;
  for (auto [name, tensor] : tensors)
    if (auto found = state.find(name); found != state.end())
      tensor.assign(found->second.detach());
  return report;
}

void move(const std::vector<NamedTensor>& tensors, const Device& device) {
  for (auto [name, tensor] : tensors)
    if (tensor.defined())
      tensor.set_device(device);
}

Converter::Converter(DType type) : type_(type) {
  if (!is_float(type))
    fail(ErrorKind::DType, "to: {} is no float type; a module's floats are converted to one",
         name_of(type));
}

void Converter::tensor(const std::string&, Tensor& value) {
  if (!value.defined() || !is_float(value.dtype()) || value.dtype() == type_)
    return;
  for (const Converted& met : converted_)
    if (egret::detail::same_place(met.before, value)) {
      value = met.now;
      return;
    }
  const bool is_leaf = value.requires_grad();
  Tensor now = value.detach().to(type_);
  now.set_requires_grad(is_leaf);
  egret::detail::retire(value);
  converted_.push_back({value, now});
  value = std::move(now);
}

} // namespace detail
} // namespace egret::nn

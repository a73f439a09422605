#include "models/parameter_reader.h"

#include "egret/functional.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>

namespace egret::models {

void ParameterReader::find_prefix(std::initializer_list<const char*> prefixes,
                                  const std::string& name) {
  prefix_ = *prefixes.begin();
  for (const char* prefix : prefixes)
    if (tensors_.contains(prefix + name)) {
      prefix_ = prefix;
      return;
    }
}

void ParameterReader::require(const std::string& name, const std::vector<std::int64_t>& shape,
                              bool floats) {
  used_.insert(name);
  if (!tensors_.contains(name))
    fail(ErrorKind::File, "{}: tensor '{}' is missing ([{}], as the configuration says)",
         folder_.string(), name, fmt::join(shape, ","));
  const io::TensorInfo& info = tensors_.info(name);
  if (info.shape != shape)
    fail(ErrorKind::File, "{}: tensor '{}' is [{}], the configuration says [{}]",
         tensors_.path_of(name).string(), name, fmt::join(info.shape, ","), fmt::join(shape, ","));
  if (is_float(info.dtype) != floats)
    fail(ErrorKind::File, "{}: tensor '{}' is {}; {} is needed", tensors_.path_of(name).string(),
         name, name_of(info.dtype), floats ? "a float" : "an integer");
}

void ParameterReader::require_no_others(std::string_view what, const OtherTensors& others) const {
  for (const std::string& name : tensors_.names())
    if (!used_.contains(name) &&
        std::ranges::none_of(others.begins, [&](const auto& s) { return name.starts_with(s); }) &&
        std::ranges::none_of(others.ends, [&](const auto& s) { return name.ends_with(s); }))
      fail(ErrorKind::File, "{}: tensor '{}' is none that {} with this configuration has",
           tensors_.path_of(name).string(), printable(name), what);
}

Tensor ParameterReader::tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                               bool floats) {
  const std::string full = prefix_ + name;
  if (!reading_) {
    require(full, shape, floats);
    return zeros(Shape(shape.begin(), shape.end()));
  }
  Tensor value = tensors_.read(full);
  if (dtype_ && floats)
    value = value.to(*dtype_);
  value.eval();
  bytes_ += value.numel() * static_cast<std::int64_t>(size_of(value.dtype()));
  return value;
}

nn::Linear ParameterReader::linear(const std::string& name, std::int64_t in, std::int64_t out,
                                   bool with_bias) {
  nn::Linear layer;
  layer.weight = tensor(name + ".weight", {out, in});
  if (with_bias)
    layer.bias = tensor(name + ".bias", {out});
  return layer;
}

nn::Embedding ParameterReader::embedding(const std::string& name, std::int64_t count,
                                         std::int64_t width) {
  nn::Embedding layer;
  layer.weight = tensor(name + ".weight", {count, width});
  return layer;
}

nn::LayerNorm ParameterReader::layer_norm(const std::string& name, std::int64_t width, double eps) {
  const bool early = !contains(name + ".weight") && contains(name + ".gamma");
  nn::LayerNorm layer;
  layer.weight = tensor(name + (early ? ".gamma" : ".weight"), {width});
  layer.bias = tensor(name + (early ? ".beta" : ".bias"), {width});
  layer.eps = eps;
  return layer;
}

} // namespace egret::models

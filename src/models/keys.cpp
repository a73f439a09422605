#include "models/keys.h"

#include "support/fail.h"
#include "support/printable.h"

#include <cmath>

namespace egret::models {

using nlohmann::json;

std::string shown(const json& value) {
  return printable(value.dump(-1, ' ', false, json::error_handler_t::replace));
}

Keys::Keys(json object, std::string where) : object_(std::move(object)), where_(std::move(where)) {}

template <class... Args>
void Keys::bad(Names names, fmt::format_string<Args...> format, Args&&... args) const {
  fail(ErrorKind::File, "{}: '{}' {}", where_, fmt::join(names, "' or '"),
       printable(fmt::format(format, std::forward<Args>(args)...)));
}

const json* Keys::find(Names names) {
  const json* value = nullptr;
  for (const char* name : names) {
    read_.insert(name);
    const auto found = object_.find(name);
    if (value == nullptr && found != object_.end() && !found->is_null())
      value = &*found;
  }
  return value;
}

std::int64_t Keys::integer(Names names, std::int64_t least, std::int64_t most,
                           std::optional<std::int64_t> otherwise) {
  const json* value = find(names);
  if (value == nullptr) {
    if (!otherwise)
      bad(names, "is missing");
    return *otherwise;
  }
  const bool fits = value->is_number_unsigned()
                        ? std::in_range<std::int64_t>(value->get<std::uint64_t>())
                        : value->is_number_integer();
  if (!fits || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most)
    bad(names, "is {}, not an integer from {} to {}", shown(*value), least, most);
  return value->get<std::int64_t>();
}

std::optional<double> Keys::maybe_number(Names names, double least, double most) {
  const json* value = find(names);
  if (value == nullptr)
    return {};
  if (!value->is_number() || !(value->get<double>() >= least) || !(value->get<double>() <= most))
    bad(names, "is {}, not a number from {} to {}", shown(*value), least, most);
  return value->get<double>();
}

double Keys::number(Names names, double least, double most, std::optional<double> otherwise) {
  const auto value = maybe_number(names, least, most);
  if (!value && !otherwise)
    bad(names, "is missing");
  return value ? *value : *otherwise;
}

bool Keys::flag(Names names, bool otherwise) {
  const json* value = find(names);
  if (value == nullptr)
    return otherwise;
  if (!value->is_boolean())
    bad(names, "is {}, not true or false", shown(*value));
  return value->get<bool>();
}

std::string Keys::text(Names names, std::optional<std::string> otherwise) {
  const json* value = find(names);
  if (value == nullptr) {
    if (!otherwise)
      bad(names, "is missing");
    return *otherwise;
  }
  if (!value->is_string())
    bad(names, "is {}, not a text", shown(*value));
  return value->get<std::string>();
}

std::vector<double> Keys::numbers(Names names) {
  const json* value = find(names);
  if (value == nullptr)
    return {};
  std::vector<double> numbers;
  if (value->is_array() && value->size() <= 65536)
    for (const json& element : *value)
      if (element.is_number() && std::isfinite(element.get<double>()))
        numbers.push_back(element.get<double>());
  if (numbers.empty() || numbers.size() != value->size())
    bad(names, "is no list of numbers");
  return numbers;
}

std::vector<int> Keys::tokens(Names names) {
  const json* value = find(names);
  if (value == nullptr)
    return {};
  const json list = value->is_array() ? *value : json::array({*value});
  std::vector<int> tokens;
  for (const json& element : list) {
    if (!element.is_number_integer() || element.get<double>() < 0 || element.get<double>() > 1e9)
      bad(names, "is {}, not a token's number or a list of them", shown(*value));
    tokens.push_back(element.get<int>());
  }
  return tokens;
}

Keys Keys::object(Names names) {
  const json* value = find(names);
  if (value != nullptr && !value->is_object())
    bad(names, "is {}, not an object", shown(*value));
  return {value == nullptr ? json::object() : *value,
          fmt::format("{}: '{}'", where_, *names.begin())};
}

namespace {

bool switches_nothing_on(const json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) ||
         (value.is_number() && value.get<double>() == 0) ||
         ((value.is_structured() || value.is_string()) && value.empty());
}

} // namespace

void Keys::require_all_read(const std::vector<std::string>& ignored) const {
  for (const auto& [key, value] : object_.items())
    if (!read_.contains(key) && !switches_nothing_on(value) &&
        std::find(ignored.begin(), ignored.end(), key) == ignored.end())
      fail(ErrorKind::Unsupported,
           "{}: egret does not know the key '{}' of this architecture ({}); it knows {}", where_,
           printable(key), printable(std::string_view(shown(value)).substr(0, 60)),
           fmt::join(read_, ", "));
}

nn::Activation activation_named(const std::string& name, const std::string& where) {
  if (name == "silu" || name == "swish")
    return nn::Activation::Silu;
  if (name == "gelu")
    return nn::Activation::Gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast")
    return nn::Activation::GeluTanh;
  if (name == "relu")
    return nn::Activation::Relu;
  fail(ErrorKind::Unsupported,
       "{}: egret does not know the activation '{}'; it knows silu, gelu, gelu_new, "
       "gelu_pytorch_tanh, relu",
       where, printable(name));
}

std::optional<DType> stored_dtype_named(const std::string& name) {
  if (name == "float32")
    return DType::F32;
  if (name == "bfloat16")
    return DType::BF16;
  if (name == "float16")
    return DType::F16;
  return {};
}

} // namespace egret::models

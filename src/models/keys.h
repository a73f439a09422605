// The keys of a model's configuration, read once each and then accounted for.
#pragma once

#include "egret/dtype.h"
#include "egret/nn/layers.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace egret::models {

/// A value as text for a message. Texts of GGUF files may hold any bytes, which JSON cannot have:
/// what is not UTF-8 becomes U+FFFD.
std::string shown(const nlohmann::json& value);

/// A JSON object whose keys are read once each; what nobody has read is unknown. Null counts as
/// absent. Errors are Error(File) naming `where` and the key.
class Keys {
public:
  using Names = std::initializer_list<const char*>; ///< of one thing; the first that is there
  Keys(nlohmann::json object, std::string where);

  const nlohmann::json* find(Names names);
  bool has(Names names) { return find(names) != nullptr; }
  std::int64_t integer(Names names, std::int64_t least, std::int64_t most,
                       std::optional<std::int64_t> otherwise = {});
  double number(Names names, double least, double most, std::optional<double> otherwise = {});
  std::optional<double> maybe_number(Names names, double least, double most);
  bool flag(Names names, bool otherwise);
  std::string text(Names names, std::optional<std::string> otherwise = {});
  std::vector<double> numbers(Names names); ///< empty when absent
  std::vector<int> tokens(Names names);     ///< one or a list; empty when absent
  Keys object(Names names);                 ///< empty when absent
  /// Error(Unsupported) for a key that was not read, unless it is in `ignored` or its value (null,
  /// false, 0, nothing in it) can switch nothing on.
  void require_all_read(const std::vector<std::string>& ignored) const;
  const std::string& where() const noexcept { return where_; }

private:
  template <class... Args>
  [[noreturn]] void bad(Names names, fmt::format_string<Args...> format, Args&&... args) const;

  nlohmann::json object_;
  std::string where_;
  std::set<std::string> read_;
};

/// By the names of transformers: gelu, gelu_new, relu, silu and others. Error(Unsupported) that
/// begins with `where` and lists those known.
nn::Activation activation_named(const std::string& name, const std::string& where);
/// float32, bfloat16 or float16; nothing for other names.
std::optional<DType> stored_dtype_named(const std::string& name);

} // namespace egret::models

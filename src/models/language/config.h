// The configuration of a language model from config.json, or from a GGUF file's metadata put in the
// same words.
#pragma once

#include "egret/gguf.h"
#include "egret/language_model.h"
#include "models/language/architecture.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace egret::models::language {

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

/// `keys` are those of config.json; Error as Keys, and Error(File) for values that contradict each
/// other. `context` is that of the cache, 0 for the model's own: longrope chooses by it.
LanguageConfig read_config(Keys& keys, const Architecture& architecture, std::int64_t context);

/// The keys of a GGUF file in the words of config.json; without a key for it, the vocabulary is the
/// number of rows of the embedding. Error(Unsupported) for a key of the architecture that egret
/// does not know.
nlohmann::json config_of_gguf(const io::GgufMetadata& metadata,
                              const std::vector<io::GgufTensorInfo>& tensors,
                              const Architecture& architecture, const std::string& where,
                              const std::vector<std::string>& ignored);

/// Frequencies of `dims` dims from the keys that transformers calls rope parameters: rope_type,
/// rope_theta, factor and what the type needs. `most` is the model's context, `used` the cache's.
Rotary rotary_of(Keys& keys, std::int64_t head_size, std::int64_t most, std::int64_t used);

} // namespace egret::models::language

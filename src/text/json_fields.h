// Values of a JSON file with the path that leads to each, so that an error names what is wrong.
#pragma once

#include "egret/error.h"

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret::text {

/// A value and its path, as in "tokenizer.json: model.merges[3]". Refers to the parsed file.
class Field {
public:
  Field(const nlohmann::json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& path() const { return path_; }

  Field operator[](const char* key) const;          ///< Error(File) when it is absent or null
  std::optional<Field> find(const char* key) const; ///< nothing when it is absent or null
  std::vector<Field> items() const;                 ///< of an array
  const std::string& text() const;                  ///< of a string
  bool flag() const;                                ///< of a boolean
  double number() const;                            ///< of a finite number
  std::int64_t integer(std::int64_t least, std::int64_t most) const;

  const std::string& text_or(const char* key, const std::string& otherwise) const;
  bool flag_or(const char* key, bool otherwise) const;

  /// Error(File) that begins with the path.
  [[noreturn]] void refuse(const std::string& why) const;
  /// Error(Unsupported) for a name that is not one of those known.
  [[noreturn]] void unknown(std::string_view what, std::string_view known) const;

private:
  std::string start_of_message() const; ///< the path, which ends in ": " where it is a whole file
  const nlohmann::json& object() const;

  const nlohmann::json* value_;
  std::string path_;
};

inline constexpr std::size_t kMostNesting = 64;

/// Error(File) with `name` for text that is not JSON, or nests deeper than kMostNesting.
nlohmann::json parse_json(std::string_view text, const std::string& name);

inline constexpr std::size_t kMostMembers = 4096;

/// The same with the members of objects in the order of the text; Error(File) also for an object of
/// more than kMostMembers.
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name);

} // namespace egret::text

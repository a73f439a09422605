#include "text/json_fields.h"

#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace egret::text {

void Field::refuse(const std::string& why) const {
  fail(ErrorKind::File, "{}: {}", path_, why);
}

void Field::unknown(std::string_view what, std::string_view known) const {
  fail(ErrorKind::Unsupported, "{}: '{}' is not known; known are {}", path_, printable(what),
       known);
}

const nlohmann::json& Field::object() const {
  if (!value_->is_object())
    refuse(fmt::format("an object is needed, not {}", value_->type_name()));
  return *value_;
}

std::optional<Field> Field::find(const char* key) const {
  const auto place = object().find(key);
  if (place == value_->end() || place->is_null())
    return std::nullopt;
  return Field(*place, path_ + (path_.ends_with(": ") ? "" : ".") + key);
}

Field Field::operator[](const char* key) const {
  if (auto found = find(key))
    return *found;
  refuse(fmt::format("'{}' is missing", key));
}

std::vector<Field> Field::items() const {
  if (!value_->is_array())
    refuse(fmt::format("an array is needed, not {}", value_->type_name()));
  std::vector<Field> out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i)
    out.emplace_back((*value_)[i], fmt::format("{}[{}]", path_, i));
  return out;
}

const std::string& Field::text() const {
  if (!value_->is_string())
    refuse(fmt::format("a string is needed, not {}", value_->type_name()));
  return value_->get_ref<const std::string&>();
}

bool Field::flag() const {
  if (!value_->is_boolean())
    refuse(fmt::format("true or false is needed, not {}", value_->type_name()));
  return value_->get<bool>();
}

double Field::number() const {
  if (!value_->is_number() || !std::isfinite(value_->get<double>()))
    refuse("a number is needed");
  return value_->get<double>();
}

std::int64_t Field::integer(std::int64_t least, std::int64_t most) const {
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                    : value_->is_number_integer() ? value_->get<std::int64_t>() <= most
                                                  : false;
  if (!fits || value_->get<std::int64_t>() < least)
    refuse(fmt::format("an integer from {} to {} is needed", least, most));
  return value_->get<std::int64_t>();
}

const std::string& Field::text_or(const char* key, const std::string& otherwise) const {
  const auto field = find(key);
  return field ? field->text() : otherwise;
}

bool Field::flag_or(const char* key, bool otherwise) const {
  const auto field = find(key);
  return field ? field->flag() : otherwise;
}

namespace {

/// How deep brackets nest outside strings; of text that is not JSON, any number.
std::size_t nesting(std::string_view text) {
  std::size_t depth = 0, most = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      while (++at < text.size() && text[at] != '"')
        at += text[at] == '\\' ? 1 : 0;
    } else if (c == '[' || c == '{') {
      most = std::max(most, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return most;
}

} // namespace

nlohmann::json parse_json(std::string_view text, const std::string& name) {
  // What reads the values is recursive.
  if (const std::size_t depth = nesting(text); depth > kMostNesting)
    fail(ErrorKind::File, "{}: {} brackets inside each other, {} are allowed", name, depth,
         kMostNesting);
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::File, "{}: not JSON: {}", name, printable(error.what()));
  }
}

} // namespace egret::text

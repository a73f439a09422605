#include "text/json_fields.h"

#include "support/fail.h"
#include "support/json_reason.h"
#include "support/printable.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace egret::text {

std::string Field::start_of_message() const {
  return path_.ends_with(": ") ? path_ : path_ + ": ";
}

void Field::refuse(const std::string& why) const {
  fail(ErrorKind::File, "{}{}", start_of_message(), why);
}

void Field::unknown(std::string_view what, std::string_view known) const {
  fail(ErrorKind::Unsupported, "{}'{}' is not known; known are {}", start_of_message(),
       printable(what), known);
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

/// Of brackets outside strings; of text that is not JSON, any numbers.
struct Extent {
  std::size_t depth = 0;   ///< how deep they nest
  std::size_t members = 0; ///< of the largest object
};

Extent extent_of(std::string_view text) {
  Extent out;
  struct Open {
    bool object;
    std::size_t commas;
  };
  std::vector<Open> open;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') {
      while (++at < text.size() && text[at] != '"')
        at += text[at] == '\\' ? 1 : 0;
    } else if (c == '[' || c == '{') {
      open.push_back({c == '{', 0});
      out.depth = std::max(out.depth, open.size());
    } else if ((c == ']' || c == '}') && !open.empty()) {
      open.pop_back();
    } else if (c == ',' && !open.empty() && open.back().object) {
      out.members = std::max(out.members, ++open.back().commas + 1);
    }
  }
  return out;
}

template <class Json>
Json parsed_as(std::string_view text, const std::string& name) {
  // What reads the values is recursive.
  const Extent extent = extent_of(text);
  if (extent.depth > kMostNesting)
    fail(ErrorKind::File, "{}: {} brackets inside each other, {} are allowed", name, extent.depth,
         kMostNesting);
  // Objects in the order of the text are searched from their beginning.
  if (std::is_same_v<Json, nlohmann::ordered_json> && extent.members > kMostMembers)
    fail(ErrorKind::File, "{}: an object of {} members, {} are allowed", name, extent.members,
         kMostMembers);
  if (const std::string reason = zero_byte_reason(text); !reason.empty())
    fail(ErrorKind::File, "{}: not JSON: {}", name, reason);
  try {
    return Json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::File, "{}: not JSON: {}", name, printable(json_reason(error)));
  }
}

} // namespace

nlohmann::json parse_json(std::string_view text, const std::string& name) {
  return parsed_as<nlohmann::json>(text, name);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& name) {
  return parsed_as<nlohmann::ordered_json>(text, name);
}

} // namespace egret::text

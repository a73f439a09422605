// A tokenizer that can write any JSON text, a check of JSON values against schemas that shares
// nothing with the library's, and random numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

namespace egret::test {

inline std::uint64_t random_below(std::uint64_t& state, std::uint64_t bound) {
  state = state * 6364136223846793005ULL + 1442695040888963407ULL;
  return (state >> 33U) % bound;
}

inline std::string utf8(char32_t c) {
  std::string out;
  const auto tail = [&](unsigned bits) { out += static_cast<char>(0x80 | ((c >> bits) & 0x3f)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | (c >> 6));
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | (c >> 12));
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xf0 | (c >> 18));
    tail(12), tail(6), tail(0);
  }
  return out;
}

/// The id of a byte in json_tokenizer(): 4 more than the byte.
inline std::int32_t byte_token(char byte) {
  return 4 + static_cast<std::int32_t>(static_cast<unsigned char>(byte));
}

/// 4 special tokens (</s> is 2), all bytes and 30 longer tokens, 290 in all: byte-level, or with
/// tokens of bytes and a mark for spaces.
inline nlohmann::json json_tokenizer(bool fallback) {
  const auto alphabet = [](unsigned char byte) { // GPT-2's
    if ((byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae)
      return utf8(byte);
    char32_t n = 256;
    for (unsigned b = 0; b < byte; ++b)
      if (!((b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae))
        ++n;
    return utf8(n);
  };
  nlohmann::json vocabulary, added = nlohmann::json::array();
  int id = 0;
  for (const char* special : {"<pad>", "<s>", "</s>", "<|end|>"}) {
    added.push_back({{"id", id}, {"content", special}, {"special", true}});
    vocabulary[special] = id++;
  }
  for (unsigned b = 0; b < 256; ++b) {
    char hex[8];
    std::snprintf(hex, sizeof(hex), "<0x%02X>", b);
    vocabulary[fallback ? std::string(hex) : alphabet(static_cast<unsigned char>(b))] = id++;
  }
  for (const std::string text :
       {"{\"",  "\":",   "\",\"", "\"}", "[]",  "]}",    "},{", "true", " true", "false",
        "null", "\":\"", "12",    "34",  "\\n", "\\u00", "ab",  "abc",  " \"",   ": ",
        "[[",   "]]",    "\n  ",  "é",   "\"a", "a\"",   "1,",  "00",   "},",    "the"}) {
    std::string token;
    for (const char c : text)
      token += !fallback  ? alphabet(static_cast<unsigned char>(c))
               : c == ' ' ? std::string("\u2581")
                          : std::string(1, c);
    vocabulary[token] = id++;
  }
  nlohmann::json decoder = {{"type", "ByteLevel"}};
  if (fallback)
    decoder = {{"type", "Sequence"},
               {"decoders",
                {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                 {{"type", "ByteFallback"}},
                 {{"type", "Fuse"}},
                 {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  nlohmann::json pre = nullptr;
  if (!fallback)
    pre = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", pre},
          {"decoder", decoder},
          {"post_processor", nullptr},
          {"model",
           {{"type", "BPE"},
            {"byte_fallback", fallback},
            {"vocab", vocabulary},
            {"merges", nlohmann::json::array()}}}};
}

/// Whether a value is of a schema, for the keywords that tests use.
inline bool validates(const nlohmann::json& value, const nlohmann::json& schema,
                      const nlohmann::json& root) {
  if (schema.is_boolean())
    return schema.get<bool>();
  const auto all = [&](const nlohmann::json& of) { return validates(value, of, root); };
  if (schema.contains("$ref") &&
      !all(root.at(nlohmann::json::json_pointer(schema["$ref"].get<std::string>().substr(1)))))
    return false;
  if (schema.contains("const") && value != schema["const"])
    return false;
  if (schema.contains("enum") &&
      std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
    return false;
  for (const auto& [key, most] :
       {std::pair("anyOf", std::ptrdiff_t{1 << 30}), std::pair("oneOf", std::ptrdiff_t{1})})
    if (schema.contains(key)) {
      const auto held = std::count_if(schema[key].begin(), schema[key].end(), all);
      if (held < 1 || held > most)
        return false;
    }
  const auto is = [&](const std::string& type) {
    return type == "object"    ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "integer" ? value.is_number_integer()
           : type == "number"  ? value.is_number()
           : type == "boolean" ? value.is_boolean()
                               : value.is_null();
  };
  if (schema.contains("type")) {
    const auto& type = schema["type"];
    if (type.is_string() ? !is(type) : std::none_of(type.begin(), type.end(), [&](const auto& t) {
          return is(t);
        }))
      return false;
  }
  const auto bound = [&](const char* key, double otherwise) {
    return schema.contains(key) ? schema[key].template get<double>() : otherwise;
  };
  const double huge = 1e300;
  if (value.is_number()) {
    const auto x = value.get<double>();
    if (x < bound("minimum", -huge) || x > bound("maximum", huge))
      return false;
  }
  if (value.is_string()) {
    const std::string text = value;
    const auto chars = static_cast<double>(
        std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
    if (chars < bound("minLength", 0) || chars > bound("maxLength", huge))
      return false;
    if (schema.contains("pattern") &&
        !std::regex_search(text, std::regex(schema["pattern"].get<std::string>())))
      return false;
  }
  if (value.is_array()) {
    const auto size = static_cast<double>(value.size());
    if (size < bound("minItems", 0) || size > bound("maxItems", huge))
      return false;
    for (const auto& item : value)
      if (schema.contains("items") && !validates(item, schema["items"], root))
        return false;
  }
  if (value.is_object()) {
    for (const auto& key : schema.value("required", nlohmann::json::array()))
      if (!value.contains(key.get<std::string>()))
        return false;
    const auto properties = schema.value("properties", nlohmann::json::object());
    for (const auto& [key, item] : value.items())
      if (!validates(item,
                     properties.contains(key)
                         ? properties[key]
                         : schema.value("additionalProperties", nlohmann::json(true)),
                     root))
        return false;
  }
  return true;
}

} // namespace egret::test

// JSON schemas (draft 2020-12, the keywords of docs/text.md) as grammars of the texts they allow.
#include "support/fail.h"
#include "support/printable.h"
#include "text/grammar/json_texts.h"
#include "text/json_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace egret::text::grammar {

namespace {

using Json = nlohmann::ordered_json; // properties are written in the order of the schema

constexpr std::size_t kMostSchema = std::size_t{1} << 20U, kMostRules = 20'000, kMostNested = 256,
                      kMostProperties = 2000, kMostAlternatives = 64, kMostCompared = 100'000,
                      kMostPrefixItems = 1000, kLongestKnown = 256;
constexpr std::uint32_t kMostCount = 100'000;

constexpr std::array<const char*, 13> kAnnotations = {
    "title",      "description", "default",   "examples", "$schema",     "$id",    "$comment",
    "deprecated", "readOnly",    "writeOnly", "$defs",    "definitions", "$anchor"};

/// Keywords that say something of values of one type, by type.
struct TypeKeywords {
  const char* type;
  std::vector<const char*> keywords;
};
const std::vector<TypeKeywords>& type_keywords() {
  static const std::vector<TypeKeywords> all = {
      {"object",
       {"properties", "required", "additionalProperties", "minProperties", "maxProperties"}},
      {"array", {"items", "prefixItems", "minItems", "maxItems"}},
      {"string", {"minLength", "maxLength", "pattern", "format"}},
      {"integer", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
      {"number", {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}},
      {"boolean", {}},
      {"null", {}}};
  return all;
}

/// A schema at its place.
struct At {
  const Json& json;
  std::string path; ///< as in "#/properties/a"

  bool has(const char* key) const { return json.is_object() && json.contains(key); }
  At operator[](const std::string& key) const {
    return {json.at(key), path + "/" + printable(key)};
  }
  At operator[](std::size_t i) const { return {json.at(i), path + "/" + std::to_string(i)}; }
};

const char* type_of(const Json& value) {
  return value.is_object()           ? "object"
         : value.is_array()          ? "array"
         : value.is_string()         ? "string"
         : value.is_number_integer() ? "integer"
         : value.is_number()         ? "number"
         : value.is_boolean()        ? "boolean"
                                     : "null";
}

bool is_of(const Json& value, const std::string& type) {
  return type == type_of(value) || (type == "number" && value.is_number()) ||
         (type == "integer" && value.is_number_float() &&
          std::trunc(value.get<double>()) == value.get<double>());
}

class SchemaRules {
public:
  SchemaRules(const Json& root, const std::string& name) : root_(root), name_(name) {}

  Rules run() {
    out_.root = named("root");
    set(out_.root, schema({root_, "#"}));
    return std::move(out_);
  }

private:
  using Path = std::string;

  [[noreturn]] void refuse(const At& at, const std::string& why) const {
    fail(ErrorKind::Value, "{}: {}: {}", name_, at.path, why);
  }
  [[noreturn]] void unsupported(const At& at, const std::string& what) const {
    fail(ErrorKind::Unsupported, "{}: {}: {} is not supported", name_, at.path, what);
  }

  std::size_t named(const std::string& rule_name) {
    if (out_.rules.size() == kMostRules)
      fail(ErrorKind::Value, "{}: more than {} rules", name_, kMostRules);
    out_.rules.push_back({rule_name, nullptr});
    return out_.rules.size() - 1;
  }
  void set(std::size_t rule, NodePtr body) { out_.rules[rule].body = std::move(body); }
  NodePtr rule_of(const std::string& rule_name, NodePtr body) {
    const std::size_t rule = named(rule_name);
    set(rule, std::move(body));
    return reference(rule);
  }
  /// A rule that is made once.
  NodePtr once(const std::string& key, const std::function<NodePtr()>& make) {
    const auto known = made_.find(key);
    if (known != made_.end())
      return reference(known->second);
    const std::size_t rule = named(key);
    made_.emplace(key, rule);
    set(rule, make());
    return reference(rule);
  }

  // Values of any kind.
  NodePtr any_value() {
    return once("value", [&] {
      return choice({any_object(), array_of(any_value(), 0, Repeat::kUnbounded), any_string(),
                     json_number(), literal("true"), literal("false"), literal("null")});
    });
  }
  NodePtr any_object() {
    return once("object", [&] { return map_of(any_string(), any_value(), 0, Repeat::kUnbounded); });
  }
  NodePtr any_string() {
    return once("string", [] { return json_string(0, Repeat::kUnbounded); });
  }

  static NodePtr comma() { return sequence({blanks(), literal(","), blanks()}); }
  static NodePtr colon() { return sequence({blanks(), literal(":"), blanks()}); }

  /// `first` and then any number more within bounds, with commas between them.
  static NodePtr listed(const NodePtr& item, std::uint32_t least, std::uint32_t most) {
    if (most == 0)
      return literal("");
    const NodePtr some =
        sequence({item, repeat(sequence({comma(), item}), least > 0 ? least - 1 : 0,
                               most == Repeat::kUnbounded ? most : most - 1)});
    return least == 0 ? optional(some) : some;
  }
  static NodePtr enclosed(const char* open, NodePtr body, const char* close) {
    return sequence({literal(open), blanks(), std::move(body), blanks(), literal(close)});
  }
  static NodePtr array_of(const NodePtr& item, std::uint32_t least, std::uint32_t most) {
    return enclosed("[", listed(item, least, most), "]");
  }
  static NodePtr map_of(const NodePtr& key, const NodePtr& value, std::uint32_t least,
                        std::uint32_t most) {
    return enclosed("{", listed(sequence({key, colon(), value}), least, most), "}");
  }

  // Keywords.
  std::uint32_t count(const At& at, const char* key, std::uint32_t otherwise) const {
    if (!at.has(key))
      return otherwise;
    const Json& value = at.json[key];
    if (!is_of(value, "integer") || value.get<double>() < 0)
      refuse(at[key], fmt::format("a number of things is needed, not {}", printable(value.dump())));
    if (value.get<double>() > kMostCount)
      unsupported(at[key], fmt::format("more than {}", kMostCount));
    return static_cast<std::uint32_t>(value.get<double>());
  }
  std::pair<std::uint32_t, std::uint32_t> counts(const At& at, const char* least,
                                                 const char* most) const {
    const std::pair<std::uint32_t, std::uint32_t> both = {count(at, least, 0),
                                                          count(at, most, Repeat::kUnbounded)};
    if (both.second < both.first)
      refuse(at, fmt::format("{} is above {}: nothing has so many", least, most));
    return both;
  }
  const std::string& text(const At& at) const {
    if (!at.json.is_string())
      refuse(at, fmt::format("a string is needed, not {}", at.json.type_name()));
    return at.json.get_ref<const std::string&>();
  }
  void require_array(const At& at) const {
    if (!at.json.is_array() || at.json.empty())
      refuse(at, "an array that is not empty is needed");
  }

  void require_known(const At& at, std::initializer_list<const char*> first,
                     const std::vector<std::string>& types = {}) const {
    std::set<std::string, std::less<>> known(kAnnotations.begin(), kAnnotations.end());
    known.insert(first.begin(), first.end());
    for (const TypeKeywords& of : type_keywords())
      if (std::ranges::find(types, of.type) != types.end())
        known.insert(of.keywords.begin(), of.keywords.end());
    for (const auto& [key, value] : at.json.items())
      if (!known.contains(key))
        unsupported(at, fmt::format("'{}'", printable(key)) +
                            (types.empty() ? "" : fmt::format(" for {}", fmt::join(types, ", "))));
  }

  /// The types that a schema without enum, const, $ref and alternatives allows.
  std::vector<std::string> types_of(const At& at) const {
    std::vector<std::string> types;
    if (at.has("type")) {
      const At type = at["type"];
      if (type.json.is_string()) {
        types.push_back(text(type));
      } else {
        require_array(type);
        for (std::size_t i = 0; i < type.json.size(); ++i)
          types.push_back(text(type[i]));
      }
      for (const std::string& one : types)
        if (std::ranges::find(type_keywords(), one, &TypeKeywords::type) == type_keywords().end())
          refuse(type, fmt::format("'{}' is no type", printable(one)));
      return types;
    }
    // What is said of values of a type is meant for them.
    for (const TypeKeywords& of : type_keywords())
      for (const char* key : of.keywords)
        if (at.has(key) && (std::string_view(of.type) != "integer")) {
          types.emplace_back(of.type);
          break;
        }
    return types;
  }

  NodePtr schema(const At& at) {
    if (nested_ == kMostNested)
      refuse(at, fmt::format("schemas and references nest deeper than {}", kMostNested));
    ++nested_;
    NodePtr made = schema_here(at);
    --nested_;
    return made;
  }
  NodePtr schema_here(const At& at) {
    if (at.json.is_boolean()) {
      if (!at.json.get<bool>())
        refuse(at, "nothing is allowed here");
      return any_value();
    }
    if (!at.json.is_object())
      refuse(at, fmt::format("a schema is an object or a boolean, not {}", at.json.type_name()));
    if (at.has("$ref"))
      return referred(at);
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (at.has(key))
        return alternatives(at, key);
    if (at.has("const") || at.has("enum"))
      return constants(at);
    const std::vector<std::string> types = types_of(at);
    require_known(at, {"type"}, types);
    if (types.empty())
      return any_value();
    std::vector<NodePtr> all;
    for (const std::string& type : types)
      if (type != "integer" || std::ranges::find(types, "number") == types.end())
        all.push_back(of_type(at, type));
    return choice(std::move(all));
  }

  NodePtr of_type(const At& at, const std::string& type) {
    if (type == "object")
      return object(at);
    if (type == "array")
      return array(at);
    if (type == "string")
      return string(at);
    if (type == "integer")
      return integer(at);
    if (type == "number")
      return number(at);
    if (type == "boolean")
      return choice({literal("true"), literal("false")});
    return literal("null");
  }

  // A rule of its own for each schema that is referred to, which may refer to itself.
  NodePtr referred(const At& at) {
    require_known(at, {"$ref"});
    const std::string& to = text(at["$ref"]);
    if (!to.starts_with('#'))
      unsupported(at, fmt::format("a $ref outside the schema, '{}',", printable(to)));
    const Json* target = nullptr;
    try {
      target = &root_.at(Json::json_pointer(to.substr(1)));
    } catch (const Json::exception&) {
      refuse(at, fmt::format("'{}' is nothing in the schema", printable(to)));
    }
    return once(to, [&] { return schema({*target, printable(to)}); });
  }

  NodePtr alternatives(const At& at, const char* key) {
    require_known(at, {key});
    const At list = at[key];
    require_array(list);
    if (std::string_view(key) == "allOf" && list.json.size() > 1)
      unsupported(list, "more than one schema at once");
    if (std::string_view(key) == "oneOf" && list.json.size() > kMostAlternatives)
      unsupported(list, fmt::format("a oneOf of more than {} schemas", kMostAlternatives));
    if (std::string_view(key) == "oneOf")
      for (std::size_t i = 0; i < list.json.size(); ++i)
        for (std::size_t k = 0; k < i; ++k)
          if (!apart(list.json[i], list.json[k]))
            unsupported(list, fmt::format("alternatives {} and {} may allow the same value, which "
                                          "oneOf forbids and anyOf allows; such a oneOf",
                                          k, i));
    std::vector<NodePtr> all;
    for (std::size_t i = 0; i < list.json.size(); ++i)
      all.push_back(schema(list[i]));
    return choice(std::move(all));
  }

  /// Whether no value is of both, as far as their types, constants and required properties tell.
  bool apart(const Json& a, const Json& b, int depth = 0) const {
    if (depth > 8 || ++compared_ > kMostCompared)
      return false;
    for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
      if (one->is_object() && one->contains("$ref") && (*one)["$ref"].is_string()) {
        const std::string to = (*one)["$ref"].get<std::string>();
        try {
          return to.starts_with('#') &&
                 apart(root_.at(Json::json_pointer(to.substr(1))), *other, depth + 1);
        } catch (const Json::exception&) {
          return false; // refused where it is read
        }
      }
    if (!a.is_object() || !b.is_object())
      return false;
    const auto values_a = values_of(a), values_b = values_of(b);
    if (values_a && values_b && values_a->size() * values_b->size() > kMostCompared)
      return false;
    if (values_a && values_b)
      return std::ranges::none_of(*values_a, [&](const Json& v) {
        return std::ranges::find(*values_b, v) != values_b->end();
      });
    const auto types_a = kinds_of(a, values_a), types_b = kinds_of(b, values_b);
    if (std::ranges::none_of(types_a, [&](const std::string& t) { return types_b.contains(t); }))
      return !types_a.empty() && !types_b.empty();
    const std::set<std::string> object = {"object"};
    if (types_a != object || types_b != object || values_a || values_b)
      return false;
    const Json of_a = a.value("properties", Json::object()),
               of_b = b.value("properties", Json::object());
    if (!of_a.is_object() || !of_b.is_object())
      return false;
    const auto needed_a = required_of(a), needed_b = required_of(b);
    compared_ += of_a.size() + of_b.size() + needed_a.size() + needed_b.size();
    for (const auto& [key, value] : of_a.items())
      if (needed_a.contains(key) && needed_b.contains(key) && of_b.contains(key) &&
          apart(value, of_b[key], depth + 1))
        return true;
    return false;
  }
  static std::set<std::string> required_of(const Json& schema) {
    std::set<std::string> names;
    for (const Json& one : schema.value("required", Json::array()))
      if (one.is_string())
        names.insert(one.get<std::string>());
    return names;
  }
  static std::optional<std::vector<Json>> values_of(const Json& schema) {
    if (schema.contains("const"))
      return std::vector<Json>{schema["const"]};
    if (schema.contains("enum") && schema["enum"].is_array())
      return schema["enum"].get<std::vector<Json>>();
    return {};
  }
  /// Types, with "number" as "integer" too; empty: not known.
  static std::set<std::string> kinds_of(const Json& schema,
                                        const std::optional<std::vector<Json>>& values) {
    std::set<std::string> kinds;
    if (values)
      for (const Json& value : *values)
        kinds.insert(type_of(value));
    else if (const Json type = schema.value("type", Json()); type.is_string())
      kinds.insert(type.get<std::string>());
    else if (type.is_array())
      for (const Json& one : type)
        if (one.is_string())
          kinds.insert(one.get<std::string>());
    if (kinds.contains("number"))
      kinds.insert("integer");
    return kinds;
  }

  NodePtr constants(const At& at) {
    require_known(at, {"type", at.has("const") ? "const" : "enum"});
    std::vector<Json> values;
    if (at.has("const")) {
      values.push_back(at.json["const"]);
    } else {
      require_array(at["enum"]);
      values = at.json["enum"].get<std::vector<Json>>();
    }
    const std::vector<std::string> types =
        at.has("type") ? types_of(at) : std::vector<std::string>{};
    std::vector<NodePtr> all;
    for (const Json& value : values)
      if (types.empty() ||
          std::ranges::any_of(types, [&](const std::string& t) { return is_of(value, t); }))
        all.push_back(literal(value.dump()));
    if (all.empty())
      refuse(at, "no value is of the type");
    return choice(std::move(all));
  }

  NodePtr object(const At& at) {
    const Json none = Json::object();
    const At properties{at.has("properties") ? at.json["properties"] : none,
                        at.path + "/properties"};
    if (!properties.json.is_object())
      refuse(properties, fmt::format("an object is needed, not {}", properties.json.type_name()));
    if (properties.json.size() > kMostProperties)
      unsupported(properties, fmt::format("more than {} properties", kMostProperties));
    std::set<std::string> required;
    if (at.has("required")) {
      const At list = at["required"];
      if (!list.json.is_array())
        refuse(list, "an array of names is needed");
      for (std::size_t i = 0; i < list.json.size(); ++i)
        required.insert(text(list[i]));
    }
    for (const std::string& key : required)
      if (!properties.json.contains(key))
        unsupported(at, fmt::format("the required property '{}' that is not among 'properties'",
                                    printable(key)));
    const auto [least, most] = counts(at, "minProperties", "maxProperties");
    const bool bounded = at.has("minProperties") || at.has("maxProperties");
    if (bounded && !properties.json.empty())
      unsupported(at, "'minProperties' or 'maxProperties' beside 'properties'");
    // Others are written where the schema asks for them, and where it names none.
    const bool open = at.has("additionalProperties") ? at.json["additionalProperties"] != false
                                                     : properties.json.empty();
    const At additional{at.has("additionalProperties") ? at.json["additionalProperties"] : none,
                        at.path + "/additionalProperties"};
    if (properties.json.empty()) {
      if (!open && least > 0)
        refuse(at, "no properties are allowed, and some are needed");
      return open ? map_of(any_string(),
                           rule_of(at.path + " (values)", additional_value(at, additional)), least,
                           most)
                  : enclosed("{", literal(""), "}");
    }
    return enclosed("{", members(at, properties, required, open ? &additional : nullptr), "}");
  }

  NodePtr additional_value(const At& at, const At& additional) {
    return at.has("additionalProperties") ? schema(additional) : any_value();
  }

  /// Properties in their order. For each place among them there is a rule for what follows where
  /// something was written before, and one where nothing was.
  NodePtr members(const At& at, const At& properties, const std::set<std::string>& required,
                  const At* additional) {
    struct Member {
      NodePtr text;
      bool required;
    };
    std::vector<Member> all;
    std::vector<std::string> keys;
    for (const auto& [key, value] : properties.json.items()) {
      if (additional != nullptr && key.size() > kLongestKnown)
        unsupported(at, fmt::format("'additionalProperties' beside a property with a name of more "
                                    "than {} bytes",
                                    kLongestKnown));
      keys.push_back(key);
      const bool needed = required.contains(key);
      if (value == false && !needed)
        continue;
      all.push_back(
          {sequence({literal(Json(key).dump()), colon(), schema(properties[key])}), needed});
    }
    NodePtr behind = literal(""), first = literal("");
    if (additional != nullptr) {
      const NodePtr other =
          rule_of(at.path + " (others)",
                  sequence({literal("\""), other_text(std::move(keys)), literal("\""), colon(),
                            additional_value(at, *additional)}));
      behind = repeat(sequence({comma(), other}), 0);
      first = listed(other, 0, Repeat::kUnbounded);
    }
    for (std::size_t i = all.size(); i-- > 0;) {
      const std::string name = fmt::format("{} (member {})", at.path, i);
      const NodePtr one = rule_of(name, all[i].text);
      const NodePtr next_behind = rule_of(name + " behind", behind);
      first = all[i].required
                  ? sequence({one, next_behind})
                  : choice({sequence({one, next_behind}), rule_of(name + " left out", first)});
      const NodePtr with = sequence({comma(), one});
      behind = sequence({all[i].required ? with : optional(with), next_behind});
    }
    return first;
  }

  NodePtr array(const At& at) {
    const auto [least, most] = counts(at, "minItems", "maxItems");
    const bool closed = at.has("items") && at.json["items"] == false;
    const auto other = [&] { return at.has("items") ? schema(at["items"]) : any_value(); };
    if (!at.has("prefixItems")) {
      if (closed)
        refuse(at["items"], "nothing is allowed here");
      return array_of(rule_of(at.path + " (items)", other()), least, most);
    }
    const At prefix = at["prefixItems"];
    require_array(prefix);
    if (prefix.json.size() > kMostPrefixItems)
      unsupported(prefix, fmt::format("more than {} items", kMostPrefixItems));
    const auto first = static_cast<std::uint32_t>(std::min<std::size_t>(prefix.json.size(), most));
    if (closed && least > first)
      refuse(at, "more items are needed than are allowed");
    NodePtr rest = literal("");
    if (!closed && most > first)
      rest = repeat(sequence({comma(), rule_of(at.path + " (items)", other())}),
                    least > first ? least - first : 0,
                    most == Repeat::kUnbounded ? most : most - first);
    for (std::uint32_t i = first; i-- > 0;) {
      const NodePtr item = rule_of(fmt::format("{} (item {})", at.path, i), schema(prefix[i]));
      rest = sequence({i > 0 ? sequence({comma(), item}) : item, rest});
      if (i >= least) // it and what follows may be missing
        rest = optional(rest);
    }
    return enclosed("[", rest, "]");
  }

  NodePtr string(const At& at) const {
    const auto [least, most] = counts(at, "minLength", "maxLength");
    const bool bounded = at.has("minLength") || at.has("maxLength");
    if (at.has("pattern") + at.has("format") + bounded > 1)
      unsupported(at, "more than one of 'pattern', 'format' and bounds of the length");
    if (at.has("pattern"))
      return quoted(text(at["pattern"]), at["pattern"]);
    if (!at.has("format"))
      return json_string(least, most);
    static const std::string date = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])";
    static const std::string time = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?"
                                    "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
    static const std::map<std::string, std::string, std::less<>> formats = {
        {"date", "^" + date + "$"},
        {"time", "^" + time + "$"},
        {"date-time", "^" + date + "T" + time + "$"},
        {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"}};
    const auto found = formats.find(text(at["format"]));
    if (found == formats.end())
      unsupported(at, fmt::format("the format '{}'", printable(text(at["format"]))));
    return quoted(found->second, at["format"]);
  }
  NodePtr quoted(const std::string& pattern, const At& at) const {
    return sequence({literal("\""), pattern_text(pattern, name_ + ": " + at.path), literal("\"")});
  }

  NodePtr number(const At& at) const {
    for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
      if (at.has(key))
        unsupported(at, fmt::format("'{}' for numbers that are not integers", key));
    return json_number();
  }

  NodePtr integer(const At& at) const {
    double least = -1e18, most = 1e18;
    const auto bound = [&](const char* key, double step, double& limit, auto&& tighter) {
      if (!at.has(key))
        return;
      const Json& value = at.json[key];
      if (!value.is_number() || !std::isfinite(value.get<double>()))
        refuse(at[key], fmt::format("a number is needed, not {}", value.type_name()));
      const auto x = value.get<double>();
      double whole = step > 0 ? std::ceil(x) : std::floor(x);
      if (std::string_view(key).starts_with("exclusive") && whole == x)
        whole += step;
      if (std::abs(whole) > 0x1p53)
        unsupported(at[key], "a bound beyond 2^53");
      limit = tighter(limit, whole);
    };
    const auto larger = [](double a, double b) { return std::max(a, b); };
    const auto smaller = [](double a, double b) { return std::min(a, b); };
    bound("minimum", 1, least, larger);
    bound("exclusiveMinimum", 1, least, larger);
    bound("maximum", -1, most, smaller);
    bound("exclusiveMaximum", -1, most, smaller);
    if (most < least)
      refuse(at, "no integer is within the bounds");
    return json_integer(static_cast<std::int64_t>(least), static_cast<std::int64_t>(most));
  }

  const Json& root_;
  mutable std::size_t compared_ = 0; ///< steps of apart()
  const std::string& name_;
  Rules out_;
  std::size_t nested_ = 0;
  std::map<std::string, std::size_t, std::less<>> made_;
};

} // namespace

Rules rules_of_schema(std::string_view json, const std::string& name) {
  if (json.size() > kMostSchema)
    fail(ErrorKind::Value, "{}: {} bytes; a schema has at most {}", name, json.size(), kMostSchema);
  const Json parsed = parse_ordered_json(json, name);
  return SchemaRules(parsed, name).run();
}

} // namespace egret::text::grammar

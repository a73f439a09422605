// Filters, tests and methods of templates.
#pragma once

#include "text/template_value.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace egret::text::jinja {

/// The arguments of one call.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// By position or name; nothing when it was not given.
  std::optional<Value> find(std::size_t position, std::string_view name) const;
};

/// What filters with a filter or test as argument need of the interpreter.
struct Calls {
  Budget& budget;

  Value filter(std::string_view name, const Value& value, const CallArguments& arguments);
  bool test(std::string_view name, const Value& value, const CallArguments& arguments);
  /// A method of a text, list, dictionary or loop.
  Value method(const Value& self, std::string_view name, const CallArguments& arguments);

  /// value.name: methods first, then keys; Undefined when there is neither.
  Value attribute(const Value& value, std::string_view name);
  /// value[key]
  Value item(const Value& value, const Value& key);
  Value slice(const Value& value, const Value& begin, const Value& end, const Value& step);

  std::int64_t integer(const Value& value, std::string_view what);
  const std::string& text(const Value& value, std::string_view what);
  Value add(const Value& a, const Value& b);
};

bool has_method(const Value& value, std::string_view name);

} // namespace egret::text::jinja

// Methods of Python's strings, lists and dictionaries; attributes, items, slices.
#include "text/characters.h"
#include "text/template_calls.h"
#include "text/utf8.h"

#include "support/find_text.h"
#include "support/printable.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <utf8proc.h>

namespace egret::text::jinja {

namespace {

constexpr std::string_view kTextMethods[] = {
    "strip",    "lstrip",  "rstrip",  "split",        "rsplit",       "splitlines", "startswith",
    "endswith", "upper",   "lower",   "title",        "capitalize",   "replace",    "join",
    "find",     "rfind",   "index",   "count",        "isdigit",      "isalpha",    "isalnum",
    "isspace",  "isupper", "islower", "removeprefix", "removesuffix", "format"};
constexpr std::string_view kDictMethods[] = {"items", "keys", "values", "get", "copy"};
constexpr std::string_view kListMethods[] = {"index", "count", "copy"};
constexpr std::string_view kLoopMethods[] = {"cycle", "changed"};

template <class Names>
bool among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool contains_char(std::string_view chars, std::string_view one) {
  return chars.find(one) != std::string_view::npos;
}

std::string_view stripped(std::string_view text, const std::optional<std::string>& chars, bool left,
                          bool right) {
  auto goes = [&](std::string_view one) {
    std::size_t at = 0;
    return chars ? contains_char(*chars, one) : is_python_space(next_char(one, at));
  };
  while (left && !text.empty() && goes(text.substr(0, utf8_length(text[0]))))
    text.remove_prefix(utf8_length(text[0]));
  while (right && !text.empty()) {
    const std::size_t last = previous_char(text, text.size());
    if (!goes(text.substr(last)))
      break;
    text = text.substr(0, last);
  }
  return text;
}

char32_t upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
bool is_letter(char32_t c) {
  const auto kind = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_cased(char32_t c) {
  std::string low;
  append_lower(low, c);
  std::size_t at = 0;
  return next_char(low, at) != c || upper(c) != c;
}

void append_upper(std::string& out, char32_t c) {
  if (c == 0xdf)
    out += "SS";
  else
    append_char(out, upper(c));
}

template <class Map>
std::string mapped(std::string_view text, Map&& map) {
  std::string out;
  for (std::size_t at = 0; at < text.size();)
    map(out, next_char(text, at));
  return out;
}

/// The first letter of each word (or of the text) in upper case, others in lower case.
std::string titled(std::string_view text, bool each_word) {
  bool starts = true;
  return mapped(text, [&](std::string& out, char32_t c) {
    if (starts)
      append_upper(out, c);
    else
      append_lower(out, c);
    starts = each_word && !is_cased(c);
  });
}

template <class Is>
bool all_chars(std::string_view text, Is&& is) {
  for (std::size_t at = 0; at < text.size();)
    if (!is(next_char(text, at)))
      return false;
  return !text.empty();
}

bool has_case(std::string_view text, bool upper_case) {
  bool cased = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_char(text, at);
    std::string low;
    append_lower(low, c);
    std::size_t first = 0;
    const bool is_upper = next_char(low, first) != c, is_lower = !is_upper && upper(c) != c;
    if (upper_case ? is_lower : is_upper)
      return false;
    cased = cased || is_upper || is_lower;
  }
  return cased;
}

std::vector<Value> split_spaces(std::string_view text, std::int64_t most, Budget& budget) {
  std::vector<Value> out;
  while (!(text = stripped(text, std::nullopt, true, false)).empty()) {
    budget.charge(1);
    budget.check_items(out.size() + 1);
    if (most >= 0 && static_cast<std::int64_t>(out.size()) == most) {
      out.emplace_back(stripped(text, std::nullopt, false, true));
      break;
    }
    std::size_t end = 0;
    for (std::size_t at = 0; at < text.size() && !is_python_space(next_char(text, at));)
      end = at;
    out.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return out;
}

std::vector<std::string_view> parts_of(std::string_view text, std::string_view separator,
                                       std::int64_t most, Budget& budget) {
  std::vector<std::string_view> parts;
  while (most < 0 || static_cast<std::int64_t>(parts.size()) < most) {
    const std::size_t at = find_text(text, separator);
    if (at == std::string_view::npos)
      break;
    budget.charge(1);
    budget.check_items(parts.size() + 2);
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + separator.size());
  }
  parts.push_back(text);
  return parts;
}

std::vector<Value> split_at(std::string_view text, std::string_view separator, std::int64_t most,
                            bool from_right, Budget& budget) {
  std::vector<Value> out;
  if (!from_right) {
    for (const std::string_view part : parts_of(text, separator, most, budget))
      out.emplace_back(part);
    return out;
  }
  // From the right is from the left of the reversed text.
  const std::string reversed(text.rbegin(), text.rend());
  const std::vector<std::string_view> parts =
      parts_of(reversed, std::string(separator.rbegin(), separator.rend()), most, budget);
  std::size_t end = text.size();
  for (const std::string_view part : parts) {
    out.emplace_back(text.substr(end - part.size(), part.size()));
    end -= std::min(end, part.size() + separator.size());
  }
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Value> lines_of(std::string_view text, bool keep, Budget& budget) {
  std::vector<Value> out;
  for (std::size_t begin = 0; begin < text.size();) {
    budget.charge(1);
    budget.check_items(out.size() + 1);
    std::size_t end = begin, at = begin;
    bool broken = false;
    while (at < text.size() && !broken) {
      end = at;
      const char32_t c = next_char(text, at);
      broken = (c >= 0xa && c <= 0xd) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
               c == 0x2029;
      if (c == '\r' && at < text.size() && text[at] == '\n')
        ++at;
      if (!broken)
        end = at;
    }
    out.emplace_back(text.substr(begin, (keep ? at : end) - begin));
    begin = at;
  }
  return out;
}

class TextMethod {
public:
  TextMethod(Calls& calls, const std::string& self, std::string_view name,
             const CallArguments& arguments)
      : calls_(calls), self_(self), name_(name), arguments_(arguments) {}

  Value run() {
    calls_.budget.charge_text(self_.size());
    if (name_ == "strip" || name_ == "lstrip" || name_ == "rstrip")
      return stripped(self_, optional_text(0, "chars"), name_ != "rstrip", name_ != "lstrip");
    if (name_ == "upper")
      return mapped(self_, append_upper);
    if (name_ == "lower")
      return mapped(self_, append_lower);
    if (name_ == "title" || name_ == "capitalize")
      return titled(self_, name_ == "title");
    if (name_ == "split" || name_ == "rsplit")
      return split();
    if (name_ == "splitlines") {
      const auto keep = arguments_.find(0, "keepends");
      return make_list(lines_of(self_, keep && keep->truth(), calls_.budget), calls_.budget);
    }
    if (name_ == "startswith" || name_ == "endswith")
      return begins_or_ends();
    if (name_ == "replace")
      return replace();
    if (name_ == "join")
      return calls_.filter("join", argument(0, "iterable"), {{Value(self_)}, {}});
    if (name_ == "removeprefix" || name_ == "removesuffix")
      return without();
    if (name_ == "find" || name_ == "rfind" || name_ == "index" || name_ == "count")
      return search();
    if (name_ == "isdigit")
      return all_chars(self_, [](char32_t c) {
        return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND ||
               c == 0xb2 || c == 0xb3 || c == 0xb9;
      });
    if (name_ == "isalpha")
      return all_chars(self_, is_letter);
    if (name_ == "isalnum")
      return all_chars(self_, [](char32_t c) { return is_letter(c) || is_numeric(c); });
    if (name_ == "isspace")
      return all_chars(self_, is_python_space);
    if (name_ == "isupper" || name_ == "islower")
      return has_case(self_, name_ == "isupper");
    return format();
  }

private:
  Value argument(std::size_t position, std::string_view name) {
    if (auto value = arguments_.find(position, name))
      return *value;
    calls_.budget.refuse(fmt::format("{}() needs '{}'", name_, name));
  }
  std::optional<std::string> optional_text(std::size_t position, std::string_view name) {
    const auto value = arguments_.find(position, name);
    if (!value || value->none())
      return std::nullopt;
    return calls_.text(*value, name_);
  }

  Value split() {
    const auto separator = optional_text(0, "sep");
    const auto limit = arguments_.find(1, "maxsplit");
    const std::int64_t most = limit ? calls_.integer(*limit, "maxsplit") : -1;
    if (separator && separator->empty())
      calls_.budget.refuse("split() by an empty text");
    const bool right = name_ == "rsplit";
    if (!separator && right && most >= 0)
      calls_.budget.refuse("rsplit() by spaces with a limit is not known");
    return make_list(separator ? split_at(self_, *separator, most, right, calls_.budget)
                               : split_spaces(self_, most, calls_.budget),
                     calls_.budget);
  }

  Value begins_or_ends() {
    const Value which = argument(0, "prefix");
    auto fits = [&](const Value& one) {
      const std::string& part = calls_.text(one, name_);
      return name_ == "startswith" ? self_.starts_with(part) : self_.ends_with(part);
    };
    if (!which.is_list())
      return fits(which);
    return std::any_of(which.list().items.begin(), which.list().items.end(), fits);
  }

  Value replace() {
    const std::string from = calls_.text(argument(0, "old"), name_),
                      to = calls_.text(argument(1, "new"), name_);
    const auto limit = arguments_.find(2, "count");
    std::int64_t left = limit ? calls_.integer(*limit, "count") : -1;
    std::string out;
    std::size_t at = 0;
    auto put = [&](std::string_view text) {
      out += text;
      if (out.size() > calls_.budget.most_bytes)
        calls_.budget.charge_text(out.size());
    };
    if (from.empty()) { // between all characters
      for (; left != 0; --left) {
        put(to);
        if (at == self_.size())
          return out;
        const std::size_t bytes = utf8_length(self_[at]);
        put(std::string_view(self_).substr(at, bytes));
        at += bytes;
      }
    }
    for (std::size_t found = 0;
         left != 0 && !from.empty() && (found = find_text(self_, from, at)) != std::string::npos;
         --left) {
      put(std::string_view(self_).substr(at, found - at));
      put(to);
      at = found + from.size();
    }
    put(std::string_view(self_).substr(at));
    calls_.budget.charge_text(out.size());
    return out;
  }

  Value without() {
    const std::string part = calls_.text(argument(0, "prefix"), name_);
    if (name_ == "removeprefix")
      return self_.starts_with(part) ? self_.substr(part.size()) : self_;
    return !part.empty() && self_.ends_with(part) ? self_.substr(0, self_.size() - part.size())
                                                  : self_;
  }

  Value search() {
    const std::string part = calls_.text(argument(0, "sub"), name_);
    if (arguments_.positional.size() > 1)
      calls_.budget.refuse(fmt::format("{}() within bounds is not known", name_));
    if (name_ == "count") {
      if (part.empty())
        return static_cast<std::int64_t>(count_chars(self_) + 1);
      std::int64_t count = 0;
      for (std::size_t at = 0; (at = find_text(self_, part, at)) != std::string::npos;
           at += part.size())
        ++count;
      return count;
    }
    const std::size_t at = name_ == "rfind" ? find_last_text(self_, part) : find_text(self_, part);
    if (at != std::string::npos)
      return static_cast<std::int64_t>(count_chars(std::string_view(self_).substr(0, at)));
    if (name_ == "index")
      calls_.budget.refuse(fmt::format("index(): '{}' is not there", printable(part)));
    return std::int64_t{-1};
  }

  /// "{} {0} {name}" without format specifications.
  Value format() {
    std::string out;
    std::size_t next = 0;
    for (std::size_t at = 0; at < self_.size(); ++at) {
      const char c = self_[at];
      if ((c == '{' || c == '}') && at + 1 < self_.size() && self_[at + 1] == c) {
        out += c;
        ++at;
      } else if (c == '{') {
        const std::size_t end = self_.find('}', at);
        const std::string field =
            self_.substr(at + 1, end == std::string::npos ? end : end - at - 1);
        if (end == std::string::npos || field.find_first_of(":!.[{") != std::string::npos)
          calls_.budget.refuse(
              fmt::format("format(): the field '{}' is not known", printable(field)));
        const bool number =
            field.find_first_not_of("0123456789") == std::string::npos && field.size() < 4;
        const std::size_t position = field.empty() ? next++
                                     : number      ? std::stoul(field)
                                                   : ~std::size_t{0};
        const auto value = arguments_.find(position, number ? "" : field);
        if (!value)
          calls_.budget.refuse(fmt::format("format(): no argument for '{}'", printable(field)));
        out += to_text(*value, calls_.budget);
        at = end;
      } else {
        out += c;
      }
      if (out.size() > calls_.budget.most_bytes)
        calls_.budget.charge_text(out.size());
    }
    return out;
  }

  Calls& calls_;
  const std::string& self_;
  std::string_view name_;
  const CallArguments& arguments_;
};

Value dict_method(Calls& calls, const Value& self, std::string_view name,
                  const CallArguments& arguments) {
  const Dict& dict = self.dict();
  calls.budget.charge(dict.items.size());
  if (name == "get") {
    const auto key = arguments.find(0, "key");
    if (!key)
      calls.budget.refuse("get() needs a key");
    const Value* found = key->is_text() ? dict.find(key->text()) : nullptr;
    return found != nullptr ? *found : arguments.find(1, "default").value_or(None{});
  }
  if (name == "copy")
    return self;
  std::vector<Value> out;
  for (const auto& [key, value] : dict.items)
    out.push_back(name == "items"  ? make_list({Value(key), value}, calls.budget, true)
                  : name == "keys" ? Value(key)
                                   : value);
  return make_list(std::move(out), calls.budget);
}

Value list_method(Calls& calls, const Value& self, std::string_view name,
                  const CallArguments& arguments) {
  if (name == "copy")
    return self;
  const auto wanted = arguments.find(0, "value");
  if (!wanted)
    calls.budget.refuse(fmt::format("{}() needs a value", name));
  std::int64_t count = 0;
  const auto& items = self.list().items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], *wanted, calls.budget)) {
      if (name == "index")
        return static_cast<std::int64_t>(i);
      ++count;
    }
  if (name == "index")
    calls.budget.refuse("index(): the value is not in the list");
  return count;
}

Value loop_method(Calls& calls, const Value& self, std::string_view name,
                  const CallArguments& arguments) {
  Loop& loop = *self.as<std::shared_ptr<Loop>>();
  if (name == "changed") {
    Value now = make_list(arguments.positional, calls.budget);
    const bool changed = !equal(loop.last_changed, now, calls.budget);
    loop.last_changed = std::move(now);
    return changed;
  }
  if (arguments.positional.empty())
    calls.budget.refuse("cycle() needs values");
  return arguments.positional[loop.index % arguments.positional.size()];
}

Value loop_attribute(const Loop& loop, std::string_view name) {
  const auto count = static_cast<std::int64_t>(loop.items->items.size()),
             index = static_cast<std::int64_t>(loop.index);
  const std::pair<std::string_view, std::int64_t> numbers[] = {
      {"index", index + 1},
      {"index0", index},
      {"revindex", count - index},
      {"revindex0", count - index - 1},
      {"length", count},
      {"depth", 1},
      {"depth0", 0}}; // no loop is recursive
  for (const auto& [known, value] : numbers)
    if (name == known)
      return value;
  if (name == "first")
    return index == 0;
  if (name == "last")
    return index + 1 == count;
  if (name == "previtem" && index > 0)
    return loop.items->items[loop.index - 1];
  if (name == "nextitem" && index + 1 < count)
    return loop.items->items[loop.index + 1];
  return Undefined{"loop." + std::string(name)};
}

} // namespace

std::optional<Value> CallArguments::find(std::size_t position, std::string_view name) const {
  if (position < positional.size())
    return positional[position];
  for (const auto& [key, value] : named)
    if (key == name)
      return value;
  return std::nullopt;
}

bool has_method(const Value& value, std::string_view name) {
  if (value.is_text())
    return among(kTextMethods, name);
  if (value.is_list())
    return among(kListMethods, name);
  if (value.is_dict())
    return !value.dict().is_namespace && among(kDictMethods, name);
  return value.is<std::shared_ptr<Loop>>() && among(kLoopMethods, name);
}

Value Calls::method(const Value& self, std::string_view name, const CallArguments& arguments) {
  if (self.is_text())
    return TextMethod(*this, self.text(), name, arguments).run();
  if (self.is_dict())
    return dict_method(*this, self, name, arguments);
  if (self.is_list())
    return list_method(*this, self, name, arguments);
  return loop_method(*this, self, name, arguments);
}

Value Calls::attribute(const Value& value, std::string_view name) {
  if (value.undefined())
    budget.refuse(fmt::format("'{}' is undefined", printable(value.as<Undefined>().name)));
  if (has_method(value, name)) {
    auto method = std::make_shared<Callable>();
    method->name = name;
    method->self = value;
    return method;
  }
  if (value.is_dict())
    if (const Value* found = value.dict().find(name))
      return *found;
  if (value.is<std::shared_ptr<Loop>>())
    return loop_attribute(*value.as<std::shared_ptr<Loop>>(), name);
  return Undefined{fmt::format("{}.{}", value.type_name(), name)};
}

Value Calls::item(const Value& value, const Value& key) {
  if (value.undefined())
    budget.refuse(fmt::format("'{}' is undefined", printable(value.as<Undefined>().name)));
  if (value.is_dict() && key.is_text())
    if (const Value* found = value.dict().find(key.text()))
      return *found;
  if (key.is_text())
    return attribute(value, key.text());
  if (key.is_integer() && (value.is_list() || value.is_text())) {
    if (value.is_text())
      budget.charge(value.text().size() / 16);
    const auto count = static_cast<std::int64_t>(value.is_list() ? value.list().items.size()
                                                                 : count_chars(value.text()));
    const std::int64_t index = key.integer() < 0 ? key.integer() + count : key.integer();
    if (index < 0 || index >= count)
      return Undefined{fmt::format("{}[{}]", value.type_name(), key.integer())};
    if (value.is_list())
      return value.list().items[static_cast<std::size_t>(index)];
    return slice(value, index, index + 1, Undefined{});
  }
  return Undefined{fmt::format("{}[...]", value.type_name())};
}

Value Calls::slice(const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (!value.is_text() && !value.is_list())
    budget.refuse(fmt::format("a slice of {}", value.type_name()));
  // Characters are found by their places.
  std::vector<std::size_t> places;
  if (value.is_text()) {
    budget.charge(value.text().size());
    for (std::size_t at = 0; at < value.text().size(); at += utf8_length(value.text()[at]))
      places.push_back(at);
  }
  const auto count =
      static_cast<std::int64_t>(value.is_text() ? places.size() : value.list().items.size());
  auto given = [](const Value& v) { return !v.undefined() && !v.none(); };
  const std::int64_t stride = given(step) ? integer(step, "a slice") : 1;
  if (stride == 0)
    budget.refuse("a slice of step 0");
  const std::int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? count : count - 1;
  auto bound = [&](const Value& v, std::int64_t otherwise) {
    if (!given(v))
      return otherwise;
    const std::int64_t i = integer(v, "a slice");
    return std::clamp(i < 0 ? i + count : i, low, high);
  };
  const std::int64_t from = bound(begin, stride > 0 ? low : high),
                     to = bound(end, stride > 0 ? high : low);
  const std::int64_t jump = std::clamp(stride, -count - 1, count + 1);
  std::string text;
  std::vector<Value> items;
  for (std::int64_t i = from; jump > 0 ? i < to : i > to; i += jump) {
    const auto at = static_cast<std::size_t>(i);
    if (value.is_text())
      text +=
          std::string_view(value.text()).substr(places[at], utf8_length(value.text()[places[at]]));
    else
      items.push_back(value.list().items[at]);
  }
  return value.is_text() ? Value(std::move(text))
                         : make_list(std::move(items), budget, value.list().tuple);
}

std::int64_t Calls::integer(const Value& value, std::string_view what) {
  if (!value.is_integer())
    budget.refuse(fmt::format("{} needs an integer, not {}", what, value.type_name()));
  return value.integer();
}

const std::string& Calls::text(const Value& value, std::string_view what) {
  if (!value.is_text())
    budget.refuse(fmt::format("{} needs a string, not {}", what, value.type_name()));
  return value.text();
}

} // namespace egret::text::jinja

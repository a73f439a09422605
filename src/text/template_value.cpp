#include "text/template_value.h"

#include "support/fail.h"
#include "support/json_reason.h"
#include "support/printable.h"
#include "text/characters.h"
#include "text/json_fields.h"
#include "text/utf8.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utf8proc.h>

namespace egret::text::jinja {

void Budget::refuse(const std::string& why) const {
  fail(ErrorKind::Value, "{}: line {}: {}", name, line, why);
}

void Budget::charge(std::uint64_t count) {
  if (count > steps)
    refuse("it takes too many steps");
  steps -= count;
}

void Budget::charge_text(std::uint64_t bytes) {
  if (bytes > most_bytes)
    refuse(fmt::format("a text of more than {} bytes", most_bytes));
  charge(1 + bytes / 16);
}

void Budget::check_items(std::size_t items) const {
  if (items > kMostItems)
    refuse(fmt::format("a list of more than {} items", kMostItems));
}

bool is_python_space(char32_t c) {
  return is_space(c) || (c >= 0x1c && c <= 0x1f);
}

const Value* Dict::find(std::string_view key) const {
  if (!index_.empty()) {
    const auto place = index_.find(std::string(key));
    return place == index_.end() ? nullptr : &items[place->second].second;
  }
  for (const auto& [name, value] : items)
    if (name == key)
      return &value;
  return nullptr;
}

void Dict::set(std::string_view key, Value value) {
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = std::move(value);
    return;
  }
  items.emplace_back(key, std::move(value));
  if (items.size() == 17)
    for (std::size_t i = 0; i < items.size(); ++i)
      index_.emplace(items[i].first, i);
  else if (items.size() > 17)
    index_.emplace(items.back().first, items.size() - 1);
}

bool Value::truth() const {
  if (undefined() || none())
    return false;
  if (is_number())
    return is<double>() ? as<double>() != 0 : integer() != 0;
  if (is_text())
    return !text().empty();
  if (is_list())
    return !list().items.empty();
  if (is_dict())
    return dict().is_namespace || !dict().items.empty();
  return true;
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {"undefined", "none", "boolean", "integer", "float",
                                           "string",    "list", "dict",    "loop",    "function"};
  return is_dict() && dict().is_namespace ? "namespace" : kNames[any_.index()];
}

std::size_t depth_of(const Value& value, Budget& budget) {
  if (value.is_list())
    return value.list().depth;
  if (value.is_dict()) {
    if (value.dict().is_namespace)
      budget.refuse("a namespace inside another value");
    return value.dict().depth;
  }
  if (value.is<std::shared_ptr<Loop>>()) // which may remember values, itself among them
    budget.refuse("a loop inside another value");
  if (value.is<std::shared_ptr<Callable>>())
    if (const Value& self = value.as<std::shared_ptr<Callable>>()->self; !self.undefined())
      return depth_of(self, budget);
  return 0;
}

Value make_list(std::vector<Value> items, Budget& budget, bool tuple) {
  auto list = std::make_shared<List>();
  budget.check_items(items.size());
  budget.charge(1 + items.size());
  for (const Value& item : items)
    list->depth = std::max(list->depth, depth_of(item, budget) + 1);
  if (list->depth > kMostDepth)
    budget.refuse("lists inside each other, too deep");
  list->items = std::move(items);
  list->tuple = tuple;
  return list;
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.charge(1);
  if (a.is_number() && b.is_number())
    return a.is<double>() || b.is<double>() ? a.number() == b.number() : a.integer() == b.integer();
  if (a.is_text() && b.is_text()) {
    budget.charge(a.text().size() / 16);
    return a.text() == b.text();
  }
  if (a.is_list() && b.is_list())
    return a.list().tuple == b.list().tuple &&
           std::equal(a.list().items.begin(), a.list().items.end(), b.list().items.begin(),
                      b.list().items.end(),
                      [&](const Value& x, const Value& y) { return equal(x, y, budget); });
  if (a.is_dict() && b.is_dict()) {
    if (a.dict().is_namespace || b.dict().is_namespace)
      return &a.dict() == &b.dict();
    return a.dict().items.size() == b.dict().items.size() &&
           std::all_of(a.dict().items.begin(), a.dict().items.end(), [&](const auto& item) {
             const Value* other = b.dict().find(item.first);
             return other != nullptr && equal(item.second, *other, budget);
           });
  }
  return (a.undefined() && b.undefined()) || (a.none() && b.none());
}

int compare(const Value& a, const Value& b, Budget& budget) {
  budget.charge(1);
  if (a.is_number() && b.is_number()) {
    if (a.is<double>() || b.is<double>())
      return a.number() < b.number() ? -1 : a.number() > b.number() ? 1 : 0;
    return a.integer() < b.integer() ? -1 : a.integer() > b.integer() ? 1 : 0;
  }
  if (a.is_text() && b.is_text()) {
    budget.charge(a.text().size() / 16);
    return a.text().compare(b.text());
  }
  if (a.is_list() && b.is_list()) {
    const auto &x = a.list().items, &y = b.list().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i], budget))
        return compare(x[i], y[i], budget);
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  budget.refuse(fmt::format("{} and {} have no order", a.type_name(), b.type_name()));
}

namespace {

std::string float_text(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos)
    text += ".0";
  return text;
}

/// Python's repr() of a string: single quotes unless only the other kind avoids escapes.
void append_quoted(std::string_view text, std::string& out) {
  const char quote =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"'
                                                                                            : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_char(text, at);
    const auto kind = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool shown = c == ' ' || (kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS);
    if (c == static_cast<char32_t>(quote) || c == '\\')
      out += '\\', out += static_cast<char>(c);
    else if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (shown)
      out += text.substr(begin, at - begin);
    else
      out += c < 0x100     ? fmt::format("\\x{:02x}", static_cast<unsigned>(c))
             : c < 0x10000 ? fmt::format("\\u{:04x}", static_cast<unsigned>(c))
                           : fmt::format("\\U{:08x}", static_cast<unsigned>(c));
  }
  out += quote;
}

void append_json_text(std::string_view text, bool ascii, std::string& out) {
  out += '"';
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t c = next_char(text, at);
    static constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    const std::size_t named = c < 0x80 ? kNamed.find(static_cast<char>(c)) : std::string_view::npos;
    if (named != std::string_view::npos)
      out += '\\', out += kLetters[named];
    else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000 && c != 0x7f))
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else if (ascii && c >= 0x10000)
      out +=
          fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((static_cast<unsigned>(c) - 0x10000) >> 10),
                      0xdc00 + ((static_cast<unsigned>(c) - 0x10000) & 0x3ff));
    else
      out += text.substr(begin, at - begin);
  }
  out += '"';
}

class JsonWriter {
public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const Value& value, int depth) {
    budget_.charge(1);
    if (value.none())
      out += "null";
    else if (value.is<bool>())
      out += value.as<bool>() ? "true" : "false";
    else if (value.is<std::int64_t>())
      out += fmt::format("{}", value.integer());
    else if (value.is<double>())
      out += std::isnan(value.number())   ? "NaN"
             : std::isinf(value.number()) ? (value.number() < 0 ? "-Infinity" : "Infinity")
                                          : float_text(value.number());
    else if (value.is_text())
      append_json_text(value.text(), style_.ascii, out);
    else if (value.is_list())
      parts('[', ']', value.list().items, depth,
            [&](const Value& item) { write(item, depth + 1); });
    else if (value.is_dict() && !value.dict().is_namespace)
      dict(value.dict(), depth);
    else
      budget_.refuse(fmt::format("tojson of a value that is {}", value.type_name()));
    budget_.charge_text(out.size() - charged_);
    charged_ = out.size();
    if (out.size() > budget_.most_bytes)
      budget_.charge_text(out.size());
  }

  std::string out;

private:
  void dict(const Dict& dict, int depth) {
    std::vector<const std::pair<std::string, Value>*> items;
    for (const auto& item : dict.items)
      items.push_back(&item);
    if (style_.sorted)
      std::sort(items.begin(), items.end(), [](auto* a, auto* b) { return a->first < b->first; });
    parts('{', '}', items, depth, [&](const auto* item) {
      append_json_text(item->first, style_.ascii, out);
      out += style_.key_separator;
      write(item->second, depth + 1);
    });
  }

  template <class Items, class Write>
  void parts(char open, char close, const Items& items, int depth, Write&& one) {
    auto line = [&](int level) {
      if (style_.indent >= 0)
        out.append("\n").append(static_cast<std::size_t>(level * style_.indent), ' ');
    };
    out += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first)
        out += style_.item_separator;
      first = false;
      line(depth + 1);
      one(item);
    }
    if (!first)
      line(depth);
    out += close;
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::size_t charged_ = 0;
};

} // namespace

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value, 0);
  return std::move(writer.out);
}

void append_repr(const Value& value, std::string& out, Budget& budget) {
  budget.charge(1);
  if (out.size() > budget.most_bytes)
    budget.charge_text(out.size());
  if (value.is_text()) {
    budget.charge_text(value.text().size());
    append_quoted(value.text(), out);
  } else if (value.is_list()) {
    const List& list = value.list();
    out += list.tuple ? '(' : '[';
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      out += i > 0 ? ", " : "";
      append_repr(list.items[i], out, budget);
    }
    out += !list.tuple ? "]" : list.items.size() == 1 ? ",)" : ")";
  } else if (value.is_dict() && !value.dict().is_namespace) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.dict().items) {
      out += std::exchange(first, false) ? "" : ", ";
      append_quoted(key, out);
      out += ": ";
      append_repr(item, out, budget);
    }
    out += '}';
  } else {
    out += value.undefined() ? "Undefined" : to_text(value, budget);
  }
}

std::string to_text(const Value& value, Budget& budget) {
  if (value.is_text()) {
    budget.charge_text(value.text().size());
    return value.text();
  }
  if (value.undefined())
    return "";
  if (value.none())
    return "None";
  if (value.is<bool>())
    return value.as<bool>() ? "True" : "False";
  if (value.is<std::int64_t>())
    return fmt::format("{}", value.integer());
  if (value.is<double>())
    return float_text(value.number());
  if (value.is_list() || (value.is_dict() && !value.dict().is_namespace)) {
    std::string out;
    append_repr(value, out, budget);
    return out;
  }
  budget.refuse(fmt::format("a {} is not text", value.type_name()));
}

std::shared_ptr<const List> items_of(const Value& value, Budget& budget) {
  if (value.is_list())
    return value.as<std::shared_ptr<List>>();
  auto out = std::make_shared<List>();
  if (value.is_text()) {
    budget.charge(value.text().size());
    for (std::size_t at = 0; at < value.text().size();) {
      budget.check_items(out->items.size() + 1);
      const std::size_t bytes = utf8_length(value.text()[at]);
      out->items.emplace_back(std::string_view(value.text()).substr(at, bytes));
      at += bytes;
    }
  } else if (value.is_dict() && !value.dict().is_namespace) {
    budget.charge(value.dict().items.size());
    for (const auto& item : value.dict().items)
      out->items.emplace_back(item.first);
  } else if (!value.undefined()) {
    budget.refuse(fmt::format("{} cannot be iterated over", value.type_name()));
  }
  return out;
}

namespace {

/// Makes values from the events of a JSON parser, so that keys keep their order.
class Reader final : public nlohmann::json_sax<nlohmann::json> {
public:
  explicit Reader(std::string name) : name_(std::move(name)) {}
  bool null() override { return put(None{}); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(std::int64_t v) override { return put(v); }
  bool number_unsigned(std::uint64_t v) override {
    return v <= static_cast<std::uint64_t>(INT64_MAX) ? put(static_cast<std::int64_t>(v))
                                                      : put(static_cast<double>(v));
  }
  bool number_float(double v, const std::string&) override { return put(v); }
  bool string(std::string& v) override { return put(std::move(v)); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(std::make_shared<Dict>()); }
  bool start_array(std::size_t) override { return open(std::make_shared<List>()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& k) override {
    open_.back().key = k;
    return true;
  }
  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& error) override {
    fail(ErrorKind::Parse, "{}: not JSON: {}", name_, printable(json_reason(error)));
  }
  Value result;

private:
  struct Open {
    Value value;
    std::string key;
    std::size_t depth = 1;
  };
  bool open(Value value) {
    if (open_.size() >= kMostNesting)
      fail(ErrorKind::Parse, "{}: more than {} brackets inside each other", name_, kMostNesting);
    open_.push_back({std::move(value), {}, 1});
    return true;
  }
  bool close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    if (done.value.is_list())
      done.value.as<std::shared_ptr<List>>()->depth = done.depth;
    else
      done.value.as<std::shared_ptr<Dict>>()->depth = done.depth;
    if (!open_.empty())
      open_.back().depth = std::max(open_.back().depth, done.depth + 1);
    return put(std::move(done.value));
  }
  bool put(Value value) {
    if (open_.empty())
      result = std::move(value);
    else if (open_.back().value.is_list())
      open_.back().value.as<std::shared_ptr<List>>()->items.push_back(std::move(value));
    else
      open_.back().value.as<std::shared_ptr<Dict>>()->set(open_.back().key, std::move(value));
    return true;
  }
  std::string name_;
  std::vector<Open> open_;
};

} // namespace

Value from_json(std::string_view json, const std::string& name) {
  if (const std::string reason = zero_byte_reason(json); !reason.empty())
    fail(ErrorKind::Parse, "{}: not JSON: {}", name, reason);
  Reader reader(name);
  nlohmann::json::sax_parse(json, &reader);
  return std::move(reader.result);
}

} // namespace egret::text::jinja

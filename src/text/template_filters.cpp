// Filters and tests of Jinja.
#include "text/template_ast.h"
#include "text/template_calls.h"
#include "text/utf8.h"

#include "support/find_text.h"
#include "support/printable.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <numeric>

namespace egret::text::jinja {

namespace {

using Args = CallArguments;
using Run = Value (*)(Calls&, const Value&, const Args&);

Value method_of_text(Calls& c, const Value& v, std::string_view name, const Args& a = {}) {
  return c.method(Value(to_text(v, c.budget)), name, a);
}

/// The attribute of an item by a path with dots, as map(attribute="a.b") has it.
Value by_path(Calls& c, Value value, const Value& path) {
  if (path.is_integer())
    return c.item(value, path);
  std::string_view rest = c.text(path, "attribute");
  while (true) {
    const std::size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const bool number = !part.empty() && part.size() < 10 &&
                        part.find_first_not_of("0123456789") == std::string::npos;
    value =
        c.item(value, number ? Value(static_cast<std::int64_t>(std::stoll(part))) : Value(part));
    if (dot == std::string_view::npos)
      return value;
    rest.remove_prefix(dot + 1);
  }
}

Args rest_of(const Args& a, std::size_t from) {
  Args out = a;
  out.positional.erase(out.positional.begin(),
                       out.positional.begin() +
                           static_cast<std::ptrdiff_t>(std::min(from, a.positional.size())));
  return out;
}

/// select, reject, selectattr, rejectattr.
Value chosen(Calls& c, const Value& v, const Args& a, bool by_attribute, bool wanted) {
  const std::size_t skip = by_attribute ? 1 : 0;
  if (a.positional.size() < skip)
    c.budget.refuse("selectattr and rejectattr need an attribute");
  std::string test;
  if (a.positional.size() > skip) {
    test = c.text(a.positional[skip], "a test");
    if (!is_test(test))
      c.budget.refuse(fmt::format("the test '{}' is not known", printable(test)));
  }
  const Args further = rest_of(a, skip + 1);
  std::vector<Value> out;
  for (const auto all = items_of(v, c.budget); const Value& item : all->items) {
    const Value subject = by_attribute ? by_path(c, item, a.positional[0]) : item;
    if ((test.empty() ? subject.truth() : c.test(test, subject, further)) == wanted)
      out.push_back(item);
  }
  return make_list(std::move(out), c.budget);
}

Value map(Calls& c, const Value& v, const Args& a) {
  std::vector<Value> out;
  const auto attribute = a.positional.empty() ? a.find(~std::size_t{0}, "attribute") : std::nullopt;
  const auto otherwise = a.find(~std::size_t{0}, "default");
  if (!attribute && (a.positional.empty() || !is_filter(c.text(a.positional[0], "map"))))
    c.budget.refuse("map needs a filter or an attribute");
  const Args further = rest_of(a, 1);
  for (const auto all = items_of(v, c.budget); const Value& item : all->items) {
    Value made =
        attribute ? by_path(c, item, *attribute) : c.filter(a.positional[0].text(), item, further);
    if (attribute && made.undefined() && otherwise)
      made = *otherwise;
    out.push_back(std::move(made));
  }
  return make_list(std::move(out), c.budget);
}

Value join(Calls& c, const Value& v, const Args& a) {
  const std::string separator = to_text(a.find(0, "d").value_or(Value("")), c.budget);
  const auto attribute = a.find(1, "attribute");
  std::string out;
  bool first = true;
  for (const auto all = items_of(v, c.budget); const Value& item : all->items) {
    out += std::exchange(first, false) ? "" : separator;
    out += to_text(attribute ? by_path(c, item, *attribute) : item, c.budget);
    c.budget.charge_text(separator.size());
    if (out.size() > c.budget.most_bytes)
      c.budget.charge_text(out.size());
  }
  return out;
}

/// Folds case where the filter compares without regard to it.
Value folded(Calls& c, const Value& v, bool keeps_case) {
  return v.is_text() && !keeps_case ? c.method(v, "lower", {}) : v;
}

Value sort(Calls& c, const Value& v, const Args& a) {
  const bool reverse = a.find(0, "reverse").value_or(false).truth(),
             exact = a.find(1, "case_sensitive").value_or(false).truth();
  const auto attribute = a.find(2, "attribute");
  std::vector<std::pair<Value, Value>> items;
  for (const auto all = items_of(v, c.budget); const Value& item : all->items)
    items.emplace_back(folded(c, attribute ? by_path(c, item, *attribute) : item, exact), item);
  std::stable_sort(items.begin(), items.end(), [&](const auto& x, const auto& y) {
    return reverse ? compare(y.first, x.first, c.budget) < 0
                   : compare(x.first, y.first, c.budget) < 0;
  });
  std::vector<Value> out;
  out.reserve(items.size());
  for (auto& item : items)
    out.push_back(std::move(item.second));
  return make_list(std::move(out), c.budget);
}

Value dictsort(Calls& c, const Value& v, const Args& a) {
  if (!v.is_dict())
    c.budget.refuse(fmt::format("dictsort of {}", v.type_name()));
  const bool exact = a.find(0, "case_sensitive").value_or(false).truth();
  const bool by_value = to_text(a.find(1, "by").value_or("key"), c.budget) == "value";
  const Value pairs = c.method(v, "items", {});
  return sort(c, pairs,
              {{},
               {{"attribute", Value(std::int64_t{by_value ? 1 : 0})},
                {"case_sensitive", Value(exact)},
                {"reverse", a.find(2, "reverse").value_or(false)}}});
}

Value unique(Calls& c, const Value& v, const Args& a) {
  const bool exact = a.find(0, "case_sensitive").value_or(false).truth();
  const auto attribute = a.find(1, "attribute");
  std::vector<Value> seen, out;
  for (const auto all = items_of(v, c.budget); const Value& item : all->items) {
    const Value key = folded(c, attribute ? by_path(c, item, *attribute) : item, exact);
    if (std::any_of(seen.begin(), seen.end(),
                    [&](const Value& s) { return equal(s, key, c.budget); }))
      continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return make_list(std::move(out), c.budget);
}

Value extreme(Calls& c, const Value& v, const Args& a, int sign) {
  const bool exact = a.find(0, "case_sensitive").value_or(false).truth();
  const auto attribute = a.find(1, "attribute");
  Value best, best_key;
  bool any = false;
  for (const auto all = items_of(v, c.budget); const Value& item : all->items) {
    const Value key = folded(c, attribute ? by_path(c, item, *attribute) : item, exact);
    if (!any || sign * compare(key, best_key, c.budget) > 0)
      best = item, best_key = key;
    any = true;
  }
  return best;
}

Value sum(Calls& c, const Value& v, const Args& a) {
  const auto attribute = a.find(0, "attribute");
  Value total = a.find(1, "start").value_or(std::int64_t{0});
  for (const auto all = items_of(v, c.budget); const Value& item : all->items)
    total = c.add(total, attribute ? by_path(c, item, *attribute) : item);
  return total;
}

Value length(Calls& c, const Value& v, const Args&) {
  if (v.is_text()) {
    c.budget.charge(v.text().size() / 16);
    return static_cast<std::int64_t>(count_chars(v.text()));
  }
  if (v.is_list())
    return static_cast<std::int64_t>(v.list().items.size());
  if (v.is_dict() && !v.dict().is_namespace)
    return static_cast<std::int64_t>(v.dict().items.size());
  if (v.undefined())
    return std::int64_t{0};
  c.budget.refuse(fmt::format("the length of {}", v.type_name()));
}

Value to_int(Calls& c, const Value& v, const Args& a) {
  Value otherwise = a.find(0, "default").value_or(std::int64_t{0});
  if (v.is_integer())
    return v.integer();
  double number = NAN;
  if (v.is<double>()) {
    number = v.number();
  } else if (v.is_text()) {
    const std::string text = c.method(v, "strip", {}).text();
    std::string digits = text.substr(text.starts_with('+') ? 1 : 0);
    const auto base = static_cast<int>(std::clamp<std::int64_t>(
        c.integer(a.find(1, "base").value_or(std::int64_t{10}), "int"), 2, 36));
    // Python takes "0x1f" where the base is 16.
    const std::size_t sign = digits.starts_with('-') ? 1 : 0;
    for (const auto& [prefix, of] :
         {std::pair("0x", 16), {"0X", 16}, {"0o", 8}, {"0O", 8}, {"0b", 2}, {"0B", 2}})
      if (base == of && digits.compare(sign, 2, prefix) == 0)
        digits.erase(sign, 2);
    std::int64_t whole = 0;
    if (const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), whole, base);
        r.ec == std::errc() && r.ptr == digits.data() + digits.size() && !digits.empty())
      return whole;
    if (const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), number);
        r.ec != std::errc() || r.ptr != digits.data() + digits.size())
      number = NAN;
  }
  if (!(std::abs(number) < 9e18))
    return otherwise;
  return static_cast<std::int64_t>(number);
}

Value to_float(Calls& c, const Value& v, const Args& a) {
  if (v.is_number())
    return v.number();
  if (v.is_text()) {
    const std::string text = c.method(v, "strip", {}).text();
    double number = 0;
    if (const auto r = std::from_chars(text.data(), text.data() + text.size(), number);
        r.ec == std::errc() && r.ptr == text.data() + text.size())
      return number;
  }
  return a.find(0, "default").value_or(0.0);
}

Value round(Calls& c, const Value& v, const Args& a) {
  if (!v.is_number())
    c.budget.refuse(fmt::format("round of {}", v.type_name()));
  const auto precision = std::clamp<std::int64_t>(
      c.integer(a.find(0, "precision").value_or(std::int64_t{0}), "round"), -15, 15);
  const std::string method = to_text(a.find(1, "method").value_or("common"), c.budget);
  const double scale = std::pow(10.0, static_cast<double>(precision)), scaled = v.number() * scale;
  if (method == "ceil")
    return std::ceil(scaled) / scale;
  if (method == "floor")
    return std::floor(scaled) / scale;
  return std::nearbyint(scaled) / scale;
}

/// Of an indentation; one below 0 is none, as in Python.
std::size_t spaces(Calls& c, const Value& width, std::int64_t most) {
  const std::int64_t asked = c.integer(width, "indent");
  if (asked > most)
    c.budget.refuse(fmt::format("an indentation of {} spaces; {} is the most", asked, most));
  return static_cast<std::size_t>(std::max<std::int64_t>(asked, 0));
}

Value tojson(Calls& c, const Value& v, const Args& a) {
  JsonStyle style;
  const auto ascii = a.find(0, "ensure_ascii"), indent = a.find(1, "indent"),
             separators = a.find(2, "separators"), sorted = a.find(3, "sort_keys");
  style.ascii = ascii && ascii->truth();
  style.sorted = sorted && sorted->truth();
  if (indent && !indent->none() && !indent->undefined()) {
    style.indent = static_cast<int>(spaces(c, *indent, 64));
    style.item_separator.assign(1, ',');
  }
  if (separators && separators->is_list() && separators->list().items.size() == 2) {
    style.item_separator = c.text(separators->list().items[0], "separators");
    style.key_separator = c.text(separators->list().items[1], "separators");
  }
  return to_json(v, style, c.budget);
}

Value indent(Calls& c, const Value& v, const Args& a) {
  const Value width = a.find(0, "width").value_or(std::int64_t{4});
  const bool first = a.find(1, "first").value_or(false).truth(),
             blank = a.find(2, "blank").value_or(false).truth();
  const std::string lead =
      width.is_text() ? width.text() : std::string(spaces(c, width, 1000), ' ');
  std::string_view rest = v.is_text() ? std::string_view(v.text()) : "";
  std::string out = first ? lead : "";
  for (bool start = true;; start = false) {
    const std::size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    if (!start && (blank || !line.empty()))
      out += lead;
    out += line;
    c.budget.charge(1 + lead.size() / 16);
    if (out.size() > c.budget.most_bytes)
      c.budget.charge_text(out.size());
    if (end == std::string_view::npos)
      return out;
    out += '\n';
    rest.remove_prefix(end + 1);
  }
}

Value escape(Calls& c, const Value& v, const Args&) {
  std::string out;
  for (const char one : to_text(v, c.budget))
    switch (one) {
    case '&':
      out += "&amp;";
      break;
    case '<':
      out += "&lt;";
      break;
    case '>':
      out += "&gt;";
      break;
    case '"':
      out += "&#34;";
      break;
    case '\'':
      out += "&#39;";
      break;
    default:
      out += one;
    }
  c.budget.charge_text(out.size());
  return out;
}

Value otherwise(Calls&, const Value& v, const Args& a) {
  const bool falsy = a.find(1, "boolean").value_or(false).truth();
  return v.undefined() || (falsy && !v.truth()) ? a.find(0, "default_value").value_or("") : v;
}

struct Filter {
  std::string_view name;
  Run run;
};

const Filter kFilters[] = {
    {"trim",
     [](Calls& c, const Value& v, const Args& a) { return method_of_text(c, v, "strip", a); }},
    {"upper", [](Calls& c, const Value& v, const Args&) { return method_of_text(c, v, "upper"); }},
    {"lower", [](Calls& c, const Value& v, const Args&) { return method_of_text(c, v, "lower"); }},
    {"title", [](Calls& c, const Value& v, const Args&) { return method_of_text(c, v, "title"); }},
    {"capitalize",
     [](Calls& c, const Value& v, const Args&) { return method_of_text(c, v, "capitalize"); }},
    {"replace",
     [](Calls& c, const Value& v, const Args& a) { return method_of_text(c, v, "replace", a); }},
    {"string", [](Calls& c, const Value& v, const Args&) -> Value { return to_text(v, c.budget); }},
    {"safe", [](Calls&, const Value& v, const Args&) { return v; }},
    {"escape", escape},
    {"e", escape},
    {"tojson", tojson},
    {"length", length},
    {"count", length},
    {"default", otherwise},
    {"d", otherwise},
    {"join", join},
    {"items",
     [](Calls& c, const Value& v, const Args&) {
       if (v.undefined())
         return make_list({}, c.budget);
       if (!v.is_dict())
         c.budget.refuse(fmt::format("items of {}", v.type_name()));
       return c.method(v, "items", {});
     }},
    {"list", [](Calls& c, const Value& v,
                const Args&) { return make_list(items_of(v, c.budget)->items, c.budget); }},
    {"first",
     [](Calls& c, const Value& v, const Args&) -> Value {
       const auto items = items_of(v, c.budget);
       return items->items.empty() ? Value(Undefined{"first of nothing"}) : items->items.front();
     }},
    {"last",
     [](Calls& c, const Value& v, const Args&) -> Value {
       const auto items = items_of(v, c.budget);
       return items->items.empty() ? Value(Undefined{"last of nothing"}) : items->items.back();
     }},
    {"reverse",
     [](Calls& c, const Value& v, const Args&) {
       return c.slice(v.is_text() ? v : Value(make_list(items_of(v, c.budget)->items, c.budget)),
                      None{}, None{}, std::int64_t{-1});
     }},
    {"map", map},
    {"select",
     [](Calls& c, const Value& v, const Args& a) { return chosen(c, v, a, false, true); }},
    {"reject",
     [](Calls& c, const Value& v, const Args& a) { return chosen(c, v, a, false, false); }},
    {"selectattr",
     [](Calls& c, const Value& v, const Args& a) { return chosen(c, v, a, true, true); }},
    {"rejectattr",
     [](Calls& c, const Value& v, const Args& a) { return chosen(c, v, a, true, false); }},
    {"sort", sort},
    {"dictsort", dictsort},
    {"unique", unique},
    {"min", [](Calls& c, const Value& v, const Args& a) { return extreme(c, v, a, -1); }},
    {"max", [](Calls& c, const Value& v, const Args& a) { return extreme(c, v, a, 1); }},
    {"sum", sum},
    {"int", to_int},
    {"float", to_float},
    {"round", round},
    {"abs",
     [](Calls& c, const Value& v, const Args&) -> Value {
       if (!v.is_number() || (v.is_integer() && v.integer() == INT64_MIN))
         c.budget.refuse(fmt::format("abs of {}", v.type_name()));
       return v.is<double>() ? Value(std::abs(v.number())) : Value(std::abs(v.integer()));
     }},
    {"attr",
     [](Calls& c, const Value& v, const Args& a) {
       return c.attribute(v, c.text(a.find(0, "name").value_or(""), "attr"));
     }},
    {"indent", indent},
};

using Decide = bool (*)(Calls&, const Value&, const Args&);
Value operand(Calls& c, const Args& a) {
  if (a.positional.empty())
    c.budget.refuse("the test needs an argument");
  return a.positional[0];
}
template <int Low, int High>
bool ordered(Calls& c, const Value& v, const Args& a) {
  const int sign = compare(v, operand(c, a), c.budget);
  return sign < 0 ? Low < 0 : sign > 0 ? High > 0 : Low <= 0 && High >= 0;
}
bool is_equal(Calls& c, const Value& v, const Args& a) {
  return equal(v, operand(c, a), c.budget);
}
bool is_different(Calls& c, const Value& v, const Args& a) {
  return !is_equal(c, v, a);
}
bool is_mapping(Calls&, const Value& v, const Args&) {
  return v.is_dict() && !v.dict().is_namespace;
}

/// item in container
bool is_in(Calls& c, const Value& v, const Args& a) {
  const Value container = operand(c, a);
  if (container.is_text()) {
    c.budget.charge(container.text().size() / 16);
    return find_text(container.text(), c.text(v, "'in' a string")) != std::string::npos;
  }
  if (container.is_dict())
    return v.is_text() && container.dict().find(v.text()) != nullptr;
  const auto items = items_of(container, c.budget);
  return std::any_of(items->items.begin(), items->items.end(),
                     [&](const Value& item) { return equal(item, v, c.budget); });
}

struct Test {
  std::string_view name;
  Decide run;
};

const Test kTests[] = {
    {"defined", [](Calls&, const Value& v, const Args&) { return !v.undefined(); }},
    {"undefined", [](Calls&, const Value& v, const Args&) { return v.undefined(); }},
    {"none", [](Calls&, const Value& v, const Args&) { return v.none(); }},
    {"string", [](Calls&, const Value& v, const Args&) { return v.is_text(); }},
    {"mapping", is_mapping},
    {"sequence",
     [](Calls& c, const Value& v, const Args& a) {
       return v.is_text() || v.is_list() || is_mapping(c, v, a) || v.undefined();
     }},
    {"iterable",
     [](Calls& c, const Value& v, const Args& a) {
       return v.is_text() || v.is_list() || is_mapping(c, v, a) || v.undefined();
     }},
    {"number", [](Calls&, const Value& v, const Args&) { return v.is_number(); }},
    {"integer", [](Calls&, const Value& v, const Args&) { return v.is<std::int64_t>(); }},
    {"float", [](Calls&, const Value& v, const Args&) { return v.is<double>(); }},
    {"boolean", [](Calls&, const Value& v, const Args&) { return v.is<bool>(); }},
    {"true", [](Calls&, const Value& v, const Args&) { return v.is<bool>() && v.as<bool>(); }},
    {"false", [](Calls&, const Value& v, const Args&) { return v.is<bool>() && !v.as<bool>(); }},
    {"callable",
     [](Calls&, const Value& v, const Args&) { return v.is<std::shared_ptr<Callable>>(); }},
    {"in", is_in},
    {"equalto", is_equal},
    {"eq", is_equal},
    {"==", is_equal},
    {"ne", is_different},
    {"!=", is_different},
    {"lt", ordered<-1, -1>},
    {"lessthan", ordered<-1, -1>},
    {"<", ordered<-1, -1>},
    {"le", ordered<-1, 0>},
    {"<=", ordered<-1, 0>},
    {"gt", ordered<1, 1>},
    {"greaterthan", ordered<1, 1>},
    {">", ordered<1, 1>},
    {"ge", ordered<0, 1>},
    {">=", ordered<0, 1>},
    {"odd", [](Calls& c, const Value& v, const Args&) { return c.integer(v, "odd") % 2 != 0; }},
    {"even", [](Calls& c, const Value& v, const Args&) { return c.integer(v, "even") % 2 == 0; }},
    {"divisibleby",
     [](Calls& c, const Value& v, const Args& a) {
       const std::int64_t by = c.integer(operand(c, a), "divisibleby");
       if (by == 0)
         c.budget.refuse("divisibleby 0");
       return by == -1 || c.integer(v, "divisibleby") % by == 0;
     }},
    {"lower",
     [](Calls& c, const Value& v, const Args&) {
       return c.method(Value(to_text(v, c.budget)), "islower", {}).truth();
     }},
    {"upper",
     [](Calls& c, const Value& v, const Args&) {
       return c.method(Value(to_text(v, c.budget)), "isupper", {}).truth();
     }},
};

template <class Table>
auto find_in(const Table& table, std::string_view name) {
  return std::find_if(std::begin(table), std::end(table),
                      [&](const auto& entry) { return entry.name == name; });
}

} // namespace

bool is_filter(std::string_view name) {
  return find_in(kFilters, name) != std::end(kFilters);
}
bool is_test(std::string_view name) {
  return find_in(kTests, name) != std::end(kTests);
}

Value Calls::filter(std::string_view name, const Value& value, const CallArguments& arguments) {
  budget.charge(1);
  return find_in(kFilters, name)->run(*this, value, arguments);
}

bool Calls::test(std::string_view name, const Value& value, const CallArguments& arguments) {
  budget.charge(1);
  return find_in(kTests, name)->run(*this, value, arguments);
}

} // namespace egret::text::jinja

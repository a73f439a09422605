// Values of templates: those of Python that templates meet.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace egret::text::jinja {

/// What a rendering has used, and where it is.
struct Budget {
  static constexpr std::size_t kMostItems = std::size_t{1} << 20; ///< of a list
  std::string name;                                               ///< starts messages
  int line = 0;                                                   ///< of what is computed now
  std::uint64_t steps = 0;                                        ///< that are left
  std::uint64_t most_bytes = 0;                                   ///< of a text

  void charge(std::uint64_t count);                       ///< Error(Value) when no steps are left
  void charge_text(std::uint64_t bytes);                  ///< the same for a text that is made
  void check_items(std::size_t items) const;              ///< Error(Value) for a list so long
  [[noreturn]] void refuse(const std::string& why) const; ///< Error(Value) with the line
};

class Value;
struct List;
struct Dict;
struct Loop;
struct Macro;

struct Undefined {
  std::string name; ///< as messages show it
};
struct None {};

/// Names a method of a value, a global function or a macro.
struct Callable;

class Value {
public:
  using Text = std::shared_ptr<const std::string>;
  using Any = std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<List>,
                           std::shared_ptr<Dict>, std::shared_ptr<Loop>, std::shared_ptr<Callable>>;

  Value() : any_(Undefined{}) {}
  Value(Undefined v) : any_(std::move(v)) {}
  Value(None v) : any_(v) {}
  Value(bool v) : any_(v) {}
  Value(std::int64_t v) : any_(v) {}
  Value(double v) : any_(v) {}
  Value(std::string v) : any_(std::make_shared<const std::string>(std::move(v))) {}
  Value(std::string_view v) : Value(std::string(v)) {}
  Value(const char* v) : Value(std::string(v)) {}
  Value(std::shared_ptr<List> v) : any_(std::move(v)) {}
  Value(std::shared_ptr<Dict> v) : any_(std::move(v)) {}
  Value(std::shared_ptr<Loop> v) : any_(std::move(v)) {}
  Value(std::shared_ptr<Callable> v) : any_(std::move(v)) {}

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(any_);
  }
  template <class T>
  const T& as() const {
    return std::get<T>(any_);
  }
  bool undefined() const { return is<Undefined>(); }
  bool none() const { return is<None>(); }
  bool is_text() const { return is<Text>(); }
  bool is_list() const { return is<std::shared_ptr<List>>(); }
  bool is_dict() const { return is<std::shared_ptr<Dict>>(); }
  bool is_number() const { return is<bool>() || is<std::int64_t>() || is<double>(); }
  bool is_integer() const { return is<bool>() || is<std::int64_t>(); }
  const std::string& text() const { return *as<Text>(); }
  const List& list() const { return *as<std::shared_ptr<List>>(); }
  const Dict& dict() const { return *as<std::shared_ptr<Dict>>(); }
  std::int64_t integer() const { return is<bool>() ? (as<bool>() ? 1 : 0) : as<std::int64_t>(); }
  double number() const { return is<double>() ? as<double>() : static_cast<double>(integer()); }

  bool truth() const;
  const char* type_name() const;

private:
  Any any_;
};

/// No list or dictionary nests deeper.
inline constexpr std::size_t kMostDepth = 200;

struct List {
  std::vector<Value> items;
  bool tuple = false;
  std::size_t depth = 1;
};

/// Keys are texts, in the order in which they were set.
struct Dict {
  std::vector<std::pair<std::string, Value>> items;
  bool is_namespace = false; ///< the only kind that statements change
  std::size_t depth = 1;

  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);

private:
  std::unordered_map<std::string, std::size_t> index_; ///< once there are many
};

/// The variable "loop".
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
  Value last_changed; ///< of changed()
};

struct Callable {
  std::string name;
  Value self;                   ///< of a method
  const Macro* macro = nullptr; ///< owned by the template
};

/// Throws when the parts nest too deep or hold a namespace or a loop.
Value make_list(std::vector<Value> items, Budget& budget, bool tuple = false);
std::size_t depth_of(const Value& value, Budget& budget);

bool equal(const Value& a, const Value& b, Budget& budget);
/// Below 0, 0, above 0; refuses values without an order.
int compare(const Value& a, const Value& b, Budget& budget);

std::string to_text(const Value& value, Budget& budget); ///< Python's str()
void append_repr(const Value& value, std::string& out, Budget& budget);

struct JsonStyle {
  int indent = -1; ///< -1: one line
  std::string item_separator = ", ", key_separator = ": ";
  bool ascii = false, sorted = false;
};
std::string to_json(const Value& value, const JsonStyle& style, Budget& budget);

/// From JSON; Error(Parse) that begins with `name`.
Value from_json(std::string_view json, const std::string& name);

/// The items that a for statement visits: of lists, keys of dictionaries, characters of texts.
std::shared_ptr<const List> items_of(const Value& value, Budget& budget);

bool is_python_space(char32_t c);

} // namespace egret::text::jinja

#include "text/template_interpreter.h"

#include "support/printable.h"
#include "text/template_calls.h"

#include <cmath>
#include <ctime>
#include <fmt/format.h>
#include <unordered_map>

namespace egret::text::jinja {

namespace {

constexpr int kMostLevels = 800; ///< of statements and expressions, across calls of macros
constexpr int kCallLevels = 10;  ///< that a call of a macro counts as: it takes so much more stack
constexpr std::int64_t kMostRange = 100'000;

enum class Flow { Next, Break, Continue };

struct Scope {
  explicit Scope(Scope* outer) : parent(outer) {}
  std::unordered_map<std::string, Value> names;
  Scope* parent;
};

class Interpreter {
public:
  Interpreter(const Dict& variables, Budget& budget, std::int64_t now)
      : variables_(variables), budget_(budget), calls_{budget}, now_(now) {}

  std::string run(const Block& block) {
    std::string out;
    execute(block, out);
    return out;
  }

private:
  // Statements.

  Flow execute(const Block& block, std::string& out) {
    for (const auto& stmt : block)
      if (const Flow flow = execute(*stmt, out); flow != Flow::Next)
        return flow;
    return Flow::Next;
  }

  void emit(std::string_view text, std::string& out) {
    out += text;
    budget_.charge(1 + text.size() / 16);
    if (out.size() > budget_.most_bytes)
      budget_.charge_text(out.size());
  }

  Flow execute(const Stmt& s, std::string& out) {
    const Level level(*this);
    budget_.line = s.line;
    budget_.charge(1);
    switch (s.kind) {
    case Stmt::Kind::Text:
      emit(s.text, out);
      break;
    case Stmt::Kind::Print:
      emit(to_text(eval(*s.expr), budget_), out);
      break;
    case Stmt::Kind::If:
      for (const auto& [condition, body] : s.branches)
        if (!condition || eval(*condition).truth())
          return execute(body, out);
      break;
    case Stmt::Kind::For:
      return loop(s, out);
    case Stmt::Kind::Set:
      assign(s.target, eval(*s.expr));
      break;
    case Stmt::Kind::SetBlock: {
      std::string text = captured(s.body);
      assign(s.target, s.expr ? filter_text(*s.expr, std::move(text)) : Value(std::move(text)));
      break;
    }
    case Stmt::Kind::Filter:
      emit(to_text(filter_text(*s.expr, captured(s.body)), budget_), out);
      break;
    case Stmt::Kind::With: {
      std::vector<Value> values;
      for (const auto& [target, expr] : s.assignments)
        values.push_back(eval(*expr));
      const Within scope(*this);
      for (std::size_t i = 0; i < values.size(); ++i)
        assign(s.assignments[i].first, values[i]);
      return execute(s.body, out);
    }
    case Stmt::Kind::Macro:
      assign({{s.macro->name}, false, ""}, function(s.macro->name, s.macro.get()));
      break;
    case Stmt::Kind::Call: {
      CallArguments arguments = evaluated(s.expr->arguments);
      arguments.named.emplace_back("caller", function("caller", s.macro.get()));
      emit(to_text(call(eval(*s.expr->parts[0]), arguments), budget_), out);
      break;
    }
    case Stmt::Kind::Scope:
      return execute(s.body, out);
    case Stmt::Kind::Break:
      return Flow::Break;
    case Stmt::Kind::Continue:
      return Flow::Continue;
    }
    return Flow::Next;
  }

  /// A scope while it lives.
  class Within {
  public:
    explicit Within(Interpreter& i, bool from_root = false)
        : interpreter_(i), before_(i.scope_), scope_(from_root ? &i.root_ : i.scope_) {
      i.scope_ = &scope_;
    }
    ~Within() { interpreter_.scope_ = before_; }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

  private:
    Interpreter& interpreter_;
    Scope* before_;
    Scope scope_;
  };

  /// Counts how deep statements and expressions are computed inside each other: each takes stack.
  class Level {
  public:
    explicit Level(Interpreter& i, int count = 1) : interpreter_(i), count_(count) {
      if (interpreter_.levels_ + count_ > kMostLevels)
        interpreter_.budget_.refuse(
            fmt::format("more than {} statements and expressions inside each other", kMostLevels));
      interpreter_.levels_ += count_;
    }
    ~Level() { interpreter_.levels_ -= count_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

  private:
    Interpreter& interpreter_;
    int count_;
  };

  std::string captured(const Block& body) {
    const Within scope(*this);
    std::string text;
    execute(body, text);
    return text;
  }

  Flow loop(const Stmt& s, std::string& out) {
    auto items = items_of(eval(*s.expr), budget_);
    if (s.condition) {
      auto kept = std::make_shared<List>();
      for (const Value& item : items->items) {
        const Within scope(*this);
        assign(s.target, item);
        if (eval(*s.condition).truth())
          kept->items.push_back(item);
      }
      items = std::move(kept);
    }
    if (items->items.empty())
      return execute(s.otherwise, out);
    auto state = std::make_shared<Loop>();
    state->items = items;
    for (std::size_t i = 0; i < items->items.size(); ++i) {
      budget_.line = s.line;
      budget_.charge(1);
      const Within scope(*this);
      state->index = i;
      scope_->names["loop"] = state;
      assign(s.target, items->items[i]);
      if (execute(s.body, out) == Flow::Break)
        break;
    }
    return Flow::Next;
  }

  void assign(const Target& target, const Value& value) {
    if (!target.attribute.empty()) {
      const Value* space = find(target.names[0]);
      if (space == nullptr || !space->is_dict() || !space->dict().is_namespace)
        budget_.refuse(fmt::format("'{}' is not a namespace", printable(target.names[0])));
      static_cast<void>(depth_of(value, budget_));
      space->as<std::shared_ptr<Dict>>()->set(target.attribute, value);
      return;
    }
    if (!target.unpack) {
      scope_->names[target.names[0]] = value;
      return;
    }
    const auto items = items_of(value, budget_);
    if (items->items.size() != target.names.size())
      budget_.refuse(
          fmt::format("{} values for {} names", items->items.size(), target.names.size()));
    for (std::size_t i = 0; i < target.names.size(); ++i)
      scope_->names[target.names[i]] = items->items[i];
  }

  const Value* find(const std::string& name) const {
    for (const Scope* s = scope_; s != nullptr; s = s->parent)
      if (const auto place = s->names.find(name); place != s->names.end())
        return &place->second;
    return variables_.find(name);
  }

  static Value function(std::string name, const Macro* macro = nullptr) {
    auto out = std::make_shared<Callable>();
    out->name = std::move(name);
    out->macro = macro;
    return out;
  }

  // Expressions.

  Value eval(const Expr& e) {
    const Level level(*this);
    budget_.charge(1);
    budget_.line = e.line;
    auto part = [&](std::size_t i) { return eval(*e.parts[i]); };
    auto part_or = [&](std::size_t i) { return e.parts[i] ? eval(*e.parts[i]) : Value(None{}); };
    using K = Expr::Kind;
    switch (e.kind) {
    case K::Constant:
      return e.value;
    case K::Name:
      return name(e.name);
    case K::List:
    case K::Tuple:
      return make_list(all(e.parts), budget_, e.kind == K::Tuple);
    case K::Dict:
      return dict(e);
    case K::Attribute:
      return calls_.attribute(part(0), e.name);
    case K::Item: {
      const Value of = part(0);
      return calls_.item(of, part(1));
    }
    case K::Slice: {
      const Value of = part(0), begin = part_or(1), end = part_or(2);
      return calls_.slice(of, begin, end, part_or(3));
    }
    case K::Call: {
      const Value callee = part(0);
      return call(callee, evaluated(e.arguments));
    }
    case K::Filter: {
      const Value of = part(0);
      return calls_.filter(e.name, of, evaluated(e.arguments));
    }
    case K::Test: {
      const Value of = part(0);
      return calls_.test(e.name, of, evaluated(e.arguments));
    }
    case K::Not:
      return !part(0).truth();
    case K::Negate:
    case K::Plus:
      return signed_value(part(0), e.kind == K::Negate);
    case K::And:
    case K::Or: {
      Value left = part(0);
      return left.truth() == (e.kind == K::Or) ? left : part(1);
    }
    case K::Conditional:
      return part(1).truth() ? part(0)
             : e.parts[2]    ? part(2)
                             : Value(Undefined{"an if without else"});
    case K::Compare:
      return comparison(e);
    case K::Concat: {
      std::string out;
      for (const ExprPtr& one : e.parts)
        emit(to_text(eval(*one), budget_), out);
      return out;
    }
    default: {
      const Value left = part(0);
      return arithmetic(e.kind, left, part(1));
    }
    }
  }

  std::vector<Value> all(const std::vector<ExprPtr>& parts) {
    std::vector<Value> out;
    out.reserve(parts.size());
    for (const ExprPtr& part : parts)
      out.push_back(eval(*part));
    return out;
  }

  CallArguments evaluated(const Arguments& arguments) {
    CallArguments out;
    out.positional = all(arguments.positional);
    for (const auto& [key, expr] : arguments.named)
      out.named.emplace_back(key, eval(*expr));
    return out;
  }

  Value filter_text(const Expr& chain, std::string text) {
    const Level level(*this);
    const Value of =
        chain.parts[0] ? filter_text(*chain.parts[0], std::move(text)) : Value(std::move(text));
    return calls_.filter(chain.name, of, evaluated(chain.arguments));
  }

  Value name(const std::string& name) {
    if (const Value* found = find(name))
      return *found;
    for (const char* known : {"range", "namespace", "dict", "raise_exception", "strftime_now"})
      if (name == known)
        return function(name);
    return Undefined{name};
  }

  Value dict(const Expr& e) {
    auto out = std::make_shared<Dict>();
    for (std::size_t i = 0; i < e.parts.size(); i += 2) {
      const Value key = eval(*e.parts[i]), value = eval(*e.parts[i + 1]);
      put(*out, calls_.text(key, "a key"), value);
    }
    return out;
  }
  void put(Dict& dict, std::string_view key, const Value& value) {
    dict.depth = std::max(dict.depth, depth_of(value, budget_) + 1);
    if (dict.depth > kMostDepth)
      budget_.refuse("dictionaries inside each other, too deep");
    dict.set(key, value);
  }

  Value comparison(const Expr& e) {
    Value left = eval(*e.parts[0]);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      const Value right = eval(*e.parts[i + 1]);
      const std::string& op = e.operators[i];
      const bool held = op == "not in" ? !calls_.test("in", left, {{right}, {}})
                                       : calls_.test(op, left, {{right}, {}});
      if (!held)
        return false;
      left = right;
    }
    return true;
  }

  Value signed_value(const Value& v, bool negate) {
    if (v.is<double>())
      return negate ? -v.number() : v.number();
    const std::int64_t value = calls_.integer(v, "a sign");
    if (negate && value == INT64_MIN)
      budget_.refuse("an integer of more than 64 bits");
    return negate ? -value : value;
  }

  Value repeated(const Value& of, std::int64_t count) {
    count = std::max<std::int64_t>(count, 0);
    if (of.is_text()) {
      std::uint64_t bytes = 0;
      if (__builtin_mul_overflow(of.text().size(), static_cast<std::uint64_t>(count), &bytes))
        bytes = ~std::uint64_t{0};
      budget_.charge_text(bytes);
      std::string out;
      for (std::int64_t i = 0; i < count && !of.text().empty(); ++i)
        out += of.text();
      return out;
    }
    std::vector<Value> out;
    for (std::int64_t i = 0; i < count && !of.list().items.empty(); ++i) {
      budget_.charge(of.list().items.size());
      budget_.check_items(out.size() + of.list().items.size());
      out.insert(out.end(), of.list().items.begin(), of.list().items.end());
    }
    return make_list(std::move(out), budget_, of.list().tuple);
  }

  Value arithmetic(Expr::Kind kind, const Value& a, const Value& b) {
    using K = Expr::Kind;
    if (kind == K::Add)
      return calls_.add(a, b);
    if (kind == K::Multiply && (a.is_text() || a.is_list()) && b.is_integer())
      return repeated(a, b.integer());
    if (kind == K::Multiply && (b.is_text() || b.is_list()) && a.is_integer())
      return repeated(b, a.integer());
    if (!a.is_number() || !b.is_number()) {
      const Value& odd = a.is_number() ? b : a;
      if (odd.undefined())
        budget_.refuse(fmt::format("'{}' is undefined", printable(odd.as<Undefined>().name)));
      budget_.refuse(fmt::format("arithmetic on {} and {}", a.type_name(), b.type_name()));
    }
    const bool zero = b.number() == 0;
    if (zero && (kind == K::Divide || kind == K::FloorDivide || kind == K::Modulo))
      budget_.refuse("division by zero");
    if (a.is_integer() && b.is_integer() && kind != K::Divide)
      return integers(kind, a.integer(), b.integer());
    const double x = a.number(), y = b.number();
    switch (kind) {
    case K::Subtract:
      return x - y;
    case K::Multiply:
      return x * y;
    case K::Divide:
      return x / y;
    case K::FloorDivide:
      return std::floor(x / y);
    case K::Modulo:
      return x - y * std::floor(x / y);
    default:
      return std::pow(x, y);
    }
  }

  Value integers(Expr::Kind kind, std::int64_t x, std::int64_t y) {
    using K = Expr::Kind;
    std::int64_t out = 0;
    bool overflow = false;
    switch (kind) {
    case K::Subtract:
      overflow = __builtin_sub_overflow(x, y, &out);
      break;
    case K::Multiply:
      overflow = __builtin_mul_overflow(x, y, &out);
      break;
    case K::FloorDivide:
    case K::Modulo: {
      overflow = x == INT64_MIN && y == -1;
      if (overflow)
        break;
      const bool down = x % y != 0 && (x % y < 0) != (y < 0); // Python rounds down
      out = kind == K::FloorDivide ? x / y - (down ? 1 : 0) : x % y + (down ? y : 0);
      break;
    }
    default:
      if (y < 0)
        return std::pow(static_cast<double>(x), static_cast<double>(y));
      out = 1;
      for (std::int64_t i = 0; i < y && !overflow && out != 0; ++i) {
        budget_.charge(1);
        overflow = __builtin_mul_overflow(out, x, &out);
      }
    }
    if (overflow)
      budget_.refuse("an integer of more than 64 bits");
    return out;
  }

  // Calls.

  Value call(const Value& callee, const CallArguments& arguments) {
    if (callee.undefined())
      budget_.refuse(fmt::format("'{}' is undefined", printable(callee.as<Undefined>().name)));
    if (!callee.is<std::shared_ptr<Callable>>())
      budget_.refuse(fmt::format("{} cannot be called", callee.type_name()));
    const std::shared_ptr<Callable> f = callee.as<std::shared_ptr<Callable>>();
    if (f->macro != nullptr)
      return call_macro(*f->macro, arguments);
    if (!f->self.undefined())
      return calls_.method(f->self, f->name, arguments);
    if (f->name == "namespace" || f->name == "dict")
      return make_dict(arguments, f->name == "namespace");
    if (f->name == "range")
      return range(arguments);
    if (f->name == "strftime_now")
      return time_text(
          calls_.text(arguments.find(0, "format").value_or(Undefined{}), "strftime_now"));
    budget_.refuse(fmt::format("the template says: {}",
                               to_text(arguments.find(0, "message").value_or(""), budget_)));
  }

  Value make_dict(const CallArguments& arguments, bool is_namespace) {
    auto out = std::make_shared<Dict>();
    for (const Value& from : arguments.positional) {
      if (!from.is_dict())
        budget_.refuse("a dictionary is needed");
      for (const auto& [key, value] : from.dict().items)
        put(*out, key, value);
    }
    for (const auto& [key, value] : arguments.named)
      put(*out, key, value);
    out->is_namespace = is_namespace;
    return out;
  }

  Value range(const CallArguments& arguments) {
    if (arguments.positional.empty() || arguments.positional.size() > 3)
      budget_.refuse("range() takes one to three integers");
    std::int64_t bounds[3] = {0, 0, 1};
    const std::size_t count = arguments.positional.size();
    for (std::size_t i = 0; i < count; ++i)
      bounds[count == 1 ? 1 : i] = calls_.integer(arguments.positional[i], "range()");
    if (bounds[2] == 0)
      budget_.refuse("range() with step 0");
    std::vector<Value> out;
    for (std::int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1];) {
      if (static_cast<std::int64_t>(out.size()) >= kMostRange)
        budget_.refuse(fmt::format("range() of more than {} integers", kMostRange));
      out.emplace_back(i);
      if (__builtin_add_overflow(i, bounds[2], &i))
        break;
    }
    return make_list(std::move(out), budget_);
  }

  Value time_text(const std::string& format) {
    const auto seconds = static_cast<std::time_t>(now_);
    std::tm parts{};
    if (format.size() > 200 || gmtime_r(&seconds, &parts) == nullptr)
      budget_.refuse("strftime_now: a format of more than 200 bytes");
    char text[8192];
    return std::string(text, std::strftime(text, sizeof text, format.c_str(), &parts));
  }

  Value call_macro(const Macro& macro, const CallArguments& arguments) {
    const Level level(*this, kCallLevels);
    const int line = budget_.line;
    std::string out;
    {
      const Within scope(*this, true);
      if (arguments.positional.size() > macro.parameters.size())
        budget_.refuse(
            fmt::format("'{}' takes {} arguments", printable(macro.name), macro.parameters.size()));
      const std::size_t required = macro.parameters.size() - macro.defaults.size();
      for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
        auto value = arguments.find(i, macro.parameters[i]);
        if (!value)
          value = i >= required ? eval(*macro.defaults[i - required])
                                : Value(Undefined{macro.parameters[i]});
        scope_->names[macro.parameters[i]] = *value;
      }
      if (const auto caller = arguments.find(~std::size_t{0}, "caller"))
        scope_->names["caller"] = *caller;
      execute(macro.body, out);
    }
    budget_.line = line;
    return out;
  }

  const Dict& variables_;
  Budget& budget_;
  Calls calls_;
  std::int64_t now_;
  Scope root_{nullptr};
  Scope* scope_ = &root_;
  int levels_ = 0;
};

} // namespace

Value Calls::add(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) {
    budget.charge_text(a.text().size() + b.text().size());
    return a.text() + b.text();
  }
  if (a.is_list() && b.is_list() && a.list().tuple == b.list().tuple) {
    budget.check_items(a.list().items.size() + b.list().items.size());
    std::vector<Value> out = a.list().items;
    out.insert(out.end(), b.list().items.begin(), b.list().items.end());
    return make_list(std::move(out), budget, a.list().tuple);
  }
  if (a.is_integer() && b.is_integer()) {
    std::int64_t out = 0;
    if (__builtin_add_overflow(a.integer(), b.integer(), &out))
      budget.refuse("an integer of more than 64 bits");
    return out;
  }
  if (a.is_number() && b.is_number())
    return a.number() + b.number();
  for (const Value* one : {&a, &b})
    if (one->undefined())
      budget.refuse(fmt::format("'{}' is undefined", printable(one->as<Undefined>().name)));
  budget.refuse(fmt::format("{} + {}", a.type_name(), b.type_name()));
}

std::string render(const Block& block, const Dict& variables, Budget& budget, std::int64_t now) {
  return Interpreter(variables, budget, now).run(block);
}

} // namespace egret::text::jinja

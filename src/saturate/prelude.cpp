// The program that every e-graph of tensors begins with, from the op table.
#include "saturate/terms.h"
#include "support/fail.h"

#include <array>
#include <fmt/ranges.h>
#include <set>

namespace egret::saturate {

namespace {

Form parsed_form(const OpInfo& row) {
  Form form;
  std::string_view text = row.term;
  ensure(text.size() > 2 && text.front() == '(' && text.back() == ')', "term {} of {}", text,
         row.name);
  text = text.substr(1, text.size() - 2);
  for (bool first = true; !text.empty(); first = false) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string word(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
    if (first)
      form.head = word;
    else if (word == "a" || word == "b" || word == "c")
      ++form.operands;
    else
      form.attributes.push_back(word);
  }
  ensure(form.operands == row.arity, "term {} of {}", row.term, row.name);
  return form;
}

bool is_number(const std::string& attribute) {
  return attribute == "slot" || attribute == "axes" || attribute == "axis" ||
         attribute == "by_value";
}

/// Writes rules: {e} of the op with operands a b c is `term_`.
class Writer {
public:
  std::string run() {
    line("; Terms, from the op table (src/ir/op.cpp). Attributes are text, sets of axes are bits.");
    line("(sort Tensor)");
    std::set<std::string> heads;
    for (int i = 0; i < kOps; ++i) {
      const Form& form = form_of(static_cast<Op>(i));
      if (!heads.insert(form.head).second)
        continue;
      std::vector<std::string> sorts;
      for (const std::string& attribute : form.attributes)
        sorts.push_back(is_number(attribute) ? "i64" : "String");
      sorts.insert(sorts.end(), static_cast<std::size_t>(form.operands), "Tensor");
      line("(constructor {} ({}) Tensor)", form.head, fmt::join(sorts, " "));
    }
    line(
        "; What is known of a tensor: its type; the number that it holds everywhere, if one does;");
    line("; the dims along which it can differ.");
    line("(function type (Tensor) String :no-merge)");
    line("(function value (Tensor) String :merge old)");
    line("(function dep (Tensor) i64 :merge (& old new))");
    for (const char* group : {kAnalysis, kFold, kPull})
      line("(ruleset {})", group);
    std::set<std::string> done;
    for (int i = 0; i < kOps; ++i) {
      op_ = static_cast<Op>(i);
      if (done.insert(form_of(op_).head).second)
        op();
    }
    line("; A tensor of one known number is a constant.");
    line("(rule ((= v (value e)) (= t (type e))) ((union e (Fill t v))) :ruleset fold :name "
         "\"fold\")");
    return std::move(text_);
  }

private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  /// An analysis rule about `e`, which is the op's term; its attributes go by their names, its
  /// operands are a, b and c.
  void analysis(const char* what, const std::string& facts, const std::string& value) {
    line("(rule ((= e {}) {}) ((set ({} e) {})) :ruleset analysis :name \"{} of {}\")",
         renamed(info_of(op_).term), facts, what, value, what, form_of(op_).head);
  }

  void op() {
    const OpInfo& row = info_of(op_);
    switch (row.cls) {
    case OpClass::Source:
      // the attributes hold the type
      line("(rule ((= e {0})) ((set (type e) type_)) :ruleset analysis :name \"type of {1}\")",
           renamed(row.term), form_of(op_).head);
      if (op_ == Op::Constant) {
        line("(rule ((= e (Fill type_ scalar))) ((set (value e) scalar) (set (dep e) 0)) :ruleset "
             "analysis :name \"value of Fill\")");
        break;
      }
      line("(rule ((= e {0})) ((set (dep e) (dims-dep type_))) :ruleset analysis :name \"dep of "
           "{1}\")",
           renamed(row.term), form_of(op_).head);
      break;
    case OpClass::Sort: // likewise
      line("(rule ((= e {0})) ((set (type e) type_)) :ruleset analysis :name \"type of {1}\")",
           renamed(row.term), form_of(op_).head);
      analysis("dep", "(= t (type e))", "(dims-dep t)");
      break;
    case OpClass::Convert:
      analysis("type", "(= t (type a))", "(with-dtype t dtype)");
      elementwise();
      break;
    case OpClass::Reduce:
      analysis("type", "(= t (type a))", fmt::format("(type-of-reduce \"{}\" axes t)", row.name));
      analysis("dep", "(= d (dep a))", "(axes-without d axes)");
      break;
    case OpClass::Scan:
    case OpClass::Scatter:
      analysis("type", "(= t (type a))", "t");
      analysis("dep", "(= t (type a))", "(dims-dep t)");
      break;
    case OpClass::Gather:
      analysis("type", "(= t (type a)) (= u (type b))", "(type-of-gather axis t u)");
      analysis("dep", "(= t (type e))", "(dims-dep t)");
      break;
    case OpClass::Movement:
      analysis("type", "(= t (type a))", "(type-of-view t moves)");
      analysis("dep", "(= t (type a)) (= d (dep a))", "(view-dep t moves d)");
      analysis("value", "(= t (type a)) (= v (value a)) (= w (view-value t moves v))", "w");
      break;
    default:
      analysis("type", op_ == Op::Select ? "(= t (type b))" : "(= t (type a))",
               row.dtypes == DTypeRule::Compare ? "(with-dtype t \"bool\")" : "t");
      elementwise();
    }
  }

  /// "type" is a function's name and so no variable.
  static std::string renamed(std::string_view term) {
    std::string text(term);
    const std::size_t at = text.find(" type");
    return at == std::string::npos ? text : text.replace(at, 5, " type_");
  }

  /// The op's term over operands written as `operands`.
  std::string over(const std::vector<std::string>& operands) const {
    const Form& form = form_of(op_);
    std::string text = fmt::format("({}", form.head);
    for (const std::string& attribute : form.attributes)
      text += " " + attribute;
    for (const std::string& operand : operands)
      text += " " + operand;
    return text + ")";
  }

  void elementwise() {
    static const std::array<const char*, 3> kOperand{"a", "b", "c"};
    const int arity = info_of(op_).arity;
    std::string values, numbers, deps, dep;
    for (int i = 0; i < arity; ++i) {
      const char* x = kOperand[static_cast<std::size_t>(i)];
      values += fmt::format("(= v{0} (value {0})) ", x);
      numbers += fmt::format(" v{}", x);
      deps += fmt::format("(= d{0} (dep {0})) ", x);
      dep = i == 0 ? "da" : fmt::format("(| {} d{})", dep, x);
    }
    analysis("dep", deps, dep);
    analysis("value",
             values +
                 fmt::format("(= t (type e)) (= w (apply \"{}\" t{}))", info_of(op_).name, numbers),
             "w");
    pull(arity);
    narrow(arity);
  }

  /// Where f(x, y) does not vary along some dims, it is computed for their first elements and then
  /// repeated.
  void narrow(int arity) {
    std::vector<std::string> whole, first;
    for (int i = 0; i < arity; ++i) {
      whole.emplace_back(1, static_cast<char>('a' + i));
      first.push_back(fmt::format("(View m {})", whole.back()));
    }
    // The operands have e's shape, so that moves of its type are moves of theirs.
    line("(rule ((= e {}) (= t (type e)) (= d (dep e)) (= s (repeated-dims t d)) (= m (first-along "
         "t "
         "s)) (= n (spread-along t s))) ((union e (View n {}))) :ruleset pull :name \"narrow-{}\")",
         over(whole), over(first), info_of(op_).name);
  }

  /// f(view x, view y) = view f(x, y), some operands being constants, where the source is no
  /// larger. One rule for each choice of operands.
  void pull(int arity) {
    for (int moved = 1; moved < 1 << arity; ++moved) {
      std::vector<std::string> before, after;
      std::string facts, first;
      for (int i = 0; i < arity; ++i) {
        const char x = static_cast<char>('a' + i);
        if ((moved >> i & 1) != 0) {
          before.push_back(fmt::format("(View m {})", x));
          after.emplace_back(1, x);
          facts += first.empty() ? fmt::format("(= t (type {})) ", x)
                                 : fmt::format("(= t{0} (type {0})) (= t (with-dtype t{0} t)) ", x);
          first = x;
        } else {
          before.emplace_back(1, x);
          after.push_back(fmt::format("(Fill (with-dtype t v{0}) v{0})", x));
          facts += fmt::format("(= v{0} (value {0})) ", x);
        }
      }
      line("(rule ((= e {}) {}(is-total t m) (keeps-size t m)) ((union e (View m {}))) :ruleset "
           "pull :name \"pull-{}-{}\")",
           over(before), facts, over(after), info_of(op_).name, moved);
    }
  }

  std::string text_;
  Op op_ = Op::Input;
};

} // namespace

const Form& form_of(Op op) {
  static const std::array<Form, kOps> forms = [] {
    std::array<Form, kOps> made;
    for (int i = 0; i < kOps; ++i)
      made[static_cast<std::size_t>(i)] = parsed_form(info_of(static_cast<Op>(i)));
    return made;
  }();
  return forms[static_cast<std::size_t>(op)];
}

std::string prelude() {
  return Writer().run();
}

} // namespace egret::saturate

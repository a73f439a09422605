#include "support/fail.h"
#include "support/printable.h"
#include "text/template_ast.h"
#include "text/template_lexer.h"

#include <algorithm>

namespace egret::text::jinja {

namespace {

constexpr int kMostNested = 200; ///< of statements, and of expressions

class Parser {
public:
  Parser(std::string_view text, const std::string& name)
      : name_(name), tokens_(tokenize(text, name)) {}

  Block run() {
    Block block = body({});
    if (token().kind != Token::Kind::End)
      refuse("a block ends that has not begun");
    return block;
  }

private:
  using Kind = Expr::Kind;
  using T = Token::Kind;

  const Token& token(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_.back(); }
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorKind::Parse, "{}: line {}: {}", name_, token().line, why);
  }
  [[noreturn]] void unsupported(const std::string& what) const {
    fail(ErrorKind::Unsupported, "{}: line {}: {} is not known", name_, token().line, what);
  }
  std::string shown() const {
    switch (token().kind) {
    case T::End:
      return "the end of the template";
    case T::PrintEnd:
      return "'}}'";
    case T::BlockEnd:
      return "'%}'";
    default:
      return fmt::format("'{}'", printable(token().text));
    }
  }
  bool skip_op(std::string_view op) { return token().op(op) && (take(), true); }
  bool skip_name(std::string_view name) { return token().name(name) && (take(), true); }
  void expect_op(std::string_view op) {
    if (!skip_op(op))
      refuse(fmt::format("'{}' is needed, not {}", op, shown()));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name))
      refuse(fmt::format("'{}' is needed, not {}", name, shown()));
  }
  std::string identifier() {
    if (token().kind != T::Name)
      refuse(fmt::format("a name is needed, not {}", shown()));
    return take().text;
  }
  void end_block() {
    if (token().kind != T::BlockEnd)
      refuse(fmt::format("'%}}' is needed, not {}", shown()));
    take();
  }

  /// Counts how deep the parser is within itself.
  struct Nest {
    explicit Nest(Parser& p) : parser(p) {
      if (++parser.nested_ > kMostNested)
        parser.refuse(fmt::format("more than {} levels of nesting", kMostNested));
    }
    ~Nest() { --parser.nested_; }
    Parser& parser;
  };

  ExprPtr node(Kind kind, std::vector<ExprPtr> parts = {}) {
    auto out = std::make_unique<Expr>();
    out->kind = kind;
    out->line = token().line;
    out->parts = std::move(parts);
    for (const ExprPtr& part : out->parts)
      put_inside(*out, part);
    return out;
  }
  void put_inside(Expr& outer, const ExprPtr& inner) {
    outer.depth = std::max(outer.depth, (inner ? inner->depth : 0) + 1);
    if (outer.depth > 2 * kMostNested)
      refuse(fmt::format("an expression of more than {} levels", 2 * kMostNested));
  }
  void give(Expr& out, Arguments arguments) {
    for (const ExprPtr& one : arguments.positional)
      put_inside(out, one);
    for (const auto& [name, one] : arguments.named)
      put_inside(out, one);
    out.arguments = std::move(arguments);
  }
  template <class... Parts>
  ExprPtr node_of(Kind kind, Parts... parts) {
    std::vector<ExprPtr> all;
    (all.push_back(std::move(parts)), ...);
    return node(kind, std::move(all));
  }
  ExprPtr constant(Value value) {
    ExprPtr out = node(Kind::Constant);
    out->value = std::move(value);
    return out;
  }

  // Expressions, from the weakest operator to the strongest.

  ExprPtr expression() {
    const Nest nest(*this);
    ExprPtr out = either();
    while (skip_name("if")) {
      ExprPtr condition = either(), otherwise;
      if (skip_name("else"))
        otherwise = expression();
      out = node_of(Kind::Conditional, std::move(out), std::move(condition), std::move(otherwise));
    }
    return out;
  }
  ExprPtr either() {
    ExprPtr out = both();
    while (skip_name("or"))
      out = node_of(Kind::Or, std::move(out), both());
    return out;
  }
  ExprPtr both() {
    ExprPtr out = negation();
    while (skip_name("and"))
      out = node_of(Kind::And, std::move(out), negation());
    return out;
  }
  ExprPtr negation() {
    const Nest nest(*this);
    if (skip_name("not"))
      return node_of(Kind::Not, negation());
    return comparison();
  }
  ExprPtr comparison() {
    std::vector<ExprPtr> parts;
    std::vector<std::string> operators;
    parts.push_back(sum());
    while (true) {
      if (token().kind == T::Operator &&
          (token().text == "==" || token().text == "!=" || token().text == "<" ||
           token().text == "<=" || token().text == ">" || token().text == ">="))
        operators.push_back(take().text);
      else if (skip_name("in"))
        operators.emplace_back("in");
      else if (token().name("not") && token(1).name("in"))
        take(), take(), operators.emplace_back("not in");
      else
        break;
      parts.push_back(sum());
    }
    if (operators.empty())
      return std::move(parts[0]);
    ExprPtr out = node(Kind::Compare, std::move(parts));
    out->operators = std::move(operators);
    return out;
  }
  ExprPtr sum() {
    ExprPtr out = concatenation();
    while (true) {
      if (skip_op("+"))
        out = node_of(Kind::Add, std::move(out), concatenation());
      else if (skip_op("-"))
        out = node_of(Kind::Subtract, std::move(out), concatenation());
      else
        return out;
    }
  }
  ExprPtr concatenation() {
    std::vector<ExprPtr> parts;
    parts.push_back(product());
    while (skip_op("~"))
      parts.push_back(product());
    return parts.size() == 1 ? std::move(parts[0]) : node(Kind::Concat, std::move(parts));
  }
  ExprPtr product() {
    ExprPtr out = power();
    while (true) {
      if (skip_op("*"))
        out = node_of(Kind::Multiply, std::move(out), power());
      else if (skip_op("//"))
        out = node_of(Kind::FloorDivide, std::move(out), power());
      else if (skip_op("/"))
        out = node_of(Kind::Divide, std::move(out), power());
      else if (skip_op("%"))
        out = node_of(Kind::Modulo, std::move(out), power());
      else
        return out;
    }
  }
  ExprPtr power() {
    ExprPtr out = unary(true);
    while (skip_op("**"))
      out = node_of(Kind::Power, std::move(out), unary(true));
    return out;
  }
  ExprPtr unary(bool filters) {
    const Nest nest(*this);
    ExprPtr out;
    if (skip_op("-"))
      out = node_of(Kind::Negate, unary(false));
    else if (skip_op("+"))
      out = node_of(Kind::Plus, unary(false));
    else
      out = primary();
    out = postfix(std::move(out));
    return filters ? filtered(std::move(out)) : std::move(out);
  }

  ExprPtr primary() {
    const Token& t = token();
    switch (t.kind) {
    case T::Name: {
      const std::string name = take().text;
      if (name == "true" || name == "True" || name == "false" || name == "False")
        return constant(name[0] == 't' || name[0] == 'T');
      if (name == "none" || name == "None")
        return constant(None{});
      ExprPtr out = node(Kind::Name);
      out->name = name;
      return out;
    }
    case T::String: {
      std::string text;
      while (token().kind == T::String)
        text += take().text;
      return constant(std::move(text));
    }
    case T::Integer:
      return constant(take().integer);
    case T::Float:
      return constant(take().number);
    default:
      break;
    }
    if (skip_op("("))
      return parenthesized();
    if (skip_op("["))
      return node(Kind::List, parts_until("]"));
    if (skip_op("{"))
      return dict();
    refuse(fmt::format("an expression is needed, not {}", shown()));
  }

  ExprPtr parenthesized() {
    if (skip_op(")"))
      return node(Kind::Tuple);
    ExprPtr first = expression();
    if (!token().op(",")) {
      expect_op(")");
      return first;
    }
    take();
    std::vector<ExprPtr> parts = parts_until(")");
    parts.insert(parts.begin(), std::move(first));
    return node(Kind::Tuple, std::move(parts));
  }

  std::vector<ExprPtr> parts_until(std::string_view close) {
    std::vector<ExprPtr> parts;
    while (!token().op(close)) {
      parts.push_back(expression());
      if (!skip_op(","))
        break;
    }
    expect_op(close);
    return parts;
  }

  ExprPtr dict() {
    std::vector<ExprPtr> parts;
    while (!token().op("}")) {
      parts.push_back(expression());
      expect_op(":");
      parts.push_back(expression());
      if (!skip_op(","))
        break;
    }
    expect_op("}");
    return node(Kind::Dict, std::move(parts));
  }

  ExprPtr postfix(ExprPtr out) {
    while (true) {
      if (skip_op(".")) {
        const bool number = token().kind == T::Integer;
        if (number) {
          const std::int64_t index = take().integer;
          out = node_of(Kind::Item, std::move(out), constant(index));
          continue;
        }
        std::string name = identifier();
        out = node_of(Kind::Attribute, std::move(out));
        out->name = std::move(name);
      } else if (skip_op("[")) {
        out = subscript(std::move(out));
      } else if (token().op("(")) {
        Arguments arguments = call_arguments();
        out = node_of(Kind::Call, std::move(out));
        give(*out, std::move(arguments));
      } else {
        return out;
      }
    }
  }

  ExprPtr subscript(ExprPtr of) {
    std::vector<ExprPtr> bounds(1);
    auto present = [&] { return !token().op(":") && !token().op("]"); };
    if (present())
      bounds[0] = expression();
    bool slice = false;
    while (bounds.size() < 3 && skip_op(":")) {
      slice = true;
      bounds.push_back(present() ? expression() : nullptr);
    }
    expect_op("]");
    if (!slice) {
      if (!bounds[0])
        refuse("an index is needed");
      return node_of(Kind::Item, std::move(of), std::move(bounds[0]));
    }
    bounds.resize(3);
    return node_of(Kind::Slice, std::move(of), std::move(bounds[0]), std::move(bounds[1]),
                   std::move(bounds[2]));
  }

  Arguments call_arguments() {
    const Nest nest(*this);
    Arguments out;
    expect_op("(");
    while (!token().op(")")) {
      if (token().op("*") || token().op("**"))
        unsupported("unpacking of arguments");
      if (token().kind == T::Name && token(1).op("=")) {
        std::string name = take().text;
        take();
        out.named.emplace_back(std::move(name), expression());
      } else if (!out.named.empty()) {
        refuse("a positional argument behind a named one");
      } else {
        out.positional.push_back(expression());
      }
      if (!skip_op(","))
        break;
    }
    expect_op(")");
    return out;
  }

  /// Filters and tests behind an expression.
  ExprPtr filtered(ExprPtr out) {
    while (true) {
      if (skip_op("|"))
        out = filter(std::move(out));
      else if (skip_name("is"))
        out = test(std::move(out));
      else if (token().op("("))
        out = postfix(std::move(out));
      else
        return out;
    }
  }
  ExprPtr filter(ExprPtr of) {
    std::string name = identifier();
    if (!is_filter(name))
      unsupported(fmt::format("the filter '{}'", printable(name)));
    ExprPtr out = node_of(Kind::Filter, std::move(of));
    out->name = std::move(name);
    if (token().op("("))
      give(*out, call_arguments());
    return out;
  }
  ExprPtr test(ExprPtr of) {
    const bool negated = skip_name("not");
    std::string name = identifier();
    if (!is_test(name))
      unsupported(fmt::format("the test '{}'", printable(name)));
    ExprPtr out = node_of(Kind::Test, std::move(of));
    out->name = std::move(name);
    Arguments arguments;
    if (token().op("("))
      arguments = call_arguments();
    else if (takes_argument())
      arguments.positional.push_back(postfix(primary()));
    give(*out, std::move(arguments));
    return negated ? node_of(Kind::Not, std::move(out)) : std::move(out);
  }
  bool takes_argument() const {
    const Token& t = token();
    return t.kind == T::String || t.kind == T::Integer || t.kind == T::Float || t.op("[") ||
           t.op("{") ||
           (t.kind == T::Name && t.text != "else" && t.text != "or" && t.text != "and" &&
            t.text != "if" && t.text != "is" && t.text != "in" && t.text != "not" &&
            t.text != "recursive");
  }

  /// An expression, or several with commas, which are a tuple.
  ExprPtr tuple() {
    ExprPtr first = expression();
    if (!token().op(","))
      return first;
    std::vector<ExprPtr> parts;
    parts.push_back(std::move(first));
    while (skip_op(",") && token().kind != T::BlockEnd && token().kind != T::PrintEnd)
      parts.push_back(expression());
    return node(Kind::Tuple, std::move(parts));
  }

  // Statements.

  /// Up to a tag that begins with one of `ends`, whose name is left to be taken.
  Block body(std::vector<std::string_view> ends) {
    const Nest nest(*this);
    Block out;
    while (token().kind != T::End) {
      const int line = token().line;
      if (token().kind == T::Text) {
        out.push_back(make(Stmt::Kind::Text, line));
        out.back()->text = take().text;
      } else if (token().kind == T::PrintBegin) {
        take();
        out.push_back(make(Stmt::Kind::Print, line));
        out.back()->expr = tuple();
        if (token().kind != T::PrintEnd)
          refuse(fmt::format("'}}}}' is needed, not {}", shown()));
        take();
      } else {
        if (std::find(ends.begin(), ends.end(), token(1).text) != ends.end() &&
            token(1).kind == T::Name) {
          take();
          return out;
        }
        if (token(1).kind == T::Name && token(1).text.starts_with("end"))
          refuse(fmt::format("'{}' without its beginning", printable(token(1).text)));
        take();
        if (auto made = statement(line))
          out.push_back(std::move(made));
      }
    }
    if (!ends.empty())
      refuse(fmt::format("'{}' is missing", ends.back()));
    return out;
  }

  static std::unique_ptr<Stmt> make(Stmt::Kind kind, int line) {
    auto out = std::make_unique<Stmt>();
    out->kind = kind;
    out->line = line;
    return out;
  }

  std::unique_ptr<Stmt> statement(int line) {
    const std::string name = identifier();
    if (name == "if")
      return if_statement(line);
    if (name == "for")
      return for_statement(line);
    if (name == "set")
      return set_statement(line);
    if (name == "macro")
      return macro_statement(line);
    if (name == "call")
      return call_statement(line);
    if (name == "filter")
      return filter_statement(line);
    if (name == "with")
      return with_statement(line);
    if (name == "generation") {
      auto out = make(Stmt::Kind::Scope, line);
      end_block();
      out->body = body({"endgeneration"});
      close("endgeneration");
      return out;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0)
        refuse(fmt::format("'{}' outside a loop", name));
      end_block();
      return make(name == "break" ? Stmt::Kind::Break : Stmt::Kind::Continue, line);
    }
    unsupported(fmt::format("the statement '{}'", printable(name)));
  }

  void close(std::string_view name) {
    expect_name(name);
    end_block();
  }

  std::unique_ptr<Stmt> if_statement(int line) {
    auto out = make(Stmt::Kind::If, line);
    ExprPtr condition = tuple();
    while (true) {
      end_block();
      Block part = body({"elif", "else", "endif"});
      const bool last = !condition;
      out->branches.emplace_back(std::move(condition), std::move(part));
      if (skip_name("endif"))
        break;
      if (last)
        refuse("a branch behind else");
      if (take().text == "elif")
        condition = tuple();
      else
        condition = nullptr;
    }
    end_block();
    return out;
  }

  Target target(bool attribute) {
    Target out;
    const bool parentheses = skip_op("(");
    out.names.push_back(identifier());
    if (attribute && skip_op(".")) {
      out.attribute = identifier();
      return out;
    }
    while (skip_op(",")) {
      out.unpack = true;
      if (token().kind != T::Name || token().name("in"))
        break;
      out.names.push_back(identifier());
    }
    if (parentheses)
      expect_op(")");
    return out;
  }

  std::unique_ptr<Stmt> for_statement(int line) {
    auto out = make(Stmt::Kind::For, line);
    out->target = target(false);
    expect_name("in");
    out->expr = either(); // a condition follows "if"
    if (token().op(",")) {
      std::vector<ExprPtr> parts;
      parts.push_back(std::move(out->expr));
      while (skip_op(","))
        parts.push_back(either());
      out->expr = node(Kind::Tuple, std::move(parts));
    }
    if (skip_name("if"))
      out->condition = expression();
    if (token().name("recursive"))
      unsupported("a recursive loop");
    end_block();
    ++loops_;
    out->body = body({"else", "endfor"});
    --loops_;
    if (skip_name("else")) {
      end_block();
      out->otherwise = body({"endfor"});
    }
    close("endfor");
    return out;
  }

  /// "| trim | upper" with nothing in front; null when there is none.
  ExprPtr filter_chain() {
    ExprPtr out;
    while (skip_op("|"))
      out = filter(std::move(out));
    return out;
  }

  std::unique_ptr<Stmt> set_statement(int line) {
    auto out = make(Stmt::Kind::Set, line);
    out->target = target(true);
    if (skip_op("=")) {
      out->expr = tuple();
      end_block();
      return out;
    }
    out->kind = Stmt::Kind::SetBlock;
    out->expr = filter_chain();
    end_block();
    out->body = body({"endset"});
    close("endset");
    return out;
  }

  std::unique_ptr<Stmt> filter_statement(int line) {
    auto out = make(Stmt::Kind::Filter, line);
    out->expr = filter(nullptr);
    while (skip_op("|"))
      out->expr = filter(std::move(out->expr));
    end_block();
    out->body = body({"endfilter"});
    close("endfilter");
    return out;
  }

  std::unique_ptr<Stmt> with_statement(int line) {
    auto out = make(Stmt::Kind::With, line);
    while (token().kind == T::Name) {
      Target one;
      one.names.push_back(identifier());
      expect_op("=");
      out->assignments.emplace_back(std::move(one), expression());
      if (!skip_op(","))
        break;
    }
    end_block();
    out->body = body({"endwith"});
    close("endwith");
    return out;
  }

  void parameters(Macro& macro) {
    expect_op("(");
    while (!token().op(")")) {
      macro.parameters.push_back(identifier());
      if (skip_op("="))
        macro.defaults.push_back(expression());
      else if (!macro.defaults.empty())
        refuse("a parameter without a default behind one that has it");
      if (!skip_op(","))
        break;
    }
    expect_op(")");
  }

  Block macro_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    end_block();
    Block out = body({end});
    close(end);
    loops_ = loops;
    return out;
  }

  std::unique_ptr<Stmt> macro_statement(int line) {
    auto out = make(Stmt::Kind::Macro, line);
    out->macro = std::make_unique<Macro>();
    out->macro->line = line;
    out->macro->name = identifier();
    parameters(*out->macro);
    out->macro->body = macro_body("endmacro");
    return out;
  }

  std::unique_ptr<Stmt> call_statement(int line) {
    auto out = make(Stmt::Kind::Call, line);
    out->macro = std::make_unique<Macro>();
    out->macro->line = line;
    out->macro->name = "caller";
    if (token().op("("))
      parameters(*out->macro);
    out->expr = postfix(primary());
    if (out->expr->kind != Kind::Call)
      refuse("a call is needed");
    out->macro->body = macro_body("endcall");
    return out;
  }

  const std::string& name_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nested_ = 0, loops_ = 0;
};

} // namespace

Block parse_template(std::string_view text, const std::string& name) {
  return Parser(text, name).run();
}

} // namespace egret::text::jinja

// The syntax tree of a template.
#pragma once

#include "text/template_value.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace egret::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Expr {
  enum class Kind {
    Constant,  ///< value
    Name,      ///< name
    List,      ///< parts
    Tuple,     ///< parts
    Dict,      ///< parts: key, value, key, value ...
    Attribute, ///< parts[0].name
    Item,      ///< parts[0][parts[1]]
    Slice,     ///< parts[0][parts[1] : parts[2] : parts[3]], each but the first may be null
    Call,      ///< parts[0](arguments)
    Filter,    ///< parts[0] | name(arguments); in a filter block parts[0] is null
    Test,      ///< parts[0] is name(arguments)
    Not,
    Negate,
    Plus,
    And,
    Or,
    Conditional, ///< parts[0] if parts[1] else parts[2], which may be null
    Compare,     ///< parts[0] operators[0] parts[1] operators[1] ...
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
    Concat, ///< parts joined as text
  };
  Kind kind = Kind::Constant;
  int line = 0;
  int depth = 1; ///< of the tree
  Value value;
  std::string name;
  std::vector<ExprPtr> parts;
  std::vector<std::string> operators;
  Arguments arguments;
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

/// What is assigned to: names, or one attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  bool unpack = false;   ///< a list of names
  std::string attribute; ///< of names[0]
};

struct Macro {
  std::string name;
  int line = 0;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults; ///< of the last parameters
  Block body;
};

struct Stmt {
  enum class Kind {
    Text,     ///< text
    Print,    ///< expr
    If,       ///< branches: condition (null for else) and body
    For,      ///< target, expr, condition, body, otherwise
    Set,      ///< target, expr
    SetBlock, ///< target, body, expr: a chain of filters or null
    Filter,   ///< expr: a chain of filters, body
    With,     ///< assignments, body
    Macro,    ///< macro
    Call,     ///< macro: the caller; expr: a call
    Scope,    ///< body: of "generation"
    Break,
    Continue,
  };
  Kind kind = Kind::Text;
  int line = 0;
  std::string text;
  ExprPtr expr, condition;
  Target target;
  std::vector<std::pair<ExprPtr, Block>> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  Block body, otherwise;
  std::unique_ptr<Macro> macro;
};

/// Error(Parse) that begins with `name` and the line; Error(Unsupported) for statements, filters
/// and tests that are not known.
Block parse_template(std::string_view text, const std::string& name);

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

} // namespace egret::text::jinja

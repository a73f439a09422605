// Integer expressions: sizes of tensors and indices into them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret {

struct ExprNode;

/// A hash-consed integer expression in normal form: a polynomial whose atoms are symbols, axis
/// variables, floordiv, floormod, min and max. Equal expressions share one node, so == is a
/// comparison of pointers. Every expression carries an interval that holds its value and a number
/// that divides it, and the rules of simplification use both: (8*i + j) // 8 is i when 0 <= j < 8.
/// Arithmetic that would overflow 64 bits throws Error(Value).
class Expr {
public:
  Expr(std::int64_t value = 0);

  /// A named size, lo <= value <= hi, a multiple of `divisor` (>= 1). The same name must always
  /// come with the same facts. With lo == hi it is that constant.
  static Expr symbol(const std::string& name, std::int64_t lo, std::int64_t hi,
                     std::int64_t divisor = 1);
  /// The loop variable number `number` with 0 <= value < extent; printed d0, d1 ... With an extent
  /// of 1 (or 0: no point at all) it is the constant 0, so that axes of size 1 vanish from every
  /// expression.
  static Expr axis(int number, const Expr& extent);

  bool is_constant() const noexcept;
  std::optional<std::int64_t> constant() const noexcept;
  std::int64_t
  value() const; ///< the constant; throws Error(Value) naming the expression when it is not one
  std::int64_t lower() const noexcept;   ///< inclusive bound; INT64_MIN when unknown
  std::int64_t upper() const noexcept;   ///< inclusive bound; INT64_MAX when unknown
  std::int64_t divisor() const noexcept; ///< known to divide every value (0 for the constant 0)
  bool is_symbol() const noexcept;
  bool is_axis() const noexcept;
  int axis_number() const; ///< for is_axis()

  Expr operator-() const;
  friend Expr operator+(const Expr&, const Expr&);
  friend Expr operator-(const Expr&, const Expr&);
  friend Expr operator*(const Expr&, const Expr&);
  friend bool operator==(const Expr& a, const Expr& b) noexcept { return a.node_ == b.node_; }

  /// Structural hash: the same in every process.
  std::uint64_t hash() const noexcept;
  /// Text that parse_expr reads back, given the same variables: "n*d0+8*(d1//4)-3", "min(n,12)%5".
  /// Error(Value) beyond a million characters.
  std::string str() const;
  const ExprNode& node() const noexcept { return *node_; }

  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}

private:
  std::shared_ptr<const ExprNode> node_;
};

Expr floordiv(const Expr& a,
              const Expr& b); ///< rounds down; b must not be able to be 0 (Error(Value))
Expr floormod(const Expr& a, const Expr& b); ///< has the sign of b; b must not be able to be 0
Expr min(const Expr& a, const Expr& b);
Expr max(const Expr& a, const Expr& b);
Expr ceildiv(const Expr& a, const Expr& b);

bool proves_less(const Expr& a, const Expr& b); ///< a < b for every value of the variables
bool proves_less_equal(const Expr& a, const Expr& b);
bool proves_equal(const Expr& a, const Expr& b);

/// Replaces symbols and axis variables: `replace` is asked for each and returns what to put, or
/// nothing to keep it. An axis that is kept has its extent replaced.
Expr substitute(const Expr& e, const std::function<std::optional<Expr>(const Expr&)>& replace);
/// The value with `value_of` giving that of each symbol and axis variable. Throws Error(Value) on
/// overflow or division by 0.
std::int64_t evaluate(const Expr& e, const std::function<std::int64_t(const Expr&)>& value_of);
/// The symbols and axis variables that the value depends on (extents of axes are not looked into),
/// each once, in a fixed order.
std::vector<Expr> variables_of(const Expr& e);
/// Coefficient c with e = c * variable + rest and rest free of the variable; nothing when e is not
/// affine in it.
std::optional<Expr> coefficient_of(const Expr& e, const Expr& variable);

/// Reads what Expr::str writes, and any mix of + - * // % min max, parentheses and integers;
/// `variable_named` gives the symbol or axis of a name or nothing. Throws Error(Parse) with the
/// column, counted from `column`, of what is wrong.
Expr parse_expr(std::string_view text,
                const std::function<std::optional<Expr>(std::string_view)>& variable_named,
                int column = 1);

/// What an ExprNode is made of, for code that renders or walks expressions.
enum class ExprKind : std::uint8_t {
  Constant,
  Symbol,
  Axis,
  Sum,
  Product,
  FloorDiv,
  FloorMod,
  Min,
  Max
};

/// Immutable. Sum: value + sum of coefficients[i] * operands[i], an operand being a product or an
/// atom; Product: product of operands (atoms); Axis: operands[0] is the extent; FloorDiv, FloorMod
/// (both with a positive operands[1]), Min, Max: operands[0], operands[1].
struct ExprNode : std::enable_shared_from_this<ExprNode> {
  ExprKind kind = ExprKind::Constant;
  std::int64_t value = 0; ///< Constant and Sum: the constant; Axis: the number
  std::string name;       ///< Symbol
  std::vector<Expr> operands;
  std::vector<std::int64_t> coefficients;
  std::int64_t lower = 0, upper = 0, divisor = 1;
  std::uint64_t hash = 0;
};

/// A tensor's dims, outermost first; rank 0 is a scalar.
using Shape = std::vector<Expr>;

std::string to_string(const Shape& shape); ///< "[2,3]"
Expr element_count(const Shape& shape);

} // namespace egret

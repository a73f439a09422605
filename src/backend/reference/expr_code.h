// Integer expressions translated once for evaluation at many points.
#pragma once

#include "egret/expr.h"
#include "egret/index_map.h"

#include <functional>
#include <vector>

namespace egret::backend::reference {

/// An expression over numbered slots. Evaluation is checked: overflow and division by zero throw
/// InternalError.
class ExprCode {
public:
  /// The slot that holds the value of a symbol or axis variable; throws for an unknown one.
  using SlotOf = std::function<int(const Expr&)>;

  ExprCode() = default;
  ExprCode(const Expr& expr, const SlotOf& slot_of);

  std::int64_t operator()(const std::int64_t* slots) const;
  /// The slots that the value depends on.
  const std::vector<int>& reads() const { return reads_; }

private:
  enum class Kind : std::uint8_t { Constant, Slot, Scale, Add, Mul, FloorDiv, FloorMod, Min, Max };
  struct Step { // of a stack machine
    Kind kind;
    std::int64_t value = 0; ///< the constant, the slot, or the factor of Scale
  };
  struct Term {
    int slot;
    std::int64_t coefficient;
  };

  static constexpr int kMaxDepth = 64; ///< of the stack

  static std::int64_t binary(Kind kind, std::int64_t a, std::int64_t b);
  void translate(const Expr& expr, const SlotOf& slot_of);
  std::int64_t run(const std::int64_t* slots) const;

  // Affine expressions, by far the most frequent, are kept as a sum; the others as steps.
  bool affine_ = true;
  std::int64_t constant_ = 0;
  std::vector<Term> terms_;
  std::vector<Step> steps_;
  std::vector<int> reads_;
};

/// A list of conditions lo <= value < hi.
class GuardCode {
public:
  GuardCode() = default;
  GuardCode(const std::vector<Guard>& guards, const ExprCode::SlotOf& slot_of);
  bool holds(const std::int64_t* slots) const;
  std::vector<int> reads() const;

private:
  struct Condition {
    ExprCode value, lo, hi;
  };
  std::vector<Condition> conditions_;
};

} // namespace egret::backend::reference

// Values with a bound on how far a faithful implementation may be from them: the tolerance of every
// comparison with the reference.
//
// A bound starts at 0 for inputs. Each operation adds its own rounding (unit roundoff of its dtype
// times the size of its result, more for ops with an ULP bound; for a sum c(n) times the roundoff
// times the sum of the terms' sizes) to what the operands' bounds become by it. The latter is found
// by evaluating the op at the ends of the operands' intervals (and at 0 inside them), so every op
// has it, also where it jumps. An infinite bound means that nothing can be said: a NaN or anything
// else is then accepted, and counted.
#pragma once

#include "backend/reference/number.h"
#include "ir/float_format.h"

#include <vector>

namespace egret::backend::reference {

struct Estimate {
  Number value;
  double error = 0; ///< absolute; infinity: unknown
};

/// The elementwise op on estimates; see number.h.
Estimate apply(Op op, DType result, DType operand, const Estimate& a, const Estimate& b = {},
               const Estimate& c = {});

/// A reduction of one element: terms are added in order, in f64 or in 64-bit integers.
class Accumulator {
public:
  /// `type`: of the terms; `acc`: in which an implementation accumulates, for the bound.
  Accumulator(Monoid monoid, DType type, DType acc);
  /// Continues from a value, as a scatter does from its data.
  Accumulator(Monoid monoid, DType type, DType acc, const Estimate& start);

  void add(const Estimate& term);
  /// Rounded once to `result` (i64 for ArgMax: the number of the first largest term).
  Estimate result(DType result) const;

private:
  double bound() const;
  Estimate argmax() const;

  Monoid monoid_;
  DType type_, acc_;
  Number value_;
  std::int64_t terms_ = 0;
  std::int64_t run_ = 0, longest_run_ = 0; ///< of equal terms in a row: now, at most
  Number last_{};                          ///< the term before
  bool started_ = false;                   ///< from a value: without terms it stays as it is
  double errors_ = 0;                      ///< sum of the terms' errors
  double sizes_ = 0;                       ///< Sum: of the finite terms' sizes
  bool infinite_ = false;                  ///< a term is infinite, or of a Sum NaN
  bool nan_ = false;                       ///< Sum: a term is NaN
  bool plus_ = false, minus_ = false;      ///< Sum: a term is inf, -inf
  double large_ = 1;                       ///< Prod: product of the sizes above 1
  double small_ = 1;                       ///< Prod: product of the sizes below 1
  double relative_ = 0;                    ///< Prod: sum of relative errors
  bool zero_in_doubt_ = false;             ///< Prod: a zero term with an error
  double highest_, lowest_;                ///< Max: largest upper and lower end
  std::vector<Estimate> contenders_;       ///< ArgMax
};

/// h -> factor h + term, one after the other, from 0. Its bound holds for any grouping of the maps;
/// it is infinite where a group's factors may overflow.
class Recurrence {
public:
  Recurrence(DType type, DType acc) : type_(type), acc_(acc) {}
  void add(const Estimate& term, const Estimate& factor);
  Estimate result(DType result) const;

private:
  DType type_, acc_;
  double value_ = 0;
  double size_ = 0;        ///< of the same maps with all signs positive
  double error_ = 0;       ///< what the operands' errors come to
  bool infinite_ = false;  ///< a state may be, in some group of maps
  bool overflows_ = false; ///< the factors of some group may, since the last one of 0
  double widest_ = 1;      ///< the largest product of neighbouring factors that ends here
  std::int64_t terms_ = 0;
};

} // namespace egret::backend::reference

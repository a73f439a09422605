// The instructions that make polynomials, by the greedy form of Horner's rule (factor_sums.h).
#pragma once

#include "kernel/program.h"
#include "kernel/sum_of_products.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace egret::kernel {

/// Values of one block that are the same in all lanes, each made once, before the first that needs
/// it.
class UniformValues {
public:
  explicit UniformValues(KernelProgram& program) : p_(program) {}

  std::size_t size() const { return nodes_.size(); }
  /// Forgets what was made last.
  void shrink(std::size_t size);
  /// Operations of one lane for all but the first `from` of the values.
  int cost(std::size_t from) const;

  ValueId number(double x, int lanes);
  ValueId splat(ValueId v, int lanes);
  /// Of one lane.
  ValueId of(const std::vector<Scale>& scale);

  /// Adds the statements that `inst` needs and that are not there yet.
  void place_operands(Block& to, const Inst& inst);

private:
  struct Node {
    ValueId id;
    Inst inst;
    bool placed = false;
  };
  ValueId apply(Op op, ValueId a, ValueId b);
  ValueId make(Inst inst);

  KernelProgram& p_;
  std::vector<Node> nodes_;
  std::map<ValueId, std::size_t> place_;
  std::unordered_map<std::uint64_t, std::vector<std::size_t>> known_; ///< by hash
};

/// Makes values of f32 of so many lanes that share their products.
class Factoring {
public:
  /// `named`: products that several of the values were written with.
  Factoring(KernelProgram& program, UniformValues& uniforms, int lanes, std::set<Monomial> named)
      : p_(program), uniforms_(uniforms), lanes_(lanes), named_(std::move(named)) {}

  /// The instructions that make `target`; what was made for others is used again.
  std::vector<Let> make(ValueId target, const Polynomial& p);
  /// Operations so far, by lane. A product with -1 is none: it becomes a sign of an operand.
  int cost() const { return cost_; }

private:
  // Everywhere `target` is the value to make, -1 for a new one. The result is another one if that
  // is there already.

  enum class Kind : std::uint8_t { Add, Mul, Fma };
  ValueId instruction(Kind kind, std::vector<ValueId> args, ValueId target, bool is_free = false);
  ValueId add(ValueId a, ValueId b, ValueId target);
  ValueId mul(ValueId a, ValueId b, ValueId target = -1);
  ValueId fma(ValueId a, ValueId b, ValueId c, ValueId target);
  ValueId negative(ValueId v, ValueId target);
  ValueId of_scale(const std::vector<Scale>& scale);
  ValueId scaled(ValueId v, const std::vector<Scale>& scale, ValueId target = -1);

  std::pair<Monomial, Monomial> split(const Monomial& m) const;
  const ValueId* made_product(const Monomial& m) const;
  ValueId product(const Monomial& m, ValueId target = -1);
  ValueId value(const SumTerm& t, ValueId target = -1);

  ValueId sum(const Polynomial& p, ValueId target = -1);
  ValueId plain_sum(Polynomial p, ValueId target);

  KernelProgram& p_;
  UniformValues& uniforms_;
  int lanes_;
  std::set<Monomial> named_;
  std::map<std::pair<Kind, std::vector<ValueId>>, ValueId> known_;
  std::map<Monomial, ValueId> products_;
  std::vector<Let> made_;
  int cost_ = 0;
};

} // namespace egret::kernel

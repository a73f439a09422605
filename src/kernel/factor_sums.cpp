#include "kernel/factor_sums.h"

#include "kernel/factoring.h"
#include "kernel/program_fields.h"
#include "kernel/rounded_uses.h"
#include "kernel/sum_of_products.h"
#include "kernel/tangent_forms.h"
#include "support/fail.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace egret::kernel {

namespace {

/// What is known of a program's values as they were written.
struct Facts {
  std::vector<Asked> asked;
  std::vector<int> uses;                      ///< operands that the value is
  std::vector<int> block;                     ///< number of the block that makes it
  std::vector<ValueId> source;                ///< itself, or what it is a splat of
  std::vector<std::optional<double>> numbers; ///< of constants
  std::vector<bool> argument;
};

/// How often each value is named, where it is made included.
std::vector<int> namings(KernelProgram& program) {
  struct Counter : FieldVisitor<Counter> {
    std::vector<int> count;
    void visit(Expr&) {}
    void id(IdKind kind, int& id) {
      if (kind == IdKind::Value && id >= 0)
        ++count[std::size_t(id)];
    }
  } counter;
  counter.count.assign(program.values.size(), 0);
  counter(program.body);
  return std::move(counter.count);
}

/// Operands of `inst` if it is a product or a sum. An Fma stays as it is written.
std::vector<ValueId> algebraic_operands(const Inst& inst) {
  const auto* op = get_if<inst::Apply>(inst);
  return op && (op->op == Op::Add || op->op == Op::Mul) ? op->args : std::vector<ValueId>{};
}

void find_facts(const Block& stmts, Facts& facts, int& blocks) {
  const int own = blocks++;
  for (const Stmt& s : stmts) {
    if (const Let* let = get_if<Let>(s)) {
      const auto v = std::size_t(let->target);
      facts.block[v] = own;
      if (const auto* splat = get_if<inst::Splat>(let->inst))
        facts.source[v] = facts.source[std::size_t(splat->value)];
      const auto* constant = get_if<inst::Constant>(let->inst);
      if (constant && is_float(constant->value.dtype))
        facts.numbers[v] = constant->value.as_double();
      facts.argument[v] = get_if<inst::Argument>(let->inst) != nullptr;
    }
    each_block(s, [&](const Block& inner) { find_facts(inner, facts, blocks); });
  }
}

Facts facts_of(KernelProgram& program, std::vector<Asked> asked) {
  const std::size_t values = program.values.size();
  Facts facts{std::move(asked),
              namings(program),
              std::vector<int>(values, -1),
              std::vector<ValueId>(values),
              std::vector<std::optional<double>>(values),
              std::vector<bool>(values)};
  std::iota(facts.source.begin(), facts.source.end(), 0);
  int blocks = 0;
  find_facts(program.body, facts, blocks);
  for (std::size_t v = 0; v < values; ++v)
    facts.uses[v] -= facts.block[v] >= 0;
  return facts;
}

/// A product or a sum that need not have the bits of f32.
struct Algebraic {
  ValueId id;
  Inst inst;
  Polynomial polynomial; ///< in values of other kinds, and in sums that are values by themselves
  bool root = false;     ///< it has to be made: not only polynomials use it
};

/// Those of one block.
class AlgebraicValues {
public:
  AlgebraicValues(const Block& block, const KernelProgram& program, const Facts& facts)
      : p_(program), facts_(facts) {
    for (const Stmt& s : block)
      if (const Let* let = get_if<Let>(s); let && is_algebraic(*let)) {
        own_ = facts.block[std::size_t(let->target)];
        index_.emplace(let->target, values_.size());
        values_.push_back({let->target, let->inst, polynomial(let->inst)});
      }
    find_roots();
  }

  const std::vector<Algebraic>& values() const { return values_; }

  /// The values by number, those together that are made of each other.
  std::vector<std::vector<std::size_t>> groups() const {
    std::vector<std::size_t> of(values_.size()); // another one of the group, or itself
    std::iota(of.begin(), of.end(), std::size_t{0});
    const auto first = [&](std::size_t i) {
      while (of[i] != i)
        i = of[i] = of[of[i]];
      return i;
    };
    for (std::size_t i = 0; i < values_.size(); ++i)
      for (ValueId v : algebraic_operands(values_[i].inst))
        if (const auto j = index_.find(v); j != index_.end()) {
          const auto [low, high] = std::minmax({first(i), first(j->second)});
          of[high] = low;
        }
    std::vector<std::vector<std::size_t>> all(values_.size());
    for (std::size_t i = 0; i < values_.size(); ++i)
      all[first(i)].push_back(i);
    std::erase_if(all, [](const auto& group) { return group.empty(); });
    return all;
  }

private:
  bool is_algebraic(const Let& let) const {
    const auto v = std::size_t(let.target);
    return let.inst.type.dtype == DType::F32 && !algebraic_operands(let.inst).empty() &&
           facts_.uses[v] > 0 && facts_.asked[v] >= Asked::Rounded;
  }

  /// With as many operands multiplied out as is allowed. With none of them it always is.
  Polynomial polynomial(const Inst& inst) const {
    const std::vector<ValueId> of = algebraic_operands(inst);
    const bool is_sum = get_if<inst::Apply>(inst)->op == Op::Add;
    for (unsigned whole = 0;; ++whole) {
      ensure(whole < 4, "a product or sum of two values is no polynomial");
      const Polynomial a = operand(of[0], (whole & 1) != 0), b = operand(of[1], (whole & 2) != 0);
      if (std::optional<Polynomial> p = is_sum ? sum(a, b) : product(a, b))
        return std::move(*p);
    }
  }
  static std::optional<Polynomial> sum(const Polynomial& a, const Polynomial& b) {
    std::optional<Polynomial> p = sum_of(a, b);
    const bool as_written = a.size() == 1 && b.size() == 1;
    return p && (as_written || exact_terms(*p) < 2) ? std::move(p) : std::nullopt;
  }
  static std::optional<Polynomial> product(const Polynomial& a, const Polynomial& b) {
    const auto may_scale = [](const Polynomial& scale, const Polynomial& p) {
      return scale.size() == 1 && (p.size() == 1 || scale[0].atoms.empty());
    };
    return may_scale(a, b) || may_scale(b, a) ? product_of(a, b) : std::nullopt;
  }

  Polynomial operand(ValueId v, bool whole) const {
    const Polynomial atom = polynomial_of_atom(v);
    if (whole)
      return atom;
    if (const auto i = index_.find(v); i != index_.end()) {
      const Polynomial& p = values_[i->second].polynomial;
      const bool is_shared = facts_.uses[std::size_t(v)] > 1;
      return p.size() > 1 && (is_shared || exact_terms(p) > 1) ? atom : p;
    }
    const auto source = std::size_t(facts_.source[std::size_t(v)]);
    if (const auto& number = facts_.numbers[source])
      return polynomial_of_number(*number);
    const bool is_uniform = facts_.argument[source] || facts_.block[source] != own_;
    return is_uniform && p_.values[source].lanes == 1 ? polynomial_of_uniform(ValueId(source))
                                                      : atom;
  }

  void find_roots() {
    std::vector<int> inner(values_.size());
    for (const Algebraic& user : values_)
      for (ValueId v : algebraic_operands(user.inst))
        if (const auto i = index_.find(v); i != index_.end())
          ++inner[i->second];
    for (std::size_t i = values_.size(); i-- > 0;) {
      values_[i].root = values_[i].root || facts_.uses[std::size_t(values_[i].id)] > inner[i];
      if (values_[i].root)
        for (const SumTerm& t : values_[i].polynomial)
          for (ValueId atom : t.atoms)
            if (const auto of = index_.find(atom); of != index_.end())
              values_[of->second].root = true;
    }
  }

  const KernelProgram& p_;
  const Facts& facts_;
  int own_ = -1; ///< number of the block
  std::vector<Algebraic> values_;
  std::map<ValueId, std::size_t> index_;
};

class SumsPass {
public:
  SumsPass(KernelProgram& program, Facts facts) : p_(program), facts_(std::move(facts)) {}

  /// Whether something was made anew.
  bool block(Block& stmts) {
    bool changed = false;
    for (Stmt& s : stmts)
      each_block(s, [&](Block& inner) { changed |= block(inner); });
    const AlgebraicValues algebra(stmts, p_, facts_);
    UniformValues uniforms(p_);
    std::map<ValueId, std::vector<Let>> made; // by value that it stands in the place of
    for (const std::vector<std::size_t>& group : algebra.groups())
      if (group.size() > 1)
        factor(algebra.values(), group, uniforms, made);
    if (made.empty())
      return changed;
    Block result;
    result.reserve(stmts.size());
    for (Stmt& s : stmts) {
      const Let* let = get_if<Let>(s);
      const auto instead = let ? made.find(let->target) : made.end();
      if (instead == made.end()) {
        result.push_back(std::move(s));
        continue;
      }
      for (Let& l : instead->second) {
        uniforms.place_operands(result, l.inst);
        result.push_back(std::move(l));
      }
    }
    stmts = std::move(result);
    return true;
  }

private:
  void factor(const std::vector<Algebraic>& values, const std::vector<std::size_t>& group,
              UniformValues& uniforms, std::map<ValueId, std::vector<Let>>& made) {
    const std::size_t first_value = p_.values.size(), first_uniform = uniforms.size();
    const int lanes = values[group[0]].inst.type.lanes;
    int cost = 0;
    std::set<Monomial> named;
    for (std::size_t i : group) {
      const Algebraic& v = values[i];
      cost += is_negative(v.inst) ? 0 : lanes;
      if (v.polynomial.size() == 1 && v.polynomial[0].atoms.size() > 1 &&
          facts_.uses[std::size_t(v.id)] > 1)
        named.insert(v.polynomial[0].atoms);
    }
    Factoring factoring(p_, uniforms, lanes, std::move(named));
    std::vector<std::vector<Let>> all;
    for (std::size_t i : group)
      all.push_back(values[i].root ? factoring.make(values[i].id, values[i].polynomial)
                                   : std::vector<Let>{});
    if (factoring.cost() + uniforms.cost(first_uniform) >= cost) {
      uniforms.shrink(first_uniform);
      p_.values.resize(first_value);
      return;
    }
    for (std::size_t k = 0; k < group.size(); ++k)
      made.emplace(values[group[k]].id, std::move(all[k]));
  }

  bool is_negative(const Inst& inst) const {
    const auto* op = get_if<inst::Apply>(inst);
    return op->op == Op::Mul && std::ranges::any_of(op->args, [&](ValueId v) {
             return facts_.numbers[std::size_t(facts_.source[std::size_t(v)])] == -1.0;
           });
  }

  KernelProgram& p_;
  Facts facts_;
};

/// `named`: how often each value is named.
void drop_unused(Block& stmts, std::vector<int>& named) {
  Block kept;
  for (auto s = stmts.rbegin(); s != stmts.rend(); ++s) {
    if (auto* choice = get_if<If>(*s)) {
      drop_unused(choice->otherwise, named);
      drop_unused(choice->body, named);
    } else {
      each_block(*s, [&](Block& inner) { drop_unused(inner, named); });
    }
    Let* let = get_if<Let>(*s);
    const bool is_unused =
        let && let->inst.type.dtype == DType::F32 && named[std::size_t(let->target)] == 1;
    const auto drop = [&](const auto& operands) {
      for (ValueId v : operands)
        --named[std::size_t(v)];
    };
    if (is_unused && get_if<inst::Apply>(let->inst))
      drop(get_if<inst::Apply>(let->inst)->args);
    else if (is_unused && get_if<inst::Fma>(let->inst))
      drop(get_if<inst::Fma>(let->inst)->args);
    else if (is_unused && get_if<inst::Splat>(let->inst))
      drop(std::vector{get_if<inst::Splat>(let->inst)->value});
    else if (!is_unused || !get_if<inst::Constant>(let->inst))
      kept.push_back(std::move(*s));
  }
  std::reverse(kept.begin(), kept.end());
  stmts = std::move(kept);
}

/// Drops arithmetic that nobody uses.
void drop_unused(KernelProgram& program) {
  std::vector<int> named = namings(program);
  drop_unused(program.body, named);
}

} // namespace

KernelProgram with_factored_sums(KernelProgram program) {
  RoundedUses uses = rounded_uses(program);
  if (std::ranges::none_of(uses.asked, [](Asked asked) { return asked >= Asked::Rounded; }))
    return program;
  if (!uses.tangents.empty()) {
    expand_tangents(program, uses);
    drop_unused(program); // tangents
  }
  Facts facts = facts_of(program, std::move(uses.asked));
  if (SumsPass(program, std::move(facts)).block(program.body))
    drop_unused(program);
  return program;
}

} // namespace egret::kernel

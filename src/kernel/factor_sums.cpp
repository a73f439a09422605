#include "kernel/factor_sums.h"

#include "kernel/program_fields.h"
#include "kernel/rounded_uses.h"
#include "kernel/sum_of_products.h"
#include "kernel/tangent_forms.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
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
std::vector<ValueId> operands(const Inst& inst) {
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

/// Values of one block that are the same in all lanes, each made once, before the first that needs
/// it.
class UniformValues {
public:
  explicit UniformValues(KernelProgram& program) : p_(program) {}

  std::size_t size() const { return nodes_.size(); }
  /// Forgets what was made last.
  void shrink(std::size_t size) {
    for (; nodes_.size() > size; nodes_.pop_back())
      place_.erase(nodes_.back().id);
  }
  int cost(std::size_t from) const {
    return int(std::count_if(nodes_.begin() + std::ptrdiff_t(from), nodes_.end(),
                             [](const Node& n) { return get_if<inst::Apply>(n.inst); }));
  }

  ValueId number(double x, int lanes) {
    return make({{DType::F32, lanes}, inst::Constant{Scalar::of(DType::F32, x)}});
  }
  ValueId splat(ValueId v, int lanes) {
    return lanes == 1 ? v : make({{DType::F32, lanes}, inst::Splat{v}});
  }
  ValueId of(const std::vector<Scale>& scale) {
    ValueId sum = -1;
    for (const Scale& s : scale) {
      ValueId product = -1;
      for (ValueId u : s.uniforms)
        product = product < 0 ? u : apply(Op::Mul, product, u);
      if (product < 0)
        product = number(s.number, 1);
      else if (s.number != 1)
        product = apply(Op::Mul, product, number(s.number, 1));
      sum = sum < 0 ? product : apply(Op::Add, sum, product);
    }
    return sum;
  }

  /// Adds the statements that `inst` needs and that are not there yet.
  void place_operands(Block& to, const Inst& inst) {
    for (ValueId v : operands_of(inst)) {
      const auto found = place_.find(v);
      if (found == place_.end() || nodes_[found->second].placed)
        continue;
      Node& node = nodes_[found->second];
      node.placed = true;
      place_operands(to, node.inst);
      to.push_back(Let{node.id, node.inst});
    }
  }

private:
  struct Node {
    ValueId id;
    Inst inst;
    bool placed = false;
  };
  static std::vector<ValueId> operands_of(const Inst& inst) {
    if (const auto* splat = get_if<inst::Splat>(inst))
      return {splat->value};
    if (const auto* shuffle = get_if<inst::Shuffle>(inst))
      return shuffle->args;
    if (const auto* fma = get_if<inst::Fma>(inst))
      return {fma->args.begin(), fma->args.end()};
    return operands(inst);
  }
  ValueId apply(Op op, ValueId a, ValueId b) {
    return make({{DType::F32, 1}, inst::Apply{op, {a, b}}});
  }
  ValueId make(Inst inst) {
    for (const Node& n : nodes_)
      if (n.inst == inst)
        return n.id;
    const auto id = ValueId(p_.values.size());
    p_.values.push_back(inst.type);
    place_.emplace(id, nodes_.size());
    nodes_.push_back({id, std::move(inst)});
    return id;
  }

  KernelProgram& p_;
  std::vector<Node> nodes_;
  std::map<ValueId, std::size_t> place_;
};

/// Makes values that share their products.
class Factoring {
public:
  /// `named`: products that several of the values were written with.
  Factoring(KernelProgram& program, UniformValues& uniforms, int lanes,
            std::vector<Monomial> named)
      : p_(program), uniforms_(uniforms), lanes_(lanes), named_(std::move(named)) {}

  /// The instructions that make `target`.
  std::vector<Let> make(ValueId target, const Polynomial& p) {
    made_.clear();
    const ValueId result = sum(p, target);
    if (result != target) {
      const Type type{DType::F32, lanes_};
      std::vector<int> all(std::size_t(lanes_), 0);
      std::iota(all.begin(), all.end(), 0);
      if (lanes_ == 1)
        made_.push_back({target, {type, inst::Splat{result}}});
      else
        made_.push_back({target, {type, inst::Shuffle{{result}, std::move(all)}}});
    }
    return std::move(made_);
  }
  int cost() const { return cost_; }

private:
  // --- Instructions. `target` is the value to make, -1 for a new one; what is there is used again.

  enum class Kind : std::uint8_t { Add, Mul, Fma };
  ValueId instruction(Kind kind, std::vector<ValueId> args, ValueId target, bool is_free = false) {
    std::sort(args.begin(), args.begin() + 2);
    auto [known, is_new] = known_.try_emplace({kind, args}, target);
    if (!is_new)
      return known->second;
    const Type type{DType::F32, lanes_};
    if (target < 0) {
      known->second = target = ValueId(p_.values.size());
      p_.values.push_back(type);
    }
    cost_ += is_free ? 0 : lanes_;
    if (kind == Kind::Fma)
      made_.push_back({target, {type, inst::Fma{{args[0], args[1], args[2]}}}});
    else
      made_.push_back(
          {target,
           {type, inst::Apply{kind == Kind::Add ? Op::Add : Op::Mul, std::move(args)}}});
    return target;
  }
  ValueId add(ValueId a, ValueId b, ValueId target) {
    return instruction(Kind::Add, {a, b}, target);
  }
  ValueId mul(ValueId a, ValueId b, ValueId target = -1) {
    return instruction(Kind::Mul, {a, b}, target);
  }
  ValueId fma(ValueId a, ValueId b, ValueId c, ValueId target) {
    return instruction(Kind::Fma, {a, b, c}, target);
  }
  /// Costs nothing: it becomes a sign of an operand.
  ValueId negative(ValueId v, ValueId target = -1) {
    return instruction(Kind::Mul, {v, uniforms_.number(-1, lanes_)}, target, true);
  }
  ValueId of_scale(const std::vector<Scale>& scale) {
    return scale.size() == 1 && scale[0].uniforms.empty()
               ? uniforms_.number(scale[0].number, lanes_)
               : uniforms_.splat(uniforms_.of(scale), lanes_);
  }
  ValueId scaled(ValueId v, const std::vector<Scale>& scale, ValueId target) {
    return is_number(scale, 1)    ? v
           : is_number(scale, -1) ? negative(v, target)
                                  : mul(v, of_scale(scale), target);
  }

  // --- Products

  /// What to make a product of: the largest product that is there or has a name; else squares.
  std::pair<Monomial, Monomial> split(const Monomial& m) const {
    const Monomial* best = nullptr;
    const auto consider = [&](const Monomial& d) {
      if (d.size() < m.size() && (!best || d.size() > best->size()) && divides(d, m))
        best = &d;
    };
    for (const auto& [product, value] : products_)
      consider(product);
    for (const Monomial& product : named_)
      consider(product);
    if (best)
      return {*best, quotient_of(m, *best)};
    Monomial half;
    for (std::size_t i = 0; i + 1 < m.size() && m[i] == m[i + 1]; i += 2)
      half.push_back(m[i]);
    if (2 * half.size() == m.size())
      return {half, half};
    const auto twice = std::adjacent_find(m.begin(), m.end());
    const Monomial divisor = twice == m.end() ? Monomial(m.begin(), m.end() - 1)
                                              : Monomial(twice, twice + 2);
    return {divisor, quotient_of(m, divisor)};
  }
  const ValueId* made_product(const Monomial& m) const {
    const auto found = products_.find(m);
    return found == products_.end() ? nullptr : &found->second;
  }
  ValueId product(const Monomial& m, ValueId target = -1) {
    if (m.size() == 1)
      return m[0];
    if (const ValueId* made = made_product(m))
      return *made;
    const auto [a, b] = split(m);
    const ValueId made = mul(product(a), product(b), target);
    products_.emplace(m, made);
    return made;
  }
  ValueId value(const Term& t, ValueId target) {
    if (t.atoms.empty())
      return of_scale(t.scale);
    return is_number(t.scale, 1) ? product(t.atoms, target)
                                 : scaled(product(t.atoms), t.scale, target);
  }

  // --- Sums

  ValueId sum(const Polynomial& p, ValueId target) {
    if (p.size() == 1)
      return value(p[0], target);
    Monomial factor = best_factor(p);
    if (factor.empty())
      return plain_sum(p, target);
    Polynomial quotient, rest;
    for (const Term& t : p)
      if (divides(factor, t.atoms))
        quotient.push_back({t.scale, quotient_of(t.atoms, factor)});
      else
        rest.push_back(t);
    const std::vector<Scale> scale = common_scale(quotient);
    const ValueId inner = sum(quotient, -1), outer = scaled(product(factor), scale, -1);
    return rest.empty() ? mul(outer, inner, target) : fma(outer, inner, sum(rest, -1), target);
  }

  /// The common divisor of the terms that have the value that most terms have; empty where no two
  /// terms have a value in common.
  static Monomial best_factor(const Polynomial& p) {
    std::map<ValueId, std::pair<int, Monomial>> found; // terms, and their common divisor
    for (const Term& t : p)
      for (std::size_t i = 0; i < t.atoms.size(); ++i)
        if (i == 0 || t.atoms[i] != t.atoms[i - 1]) {
          auto& [terms, divisor] = found[t.atoms[i]];
          divisor = terms++ == 0 ? t.atoms : common_divisor(divisor, t.atoms);
        }
    int most = 1;
    Monomial best;
    for (auto& [atom, in] : found)
      if (in.first > most || (in.first == most && !best.empty() && in.second.size() > best.size())) {
        most = in.first;
        best = std::move(in.second);
      }
    return best;
  }

  /// Takes a scale out of terms that all have it, up to their signs. By itself it is a product;
  /// with a value it may be a part of an Fma, so that a term without values keeps it.
  static std::vector<Scale> common_scale(Polynomial& p) {
    const std::vector<Scale> one{{1, {}}}, scale = p[0].scale;
    const bool is_common = std::ranges::all_of(p, [&](const Term& t) {
      return !t.atoms.empty() && t.scale.size() == 1 && scale.size() == 1 &&
             t.scale[0].uniforms == scale[0].uniforms &&
             std::abs(t.scale[0].number) == std::abs(scale[0].number);
    });
    if (!is_common)
      return one;
    for (Term& t : p)
      t.scale = {{t.scale[0].number / scale[0].number, {}}};
    return scale;
  }

  /// In the order in which terms are added.
  enum class Form : std::uint8_t { Uniform, Exact, Scaled, Product };
  static Form form_of(const Term& t) {
    return t.atoms.empty()       ? Form::Uniform
           : is_exact(t)         ? Form::Exact
           : t.atoms.size() == 1 ? Form::Scaled
                                 : Form::Product;
  }

  ValueId plain_sum(Polynomial p, ValueId target) {
    std::stable_sort(p.begin(), p.end(),
                     [](const Term& a, const Term& b) { return form_of(a) < form_of(b); });
    ValueId result = value(p[0], -1);
    bool has_value = form_of(p[0]) == Form::Exact || form_of(p[0]) == Form::Scaled;
    for (std::size_t i = 1; i < p.size(); ++i) {
      const Term& t = p[i];
      const ValueId to = i + 1 == p.size() ? target : -1;
      const Form form = form_of(t);
      const bool as_written = form == Form::Scaled && has_value;
      has_value = has_value || form == Form::Exact || form == Form::Scaled;
      const bool is_signed = is_number(t.scale, 1) || is_number(t.scale, -1);
      if (form == Form::Uniform || as_written || (form == Form::Exact && is_signed) ||
          (is_number(t.scale, 1) && made_product(t.atoms)))
        result = add(result, value(t, -1), to);
      else if (form == Form::Product && is_signed) {
        const auto [a, b] = split(t.atoms);
        result = fma(scaled(product(a), t.scale, -1), product(b), result, to);
      } else
        result = fma(product(t.atoms), of_scale(t.scale), result, to);
    }
    return result;
  }

  KernelProgram& p_;
  UniformValues& uniforms_;
  int lanes_;
  std::vector<Monomial> named_;
  std::map<std::pair<Kind, std::vector<ValueId>>, ValueId> known_;
  std::map<Monomial, ValueId> products_;
  std::vector<Let> made_;
  int cost_ = 0;
};

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
      for (ValueId v : operands(values_[i].inst))
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
    return let.inst.type.dtype == DType::F32 && !operands(let.inst).empty() &&
           facts_.uses[v] > 0 && facts_.asked[v] >= Asked::Rounded;
  }

  /// With as many operands multiplied out as is allowed. With none of them it always is.
  Polynomial polynomial(const Inst& inst) const {
    const std::vector<ValueId> of = operands(inst);
    const bool is_sum = get_if<inst::Apply>(inst)->op == Op::Add;
    for (unsigned whole = 0;; ++whole) {
      ensure(whole < 4, "a product or sum of two values is no polynomial");
      const Polynomial a = operand(of[0], (whole & 1) != 0),
                       b = operand(of[1], (whole & 2) != 0);
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
      for (ValueId v : operands(user.inst))
        if (const auto i = index_.find(v); i != index_.end())
          ++inner[i->second];
    for (std::size_t i = values_.size(); i-- > 0;) {
      values_[i].root = values_[i].root || facts_.uses[std::size_t(values_[i].id)] > inner[i];
      if (values_[i].root)
        for (const Term& t : values_[i].polynomial)
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

class Pass {
public:
  Pass(KernelProgram& program, Facts facts) : p_(program), facts_(std::move(facts)) {}

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
    std::vector<Monomial> named;
    for (std::size_t i : group) {
      const Algebraic& v = values[i];
      cost += is_negative(v.inst) ? 0 : lanes;
      if (v.polynomial.size() == 1 && v.polynomial[0].atoms.size() > 1 &&
          facts_.uses[std::size_t(v.id)] > 1)
        named.push_back(v.polynomial[0].atoms);
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
    const bool is_unused = let && let->inst.type.dtype == DType::F32 &&
                           named[std::size_t(let->target)] == 1;
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
  if (!uses.tangents.empty()) {
    expand_tangents(program, uses);
    drop_unused(program); // tangents
  }
  Facts facts = facts_of(program, std::move(uses.asked));
  if (Pass(program, std::move(facts)).block(program.body))
    drop_unused(program);
  return program;
}

} // namespace egret::kernel

#include "kernel/factoring.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace egret::kernel {

namespace {

std::vector<ValueId> operands_of(const Inst& inst) {
  if (const auto* splat = get_if<inst::Splat>(inst))
    return {splat->value};
  if (const auto* shuffle = get_if<inst::Shuffle>(inst))
    return shuffle->args;
  if (const auto* fma = get_if<inst::Fma>(inst))
    return {fma->args.begin(), fma->args.end()};
  const auto* op = get_if<inst::Apply>(inst);
  return op ? op->args : std::vector<ValueId>{};
}

/// The common divisor of the terms that have the value that most terms have; empty where no two
/// terms have a value in common.
Monomial best_factor(const Polynomial& p) {
  std::map<ValueId, std::pair<int, Monomial>> found; // terms, and their common divisor
  for (const SumTerm& t : p)
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

/// Takes a scale out of terms that all have it, up to their signs. By itself it is a product; with
/// a value it may be a part of an Fma, so that a term without values keeps it.
std::vector<Scale> common_scale(Polynomial& p) {
  const std::vector<Scale> one{{1, {}}}, scale = p[0].scale;
  const bool is_common = std::ranges::all_of(p, [&](const SumTerm& t) {
    return !t.atoms.empty() && t.scale.size() == 1 && scale.size() == 1 &&
           t.scale[0].uniforms == scale[0].uniforms &&
           std::abs(t.scale[0].number) == std::abs(scale[0].number);
  });
  if (!is_common)
    return one;
  for (SumTerm& t : p)
    t.scale = {{t.scale[0].number / scale[0].number, {}}};
  return scale;
}

/// In the order in which terms are added.
enum class TermForm : std::uint8_t { Uniform, Exact, Scaled, Product };
TermForm form_of(const SumTerm& t) {
  return t.atoms.empty()       ? TermForm::Uniform
         : is_exact(t)         ? TermForm::Exact
         : t.atoms.size() == 1 ? TermForm::Scaled
                               : TermForm::Product;
}

} // namespace

// --- Uniform values

void UniformValues::shrink(std::size_t size) {
  for (; nodes_.size() > size; nodes_.pop_back()) {
    place_.erase(nodes_.back().id);
    // Of those with one hash, the last is what was made last.
    known_[hash_of(nodes_.back().inst)].pop_back();
  }
}

int UniformValues::cost(std::size_t from) const {
  return int(std::count_if(nodes_.begin() + std::ptrdiff_t(from), nodes_.end(),
                           [](const Node& n) { return get_if<inst::Apply>(n.inst); }));
}

ValueId UniformValues::number(double x, int lanes) {
  return make({{DType::F32, lanes}, inst::Constant{Scalar::of(DType::F32, x)}});
}

ValueId UniformValues::splat(ValueId v, int lanes) {
  return lanes == 1 ? v : make({{DType::F32, lanes}, inst::Splat{v}});
}

ValueId UniformValues::of(const std::vector<Scale>& scale) {
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

void UniformValues::place_operands(Block& to, const Inst& inst) {
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

ValueId UniformValues::apply(Op op, ValueId a, ValueId b) {
  return make({{DType::F32, 1}, inst::Apply{op, {a, b}}});
}

ValueId UniformValues::make(Inst inst) {
  std::vector<std::size_t>& known = known_[hash_of(inst)];
  for (std::size_t node : known)
    if (nodes_[node].inst == inst)
      return nodes_[node].id;
  const auto id = ValueId(p_.values.size());
  p_.values.push_back(inst.type);
  known.push_back(nodes_.size());
  place_.emplace(id, nodes_.size());
  nodes_.push_back({id, std::move(inst)});
  return id;
}

// --- Instructions

std::vector<Let> Factoring::make(ValueId target, const Polynomial& p) {
  made_.clear();
  const ValueId result = sum(p, target);
  if (result != target) { // a name for what is there
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

ValueId Factoring::instruction(Kind kind, std::vector<ValueId> args, ValueId target, bool is_free) {
  std::sort(args.begin(), args.begin() + 2);
  const auto [known, is_new] = known_.try_emplace({kind, args}, target);
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
        {target, {type, inst::Apply{kind == Kind::Add ? Op::Add : Op::Mul, std::move(args)}}});
  return target;
}

ValueId Factoring::add(ValueId a, ValueId b, ValueId target) {
  return instruction(Kind::Add, {a, b}, target);
}
ValueId Factoring::mul(ValueId a, ValueId b, ValueId target) {
  return instruction(Kind::Mul, {a, b}, target);
}
ValueId Factoring::fma(ValueId a, ValueId b, ValueId c, ValueId target) {
  return instruction(Kind::Fma, {a, b, c}, target);
}
ValueId Factoring::negative(ValueId v, ValueId target) {
  return instruction(Kind::Mul, {v, uniforms_.number(-1, lanes_)}, target, true);
}

ValueId Factoring::of_scale(const std::vector<Scale>& scale) {
  return scale.size() == 1 && scale[0].uniforms.empty()
             ? uniforms_.number(scale[0].number, lanes_)
             : uniforms_.splat(uniforms_.of(scale), lanes_);
}

ValueId Factoring::scaled(ValueId v, const std::vector<Scale>& scale, ValueId target) {
  if (is_number(scale, 1))
    return v;
  return is_number(scale, -1) ? negative(v, target) : mul(v, of_scale(scale), target);
}

// --- Products

/// What to make a product of: the largest product that is there or has a name; else squares.
std::pair<Monomial, Monomial> Factoring::split(const Monomial& m) const {
  const Monomial* best = nullptr;
  // Products by their first factors, which a divisor shares with m.
  const auto consider = [&](const auto& products, const auto& monomial_of) {
    for (std::size_t i = 0; i < m.size(); ++i)
      for (auto p = products.lower_bound({m[i]}); p != products.end() && monomial_of(*p)[0] == m[i];
           ++p) {
        const Monomial& d = monomial_of(*p);
        if (d.size() < m.size() && (!best || d.size() > best->size()) && divides(d, m))
          best = &d;
      }
  };
  consider(products_, [](const auto& made) -> const Monomial& { return made.first; });
  consider(named_, [](const Monomial& named) -> const Monomial& { return named; });
  if (best)
    return {*best, quotient_of(m, *best)};
  Monomial half;
  for (std::size_t i = 0; i + 1 < m.size() && m[i] == m[i + 1]; i += 2)
    half.push_back(m[i]);
  if (2 * half.size() == m.size())
    return {half, half};
  const auto twice = std::adjacent_find(m.begin(), m.end());
  const Monomial divisor =
      twice == m.end() ? Monomial(m.begin(), m.end() - 1) : Monomial(twice, twice + 2);
  return {divisor, quotient_of(m, divisor)};
}

const ValueId* Factoring::made_product(const Monomial& m) const {
  const auto found = products_.find(m);
  return found == products_.end() ? nullptr : &found->second;
}

ValueId Factoring::product(const Monomial& m, ValueId target) {
  if (m.size() == 1)
    return m[0];
  if (const ValueId* made = made_product(m))
    return *made;
  const auto [a, b] = split(m);
  const ValueId left = product(a), made = mul(left, product(b), target);
  products_.emplace(m, made);
  return made;
}

ValueId Factoring::value(const SumTerm& t, ValueId target) {
  if (t.atoms.empty())
    return of_scale(t.scale);
  return is_number(t.scale, 1) ? product(t.atoms, target)
                               : scaled(product(t.atoms), t.scale, target);
}

// --- Sums

ValueId Factoring::sum(const Polynomial& p, ValueId target) {
  if (p.size() == 1)
    return value(p[0], target);
  const Monomial factor = best_factor(p);
  if (factor.empty())
    return plain_sum(p, target);
  Polynomial quotient, rest;
  for (const SumTerm& t : p)
    if (divides(factor, t.atoms))
      quotient.push_back({t.scale, quotient_of(t.atoms, factor)});
    else
      rest.push_back(t);
  const std::vector<Scale> scale = common_scale(quotient);
  const ValueId inner = sum(quotient), outer = scaled(product(factor), scale);
  return rest.empty() ? mul(outer, inner, target) : fma(outer, inner, sum(rest), target);
}

/// The sum of terms that have nothing in common.
ValueId Factoring::plain_sum(Polynomial p, ValueId target) {
  const auto is_value = [](TermForm form) {
    return form == TermForm::Exact || form == TermForm::Scaled;
  };
  std::stable_sort(p.begin(), p.end(),
                   [](const SumTerm& a, const SumTerm& b) { return form_of(a) < form_of(b); });
  ValueId result = value(p[0]);
  bool has_value = is_value(form_of(p[0]));
  for (std::size_t i = 1; i < p.size(); ++i) {
    const SumTerm& t = p[i];
    const TermForm form = form_of(t);
    const ValueId to = i + 1 == p.size() ? target : -1;
    const bool is_plain = is_number(t.scale, 1), is_signed = is_plain || is_number(t.scale, -1),
               is_rounded = form == TermForm::Scaled && has_value; // as it is written
    if (form == TermForm::Uniform || is_rounded || (form == TermForm::Exact && is_signed) ||
        (is_plain && made_product(t.atoms)))
      result = add(result, value(t), to);
    else if (form == TermForm::Product && is_signed) {
      const auto [a, b] = split(t.atoms);
      const ValueId left = scaled(product(a), t.scale);
      result = fma(left, product(b), result, to);
    } else
      result = fma(product(t.atoms), of_scale(t.scale), result, to);
    has_value = has_value || is_value(form);
  }
  return result;
}

} // namespace egret::kernel

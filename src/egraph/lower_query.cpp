// Facts to queries: flattening, unification of equal terms, and merging of atoms that a functional
// dependency makes equal.
#include "egraph/lower.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {

std::uint32_t Lowering::new_variable() {
  bindings_.push_back({false, static_cast<std::uint32_t>(bindings_.size())});
  return static_cast<std::uint32_t>(bindings_.size() - 1);
}

QueryTerm Lowering::resolve(QueryTerm term) {
  while (!term.is_const && bindings_[term.value] != term) {
    QueryTerm next = bindings_[term.value];
    if (!next.is_const)
      bindings_[term.value] = bindings_[next.value];
    term = next;
  }
  return term;
}

bool Lowering::unify(QueryTerm a, QueryTerm b) {
  a = resolve(a);
  b = resolve(b);
  if (a == b)
    return false;
  if (a.is_const && b.is_const) {
    query_.impossible = true;
    return false;
  }
  if (a.is_const)
    bindings_[b.value] = a;
  else
    bindings_[a.value] = b;
  return true;
}

void Lowering::lower_facts() {
  std::vector<QueryTerm> terms(typed_.nodes.size());
  std::vector<bool> needed(typed_.nodes.size(), false);
  for (const TypedFact& fact : typed_.facts)
    needed[fact.a] = needed[fact.b] = true;
  for (std::size_t i = typed_.nodes.size(); i-- > 0;) {
    if (needed[i]) {
      for (std::uint32_t child : typed_.args(typed_.nodes[i]))
        needed[child] = true;
    }
  }
  variable_terms_.resize(typed_.variables.size());
  for (std::size_t i = 0; i < typed_.nodes.size(); ++i) {
    if (!needed[i])
      continue;
    const ExprNode& node = typed_.nodes[i];
    switch (node.kind) {
    case ExprKind::Variable:
      if (!variable_terms_[node.target])
        variable_terms_[node.target] = QueryTerm{false, new_variable()};
      terms[i] = *variable_terms_[node.target];
      break;
    case ExprKind::Constant:
      terms[i] = {true, node.target};
      break;
    case ExprKind::Call: {
      TableAtom atom{FunctionId{node.target}, {}};
      for (std::uint32_t child : typed_.args(node))
        atom.terms.push_back(terms[child]);
      terms[i] = {false, new_variable()};
      atom.terms.push_back(terms[i]);
      query_.atoms.push_back(std::move(atom));
      break;
    }
    case ExprKind::Primitive: {
      PrimAtom atom;
      atom.primitive = node.target;
      for (std::uint32_t child : typed_.args(node))
        atom.args.push_back(terms[child]);
      terms[i] = {false, new_variable()};
      atom.out = terms[i];
      query_.prims.push_back(std::move(atom));
      break;
    }
    }
  }
  for (const TypedFact& fact : typed_.facts)
    unify(terms[fact.a], terms[fact.b]);
}

/// One pass over the atoms with their terms resolved; equal keys give equal outputs. True if that
/// unified anything.
bool Lowering::merge_duplicates() {
  auto encode = [](std::vector<std::uint32_t>& key, QueryTerm term) {
    key.push_back(term.is_const);
    key.push_back(term.value);
  };
  bool changed = false;
  std::map<std::vector<std::uint32_t>, QueryTerm> seen;
  std::map<std::uint32_t, std::vector<QueryTerm>> rows; // a relation's, by the variable they are
  std::vector<TableAtom> atoms;
  for (TableAtom& atom : query_.atoms) {
    std::vector<std::uint32_t> key{0, static_cast<std::uint32_t>(atom.function)};
    for (QueryTerm& term : atom.terms)
      term = resolve(term);
    for (std::size_t i = 0; i + 1 < atom.terms.size(); ++i)
      encode(key, atom.terms[i]);
    if (signature_.function(atom.function).kind == FunctionKind::Relation &&
        !atom.terms.back().is_const) {
      // A fact is equal to itself alone, so its arguments are equal too.
      auto [row, first] = rows.try_emplace(atom.terms.back().value, atom.terms);
      for (std::size_t i = 0; !first && i + 1 < atom.terms.size(); ++i)
        changed |= unify(row->second[i], atom.terms[i]);
    }
    auto [at, added] = seen.try_emplace(std::move(key), atom.terms.back());
    if (added) {
      atoms.push_back(std::move(atom));
      continue;
    }
    changed |= unify(at->second, atom.terms.back());
  }
  query_.atoms = std::move(atoms);
  std::vector<PrimAtom> prims;
  for (PrimAtom& atom : query_.prims) {
    std::vector<std::uint32_t> key{1, atom.primitive};
    for (QueryTerm& term : atom.args)
      encode(key, term = resolve(term));
    atom.out = resolve(atom.out);
    if (!signature_.primitive(atom.primitive).pure) {
      prims.push_back(std::move(atom));
      continue;
    }
    auto [at, added] = seen.try_emplace(std::move(key), atom.out);
    if (added) {
      prims.push_back(std::move(atom));
      continue;
    }
    changed |= unify(at->second, atom.out);
  }
  query_.prims = std::move(prims);
  return changed;
}

void Lowering::simplify() {
  while (merge_duplicates()) {
  }
  for (TableAtom& atom : query_.atoms) {
    for (QueryTerm& term : atom.terms)
      term = resolve(term);
  }
  for (PrimAtom& atom : query_.prims) {
    for (QueryTerm& term : atom.args)
      term = resolve(term);
    atom.out = resolve(atom.out);
  }
}

/// Every variable must get its value from a table, or from a primitive whose arguments do.
void Lowering::check_grounded(Span whole) {
  std::vector<bool> grounded(bindings_.size(), false);
  std::vector<std::vector<std::uint32_t>> waiting(bindings_.size());
  std::vector<std::size_t> missing(query_.prims.size(), 0);
  std::vector<std::uint32_t> ready;
  auto ground = [&](QueryTerm term) {
    if (!term.is_const && !grounded[term.value]) {
      grounded[term.value] = true;
      ready.push_back(term.value);
    }
  };
  std::vector<QueryTerm> outputs;
  for (std::uint32_t p = 0; p < query_.prims.size(); ++p) {
    for (QueryTerm term : query_.prims[p].args) {
      if (!term.is_const) {
        waiting[term.value].push_back(p);
        ++missing[p];
      }
    }
    if (missing[p] == 0)
      outputs.push_back(query_.prims[p].out);
  }
  for (const TableAtom& atom : query_.atoms) {
    for (QueryTerm term : atom.terms)
      ground(term);
  }
  for (QueryTerm term : outputs)
    ground(term);
  while (!ready.empty()) {
    std::uint32_t variable = ready.back();
    ready.pop_back();
    for (std::uint32_t p : waiting[variable]) {
      if (--missing[p] == 0)
        ground(query_.prims[p].out);
    }
  }
  for (std::size_t i = 0; i < typed_.variables.size(); ++i) {
    if (!variable_terms_[i])
      continue;
    QueryTerm term = resolve(*variable_terms_[i]);
    if (term.is_const || grounded[term.value])
      continue;
    Span span = typed_.variables[i].span;
    std::string message = fmt::format(
        "the variable {} is not bound: no function or relation in the query gives it a value",
        typed_.variables[i].name);
    // No single place is at fault, so a rule of several lines is named by its first.
    if (whole.end != 0 && sources_.position(whole).line != sources_.position(span).line) {
      message += fmt::format(" (it is used at {})", sources_.where(span));
      span = whole;
    }
    sources_.fail(ErrorKind::Parse, span, message);
  }
}

/// Numbers the variables that are left 0, 1, 2 ... in the order of their first use.
void Lowering::renumber(std::vector<QueryTerm>& inputs) {
  std::vector<std::int64_t> number(bindings_.size(), -1);
  auto rename = [&](QueryTerm& term) {
    if (term.is_const)
      return;
    if (number[term.value] < 0)
      number[term.value] = query_.variables++;
    term.value = static_cast<std::uint32_t>(number[term.value]);
  };
  for (TableAtom& atom : query_.atoms)
    std::for_each(atom.terms.begin(), atom.terms.end(), rename);
  for (PrimAtom& atom : query_.prims) {
    std::for_each(atom.args.begin(), atom.args.end(), rename);
    rename(atom.out);
  }
  std::for_each(inputs.begin(), inputs.end(), rename);
}

LoweredRule Lowering::rule(Span whole) {
  lower_facts();
  simplify();
  check_grounded(whole);
  lower_actions();
  renumber(inputs_);
  return {std::move(query_), std::move(program_), std::move(inputs_)};
}

} // namespace egret::egraph

// The second half of the type checker: choosing the overloads of primitives, until every sort is
// known.
#include "egraph/typecheck.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {

/// Whether an overload cannot be meant, given what is known so far.
bool TypeChecker::contradicts(const Pending& pending, PrimId id) {
  const Primitive& primitive = signature_.primitive(id);
  std::span<const std::uint32_t> args = typed_.args(typed_.nodes[pending.node]);
  std::optional<SortId> result = sort_of(node_types_[pending.node]);
  if (primitive.any) {
    std::vector<SortId> known;
    if (primitive.result_is_arg && result)
      known.push_back(*result);
    for (std::uint32_t arg : args) {
      if (std::optional<SortId> sort = sort_of(node_types_[arg]))
        known.push_back(*sort);
    }
    if (std::adjacent_find(known.begin(), known.end(), std::not_equal_to<>()) != known.end())
      return true;
    return !primitive.result_is_arg && result && *result != primitive.result;
  }
  if (result && *result != primitive.result)
    return true;
  for (std::size_t i = 0; i < args.size(); ++i) {
    std::optional<SortId> known = sort_of(node_types_[args[i]]);
    if (known && *known != primitive.param(i))
      return true;
  }
  return false;
}

/// Removes the candidates that contradict what is known. False once the primitive is settled.
bool TypeChecker::narrow(Pending& pending) {
  if (!pending.targets.empty())
    return narrow_fn(pending);
  std::vector<PrimId> before = pending.candidates;
  std::erase_if(pending.candidates, [&](PrimId id) { return contradicts(pending, id); });
  if (pending.candidates.empty()) {
    pending.candidates = std::move(before);
    no_overload(pending);
  }
  if (pending.candidates.size() > 1)
    return true;
  settle(pending, pending.candidates[0]);
  return false;
}

/// The same for (unstable-fn "name" bound arguments ...): the sorts of its arguments are those of
/// the function it names.
bool TypeChecker::narrow_fn(Pending& pending) {
  const ExprNode node = typed_.nodes[pending.node];
  std::span<const std::uint32_t> bound = typed_.args(node).subspan(1);
  std::optional<SortId> result = sort_of(node_types_[pending.node]);
  std::string expected;
  std::size_t kept = 0;
  for (std::size_t c = 0; c < pending.candidates.size(); ++c) {
    SortId made = signature_.primitive(pending.candidates[c]).result;
    bool fits = !result || *result == made;
    for (std::size_t i = 0; i < bound.size() && fits; ++i) {
      std::optional<SortId> known = sort_of(node_types_[bound[i]]);
      fits = !known || *known == pending.targets[c].bound[i];
    }
    if (!fits) {
      expected += (expected.empty() ? "" : " or ") + sort_name(made);
      for (SortId sort : pending.targets[c].bound)
        expected += " with " + sort_name(sort);
      continue;
    }
    pending.candidates[kept] = pending.candidates[c];
    pending.targets[kept++] = pending.targets[c];
  }
  if (kept == 0) {
    std::string found = result ? sort_name(*result) : "?";
    for (std::uint32_t arg : bound) {
      std::optional<SortId> known = sort_of(node_types_[arg]);
      found += " with " + (known ? sort_name(*known) : std::string("?"));
    }
    fail(node.span, fmt::format("unstable-fn: expected {}, found {}", expected, found));
  }
  pending.candidates.resize(kept);
  pending.targets.resize(kept);
  auto same_sort = [&](auto of) {
    for (std::size_t c = 1; c < kept; ++c) {
      if (of(c) != of(0))
        return false;
    }
    return true;
  };
  auto made = [&](std::size_t c) { return signature_.primitive(pending.candidates[c]).result; };
  if (same_sort(made))
    assign(node_types_[pending.node], made(0), node.span, "unstable-fn");
  for (std::size_t i = 0; i < bound.size(); ++i) {
    auto of = [&](std::size_t c) { return pending.targets[c].bound[i]; };
    if (same_sort(of))
      assign(node_types_[bound[i]], of(0), typed_.nodes[bound[i]].span,
             fmt::format("bound argument {}", i + 1));
  }
  if (kept > 1)
    return true;
  typed_.nodes[pending.node].target = pending.candidates[0];
  ExprNode& name = typed_.nodes[typed_.args(node)[0]];
  name.target =
      pools_.from_string(encode_fn_target(pools_.to_string(name.target), pending.targets[0]));
  return false;
}

void TypeChecker::settle(const Pending& pending, PrimId chosen) {
  const Primitive& primitive = signature_.primitive(chosen);
  ExprNode& node = typed_.nodes[pending.node];
  node.target = chosen;
  std::uint32_t type = node_types_[pending.node];
  std::span<const std::uint32_t> args = typed_.args(node);
  for (std::uint32_t arg : args) {
    std::optional<SortId> sort = sort_of(node_types_[arg]);
    if (primitive.any && sort && signature_.sort(*sort).kind == SortKind::Row)
      fail(node.span,
           fmt::format("{}: facts of relations are compared by = in a query only", primitive.name));
  }
  if (!(primitive.any && primitive.result_is_arg))
    assign(type, primitive.result, node.span, primitive.name);
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (primitive.any)
      unify(primitive.result_is_arg ? type : node_types_[args[0]], node_types_[args[i]], node.span);
    else
      assign(node_types_[args[i]], primitive.param(i), typed_.nodes[args[i]].span,
             fmt::format("argument {} of {}", i + 1, primitive.name));
  }
}

void TypeChecker::no_overload(const Pending& pending) {
  const ExprNode& node = typed_.nodes[pending.node];
  const std::string& name = signature_.primitive(pending.candidates[0]).name;
  auto shown = [&](std::uint32_t type) {
    std::optional<SortId> sort = sort_of(type);
    return sort ? sort_name(*sort) : std::string("?");
  };
  std::string found = "(" + name;
  for (std::uint32_t arg : typed_.args(node))
    found += " " + shown(node_types_[arg]);
  found += ") -> " + shown(node_types_[pending.node]);
  std::string expected;
  std::size_t listed = 0;
  for (PrimId id : pending.candidates) {
    const Primitive& primitive = signature_.primitive(id);
    if (++listed > 4) {
      expected += " or ...";
      break;
    }
    expected += (expected.empty() ? "(" : " or (") + name;
    for (std::size_t i = 0; i < node.count; ++i)
      expected += " " + (primitive.any ? std::string("T") : sort_name(primitive.param(i)));
    expected +=
        ") -> " + (primitive.result_is_arg ? std::string("T") : sort_name(primitive.result));
  }
  fail(node.span, fmt::format("{}: expected {}, found {}", name, expected, found));
}

/// (unstable-fn "name" bound arguments ...): its sort must be known from where it is used, or be
/// the only one that fits.
std::uint32_t TypeChecker::unstable_fn(Sexp sexp, std::span<const std::uint32_t> children) {
  if (sexp.size() < 2 || sexp[1].kind() != SexpKind::String)
    fail(sexp.span(), "expected (unstable-fn \"name\" arguments ...)");
  const std::string& name = sexp[1].string();
  auto function = signature_.find_function(name);
  if (!(function && !signature_.function(*function).hidden) &&
      signature_.find_primitives(name).empty())
    fail(sexp[1].span(), fmt::format("unknown function {}{}", name, suggestion(signature_, name)));
  Pending pending{0, {}, {}};
  std::string known;
  for (PrimId id : signature_.find_primitives("unstable-fn")) {
    const Sort& sort = signature_.sort(signature_.primitive(id).result);
    for (FnTarget& target : fn_targets(signature_, name, sort, children.size() - 1)) {
      pending.candidates.push_back(id);
      pending.targets.push_back(std::move(target));
    }
    known += (known.empty() ? "" : ", ") + sort.name + " (";
    for (std::size_t i = 0; i + 1 < sort.args.size(); ++i)
      known += (i == 0 ? "" : " ") + sort_name(sort.args[i]);
    known += ") -> " + sort_name(sort.args.back());
  }
  if (pending.candidates.empty()) {
    std::string found = name;
    if (function) {
      found += " (";
      const Function& f = signature_.function(*function);
      for (std::size_t i = 0; i < f.inputs.size(); ++i)
        found += (i == 0 ? "" : " ") + sort_name(f.inputs[i]);
      found += ") -> " + sort_name(f.output);
    }
    fail(sexp.span(),
         fmt::format("unstable-fn: expected a function of {}, found {} with {} bound "
                     "argument{}",
                     known.empty() ? "some UnstableFn sort, and none is declared" : known, found,
                     children.size() - 1, children.size() == 2 ? "" : "s"));
  }
  ExprNode node;
  node.kind = ExprKind::Primitive;
  node.span = sexp.span();
  node.first = static_cast<std::uint32_t>(typed_.children.size());
  node.count = static_cast<std::uint32_t>(children.size());
  typed_.children.insert(typed_.children.end(), children.begin(), children.end());
  pending.node = add(node, fresh_type());
  std::uint32_t index = pending.node;
  if (narrow(pending))
    pending_.push_back(std::move(pending));
  return index;
}

Typed TypeChecker::finish() {
  // Forward passes settle arguments before results; a backward pass lets what is expected outside
  // decide what is inside.
  bool forward = true;
  while (!pending_.empty()) {
    std::size_t before = pending_.size();
    std::size_t choices = 0, after = 0;
    for (const Pending& pending : pending_)
      choices += pending.candidates.size();
    std::vector<Pending> todo = std::move(pending_);
    pending_.clear();
    if (!forward)
      std::reverse(todo.begin(), todo.end());
    for (Pending& pending : todo) {
      if (narrow(pending))
        pending_.push_back(std::move(pending));
    }
    if (!forward)
      std::reverse(pending_.begin(), pending_.end());
    for (const Pending& pending : pending_)
      after += pending.candidates.size();
    if (pending_.size() == before && after == choices && !forward) {
      const ExprNode& node = typed_.nodes[pending_[0].node];
      std::string forms;
      for (PrimId id : pending_[0].candidates)
        forms += (forms.empty() ? "" : ", ") + sort_name(signature_.primitive(id).result);
      fail(node.span, fmt::format("the sort of {} cannot be inferred here: it may be {}",
                                  signature_.primitive(pending_[0].candidates[0]).name, forms));
    }
    forward = !forward;
  }
  for (std::size_t i = 0; i < typed_.variables.size(); ++i) {
    std::optional<SortId> sort = sort_of(variable_types_[i]);
    if (!sort)
      fail(typed_.variables[i].span,
           fmt::format("the sort of {} cannot be inferred", typed_.variables[i].name));
    typed_.variables[i].sort = *sort;
  }
  for (std::size_t i = 0; i < typed_.nodes.size(); ++i) {
    std::optional<SortId> sort = sort_of(node_types_[i]);
    if (!sort)
      fail(typed_.nodes[i].span, "the sort of this expression cannot be inferred");
    typed_.nodes[i].sort = *sort;
  }
  for (const TypedAction& action : typed_.actions) {
    if (action.kind == ActionKind::Union && !signature_.sort(typed_.nodes[action.a].sort).is_eq())
      fail(action.span, fmt::format("union joins classes: expected an equality sort, found {}",
                                    sort_name(typed_.nodes[action.a].sort)));
  }
  return std::move(typed_);
}

} // namespace egret::egraph

// The second half of the type checker: choosing the overloads of primitives, until every sort is
// known.
#include "egraph/typecheck.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {

/// Removes the candidates that contradict what is known. False once the primitive is settled.
bool TypeChecker::narrow(Pending& pending) {
  const ExprNode node = typed_.nodes[pending.node];
  std::span<const std::uint32_t> args = typed_.args(node);
  auto contradicts = [&](PrimId id) {
    const Primitive& primitive = signature_.primitive(id);
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
  };
  std::vector<PrimId> before = pending.candidates;
  std::erase_if(pending.candidates, contradicts);
  if (pending.candidates.empty()) {
    pending.candidates = std::move(before);
    no_overload(pending);
  }
  if (pending.candidates.size() > 1)
    return true;
  settle(pending, pending.candidates[0]);
  return false;
}

void TypeChecker::settle(const Pending& pending, PrimId chosen) {
  const Primitive& primitive = signature_.primitive(chosen);
  ExprNode& node = typed_.nodes[pending.node];
  node.target = chosen;
  std::uint32_t type = node_types_[pending.node];
  std::span<const std::uint32_t> args = typed_.args(node);
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
  struct Shape {
    std::vector<SortId> inputs;
    SortId output;
  };
  std::vector<Shape> shapes;
  if (auto id = signature_.find_function(name); id)
    shapes.push_back({signature_.function(*id).inputs, signature_.function(*id).output});
  for (PrimId id : signature_.find_primitives(name)) {
    if (const Primitive& primitive = signature_.primitive(id); !primitive.any && !primitive.rest)
      shapes.push_back({primitive.params, primitive.result});
  }
  if (shapes.empty())
    fail(sexp[1].span(), fmt::format("unknown function {}{}", name, suggestion(signature_, name)));
  std::size_t bound = children.size() - 1;
  Pending pending{0, {}};
  for (PrimId id : signature_.find_primitives("unstable-fn")) {
    const Sort& sort = signature_.sort(signature_.primitive(id).result);
    for (const Shape& shape : shapes) {
      std::size_t open = sort.args.size() - 1;
      if (shape.inputs.size() != bound + open || shape.output != sort.args.back() ||
          !std::equal(sort.args.begin(), sort.args.end() - 1,
                      shape.inputs.begin() + static_cast<std::ptrdiff_t>(bound)))
        continue;
      bool fits = true;
      for (std::size_t i = 0; i < bound; ++i) {
        std::optional<SortId> known = sort_of(node_types_[children[i + 1]]);
        fits &= !known || *known == shape.inputs[i];
      }
      if (fits && (pending.candidates.empty() || pending.candidates.back() != id))
        pending.candidates.push_back(id);
    }
  }
  if (pending.candidates.empty())
    fail(sexp.span(), fmt::format("no function sort fits {} with {} bound argument{}", name, bound,
                                  bound == 1 ? "" : "s"));
  // A constructor's bound arguments have its sorts; a primitive's are what they are.
  if (shapes.size() == 1) {
    for (std::size_t i = 0; i < bound; ++i)
      assign(node_types_[children[i + 1]], shapes[0].inputs[i], typed_.nodes[children[i + 1]].span,
             fmt::format("argument {} of {}", i + 1, name));
  }
  ExprNode node;
  node.kind = ExprKind::Primitive;
  node.span = sexp.span();
  node.first = static_cast<std::uint32_t>(typed_.children.size());
  node.count = static_cast<std::uint32_t>(children.size());
  typed_.children.insert(typed_.children.end(), children.begin(), children.end());
  pending.node = add(node, fresh_type());
  if (pending.candidates.size() == 1) {
    typed_.nodes[pending.node].target = pending.candidates[0];
    assign(node_types_[pending.node], signature_.primitive(pending.candidates[0]).result, node.span,
           "unstable-fn");
  } else {
    pending_.push_back(std::move(pending));
  }
  return static_cast<std::uint32_t>(typed_.nodes.size() - 1);
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
      bool is_fn = signature_.primitive(pending.candidates[0]).name == "unstable-fn";
      if (is_fn) { // its arguments are not those of its overloads
        std::optional<SortId> sort = sort_of(node_types_[pending.node]);
        std::erase_if(pending.candidates,
                      [&](PrimId id) { return sort && signature_.primitive(id).result != *sort; });
        if (pending.candidates.empty())
          fail(typed_.nodes[pending.node].span,
               fmt::format("expected {}, found a function of another sort", sort_name(*sort)));
        if (pending.candidates.size() == 1) {
          typed_.nodes[pending.node].target = pending.candidates[0];
          assign(node_types_[pending.node], signature_.primitive(pending.candidates[0]).result,
                 typed_.nodes[pending.node].span, "unstable-fn");
          continue;
        }
      } else if (!narrow(pending)) {
        continue;
      }
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

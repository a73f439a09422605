#include "egraph/signature.h"

namespace egret::egraph {

SortId Signature::add_sort(Sort sort) {
  SortId id = static_cast<SortId>(sorts_.size());
  sort.holds_ids = sort.is_eq();
  if (sort.is_container()) {
    for (SortId arg : sort.args)
      sort.holds_ids |= this->sort(arg).holds_ids;
    // A function value may hold bound arguments of any sort.
    sort.holds_ids |= sort.kind == SortKind::Fn;
  }
  sort_names_.emplace(sort.name, id);
  sorts_.push_back(std::move(sort));
  return id;
}

FunctionId Signature::add_function(Function function) {
  FunctionId id = static_cast<FunctionId>(functions_.size());
  function_names_.emplace(function.name, id);
  functions_.push_back(std::move(function));
  return id;
}

PrimId Signature::add_primitive(Primitive primitive) {
  PrimId id = static_cast<PrimId>(primitives_.size());
  primitive_names_[primitive.name].push_back(id);
  primitives_.push_back(std::make_shared<const Primitive>(std::move(primitive)));
  return id;
}

std::optional<SortId> Signature::find_sort(std::string_view name) const {
  auto at = sort_names_.find(name);
  return at == sort_names_.end() ? std::nullopt : std::optional(at->second);
}

std::optional<FunctionId> Signature::find_function(std::string_view name) const {
  auto at = function_names_.find(name);
  return at == function_names_.end() ? std::nullopt : std::optional(at->second);
}

const std::vector<PrimId>& Signature::find_primitives(std::string_view name) const {
  static const std::vector<PrimId> kNone;
  auto at = primitive_names_.find(name);
  return at == primitive_names_.end() ? kNone : at->second;
}

bool Signature::is_taken(std::string_view name) const {
  return find_sort(name) || find_function(name) || !find_primitives(name).empty();
}

} // namespace egret::egraph

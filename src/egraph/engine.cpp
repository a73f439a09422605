#include "egraph/engine.h"

#include "egraph/primitives.h"
#include "support/thread_pool.h"

namespace egret::egraph {

Engine::Engine() {
  const std::pair<const char*, SortKind> builtin[] = {
      {"Unit", SortKind::Unit},    {"bool", SortKind::Bool},     {"i64", SortKind::I64},
      {"f64", SortKind::F64},      {"String", SortKind::String}, {"BigInt", SortKind::BigInt},
      {"BigRat", SortKind::BigRat}};
  for (auto [name, kind] : builtin)
    signature.add_sort({name, kind, {}, false});
  add_builtin_primitives(signature);
  rulesets.push_back({});
}

FunctionId Engine::add_function(Function function) {
  tables.emplace_back(static_cast<std::uint32_t>(function.inputs.size()));
  tables.back().stamp(now);
  if (!function.hidden)
    ordinary.push_back(static_cast<std::uint32_t>(tables.size() - 1));
  return signature.add_function(std::move(function));
}

FunctionId Engine::add_global(Function function, Value value) {
  function.hidden = true;
  function.kind = FunctionKind::Function;
  FunctionId id = add_function(std::move(function));
  table(id).append(nullptr, value);
  const Sort& sort = signature.sort(signature.function(id).output);
  const std::uint32_t number = static_cast<std::uint32_t>(globals.size());
  globals.emplace_back(id, value);
  if (sort.is_eq())
    globals_of_class.emplace(value, number);
  else if (sort.holds_ids)
    container_globals.push_back(number);
  return id;
}

ThreadPool* Engine::pool() {
  if (threads <= 1)
    return nullptr;
  if (!pool_ || pool_->size() != threads)
    pool_ = std::make_shared<ThreadPool>(threads);
  return pool_.get();
}

std::optional<RulesetId> Engine::find_ruleset(std::string_view name) const {
  for (std::uint32_t i = 0; i < rulesets.size(); ++i) {
    if (rulesets[i].name == name)
      return RulesetId{i};
  }
  return std::nullopt;
}

Value Engine::canonical(SortId sort, Value value) {
  const Sort& s = signature.sort(sort);
  if (s.is_eq())
    return classes.find(value);
  return s.holds_ids ? pools.containers(static_cast<std::uint32_t>(sort)).current(value) : value;
}

Value Engine::canonical(SortId sort, Value value) const {
  const Sort& s = signature.sort(sort);
  if (s.is_eq())
    return classes.find(value);
  return s.holds_ids ? pools.containers(static_cast<std::uint32_t>(sort)).current(value) : value;
}

std::uint64_t Engine::changes() const {
  std::uint64_t total = classes.joins();
  for (std::uint32_t f : ordinary)
    total += tables[f].changes();
  return total;
}

std::uint64_t Engine::live_rows() const {
  std::uint64_t total = 0;
  for (std::uint32_t f : ordinary)
    total += tables[f].live();
  return total;
}

std::size_t Engine::bytes() const {
  std::size_t total = classes.bytes() + pools.bytes() + globals.size() * sizeof(Table);
  for (std::uint32_t f : ordinary)
    total += tables[f].bytes();
  return total;
}

std::optional<StopReason> Engine::exceeded(std::size_t waiting) const {
  if (std::optional<StopReason> late = limits.late())
    return late;
  if (limits.rows != Budget::kNoLimit && live_rows() > limits.rows)
    return StopReason::Rows;
  if (limits.bytes != Budget::kNoLimit && bytes() + waiting > limits.bytes)
    return StopReason::Memory;
  return std::nullopt;
}

} // namespace egret::egraph

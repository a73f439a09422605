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
  globals.emplace_back(id, value);
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
  std::size_t total = classes.bytes();
  for (const Table& table : tables)
    total += table.bytes();
  return total;
}

} // namespace egret::egraph

// UnstableFn: a function or primitive as a value, with its first arguments bound.
#include "egraph/containers.h"

#include <algorithm>

namespace egret::egraph {
namespace {

/// The words of the value that names `name` for function sort `sort` with `bound` arguments, or
/// nothing.
std::optional<Value> find_target(const Signature& signature, const std::string& name,
                                 const Sort& sort, std::size_t bound) {
  std::size_t open = sort.args.size() - 1;
  auto fits = [&](const std::vector<SortId>& inputs, SortId output) {
    return inputs.size() == bound + open && output == sort.args.back() &&
           std::equal(sort.args.begin(), sort.args.end() - 1,
                      inputs.begin() + static_cast<std::ptrdiff_t>(bound));
  };
  if (auto id = signature.find_function(name);
      id && fits(signature.function(*id).inputs, signature.function(*id).output))
    return static_cast<Value>(*id) << 1;
  for (PrimId id : signature.find_primitives(name)) {
    const Primitive& primitive = signature.primitive(id);
    if (!primitive.any && !primitive.rest && fits(primitive.params, primitive.result))
      return id << 1 | 1;
  }
  return std::nullopt;
}

Primitive app(const Signature& signature, SortId self) {
  const Sort& sort = signature.sort(self);
  Primitive p;
  p.name = "unstable-app";
  p.params = {self};
  p.params.insert(p.params.end(), sort.args.begin(), sort.args.end() - 1);
  p.result = sort.args.back();
  p.pure = false;
  p.body = [self](PrimContext& context, const Value* args, std::size_t count, Value& out) {
    return apply_function(context, args[0], self, {args + 1, count - 1}, out);
  };
  return p;
}

/// (name function container): applies a function to every element of a Vec, Set or MultiSet.
Primitive mapped(const std::string& name, SortId fn, SortId from, SortId to, SortKind kind) {
  Primitive p;
  p.name = name;
  p.params = {fn, from};
  p.result = to;
  p.pure = false;
  p.body = [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
    std::span<const Value> view =
        context.pools.containers(static_cast<std::uint32_t>(from))[args[1]];
    std::vector<Value> elements(view.begin(), view.end()), results;
    for (Value element : elements) {
      Value result = 0;
      if (!apply_function(context, args[0], fn, {&element, 1}, result))
        return false;
      results.push_back(result);
    }
    normalize(kind, results);
    out = context.pools.containers(static_cast<std::uint32_t>(to)).intern(results);
    return true;
  };
  return p;
}

} // namespace

bool apply_function(PrimContext& context, Value function, SortId fn_sort,
                    std::span<const Value> args, Value& out) {
  Engine& engine = *context.engine;
  std::span<const Value> content =
      context.pools.containers(static_cast<std::uint32_t>(fn_sort))[function];
  Value target = content[0];
  std::vector<Value> all(content.begin() + 1, content.end());
  all.insert(all.end(), args.begin(), args.end());
  if (target & 1)
    return engine.signature.primitive(target >> 1).body(context, all.data(), all.size(), out);
  FunctionId id{target >> 1};
  const Function& callee = engine.signature.function(id);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = engine.canonical(callee.inputs[i], all[i]);
  std::uint32_t row = engine.table(id).find(all.data());
  if (row != Table::kNone) {
    out = engine.table(id).output(row);
    return true;
  }
  if (!context.may_write || callee.kind == FunctionKind::Function)
    return false;
  out = Actor(engine).construct(id, all.data());
  return true;
}

void add_fn_primitives(Signature& signature, SortId self) {
  Primitive make;
  make.name = "unstable-fn"; // its arguments are checked by the type checker
  make.params = {sorts::kString};
  make.rest = sorts::kString;
  make.result = self;
  make.body = [self](PrimContext& context, const Value* args, std::size_t count, Value& out) {
    const Signature& known = context.engine->signature;
    auto target = find_target(known, context.pools.to_string(args[0]), known.sort(self), count - 1);
    if (!target)
      return false;
    std::vector<Value> content{*target};
    content.insert(content.end(), args + 1, args + count);
    out = context.pools.containers(static_cast<std::uint32_t>(self)).intern(content);
    return true;
  };
  signature.add_primitive(std::move(make));
  signature.add_primitive(app(signature, self));
}

void add_mapping_primitives(Signature& signature, SortId added) {
  std::vector<Primitive> maps;
  const std::vector<Sort>& all = signature.sorts();
  for (std::uint32_t f = 0; f < all.size(); ++f) {
    if (all[f].kind != SortKind::Fn || all[f].args.size() != 2)
      continue;
    for (std::uint32_t a = 0; a < all.size(); ++a) {
      const char* name = all[a].kind == SortKind::MultiSet ? "unstable-multiset-map"
                         : all[a].kind == SortKind::Vec    ? "unstable-vec-map"
                         : all[a].kind == SortKind::Set    ? "unstable-set-map"
                                                           : nullptr;
      if (!name || all[a].args[0] != all[f].args[0])
        continue;
      for (std::uint32_t b = 0; b < all.size(); ++b) {
        bool is_new = SortId{f} == added || SortId{a} == added || SortId{b} == added;
        if (is_new && all[b].kind == all[a].kind && all[b].args[0] == all[f].args[1])
          maps.push_back(mapped(name, SortId{f}, SortId{a}, SortId{b}, all[a].kind));
      }
    }
  }
  for (Primitive& map : maps)
    signature.add_primitive(std::move(map));
}

} // namespace egret::egraph

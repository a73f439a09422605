// UnstableFn: a function or primitive as a value, with its first arguments bound.
#include "egraph/containers.h"

#include <algorithm>

namespace egret::egraph {
namespace {

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

SortId bound_sort(const Primitive& primitive, const Sort& sort, std::size_t i) {
  return primitive.any ? sort.args[0] : primitive.param(i);
}

std::vector<FnTarget> fn_targets(const Signature& signature, std::string_view name,
                                 const Sort& sort, std::size_t bound) {
  std::vector<FnTarget> out;
  std::span<const SortId> open(sort.args.data(), sort.args.size() - 1);
  SortId result = sort.args.back();
  if (auto id = signature.find_function(name); id && !signature.function(*id).hidden) {
    const std::vector<SortId>& inputs = signature.function(*id).inputs;
    // As a value, a relation says whether a fact holds.
    const SortId output = signature.function(*id).kind == FunctionKind::Relation
                              ? sorts::kUnit
                              : signature.function(*id).output;
    if (output == result && inputs.size() == bound + open.size() &&
        std::equal(open.begin(), open.end(), inputs.begin() + static_cast<std::ptrdiff_t>(bound)))
      out.push_back({static_cast<Value>(*id) << 1,
                     {inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(bound)}});
    return out;
  }
  if (name == "unstable-fn")
    return out;
  for (PrimId id : signature.find_primitives(name)) {
    const Primitive& primitive = signature.primitive(id);
    if (!primitive.accepts(bound + open.size()))
      continue;
    bool fits = true;
    if (primitive.any) { // all arguments have one sort, which an open one has to show
      fits = !open.empty() && (primitive.result_is_arg ? open[0] : primitive.result) == result;
      for (SortId arg : open)
        fits &= arg == open[0];
    } else {
      fits = primitive.result == result;
      for (std::size_t i = 0; i < open.size(); ++i)
        fits &= primitive.param(bound + i) == open[i];
    }
    if (!fits)
      continue;
    FnTarget target{id << 1 | 1, {}};
    for (std::size_t i = 0; i < bound; ++i)
      target.bound.push_back(bound_sort(primitive, sort, i));
    out.push_back(std::move(target));
  }
  return out;
}

std::string encode_fn_target(std::string_view name, const FnTarget& target) {
  std::string text(name);
  text += '\0';
  return text + std::to_string(target.word);
}

void add_fn_primitives(Signature& signature, SortId self) {
  Primitive make;
  make.name = "unstable-fn"; // its arguments are checked by the type checker
  make.params = {sorts::kString};
  make.rest = {sorts::kString};
  make.result = self;
  make.body = [self](PrimContext& context, const Value* args, std::size_t count, Value& out) {
    // The name, and after a zero byte which of its meanings; without that the first one that fits.
    std::string_view text = context.pools.to_string(args[0]);
    std::size_t end = text.find('\0');
    const Signature& known = context.engine->signature;
    for (const FnTarget& target :
         fn_targets(known, text.substr(0, end), known.sort(self), count - 1)) {
      if (end != std::string_view::npos && text.substr(end + 1) != std::to_string(target.word))
        continue;
      std::vector<Value> content{target.word};
      content.insert(content.end(), args + 1, args + count);
      out = context.pools.containers(static_cast<std::uint32_t>(self)).intern(content);
      return true;
    }
    return false;
  };
  signature.add_primitive(std::move(make));
  signature.add_primitive(app(signature, self));
}

} // namespace egret::egraph

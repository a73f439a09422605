// Primitives that take function values: mapping, filtering and reducing containers, and matching on
// Either and Maybe. A function that has no value for an element leaves that element out.
#include "egraph/containers.h"

#include <algorithm>

namespace egret::egraph {
namespace {

using Content = std::vector<Value>;

/// The content of a container, copied: applying functions may make new containers.
Content content_of(PrimContext& context, SortId sort, Value value) {
  std::span<const Value> view = context.pools.containers(static_cast<std::uint32_t>(sort))[value];
  return {view.begin(), view.end()};
}

Value intern_as(PrimContext& context, SortId sort, SortKind kind, Content& content) {
  normalize(kind, content);
  return context.pools.containers(static_cast<std::uint32_t>(sort)).intern(content);
}

Primitive impure(std::string name, std::vector<SortId> params, SortId result, PrimBody body) {
  Primitive p;
  p.name = std::move(name);
  p.params = std::move(params);
  p.result = result;
  p.pure = false;
  p.body = std::move(body);
  return p;
}

/// (map function container).
Primitive mapped(const std::string& name, SortId fn, SortId from, SortId to, SortKind kind) {
  return impure(name, {fn, from}, to,
                [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
                  Content results;
                  for (Value element : content_of(context, from, args[1])) {
                    Value result = 0;
                    if (apply_function(context, args[0], fn, {&element, 1}, result))
                      results.push_back(result);
                  }
                  out = intern_as(context, to, kind, results);
                  return true;
                });
}

/// (filter function multiset): the elements for which the function has a value, or has none.
Primitive filtered(const std::string& name, SortId fn, SortId set, bool keep) {
  return impure(name, {fn, set}, set,
                [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
                  Content results;
                  for (Value element : content_of(context, set, args[1])) {
                    Value result = 0;
                    if (apply_function(context, args[0], fn, {&element, 1}, result) == keep)
                      results.push_back(element);
                  }
                  out = intern_as(context, set, SortKind::MultiSet, results);
                  return true;
                });
}

/// (flat-map function multiset): the sum of the results; elements without one stay.
Primitive flat_mapped(SortId fn, SortId set) {
  return impure("unstable-multiset-flat-map", {fn, set}, set,
                [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
                  Content results;
                  for (Value element : content_of(context, set, args[1])) {
                    Value result = 0;
                    if (!apply_function(context, args[0], fn, {&element, 1}, result)) {
                      results.push_back(element);
                      continue;
                    }
                    Content more = content_of(context, set, result);
                    results.insert(results.end(), more.begin(), more.end());
                  }
                  out = intern_as(context, set, SortKind::MultiSet, results);
                  return true;
                });
}

/// (reduce function initial multiset): f(f(first, second), third) ...; the initial value is that of
/// an empty multiset only.
Primitive reduced(const std::string& name, SortId fn, SortId set, SortId element) {
  return impure(name, {fn, element, set}, element,
                [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
                  Content content = content_of(context, set, args[2]);
                  out = content.empty() ? args[1] : content[0];
                  for (std::size_t i = 1; i < content.size(); ++i) {
                    Value pair[2] = {out, content[i]};
                    if (!apply_function(context, args[0], fn, pair, out))
                      return false;
                  }
                  return true;
                });
}

/// The function of a function value that names one without bound arguments.
std::optional<FunctionId> plain_function(PrimContext& context, SortId fn, Value value) {
  Content content = content_of(context, fn, value);
  return content.size() == 1 && content[0] % 2 == 0 ? std::optional(FunctionId{content[0] >> 1})
                                                    : std::nullopt;
}

/// (fill-index multiset function): sets function(multiset, element) to the count of each element,
/// unless that was done before.
Primitive filled(SortId fn, SortId set) {
  return impure("unstable-multiset-fill-index", {set, fn}, sorts::kUnit,
                [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
                  std::optional<FunctionId> id = plain_function(context, fn, args[1]);
                  if (!context.may_write || !id ||
                      context.engine->signature.function(*id).kind != FunctionKind::Function)
                    return false;
                  out = 0;
                  Content content = content_of(context, set, args[0]);
                  for (std::size_t i = 0, end; i < content.size(); i = end) {
                    for (end = i; end < content.size() && content[end] == content[i];)
                      ++end;
                    Value key[2] = {args[0], content[i]};
                    if (context.engine->table(*id).find(key) != Table::kNone)
                      break;
                    Actor(*context.engine)
                        .set(*id, key, context.pools.from_i64(static_cast<std::int64_t>(end - i)),
                             Span{});
                  }
                  return true;
                });
}

/// (clear-index multiset function): undoes fill-index.
Primitive cleared(SortId fn, SortId set) {
  return impure("unstable-multiset-clear-index", {set, fn}, sorts::kUnit,
                [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
                  std::optional<FunctionId> id = plain_function(context, fn, args[1]);
                  if (!context.may_write || !id)
                    return false;
                  out = 0;
                  for (Value element : content_of(context, set, args[0])) {
                    Value key[2] = {args[0], element};
                    Table& table = context.engine->table(*id);
                    if (std::uint32_t row = table.find(key); row != Table::kNone)
                      table.kill(row);
                  }
                  return true;
                });
}

/// (either-match either left right): applies one of two functions.
Primitive either_match(SortId either, SortId left, SortId right, SortId result) {
  return impure("either-match", {either, left, right}, result,
                [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
                  Content content = content_of(context, either, args[0]);
                  bool is_right = content[0] != 0;
                  return apply_function(context, args[is_right ? 2 : 1], is_right ? right : left,
                                        {&content[1], 1}, out);
                });
}

/// (maybe-match maybe function default).
Primitive maybe_match(SortId maybe, SortId fn, SortId result) {
  return impure("unstable-maybe-match", {maybe, fn, result}, result,
                [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
                  Content content = content_of(context, maybe, args[0]);
                  if (!content.empty())
                    return apply_function(context, args[1], fn, {content.data(), 1}, out);
                  out = args[2];
                  return true;
                });
}

/// Collects what a pair of a function sort and a container sort makes possible.
class Finder {
public:
  Finder(const Signature& signature, SortId added, std::vector<Primitive>& found)
      : sorts_(signature.sorts()), added_(added), found_(found) {}

  void consider(SortId fn, SortId container) {
    const Sort& f = sort(fn);
    const Sort& c = sort(container);
    std::size_t arity = f.args.size() - 1;
    SortId element = c.args[0], result = f.args.back();
    bool is_new = fn == added_ || container == added_;
    if (c.kind == SortKind::Either && arity == 1 && f.args[0] == c.args[0])
      matches_on_either(fn, container);
    if (c.kind == SortKind::Maybe && arity == 1 && f.args[0] == element && is_new)
      found_.push_back(maybe_match(container, fn, result));
    if (arity == 1 && f.args[0] == element)
      maps(fn, container);
    if (c.kind != SortKind::MultiSet || !is_new)
      return;
    if (arity == 1 && f.args[0] == element && result == sorts::kUnit) {
      found_.push_back(filtered("unstable-multiset-filter", fn, container, true));
      found_.push_back(filtered("unstable-multiset-filter-not", fn, container, false));
    }
    if (arity == 1 && f.args[0] == element && result == container)
      found_.push_back(flat_mapped(fn, container));
    if (arity == 2 && f.args[0] == element && f.args[1] == element && result == element) {
      found_.push_back(reduced("unstable-multiset-reduce", fn, container, element));
      found_.push_back(reduced("unstable-multiset-fold", fn, container, element));
    }
    if (arity == 2 && f.args[0] == container && f.args[1] == element && result == sorts::kI64) {
      found_.push_back(filled(fn, container));
      found_.push_back(cleared(fn, container));
    }
  }

private:
  const Sort& sort(SortId id) const { return sorts_[static_cast<std::size_t>(id)]; }

  void maps(SortId fn, SortId from) {
    SortKind kind = sort(from).kind;
    const char* name = kind == SortKind::MultiSet ? "unstable-multiset-map"
                       : kind == SortKind::Vec    ? "unstable-vec-map"
                       : kind == SortKind::Set    ? "unstable-set-map"
                                                  : nullptr;
    for (std::uint32_t to = 0; name && to < sorts_.size(); ++to) {
      bool is_new = fn == added_ || from == added_ || SortId{to} == added_;
      if (is_new && sorts_[to].kind == kind && sorts_[to].args[0] == sort(fn).args.back())
        found_.push_back(mapped(name, fn, from, SortId{to}, kind));
    }
  }

  void matches_on_either(SortId left, SortId either) {
    for (std::uint32_t right = 0; right < sorts_.size(); ++right) {
      const Sort& r = sorts_[right];
      bool is_new = left == added_ || either == added_ || SortId{right} == added_;
      if (is_new && r.kind == SortKind::Fn && r.args.size() == 2 &&
          r.args[0] == sort(either).args[1] && r.args.back() == sort(left).args.back())
        found_.push_back(either_match(either, left, SortId{right}, r.args.back()));
    }
  }

  const std::vector<Sort>& sorts_;
  SortId added_;
  std::vector<Primitive>& found_;
};

} // namespace

void add_mapping_primitives(Signature& signature, SortId added) {
  std::vector<Primitive> found;
  const std::vector<Sort>& all = signature.sorts();
  Finder finder(signature, added, found);
  for (std::uint32_t f = 0; f < all.size(); ++f) {
    for (std::uint32_t c = 0; all[f].kind == SortKind::Fn && c < all.size(); ++c) {
      if (all[c].is_container() && all[c].kind != SortKind::Fn)
        finder.consider(SortId{f}, SortId{c});
    }
  }
  for (Primitive& primitive : found)
    signature.add_primitive(std::move(primitive));
}

} // namespace egret::egraph

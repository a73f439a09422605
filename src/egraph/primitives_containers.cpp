// The primitives of Vec, Set, Map, MultiSet and Pair. Each declared sort gets its own overloads.
#include "egraph/containers.h"
#include "egraph/primitives.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace egret::egraph {
namespace {

using Content = std::vector<Value>;

/// Declares primitives of one container sort.
class Definer {
public:
  Definer(Signature& signature, SortId self)
      : signature_(signature), self_(self), kind_(signature.sort(self).kind) {}

  void add(const std::string& name, std::vector<SortId> params, SortId result, PrimBody body,
           std::vector<SortId> rest = {}, bool pure = true) {
    Primitive primitive;
    primitive.name = name;
    primitive.params = std::move(params);
    primitive.result = result;
    primitive.rest = std::move(rest);
    primitive.pure = pure;
    primitive.body = std::move(body);
    signature_.add_primitive(std::move(primitive));
  }

  /// A primitive that makes a container: `edit` starts from the content of the first argument (or
  /// from nothing) and changes it; false means failure.
  template <class Edit>
  void makes(const std::string& name, const std::vector<SortId>& params, Edit edit,
             const std::vector<SortId>& rest = {}) {
    std::uint32_t self = static_cast<std::uint32_t>(self_);
    SortKind kind = kind_;
    bool starts = !params.empty() && params[0] == self_;
    add(
        name, params, self_,
        [=](PrimContext& context, const Value* args, std::size_t count, Value& out) {
          ContainerPool& pool = context.pools.containers(self);
          Content content;
          if (starts)
            content.assign(pool[args[0]].begin(), pool[args[0]].end());
          if (!edit(context, content, std::span<const Value>(args, count)) ||
              content.size() > kMostElements)
            return false;
          normalize(kind, content);
          out = pool.intern(content);
          return true;
        },
        rest);
  }

  /// A primitive that asks a container: `ask` gets its content.
  template <class Ask>
  void asks(const std::string& name, const std::vector<SortId>& params, SortId result, Ask ask) {
    std::uint32_t self = static_cast<std::uint32_t>(self_);
    add(name, params, result,
        [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
          out = 0;
          return ask(context, context.pools.containers(self)[args[0]], args, out);
        });
  }

  std::span<const Value> other(PrimContext& context, Value v) const {
    return context.pools.containers(static_cast<std::uint32_t>(self_))[v];
  }

private:
  Signature& signature_;
  SortId self_;
  SortKind kind_;
};

bool contains(std::span<const Value> content, Value v) {
  return std::find(content.begin(), content.end(), v) != content.end();
}

/// contains, not-contains, length: the same for everything that is a list of elements.
void add_common(Definer& d, const std::string& prefix, SortId self, SortId element) {
  d.asks(prefix + "-contains", {self, element}, sorts::kUnit,
         [](PrimContext&, auto content, const Value* args, Value&) {
           return contains(content, args[1]);
         });
  d.asks(prefix + "-not-contains", {self, element}, sorts::kUnit,
         [](PrimContext&, auto content, const Value* args, Value&) {
           return !contains(content, args[1]);
         });
  d.asks(prefix + "-length", {self}, sorts::kI64,
         [](PrimContext& context, auto content, const Value*, Value& out) {
           out = context.pools.from_i64(static_cast<std::int64_t>(content.size()));
           return true;
         });
}

std::optional<std::size_t> position(PrimContext& context, Value index, std::size_t size) {
  std::int64_t i = context.pools.to_i64(index);
  return i >= 0 && static_cast<std::uint64_t>(i) < size ? std::optional(static_cast<std::size_t>(i))
                                                        : std::nullopt;
}

void append_args(Content& content, std::span<const Value> args, std::size_t from) {
  content.insert(content.end(), args.begin() + static_cast<std::ptrdiff_t>(from), args.end());
}

void add_vec(Signature& s, SortId self) {
  SortId element = s.sort(self).args[0];
  bool joins = s.sort(element).is_eq();
  Definer d(s, self);
  d.makes("vec-empty", {}, [](PrimContext&, Content&, auto) { return true; });
  d.makes("vec-of", {},
          [](PrimContext&, Content& c, auto args) { return append_args(c, args, 0), true; },
          {element});
  d.makes("vec-push", {self, element},
          [](PrimContext&, Content& c, auto args) { return c.push_back(args[1]), true; });
  d.makes("vec-pop", {self}, [](PrimContext&, Content& c, auto) {
    if (!c.empty())
      c.pop_back();
    return true;
  });
  d.makes("vec-append", {self},
          [d](PrimContext& context, Content& c, auto args) {
            for (std::size_t i = 1; i < args.size(); ++i) {
              auto more = d.other(context, args[i]);
              if (c.size() + more.size() > kMostElements)
                return false;
              c.insert(c.end(), more.begin(), more.end());
            }
            return true;
          },
          {self});
  d.makes("vec-set", {self, sorts::kI64, element}, [](PrimContext& context, Content& c, auto args) {
    auto at = position(context, args[1], c.size());
    if (at)
      c[*at] = args[2];
    return at.has_value();
  });
  d.makes("vec-remove", {self, sorts::kI64}, [](PrimContext& context, Content& c, auto args) {
    auto at = position(context, args[1], c.size());
    if (at)
      c.erase(c.begin() + static_cast<std::ptrdiff_t>(*at));
    return at.has_value();
  });
  d.asks("vec-get", {self, sorts::kI64}, element,
         [](PrimContext& context, auto content, const Value* args, Value& out) {
           auto at = position(context, args[1], content.size());
           if (at)
             out = content[*at];
           return at.has_value();
         });
  add_common(d, "vec", self, element);
  if (element == sorts::kI64) {
    d.makes("vec-range", {sorts::kI64}, [](PrimContext& context, Content& c, auto args) {
      std::int64_t end = context.pools.to_i64(args[0]);
      for (std::int64_t i = 0; i < end && i < (1 << 24); ++i)
        c.push_back(context.pools.from_i64(i));
      return end < (1 << 24);
    });
  }
  if (joins) { // joins the elements of two vectors pairwise
    auto join = [self](PrimContext& context, const Value* args, std::size_t, Value& out) {
      ContainerPool& pool = context.pools.containers(static_cast<std::uint32_t>(self));
      if (!context.may_write || pool[args[0]].size() != pool[args[1]].size())
        return false;
      for (std::size_t i = 0; i < pool[args[0]].size(); ++i)
        context.engine->classes.join(pool[args[0]][i], pool[args[1]][i]);
      out = args[0];
      return true;
    };
    d.add("vec-union", {self, self}, self, join, {}, false);
  }
}

void add_set(Signature& s, SortId self) {
  SortId element = s.sort(self).args[0];
  Definer d(s, self);
  d.makes("set-empty", {}, [](PrimContext&, Content&, auto) { return true; });
  d.makes("set-of", {},
          [](PrimContext&, Content& c, auto args) { return append_args(c, args, 0), true; },
          {element});
  d.makes("set-insert", {self, element},
          [](PrimContext&, Content& c, auto args) { return c.push_back(args[1]), true; });
  d.makes("set-remove", {self, element},
          [](PrimContext&, Content& c, auto args) { return std::erase(c, args[1]), true; });
  d.makes("set-union", {self, self}, [d](PrimContext& context, Content& c, auto args) {
    auto more = d.other(context, args[1]);
    c.insert(c.end(), more.begin(), more.end());
    return true;
  });
  d.makes("set-diff", {self, self}, [d](PrimContext& context, Content& c, auto args) {
    auto less = d.other(context, args[1]);
    std::erase_if(c, [&](Value v) { return contains(less, v); });
    return true;
  });
  d.makes("set-intersect", {self, self}, [d](PrimContext& context, Content& c, auto args) {
    auto both = d.other(context, args[1]);
    std::erase_if(c, [&](Value v) { return !contains(both, v); });
    return true;
  });
  d.asks("set-get", {self, sorts::kI64}, element,
         [](PrimContext& context, auto content, const Value* args, Value& out) {
           auto at = position(context, args[1], content.size());
           if (at)
             out = content[*at];
           return at.has_value();
         });
  add_common(d, "set", self, element);
}

void add_multiset(Signature& s, SortId self) {
  SortId element = s.sort(self).args[0];
  Definer d(s, self);
  d.makes("multiset-of", {},
          [](PrimContext&, Content& c, auto args) { return append_args(c, args, 0), true; },
          {element});
  d.makes("multiset-empty", {}, [](PrimContext&, Content&, auto) { return true; });
  d.makes("multiset-single", {element, sorts::kI64},
          [](PrimContext& context, Content& c, auto args) {
            std::int64_t count = context.pools.to_i64(args[1]);
            if (count < 0 || count > (1 << 24))
              return false;
            c.assign(static_cast<std::size_t>(count), args[0]);
            return true;
          });
  d.makes("multiset-insert", {self, element},
          [](PrimContext&, Content& c, auto args) { return c.push_back(args[1]), true; });
  d.makes("multiset-remove", {self, element}, [](PrimContext&, Content& c, auto args) {
    auto at = std::find(c.begin(), c.end(), args[1]);
    if (at == c.end())
      return false;
    c.erase(at);
    return true;
  });
  d.makes("multiset-remove-swapped", {element, self},
          [d](PrimContext& context, Content& c, auto args) {
            auto content = d.other(context, args[1]);
            c.assign(content.begin(), content.end());
            auto at = std::find(c.begin(), c.end(), args[0]);
            if (at == c.end())
              return false;
            c.erase(at);
            return true;
          });
  d.makes("multiset-sum", {self, self}, [d](PrimContext& context, Content& c, auto args) {
    auto more = d.other(context, args[1]);
    c.insert(c.end(), more.begin(), more.end());
    return true;
  });
  auto subtract = [](Content& c, std::span<const Value> less) {
    if (!std::includes(c.begin(), c.end(), less.begin(), less.end())) // both are in order
      return false;
    Content left;
    left.reserve(c.size() - less.size());
    std::set_difference(c.begin(), c.end(), less.begin(), less.end(), std::back_inserter(left));
    c = std::move(left);
    return true;
  };
  d.makes("multiset-subtract", {self, self}, [=](PrimContext& context, Content& c, auto args) {
    return subtract(c, d.other(context, args[1]));
  });
  d.makes("multiset-subtract-swapped", {self, self},
          [=](PrimContext& context, Content& c, auto args) {
            const Content less = std::exchange(c, Content());
            auto content = d.other(context, args[1]);
            c.assign(content.begin(), content.end());
            return subtract(c, less);
          });
  d.makes("multiset-intersection", {self, self}, [d](PrimContext& context, Content& c, auto args) {
    auto both = d.other(context, args[1]);
    Content out;
    std::set_intersection(c.begin(), c.end(), both.begin(), both.end(), std::back_inserter(out));
    c = std::move(out);
    return true;
  });
  d.makes("multiset-reset-counts", {self}, [](PrimContext&, Content& c, auto) {
    c.erase(std::unique(c.begin(), c.end()), c.end());
    return true;
  });
  d.asks("multiset-pick", {self}, element,
         [](PrimContext&, auto content, const Value*, Value& out) {
           if (!content.empty())
             out = content[0];
           return !content.empty();
         });
  d.asks("multiset-pick-max", {self}, element,
         [](PrimContext&, auto content, const Value*, Value& out) {
           Value best = 0;
           std::size_t most = 0, run = 0;
           for (std::size_t i = 0; i < content.size(); ++i) {
             run = i > 0 && content[i] == content[i - 1] ? run + 1 : 1;
             if (run >= most) { // of several that are most frequent the last, as egglog's
               most = run;
               best = content[i];
             }
           }
           out = best;
           return most != 0;
         });
  for (bool wanted : {true, false}) {
    d.add(wanted ? "multiset-contains-swapped" : "multiset-not-contains-swapped", {element, self},
          sorts::kUnit, [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
            out = 0;
            return contains(d.other(context, args[1]), args[0]) == wanted;
          });
  }
  if (s.sort(element).kind == SortKind::MultiSet) {
    d.add("multiset-sum-multisets", {self}, element,
          [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
            ContainerPool& inner = context.pools.containers(static_cast<std::uint32_t>(element));
            Content sum;
            for (Value part : d.other(context, args[0])) {
              if (sum.size() + inner[part].size() > kMostElements)
                return false;
              sum.insert(sum.end(), inner[part].begin(), inner[part].end());
            }
            normalize(SortKind::MultiSet, sum);
            out = inner.intern(sum);
            return true;
          });
  }
  if (s.sort(element).is_eq()) { // joins all elements
    d.add(
        "multiset-union-values", {self}, element,
        [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
          auto content = d.other(context, args[0]);
          if (!context.may_write || content.empty())
            return false;
          for (Value v : content)
            context.engine->classes.join(content[0], v);
          out = content[0];
          return true;
        },
        {}, false);
  }
  d.asks("multiset-count", {self, element}, sorts::kI64,
         [](PrimContext& context, auto content, const Value* args, Value& out) {
           out = context.pools.from_i64(std::count(content.begin(), content.end(), args[1]));
           return true;
         });
  add_common(d, "multiset", self, element);
}

/// Where a map's content has a key; its size where it has not.
std::size_t find_key(std::span<const Value> content, Value key) {
  std::size_t i = 0;
  while (i < content.size() && content[i] != key)
    i += 2;
  return i;
}

void add_map(Signature& s, SortId self) {
  SortId key = s.sort(self).args[0], value = s.sort(self).args[1];
  Definer d(s, self);
  d.makes("map-empty", {}, [](PrimContext&, Content&, auto) { return true; });
  d.makes("map-of", {},
          [](PrimContext&, Content& c, auto args) { return append_args(c, args, 0), true; },
          {key, value});
  d.makes("map-insert", {self, key, value}, [](PrimContext&, Content& c, auto args) {
    c.push_back(args[1]);
    c.push_back(args[2]);
    return true;
  });
  d.makes("map-remove", {self, key}, [](PrimContext&, Content& c, auto args) {
    if (std::size_t i = find_key(c, args[1]); i < c.size())
      c.erase(c.begin() + static_cast<std::ptrdiff_t>(i),
              c.begin() + static_cast<std::ptrdiff_t>(i + 2));
    return true;
  });
  d.asks("map-get", {self, key}, value,
         [](PrimContext&, auto content, const Value* args, Value& out) {
           std::size_t i = find_key(content, args[1]);
           if (i < content.size())
             out = content[i + 1];
           return i < content.size();
         });
  d.asks("map-contains", {self, key}, sorts::kUnit,
         [](PrimContext&, auto content, const Value* args, Value&) {
           return find_key(content, args[1]) < content.size();
         });
  d.asks("map-not-contains", {self, key}, sorts::kUnit,
         [](PrimContext&, auto content, const Value* args, Value&) {
           return find_key(content, args[1]) >= content.size();
         });
  d.asks("map-length", {self}, sorts::kI64,
         [](PrimContext& context, auto content, const Value*, Value& out) {
           out = context.pools.from_i64(static_cast<std::int64_t>(content.size() / 2));
           return true;
         });
}

void add_pair(Signature& s, SortId self) {
  SortId first = s.sort(self).args[0], second = s.sort(self).args[1];
  Definer d(s, self);
  std::uint32_t sort = static_cast<std::uint32_t>(self);
  d.add("pair", {first, second}, self,
        [sort](PrimContext& context, const Value* args, std::size_t, Value& out) {
          out = context.pools.containers(sort).intern({args, 2});
          return true;
        });
  d.asks("pair-first", {self}, first, [](PrimContext&, auto content, const Value*, Value& out) {
    return out = content[0], true;
  });
  d.asks("pair-second", {self}, second, [](PrimContext&, auto content, const Value*, Value& out) {
    return out = content[1], true;
  });
}

void add_either(Signature& s, SortId self) {
  Definer d(s, self);
  std::uint32_t sort = static_cast<std::uint32_t>(self);
  for (Value side : {0u, 1u}) {
    SortId held = s.sort(self).args[side];
    d.add(side == 0 ? "either-left" : "either-right", {held}, self,
          [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
            Value content[2] = {side, args[0]};
            out = context.pools.containers(sort).intern(content);
            return true;
          });
    d.asks(side == 0 ? "either-unwrap-left" : "either-unwrap-right", {self}, held,
           [=](PrimContext&, auto content, const Value*, Value& out) {
             out = content[1];
             return content[0] == side;
           });
  }
}

void add_maybe(Signature& s, SortId self) {
  SortId element = s.sort(self).args[0];
  Definer d(s, self);
  d.makes("maybe-none", {}, [](PrimContext&, Content&, auto) { return true; });
  d.makes("maybe-some", {element},
          [](PrimContext&, Content& c, auto args) { return c.push_back(args[0]), true; });
  d.asks("maybe-unwrap", {self}, element, [](PrimContext&, auto content, const Value*, Value& out) {
    if (!content.empty())
      out = content[0];
    return !content.empty();
  });
  d.asks("maybe-unwrap-or", {self, element}, element,
         [](PrimContext&, auto content, const Value* args, Value& out) {
           out = content.empty() ? args[1] : content[0];
           return true;
         });
  if (element == sorts::kF64) { // as a :merge: none wins, and two numbers must be close
    d.add("maybe-f64-merge-with-tol", {self, self, sorts::kF64}, self,
          [=](PrimContext& context, const Value* args, std::size_t, Value& out) {
            auto a = d.other(context, args[0]), b = d.other(context, args[1]);
            out = a.empty() ? args[0] : b.empty() ? args[1] : args[0];
            if (a.empty() || b.empty())
              return true;
            double x = context.pools.to_f64(a[0]), y = context.pools.to_f64(b[0]);
            return x == y || std::abs(x - y) <= std::abs(context.pools.to_f64(args[2]));
          });
  }
}

} // namespace

void add_container_primitives(Signature& signature, SortId sort) {
  switch (signature.sort(sort).kind) {
  case SortKind::Vec:
    add_vec(signature, sort);
    break;
  case SortKind::Set:
    add_set(signature, sort);
    break;
  case SortKind::MultiSet:
    add_multiset(signature, sort);
    break;
  case SortKind::Map:
    add_map(signature, sort);
    break;
  case SortKind::Pair:
    add_pair(signature, sort);
    break;
  case SortKind::Either:
    add_either(signature, sort);
    break;
  case SortKind::Maybe:
    add_maybe(signature, sort);
    break;
  case SortKind::Fn:
    add_fn_primitives(signature, sort);
    break;
  default:
    return;
  }
  add_mapping_primitives(signature, sort);
}

} // namespace egret::egraph

#include "egraph/containers.h"

#include <algorithm>

namespace egret::egraph {

void normalize(SortKind kind, std::vector<Value>& content) {
  if (kind == SortKind::Set) {
    std::sort(content.begin(), content.end());
    content.erase(std::unique(content.begin(), content.end()), content.end());
  } else if (kind == SortKind::MultiSet) {
    std::sort(content.begin(), content.end());
  } else if (kind == SortKind::Map) {
    std::vector<std::pair<Value, Value>> entries;
    for (std::size_t i = 0; i + 1 < content.size(); i += 2)
      entries.emplace_back(content[i], content[i + 1]);
    std::stable_sort(entries.begin(), entries.end(),
                     [](auto& a, auto& b) { return a.first < b.first; });
    content.clear();
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i + 1 < entries.size() && entries[i + 1].first == entries[i].first)
        continue; // of entries with one key the last one holds
      content.push_back(entries[i].first);
      content.push_back(entries[i].second);
    }
  }
}

SortId element_sort(const Engine& engine, const Sort& sort, std::span<const Value> content,
                    std::size_t word) {
  switch (sort.kind) {
  case SortKind::Map:
    return sort.args[word % 2];
  case SortKind::Pair:
    return sort.args[word];
  case SortKind::Either:
    return sort.args[content[0]];
  case SortKind::Fn: {
    Value target = content[0];
    if (target & 1)
      return bound_sort(engine.signature.primitive(target >> 1), sort, word - 1);
    return engine.signature.function(FunctionId{target >> 1}).inputs[word - 1];
  }
  default:
    return sort.args[0];
  }
}

void container_parts(const Engine& engine, const Sort& sort, std::span<const Value> content,
                     std::string& name, std::vector<std::pair<SortId, Value>>& parts) {
  switch (sort.kind) {
  case SortKind::Vec:
    name = content.empty() ? "vec-empty" : "vec-of";
    break;
  case SortKind::Set:
    name = content.empty() ? "set-empty" : "set-of";
    break;
  case SortKind::MultiSet:
    name = "multiset-of";
    break;
  case SortKind::Map:
    name = content.empty() ? "map-empty" : "map-insert";
    break;
  case SortKind::Pair:
    name = "pair";
    break;
  case SortKind::Either:
    name = content[0] == 0 ? "either-left" : "either-right";
    break;
  case SortKind::Maybe:
    name = content.empty() ? "maybe-none" : "maybe-some";
    break;
  default: {
    Value target = content[0];
    name = "unstable-fn \"" +
           (target & 1 ? engine.signature.primitive(target >> 1).name
                       : engine.signature.function(FunctionId{target >> 1}).name) +
           "\"";
  }
  }
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (is_element(sort, i))
      parts.emplace_back(element_sort(engine, sort, content, i), content[i]);
  }
}

void rebuild_containers(Engine& engine) {
  // A sort is declared after those inside it, so one pass in order settles nested containers;
  // function values may hold any sort, so passes go on until nothing moves.
  std::vector<Value> content;
  for (bool moved = true; moved;) {
    moved = false;
    for (std::uint32_t s = 0; s < engine.signature.sorts().size(); ++s) {
      const Sort& sort = engine.signature.sorts()[s];
      if (!sort.is_container() || !sort.holds_ids)
        continue;
      ContainerPool& pool = engine.pools.containers(s);
      std::size_t count = pool.size();
      for (Value id = 0; id < count; ++id) {
        if (!pool.is_current(id))
          continue;
        std::span<const Value> words = pool[id];
        bool stale = false;
        for (std::size_t i = 0; i < words.size() && !stale; ++i)
          stale = is_element(sort, i) &&
                  engine.canonical(element_sort(engine, sort, words, i), words[i]) != words[i];
        if (!stale)
          continue;
        content.assign(words.begin(), words.end());
        for (std::size_t i = 0; i < content.size(); ++i) {
          if (is_element(sort, i))
            content[i] = engine.canonical(element_sort(engine, sort, words, i), content[i]);
        }
        normalize(sort.kind, content);
        pool.forward(id, pool.intern(content));
        moved = true;
      }
    }
  }
}

} // namespace egret::egraph

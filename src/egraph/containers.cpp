#include "egraph/containers.h"

#include <algorithm>
#include <utility>

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
    name = content.empty() ? "map-empty" : "map-of";
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

namespace {

/// Follows what moved from the containers that hold it to the containers that hold those.
class ContainerRebuilder {
public:
  explicit ContainerRebuilder(Engine& engine)
      : engine_(engine), moved_(engine.signature.sorts().size()) {}

  std::vector<std::vector<Value>> run(const std::vector<Value>& displaced) {
    if (!moved_.empty())
      engine_.pools.containers(static_cast<std::uint32_t>(moved_.size() - 1)); // all pools exist
    for (std::uint32_t s = 0; s < moved_.size(); ++s) {
      if (!follows(s))
        continue;
      ContainerPool& pool = engine_.pools.containers(s);
      for (Value id : displaced)
        note_holders(s, id);
      // What was made since the last time may hold anything.
      for (std::size_t id = pool.exchange_seen(pool.size()); id < pool.size(); ++id)
        candidates_.push_back(static_cast<Value>(id));
      settle(s);
    }
    // A sort is declared after those inside it, so that was enough for nested containers; function
    // values may hold any sort, so passes go on until nothing moves.
    while (!news_.empty()) {
      std::vector<Value> news = std::exchange(news_, {});
      for (std::uint32_t s = 0; s < moved_.size(); ++s) {
        if (!follows(s))
          continue;
        for (Value id : news)
          note_holders(s, id);
        settle(s);
      }
    }
    return std::move(moved_);
  }

private:
  bool follows(std::uint32_t s) const {
    const Sort& sort = engine_.signature.sorts()[s];
    return sort.is_container() && sort.holds_ids;
  }
  /// Containers with this word; whether it means the class or container that moved is looked at in
  /// settle().
  void note_holders(std::uint32_t s, Value word) {
    engine_.pools.containers(s).for_each_with(word, [&](Value id) { candidates_.push_back(id); });
  }
  void settle(std::uint32_t s) {
    std::sort(candidates_.begin(), candidates_.end());
    candidates_.erase(std::unique(candidates_.begin(), candidates_.end()), candidates_.end());
    const Sort& sort = engine_.signature.sorts()[s];
    ContainerPool& pool = engine_.pools.containers(s);
    for (Value id : std::exchange(candidates_, {})) {
      if (!pool.is_current(id))
        continue;
      std::span<const Value> words = pool[id];
      content_.assign(words.begin(), words.end());
      bool stale = false;
      for (std::size_t i = 0; i < content_.size(); ++i) {
        if (!is_element(sort, i))
          continue;
        Value now = engine_.canonical(element_sort(engine_, sort, words, i), words[i]);
        stale |= now != words[i];
        content_[i] = now;
      }
      if (!stale)
        continue;
      normalize(sort.kind, content_);
      pool.forward(id, pool.intern(content_));
      moved_[s].push_back(id);
      news_.push_back(id);
    }
  }

  Engine& engine_;
  std::vector<std::vector<Value>> moved_;
  std::vector<Value> news_; ///< containers that moved and whose holders were not looked for yet
  std::vector<Value> candidates_, content_;
};

} // namespace

std::vector<std::vector<Value>> rebuild_containers(Engine& engine,
                                                   const std::vector<Value>& displaced) {
  return ContainerRebuilder(engine).run(displaced);
}

} // namespace egret::egraph

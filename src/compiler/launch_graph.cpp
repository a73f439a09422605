#include "compiler/launch_graph.h"

#include "compiler/reaches.h"
#include "support/fail.h"

#include <algorithm>
#include <functional>
#include <map>

namespace egret::compiler {

namespace {

/// Which launches wait for which others.
struct LaunchEdges {
  std::vector<std::vector<int>> next, before;
};

LaunchEdges edges_of(const LaunchGraph& graph) {
  LaunchEdges edges{std::vector<std::vector<int>>(graph.launches.size()),
                    std::vector<std::vector<int>>(graph.launches.size())};
  const auto add = [&](int from, std::size_t to) {
    edges.next[static_cast<std::size_t>(from)].push_back(static_cast<int>(to));
    edges.before[to].push_back(from);
  };
  for (std::size_t k = 0; k < graph.launches.size(); ++k) {
    for (const int v : graph.launches[k].reads)
      add(graph.values[static_cast<std::size_t>(v)].writer, k);
    for (const int reader : graph.launches[k].after)
      add(reader, k);
  }
  return edges;
}

/// One launch after the other, of those whose turn can be the one with the least `growth`; ties go
/// by number. `took` is told of each.
Sequence in_turns(const std::vector<std::vector<int>>& next,
                  const std::vector<std::vector<int>>& before, bool larger_first,
                  const std::function<std::int64_t(int)>& growth,
                  const std::function<void(int)>& took) {
  std::vector<std::size_t> waiting;
  std::vector<int> ready;
  for (std::size_t k = 0; k < before.size(); ++k) {
    waiting.push_back(before[k].size());
    if (before[k].empty())
      ready.push_back(static_cast<int>(k));
  }
  Sequence sequence;
  while (!ready.empty()) {
    auto best = ready.begin();
    std::int64_t least = growth(*best);
    for (auto it = best + 1; it != ready.end(); ++it) {
      const std::int64_t now = growth(*it);
      if (now < least || (now == least && (*it < *best) != larger_first)) {
        best = it;
        least = now;
      }
    }
    const int k = *best;
    ready.erase(best);
    sequence.push_back(k);
    took(k);
    for (const int n : next[static_cast<std::size_t>(k)])
      if (--waiting[static_cast<std::size_t>(n)] == 0)
        ready.push_back(n);
  }
  ensure(sequence.size() == before.size(), "plan: kernels wait for each other in a cycle");
  return sequence;
}

/// From the first launch on, the one that leaves the least memory alive.
Sequence forward(const LaunchGraph& graph, const LaunchEdges& edges) {
  std::vector<int> readers(graph.values.size(), 0);
  for (const auto& launch : graph.launches)
    for (const int v : launch.reads)
      ++readers[static_cast<std::size_t>(v)];
  const auto growth = [&](int k) {
    const auto& launch = graph.launches[static_cast<std::size_t>(k)];
    std::int64_t bytes = 0;
    for (const int v : launch.writes)
      bytes += graph.values[static_cast<std::size_t>(v)].bytes;
    for (const int v : launch.reads)
      if (readers[static_cast<std::size_t>(v)] == 1)
        bytes -= graph.values[static_cast<std::size_t>(v)].bytes;
    return bytes;
  };
  return in_turns(edges.next, edges.before, false, growth, [&](int k) {
    for (const int v : graph.launches[static_cast<std::size_t>(k)].reads)
      --readers[static_cast<std::size_t>(v)];
  });
}

/// From the last launch on, the one before which the least memory is alive.
Sequence backward(const LaunchGraph& graph, const LaunchEdges& edges) {
  std::vector<bool> needed(graph.values.size(), false);
  const auto growth = [&](int k) {
    const auto& launch = graph.launches[static_cast<std::size_t>(k)];
    std::int64_t bytes = 0;
    for (const int v : launch.reads)
      bytes +=
          needed[static_cast<std::size_t>(v)] ? 0 : graph.values[static_cast<std::size_t>(v)].bytes;
    for (const int v : launch.writes)
      bytes -=
          needed[static_cast<std::size_t>(v)] ? graph.values[static_cast<std::size_t>(v)].bytes : 0;
    return bytes;
  };
  Sequence sequence = in_turns(edges.before, edges.next, true, growth, [&](int k) {
    for (const int v : graph.launches[static_cast<std::size_t>(k)].reads)
      needed[static_cast<std::size_t>(v)] = true;
  });
  std::reverse(sequence.begin(), sequence.end());
  return sequence;
}

Sequence by_number(const LaunchEdges& edges) {
  return in_turns(
      edges.next, edges.before, false, [](int) { return std::int64_t{0}; }, [](int) {});
}

} // namespace

std::vector<Sequence> orders_of(const LaunchGraph& graph) {
  const LaunchEdges edges = edges_of(graph);
  std::vector<Sequence> orders = {forward(graph, edges), backward(graph, edges), by_number(edges)};
  std::vector<std::pair<std::int64_t, std::size_t>> peaks;
  for (std::size_t i = 0; i < orders.size(); ++i)
    peaks.emplace_back(lives_of(graph, orders[i]).peak, i);
  std::sort(peaks.begin(), peaks.end());
  std::vector<Sequence> sorted;
  for (const auto& [peak, i] : peaks)
    if (std::find(sorted.begin(), sorted.end(), orders[i]) == sorted.end())
      sorted.push_back(std::move(orders[i]));
  return sorted;
}

LaunchGraph overwriting_late(const LaunchGraph& graph) {
  LaunchEdges edges = edges_of(graph);
  std::vector<std::vector<int>> readers(graph.values.size());
  for (std::size_t k = 0; k < graph.launches.size(); ++k)
    for (const int v : graph.launches[k].reads)
      readers[static_cast<std::size_t>(v)].push_back(static_cast<int>(k));
  LaunchGraph late = graph;
  for (std::size_t w = 0; w < graph.launches.size(); ++w)
    for (const int maker : graph.launches[w].after)
      for (const int v : graph.launches[static_cast<std::size_t>(maker)].writes)
        for (const int reader : readers[static_cast<std::size_t>(v)])
          if (!reaches(edges.next, static_cast<int>(w), reader)) {
            late.launches[w].after.push_back(reader);
            edges.next[static_cast<std::size_t>(reader)].push_back(static_cast<int>(w));
          }
  return late;
}

Lives lives_of(const LaunchGraph& graph, const Sequence& sequence) {
  const std::size_t n = sequence.size();
  Lives lives;
  lives.reads.resize(n);
  lives.writes.resize(n);
  lives.workspaces.resize(n);
  std::vector<int> current(graph.values.size(), -1);
  for (std::size_t at = 0; at < n; ++at) {
    const auto& launch = graph.launches[static_cast<std::size_t>(sequence[at])];
    const int here = static_cast<int>(at);
    for (const int v : launch.reads) {
      const int version = current[static_cast<std::size_t>(v)];
      ensure(version >= 0, "plan: a launch reads what was not written");
      lives.versions[static_cast<std::size_t>(version)].last = here;
      lives.reads[at].push_back(version);
    }
    for (const int v : launch.writes) {
      current[static_cast<std::size_t>(v)] = static_cast<int>(lives.versions.size());
      lives.writes[at].push_back(static_cast<int>(lives.versions.size()));
      lives.versions.push_back({v, here, here, -1, -1});
    }
  }
  std::vector<bool> given(lives.versions.size(), false);
  for (std::size_t at = 0; at < n; ++at) {
    const auto& launch = graph.launches[static_cast<std::size_t>(sequence[at])];
    const int here = static_cast<int>(at);
    for (std::size_t w = 0; w < launch.writes.size(); ++w) {
      Lives::Version& version = lives.versions[static_cast<std::size_t>(lives.writes[at][w])];
      const std::int64_t bytes = graph.values[static_cast<std::size_t>(version.value)].bytes;
      if (bytes == 0)
        continue;
      for (const auto& [write, read] : launch.may_take) {
        if (write != static_cast<int>(w) || version.over >= 0)
          continue;
        const auto place = std::find(launch.reads.begin(), launch.reads.end(), read);
        const auto from = static_cast<std::size_t>(
            lives.reads[at][static_cast<std::size_t>(place - launch.reads.begin())]);
        if (given[from] || lives.versions[from].last != here)
          continue;
        given[from] = true;
        version.over = static_cast<int>(from);
        version.block = lives.versions[from].block;
        ArenaBlock& block = lives.blocks[static_cast<std::size_t>(version.block)];
        block.last = version.last;
      }
      if (version.over < 0) {
        version.block = static_cast<int>(lives.blocks.size());
        lives.blocks.push_back({bytes, 0, version.first, version.last});
      }
    }
    for (const std::int64_t bytes : launch.workspaces) {
      lives.workspaces[at].push_back(static_cast<int>(lives.blocks.size()));
      lives.blocks.push_back({bytes, 0, here, here});
    }
  }
  std::vector<std::int64_t> change(n + 1, 0);
  for (const ArenaBlock& block : lives.blocks) {
    change[static_cast<std::size_t>(block.first)] += block.bytes;
    change[static_cast<std::size_t>(block.last) + 1] -= block.bytes;
  }
  std::int64_t alive = 0;
  for (const std::int64_t c : change)
    lives.peak = std::max(lives.peak, alive += c);
  return lives;
}

} // namespace egret::compiler

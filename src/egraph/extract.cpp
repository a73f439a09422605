#include "egraph/extract.h"

#include "egraph/containers.h"
#include "egraph/print.h"
#include "support/fail.h"

#include <algorithm>
#include <queue>

namespace egret::egraph {

double mentioned_classes(const Engine& engine, SortId sort, Value value,
                         std::vector<Value>& classes) {
  const Sort& s = engine.signature.sort(sort);
  if (s.is_eq()) {
    classes.push_back(engine.classes.find(value));
    return 0;
  }
  if (!s.is_container())
    return 1;
  // Containers nest as deep as their sorts do, which is a matter of declarations: recursion is
  // bounded.
  double cost = s.kind == SortKind::Fn ? 1 : 0;
  std::span<const Value> content = engine.pools.containers(static_cast<std::uint32_t>(sort))[value];
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (is_element(s, i))
      cost += mentioned_classes(engine, element_sort(engine, s, content, i), content[i], classes);
  }
  return cost;
}

NodeCost declared_costs(const Engine& engine) {
  return [&engine](FunctionId id, std::span<const Value>) {
    return static_cast<double>(engine.signature.function(id).cost);
  };
}

Extraction::Extraction(const Engine& engine, const NodeCost& cost) {
  dense.assign(engine.classes.size(), kNone);
  std::vector<Node> found;
  std::vector<Value> args, classes;
  std::vector<Value> child_ids;
  std::vector<std::uint32_t> sizes;
  for (std::uint32_t f = 0; f < engine.tables.size(); ++f) {
    const Function& function = engine.signature.function(FunctionId{f});
    if (function.kind != FunctionKind::Constructor || function.hidden || function.unextractable)
      continue;
    const Table& table = engine.tables[f];
    for (std::uint32_t row = 0; row < table.rows(); ++row) {
      if (table.state(row) != RowState::Live)
        continue;
      args.clear();
      classes.clear();
      Node node;
      for (std::size_t c = 0; c < function.inputs.size(); ++c) {
        args.push_back(table.at(row, c));
        node.cost += mentioned_classes(engine, function.inputs[c], args.back(), classes);
      }
      node.cost += cost(FunctionId{f}, args);
      node.function = FunctionId{f};
      node.row = row;
      node.first = static_cast<std::uint32_t>(child_ids.size());
      node.count = static_cast<std::uint32_t>(classes.size());
      child_ids.insert(child_ids.end(), classes.begin(), classes.end());
      std::uint32_t& cls = dense[engine.classes.find(table.output(row))];
      if (cls == kNone) {
        cls = static_cast<std::uint32_t>(class_ids.size());
        class_ids.push_back(engine.classes.find(table.output(row)));
        sizes.push_back(0);
      }
      node.cls = cls;
      ++sizes[cls];
      found.push_back(node);
    }
  }
  class_nodes.assign(class_ids.size() + 1, 0);
  for (std::size_t c = 0; c < sizes.size(); ++c)
    class_nodes[c + 1] = class_nodes[c] + sizes[c];
  std::vector<std::uint32_t> fill(class_nodes.begin(), class_nodes.end() - 1);
  nodes.resize(found.size());
  for (const Node& node : found)
    nodes[fill[node.cls]++] = node;
  for (Value id : child_ids)
    children.push_back(dense[id]);
}

Choice best_trees(const Extraction& problem) {
  // Knuth's generalisation of Dijkstra's algorithm: classes are settled in the order of their
  // costs.
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  Choice choice{std::vector<std::uint32_t>(problem.classes(), Extraction::kNone),
                std::vector<double>(problem.classes(), kInfinite)};
  std::vector<std::uint32_t> missing(problem.nodes.size());
  std::vector<double> sum(problem.nodes.size());
  std::vector<std::uint32_t> begin(problem.classes() + 1, 0), users(problem.children.size());
  for (const Extraction::Node& node : problem.nodes) {
    for (std::uint32_t child : problem.kids(node)) {
      if (child != Extraction::kNone)
        ++begin[child + 1];
    }
  }
  for (std::size_t c = 0; c < problem.classes(); ++c)
    begin[c + 1] += begin[c];
  std::vector<std::uint32_t> fill(begin.begin(), begin.end() - 1);
  using Entry = std::pair<double, std::uint32_t>; // cost, node
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    const Extraction::Node& node = problem.nodes[n];
    missing[n] = node.count;
    sum[n] = node.cost;
    for (std::uint32_t child : problem.kids(node)) {
      if (child != Extraction::kNone)
        users[fill[child]++] = n;
    }
    if (node.count == 0)
      queue.push({node.cost, n});
  }
  while (!queue.empty()) {
    auto [cost, n] = queue.top();
    queue.pop();
    std::uint32_t cls = problem.nodes[n].cls;
    if (choice.node[cls] != Extraction::kNone)
      continue;
    choice.node[cls] = n;
    choice.cost[cls] = cost;
    for (std::uint32_t i = begin[cls]; i < begin[cls + 1]; ++i) {
      std::uint32_t user = users[i];
      sum[user] += cost;
      if (--missing[user] == 0 && choice.node[problem.nodes[user].cls] == Extraction::kNone)
        queue.push({sum[user], user});
    }
  }
  return choice;
}

std::uint32_t TermBuilder::build(TermGraph& graph, SortId root_sort, Value root_value) {
  struct Item {
    SortId sort;
    Value value;
    std::uint32_t node; ///< of the problem, for a class
    bool expanded;
  };
  auto key = [&](SortId sort, Value value) {
    bool eq = engine_.signature.sort(sort).is_eq();
    return std::pair(static_cast<std::uint32_t>(sort), eq ? engine_.classes.find(value) : value);
  };
  std::vector<Item> stack{{root_sort, root_value, Extraction::kNone, false}};
  std::vector<std::pair<SortId, Value>> parts;
  while (!stack.empty()) {
    Item item = stack.back();
    if (built_.contains(key(item.sort, item.value))) {
      stack.pop_back();
      continue;
    }
    const Sort& sort = engine_.signature.sort(item.sort);
    TermGraph::Node node;
    node.sort = item.sort;
    node.value = key(item.sort, item.value).second;
    parts.clear();
    if (sort.is_eq()) {
      std::uint32_t cls = item.value < engine_.classes.size()
                              ? problem_.dense[engine_.classes.find(item.value)]
                              : Extraction::kNone;
      std::uint32_t chosen = cls == Extraction::kNone ? Extraction::kNone : chosen_[cls];
      if (chosen == Extraction::kNone)
        fail(ErrorKind::Value, "extract: the class {} has no term that can be extracted",
             show_value(engine_, item.sort, item.value));
      const Extraction::Node& from = problem_.nodes[chosen];
      node.function = from.function;
      const Function& function = engine_.signature.function(from.function);
      for (std::size_t c = 0; c < function.inputs.size(); ++c)
        parts.emplace_back(function.inputs[c], engine_.table(from.function).at(from.row, c));
    } else if (sort.is_container()) {
      std::span<const Value> content =
          engine_.pools.containers(static_cast<std::uint32_t>(item.sort))[item.value];
      container_parts(engine_, sort, content, node.container, parts);
    } else {
      node.is_literal = true;
    }
    std::size_t waiting = stack.size();
    if (!item.expanded) {
      stack.back().expanded = true;
      for (std::size_t i = parts.size(); i-- > 0;) {
        if (!built_.contains(key(parts[i].first, parts[i].second)))
          stack.push_back({parts[i].first, parts[i].second, Extraction::kNone, false});
      }
    }
    if (stack.size() > waiting)
      continue;
    for (auto [part_sort, part] : parts)
      node.children.push_back(built_.at(key(part_sort, part)));
    graph.nodes.push_back(std::move(node));
    built_.emplace(key(item.sort, item.value), static_cast<std::uint32_t>(graph.nodes.size() - 1));
    stack.pop_back();
  }
  return built_.at(key(root_sort, root_value));
}

std::uint32_t TermBuilder::build_node(TermGraph& graph, std::uint32_t index) {
  const Extraction::Node& from = problem_.nodes[index];
  const Function& function = engine_.signature.function(from.function);
  TermGraph::Node node;
  node.function = from.function;
  node.sort = function.output;
  node.value = problem_.class_ids[from.cls];
  for (std::size_t c = 0; c < function.inputs.size(); ++c)
    node.children.push_back(
        build(graph, function.inputs[c], engine_.table(from.function).at(from.row, c)));
  graph.nodes.push_back(std::move(node));
  return static_cast<std::uint32_t>(graph.nodes.size() - 1);
}

TermGraph extract_tree(const Engine& engine, SortId sort, Value value, const Trees& trees) {
  const auto& [problem, choice] = trees;
  TermGraph graph;
  TermBuilder builder(engine, problem, choice.node);
  graph.roots.push_back(builder.build(graph, sort, value));
  std::vector<Value> classes;
  graph.cost = mentioned_classes(engine, sort, value, classes);
  for (Value cls : classes)
    graph.cost += choice.cost[problem.dense[cls]];
  return graph;
}

std::vector<TermGraph> extract_variants(const Engine& engine, SortId sort, Value value,
                                        std::size_t count, const Trees& trees) {
  if (!engine.signature.sort(sort).is_eq())
    return {extract_tree(engine, sort, value, trees)};
  const auto& [problem, choice] = trees;
  std::uint32_t cls = problem.dense[engine.classes.find(value)];
  std::vector<std::pair<double, std::uint32_t>> found;
  for (std::uint32_t n = cls == Extraction::kNone ? 0 : problem.class_nodes[cls];
       cls != Extraction::kNone && n < problem.class_nodes[cls + 1]; ++n) {
    double total = problem.nodes[n].cost;
    bool finite = true; // as a term; its cost may be beyond all numbers
    for (std::uint32_t child : problem.kids(problem.nodes[n])) {
      finite = finite && child != Extraction::kNone && choice.node[child] != Extraction::kNone;
      total += finite ? choice.cost[child] : 0;
    }
    if (finite)
      found.emplace_back(total, n);
  }
  std::stable_sort(found.begin(), found.end());
  if (found.size() > count)
    found.resize(count);
  std::vector<TermGraph> out;
  for (auto [total, n] : found) {
    TermGraph graph;
    TermBuilder builder(engine, problem, choice.node);
    graph.roots.push_back(builder.build_node(graph, n));
    graph.cost = total;
    out.push_back(std::move(graph));
  }
  return out;
}

} // namespace egret::egraph

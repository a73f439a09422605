#include "egraph/serialize.h"

#include "egraph/containers.h"
#include "egraph/print.h"

#include "support/fail.h"

#include <nlohmann/json.hpp>

#include <map>
#include <set>

namespace egret::egraph {
namespace {

/// A node of the export: a row of a function, a literal or a container.
struct ExportNode {
  std::string id;
  std::string op;
  std::string cls;
  std::vector<std::pair<SortId, Value>> children;
  std::vector<std::string> child_classes; ///< theirs
  double cost = 1;
  bool subsumed = false;
  bool primitive = false; ///< a literal or a container
};

struct Export {
  std::vector<ExportNode> nodes;
  std::map<std::string, std::string> class_sorts;
  std::map<std::string, std::string> first_node; ///< per class
};

std::string class_name(const Engine& engine, SortId sort, Value value) {
  return engine.signature.sort(sort).name + "-" + std::to_string(value);
}

class Exporter {
public:
  Exporter(const Engine& engine, const SerializeOptions& options)
      : engine_(engine), options_(options) {}

  Export run() {
    std::size_t functions = 0;
    for (std::uint32_t f = 0; f < engine_.tables.size(); ++f) {
      const Function& function = engine_.signature.function(FunctionId{f});
      if (function.hidden || engine_.tables[f].live() == 0)
        continue;
      if (functions++ >= options_.max_functions)
        break;
      add_rows(FunctionId{f}, function);
    }
    // What the rows mention; containers bring more.
    for (std::size_t i = 0; i < out_.nodes.size(); ++i) {
      std::vector<std::pair<SortId, Value>> children = out_.nodes[i].children;
      for (auto [sort, value] : children)
        add_value(sort, value);
    }
    for (ExportNode& node : out_.nodes) {
      for (auto [sort, value] : node.children)
        node.child_classes.push_back(class_name(engine_, sort, value));
    }
    if (options_.split_primitives)
      split_primitives();
    for (std::uint32_t i = 0; i < options_.inline_leaves; ++i)
      inline_leaves();
    return std::move(out_);
  }

private:
  void split_primitives() {
    std::set<std::string> values;
    for (const ExportNode& node : out_.nodes) {
      if (node.primitive) {
        values.insert(node.cls);
        out_.first_node[node.cls] = node.id;
      }
    }
    std::map<std::string, int> parts;
    for (ExportNode& node : out_.nodes) {
      if (node.primitive || !values.contains(node.cls))
        continue;
      std::string part = fmt::format("{}-{}", node.cls, ++parts[node.cls]);
      out_.class_sorts[part] = out_.class_sorts.at(node.cls);
      out_.first_node[part] = node.id;
      node.cls = std::move(part);
    }
  }

  void inline_leaves() {
    std::map<std::string, std::size_t> sizes;
    std::map<std::string, std::string> leaves; // class -> the node's text
    std::set<std::string> mentioned;
    for (const ExportNode& node : out_.nodes) {
      ++sizes[node.cls];
      mentioned.insert(node.child_classes.begin(), node.child_classes.end());
    }
    for (const ExportNode& node : out_.nodes) {
      if (node.child_classes.empty() && sizes[node.cls] == 1 && mentioned.contains(node.cls))
        leaves.emplace(node.cls, node.op);
    }
    for (ExportNode& node : out_.nodes) {
      std::vector<std::string> kept;
      std::string arguments;
      for (const std::string& child : node.child_classes) {
        auto leaf = leaves.find(child);
        arguments +=
            (arguments.empty() ? "" : ", ") + (leaf == leaves.end() ? "\u00b7" : leaf->second);
        if (leaf == leaves.end())
          kept.push_back(child);
      }
      if (kept.size() != node.child_classes.size())
        node.op += "(" + arguments + ")";
      node.child_classes = std::move(kept);
    }
    std::erase_if(out_.nodes, [&](const ExportNode& node) { return leaves.contains(node.cls); });
    for (const auto& [cls, text] : leaves) {
      out_.class_sorts.erase(cls);
      out_.first_node.erase(cls);
    }
  }

  void add(ExportNode node, SortId sort) {
    out_.first_node.emplace(node.cls, node.id);
    out_.class_sorts.emplace(node.cls, engine_.signature.sort(sort).name);
    out_.nodes.push_back(std::move(node));
  }

  void add_rows(FunctionId id, const Function& function) {
    const Table& table = engine_.table(id);
    std::size_t calls = 0;
    for (std::uint32_t row = 0; row < table.rows() && calls < options_.max_calls_per_function;
         ++row) {
      if (table.state(row) == RowState::Dead)
        continue;
      ExportNode node;
      node.id = fmt::format("function-{}-{}", calls++, function.name);
      node.op = function.name;
      node.cls = class_name(engine_, function.output,
                            engine_.canonical(function.output, table.output(row)));
      node.cost = static_cast<double>(function.cost);
      node.subsumed = table.state(row) == RowState::Subsumed;
      for (std::size_t c = 0; c < function.inputs.size(); ++c)
        node.children.emplace_back(function.inputs[c],
                                   engine_.canonical(function.inputs[c], table.at(row, c)));
      if (function.kind == FunctionKind::Function)
        outputs_.emplace_back(function.output,
                              engine_.canonical(function.output, table.output(row)));
      add(std::move(node), function.output);
      if (function.kind == FunctionKind::Function)
        add_value(outputs_.back().first,
                  outputs_.back().second); // its class holds the value itself, too
    }
  }

  void add_value(SortId sort_id, Value value) {
    const Sort& sort = engine_.signature.sort(sort_id);
    std::string cls = class_name(engine_, sort_id, value);
    if (!seen_.emplace(static_cast<std::uint32_t>(sort_id), value).second)
      return;
    ExportNode node;
    node.cls = cls;
    if (sort.is_eq()) {
      if (out_.first_node.contains(cls))
        return;
      node.id = "dummy-" + cls; // a class all of whose rows were deleted or left out
      node.op = "[...]";
    } else if (sort.is_container()) {
      node.primitive = true;
      node.id = "primitive-" + cls;
      container_parts(engine_, sort,
                      engine_.pools.containers(static_cast<std::uint32_t>(sort_id))[value], node.op,
                      node.children);
    } else {
      node.primitive = true;
      node.id = "primitive-" + cls;
      node.op = show_value(engine_, sort_id, value);
    }
    add(std::move(node), sort_id);
  }

  const Engine& engine_;
  SerializeOptions options_;
  Export out_;
  std::vector<std::pair<SortId, Value>> outputs_;
  std::set<std::pair<std::uint32_t, Value>> seen_;
};

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump();
}

} // namespace

std::string left_out(const Engine& engine, const SerializeOptions& options) {
  std::size_t functions = 0;
  std::string unseen, cut;
  auto add = [](std::string& list, const std::string& name) {
    list += (list.empty() ? "" : ", ") + name;
  };
  for (std::uint32_t f = 0; f < engine.tables.size(); ++f) {
    const Function& function = engine.signature.function(FunctionId{f});
    if (function.hidden || engine.tables[f].live() == 0)
      continue;
    if (functions++ >= options.max_functions)
      add(unseen, function.name);
    else if (engine.tables[f].live() > options.max_calls_per_function)
      add(cut, function.name);
  }
  std::string out;
  if (!unseen.empty())
    out += "functions left out: " + unseen;
  if (!cut.empty())
    out += (out.empty() ? "" : "; ") + ("rows left out of: " + cut);
  return out;
}

std::string to_json(const Engine& engine, const SerializeOptions& options) {
  Export all = Exporter(engine, options).run();
  nlohmann::json nodes = nlohmann::json::object(), classes = nlohmann::json::object();
  for (const ExportNode& node : all.nodes) {
    nlohmann::json children = nlohmann::json::array();
    for (const std::string& child : node.child_classes)
      children.push_back(all.first_node.at(child));
    nodes[node.id] = {{"op", node.op},
                      {"children", std::move(children)},
                      {"eclass", node.cls},
                      {"cost", node.cost},
                      {"subsumed", node.subsumed}};
  }
  for (const auto& [cls, sort] : all.class_sorts)
    classes[cls] = {{"type", sort}};
  nlohmann::json out = {{"nodes", std::move(nodes)},
                        {"root_eclasses", nlohmann::json::array()},
                        {"class_data", std::move(classes)}};
  return out.dump(1);
}

std::string to_dot(const Engine& engine, const SerializeOptions& options) {
  Export all = Exporter(engine, options).run();
  std::map<std::string, std::vector<const ExportNode*>> members;
  for (const ExportNode& node : all.nodes)
    members[node.cls].push_back(&node);
  std::string out = "digraph egraph {\n  compound=true;\n  clusterrank=local;\n  node [shape=box, "
                    "style=rounded];\n";
  for (const auto& [cls, nodes] : members) {
    out += fmt::format("  subgraph {} {{\n    style=dashed;\n    label={};\n",
                       json_text("cluster_" + cls), json_text(all.class_sorts.at(cls)));
    for (const ExportNode* node : nodes)
      out += fmt::format("    {} [label={}{}];\n", json_text(node->id), json_text(node->op),
                         node->subsumed ? ", color=gray" : "");
    out += "  }\n";
  }
  for (const ExportNode& node : all.nodes) {
    for (const std::string& cls : node.child_classes) {
      out += fmt::format("  {} -> {} [lhead={}];\n", json_text(node.id),
                         json_text(all.first_node.at(cls)), json_text("cluster_" + cls));
    }
  }
  return out + "}\n";
}

} // namespace egret::egraph

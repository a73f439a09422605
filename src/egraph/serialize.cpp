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
  double cost = 1;
  bool subsumed = false;
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
    return std::move(out_);
  }

private:
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
      node.id = "primitive-" + cls;
      container_parts(engine_, sort,
                      engine_.pools.containers(static_cast<std::uint32_t>(sort_id))[value], node.op,
                      node.children);
    } else {
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

std::string to_json(const Engine& engine, const SerializeOptions& options) {
  Export all = Exporter(engine, options).run();
  nlohmann::json nodes = nlohmann::json::object(), classes = nlohmann::json::object();
  for (const ExportNode& node : all.nodes) {
    nlohmann::json children = nlohmann::json::array();
    for (auto [sort, value] : node.children)
      children.push_back(all.first_node.at(class_name(engine, sort, value)));
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
    for (auto [sort, value] : node.children) {
      std::string cls = class_name(engine, sort, value);
      out += fmt::format("  {} -> {} [lhead={}];\n", json_text(node.id),
                         json_text(all.first_node.at(cls)), json_text("cluster_" + cls));
    }
  }
  return out + "}\n";
}

} // namespace egret::egraph

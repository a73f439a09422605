#include "ir/dot.h"

#include "ir/structure.h"
#include "ir/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace egret::ir {
namespace {

/// For use between double quotes: a line break stays a line break of the label.
std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result;
}

/// "%5 sum axes=[2]" over "f32[1,5]".
std::string label_of(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  return fmt::format("%{} {}{}\n{}", id, info_of(node.op).name, attrs_text(node), type_text(node));
}

std::string style_of(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  std::string style = node.op == Op::Input ? "shape=ellipse" : "shape=box";
  if (std::ranges::find(graph.outputs, id) != graph.outputs.end())
    style += ", peripheries=2";
  std::string flags = is_movement(node.op) ? "dashed" : node.op == Op::Constant ? "rounded" : "";
  return style + fmt::format(", style=\"filled{}{}\"", flags.empty() ? "" : ",", flags);
}

class Drawing {
public:
  explicit Drawing(const Graph& graph) : graph_(graph), live_(live_nodes(graph)) {
    drawn_.resize(graph.size());
  }

  std::string draw(const std::vector<Highlight>& highlights) {
    text_ = "digraph egret {\n  rankdir=TB;\n  node [fontname=\"monospace\", fontsize=10];\n";
    for (std::size_t i = 0; i < highlights.size(); ++i)
      box(highlights[i], i);
    for (NodeId id = 0; id < graph_.size(); ++id)
      node(id, "#ffffff", "  ");
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (live_[id])
        for (NodeId in : graph_[id].inputs)
          fmt::format_to(out(), "  n{} -> n{};\n", in, id);
    return text_ + "}\n";
  }

private:
  std::back_insert_iterator<std::string> out() { return std::back_inserter(text_); }

  void box(const Highlight& highlight, std::size_t number) {
    fmt::format_to(out(), "  subgraph cluster_{} {{\n    label=\"{}\";\n", number,
                   escaped(highlight.label));
    for (NodeId id : highlight.nodes)
      if (id < graph_.size())
        node(id, highlight.color, "    ");
    text_ += "  }\n";
  }

  void node(NodeId id, const std::string& color, const char* indent) {
    if (!live_[id] || drawn_[id])
      return;
    drawn_[id] = true;
    fmt::format_to(out(), "{}n{} [label=\"{}\", {}, fillcolor=\"{}\"];\n", indent, id,
                   escaped(label_of(graph_, id)), style_of(graph_, id), escaped(color));
  }

  const Graph& graph_;
  std::vector<bool> live_, drawn_;
  std::string text_;
};

} // namespace

std::string to_dot(const Graph& graph, const std::vector<Highlight>& highlights) {
  return Drawing(graph).draw(highlights);
}

} // namespace egret::ir

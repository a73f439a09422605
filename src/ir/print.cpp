// Graphs as text, one node a line (grammar: docs/graph.md).
#include "egret/ir.h"

#include "ir/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

namespace egret::ir {
namespace {

using Out = std::back_insert_iterator<std::string>;

std::string list_text(const std::vector<Expr>& list) {
  return to_string(Shape(list));
}

void print_attrs(Out out, const Node& node) {
  const Attrs& a = node.attrs;
  switch (node.op) {
  case Op::Input:
    fmt::format_to(out, " {}{}", quoted(a.name), a.by_value ? " by_value" : "");
    return;
  case Op::Constant:
    fmt::format_to(out, " {}", a.value.str());
    return;
  case Op::Pad:
    fmt::format_to(out, " before={} after={} fill={}", list_text(a.before), list_text(a.after),
                   a.value.str());
    return;
  case Op::Shrink:
    fmt::format_to(out, " begin={} end={}", list_text(a.before), to_string(a.shape));
    return;
  default:
    break;
  }
  if (takes_one_axis(node.op))
    fmt::format_to(out, " axis={}", a.axes[0]);
  else if (!a.axes.empty())
    fmt::format_to(out, " axes=[{}]", fmt::join(a.axes, ","));
}

void print_dims(Out out, const Graph& graph) {
  for (const Expr& symbol : symbols_of(graph)) {
    fmt::format_to(out, "dim {} in {}..{}", symbol.str(), symbol.lower(), symbol.upper());
    if (symbol.divisor() != 1)
      fmt::format_to(out, " by {}", symbol.divisor());
    fmt::format_to(out, "\n");
  }
}

} // namespace

bool takes_one_axis(Op op) noexcept {
  OpClass c = info_of(op).cls;
  return op == Op::ReduceArgMax || c == OpClass::Scan || c == OpClass::Sort ||
         c == OpClass::Gather || c == OpClass::Scatter;
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\')
      result += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      result += c;
  }
  return result + '"';
}

std::string attrs_text(const Node& node) {
  std::string result;
  print_attrs(std::back_inserter(result), node);
  return result;
}

std::string type_text(const Node& node) {
  return name_of(node.dtype) + to_string(node.shape);
}

std::string node_text(const Graph& graph, NodeId id) {
  const Node& node = graph[id];
  std::string result;
  auto out = std::back_inserter(result);
  fmt::format_to(out, "%{}: {} = {}", id, type_text(node), info_of(node.op).name);
  if (!node.inputs.empty())
    fmt::format_to(out, "(%{})", fmt::join(node.inputs, ", %"));
  print_attrs(out, node);
  return result;
}

std::string print(const Graph& graph) {
  std::string result;
  auto out = std::back_inserter(result);
  print_dims(out, graph);
  for (NodeId id = 0; id < graph.size(); ++id)
    fmt::format_to(out, "{}\n", node_text(graph, id));
  fmt::format_to(out, "outputs {}{}\n", graph.outputs.empty() ? "" : "%",
                 fmt::join(graph.outputs, ", %"));
  return result;
}

} // namespace egret::ir

#include "saturate/terms.h"

#include "ir/structure.h"
#include "ir/text.h"
#include "saturate/primitives.h"
#include "support/fail.h"

#include <algorithm>
#include <fmt/ranges.h>

namespace egret::saturate {

using ir::NodeId;

namespace {

/// The attributes that a term's constructor names, of a node that is no movement.
std::variant<std::int64_t, std::string> attribute_of(const ir::Node& node,
                                                     const std::string& name) {
  const ir::Attrs& a = node.attrs;
  if (name == "slot")
    return a.slot;
  if (name == "name")
    return a.name;
  if (name == "by_value")
    return std::int64_t{a.by_value};
  if (name == "axes")
    return mask_of(a.axes);
  if (name == "axis")
    return a.axes[0];
  if (name == "dtype")
    return std::string(name_of(a.dtype));
  if (name == "scalar")
    return to_text(a.value);
  ensure(name == "type", "term: attribute {}", name);
  return to_text(Type{node.dtype, node.shape});
}

} // namespace

Term term_of(const ir::Graph& graph, NodeId id, Attributes& attributes) {
  const ir::Node& node = graph[id];
  Term term;
  term.form = &form_of(node.op);
  if (is_movement(node.op)) {
    auto [base, steps] = movements_of(graph, id);
    const std::string source = to_text(Type{graph[base].dtype, graph[base].shape});
    term.attributes.emplace_back(attributes.canonical_moves(source, steps));
    term.operands = {base};
    return term;
  }
  for (const std::string& name : term.form->attributes)
    term.attributes.push_back(attribute_of(node, name));
  term.operands = node.inputs;
  return term;
}

Terms::Terms() : attributes_(std::make_shared<Attributes>()) {
  declare_primitives(egraph_, attributes_);
  egraph_.run_program(prelude(), "prelude");
  tensor_ = egraph_.sort("Tensor");
  for (int i = 0; i < kOps; ++i) {
    const auto op = static_cast<Op>(i);
    const egraph::FunctionId function = egraph_.function(form_of(op).head);
    functions_[static_cast<std::size_t>(i)] = function;
    op_of_.emplace(static_cast<std::uint32_t>(function), op); // of movements, the first
  }
}

std::vector<egraph::FunctionId> Terms::functions() const {
  std::vector<egraph::FunctionId> each;
  for (const egraph::FunctionId function : functions_)
    if (std::ranges::find(each, function) == each.end())
      each.push_back(function);
  return each;
}

std::vector<egraph::Root> Terms::add(const ir::Graph& graph, NodeClasses* nodes) {
  for (const Expr& symbol : ir::symbols_of(graph))
    attributes_->declare_dim(symbol);
  const std::vector<bool> live = ir::live_nodes(graph);
  std::vector<egraph::Value> classes(graph.size());
  std::vector<egraph::Value> operands;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!live[id])
      continue;
    const Term term = term_of(graph, id, *attributes_);
    operands.clear();
    for (NodeId operand : term.operands)
      operands.push_back(classes[operand]);
    classes[id] = add(graph[id].op, term, operands);
    if (nodes)
      nodes->emplace_back(id, classes[id]);
  }
  std::vector<egraph::Root> roots;
  for (NodeId id : graph.outputs)
    roots.push_back({tensor_, classes[id]});
  return roots;
}

egraph::Value Terms::add(Op op, const Term& term, std::span<const egraph::Value> operands) {
  std::vector<egraph::Value> args;
  for (const auto& attribute : term.attributes)
    if (const auto* number = std::get_if<std::int64_t>(&attribute))
      args.push_back(egraph_.i64(*number));
    else
      args.push_back(egraph_.string(std::get<std::string>(attribute)));
  args.insert(args.end(), operands.begin(), operands.end());
  return egraph_.add(function_of(op), args);
}

NodeId Terms::add_node(ir::Graph& graph, egraph::FunctionId function,
                       std::span<const egraph::Value> literals, std::span<const NodeId> operands) {
  const Op op = op_of_.at(static_cast<std::uint32_t>(function));
  const Form& form = form_of(op);
  auto text = [&](std::size_t i) -> const std::string& { return egraph_.to_string(literals[i]); };
  if (op == Op::Input) {
    const auto slot = static_cast<std::size_t>(egraph_.to_i64(literals[0]));
    ensure(slot < graph.inputs().size(), "term: input {} is not in the graph", slot);
    return graph.inputs()[slot];
  }
  if (op == Op::Constant)
    return graph.broadcast(graph.constant(attributes_->scalar(text(1))),
                           attributes_->type(text(0)).shape);
  if (op == Op::Iota) {
    const Type type = attributes_->type(text(0));
    return graph.iota(type.shape.at(0), type.dtype);
  }
  if (is_movement(op)) {
    const ir::Node& base = graph[operands[0]];
    const Moved moved = attributes_->moved(to_text(Type{base.dtype, base.shape}), text(0));
    return add_movements(graph, operands[0], moved.steps);
  }
  ir::Attrs attrs;
  for (std::size_t i = 0; i < literals.size(); ++i)
    if (form.attributes[i] == "axes")
      attrs.axes = axes_of(egraph_.to_i64(literals[i]));
    else if (form.attributes[i] == "axis")
      attrs.axes = {egraph_.to_i64(literals[i])};
    else if (form.attributes[i] == "type")
      attrs.shape = attributes_->type(text(i)).shape;
    else
      attrs.dtype = dtype_named(text(i));
  if (op == Op::Cast)
    return graph.cast(operands[0], attrs.dtype);
  return graph.add(op, operands, std::move(attrs));
}

ir::Graph Terms::graph_of(const egraph::TermGraph& terms, const ir::Graph& signature,
                          NodeClasses* nodes) {
  ir::Graph graph;
  for (NodeId id : signature.inputs()) {
    const ir::Node& node = signature[id];
    graph.input(node.attrs.name, node.dtype, node.shape, node.attrs.by_value);
  }
  std::vector<NodeId> made(terms.nodes.size(), ir::kNoNode);
  std::vector<egraph::Value> literals;
  std::vector<NodeId> operands;
  for (std::uint32_t i = 0; i < terms.nodes.size(); ++i) {
    const egraph::TermGraph::Node& node = terms.nodes[i];
    if (node.is_literal)
      continue;
    literals.clear();
    operands.clear();
    for (std::uint32_t child : node.children)
      if (terms.nodes[child].is_literal)
        literals.push_back(terms.nodes[child].value);
      else
        operands.push_back(made[child]);
    made[i] = add_node(graph, node.function, literals, operands);
    if (nodes)
      nodes->emplace_back(made[i], node.value);
  }
  for (std::uint32_t root : terms.roots)
    graph.outputs.push_back(made[root]);
  return graph;
}

std::string Terms::attributes_text(egraph::FunctionId function,
                                   std::span<const egraph::Value> literals) const {
  const Form& form = form_of(op_of_.at(static_cast<std::uint32_t>(function)));
  std::string text;
  for (std::size_t i = 0; i < literals.size(); ++i) {
    const std::string& name = form.attributes[i];
    text += text.empty() ? "" : " ";
    if (name == "axes")
      text += fmt::format("axes=[{}]", fmt::join(axes_of(egraph_.to_i64(literals[i])), ","));
    else if (name == "axis" || name == "slot" || name == "by_value")
      text += fmt::format("{}={}", name, egraph_.to_i64(literals[i]));
    else
      text += egraph_.to_string(literals[i]);
  }
  return text;
}

std::string Terms::op_text(egraph::FunctionId function) const {
  const Op op = op_of_.at(static_cast<std::uint32_t>(function));
  return is_movement(op) ? "view" : std::string(info_of(op).name);
}

std::unordered_map<egraph::Value, Type> Terms::types() {
  std::unordered_map<egraph::Value, Type> types;
  egraph_.for_each_row(egraph_.function("type"), [&](const egraph::Row& row) {
    types.emplace(egraph_.canonical(tensor_, row.args[0]),
                  attributes_->type(egraph_.to_string(row.output)));
  });
  return types;
}

ProgramText program_of(const ir::Graph& graph) {
  Attributes attributes;
  ProgramText program;
  for (const Expr& symbol : ir::symbols_of(graph)) {
    attributes.declare_dim(symbol);
    program.text +=
        fmt::format("(let $dim-{0} (declare-dim {1} {2} {3} {4}))\n", symbol.str(),
                    ir::quoted(symbol.str()), symbol.lower(), symbol.upper(), symbol.divisor());
  }
  const std::vector<bool> live = ir::live_nodes(graph);
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (!live[id])
      continue;
    const Term term = term_of(graph, id, attributes);
    program.text += fmt::format("(let $n{} ({}", id, term.form->head);
    for (const auto& attribute : term.attributes)
      if (const auto* number = std::get_if<std::int64_t>(&attribute))
        program.text += fmt::format(" {}", *number);
      else
        program.text += fmt::format(" {}", ir::quoted(std::get<std::string>(attribute)));
    for (NodeId operand : term.operands)
      program.text += fmt::format(" $n{}", operand);
    program.text += "))\n";
  }
  for (NodeId id : graph.outputs)
    program.outputs.push_back(fmt::format("$n{}", id));
  return program;
}

} // namespace egret::saturate

#include "onnx/emitter.h"

#include "ir/text.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <numeric>

namespace egret::onnx {

DType carrier_of(DType type) {
  switch (type) {
  case DType::F16:
  case DType::BF16:
  case DType::F8E4M3:
  case DType::F8E5M2:
    return DType::F32;
  case DType::I8:
  case DType::I16:
  case DType::U8:
  case DType::U16:
    return DType::I32;
  case DType::U32:
  case DType::U64:
    return DType::I64;
  default:
    return type;
  }
}

Emitter::Emitter(const ir::Graph& graph, const Interface& interface)
    : graph_(graph), interface_(interface), forms_(graph.size()) {
  model_.name = interface.name;
  std::vector<std::size_t> slots(graph.inputs().size());
  std::iota(slots.begin(), slots.end(), std::size_t{0});
  std::ranges::stable_sort(slots, {},
                           [&](std::size_t slot) { return interface.inputs[slot].place; });
  for (const std::size_t slot : slots) {
    const ir::NodeId id = graph.inputs()[slot];
    const ir::Node& node = graph[id];
    const Interface::Input& input = interface.inputs[slot];
    const std::string name = unique(input.name.empty() ? node.attrs.name : input.name);
    if (input.value) {
      Initializer& weight = model_.initializers.emplace_back();
      weight.name = name;
      weight.dtype = node.dtype;
      for (const Expr& size : node.shape)
        weight.dims.push_back(size.value());
      weight.given = *input.value;
    } else {
      model_.inputs.push_back({name, node.dtype, node.shape});
    }
    described_.insert(name);
    forms_[id].push_back({node.dtype, name});
  }
}

void Emitter::begin(ir::NodeId id) {
  current_ = id;
  next_ = 0;
}

std::string Emitter::unique(const std::string& name) {
  const std::string base = name.empty() ? "value" : name;
  int& count = taken_[base];
  if (count++ == 0)
    return base;
  return unique(fmt::format("{}_{}", base, count));
}

// "sum_7" for node %7, "sum_7.1" and so on for what it is made of.
std::string Emitter::name_for_next() {
  if (current_ == ir::kNoNode)
    return unique("result_value");
  const std::string base = fmt::format("{}_{}", info_of(graph_[current_].op).name, current_);
  return unique(fmt::format("{}.{}", base, ++next_));
}

std::string Emitter::emit(std::string_view op, Names inputs, std::vector<Attribute> attributes) {
  return emit_last(op, std::move(inputs), 1, std::move(attributes));
}

std::string Emitter::emit_last(std::string_view op, Names inputs, std::size_t outputs,
                               std::vector<Attribute> attributes) {
  OnnxNode node{std::string(op), std::move(inputs), {}, std::move(attributes), {}};
  for (std::size_t i = 0; i < outputs; ++i)
    node.outputs.push_back(name_for_next());
  if (current_ != ir::kNoNode)
    node.note = ir::node_text(graph_, current_);
  model_.nodes.push_back(std::move(node));
  return model_.nodes.back().outputs.back();
}

std::string Emitter::convert(const std::string& name, DType from, DType to) {
  if (from == to)
    return name;
  std::string& made = converted_[{name, static_cast<int>(to)}];
  if (made.empty()) {
    std::vector<Attribute> attributes{{"to", type_number(to)}};
    // What is too large becomes infinite or NaN.
    if (to == DType::F8E4M3 || to == DType::F8E5M2)
      attributes.push_back({"saturate", std::int64_t{0}});
    made = emit("Cast", {name}, std::move(attributes));
  }
  return made;
}

std::string Emitter::value(ir::NodeId id, DType type) {
  std::vector<Form>& forms = forms_[id];
  ensure(!forms.empty(), "onnx: %{} is read before it is made", id);
  for (const Form& form : forms)
    if (form.dtype == type)
      return form.name;
  const Form from = forms.front();
  const auto refused = refused_.find(from.name);
  if (refused != refused_.end())
    return from.name;
  forms.push_back({type, convert(from.name, from.dtype, type)});
  return forms.back().name;
}

void Emitter::define(std::string name, DType type, bool exact) {
  const DType own = graph_[current_].dtype;
  if (type != own && !exact) {
    name = convert(name, type, own);
    type = own;
  }
  if (type == own && described_.insert(name).second)
    model_.values.push_back({name, own, graph_[current_].shape});
  forms_[current_] = {{type, std::move(name)}};
}

void Emitter::define_refused(std::string reason) {
  const std::string name = emit("", {});
  refused_[name] = {current_, std::move(reason)};
  forms_[current_] = {{graph_[current_].dtype, name}};
}

std::string Emitter::constant(Scalar value) {
  std::string& name = scalars_[{static_cast<int>(value.dtype), value.bits}];
  if (name.empty()) {
    name = unique(fmt::format("{}_{}", name_of(value.dtype), value.str()));
    described_.insert(name);
    Initializer& made = model_.initializers.emplace_back();
    made.name = name;
    made.dtype = value.dtype;
    for (std::size_t i = 0; i < egret::size_of(value.dtype); ++i)
      made.own.push_back(static_cast<char>(value.bits >> (8 * i)));
  }
  return name;
}

std::string Emitter::list(const std::vector<std::int64_t>& values) {
  std::string& name = lists_[values];
  if (name.empty()) {
    name = unique(fmt::format("list_{}", lists_.size()));
    Initializer& made = model_.initializers.emplace_back();
    made.name = name;
    made.dtype = DType::I64;
    made.dims = {static_cast<std::int64_t>(values.size())};
    for (const std::int64_t value : values)
      for (int i = 0; i < 8; ++i)
        made.own.push_back(static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * i)));
  }
  return name;
}

std::string Emitter::size_of_symbol(const Expr& symbol) {
  for (std::size_t slot = 0; slot < graph_.inputs().size(); ++slot) {
    const ir::NodeId input = graph_.inputs()[slot];
    const Shape& shape = graph_[input].shape;
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] == symbol) {
        const auto at = static_cast<std::int64_t>(axis);
        return emit("Shape", {forms_[input].front().name}, {{"start", at}, {"end", at + 1}});
      }
  }
  refuse(current_, fmt::format("the size `{}` is that of no input's axis", symbol.str()));
}

// One element of rank 1.
std::string Emitter::size_of(const Expr& size) {
  if (size.is_constant())
    return list({size.value()});
  const std::string text = size.str();
  if (const auto found = sizes_.find(text); found != sizes_.end())
    return found->second;
  const ExprNode& node = size.node();
  std::string made;
  const auto pair = [&](const char* op) {
    return emit(op, {size_of(node.operands[0]), size_of(node.operands[1])});
  };
  switch (node.kind) {
  case ExprKind::Symbol:
    made = size_of_symbol(size);
    break;
  case ExprKind::Sum:
    made = list({node.value});
    for (std::size_t i = 0; i < node.operands.size(); ++i)
      made = emit("Add",
                  {made, emit("Mul", {size_of(node.operands[i]), list({node.coefficients[i]})})});
    break;
  case ExprKind::Product:
    made = size_of(node.operands[0]);
    for (std::size_t i = 1; i < node.operands.size(); ++i)
      made = emit("Mul", {made, size_of(node.operands[i])});
    break;
  case ExprKind::FloorDiv: // Div rounds towards 0
    made = emit("Div",
                {emit("Sub", {size_of(node.operands[0]), pair("Mod")}), size_of(node.operands[1])});
    break;
  case ExprKind::FloorMod:
    made = pair("Mod");
    break;
  case ExprKind::Min:
    made = pair("Min");
    break;
  case ExprKind::Max:
    made = pair("Max");
    break;
  default:
    ensure(false, "onnx: {} is no size", text);
  }
  sizes_[text] = made;
  return made;
}

std::string Emitter::sizes(const std::vector<Expr>& sizes) {
  if (std::ranges::all_of(sizes, [](const Expr& size) { return size.is_constant(); })) {
    std::vector<std::int64_t> values;
    for (const Expr& size : sizes)
      values.push_back(size.value());
    return list(values);
  }
  Names parts;
  for (const Expr& size : sizes)
    parts.push_back(size_of(size));
  return parts.size() == 1 ? parts[0]
                           : emit("Concat", std::move(parts), {{"axis", std::int64_t{0}}});
}

std::string Emitter::scalar_size(const Expr& size) {
  return size.is_constant() ? integer(DType::I64, size.value())
                            : emit("Reshape", {size_of(size), list({})});
}

std::string Emitter::bytes(DType type, const Shape& shape, std::span<const std::byte> value) {
  Initializer& made = model_.initializers.emplace_back();
  made.name = unique("constant");
  made.dtype = type;
  for (const Expr& size : shape)
    made.dims.push_back(size.value());
  made.given = value;
  return made.name;
}

void Emitter::refuse(ir::NodeId id, const std::string& reason) const {
  std::string place;
  if (id < interface_.lines.size())
    place = fmt::format(" (line {})", interface_.lines[id]);
  fail(ErrorKind::Unsupported, "onnx: {}{}: {}", printable(ir::node_text(graph_, id)), place,
       reason);
}

void Emitter::add_result(const Interface::Result& result) {
  std::string from;
  TypedName output{unique(result.name), result.dtype, result.shape};
  if (result.kind == Interface::Result::Kind::Value) {
    from = bytes(result.dtype, result.shape, result.value);
  } else {
    const ir::NodeId id = result.kind == Interface::Result::Kind::Output
                              ? graph_.outputs[result.number]
                              : graph_.inputs()[result.number];
    from = value(id);
    output.dtype = graph_[id].dtype;
    output.shape = graph_[id].shape;
  }
  model_.nodes.push_back({"Identity", {from}, {output.name}, {}, {}});
  model_.outputs.push_back(std::move(output));
}

Model Emitter::finish() {
  current_ = ir::kNoNode;
  for (const Interface::Result& result : interface_.results)
    add_result(result);
  remove_unused(model_);
  for (const OnnxNode& node : model_.nodes)
    if (const auto found = refused_.find(node.outputs.front()); found != refused_.end())
      refuse(found->second.first, found->second.second);
  return std::move(model_);
}

} // namespace egret::onnx

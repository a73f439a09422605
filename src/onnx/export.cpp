#include "onnx/export.h"

#include "ir/structure.h"
#include "onnx/lower.h"
#include "support/fail.h"
#include "support/output_file.h"

#include <algorithm>

namespace egret::onnx {

namespace {

// Of a shape that is known, with no elements.
bool is_empty(const Shape& shape) {
  const auto is_known = [](const Expr& size) { return size.is_constant(); };
  return std::ranges::all_of(shape, is_known) && std::ranges::find(shape, Expr(0)) != shape.end();
}

void lower(Emitter& emitter, ir::NodeId id) {
  const ir::Node& node = emitter.graph()[id];
  const Op op = node.op;
  // Operators do not agree with each other on axes without elements.
  if (is_empty(node.shape))
    return emitter.define(emitter.bytes(node.dtype, node.shape, {}), node.dtype);
  switch (info_of(op).cls) {
  case OpClass::Convert:
    return lower_conversion(emitter, id);
  case OpClass::Reduce:
  case OpClass::Scan:
    return lower_reduction(emitter, id);
  case OpClass::Sort:
    return lower_sort(emitter, id);
  case OpClass::Gather:
  case OpClass::Scatter:
    return lower_indexed(emitter, id);
  case OpClass::Movement:
    return lower_movement(emitter, id);
  default:
    return lower_elementwise(emitter, id);
  }
}

Model model_of(const ir::Graph& graph, const Interface& interface) {
  ensure(interface.inputs.size() == graph.inputs().size(), "onnx: {} inputs are described of {}",
         interface.inputs.size(), graph.inputs().size());
  Emitter emitter(graph, interface);
  const std::vector<bool> live = ir::live_nodes(graph);
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    if (live[id] && graph[id].op != Op::Input) {
      emitter.begin(id);
      lower(emitter, id);
    }
  return emitter.finish();
}

std::size_t weight_bytes(const Model& model) {
  std::size_t total = 0;
  for (const Initializer& value : model.initializers)
    total += value.bytes().size();
  return total;
}

} // namespace

Interface interface_of(const ir::Graph& graph, std::string name) {
  Interface interface;
  interface.name = std::move(name);
  for (const ir::NodeId id : graph.inputs())
    interface.inputs.push_back({graph[id].attrs.name, {}, 0});
  for (std::size_t output = 0; output < graph.outputs.size(); ++output) {
    Interface::Result& result = interface.results.emplace_back();
    result.name = graph.outputs.size() == 1 ? "result" : fmt::format("result{}", output);
    result.number = output;
  }
  return interface;
}

void write_model(const std::filesystem::path& path, const ir::Graph& graph,
                 const Interface& interface, const Options& options) {
  const Model model = model_of(graph, interface);
  if (weight_bytes(model) <= options.most_bytes) {
    write_output("onnx", path, serialize(model));
    return;
  }
  std::filesystem::path beside = path;
  beside += ".data";
  ExternalData external;
  external.location = beside.filename().string();
  const std::string text = serialize(model, &external);
  OutputFile data("onnx", beside);
  for (const std::span<const std::byte> bytes : external.bytes)
    data.write(bytes);
  data.commit();
  write_output("onnx", path, text);
}

} // namespace egret::onnx

#include "onnx/model.h"

#include "support/overloaded.h"

#include <algorithm>
#include <array>
#include <unordered_set>

namespace egret::onnx {

namespace {

Message dimension(const Expr& size) {
  Message dim;
  if (size.is_constant())
    dim.number(1, size.value());
  else
    dim.text(2, size.str());
  return dim;
}

Message value_info(const TypedName& value) {
  Message tensor, type, info;
  tensor.number(1, type_number(value.dtype));
  if (value.shape) {
    Message shape;
    for (const Expr& size : *value.shape)
      shape.message(1, dimension(size));
    tensor.message(2, shape);
  }
  type.message(1, tensor);
  info.text(1, value.name);
  info.message(2, type);
  return info;
}

Message node_proto(const OnnxNode& node);

Message body_proto(const Body& body) {
  Message graph;
  for (const OnnxNode& node : body.nodes)
    graph.message(1, node_proto(node));
  graph.text(2, "body");
  for (const TypedName& input : body.inputs)
    graph.message(11, value_info(input));
  for (const TypedName& output : body.outputs)
    graph.message(12, value_info(output));
  return graph;
}

Message attribute_proto(const Attribute& attribute) {
  enum Type : std::int64_t { kInt = 2, kString = 3, kGraph = 5, kInts = 7 };
  Message proto;
  proto.text(1, attribute.name);
  std::visit(overloaded{[&](std::int64_t value) {
                          proto.number(3, value);
                          proto.number(20, kInt);
                        },
                        [&](const std::string& value) {
                          proto.text(4, value);
                          proto.number(20, kString);
                        },
                        [&](const std::vector<std::int64_t>& values) {
                          for (const std::int64_t value : values)
                            proto.number(8, value);
                          proto.number(20, kInts);
                        },
                        [&](const std::shared_ptr<const Body>& body) {
                          proto.message(6, body_proto(*body));
                          proto.number(20, kGraph);
                        }},
             attribute.value);
  return proto;
}

Message node_proto(const OnnxNode& node) {
  Message proto;
  for (const std::string& input : node.inputs)
    proto.text(1, input);
  for (const std::string& output : node.outputs)
    proto.text(2, output);
  proto.text(3, node.outputs.front());
  proto.text(4, node.op);
  for (const Attribute& attribute : node.attributes)
    proto.message(5, attribute_proto(attribute));
  if (!node.note.empty())
    proto.text(6, node.note);
  return proto;
}

Message pair(std::string_view key, std::string_view value) {
  Message entry;
  entry.text(1, key);
  entry.text(2, value);
  return entry;
}

/// Places of external tensors are multiples of it, so that they can be mapped into memory.
constexpr std::size_t kAlignment = 4096;

void append_external(Message& tensor, std::span<const std::byte> bytes, ExternalData& external,
                     std::size_t& offset) {
  static constexpr std::array<std::byte, kAlignment> kZeros{};
  if (const std::size_t gap = (kAlignment - offset % kAlignment) % kAlignment; gap > 0) {
    external.bytes.push_back(std::span(kZeros).first(gap));
    offset += gap;
  }
  tensor.message(13, pair("location", external.location));
  tensor.message(13, pair("offset", std::to_string(offset)));
  tensor.message(13, pair("length", std::to_string(bytes.size())));
  tensor.number(14, 1); // DataLocation.EXTERNAL
  external.bytes.push_back(bytes);
  offset += bytes.size();
}

Message tensor_proto(const Initializer& value, ExternalData* external, std::size_t& offset) {
  Message tensor;
  for (const std::int64_t dim : value.dims)
    tensor.number(1, dim);
  tensor.number(2, type_number(value.dtype));
  tensor.text(8, value.name);
  const std::span<const std::byte> bytes = value.bytes();
  if (external && bytes.size() >= external->least_bytes)
    append_external(tensor, bytes, *external, offset);
  else
    tensor.bytes(9, bytes);
  return tensor;
}

} // namespace

std::int64_t type_number(DType type) {
  switch (type) {
  case DType::F32:
    return 1;
  case DType::U8:
    return 2;
  case DType::I8:
    return 3;
  case DType::U16:
    return 4;
  case DType::I16:
    return 5;
  case DType::I32:
    return 6;
  case DType::I64:
    return 7;
  case DType::Bool:
    return 9;
  case DType::F16:
    return 10;
  case DType::F64:
    return 11;
  case DType::U32:
    return 12;
  case DType::U64:
    return 13;
  case DType::BF16:
    return 16;
  case DType::F8E4M3:
    return 17; // FLOAT8E4M3FN
  case DType::F8E5M2:
    return 19;
  }
  return 0;
}

void remove_unused(Model& model) {
  std::unordered_set<std::string> read;
  for (const TypedName& output : model.outputs)
    read.insert(output.name);
  const auto is_read = [&](const auto& value) { return read.contains(value.name); };
  std::vector<OnnxNode> nodes;
  for (auto node = model.nodes.rbegin(); node != model.nodes.rend(); ++node)
    if (std::ranges::any_of(node->outputs, [&](const auto& name) { return read.contains(name); })) {
      read.insert(node->inputs.begin(), node->inputs.end());
      nodes.push_back(std::move(*node));
    }
  std::ranges::reverse(nodes);
  model.nodes = std::move(nodes);
  std::erase_if(model.initializers, [&](const Initializer& value) { return !is_read(value); });
  std::erase_if(model.values, [&](const TypedName& value) { return !is_read(value); });
}

std::string serialize(const Model& model, ExternalData* external) {
  Message graph;
  for (const OnnxNode& node : model.nodes)
    graph.message(1, node_proto(node));
  graph.text(2, model.name);
  std::size_t offset = 0;
  for (const Initializer& value : model.initializers)
    graph.message(5, tensor_proto(value, external, offset));
  for (const TypedName& input : model.inputs)
    graph.message(11, value_info(input));
  for (const TypedName& output : model.outputs)
    graph.message(12, value_info(output));
  for (const TypedName& value : model.values)
    graph.message(13, value_info(value));

  Message opset, proto;
  opset.text(1, "");
  opset.number(2, kOpset);
  proto.number(1, kFormat);
  proto.text(2, "egret");
  proto.message(7, graph);
  proto.message(8, opset);
  return proto.data();
}

} // namespace egret::onnx

// Reads ONNX models back, by the wire format of Protocol Buffers, for tests.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace egret::testing {

/// The fields of a message: numbers and texts by field number, in their order.
struct ProtoMessage {
  std::map<int, std::vector<std::int64_t>> numbers;
  std::map<int, std::vector<std::string>> texts; ///< also bytes and messages

  explicit ProtoMessage(std::string_view data) {
    while (!data.empty()) {
      const std::uint64_t tag = varint(data);
      const int field = static_cast<int>(tag >> 3);
      switch (tag & 7) {
      case 0:
        numbers[field].push_back(static_cast<std::int64_t>(varint(data)));
        break;
      case 2: {
        const std::uint64_t size = varint(data);
        if (size > data.size())
          throw std::runtime_error("a field is longer than its message");
        texts[field].emplace_back(data.substr(0, size));
        data.remove_prefix(size);
        break;
      }
      default:
        throw std::runtime_error("a wire type that ONNX has no use for here");
      }
    }
  }

  std::int64_t number(int field) const { return numbers.at(field).at(0); }
  const std::string& text(int field) const { return texts.at(field).at(0); }
  bool has(int field) const { return numbers.contains(field) || texts.contains(field); }
  std::vector<ProtoMessage> messages(int field) const {
    std::vector<ProtoMessage> all;
    if (const auto found = texts.find(field); found != texts.end())
      for (const std::string& text : found->second)
        all.emplace_back(text);
    return all;
  }
  std::vector<std::string> strings(int field) const {
    const auto found = texts.find(field);
    return found == texts.end() ? std::vector<std::string>() : found->second;
  }

private:
  static std::uint64_t varint(std::string_view& data) {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (data.empty())
        throw std::runtime_error("a number is cut short");
      const auto byte = static_cast<unsigned char>(data[0]);
      data.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80)
        return value;
    }
    throw std::runtime_error("a number of more than 64 bits");
  }
};

struct ReadNode {
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, ProtoMessage> attributes;
  std::vector<std::int64_t> ints(const std::string& name) const {
    const auto& numbers = attributes.at(name).numbers;
    const auto found = numbers.find(8);
    return found == numbers.end() ? std::vector<std::int64_t>() : found->second;
  }
};

struct ReadTensor {
  std::int64_t dtype = 0;
  std::vector<std::int64_t> dims;
  std::string raw;
  std::map<std::string, std::string> external;
};

struct ReadModel {
  std::int64_t format = 0, opset = 0;
  std::string name;
  std::vector<ReadNode> nodes;
  std::map<std::string, ReadTensor> initializers;
  /// By name: "1[2,rows]", the number of the dtype and the sizes.
  std::map<std::string, std::string> inputs, outputs, values;

  std::vector<std::string> ops() const {
    std::vector<std::string> all;
    for (const ReadNode& node : nodes)
      all.push_back(node.op);
    return all;
  }
  const ReadNode& node(const std::string& op) const {
    for (const ReadNode& node : nodes)
      if (node.op == op)
        return node;
    throw std::runtime_error("no node " + op);
  }
};

inline std::map<std::string, std::string> typed_names(const std::vector<ProtoMessage>& infos) {
  std::map<std::string, std::string> types;
  for (const ProtoMessage& info : infos) {
    const ProtoMessage tensor = info.messages(2).at(0).messages(1).at(0);
    std::string text = std::to_string(tensor.number(1)) + "[";
    const std::vector<ProtoMessage> dims = tensor.messages(2).at(0).messages(1);
    for (std::size_t i = 0; i < dims.size(); ++i)
      text += (i > 0 ? "," : "") +
              (dims[i].has(1) ? std::to_string(dims[i].number(1)) : dims[i].text(2));
    types[info.text(1)] = text + "]";
  }
  return types;
}

inline ReadModel read_onnx(std::string_view bytes) {
  const ProtoMessage proto(bytes), graph = proto.messages(7).at(0);
  ReadModel model;
  model.format = proto.number(1);
  model.opset = proto.messages(8).at(0).number(2);
  model.name = graph.text(2);
  for (const ProtoMessage& message : graph.messages(1)) {
    ReadNode& node = model.nodes.emplace_back();
    node.op = message.text(4);
    node.inputs = message.strings(1);
    node.outputs = message.strings(2);
    for (const ProtoMessage& attribute : message.messages(5))
      node.attributes.emplace(attribute.text(1), attribute);
  }
  for (const ProtoMessage& message : graph.messages(5)) {
    ReadTensor& tensor = model.initializers[message.text(8)];
    tensor.dtype = message.number(2);
    if (message.has(1))
      tensor.dims = message.numbers.at(1);
    if (message.has(9))
      tensor.raw = message.text(9);
    for (const ProtoMessage& entry : message.messages(13))
      tensor.external[entry.text(1)] = entry.text(2);
  }
  model.inputs = typed_names(graph.messages(11));
  model.outputs = typed_names(graph.messages(12));
  model.values = typed_names(graph.messages(13));
  return model;
}

} // namespace egret::testing

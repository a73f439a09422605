#include "compiler/values/node_keys.h"

#include "backend/reference/number.h"
#include "ir/text.h"
#include "support/hash.h"

#include <bit>

namespace egret::compiler {

namespace {

std::uint64_t typeless_key(const ir::Node& node, const std::vector<std::uint64_t>& operands) {
  using namespace backend::reference;
  if (node.op == Op::Cast)
    return operands[node.inputs[0]];
  ir::Attrs attrs = node.attrs;
  std::uint64_t key = hash_text(info_of(node.op).name);
  if (node.op == Op::Constant) {
    const double value = as_double(node.dtype, number_of(attrs.value));
    return combine(key,
                   std::bit_cast<std::uint64_t>(round_to(DType::BF16, {.f = value, .i = 0}).f));
  }
  key = combine(key, hash_text(to_string(node.shape)));
  attrs.dtype = DType::F32;
  attrs.value = {};
  ir::Node typeless{node.op, DType::F32, node.shape, node.inputs, std::move(attrs)};
  key = combine(key, hash_text(ir::attrs_text(typeless)));
  key = combine(key, static_cast<std::uint64_t>(node.attrs.slot));
  for (const ir::NodeId operand : node.inputs)
    key = combine(key, operands[operand]);
  return key;
}

} // namespace

NodeKeys node_keys(const ir::Graph& graph) {
  NodeKeys keys;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    std::uint64_t key = hash_text(info_of(node.op).name);
    key = combine(key, hash_text(ir::type_text(node)));
    key = combine(key, hash_text(ir::attrs_text(node)));
    key = combine(key, static_cast<std::uint64_t>(node.attrs.slot));
    for (const ir::NodeId operand : node.inputs)
      key = combine(key, keys.exact[operand]);
    keys.exact.push_back(key);
    keys.typeless.push_back(typeless_key(node, keys.typeless));
  }
  return keys;
}

std::uint64_t typeless_key(const ir::Graph& graph) {
  const NodeKeys keys = node_keys(graph);
  std::uint64_t key = 0;
  for (const ir::NodeId output : graph.outputs)
    key = combine(key, keys.typeless[output]);
  return key;
}

} // namespace egret::compiler

// Verification, dead code and hashes of graphs.
#include "ir/structure.h"

#include "ir/shape_rules.h"
#include "support/fail.h"
#include "support/hash.h"

#include <set>

namespace egret::ir {

std::vector<bool> live_nodes(const Graph& graph) {
  std::vector<bool> live(graph.size());
  for (NodeId id : graph.outputs)
    live[id] = true;
  for (NodeId id = static_cast<NodeId>(graph.size()); id-- > 0;)
    if (live[id])
      for (NodeId in : graph[id].inputs)
        live[in] = true;
  return live;
}

std::vector<NodeId> canonical_order(const Graph& graph) {
  std::vector<NodeId> order;
  std::vector<bool> done(graph.size());
  for (NodeId id : graph.inputs())
    done[id] = true;
  struct Visit {
    NodeId id;
    const std::vector<NodeId>* operands;
    std::size_t next;
  };
  std::vector<Visit> stack;
  auto visit = [&](NodeId id) {
    if (!done[id])
      stack.push_back({id, &graph[id].inputs, 0});
  };
  for (NodeId output : graph.outputs) {
    visit(output);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.next < top.operands->size()) {
        visit((*top.operands)[top.next++]);
      } else {
        if (!done[top.id]) // else a node that was met twice on the way down
          order.push_back(top.id);
        done[top.id] = true;
        stack.pop_back();
      }
    }
  }
  return order;
}

Graph rebuild(const Graph& graph, const Remake& remake) {
  Graph result;
  std::vector<NodeId> moved(graph.size(), kNoNode);
  for (NodeId id : graph.inputs())
    moved[id] = result.add(Op::Input, {}, graph[id].attrs);
  std::vector<NodeId> operands;
  for (NodeId id : canonical_order(graph)) {
    operands.clear();
    for (NodeId in : graph[id].inputs)
      operands.push_back(moved[in]);
    moved[id] = remake(result, id, operands);
  }
  for (NodeId id : graph.outputs)
    result.outputs.push_back(moved[id]);
  return result;
}

Graph without_dead_code(const Graph& graph) {
  return rebuild(graph, [&](Graph& out, NodeId id, std::span<const NodeId> operands) {
    return out.add(graph[id].op, operands, graph[id].attrs);
  });
}

std::optional<Scalar> known_value(const Graph& graph, NodeId id) {
  while (is_movement(graph[id].op) && graph[id].op != Op::Pad)
    id = graph[id].inputs[0];
  if (graph[id].op != Op::Constant)
    return std::nullopt;
  return graph[id].attrs.value;
}

std::uint64_t canonical_hash(const Graph& graph) {
  std::vector<std::uint64_t> hashes(graph.size());
  std::uint64_t result = mix(graph.inputs().size() + 1);
  for (NodeId id : graph.inputs()) {
    hashes[id] = hash_attrs(Op::Input, graph[id].attrs);
    result = combine(result, hashes[id]);
  }
  for (NodeId id : canonical_order(graph)) {
    std::uint64_t h = hash_attrs(graph[id].op, graph[id].attrs);
    for (NodeId in : graph[id].inputs)
      h = combine(h, hashes[in]);
    hashes[id] = h;
  }
  result = combine(result, graph.outputs.size());
  for (NodeId id : graph.outputs)
    result = combine(result, hashes[id]);
  return result;
}

namespace {

void check_type(const Graph& graph, NodeId id, std::span<const Node* const> operands) {
  const Node& node = graph[id];
  try {
    Inferred inferred = infer(node.op, operands, node.attrs);
    if (inferred.dtype != node.dtype || inferred.shape != node.shape)
      ensure(false, "verify: %{} ({}) is {}{}, the rules give {}{}", id, info_of(node.op).name,
             name_of(node.dtype), to_string(node.shape), name_of(inferred.dtype),
             to_string(inferred.shape));
  } catch (const Error& error) {
    ensure(false, "verify: %{}: {}", id, error.what());
  }
}

} // namespace

void verify(const Graph& graph) {
  std::set<std::pair<std::uint64_t, NodeId>>
      seen; // by hash, so that only likely twins are compared
  std::vector<NodeId> inputs;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph[id];
    std::string_view name = info_of(node.op).name;
    ensure(node.inputs.size() == static_cast<std::size_t>(info_of(node.op).arity),
           "verify: %{} ({}) has {} operands", id, name, node.inputs.size());
    const Node* operands[3] = {};
    std::uint64_t hash = hash_attrs(node.op, node.attrs);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      ensure(node.inputs[i] < id, "verify: %{} ({}) reads %{}, which does not precede it", id, name,
             node.inputs[i]);
      operands[i] = &graph[node.inputs[i]];
      hash = combine(hash, node.inputs[i]);
    }
    if (node.op == Op::Input) {
      ensure(node.attrs.slot == static_cast<std::int64_t>(inputs.size()),
             "verify: %{} is input number {} and has slot {}", id, inputs.size(), node.attrs.slot);
      inputs.push_back(id);
    }
    check_type(graph, id, {operands, node.inputs.size()});
    for (auto it = seen.lower_bound({hash, 0}); it != seen.end() && it->first == hash; ++it) {
      const Node& other = graph[it->second];
      ensure(!(other.op == node.op && other.inputs == node.inputs && other.attrs == node.attrs),
             "verify: %{} and %{} are the same {}", it->second, id, name);
    }
    seen.emplace(hash, id);
  }
  ensure(inputs == graph.inputs(), "verify: the list of inputs does not fit the nodes");
  for (NodeId id : graph.outputs)
    ensure(id < graph.size(), "verify: output %{} does not exist", id);
}

namespace {

/// Bits of a significand; what integers need of it.
int digits(DType type) {
  switch (type) {
  case DType::F16:
    return 11;
  case DType::BF16:
    return 8;
  case DType::F8E4M3:
    return 4;
  case DType::F8E5M2:
    return 3;
  case DType::F32:
    return 24;
  case DType::F64:
    return 53;
  case DType::Bool:
    return 1;
  default:
    return static_cast<int>(8 * size_of(type)) - (is_signed(type) ? 1 : 0);
  }
}

/// Every value of `from` is a value of `to`.
bool holds_all(DType from, DType to) {
  if (from == to || from == DType::Bool)
    return true;
  if (to == DType::Bool)
    return false;
  if (is_float(from))
    return is_float(to) && digits(from) <= digits(to) &&
           !(from == DType::BF16 && to == DType::F16) &&
           !(from == DType::F8E5M2 && to == DType::F8E4M3);
  if (is_float(
          to)) // the largest f16 is below 2^16; the others reach beyond any integer they can count
    return digits(from) <= digits(to);
  return is_signed(from) ? is_signed(to) && digits(from) <= digits(to) : digits(from) <= digits(to);
}

} // namespace

bool cast_passes_through(DType from, DType between, DType to) noexcept {
  if (!holds_all(from, between))
    return false;
  // integers wrap into each other, but saturate when they come from a float
  return !(is_integer(from) && is_float(between) && is_integer(to)) || holds_all(from, to);
}

} // namespace egret::ir

#include "compiler/record/node_history.h"

#include "ir/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace egret::compiler {

using Number = NodeHistory::Number;

namespace {

/// Takes from both what occurs in both, so that operands that only changed their order are no pair.
void drop_common(std::vector<Number>& a, std::vector<Number>& b) {
  std::erase_if(a, [&](Number operand) {
    const auto same = std::find(b.begin(), b.end(), operand);
    if (same == b.end())
      return false;
    b.erase(same);
    return true;
  });
}

} // namespace

std::string NodeHistory::structure_of(const ir::Node& node, const std::vector<Number>& operands) {
  return fmt::format("{} {} {} {} {}", info_of(node.op).name, ir::type_text(node),
                     ir::attrs_text(node), node.attrs.slot, fmt::join(operands, ","));
}

std::vector<Number> NodeHistory::known(const ir::Graph& graph) const {
  constexpr Number kUnknown = 0xffffffffu;
  std::vector<Number> numbers, found;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    std::vector<Number> operands;
    for (const ir::NodeId operand : graph[id].inputs)
      operands.push_back(numbers[operand]);
    const auto place = numbers_.find(structure_of(graph[id], operands));
    numbers.push_back(place == numbers_.end() ? kUnknown : place->second);
    if (place != numbers_.end())
      found.push_back(place->second);
  }
  std::sort(found.begin(), found.end());
  return found;
}

NodeHistory::Seen NodeHistory::see(const ir::Graph& graph, const Form* before) {
  Seen seen;
  const auto first_fresh = static_cast<Number>(known_.size());
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    std::vector<Number> operands;
    for (const ir::NodeId operand : node.inputs)
      operands.push_back(seen.form.nodes[operand]);
    const auto [place, fresh] =
        numbers_.try_emplace(structure_of(node, operands), static_cast<Number>(known_.size()));
    seen.form.nodes.push_back(place->second);
    if (!fresh)
      continue;
    known_.push_back({node.op, std::move(operands)});
    seen.fresh.push_back({place->second, id, {}});
  }
  for (const ir::NodeId output : graph.outputs)
    seen.form.outputs.push_back(seen.form.nodes[output]);
  if (before && !seen.fresh.empty()) {
    std::unordered_map<Number, std::vector<Number>> replaces;
    pair_outputs(*before, seen.form, first_fresh, replaces);
    for (Fresh& fresh : seen.fresh)
      if (const auto found = replaces.find(fresh.number); found != replaces.end())
        fresh.replaces = found->second;
  }
  return seen;
}

void NodeHistory::pair_outputs(const Form& before, const Form& after, Number first_fresh,
                               std::unordered_map<Number, std::vector<Number>>& replaces) const {
  std::vector<std::pair<Number, Number>> pairs, rewritten;
  for (std::size_t i = 0; i < std::min(before.outputs.size(), after.outputs.size()); ++i)
    pairs.emplace_back(before.outputs[i], after.outputs[i]);
  while (!pairs.empty()) {
    const auto [old, now] = pairs.back();
    pairs.pop_back();
    if (now < first_fresh) // it was there before, and so was all behind it
      continue;
    std::vector<Number>& places = replaces[now];
    if (std::find(places.begin(), places.end(), old) != places.end())
      continue;
    places.push_back(old);
    std::vector<Number> were = known_[old].operands, are = known_[now].operands;
    if (known_[old].op != known_[now].op || were.size() != are.size()) {
      rewritten.emplace_back(old, now);
      continue;
    }
    drop_common(were, are);
    for (std::size_t i = 0; i < were.size(); ++i)
      pairs.emplace_back(were[i], are[i]);
  }
  for (const auto& [old, now] : rewritten) {
    std::vector<Number> open = known_[now].operands;
    while (!open.empty()) {
      const Number inner = open.back();
      open.pop_back();
      if (inner < first_fresh || !replaces.try_emplace(inner, std::vector<Number>{old}).second)
        continue;
      open.insert(open.end(), known_[inner].operands.begin(), known_[inner].operands.end());
    }
  }
}

} // namespace egret::compiler

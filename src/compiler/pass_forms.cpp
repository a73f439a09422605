#include "compiler/pass_forms.h"

#include "compiler/inlining.h"
#include "support/fail.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace egret::compiler {

using ir::NodeId;

namespace {

const char* name_of(GroupKind kind) {
  switch (kind) {
  case GroupKind::Map:
    return "map";
  case GroupKind::Reduce:
    return "reduce";
  case GroupKind::Contraction:
    return "contraction";
  case GroupKind::Scan:
    return "scan";
  case GroupKind::Sort:
    return "sort";
  case GroupKind::Scatter:
    return "scatter";
  case GroupKind::Stream:
    return "streaming contraction";
  }
  return "";
}

std::string nodes_text(const std::vector<NodeId>& nodes) {
  return nodes.empty() ? "nothing" : fmt::format("%{}", fmt::join(nodes, " %"));
}

} // namespace

std::string print(const GraphFacts& facts) {
  const ir::Graph& graph = facts.graph();
  std::string text;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (is_movement(graph[id].op))
      text +=
          fmt::format("%{} views %{} by {}\n", id, facts.view(id).base, facts.view(id).map.str());
    else if (const NodeId product = facts.product_of(id); product != ir::kNoNode)
      text += fmt::format("%{} sums the product %{}\n", id, product);
  }
  return text;
}

std::string print(const Partition& partition, const ir::Graph& graph) {
  std::string text;
  for (std::size_t g = 0; g < partition.groups.size(); ++g) {
    const Group& group = partition.groups[g];
    std::string axes;
    for (std::size_t i = 0; i < group.axes.size(); ++i)
      axes += fmt::format("{}{}{}", i > 0 ? ", " : "", group.reduced[i] ? "reduce " : "",
                          group.axes[i].str());
    text += fmt::format("{} {} [{}]:", g, name_of(group.kind), axes);
    for (const Member& m : group.members)
      text += fmt::format(" %{} {}{}", m.node, info_of(graph[m.node].op).name,
                          m.remade ? " (recomputed)" : "");
    text += "\n";
  }
  for (const Unfused& u : partition.unfused)
    text += fmt::format("not fused: %{} -> %{}: {}\n", u.producer, u.consumer, u.why);
  return text;
}

std::string print(const std::vector<BuiltRegion>& regions) {
  std::string text;
  for (std::size_t i = 0; i < regions.size(); ++i)
    text += fmt::format("{} reads {}{}, stores {}\n{}", i, nodes_text(regions[i].operands),
                        regions[i].offsets.empty()
                            ? ""
                            : fmt::format(" at bytes {}", fmt::join(regions[i].offsets, " ")),
                        nodes_text(regions[i].outputs), kernel::print(regions[i].region));
  return text;
}

std::string print(const Proposed& proposed) {
  std::string text;
  for (std::size_t i = 0; i < proposed.entries.size(); ++i) {
    const kernel::KernelEntry& entry = proposed.entries[i];
    text += fmt::format("{} {} | {}\n{}", i, entry.region.name, kernel::to_string(entry.schedule),
                        kernel::print(entry.program));
  }
  return text + fmt::format("kernels of the regions: {}\n", fmt::join(proposed.entry_of, " "));
}

std::string print(const GeneratedCode& code, const kernel::Plan& plan,
                  const std::vector<Chain>& chains) {
  std::string text;
  for (std::size_t k = 0; k < code.artifacts.size(); ++k)
    text += code.artifacts[k]          ? code.artifacts[k]->code(plan.kernels[k].program)
            : code.refused.contains(k) ? "refused\n"
                                       : "launched in chains only\n";
  for (std::size_t k = 0; k < code.chains.size(); ++k)
    text += code.chains[k] ? code.chains[k]->code(chains[k].program) : "refused\n";
  return text;
}

void verify(const GraphFacts& facts, const Partition& partition) {
  const ir::Graph& graph = facts.graph();
  ensure(partition.stored.size() == graph.size(), "partition: {} nodes are decided, of {}",
         partition.stored.size(), graph.size());
  std::vector<int> group_of(graph.size(), -1);
  std::vector<bool> recomputed(graph.size(), false);
  for (std::size_t g = 0; g < partition.groups.size(); ++g)
    for (const Member& m : partition.groups[g].members) {
      if (m.remade) {
        recomputed[m.node] = true;
        continue;
      }
      ensure(partition.stored[m.node], "partition: group {} computes %{}, which is not stored", g,
             m.node);
      ensure(group_of[m.node] < 0, "partition: groups {} and {} both compute %{}", group_of[m.node],
             g, m.node);
      group_of[m.node] = static_cast<int>(g);
    }
  for (NodeId id = 0; id < graph.size(); ++id)
    ensure(!partition.stored[id] || graph[id].op == Op::Input ||
               recomputed[id] != (group_of[id] >= 0),
           "partition: %{} is stored and {}", id,
           recomputed[id] ? "recomputed as well" : "no group computes it");
  for (std::size_t g = 0; g < partition.groups.size(); ++g)
    for (const Member& m : partition.groups[g].members)
      for (const Read& read : reads_of(facts, partition.stored, m.node))
        ensure(group_of[read.base] <= static_cast<int>(g),
               "partition: group {} reads %{}, which the later group {} computes", g, read.base,
               group_of[read.base]);
}

void verify(const std::vector<BuiltRegion>& regions, const ir::Graph& graph) {
  for (const BuiltRegion& built : regions) {
    kernel::verify(built.region);
    ensure(built.operands.size() == built.region.operands.size() &&
               built.outputs.size() == built.region.outputs.size(),
           "regions: {} has {} operands and {} outputs of the graph, and {} and {} of its own",
           built.region.name, built.operands.size(), built.outputs.size(),
           built.region.operands.size(), built.region.outputs.size());
    ensure(built.offsets.empty() || built.offsets.size() == built.operands.size(),
           "regions: {} has {} operands and {} offsets", built.region.name, built.operands.size(),
           built.offsets.size());
    for (const NodeId id : built.operands)
      ensure(std::find(built.outputs.begin(), built.outputs.end(), id) == built.outputs.end(),
             "regions: {} reads %{}, which it computes", built.region.name, id);
    for (const std::vector<NodeId>& nodes : {built.operands, built.outputs})
      for (const NodeId id : nodes)
        ensure(id < graph.size(), "regions: {} names %{}, of {} nodes", built.region.name, id,
               graph.size());
  }
}

void verify(const Proposed& proposed, const std::vector<BuiltRegion>& regions) {
  ensure(proposed.entry_of.size() == regions.size(), "schedules: {} regions have one, of {}",
         proposed.entry_of.size(), regions.size());
  for (const int entry : proposed.entry_of)
    ensure(entry >= 0 && static_cast<std::size_t>(entry) < proposed.entries.size(),
           "schedules: there is no kernel {}", entry);
  for (const kernel::KernelEntry& entry : proposed.entries)
    kernel::verify(entry.program);
}

} // namespace egret::compiler

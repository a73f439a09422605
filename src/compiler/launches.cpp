#include "compiler/launches.h"

#include "compiler/prepare_outputs.h"
#include "compiler/reaches.h"
#include "kernel/label_terms.h"
#include "support/fail.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

namespace egret::compiler {

using ir::NodeId;

namespace {

/// The node's place in a list of operands or outputs; -1: it is not there.
int number_in(const std::vector<NodeId>& list, NodeId node) {
  auto it = std::find(list.begin(), list.end(), node);
  return it == list.end() ? -1 : static_cast<int>(it - list.begin());
}

/// Operands of which a kernel may read the one term of a sum where that lies.
std::set<int> read_at_labels(const kernel::Region& region) {
  std::set<int> operands;
  const kernel::Region picked = kernel::with_label_gathers(region);
  for (const kernel::Stage& stage : picked.stages)
    for (const kernel::Load& load : stage.loads)
      if (load.source == kernel::Source::Operand && !load.indirect.empty())
        operands.insert(load.number);
  return operands;
}

/// Does the kernel stay right when its output `fresh` overwrites `old`, which it may read?
/// `at_labels`: read_at_labels() of its region.
bool writes_over(const BuiltRegion& built, NodeId fresh, NodeId old,
                 const std::function<const std::set<int>&()>& at_labels) {
  const int operand = number_in(built.operands, old), output = number_in(built.outputs, fresh);
  const kernel::Region& region = built.region;
  if (operand < 0)
    return true;
  if (offset_of(built, static_cast<std::size_t>(operand)) != 0) // it reads other elements
    return false;
  if (region.outputs[output].alias == operand)
    return kernel::may_alias(region, output, operand, true);
  if (region.outputs[output].combine != kernel::Combine::Store)
    return false;
  // It may not read the one term of a sum where that lies, when the row has been stored.
  return kernel::may_alias(region, output, operand) && !at_labels().contains(operand);
}

/// Whether the kernel's output `fresh` is `data` updated by a scatter.
bool updates(const BuiltRegion& built, NodeId fresh, NodeId data) {
  const kernel::Output& out =
      built.region.outputs[static_cast<std::size_t>(number_in(built.outputs, fresh))];
  return out.combine != kernel::Combine::Store && out.alias == number_in(built.operands, data);
}

class Linker {
public:
  Linker(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
         const std::vector<OutputSpec>& specs)
      : graph_(graph), kernels_(kernels), specs_(specs) {}

  Launches run(const std::vector<kernel::KernelEntry>& entries,
               const std::vector<double>& seconds) {
    find_writers();
    overwrite_inputs();
    number_values();
    for (std::size_t k = 0; k < kernels_.size(); ++k)
      add_launch(k, entries[static_cast<std::size_t>(kernels_[k].entry)].program,
                 seconds[static_cast<std::size_t>(kernels_[k].entry)]);
    for (const Launches::Copy& copy : result_.copies) {
      LaunchGraph::Launch launch;
      launch.reads = {result_.value_of.at(copy.from)};
      launch.again = false;
      const auto& readers = readers_[*state_of(copy.output)];
      launch.after.assign(readers.begin(), readers.end());
      result_.graph.launches.push_back(std::move(launch));
    }
    return std::move(result_);
  }

private:
  /// The graph input that an output replaces, if any.
  std::optional<NodeId> state_of(int output) const {
    const std::int64_t slot = specs_.empty() ? -1 : specs_[output].state_input;
    return slot < 0 ? std::nullopt : std::optional(graph_.inputs()[slot]);
  }
  /// The graph input that an output replaces, or may be written over, if any.
  std::optional<NodeId> overwritten_by(int output) const {
    const std::int64_t slot = specs_.empty() ? -1 : specs_[output].overwritten();
    return slot < 0 ? std::nullopt : std::optional(graph_.inputs()[slot]);
  }

  void find_writers() {
    next_.resize(kernels_.size());
    after_.resize(kernels_.size());
    for (std::size_t k = 0; k < kernels_.size(); ++k)
      for (NodeId node : kernels_[k].built.outputs)
        writer_[node] = static_cast<int>(k);
    for (std::size_t k = 0; k < kernels_.size(); ++k)
      for (NodeId base : kernels_[k].built.operands) {
        readers_[base].insert(static_cast<int>(k));
        if (auto w = writer_.find(base); w != writer_.end() && w->second != static_cast<int>(k))
          next_[w->second].insert(static_cast<int>(k));
      }
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o)
      result_.output_of[same_memory(graph_, graph_.outputs[o])] = static_cast<int>(o);
  }

  /// An input is overwritten when everything else that reads it can run before; else a state is
  /// copied back afterwards.
  void overwrite_inputs() {
    for (int o = 0; o < static_cast<int>(graph_.outputs.size()); ++o) {
      if (!overwritten_by(o))
        continue;
      const NodeId old = *overwritten_by(o);
      const NodeId fresh = same_memory(graph_, graph_.outputs[o]);
      const int w = writer_.at(fresh);
      const auto& readers = readers_[old];
      // An output that only may lie over an input gets a copy of it as a scatter's data.
      const bool copied = !state_of(o) && updates(kernels_[w].built, fresh, old);
      const bool fits = !copied && writes_over(w, fresh, old) &&
                        std::all_of(readers.begin(), readers.end(),
                                    [&](int r) { return r == w || !reaches(next_, w, r); });
      if (!fits) {
        if (state_of(o))
          result_.copies.push_back({fresh, o});
        continue;
      }
      result_.in_place.insert(o);
      for (int r : readers)
        if (r != w) {
          next_[r].insert(w);
          after_[w].insert(r);
        }
    }
  }

  void number_values() {
    for (std::size_t k = 0; k < kernels_.size(); ++k)
      for (NodeId node : kernels_[k].built.outputs) {
        const auto output = result_.output_of.find(node);
        const bool in_arena = output == result_.output_of.end() ||
                              (state_of(output->second) && !result_.in_place.count(output->second));
        result_.value_of[node] = static_cast<int>(result_.graph.values.size());
        result_.graph.values.push_back(
            {in_arena ? rounded(bytes_of(graph_[node]).upper()) : 0, static_cast<int>(k)});
      }
  }

  void add_launch(std::size_t k, const kernel::KernelProgram& program, double seconds) {
    const BuiltRegion& built = kernels_[k].built;
    LaunchGraph::Launch launch;
    launch.seconds = seconds;
    launch.after.assign(after_[k].begin(), after_[k].end());
    for (NodeId base : built.operands)
      if (auto v = result_.value_of.find(base); v != result_.value_of.end()) {
        const bool own = result_.graph.values[v->second].writer == static_cast<int>(k);
        if (!own && number_of(launch.reads, v->second) < 0)
          launch.reads.push_back(v->second);
      }
    for (NodeId node : built.outputs) {
      const auto output = result_.output_of.find(node);
      launch.again = launch.again &&
                     (output == result_.output_of.end() || !result_.in_place.count(output->second));
      launch.writes.push_back(result_.value_of.at(node));
      add_takes(static_cast<int>(k), node, launch);
    }
    for (const kernel::Buffer& buffer : program.buffers)
      if (buffer.space == kernel::Space::Workspace)
        launch.workspaces.push_back(rounded(bytes_of(workspace_node(buffer)).upper()));
    result_.graph.launches.push_back(std::move(launch));
  }

  static int number_of(const std::vector<int>& list, int value) {
    auto it = std::find(list.begin(), list.end(), value);
    return it == list.end() ? -1 : static_cast<int>(it - list.begin());
  }

  bool writes_over(int kernel, NodeId fresh, NodeId old) {
    const BuiltRegion& built = kernels_[std::size_t(kernel)].built;
    return compiler::writes_over(built, fresh, old, [&]() -> const std::set<int>& {
      const auto [known, is_new] = at_labels_.try_emplace(kernel);
      if (is_new)
        known->second = read_at_labels(built.region);
      return known->second;
    });
  }

  /// Which operands' memory output `node` may take over.
  void add_takes(int kernel, NodeId node, LaunchGraph::Launch& launch) {
    if (result_.graph.values[launch.writes.back()].bytes == 0)
      return;
    for (NodeId base : kernels_[std::size_t(kernel)].built.operands) {
      const auto v = result_.value_of.find(base);
      if (v == result_.value_of.end() || result_.graph.values[v->second].bytes == 0 ||
          !(bytes_of(graph_[base]) == bytes_of(graph_[node])) ||
          number_of(launch.reads, v->second) < 0 || !writes_over(kernel, node, base))
        continue;
      launch.may_take.emplace_back(static_cast<int>(launch.writes.size()) - 1, v->second);
    }
  }

  const ir::Graph& graph_;
  const std::vector<PlannedKernel>& kernels_;
  const std::vector<OutputSpec>& specs_;
  Launches result_;
  std::map<NodeId, int> writer_;
  std::map<int, std::set<int>> at_labels_; ///< by kernel: read_at_labels() where it was asked for
  std::map<NodeId, std::set<int>> readers_;
  std::vector<std::set<int>> next_;
  std::vector<std::set<int>> after_; ///< by kernel: LaunchGraph::Launch::after
};

} // namespace

Expr bytes_of(const ir::Node& node) {
  const Expr bytes =
      element_count(node.shape) * Expr(static_cast<std::int64_t>(size_of(node.dtype)));
  if (bytes.upper() == INT64_MAX)
    fail(ErrorKind::Unsupported,
         "compile: a value of shape {} has no largest size; give its symbolic dims an upper bound",
         to_string(node.shape));
  return bytes;
}

ir::Node workspace_node(const kernel::Buffer& buffer) {
  ir::Node node{};
  node.dtype = buffer.dtype;
  node.shape = {buffer.elements};
  return node;
}

void declare_overwritten_inputs(const ir::Graph& graph, std::vector<BuiltRegion>& regions,
                                const std::vector<OutputSpec>& outputs) {
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].overwritten() < 0)
      continue;
    const NodeId old = graph.inputs()[outputs[o].overwritten()],
                 fresh = same_memory(graph, graph.outputs[o]);
    for (BuiltRegion& built : regions) {
      const int operand = number_in(built.operands, old), output = number_in(built.outputs, fresh);
      if (operand >= 0 && output >= 0 && built.region.outputs[output].alias < 0 &&
          kernel::may_alias(built.region, output, operand, true))
        built.region.outputs[output].alias = operand;
    }
  }
}

Launches link(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
              const std::vector<kernel::KernelEntry>& entries,
              const std::vector<OutputSpec>& outputs, const std::vector<double>& seconds) {
  return Linker(graph, kernels, outputs).run(entries, seconds);
}

} // namespace egret::compiler

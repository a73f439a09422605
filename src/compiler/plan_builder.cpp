#include "compiler/plan_builder.h"

#include "compiler/prepare.h"
#include "support/fail.h"

#include <algorithm>
#include <map>
#include <set>

namespace egret::compiler {

using ir::NodeId;
using kernel::Plan;
using kernel::Slot;
using kernel::SlotKind;
using kernel::Step;
using kernel::StepKind;

namespace {

Expr bytes_of(const ir::Node& node) {
  const Expr bytes =
      element_count(node.shape) * Expr(static_cast<std::int64_t>(size_of(node.dtype)));
  if (bytes.upper() == INT64_MAX)
    fail(ErrorKind::Unsupported,
         "compile: a value of shape {} has no largest size; give its symbolic dims an upper bound",
         to_string(node.shape));
  return bytes;
}

Step copy_step(int from, int to) {
  Step step;
  step.kind = StepKind::Copy;
  step.slots = {from, to};
  return step;
}

/// The node's place in a list of operands or outputs; -1: it is not there.
int number_in(const std::vector<NodeId>& list, NodeId node) {
  auto it = std::find(list.begin(), list.end(), node);
  return it == list.end() ? -1 : static_cast<int>(it - list.begin());
}

class PlanBuilder {
public:
  PlanBuilder(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
              std::vector<kernel::KernelEntry> entries, const std::vector<OutputSpec>& outputs)
      : graph_(graph), kernels_(kernels), specs_(outputs) {
    plan_.kernels = std::move(entries);
  }

  Plan run(std::vector<int>& order) {
    find_writers();
    link_kernels();
    order_kernels();
    make_input_slots();
    for (int k : order_)
      launch(k);
    copy_back_states();
    make_dims();
    close_lives();
    place_slots(plan_, same_as_);
    order = std::move(order_);
    return std::move(plan_);
  }

private:
  void find_writers() {
    for (std::size_t k = 0; k < kernels_.size(); ++k)
      for (NodeId node : kernels_[k].built.outputs)
        writer_[node] = static_cast<int>(k);
    for (std::size_t k = 0; k < kernels_.size(); ++k)
      for (NodeId base : kernels_[k].built.operands)
        readers_[base].insert(static_cast<int>(k));
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o)
      output_of_[same_memory(graph_, graph_.outputs[o])] = static_cast<int>(o);
  }

  void link_kernels() {
    next_.resize(kernels_.size());
    for (std::size_t k = 0; k < kernels_.size(); ++k)
      for (NodeId base : kernels_[k].built.operands)
        if (auto w = writer_.find(base); w != writer_.end() && w->second != static_cast<int>(k))
          next_[w->second].insert(static_cast<int>(k));
    // A state is replaced in place when everything else that reads the old value can run before;
    // else it is copied back at the end.
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o) {
      const std::int64_t slot = state_of(static_cast<int>(o));
      if (slot < 0)
        continue;
      const NodeId old = graph_.inputs()[slot], fresh = same_memory(graph_, graph_.outputs[o]);
      const int w = writer_.at(fresh);
      bool fits = writes_over(w, fresh, old);
      for (int r : readers_[old])
        fits = fits && (r == w || !reaches(w, r));
      if (!fits)
        continue;
      in_place_.insert(static_cast<int>(o));
      for (int r : readers_[old])
        if (r != w)
          next_[r].insert(w);
    }
  }

  std::int64_t state_of(int output) const {
    return specs_.empty() ? -1 : specs_[output].state_input;
  }

  /// Does kernel k stay right when output `fresh` overwrites `old`, which it may read?
  bool writes_over(int k, NodeId fresh, NodeId old) const {
    const BuiltRegion& built = kernels_[k].built;
    const int operand = number_in(built.operands, old), output = number_in(built.outputs, fresh);
    const kernel::Region& region = built.region;
    if (operand < 0)
      return true;
    if (region.outputs[output].alias == operand)
      return kernel::may_alias(region, output, operand);
    if (region.outputs[output].combine != kernel::Combine::Store)
      return false;
    // Of what was not declared, a generator may compute a stage anew inside a later one, so what a
    // later stage depends on must not be overwritten.
    std::vector<bool> depends(region.stages.size(), false);
    for (std::size_t s = 0; s < region.stages.size(); ++s) {
      for (const kernel::Load& load : region.stages[s].loads)
        depends[s] = depends[s] || (load.source == kernel::Source::Operand ? load.number == operand
                                                                           : depends[load.number]);
      if (depends[s] && static_cast<int>(s) > region.outputs[output].stage)
        return false;
    }
    return kernel::may_alias(region, output, operand);
  }

  bool reaches(int from, int to) const {
    std::set<int> seen{from};
    std::vector<int> work{from};
    while (!work.empty()) {
      const int k = work.back();
      work.pop_back();
      if (k == to)
        return true;
      for (int n : next_[k])
        if (seen.insert(n).second)
          work.push_back(n);
    }
    return false;
  }

  /// Among the kernels that can run, the one that leaves the least memory alive; ties go by the
  /// graph's order.
  void order_kernels() {
    std::vector<int> waiting(kernels_.size(), 0);
    for (const auto& targets : next_)
      for (int n : targets)
        ++waiting[n];
    std::map<NodeId, int> readers_left;
    for (const auto& [base, readers] : readers_)
      readers_left[base] = static_cast<int>(readers.size());
    std::vector<int> ready;
    for (std::size_t k = 0; k < kernels_.size(); ++k)
      if (waiting[k] == 0)
        ready.push_back(static_cast<int>(k));
    auto growth = [&](int k) {
      double bytes = 0;
      for (NodeId node : kernels_[k].built.outputs)
        if (!output_of_.count(node))
          bytes +=
              elements_of(graph_[node].shape) * static_cast<double>(size_of(graph_[node].dtype));
      for (NodeId base : kernels_[k].built.operands)
        if (graph_[base].op != Op::Input && !output_of_.count(base) && readers_left[base] == 1)
          bytes -=
              elements_of(graph_[base].shape) * static_cast<double>(size_of(graph_[base].dtype));
      return bytes;
    };
    while (!ready.empty()) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < ready.size(); ++i) {
        const double a = growth(ready[i]), b = growth(ready[best]);
        if (a < b || (a == b && ready[i] < ready[best]))
          best = i;
      }
      const int k = ready[best];
      ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(best));
      order_.push_back(k);
      for (NodeId base : kernels_[k].built.operands)
        --readers_left[base];
      for (int n : next_[k])
        if (--waiting[n] == 0)
          ready.push_back(n);
    }
    ensure(order_.size() == kernels_.size(), "plan: kernels wait for each other in a cycle");
  }

  int add_slot(SlotKind kind, const ir::Node& node, std::int64_t number = -1,
               std::int64_t input = -1) {
    Slot slot;
    slot.kind = kind;
    slot.dtype = node.dtype;
    slot.shape = node.shape;
    slot.bytes = bytes_of(node);
    slot.number = number;
    slot.input = input;
    slot.first_step = static_cast<int>(plan_.steps.size());
    slot.last_step = slot.first_step;
    plan_.slots.push_back(std::move(slot));
    same_as_.push_back(-1);
    return static_cast<int>(plan_.slots.size()) - 1;
  }

  void make_input_slots() {
    plan_.output_slots.assign(graph_.outputs.size(), -1);
    for (std::size_t i = 0; i < graph_.inputs().size(); ++i) {
      const NodeId id = graph_.inputs()[i];
      int slot = -1;
      if (!graph_[id].attrs.by_value)
        slot = slot_of_[id] = add_slot(SlotKind::Input, graph_[id], static_cast<std::int64_t>(i));
      plan_.input_slots.push_back(slot);
    }
    for (std::size_t o = 0; o < graph_.outputs.size(); ++o)
      if (const std::int64_t s = state_of(static_cast<int>(o)); s >= 0) {
        Slot& slot = plan_.slots[slot_of_.at(graph_.inputs()[s])];
        slot.kind = SlotKind::State;
        slot.number = static_cast<std::int64_t>(o);
        slot.input = s;
        plan_.output_slots[o] = slot_of_.at(graph_.inputs()[s]);
      }
  }

  int slot_for_output(int k, NodeId node) {
    if (auto o = output_of_.find(node); o != output_of_.end()) {
      const int number = o->second;
      if (in_place_.count(number))
        return slot_of_[node] = plan_.output_slots[number];
      if (state_of(number) < 0) {
        const int slot = add_slot(SlotKind::Output, graph_[node], number);
        plan_.slots[slot].shape = graph_[graph_.outputs[number]].shape;
        return plan_.output_slots[number] = slot_of_[node] = slot;
      }
      const int slot = add_slot(SlotKind::Arena, graph_[node]);
      copies_.push_back({slot, plan_.output_slots[number]});
      return slot_of_[node] = slot;
    }
    const int slot = add_slot(SlotKind::Arena, graph_[node]);
    take_over(k, node, slot);
    return slot_of_[node] = slot;
  }

  /// Puts the new slot where an operand is that nobody reads after this kernel.
  void take_over(int k, NodeId node, int slot) {
    for (NodeId base : kernels_[k].built.operands) {
      auto from = slot_of_.find(base);
      if (from == slot_of_.end() || plan_.slots[from->second].kind != SlotKind::Arena ||
          given_away_.count(from->second) ||
          !(plan_.slots[from->second].bytes == plan_.slots[slot].bytes) || left_[base] > 1 ||
          must_survive(from->second) || !writes_over(k, node, base))
        continue;
      same_as_[slot] = from->second;
      given_away_.insert(from->second);
      return;
    }
  }

  bool must_survive(int slot) const {
    return std::any_of(copies_.begin(), copies_.end(),
                       [&](const auto& c) { return c.first == slot; });
  }

  void launch(int k) {
    const BuiltRegion& built = kernels_[k].built;
    if (left_.empty())
      for (const auto& [base, readers] : readers_)
        left_[base] = static_cast<int>(readers.size());
    std::vector<int> outputs;
    for (std::size_t o = 0; o < built.outputs.size(); ++o) {
      const kernel::Output& out = built.region.outputs[o];
      const int slot = slot_for_output(k, built.outputs[o]);
      outputs.push_back(slot);
      if (out.combine == kernel::Combine::Store)
        continue;
      const int data = slot_of_.at(built.operands[out.alias]);
      if (same_as_[slot] != data && slot != data) {
        plan_.slots[slot].first_step = static_cast<int>(plan_.steps.size());
        plan_.steps.push_back(copy_step(data, slot));
      }
    }
    Step step;
    step.kernel = kernels_[k].entry;
    step.nodes = built.region.nodes;
    const kernel::KernelProgram& program = plan_.kernels[step.kernel].program;
    for (std::size_t i = 0; i < built.operands.size(); ++i) {
      if (built.region.operands[i].role == kernel::Role::Scalar)
        step.scalars.push_back(static_cast<int>(graph_[built.operands[i]].attrs.slot));
      else
        step.slots.push_back(slot_of_.at(built.operands[i]));
    }
    step.slots.insert(step.slots.end(), outputs.begin(), outputs.end());
    for (const kernel::Buffer& buffer : program.buffers)
      if (buffer.space == kernel::Space::Workspace)
        step.slots.push_back(workspace(buffer));
    plan_.steps.push_back(std::move(step));
    for (NodeId base : built.operands)
      --left_[base];
  }

  int workspace(const kernel::Buffer& buffer) {
    ir::Node node{};
    node.dtype = buffer.dtype;
    node.shape = {buffer.elements};
    return add_slot(SlotKind::Arena, node);
  }

  void copy_back_states() {
    for (const auto& [from, to] : copies_)
      plan_.steps.push_back(copy_step(from, to));
  }

  void make_dims() {
    auto add = [&](const Expr& e) {
      for (const Expr& v : variables_of(e))
        if (v.is_symbol() && std::find(plan_.dims.begin(), plan_.dims.end(), v) == plan_.dims.end())
          plan_.dims.push_back(v);
    };
    for (NodeId id : graph_.inputs())
      for (const Expr& d : graph_[id].shape)
        add(d);
    for (Step& step : plan_.steps)
      if (step.kind == StepKind::Launch)
        for (const Expr& d : plan_.kernels[step.kernel].program.dims) {
          auto it = std::find(plan_.dims.begin(), plan_.dims.end(), d);
          ensure(it != plan_.dims.end(), "plan: no input has the symbolic dim {}", d.str());
          step.dims.push_back(static_cast<int>(it - plan_.dims.begin()));
        }
  }

  void close_lives() {
    for (std::size_t i = 0; i < plan_.steps.size(); ++i)
      for (int s : plan_.steps[i].slots) {
        Slot& slot = plan_.slots[s];
        slot.last_step = std::max(slot.last_step, static_cast<int>(i));
      }
    const int last = std::max(0, static_cast<int>(plan_.steps.size()) - 1);
    for (Slot& slot : plan_.slots)
      if (slot.kind != SlotKind::Arena) {
        slot.first_step = 0;
        slot.last_step = last;
      }
  }

  const ir::Graph& graph_;
  const std::vector<PlannedKernel>& kernels_;
  const std::vector<OutputSpec>& specs_;
  Plan plan_;
  std::map<NodeId, int> writer_;
  std::map<NodeId, std::set<int>> readers_;
  std::map<NodeId, int> output_of_; ///< graph output that a stored node is
  std::vector<std::set<int>> next_;
  std::set<int> in_place_;
  std::vector<int> order_;
  std::map<NodeId, int> slot_of_, left_;
  std::vector<int> same_as_;
  std::set<int> given_away_;
  std::vector<std::pair<int, int>> copies_;
};

} // namespace

void declare_states_in_place(const ir::Graph& graph, std::vector<BuiltRegion>& regions,
                             const std::vector<OutputSpec>& outputs) {
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o].state_input < 0)
      continue;
    const NodeId old = graph.inputs()[outputs[o].state_input],
                 fresh = same_memory(graph, graph.outputs[o]);
    for (BuiltRegion& built : regions) {
      const int operand = number_in(built.operands, old), output = number_in(built.outputs, fresh);
      if (operand >= 0 && output >= 0 && built.region.outputs[output].alias < 0 &&
          kernel::may_alias(built.region, output, operand))
        built.region.outputs[output].alias = operand;
    }
  }
}

Plan build_plan(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
                std::vector<kernel::KernelEntry> entries, const std::vector<OutputSpec>& outputs,
                std::vector<int>& order) {
  ensure(outputs.empty() || outputs.size() == graph.outputs.size(),
         "plan: {} output specs for {} outputs", outputs.size(), graph.outputs.size());
  return PlanBuilder(graph, kernels, std::move(entries), outputs).run(order);
}

} // namespace egret::compiler

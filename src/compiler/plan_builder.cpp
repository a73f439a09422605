#include "compiler/plan_builder.h"

#include "compiler/launches.h"
#include "compiler/recompute.h"
#include "support/fail.h"

#include <algorithm>
#include <map>

namespace egret::compiler {

using ir::NodeId;
using kernel::Plan;
using kernel::Slot;
using kernel::SlotKind;
using kernel::Step;
using kernel::StepKind;

namespace {

Step copy_step(int from, int to) {
  Step step;
  step.kind = StepKind::Copy;
  step.slots = {from, to};
  return step;
}

class PlanBuilder {
public:
  PlanBuilder(const ir::Graph& graph, const std::vector<PlannedKernel>& kernels,
              std::vector<kernel::KernelEntry> entries, const std::vector<OutputSpec>& outputs,
              const Launches& launches, const Scheduled& scheduled)
      : graph_(graph), kernels_(kernels), specs_(outputs), launches_(launches),
        scheduled_(scheduled), lives_(scheduled.lives),
        slot_of_version_(lives_.versions.size(), -1) {
    plan_.kernels = std::move(entries);
  }

  Plan run() {
    make_input_slots();
    for (at_ = 0; at_ < scheduled_.sequence.size(); ++at_) {
      const auto k = static_cast<std::size_t>(scheduled_.sequence[at_]);
      if (k < kernels_.size())
        launch(static_cast<int>(k));
      else
        copy_back(launches_.copies[k - kernels_.size()]);
    }
    make_dims();
    close_lives();
    plan_.arena_bytes = Expr(scheduled_.arena);
    plan_.liveness_bound_bytes = Expr(lives_.peak);
    return std::move(plan_);
  }

private:
  std::int64_t state_of(int output) const {
    return specs_.empty() ? -1 : specs_[output].state_input;
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
    return static_cast<int>(plan_.slots.size()) - 1;
  }

  int add_arena_slot(const ir::Node& node, int block) {
    const int slot = add_slot(SlotKind::Arena, node);
    plan_.slots[slot].offset = Expr(lives_.blocks[block].offset);
    return slot;
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

  /// Of the o-th output of the launch at hand.
  int slot_for_output(std::size_t o, NodeId node) {
    const int version = lives_.writes[at_][o];
    if (const int block = lives_.versions[version].block; block >= 0)
      return slot_of_version_[version] = add_arena_slot(graph_[node], block);
    if (auto made = slot_of_.find(node); made != slot_of_.end()) // by a launch before
      return made->second;
    const int number = launches_.output_of.at(node);
    const bool in_place = launches_.in_place.count(number) > 0;
    if (in_place && state_of(number) >= 0)
      return slot_of_[node] = plan_.output_slots[number];
    const int slot = add_slot(SlotKind::Output, graph_[node], number,
                              in_place ? specs_[static_cast<std::size_t>(number)].over_input : -1);
    plan_.slots[slot].shape = graph_[graph_.outputs[number]].shape;
    return plan_.output_slots[number] = slot_of_[node] = slot;
  }

  int slot_of_value(int k, NodeId base) const {
    const auto value = launches_.value_of.find(base);
    if (value == launches_.value_of.end())
      return slot_of_.at(base);
    const auto& launch = launches_.graph.launches[static_cast<std::size_t>(k)];
    const bool own = launches_.graph.values[value->second].writer == k;
    const auto& values = own ? launch.writes : launch.reads;
    const auto& versions = own ? lives_.writes[at_] : lives_.reads[at_];
    const auto place = std::find(values.begin(), values.end(), value->second) - values.begin();
    const int version = versions[static_cast<std::size_t>(place)];
    return slot_of_version_[version] >= 0 ? slot_of_version_[version] : slot_of_.at(base);
  }

  void launch(int k) {
    const BuiltRegion& built = kernels_[k].built;
    std::vector<int> outputs, begin_here; // the latter: slots that no copy writes before the launch
    for (std::size_t o = 0; o < built.outputs.size(); ++o) {
      const kernel::Output& out = built.region.outputs[o];
      const std::size_t known = plan_.slots.size();
      const int slot = slot_for_output(o, built.outputs[o]);
      outputs.push_back(slot);
      if (plan_.slots.size() > known)
        begin_here.push_back(slot);
      const kernel::KernelEntry& entry = plan_.kernels[static_cast<std::size_t>(kernels_[k].entry)];
      if (!kernel::updates_in_place(built.region, entry.program, o))
        continue;
      const int data = slot_of_value(k, built.operands[out.alias]);
      const int over = lives_.versions[lives_.writes[at_][o]].over;
      if (slot != data && (over < 0 || slot_of_version_[over] != data)) {
        plan_.slots[slot].first_step = static_cast<int>(plan_.steps.size());
        plan_.steps.push_back(copy_step(data, slot));
        std::erase(begin_here, slot);
      }
    }
    for (int slot : begin_here) // behind the copies
      plan_.slots[slot].first_step = static_cast<int>(plan_.steps.size());
    Step step;
    step.kernel = kernels_[k].entry;
    step.nodes = built.region.nodes;
    const kernel::KernelProgram& program = plan_.kernels[step.kernel].program;
    for (std::size_t i = 0; i < built.operands.size(); ++i) {
      if (built.region.operands[i].role == kernel::Role::Scalar)
        step.scalars.push_back(static_cast<int>(graph_[built.operands[i]].attrs.slot));
      else {
        step.slots.push_back(slot_of_value(k, built.operands[i]));
        step.offsets.push_back(offset_of(built, i));
      }
    }
    if (std::all_of(step.offsets.begin(), step.offsets.end(), [](auto o) { return o == 0; }))
      step.offsets.clear();
    step.slots.insert(step.slots.end(), outputs.begin(), outputs.end());
    std::size_t workspace = 0;
    for (const kernel::Buffer& buffer : program.buffers)
      if (buffer.space == kernel::Space::Workspace)
        step.slots.push_back(
            add_arena_slot(workspace_node(buffer), lives_.workspaces[at_][workspace++]));
    plan_.steps.push_back(std::move(step));
  }

  void copy_back(const Launches::Copy& copy) {
    plan_.steps.push_back(
        copy_step(slot_of_version_[lives_.reads[at_][0]], plan_.output_slots[copy.output]));
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
  const Launches& launches_;
  const Scheduled& scheduled_;
  const Lives& lives_;
  Plan plan_;
  std::size_t at_ = 0;            ///< place in the sequence of the launch at hand
  std::map<NodeId, int> slot_of_; ///< of what is not in the arena
  std::vector<int> slot_of_version_;
};

} // namespace

std::variant<BuiltPlan, OverLimit> build_plan(const ir::Graph& graph,
                                              const std::vector<PlannedKernel>& kernels,
                                              std::vector<kernel::KernelEntry> entries,
                                              const std::vector<OutputSpec>& outputs,
                                              const PlanWishes& wishes) {
  ensure(outputs.empty() || outputs.size() == graph.outputs.size(),
         "plan: {} output specs for {} outputs", outputs.size(), graph.outputs.size());
  const Launches launches = link(graph, kernels, entries, outputs, wishes.seconds);
  Scheduled chosen = scheduled(launches.graph);
  BuiltPlan built;
  built.plain_bytes = chosen.arena;
  if (wishes.limit && chosen.arena > *wishes.limit) {
    auto within = scheduled_within(launches.graph, chosen, *wishes.limit);
    if (const auto* over = std::get_if<OverLimit>(&within))
      return *over;
    chosen = std::get<Scheduled>(std::move(within));
  }
  if (!wishes.limit && !wishes.apart.empty()) {
    std::vector<int> places; // by launch: in the sequence, where copies stand too
    for (std::size_t i = 0; i < chosen.sequence.size(); ++i)
      if (static_cast<std::size_t>(chosen.sequence[i]) < kernels.size())
        places.push_back(static_cast<int>(i));
    std::vector<std::pair<int, int>> ranges;
    for (const auto& [first, last] : wishes.apart)
      ranges.emplace_back(places.at(static_cast<std::size_t>(first)),
                          places.at(static_cast<std::size_t>(last)));
    chosen = placed_apart(launches.graph, std::move(chosen.sequence), ranges);
  }
  for (const int k : chosen.sequence)
    if (static_cast<std::size_t>(k) < kernels.size())
      built.order.push_back(k);
  built.plan = PlanBuilder(graph, kernels, std::move(entries), outputs, launches, chosen).run();
  return built;
}

} // namespace egret::compiler

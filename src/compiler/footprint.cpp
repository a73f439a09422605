#include "compiler/footprint.h"

#include "kernel/program_fields.h"

#include <vector>

namespace egret::compiler {
namespace {

/// Of an allocation beside what it holds.
constexpr std::size_t kAllocation = 16;

template <class T>
std::size_t bytes_of(const std::vector<T>& list) {
  return list.capacity() > 0 ? list.capacity() * sizeof(T) + kAllocation : 0;
}

std::size_t bytes_of(const std::string& text) {
  return text.capacity() > 15 ? text.capacity() + kAllocation : 0; // shorter ones lie inside
}

std::size_t bytes_of(const IndexMap& map) {
  std::size_t bytes = bytes_of(map.dims) + bytes_of(map.coords) + bytes_of(map.holes);
  for (const Hole& hole : map.holes)
    bytes += bytes_of(hole.valid);
  return bytes;
}

std::size_t bytes_of(const ir::Graph& graph) {
  constexpr std::size_t kIndexed = 48; // in the table of nodes by hash
  std::size_t bytes = 0;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    bytes += 2 * sizeof(ir::Node) + kIndexed + bytes_of(node.shape) + bytes_of(node.inputs) +
             bytes_of(node.attrs.name) + bytes_of(node.attrs.shape) + bytes_of(node.attrs.axes) +
             bytes_of(node.attrs.before) + bytes_of(node.attrs.after);
  }
  return bytes;
}

std::size_t bytes_of(const kernel::Region& region) {
  std::size_t bytes = bytes_of(region.name) + bytes_of(region.axes) + bytes_of(region.operands) +
                      bytes_of(region.stages) + bytes_of(region.outputs) + bytes_of(region.nodes);
  for (const kernel::Operand& operand : region.operands)
    bytes += bytes_of(operand.shape) + bytes_of(operand.layout) + bytes_of(operand.name);
  for (const kernel::Stage& stage : region.stages) {
    bytes += bytes_of(stage.axes) + bytes_of(stage.over) + bytes_of(stage.loads) +
             bytes_of(stage.body) + bytes_of(stage.yields) + bytes_of(stage.yield_dtypes);
    for (const kernel::Load& load : stage.loads)
      bytes += bytes_of(load.map) + bytes_of(load.indirect);
    for (const kernel::BodyValue& value : stage.body)
      bytes += bytes_of(value.args);
  }
  for (const kernel::Output& output : region.outputs)
    bytes += bytes_of(output.shape) + bytes_of(output.layout) + bytes_of(output.map);
  return bytes;
}

/// Sums what the lists inside of a block take.
class ListBytes : public kernel::FieldVisitor<ListBytes> {
public:
  template <class T>
  void operator()(T& field) {
    if constexpr (requires { field.capacity(); })
      bytes += bytes_of(field);
    FieldVisitor::operator()(field);
  }
  void visit(const Expr&) {} // its terms are shared
  void ids(kernel::IdKind, std::vector<int>& list) { bytes += bytes_of(list); }

  std::size_t bytes = 0;
};

std::size_t bytes_of(const kernel::Block& block) {
  ListBytes lists;
  lists(const_cast<kernel::Block&>(block)); // it changes nothing
  return lists.bytes;
}

std::size_t bytes_of(const kernel::KernelProgram& program) {
  ListBytes lists;
  for (const kernel::ProblemGroup& group : program.groups)
    members(lists, const_cast<kernel::ProblemGroup&>(group)); // it changes nothing
  return bytes_of(program.buffers) + bytes_of(program.variables) + bytes_of(program.values) +
         bytes_of(program.groups) + lists.bytes + bytes_of(program.body);
}

} // namespace

std::size_t footprint(const Compiled& compiled) {
  constexpr std::size_t kKnob = 96; // of a schedule, in a tree
  std::size_t bytes = sizeof(Compiled) + bytes_of(compiled.report.graph);
  for (const kernel::KernelEntry& entry : compiled.plan.kernels)
    bytes += sizeof(entry) + bytes_of(entry.region) + bytes_of(entry.program) +
             kKnob * entry.schedule.knobs.size() + bytes_of(entry.schedule.tree);
  for (const auto* artifacts : {&compiled.artifacts, &compiled.chain_artifacts})
    for (const auto& artifact : *artifacts)
      bytes += artifact ? artifact->bytes() : 0;
  for (const Chain& chain : compiled.chains)
    bytes += sizeof(chain) + bytes_of(chain.program) + bytes_of(chain.launch.slots) +
             bytes_of(chain.launch.offsets);
  for (const kernel::Slot& slot : compiled.plan.slots)
    bytes += sizeof(slot) + bytes_of(slot.shape);
  for (const kernel::Step& step : compiled.plan.steps)
    bytes += sizeof(step) + bytes_of(step.slots) + bytes_of(step.offsets) + bytes_of(step.nodes) +
             bytes_of(step.scalars);
  for (const LaunchValues& launch : compiled.launches)
    bytes += sizeof(launch) + bytes_of(launch.operands) + bytes_of(launch.outputs);
  for (const KernelReport& kernel : compiled.report.kernels) {
    bytes += sizeof(kernel) + bytes_of(kernel.name) + bytes_of(kernel.schedule) +
             bytes_of(kernel.nodes) + bytes_of(kernel.ops);
  }
  for (const Unfused& pair : compiled.report.unfused)
    bytes += sizeof(pair) + bytes_of(pair.why);
  return bytes;
}

} // namespace egret::compiler

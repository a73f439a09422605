#include "compiler/footprint.h"

#include "kernel/program_fields.h"

#include <vector>

namespace egret::compiler {
namespace {

/// Of an allocation beside what it holds.
constexpr std::size_t kAllocation = 16;

template <class T>
std::size_t host_bytes_of(const std::vector<T>& list) {
  return list.capacity() > 0 ? list.capacity() * sizeof(T) + kAllocation : 0;
}

std::size_t host_bytes_of(const std::string& text) {
  return text.capacity() > 15 ? text.capacity() + kAllocation : 0; // shorter ones lie inside
}

std::size_t host_bytes_of(const IndexMap& map) {
  std::size_t bytes =
      host_bytes_of(map.dims) + host_bytes_of(map.coords) + host_bytes_of(map.holes);
  for (const Hole& hole : map.holes)
    bytes += host_bytes_of(hole.valid);
  return bytes;
}

std::size_t host_bytes_of(const ir::Graph& graph) {
  constexpr std::size_t kIndexed = 48; // in the table of nodes by hash
  std::size_t bytes = 0;
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    const ir::Node& node = graph[id];
    bytes += 2 * sizeof(ir::Node) + kIndexed + host_bytes_of(node.shape) +
             host_bytes_of(node.inputs) + host_bytes_of(node.attrs.name) +
             host_bytes_of(node.attrs.shape) + host_bytes_of(node.attrs.axes) +
             host_bytes_of(node.attrs.before) + host_bytes_of(node.attrs.after);
  }
  return bytes;
}

std::size_t host_bytes_of(const kernel::Region& region) {
  std::size_t bytes = host_bytes_of(region.name) + host_bytes_of(region.axes) +
                      host_bytes_of(region.operands) + host_bytes_of(region.stages) +
                      host_bytes_of(region.outputs) + host_bytes_of(region.nodes);
  for (const kernel::Operand& operand : region.operands)
    bytes +=
        host_bytes_of(operand.shape) + host_bytes_of(operand.layout) + host_bytes_of(operand.name);
  for (const kernel::Stage& stage : region.stages) {
    bytes += host_bytes_of(stage.axes) + host_bytes_of(stage.over) + host_bytes_of(stage.loads) +
             host_bytes_of(stage.body) + host_bytes_of(stage.yields) +
             host_bytes_of(stage.yield_dtypes);
    for (const kernel::Load& load : stage.loads)
      bytes += host_bytes_of(load.map) + host_bytes_of(load.indirect);
    for (const kernel::BodyValue& value : stage.body)
      bytes += host_bytes_of(value.args);
  }
  for (const kernel::Output& output : region.outputs)
    bytes += host_bytes_of(output.shape) + host_bytes_of(output.layout) + host_bytes_of(output.map);
  return bytes;
}

/// Sums what the lists inside of a block take.
class ListBytes : public kernel::FieldVisitor<ListBytes> {
public:
  template <class T>
  void operator()(T& field) {
    if constexpr (requires { field.capacity(); })
      bytes += host_bytes_of(field);
    FieldVisitor::operator()(field);
  }
  void visit(const Expr&) {} // its terms are shared
  void ids(kernel::IdKind, std::vector<int>& list) { bytes += host_bytes_of(list); }

  std::size_t bytes = 0;
};

std::size_t host_bytes_of(const kernel::Block& block) {
  ListBytes lists;
  lists(const_cast<kernel::Block&>(block)); // it changes nothing
  return lists.bytes;
}

std::size_t host_bytes_of(const kernel::KernelProgram& program) {
  ListBytes lists;
  for (const kernel::ProblemGroup& group : program.groups)
    members(lists, const_cast<kernel::ProblemGroup&>(group)); // it changes nothing
  return host_bytes_of(program.buffers) + host_bytes_of(program.variables) +
         host_bytes_of(program.values) + host_bytes_of(program.groups) + lists.bytes +
         host_bytes_of(program.body);
}

} // namespace

std::size_t footprint(const Compiled& compiled) {
  constexpr std::size_t kKnob = 96; // of a schedule, in a tree
  std::size_t bytes = sizeof(Compiled) + host_bytes_of(compiled.report.graph);
  for (const kernel::KernelEntry& entry : compiled.plan.kernels)
    bytes += sizeof(entry) + host_bytes_of(entry.region) + host_bytes_of(entry.program) +
             kKnob * entry.schedule.knobs.size() + host_bytes_of(entry.schedule.tree);
  for (const auto* artifacts : {&compiled.artifacts, &compiled.chain_artifacts})
    for (const auto& artifact : *artifacts)
      bytes += artifact ? artifact->bytes() : 0;
  for (const Chain& chain : compiled.chains)
    bytes += sizeof(chain) + host_bytes_of(chain.program) + host_bytes_of(chain.launch.slots) +
             host_bytes_of(chain.launch.offsets);
  for (const kernel::Slot& slot : compiled.plan.slots)
    bytes += sizeof(slot) + host_bytes_of(slot.shape);
  for (const kernel::Step& step : compiled.plan.steps)
    bytes += sizeof(step) + host_bytes_of(step.slots) + host_bytes_of(step.offsets) +
             host_bytes_of(step.nodes) + host_bytes_of(step.scalars);
  for (const LaunchValues& launch : compiled.launches)
    bytes += sizeof(launch) + host_bytes_of(launch.operands) + host_bytes_of(launch.outputs);
  for (const KernelReport& kernel : compiled.report.kernels) {
    bytes += sizeof(kernel) + host_bytes_of(kernel.name) + host_bytes_of(kernel.schedule) +
             host_bytes_of(kernel.nodes) + host_bytes_of(kernel.ops);
  }
  for (const Unfused& pair : compiled.report.unfused)
    bytes += sizeof(pair) + host_bytes_of(pair.why);
  return bytes;
}

} // namespace egret::compiler

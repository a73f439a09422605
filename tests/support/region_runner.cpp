#include "support/region_runner.h"
#include "support/targets.h"

#include "backend/common/host_launch.h"
#include "backend/reference/program_interpreter.h"
#include "backend/reference/reference.h"
#include "compiler/canonical.h"
#include "compiler/pipeline.h"
#include "compiler/prepare_outputs.h"
#include "egret/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace egret::testing {

using backend::reference::HostArray;

namespace {

/// Memory that begins on a cache line, filled with a pattern no result has by accident.
class Memory {
public:
  explicit Memory(std::size_t bytes) : bytes_(bytes + 128, std::byte{0xA5}) {}
  void* data() {
    auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (64 - at % 64) % 64;
  }

private:
  std::vector<std::byte> bytes_;
};

} // namespace

std::vector<kernel::Region> regions_of(const ir::Graph& graph, const kernel::Target& target) {
  const compiler::CandidateGraph g(compiler::prepare_outputs(ir::without_dead_code(graph)));
  std::vector<kernel::Region> regions;
  for (auto& built : compiler::partition_for(g, {}, target).regions)
    regions.push_back(std::move(built.region));
  return regions;
}

namespace {

/// With the reference's values of what regions of the graph read and write.
std::vector<RegionCase> cases_of(const ir::Graph& g, std::span<const HostArray> inputs,
                                 std::vector<compiler::BuiltRegion> regions) {
  // All at once: what stands before several regions is computed once.
  std::vector<ir::NodeId> nodes;
  for (const compiler::BuiltRegion& built : regions)
    for (const auto* some : {&built.operands, &built.outputs})
      nodes.insert(nodes.end(), some->begin(), some->end());
  std::vector<backend::reference::Expected> values = backend::reference::expect(g, inputs, nodes);
  auto next = values.begin();
  std::vector<RegionCase> cases;
  for (compiler::BuiltRegion& built : regions) {
    kernel::verify(built.region);
    RegionCase c;
    for (std::size_t i = 0; i < built.operands.size(); ++i)
      c.operands.push_back(std::move((next++)->value));
    for (std::size_t i = 0; i < built.outputs.size(); ++i)
      c.outputs.push_back(std::move(*next++));
    c.dims = backend::reference::bind_inputs(g, inputs);
    c.region = std::move(built.region);
    cases.push_back(std::move(c));
  }
  return cases;
}

} // namespace

std::vector<RegionCase> region_cases(const ir::Graph& graph, std::span<const HostArray> inputs,
                                     bool fuse, bool keep_all) {
  const ir::Graph g = compiler::prepare_outputs(ir::without_dead_code(graph));
  const compiler::GraphFacts facts(g);
  const compiler::Partition partition = compiler::partition_greedily(facts, fuse);
  const std::vector<bool> keep =
      keep_all ? partition.stored : compiler::kept_values(facts, partition);
  std::vector<compiler::BuiltRegion> regions;
  for (const compiler::Group& group : partition.groups) {
    regions.push_back(compiler::build_region(facts, partition, group, keep, {}));
    compiler::canonicalize(regions.back().region);
  }
  return cases_of(g, inputs, std::move(regions));
}

std::vector<RegionCase> region_cases(const ir::Graph& graph, std::span<const HostArray> inputs,
                                     const kernel::Target& target,
                                     const compiler::PartitionChoices& choices) {
  const compiler::CandidateGraph g(compiler::prepare_outputs(ir::without_dead_code(graph)));
  return cases_of(g.graph(), inputs, compiler::partition_for(g, {}, target, choices).regions);
}

void take_over_operands(kernel::Region& region, bool declared) {
  std::vector<bool> taken(region.operands.size(), false);
  for (std::size_t o = 0; o < region.outputs.size(); ++o)
    for (std::size_t i = 0; i < region.operands.size(); ++i)
      if (region.outputs[o].alias < 0 && !taken[i] &&
          kernel::may_alias(region, int(o), int(i), declared) &&
          region.outputs[o].shape == region.operands[i].shape) {
        region.outputs[o].alias = int(i);
        taken[i] = true;
      }
}

std::vector<HostArray> run_region(const RegionCase& c, const kernel::KernelProgram& program,
                                  const RunOptions& options) {
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<void*> pointers;
  std::vector<std::uint64_t> scalars;
  std::vector<void*> operand_memory;
  auto copy_of = [&](const HostArray& a) {
    memory.push_back(std::make_unique<Memory>(a.bytes.size()));
    if (!a.bytes.empty())
      std::memcpy(memory.back()->data(), a.bytes.data(), a.bytes.size());
    return memory.back()->data();
  };
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    operand_memory.push_back(nullptr);
    if (c.region.operands[i].role == kernel::Role::Scalar) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, c.operands[i].bytes.data(), c.operands[i].bytes.size());
      scalars.push_back(bits);
    } else {
      pointers.push_back(operand_memory.back() = copy_of(c.operands[i]));
    }
  }
  std::vector<void*> outputs;
  for (std::size_t o = 0; o < c.outputs.size(); ++o) {
    const kernel::Output& out = c.region.outputs[o];
    const HostArray& value = c.outputs[o].value;
    if (out.combine != kernel::Combine::Store) {
      outputs.push_back(copy_of(c.operands.at(out.alias)));
    } else if (options.in_place && out.alias >= 0) {
      outputs.push_back(operand_memory.at(out.alias));
    } else {
      memory.push_back(std::make_unique<Memory>(value.bytes.size()));
      outputs.push_back(memory.back()->data());
    }
  }
  pointers.insert(pointers.end(), outputs.begin(), outputs.end());
  for (const kernel::Buffer& b : program.buffers)
    if (b.space == kernel::Space::Workspace) {
      memory.push_back(std::make_unique<Memory>(
          static_cast<std::size_t>(c.dims.value_of(b.elements)) * size_of(b.dtype)));
      pointers.push_back(memory.back()->data());
    }
  std::vector<std::int64_t> dims;
  for (const Expr& d : program.dims)
    dims.push_back(c.dims.value_of(d));
  const kernel::ArgBlock block{pointers.data(), dims.data(), scalars.data(), nullptr, nullptr};
  if (options.device)
    backend::launch_on_host_memory(*options.device, *options.device->compile(program), program,
                                   block, options.workers);
  else
    backend::reference::interpret(program, block, {.workers = options.workers});
  std::vector<HostArray> results;
  for (std::size_t o = 0; o < outputs.size(); ++o) {
    results.emplace_back(c.outputs[o].value.dtype, c.outputs[o].value.dims);
    if (!results.back().bytes.empty())
      std::copy_n(static_cast<const std::byte*>(outputs[o]), results.back().bytes.size(),
                  results.back().bytes.begin());
  }
  return results;
}

std::string run_and_compare(const RegionCase& c, const kernel::KernelProgram& program,
                            const RunOptions& options) {
  std::vector<HostArray> results;
  try {
    results = run_region(c, program, options);
  } catch (const std::exception& e) {
    return e.what();
  }
  for (std::size_t o = 0; o < results.size(); ++o) {
    auto compared =
        backend::reference::compare(results[o], c.outputs[o], fmt::format("output {}", o));
    if (!compared.ok)
      return compared.message;
  }
  return "";
}

RegionCase aligned_for(const RegionCase& c, const kernel::Target& target) {
  RegionCase aligned = c;
  if (target.is_gpu())
    for (kernel::Operand& operand : aligned.region.operands)
      operand.alignment = std::max<std::int64_t>(operand.alignment, 64);
  return aligned;
}

std::string check_schedule(const RegionCase& c, const kernel::Generator& generator,
                           const kernel::Schedule& schedule, const kernel::Target& target,
                           const RunOptions& options, bool must_lower) {
  const std::string text = to_string(schedule);
  auto where = [&] {
    return fmt::format("{} for vectors of {} bytes on\n{}", text, target.vector_bytes,
                       print(c.region));
  };
  if (kernel::parse_schedule(text) != schedule)
    return "schedule does not read back: " + text;
  kernel::Lowered lowered;
  try {
    kernel::Region told = c.region;
    for (kernel::Output& output : told.outputs)
      if (options.undeclared && output.combine == kernel::Combine::Store)
        output.alias = -1;
    lowered = generator.lower(told, schedule, target);
    if (!lowered.ok)
      return must_lower ? lowered.reason + "\n" + where() : "";
    kernel::verify(lowered.program);
  } catch (const std::exception& e) {
    return fmt::format("{}\n{}", e.what(), where());
  }
  const std::string wrong = run_and_compare(c, lowered.program, options);
  return wrong.empty() ? "" : fmt::format("{}\n{}\n{}", wrong, where(), print(lowered.program));
}

std::string check_generators(const RegionCase& c, const kernel::Target& target,
                             const RunOptions& options, std::size_t most) {
  const RegionCase aligned = aligned_for(c, target);
  for (const kernel::Generator* generator : kernel::generators(target)) {
    auto schedules = generator->space(aligned.region, target);
    for (std::size_t i = 0; i < schedules.size() && i < most; ++i)
      if (auto wrong = check_schedule(aligned, *generator, schedules[i], target, options);
          !wrong.empty())
        return wrong;
  }
  return "";
}

const kernel::Generator& generator_named(const std::string& name, const kernel::Target& target) {
  const kernel::Generator* found = kernel::find_generator(name, target);
  if (found == nullptr)
    throw InternalError(target.device + " has no generator " + name);
  return *found;
}

std::vector<kernel::Target> test_targets() {
  std::vector<kernel::Target> targets;
  for (int bytes : {64, 32, 16}) {
    kernel::Target t;
    t.device = "cpu";
    t.workers = 2;
    t.vector_bytes = bytes;
    t.vector_registers = bytes == 64 ? 32 : 16;
    t.has_fma = bytes > 16;
    targets.push_back(t);
  }
  return targets;
}

kernel::Target test_gpu() {
  kernel::Target t;
  t.kind = kernel::DeviceKind::Gpu;
  t.device = "cuda";
  t.name = "sm_80";
  testing::set_architecture(t, 80);
  t.workers = 4;
  t.subgroup = 32;
  t.vector_bytes = 16;
  t.vector_registers = 255;
  t.has_fma = true;
  t.block_shared_bytes = t.shared_bytes = 99 << 10;
  t.registers = 65536;
  t.schedulers = 4;
  t.threads = 1536;
  t.blocks = 16;
  t.parameter_bytes = 4096;
  t.l2_bytes = t.l3_bytes = 64 << 10;
  return t;
}

} // namespace egret::testing

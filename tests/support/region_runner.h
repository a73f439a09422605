// Regions of graphs with the reference's values of what they read and write, for testing
// generators: each program of a region is run by the interpreter or on a device and compared.
#pragma once

#include "backend/common/device.h"
#include "backend/reference/compare.h"
#include "backend/reference/host_array.h"
#include "compiler/compile.h"
#include "kernel/generator.h"

#include <span>
#include <string>
#include <vector>

namespace egret::testing {

/// The regions into which the greedy partitioner takes the graph apart, for a target.
std::vector<kernel::Region> regions_of(const ir::Graph& graph, const kernel::Target& target);

struct RegionCase {
  kernel::Region region;
  std::vector<backend::reference::HostArray> operands; ///< by operand; of rank 0 when by value
  std::vector<backend::reference::Expected> outputs;
  backend::reference::Bindings dims;
};

/// The regions into which the greedy partitioner takes the graph apart. `keep_all`: every stored
/// value is an output.
std::vector<RegionCase> region_cases(const ir::Graph& graph,
                                     std::span<const backend::reference::HostArray> inputs,
                                     bool fuse = true, bool keep_all = false);

/// The same of the regions that a target gets.
std::vector<RegionCase> region_cases(const ir::Graph& graph,
                                     std::span<const backend::reference::HostArray> inputs,
                                     const kernel::Target& target,
                                     const compiler::PartitionChoices& choices = {});

/// Declares that outputs take the memory of operands, each of another, wherever that is allowed.
/// `declared`: to programs too, which may store such outputs last; else as memory is planned.
void take_over_operands(kernel::Region& region, bool declared = true);

struct RunOptions {
  backend::Device* device = nullptr; ///< null: the interpreter
  int workers = 2;
  bool in_place = false;   ///< outputs with an alias lie in the memory of that operand
  bool undeclared = false; ///< check_schedule: which the program was not told
};

/// Runs a program of the case's region and gives what it left in the outputs. Throws what the
/// interpreter or the device throws.
std::vector<backend::reference::HostArray> run_region(const RegionCase& c,
                                                      const kernel::KernelProgram& program,
                                                      const RunOptions& options = {});

/// Runs a program of the case's region; empty when all outputs are as expected, else what is wrong.
std::string run_and_compare(const RegionCase& c, const kernel::KernelProgram& program,
                            const RunOptions& options = {});

/// The case with operands aligned as the target's memory is.
RegionCase aligned_for(const RegionCase& c, const kernel::Target& target);

/// One schedule on the region: what is wrong, with region and program; empty when nothing is. A
/// region or schedule that the generator refuses is wrong only if it `must_lower`.
std::string check_schedule(const RegionCase& c, const kernel::Generator& generator,
                           const kernel::Schedule& schedule, const kernel::Target& target,
                           const RunOptions& options = {}, bool must_lower = false);

/// Every generator with every schedule (at most `most` each) on the region; gives the first thing
/// that is wrong, with region and program.
std::string check_generators(const RegionCase& c, const kernel::Target& target,
                             const RunOptions& options = {}, std::size_t most = 1000);

/// The target's generator of that name; InternalError where there is none.
const kernel::Generator& generator_named(const std::string& name, const kernel::Target& target);

/// Machines with registers of 64, 32 and 16 bytes.
std::vector<kernel::Target> test_targets();
/// A GPU with few multiprocessors and little shared memory, so that small regions are split.
kernel::Target test_gpu();

} // namespace egret::testing

// What makes a result wrong: a rule, a region or a kernel (docs/bisect.md).
#pragma once

#include "backend/reference/host_array.h"
#include "compiler/compile.h"

#include <span>
#include <string>
#include <vector>

namespace egret::compiler {

struct BisectReport {
  enum class Culprit : std::uint8_t {
    None,   ///< all results are right
    Pass,   ///< a simplification before or after the rules
    Rules,  ///< `names`: of rules; without any of them the result is right
    Region, ///< `names`: the kernel's; what it is to compute is not what the graph says
    Kernel, ///< `names`: the kernel's and its schedule; it does not compute its region
    Plan    ///< `names`: the kernel that reads a value which something has overwritten
  } culprit = Culprit::None;
  std::vector<std::string> names;
  std::string detail;            ///< the first element that is wrong, or how many were right
  std::vector<ir::NodeId> nodes; ///< Region, Kernel: of the compiled graph
  std::string text() const;      ///< for people
};
const char* name_of(BisectReport::Culprit culprit) noexcept;

/// Compiles the graph with these options, runs it on `inputs` (by slot) and compares what the rules
/// made of the graph, what each kernel stores and what is given back with the reference, each
/// element within its tolerance. Where tolerances have grown so wide that they judge little, as
/// those of long recurrences do, elements are also compared with what the kernel is to make of its
/// operands as they are. A kernel that crashes or does not end takes the process with it.
BisectReport bisect(const ir::Graph& graph, std::span<const backend::reference::HostArray> inputs,
                    const Options& options, backend::Device& device, KernelCache& cache);

/// Random arrays for the graph's inputs, by slot: floats in -2..2, small integers. Symbols of
/// shapes get the same value everywhere, 8 where that is allowed. Error(Memory) names the input
/// that memory does not hold.
std::vector<backend::reference::HostArray> random_inputs(const ir::Graph& graph,
                                                         std::uint64_t seed);

/// How much larger than the reference's own tolerances are, where rules with these tags may run:
/// neither graph's estimate knows how a constant was rounded that rules have folded.
double tolerance_scale(saturate::Tags allowed) noexcept;

} // namespace egret::compiler

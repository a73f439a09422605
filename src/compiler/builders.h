// Kernels that the user's builders claim (egret/builders.h).
#pragma once

#include "compiler/options.h"
#include "compiler/proposer.h"
#include "compiler/regions.h"
#include "compiler/report.h"
#include "egret/builders.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace egret::compiler {

/// Those that live, in the order in which they were made, and builders_number().
std::pair<std::vector<std::shared_ptr<const KernelBuilder>>, std::uint64_t> registered_builders();
/// Another number for each set of them; 0: none.
std::uint64_t builders_number() noexcept;

/// What a kernel reads, computes and stores, as a graph of its own.
ir::Graph graph_of(const ir::Graph& program, const BuiltRegion& built);

/// Asks the builders of `options` for each distinct region, and puts the kernels of claims that win
/// into `proposed`. Claims are listed, by kernel.
std::vector<ClaimedKernel> ask_builders(const ir::Graph& graph,
                                        const std::vector<BuiltRegion>& regions,
                                        const Options& options, const kernel::Target& target,
                                        backend::Device& device, Proposed& proposed);

} // namespace egret::compiler

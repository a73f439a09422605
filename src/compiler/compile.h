// From a graph to a plan with its compiled kernels. The passes are listed in pipeline.h.
#pragma once

#include "compiler/compiled.h"
#include "compiler/kernel_cache.h"
#include "compiler/options.h"

namespace egret::compiler {

/// Runs the passes of the pipeline (pipeline.h), and with Effort::Search and above the search over
/// fusion plans around them. Where a plan within Options::memory_limit is not found so, a large
/// product is split into chunks (chunks.h), if sums may be reassociated. LimitError (recompute.h),
/// which is an Error(Memory), names the least memory that was found where no plan meets the limit.
Compiled compile_graph(const ir::Graph& graph, const Options& options, backend::Device& device,
                       KernelCache& cache);

} // namespace egret::compiler

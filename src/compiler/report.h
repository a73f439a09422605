// What the compiler did, for explain(), `egret compile --report` and tests.
#pragma once

#include "compiler/fold_parameters.h"
#include "compiler/partition.h"
#include "compiler/search/report.h"
#include "saturate/options.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret::compiler {

/// Seconds that a pass took, in all of its runs.
struct PassTime {
  std::string pass; ///< its name (pipeline.h)
  double seconds = 0;
};
/// Adds to what a pass took, which may have a place in `times` already.
void add_time(std::vector<PassTime>& times, std::string_view pass, double seconds);
void add_times(std::vector<PassTime>& times, const std::vector<PassTime>& more);

struct KernelReport {
  std::string name, form, schedule;
  std::vector<ir::NodeId> nodes; ///< of CompileReport::graph
  std::vector<std::string> ops;  ///< their names in order
  std::int64_t bytes_read = 0, bytes_written = 0;
  double flops = 0;
  int parts = 1; ///< regions without a common axis that the launch computes beside each other
  std::int64_t phases = 1; ///< parts between which all workers meet (kernel/phases.h)
  double predicted = 0;    ///< seconds of a launch, by the cost model
  double measured = 0;     ///< seconds of a launch, by the search that chose it; 0: unknown
};
/// What rules did to a graph of `before` ops, of which they left `after`, for people.
std::string rules_text(const saturate::SaturateReport& report, std::size_t before,
                       std::size_t after);

/// A kernel whose code the device's compiler refused, or that verification found wrong.
struct RefusedKernel {
  std::string kernel, schedule, reason;
  std::string instead; ///< the schedule that took its place
};

/// What a builder of the user's offered for a kernel.
struct ClaimedKernel {
  std::string kernel, builder, schedule;
  double seconds = 0, against = 0; ///< the claim's, and those of the best kernel before; 0: unknown
  bool won = false;
  std::string outcome; ///< "chosen", or why not
};

/// For people; a compiler's words may have several lines.
std::string refusal_text(const RefusedKernel& refused);

/// What a memory limit did to a plan.
struct MemoryReport {
  struct Again {
    std::size_t kernel; ///< place in CompileReport::kernels of its first launch
    int times;          ///< launches beyond the first
  };
  std::int64_t limit = 0, before = 0, after = 0; ///< bytes of the arena, at the largest sizes
  std::vector<Again> again;
  std::int64_t added_bytes = 0;              ///< read and written by the launches beyond the first
  double added_flops = 0, added_seconds = 0; ///< the latter by the cost model
  std::string chunks = {};                   ///< what is made chunk by chunk; empty: nothing
};
struct CompileReport {
  ir::Graph graph; ///< the normal form that was compiled
  std::size_t ops_recorded = 0, ops_normalized = 0;
  /// With any effort above None: what the rules did, and the ops before them and in what was
  /// extracted.
  std::optional<saturate::SaturateReport> saturation;
  std::size_t ops_before_rules = 0, ops_extracted = 0;
  std::vector<PassTime> passes;      ///< that ran, in the order in which they first ran
  std::vector<KernelReport> kernels; ///< by step
  std::vector<FoldedParameter> derived;
  std::vector<std::string> recomputed; ///< values of indices that readers make instead of reading
  std::vector<std::string> layouts;    ///< values that kernels store or read in another order
  std::vector<std::string> chains;     ///< kernels that are launched as one
  int copies = 0; ///< of states that could not be written in place, and of what a scatter updates
  std::vector<Unfused> unfused;
  std::vector<RefusedKernel> refused;
  std::vector<ClaimedKernel> claimed; ///< by builders of the user's
  std::int64_t arena_bytes = 0, liveness_bound_bytes = 0;
  std::optional<MemoryReport> memory; ///< with Options::memory_limit
  /// By where machine code came from: made, found on disk, found in memory.
  int kernels_compiled = 0, kernels_loaded = 0, kernels_from_cache = 0;
  SearchReport search;
  std::string text() const; ///< for people
};

} // namespace egret::compiler

// From a graph to a plan with its compiled kernels: the pipeline, as a list of named stages, stands
// in compile.cpp.
#pragma once

#include "backend/common/device.h"
#include "compiler/search/report.h"
#include "egret/effort.h"
#include "egret/ir.h"
#include "kernel/generator.h"
#include "kernel/plan.h"
#include "saturate/options.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace egret::compiler {

class Tuner;

/// What becomes of a graph output's memory.
struct OutputSpec {
  std::int64_t state_input =
      -1; ///< the graph input (slot) that it replaces in place after the run; -1: memory of its own
};

struct Options {
  bool fuse = true; ///< false: one kernel an operation, as a baseline and for bisection
  std::vector<OutputSpec> outputs; ///< by graph output; empty: all of their own
  int workers = 0;                 ///< 0: all of the device's
  std::optional<Effort> effort;    ///< empty: the runtime's; None where there is no runtime
  saturate::SaturateOptions rules; ///< that rewrite the graph first, with any effort above None
  std::optional<RuleTags> allow;   ///< beside rules.allowed; empty: what the runtime allows
  std::optional<double> budget_seconds; ///< of a search; empty: the runtime's
  Tuner* tuner = nullptr;        ///< who searches; without one the greedy schedules are taken
  bool frozen = false;           ///< what is remembered is used, and nothing is measured
  std::optional<bool> libraries; ///< a search may choose them; empty: the runtime's, or yes
  std::function<bool(const SearchProgress&)> progress; ///< of a search; false ends it
  /// Bytes, at the largest sizes, of the memory that a run takes for intermediate values: above 0.
  std::optional<std::int64_t> memory_limit;
  /// By graph input: a parameter that keeps its value from run to run and that the graph does not
  /// replace, so that what is made of such inputs alone may be kept (Compiled::derivation). Empty:
  /// none.
  std::vector<bool> steady;
  /// Begin and end of the chunks of a product that is cut (chunks.h); empty: none is.
  std::vector<std::pair<std::int64_t, std::int64_t>> chunks;
  bool paranoid = false; ///< the runtime compares the results of every run with the reference's
  /// Changes a region and what was chosen for it before it is compiled: to plant faults in tests.
  std::function<void(kernel::Region&, kernel::Chosen&)> alter;

  /// `rules` with all that is allowed.
  saturate::SaturateOptions chosen_rules() const {
    saturate::SaturateOptions chosen = rules;
    chosen.allowed.add(allow.value_or(RuleTags{}));
    return chosen;
  }
};

/// What the compiler did, for explain(), reports and tests.
struct StageTime {
  std::string stage;
  double seconds;
};
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
struct Unfused {
  ir::NodeId producer, consumer; ///< of CompileReport::graph
  std::string why;
};
/// What rules did to a graph of `before` ops, of which they left `after`, for people.
std::string rules_text(const saturate::SaturateReport& report, std::size_t before,
                       std::size_t after);

/// A value that a program keeps from run to run until the inputs that it is made of change.
struct DerivedReport {
  std::string what;                 ///< "concatenation", for people
  std::vector<std::string> sources; ///< names of inputs
  DType dtype = DType::F32;
  Shape shape;
  double bytes = 0; ///< that it takes; 0 with an empty `what`: it is not made
};
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
  ir::Graph graph; ///< after normalization
  std::size_t ops_recorded = 0, ops_normalized = 0;
  /// With any effort above None: what the rules did, and the ops before them and in what was
  /// extracted.
  std::optional<saturate::SaturateReport> saturation;
  std::size_t ops_before_rules = 0, ops_extracted = 0;
  std::vector<StageTime> stages;
  std::vector<KernelReport> kernels; ///< by step
  std::vector<DerivedReport> derived;
  std::vector<std::string> relaid; ///< values that kernels store or read in another order
  int copies = 0; ///< of states that could not be written in place, and of what a scatter updates
  std::vector<Unfused> unfused;
  std::int64_t arena_bytes = 0, liveness_bound_bytes = 0;
  std::optional<MemoryReport> memory; ///< with Options::memory_limit
  /// By where machine code came from: made, found on disk, found in memory.
  int kernels_compiled = 0, kernels_loaded = 0, kernels_from_cache = 0;
  SearchReport search;
  std::string text() const; ///< for people
};

/// Compiled kernels by program hash, shared by all plans of a device; bounded, least recently used
/// leave first. Thread-safe.
class KernelCache {
public:
  explicit KernelCache(std::size_t limit = 4096);
  ~KernelCache();
  std::shared_ptr<const backend::Artifact> get(const kernel::KernelProgram& program,
                                               backend::Device& device, bool* was_cached = nullptr);
  std::size_t size() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The values of CompileReport::graph that a launch reads and writes.
struct LaunchValues {
  std::vector<ir::NodeId> operands, outputs; ///< by operand and output of the region
};

struct Derivation;

struct Compiled {
  kernel::Plan plan;
  /// With Options::steady, where it pays: the plan's inputs are those of the graph, and then what
  /// derivation->fill makes of some of them.
  std::shared_ptr<const Derivation> derivation;
  std::vector<LaunchValues> launches; ///< by launch of the plan, in order
  std::vector<std::shared_ptr<const backend::Artifact>> artifacts; ///< by Plan::kernels
  CompileReport report;
};

Compiled compile_graph(const ir::Graph& graph, const Options& options, backend::Device& device,
                       KernelCache& cache);

} // namespace egret::compiler

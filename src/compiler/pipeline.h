// The compiler's passes as one table, which reads from top to bottom in the order in which they
// run. The search over fusion plans (search/fusion_plans.h) is a loop around its later phases.
#pragma once

#include "compiler/compilation.h"

#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::compiler {

/// Passes that run together. Program and Rules run once, Graph for each graph that rules extracted,
/// Regions and Launches for each fusion plan that is looked at, Schedules and Plan for each that is
/// measured or taken.
enum class Phase : std::uint8_t { Program, Rules, Graph, Regions, Launches, Schedules, Plan };
std::string_view name_of(Phase phase) noexcept;

/// Where a pass's verifier runs: in every build, or only in developer builds (EGRET_CHECKS) and
/// with Options::verify_passes.
enum class Verified : std::uint8_t { Always, Developers };

struct Pass {
  std::string_view name; ///< as `egret compile --print-after` takes it
  Phase phase;
  std::string_view what;               ///< one line, for people
  bool (*applies)(const Compilation&); ///< null: always
  void (*run)(Compilation&);
  Verified verified;
  void (*verify)(const Compilation&); ///< InternalError when what the pass made is not well formed
  std::string (*print)(const Compilation&);
};

/// All passes in order.
std::span<const Pass> pipeline();

/// The pass of this name. Error(Value) that begins with `who` and names the nearest pass when there
/// is none.
const Pass& find_pass(std::string_view name, std::string_view who);

/// Runs the passes of a phase that apply, each timed (Compilation::times), verified and shown to
/// Options::after_pass. None runs behind one that found no plan within the memory limit.
/// Phase::Plan runs again, with other schedules, while kernels are refused (refusals.h).
void run_phase(Compilation& compilation, Phase phase);

/// How passes begin that may run beside others: in a thread of their own where there is one, but
/// one after the other where somebody looks on from pass to pass (Options::after_pass).
std::launch launch_beside(const Options& options);

/// The normal form of a graph, as the passes of Phase::Graph make it.
std::shared_ptr<const CandidateGraph> normal_form(const ir::Graph& graph);

/// The partition of a candidate and its regions: Phase::Regions.
Partitioned partition_for(const CandidateGraph& candidate, const Options& options,
                          const kernel::Target& target, const PartitionChoices& choices = {});
/// Likewise, with states in place and batches: Phase::Regions and Phase::Launches.
Partitioned with_launches(const CandidateGraph& candidate, const Options& options,
                          const kernel::Target& target, const PartitionChoices& choices = {});

} // namespace egret::compiler

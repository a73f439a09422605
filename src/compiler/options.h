// What a caller asks of the compiler.
#pragma once

#include "compiler/output_spec.h"
#include "compiler/requested_schedules.h"
#include "egret/builders.h"
#include "egret/effort.h"
#include "kernel/generator.h"
#include "kernel/region.h"
#include "saturate/options.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace egret::compiler {

class Tuner;
struct Compilation;

/// A pass has run: its name (pipeline.h), the fusion plan that it ran for (empty: the greedy one of
/// the only graph, or no fusion plan yet), and what it prints, before and after.
struct PassEvent {
  std::string_view pass;
  std::string_view fusion_plan;
  std::string before, after;
  std::chrono::steady_clock::time_point begin = {}; ///< of the pass
  double seconds = 0;                               ///< that it took with its verifier
  const Compilation* compilation = nullptr; ///< behind the pass; for as long as the call lasts
  bool changed() const { return before != after; }
};

struct Options {
  bool fuse = true;  ///< false: one kernel an operation, as a baseline and for bisection
  bool lazy = false; ///< values that are evaluated as they are read: by default with effort None
  std::vector<OutputSpec> outputs; ///< by graph output; empty: all have memory of their own
  int workers = 0;                 ///< 0: all of the device's
  std::optional<Effort> effort;    ///< empty: the runtime's; None where there is no runtime
  saturate::SaturateOptions rules; ///< that rewrite the graph first, with any effort above None
  std::optional<RuleTags> allow;   ///< beside rules.allowed; empty: what the runtime allows
  std::optional<double> budget_seconds; ///< of a search; empty: the runtime's
  Tuner* tuner = nullptr;        ///< who searches; without one the greedy schedules are taken
  bool frozen = false;           ///< the tuning database is only read, and nothing is measured
  std::optional<bool> libraries; ///< a search may choose them; empty: the runtime's, or yes
  std::function<bool(const SearchProgress&)> progress; ///< of a search; false ends it
  /// Bytes, at the largest sizes, of the memory that a run takes for intermediate values: above 0.
  std::optional<std::int64_t> memory_limit;
  /// By graph input: a parameter that keeps its value from run to run and that the graph does not
  /// replace, so that values made of such inputs alone may be kept (Compiled::derivation). Empty:
  /// none.
  std::vector<bool> steady;
  /// Begin and end of the chunks of a product that is split (chunks.h); empty: none is.
  std::vector<std::pair<std::int64_t, std::int64_t>> chunks;
  bool checked = false; ///< the runtime compares the results of every run with the reference's
  /// A kernel that is refused (refusals.h) is an error; else the next schedule takes its place.
  /// Empty: as EGRET_STRICT says.
  std::optional<bool> strict;
  /// Results have the same bits with every effort: no rule runs, the graph is partitioned greedily,
  /// and regions whose results depend on the order of sums have their greedy schedule.
  bool deterministic = false;
  /// Kernels with a schedule of the user's; the graph is partitioned greedily then.
  RequestedSchedules schedules;
  /// The user's, who may claim kernels (builders.h).
  std::vector<std::shared_ptr<const KernelBuilder>> builders;
  std::uint64_t builders_number = 0; ///< another one for each set of builders
  /// Changes a region and what was chosen for it before it is compiled: fault injection for tests.
  std::function<void(kernel::Region&, kernel::Chosen&)> inject_fault;
  /// Chains of launches may become one launch (Chain); kernels that only they launch have
  /// no machine code then.
  bool chains = false;
  bool verify_passes = false; ///< every pass's verifier runs, as in developer builds
  /// Called after each pass. The passes are printed for it, so it is for people and tests.
  std::function<void(const PassEvent&)> after_pass;

  /// The graph is partitioned greedily whatever the effort.
  bool has_greedy_partition() const { return deterministic || !schedules.empty(); }

  /// `rules` with all that is allowed.
  saturate::SaturateOptions chosen_rules() const {
    saturate::SaturateOptions chosen = rules;
    chosen.allowed.add(allow.value_or(RuleTags{}));
    return chosen;
  }
};

} // namespace egret::compiler

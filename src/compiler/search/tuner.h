// Chooses schedules: proposes candidates, verifies and times them in a worker process, and
// remembers what won.
#pragma once

#include "compiler/measurement_process.h"
#include "compiler/search/candidates.h"
#include "compiler/search/database.h"
#include "compiler/search/report.h"

#include <functional>
#include <memory>
#include <mutex>
#include <span>

namespace egret::compiler {

/// A distinct region of a plan.
struct WantedKernel {
  const kernel::Region* region = nullptr;
  double launches = 1; ///< a run: regions get their share of the budget by what they cost
  /// Most of what it reads is inputs of a plan that has more of them than the last cache holds: no
  /// cache has them when it starts.
  bool cold = false;
};

struct SearchOptions {
  Effort effort = Effort::Search;
  double budget_seconds = 60;
  bool frozen = false; ///< choices are only read
  /// Called now and then; false ends the search, and what is not decided stays greedy.
  std::function<bool(const SearchProgress&)> progress;
  bool libraries = true; ///< calls of the device's library may be candidates, and win
};

struct TunerOptions {
  MeasurementProcessOptions worker;
  std::optional<std::filesystem::path> folder; ///< of the database; none: no memory
  /// Makes the candidates of a region: candidates_of(), or what a test has in mind.
  std::function<Candidates(const kernel::Region&, const kernel::Target&, const Machine&,
                           const backend::reference::Bindings&, Effort)>
      propose;
  std::function<double()> clock; ///< what a budget is counted by: seconds; empty: a steady clock
};

/// One a device. Thread-safe: searches take turns.
class Tuner {
public:
  Tuner(backend::Device& device, TunerOptions options);
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Held while one program's search goes on, so that its parts are not mixed with another's.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> take_turn();

  /// The fusion plan (fusion_plans.h) that a search chose for a program before, as text.
  std::optional<std::string> fusion_plan(std::uint64_t program, bool frozen);
  /// `seconds` of a run, and of a run of the greedy fusion plan in the same rounds; 0: not
  /// measured.
  void remember_fusion_plan(std::uint64_t program, const std::string& fusion_plan, double seconds,
                            double greedy_seconds);
  /// What predictions rest on: measured at first use, where that can be remembered.
  Machine machine(bool frozen);

  /// A schedule and its program for each kernel.
  std::vector<kernel::Chosen> choose(std::span<const WantedKernel> kernels,
                                     const SearchOptions& options, SearchReport& report);

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A hash of the code that makes, checks and times candidates: what an older one found may not
/// hold. TuningKey::generators.
std::uint64_t tuning_version() noexcept;

} // namespace egret::compiler

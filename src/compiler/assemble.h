// From regions with their schedules to a plan with machine code.
#pragma once

#include "compiler/division.h"

#include <chrono>

namespace egret::compiler {

/// Runs a stage and notes its time.
class StageClock {
public:
  explicit StageClock(std::vector<StageTime>& stages) : stages_(stages) {}
  template <class F>
  auto operator()(const char* stage, F&& run) {
    const auto begin = std::chrono::steady_clock::now();
    auto result = run();
    stages_.push_back(
        {stage, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()});
    return result;
  }

private:
  std::vector<StageTime>& stages_;
};

/// A division with a schedule and a program for each of its distinct regions.
struct Proposed {
  Partitioned parts;
  std::vector<kernel::KernelEntry> entries;
  std::vector<int> entry_of; ///< by region
  SearchReport search;
};

/// Schedules for regions, each region asked for once however many divisions it appears in.
class Proposer {
public:
  Proposer(const Options& options, const kernel::Target& target);
  /// `seconds`: of a search.
  Proposed propose(const Form& form, Partitioned parts, double seconds);
  /// What the model says of the greedy schedule, or of the one that was chosen already.
  double predicted(const WantedKernel& wanted, const Machine& machine);

  using Key = std::pair<std::uint64_t, bool>; ///< a region's hash, and whether it is cold
  static Key key_of(const WantedKernel& wanted);

private:
  struct Known {
    kernel::Chosen chosen;
    RegionSearch search;
  };
  std::vector<kernel::Chosen> choose(const std::vector<WantedKernel>& wanted, double seconds,
                                     SearchReport& report);

  const Options& options_;
  const kernel::Target& target_;
  std::map<Key, Known> known_;
  std::map<Key, double> predicted_;
};

/// Plan, machine code and report. Stages are noted in the report behind those that are there.
Compiled assemble(const Form& form, Proposed proposed, const Options& options,
                  backend::Device& device, KernelCache& cache, CompileReport report);

} // namespace egret::compiler

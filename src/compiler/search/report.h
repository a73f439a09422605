// What a search did, for explain(), reports and tests.
#pragma once

#include "compiler/search/machine.h"
#include "egret/effort.h"
#include "kernel/generator.h"
#include "loops/options.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace egret::compiler {

struct CandidateReport {
  std::string schedule;
  /// "timed", "verified", "known" (timed by an earlier search), "ranked" (by its prediction alone),
  /// "untried" (out of budget), or why
  /// it was rejected: "refused" (it does not lower), "compile", "wrong", "crash", "hang".
  std::string state = "untried";
  std::string message;  ///< of a rejection
  double predicted = 0; ///< seconds
  double seconds = 0;   ///< measured, the first decile; 0: not
  double spread = 0;    ///< to the median
  double ratio = 0;     ///< over the greedy schedule's time in the same rounds; 0: unknown
  bool tried() const { return state != "untried" && state != "ranked"; }
  bool rejected() const {
    return state == "refused" || state == "compile" || state == "wrong" || state == "crash" ||
           state == "hang";
  }
};

struct RegionSearch {
  std::string name;
  std::uint64_t region = 0;                ///< its hash
  bool cache_hit = false;                  ///< the choice was remembered; nothing was tried
  std::string note;                        ///< why nothing was tried, if so
  std::vector<CandidateReport> candidates; ///< the greedy one first
  std::string chosen;                      ///< a schedule
  double predicted = 0;                    ///< seconds of a launch, by the cost model
  double seconds = 0, greedy_seconds = 0;  ///< of a launch; 0: not measured
  double search_seconds = 0;
  std::string dropped; ///< a remembered schedule that this region no longer takes, with the reason
  std::vector<kernel::FailedLowering> failed; ///< generators that threw before the greedy choice
  std::optional<loops::LoopReport> loops;     ///< where trees were looked for
};

/// Another way to cut the program into kernels.
struct FusionPlanReport {
  std::string what;              ///< it does
  std::string state = "untried"; ///< "taken", "slower", "the same", "too large"
  double predicted = 0;          ///< seconds over the first fusion plan's, by the cost model
  double seconds = 0, ratio = 0; ///< of a run, and over the best one's in the same rounds
};

struct SearchReport {
  Effort effort = Effort::None;
  std::string note;   ///< why less was done than asked for, if so
  bool ended = false; ///< by the caller
  double seconds = 0;
  std::int64_t measured = 0; ///< candidates that were compiled or timed now
  std::int64_t cache_hits = 0;
  Machine machine;                   ///< what predictions rest on
  std::vector<RegionSearch> regions; ///< distinct ones
  std::string fusion_plan;           ///< the program's, as text (fusion_plans.h); empty: greedy
  std::vector<FusionPlanReport> fusion_plans; ///< others that came into question
  std::int64_t fusion_plans_seen = 0;         ///< that differed at all
  std::string fusion_plan_note;               ///< why not all were tried, if so
  double greedy_seconds = 0; ///< of a run of the first fusion plan; 0: not measured
  std::int64_t candidates() const;
  std::int64_t rejected() const;
  std::string text() const; ///< for people; empty without a search
};

} // namespace egret::compiler

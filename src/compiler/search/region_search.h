// The search for one region's schedule.
#pragma once

#include "compiler/search/tuner.h"

#include <chrono>
#include <functional>
#include <utility>

namespace egret::compiler {

/// Time, budget and progress of one call.
class SearchClock {
public:
  /// `now`: seconds of a steady clock; empty: the machine's.
  SearchClock(const SearchOptions& options, std::size_t kernels, std::function<double()> now = {})
      : options_(options), kernels_(kernels), now_(now ? std::move(now) : machine_seconds),
        begin_(now_()) {}
  double seconds() const { return now_() - begin_; }
  double left() const { return options_.budget_seconds - seconds(); }
  bool cancelled() const noexcept { return cancelled_; }
  /// Tells of a candidate; false when the search is to end.
  bool tell(const std::string& kernel, std::size_t done, std::size_t candidate,
            std::size_t candidates, const CandidateReport* best) const {
    if (options_.progress && !cancelled_)
      cancelled_ = !options_.progress({kernel, done, kernels_, candidate, candidates, seconds(),
                                       options_.budget_seconds, best ? best->seconds : 0,
                                       best ? best->schedule : ""});
    return !cancelled_;
  }

private:
  static double machine_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  const SearchOptions& options_;
  std::size_t kernels_;
  std::function<double()> now_;
  double begin_;
  mutable bool cancelled_ = false;
};

struct SearchTask {
  const kernel::Region& region;
  TuningKey key;
  const backend::reference::Bindings& sizes;
  bool cold; ///< as WantedKernel::cold
  Candidates candidates;
  std::string_view effort; ///< for the database
  std::string device;      ///< likewise
  double seconds;          ///< to spend
  std::size_t done;        ///< kernels before this one, for the progress
};

/// The winner; nothing when none was chosen by measurement, and the greedy schedule stays. Puts
/// what it finds into the database as it finds it, and counts in `measured` what it compiled or
/// timed. Error when there is no worker, or no device for it.
std::optional<kernel::Chosen> search_region(SearchTask& task, MeasurementProcess& worker,
                                            TuningDatabase& database, const SearchClock& clock,
                                            RegionSearch& report, std::int64_t& measured);

} // namespace egret::compiler

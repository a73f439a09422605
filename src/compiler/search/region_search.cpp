#include "compiler/search/region_search.h"

#include "compiler/search/timing.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace egret::compiler {

namespace {

/// Rounds of a first measurement, beside the greedy candidate, and when it gives up.
constexpr int kFirstRounds = 15;
constexpr double kFirstSample = 2e-4, kFirstSeconds = 0.2; ///< of a sample, and of all about
constexpr double kGiveUp = 1.5;
/// Who comes to the last measurement: those not slower than the greedy candidate, as far as a first
/// look tells, and not far behind the best; and how many.
constexpr double kNear = 1.06, kBehind = 1.15;
constexpr std::size_t kFinalists = 4;
constexpr int kLeastRounds = 5, kUsualRounds = 15, kMostRounds = 101;
constexpr double kFinalSample = 4e-4;
constexpr double kFinalSeconds = 2; ///< that the last measurement takes, about
/// Of a region's time, what is kept for the last measurement and the winner's check: seconds, or
/// more where these take longer, at most a share.
constexpr double kDecision = 3, kDecisionShare = 0.3, kMostShare = 0.5;
/// A measurement that is under way may end so many seconds after the budget.
constexpr double kGrace = 0.3;
/// Arguments of more bytes are read and written cold.
constexpr double kColdBytes = 8 << 20;
/// Regions that are too large to make inputs for, beside those of the program itself: on the host
/// alone, and where a device has memory of its own.
constexpr double kMostBytes = 1536e6, kMostGpuBytes = 2560e6;
/// Candidates that the worker compiles ahead of their measurements.
constexpr std::size_t kAhead = 40;
/// Nobody notices.
constexpr double kShort = 1.2e-6;

using State = MeasurementResult::State;
using Reason = MeasurementResult::Reason;

class RegionSearcher {
public:
  RegionSearcher(SearchTask& task, MeasurementProcess& worker, TuningDatabase& database,
                 const SearchClock& clock, RegionSearch& report, std::int64_t& measured)
      : task_(task), list_(task.candidates.list), worker_(worker), database_(database),
        clock_(clock), report_(report), measured_(measured), end_(clock.seconds() + task.seconds),
        looks_end_(end_ - std::min(kDecision, kDecisionShare * task.seconds)) {}

  std::optional<kernel::Chosen> run() {
    describe();
    if (list_.size() == 1) {
      report_.note = "there is one candidate";
      return std::nullopt;
    }
    if (footprint(task_.region, task_.sizes) >
        (on_gpu(list_[0].program) ? kMostGpuBytes : kMostBytes)) {
      report_.note = "its arguments are too large to try it";
      return std::nullopt;
    }
    for (TuningTrial& measurement : database_.trials(task_.key))
      known_.emplace(measurement.schedule, std::move(measurement));
    if (!find_base())
      return std::nullopt;
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (i != base_)
        first_look(i);
    return decide();
  }

private:
  void describe() {
    for (const Candidate& c : list_) {
      CandidateReport r;
      r.schedule = kernel::to_string(c.schedule);
      r.predicted = c.predicted;
      report_.candidates.push_back(std::move(r));
    }
    for (const Refused& refused : task_.candidates.refused) {
      CandidateReport r;
      r.schedule = kernel::to_string(refused.schedule);
      r.state = "refused";
      r.message = refused.reason;
      report_.candidates.push_back(std::move(r));
    }
  }

  CandidateMeasurement trial_of(std::size_t i) const {
    CandidateMeasurement measurement;
    measurement.region = task_.region;
    measurement.program = list_[i].program;
    measurement.sizes = task_.sizes;
    if (!on_gpu(measurement.program)) // whose launches use all of it
      measurement.workers = task_.key.workers;
    measurement.sample_seconds = kFirstSample;
    measurement.cold = task_.cold || footprint(task_.region, task_.sizes) > kColdBytes;
    measurement.verify = false;
    return measurement;
  }

  static bool on_gpu(const kernel::KernelProgram& program) { return program.launch.threads > 0; }

  /// A check that is cheap for every candidate: all of a small region, or a few points of each
  /// kind; guard zones and what stays unwritten are looked at in full.
  static void check_quickly(CandidateMeasurement& measurement) {
    measurement.verify = true;
    measurement.check.complete_work = 1 << 15;
    measurement.check.sample_work = 1 << 17;
    measurement.check.samples = 48;
  }
  /// One that a winner has to pass: other inputs, special values, results in the memory of
  /// operands.
  static void check_thoroughly(CandidateMeasurement& measurement) {
    measurement.verify = true;
    measurement.check.seed = 2;
    measurement.check.special_values = true;
    measurement.check.share_aliases = true;
    measurement.check.complete_work = 1 << 18;
    measurement.check.sample_work = 1 << 20;
  }

  // A measurement in the worker; what it says of the device is an error. Nothing when the budget
  // was used up before the measurement's end, which says nothing of the kernel.
  std::optional<MeasurementResult> ask(const CandidateMeasurement& measurement, double patience) {
    const double left = std::max(clock_.left(), 0.0) + kGrace;
    MeasurementResult outcome = worker_.run(measurement, std::min(patience, left));
    if (outcome.reason == Reason::Device)
      fail(ErrorKind::Device, "{}", outcome.message);
    if (outcome.reason == Reason::Hang && left < patience) {
      report_.note = "the budget is used up";
      return std::nullopt;
    }
    return outcome;
  }

  /// Rounds of so many seconds that a first look takes.
  static int first_rounds(double round) {
    return static_cast<int>(
        std::clamp(kFirstSeconds / std::max(round, 1e-9), 3.0, 1.0 * kFirstRounds));
  }

  void reject(std::size_t i, const std::string& state, const std::string& message) {
    report_.candidates[i].state = state;
    report_.candidates[i].message = message;
    database_.put(task_.key, TuningTrial{report_.candidates[i].schedule, state, message, 0, 0, 0});
  }

  bool goes_on(std::size_t candidate) const {
    return clock_.seconds() < looks_end_ &&
           clock_.tell(task_.region.name, task_.done, candidate, list_.size(), best());
  }

  /// Of those that were timed; null before the first.
  const CandidateReport* best() const {
    const CandidateReport* best = nullptr;
    for (const CandidateReport& c : report_.candidates)
      if (!c.rejected() && c.seconds > 0 && (!best || c.seconds < best->seconds))
        best = &c;
    return best;
  }

  /// The candidate that others are compared with: the greedy one, or when it is rejected the first
  /// that is not.
  bool find_base() {
    for (base_ = 0; base_ < list_.size() && goes_on(base_); ++base_) {
      CandidateMeasurement measurement = trial_of(base_);
      check_quickly(measurement);
      measurement.repetitions = 3;
      for (std::size_t i = base_ + 1; i < std::min(list_.size(), base_ + 1 + kAhead); ++i)
        if (!known_.contains(kernel::to_string(list_[i].schedule)) && on_gpu(list_[i].program))
          measurement.ahead.push_back(list_[i].program);
      const double begin = clock_.seconds();
      ++measured_;
      const auto outcome = ask(measurement, kPatience);
      if (!outcome)
        return false;
      trial_seconds_ = clock_.seconds() - begin;
      compile_seconds_ = outcome->compile_seconds;
      if (!outcome->ok()) {
        reject(base_, name_of(outcome->reason), outcome->message);
        continue;
      }
      note_time(base_, outcome->seconds, 1, outcome->worst);
      const double decision =
          kLeastRounds * (kFinalists + 1) * report_.candidates[base_].seconds + check_seconds();
      looks_end_ = std::min(looks_end_, end_ - std::min(decision, kMostShare * task_.seconds));
      if (base_ == 0 && report_.candidates[0].seconds < kShort) {
        report_.note = "it is too short to matter";
        remember(0);
        return false;
      }
      return true;
    }
    return false;
  }

  void note_time(std::size_t i, std::span<const double> seconds, double ratio, double error) {
    CandidateReport& r = report_.candidates[i];
    const Timing timing = timing_of(seconds);
    r.state = "timed";
    r.seconds = timing.seconds;
    r.spread = timing.spread;
    r.ratio = ratio;
    errors_[i] = std::max(errors_[i], error);
    database_.put(task_.key, TuningTrial{r.schedule, r.state, "", r.seconds, r.ratio, errors_[i]});
  }

  void first_look(std::size_t i) {
    CandidateReport& r = report_.candidates[i];
    if (auto found = known_.find(r.schedule); found != known_.end()) {
      const TuningTrial& before = found->second;
      r.state = before.state == "timed" ? "known" : before.state;
      r.message = before.message;
      r.seconds = before.seconds;
      r.ratio = before.ratio;
      return;
    }
    if (!goes_on(i))
      return;
    CandidateMeasurement measurement = trial_of(i);
    check_quickly(measurement);
    measurement.baselines.push_back(list_[base_].program);
    measurement.repetitions = first_rounds(2 * report_.candidates[base_].seconds);
    measurement.give_up = kGiveUp;
    ++measured_;
    // As patient as the greedy candidate suggests, which had to start a process and make inputs
    // too.
    const auto outcome = ask(measurement, kSlowStart + 10 * trial_seconds_);
    if (!outcome)
      return;
    if (!outcome->ok())
      return reject(i, name_of(outcome->reason), outcome->message);
    note_time(i, outcome->seconds,
              compare_rounds(outcome->seconds, outcome->baseline_seconds[0]).ratio, outcome->worst);
  }

  bool alive(std::size_t i) const { return !report_.candidates[i].rejected(); }

  /// The last measurement, of those who may win; then the winner's thorough check.
  std::optional<kernel::Chosen> decide() {
    std::vector<std::size_t> finalists;
    double best = 1;
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (const CandidateReport& r = report_.candidates[i]; i != base_ && alive(i) && r.ratio > 0) {
        finalists.push_back(i);
        best = std::min(best, r.ratio);
      }
    std::stable_sort(finalists.begin(), finalists.end(), [&](std::size_t a, std::size_t b) {
      return report_.candidates[a].ratio < report_.candidates[b].ratio;
    });
    std::erase_if(finalists, [&](std::size_t i) {
      return report_.candidates[i].ratio > kNear || report_.candidates[i].ratio > kBehind * best;
    });
    // As many as there is time to measure.
    const double affordable = std::max(clock_.left() - check_seconds(), 0.0) / kLeastRounds;
    while (finalists.size() > kFinalists ||
           (finalists.size() > 1 && round_seconds(finalists) > affordable))
      finalists.pop_back();
    std::sort(finalists.begin(), finalists.end()); // ties go to the earlier
    if (finalists.empty())
      return win(base_);
    while (true) {
      const auto rounds = compete(finalists);
      if (!rounds)
        return std::nullopt;
      const std::size_t place = pick(*rounds);
      if (place == 0)
        return win(base_);
      const std::size_t winner = finalists[place - 1];
      const auto passed = passes(winner);
      if (!passed)
        return std::nullopt;
      if (*passed)
        return win(winner);
      std::erase(finalists, winner);
      if (finalists.empty())
        return win(base_);
    }
  }

  /// Of a winner's check, about: it makes inputs anew, and looks at more points.
  double check_seconds() const {
    return 1.5 * std::max(trial_seconds_ - compile_seconds_, 0.0) + kGrace;
  }

  /// Of a round of the last measurement.
  double round_seconds(const std::vector<std::size_t>& finalists) const {
    double round = std::max(kFinalSample, report_.candidates[base_].seconds);
    for (const std::size_t i : finalists)
      round += std::max(kFinalSample, report_.candidates[i].seconds);
    return round;
  }

  /// Seconds of each program by round, the base first; nothing when there was no time for it.
  std::optional<std::vector<std::vector<double>>>
  compete(const std::vector<std::size_t>& finalists) {
    CandidateMeasurement measurement = trial_of(base_);
    measurement.sample_seconds = kFinalSample;
    for (const std::size_t i : finalists)
      measurement.baselines.push_back(list_[i].program);
    const double round = round_seconds(finalists);
    const double seconds = std::min(std::max(kFinalSeconds, kUsualRounds * round),
                                    std::max(clock_.left() - check_seconds(), 0.0));
    measurement.repetitions =
        static_cast<int>(std::clamp(seconds / round, double{kLeastRounds}, double{kMostRounds}));
    clock_.tell(task_.region.name, task_.done, list_.size(), list_.size(), best());
    ++measured_;
    const auto outcome = ask(measurement, kPatience);
    if (!outcome)
      return std::nullopt;
    if (!outcome->ok()) // all of them ran before: it is the machine
      return {{{1.0}}};
    std::vector<std::vector<double>> rounds{outcome->seconds};
    for (std::size_t f = 0; f < finalists.size(); ++f) {
      rounds.push_back(outcome->baseline_seconds[f]);
      note_time(finalists[f], rounds.back(), compare_rounds(rounds.back(), rounds[0]).ratio, 0);
    }
    note_time(base_, rounds[0], 1, 0);
    return rounds;
  }

  /// Nothing when there was no time for it.
  std::optional<bool> passes(std::size_t i) {
    CandidateMeasurement measurement = trial_of(i);
    check_thoroughly(measurement);
    ++measured_;
    const auto outcome = ask(measurement, kPatience);
    if (!outcome)
      return std::nullopt;
    if (!outcome->ok())
      reject(i, name_of(outcome->reason), outcome->message);
    errors_[i] = std::max(errors_[i], outcome->worst);
    return outcome->ok();
  }

  kernel::Chosen win(std::size_t i) {
    remember(i);
    return kernel::Chosen{list_[i].schedule, list_[i].program};
  }

  void remember(std::size_t i) {
    const CandidateReport& r = report_.candidates[i];
    report_.chosen = r.schedule;
    report_.predicted = r.predicted;
    report_.seconds = r.seconds;
    report_.greedy_seconds = report_.candidates[base_].seconds;
    TuningChoice choice;
    choice.schedule = r.schedule;
    choice.name = task_.region.name;
    choice.device = task_.device;
    choice.effort = task_.effort;
    choice.seconds = r.seconds;
    choice.spread = r.spread;
    choice.greedy_seconds = report_.greedy_seconds;
    choice.error = errors_[i];
    choice.candidates = static_cast<std::int64_t>(
        std::count_if(report_.candidates.begin(), report_.candidates.end(),
                      [](const CandidateReport& c) { return c.state != "untried"; }));
    database_.put(task_.key, choice);
  }

  static constexpr double kPatience = 60, kSlowStart = 3; // seconds
  SearchTask& task_;
  const std::vector<Candidate>& list_;
  MeasurementProcess& worker_;
  TuningDatabase& database_;
  const SearchClock& clock_;
  RegionSearch& report_;
  std::int64_t& measured_;
  double end_;       ///< of this region's time
  double looks_end_; ///< when first looks end: the rest of the time is for the decision
  std::size_t base_ = 0;
  double trial_seconds_ = 0, compile_seconds_ = 0; ///< of the base's measurement
  std::map<std::string, TuningTrial> known_;
  std::map<std::size_t, double> errors_;
};

} // namespace

std::optional<kernel::Chosen> search_region(SearchTask& task, MeasurementProcess& worker,
                                            TuningDatabase& database, const SearchClock& clock,
                                            RegionSearch& report, std::int64_t& measured) {
  return RegionSearcher(task, worker, database, clock, report, measured).run();
}

} // namespace egret::compiler

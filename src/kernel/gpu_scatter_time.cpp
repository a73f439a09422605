#include "kernel/gpu_scatter_time.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel {

namespace {

constexpr double kScatterLanes = 32;
/// Of tables and atomic operations: at the least, and for an element of a table.
constexpr double kTablesLeast = 5e-6, kDelivered = 4e-12;

} // namespace

UpdateTimes::UpdateTimes(const ScatterForm& form, const Region& region, const Target& target)
    : updates_(double(about(form.update_count))), columns_(double(about(form.column_count))),
      bins_(std::max(1.0, double(about(form.bins)))), workers_(target.workers),
      flops_(flops_of(region.stages[std::size_t(form.stage)])),
      shared_bytes_(double(target.shared_bytes)) {}

double UpdateTimes::counters(int threads, int across, double groups, std::int64_t bytes) const {
  constexpr double kLeast = 4.5e-6, kBin = 21e-9, kUpdate = 39e-9, kFlop = 5e-9, kFreeFlops = 2,
                   kAdded = 0.116e-6, kPart = 4e-12, kBytes = 4e12;
  const double tiles = std::ceil(columns_ / across), slices = double(threads) / across,
               blocks = std::clamp(shared_bytes_ / double(bytes + 1024), 1.0, 16.0),
               rounds = std::ceil(groups * tiles / (workers_ * std::floor(blocks))),
               serial = std::ceil(updates_ / (groups * slices)), elements = bins_ * columns_;
  const bool warps = groups > kFewScatterGroups && elements <= kMostScatteredByWarps;
  const double adders = groups * tiles * threads / (warps ? kScatterLanes : 1),
               added =
                   std::ceil(elements / adders) * std::ceil(groups / (warps ? kScatterLanes : 2));
  return kLeast +
         rounds * ((bins_ + std::max(bins_, slices)) * kBin +
                   serial * (kUpdate + kFlop * std::max(0.0, flops_ - kFreeFlops))) +
         added * kAdded + elements * groups * kPart + 4 * numbers() / kBytes;
}

double UpdateTimes::integers(bool by_update, Monoid monoid) const {
  constexpr double kLeast = 9e-6, kLeastAlone = 11e-6, kSector = 50e-12, kMeet = 24e-9,
                   kSectorNumbers = 8, kMeetAlone = 90e-9, kMostAlone = 400e-12, kElement = 10e-12;
  constexpr double kLeastOfOne = 5.5e-6, kOne = 0.4;
  const double sectors = updates_ * (by_update ? std::ceil(columns_ / kSectorNumbers) : columns_);
  const double each =
      columns_ > 1 ? kSector + kMeet / bins_ : std::min(kSector + kMeetAlone / bins_, kMostAlone);
  return bins_ * columns_ * kElement + (monoid == Monoid::Sum
                                            ? (columns_ > 1 ? kLeast : kLeastAlone) + sectors * each
                                            : kLeastOfOne + kOne * sectors * each);
}

double UpdateTimes::partitions() const {
  constexpr double kLeast = 12.5e-6, kNumber = 20e-12, kElement = 3.3e-12;
  return kLeast + numbers() * kNumber + bins_ * columns_ * kElement;
}

double UpdateTimes::rows() const {
  // Of one column, lanes share no bucket, and those that overflow take longer than they save.
  constexpr double kLeast = 9e-6, kLeastOfOne = 11.5e-6, kRow = 65e-12, kNumber = 1.3e-12,
                   kOverfull = 120e-9, kBin = 13e-12, kSparseBin = 2e-12;
  const double bin = 2 * updates_ <= bins_ ? kSparseBin : kBin; // those without updates are passed
  return (columns_ > 1 ? kLeast : kLeastOfOne) + updates_ * kRow + numbers() * kNumber +
         updates_ / bins_ * kOverfull + bins_ * bin;
}

double UpdateTimes::sorted() const {
  constexpr double kLeast = 25e-6, kRow = 100e-12, kNumber = 1.5e-12;
  return kLeast + updates_ * kRow + numbers() * kNumber;
}

double UpdateTimes::tables(double groups, double elements) const {
  return kTablesLeast + numbers() * point() / std::min(groups, workers_) +
         groups * elements * kDelivered;
}

double UpdateTimes::atomics() const {
  constexpr double kAtomic = 40e-12;
  return kTablesLeast + numbers() * (kAtomic + point() / workers_);
}

double UpdateTimes::best_groups(double elements) const {
  const double best = std::sqrt(numbers() * point() / (elements * kDelivered));
  return best >= workers_ / 2 ? std::max(best, workers_) : best;
}

double UpdateTimes::point() const {
  constexpr double kInstructions = 6, kInstructionsOfFlop = 3, kInstructionsASecond = 128 * 1.7e9;
  return (kInstructions + kInstructionsOfFlop * flops_) / kInstructionsASecond;
}

ColumnTimes column_times(const ScatterForm& form, const Target& target) {
  constexpr double kUpdate = 0.4e-6, kUpdates = 1.2e-6, kIssue = 1.1e-6, kLeast = 60e-6,
                   kOther = 0.25e-9;
  const double updates = double(about(form.update_count)),
               columns = double(about(form.column_count)),
               rounds = columns / (double(target.workers) * target.threads),
               steps = std::ceil(updates / kScatterLanes);
  return {updates * std::max(1.0, rounds) * kUpdate,
          steps * (kUpdates + std::max(0.0, rounds * kScatterLanes - 0.25) * kIssue),
          kLeast + updates * columns * kOther};
}

} // namespace egret::kernel

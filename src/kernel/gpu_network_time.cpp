// An estimate of how long networks over items in registers take.
#include "kernel/gpu_network.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel {

namespace {

/// Instructions of a comparison of two items in a thread, and of one that a lane makes with
/// another.
struct ItemCost {
  double exchange, across;
};

ItemCost item_cost(const ItemType& type) {
  if (type.paired)
    return type.word == DType::I32 ? ItemCost{9, 12} : ItemCost{11, 16};
  return type.word == DType::I32 ? ItemCost{2, 4} : ItemCost{6, 9};
}

/// Of a merge of two halves of `n` items in a thread.
double cleaning(double n) {
  return n / 2 * std::log2(std::max(1.0, n));
}

/// Instructions of each thread, of which `warps` run on the whole device.
double compute_time(double instructions, double warps, const Target& target) {
  constexpr double kSchedulers = 4, kNanoseconds = 0.6; // of a cycle
  // Fewer warps than this leave a scheduler waiting for results.
  constexpr double kBusy = 3;
  const double each = warps / (kSchedulers * std::max(1, target.workers));
  return instructions * std::max(kBusy, std::ceil(each)) * kNanoseconds;
}

/// Of reading the rows, of which `together` elements beside each other are read at a time.
double memory_time(const SortForm& form, double together, const Target& target) {
  constexpr double kSector = 32, kBytesPerNanosecond = 30; // of a multiprocessor
  const double element = form.bits / 8.0;
  const double all = double(about(form.row_count)) * double(form.length.value()) * element;
  return all * std::max(1.0, kSector / (together * element)) /
         (kBytesPerNanosecond * std::max(1, target.workers));
}

double together(const RowGroup& group) {
  return group.across ? group.lanes < 32 ? 32.0 / group.lanes : 1 : std::min(group.lanes, 32);
}

} // namespace

double network_time(const SortForm& form, const GpuNetworkShape& s, const Target& target) {
  const ItemCost item = item_cost(item_type(form, false));
  const double each = s.each;
  const std::int64_t wanted = s.group.lanes == 1 ? form.kept.value() : s.each;
  double work = 10 * each + item.exchange * double(network_pairs(s.each, wanted).size());
  int steps = 1;
  for (int run = 1; run < s.group.lanes; run *= 2, ++steps)
    work += item.across * each * steps + item.exchange * cleaning(each);
  if (!s.group.across) // through shared memory
    work += 20 * each;
  const bool staged = s.group.lanes == 1 && !s.group.across;
  const double warps = double(about(form.row_count)) * s.group.lanes / 32;
  return compute_time(work, warps, target) +
         memory_time(form, staged ? 32 : together(s.group), target);
}

double lists_time(const SortForm& form, const GpuListShape& s, const Target& target) {
  /// Of a barrier of the grid and what follows.
  constexpr double kSecondLevel = 4000;
  const ItemCost item = item_cost(item_type(form, false));
  const double list = double(network_power(form.kept.value())), each = s.each;
  const auto sort = [&](double length, double lanes) {
    const double chunks = std::ceil(length / (each * lanes));
    const double sorted = std::min(each, list);
    double work =
        chunks *
        (8 * each + item.exchange * double(network_pairs(s.each, std::int64_t(sorted)).size()));
    if (chunks > 1)
      work += chunks * (item.exchange * (sorted + cleaning(list)) + 10);
    return work + std::log2(lanes) * (item.across * list + item.exchange * cleaning(list)) +
           3 * list;
  };
  const double rows = double(about(form.row_count)), lanes = s.group.lanes,
               slices = double(s.slices);
  double time = compute_time(sort(double(form.length.value()) / slices, lanes),
                             rows * slices * lanes / 32, target);
  if (s.slices > 1)
    time += kSecondLevel + compute_time(sort(slices * double(form.kept.value()), lanes),
                                        rows * lanes / 32, target);
  return time + memory_time(form, together(s.group), target);
}

} // namespace egret::kernel

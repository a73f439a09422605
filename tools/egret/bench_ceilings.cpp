// What the machine can do at most, measured in the run that is compared with it.
#include "bench.h"

#include "backend/cpu/ceilings.h"
#include "backend/cpu/cpu_device.h"

#include <algorithm>
#include <map>
#include <utility>

namespace egret::tool::bench {

namespace {

constexpr double kMega = 1 << 20;

double measured(Limit limit, std::int64_t bytes) {
  using namespace backend::cpu;
  auto device = make_cpu_device();
  switch (limit) {
  case Limit::PeakFma:
    return peak_fma_f32(*device).best;
  case Limit::Copy: // half of the bytes are read, half written
    return std::max(copy_bandwidth(*device, bytes / 2, false).median,
                    copy_bandwidth(*device, bytes / 2, true).median);
  case Limit::Read:
    return read_bandwidth(*device, bytes).median;
  case Limit::None:
    break;
  }
  return 0;
}

} // namespace

double ceiling(Limit limit, double bytes) {
  static std::map<std::pair<Limit, std::int64_t>, double> known;
  if (limit == Limit::None)
    return 0;
  auto key = std::pair(limit, limit == Limit::PeakFma ? 0 : static_cast<std::int64_t>(bytes));
  auto found = known.find(key);
  if (found == known.end())
    found = known.emplace(key, measured(key.first, key.second)).first;
  return found->second;
}

std::vector<Workload> ceiling_workloads() {
  return {
      {"peak_fma_f32", "ceiling: f32 multiply-adds in registers", "f32", Limit::PeakFma, {}, 0},
      {"copy_f32_64m",
       "ceiling: copy of 64 MiB (read and written counted)",
       "f32",
       Limit::Copy,
       {},
       128 * kMega},
      {"copy_f32_1g", "ceiling: copy of 1 GiB", "f32", Limit::Copy, {}, 2048 * kMega},
      {"read_f32_1g", "ceiling: sum of 1 GiB", "f32", Limit::Read, {}, 1024 * kMega},
  };
}

} // namespace egret::tool::bench

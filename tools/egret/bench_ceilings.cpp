// What the machine can do at most, measured in the run that is compared with it.
#include "bench.h"

#include "backend/cpu/ceilings.h"
#include "backend/cpu/cpu_device.h"
#include "egret/compile.h"
#include "egret/device.h"
#include "egret/functional.h"
#include "egret/random.h"
#include "runtime/runtime.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace egret::tool::bench {

namespace {

constexpr double kMega = 1 << 20;

double of_cpu(Limit limit, std::int64_t bytes) {
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

/// Bytes a second of a program with one input of so many words, in whole rows; `moved` counts the
/// input's bytes and the result's.
double rate(Tensor (*program)(const Tensor&), std::int64_t words, double moved) {
  constexpr std::int64_t kRow = 4096;
  const std::int64_t rows = std::max<std::int64_t>(1, words / kRow);
  std::vector<Tensor> inputs;
  for (std::uint64_t i = 0; i < sets_of(4.0 * static_cast<double>(words)); ++i) {
    Generator generator(i);
    inputs.push_back(randint({rows, kRow}, 0, std::int64_t{1} << 32, generator, DType::U32));
    inputs.back().eval();
  }
  auto compiled = compile(program, {.name = "ceiling"});
  std::size_t turn = 0;
  Tensor result;
  const Times times = time_runs(
      [&] {
        result = Tensor();
        result = compiled(inputs[turn++ % inputs.size()]);
      },
      {.seconds = 0.05});
  return moved * static_cast<double>(rows * kRow) / static_cast<double>(words) / times.median();
}

Tensor copied(const Tensor& words) { // changed, or it would be no work
  return words ^ 77;
}
Tensor largest_of_rows(const Tensor& words) {
  return words.max(-1);
}

double of_gpu(Limit limit, std::int64_t bytes) {
  switch (limit) {
  case Limit::Copy:
    return rate(copied, bytes / 8, static_cast<double>(bytes));
  case Limit::Read:
    return rate(largest_of_rows, bytes / 4, static_cast<double>(bytes));
  default:
    return 0;
  }
}

} // namespace

double ceiling(Limit limit, double bytes) {
  if (limit == Limit::None)
    return 0;
  static std::map<std::tuple<std::string, Limit, std::int64_t>, double> known;
  const auto size = limit == Limit::PeakFma ? 0 : static_cast<std::int64_t>(bytes);
  auto [place, fresh] = known.try_emplace({device(), limit, size}, 0);
  if (fresh)
    place->second =
        runtime::Runtime::instance().target().is_gpu() ? of_gpu(limit, size) : of_cpu(limit, size);
  return place->second;
}

std::vector<Workload> ceiling_workloads() {
  auto ceiling = [](const char* name, const char* what, Limit limit, double bytes, Judged judged) {
    return Workload{name, what, "f32", limit, {}, bytes, judged, bytes};
  };
  return {
      ceiling("peak_fma_f32", "ceiling: f32 multiply-adds in registers", Limit::PeakFma, 0,
              Judged::Cpu),
      ceiling("copy_f32_64m", "ceiling: copy of 64 MiB (read and written counted)", Limit::Copy,
              128 * kMega, Judged::Both),
      ceiling("copy_f32_1g", "ceiling: copy of 1 GiB", Limit::Copy, 2048 * kMega, Judged::Both),
      ceiling("read_f32_1g", "ceiling: read of 1 GiB", Limit::Read, 1024 * kMega, Judged::Both),
      ceiling("copy_f32_4g", "ceiling: copy of 4 GiB", Limit::Copy, 8192 * kMega, Judged::Cuda),
  };
}

} // namespace egret::tool::bench

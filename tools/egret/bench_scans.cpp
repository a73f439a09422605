// Workloads limited by memory whose elements depend on all before them.
#include "bench.h"

#include "egret/functional.h"

#include <algorithm>

namespace egret::tool::bench {

namespace {

Tensor cumsum_last(const std::vector<Tensor>& in) {
  return cumsum(in[0], -1);
}

/// Some indices of a row, the first and the last among them.
std::vector<std::int64_t> places_of(std::int64_t length) {
  return sample_rows(length, 4096);
}

/// Sums of the elements between one place and the next, in f64: their running sums are those of the
/// row at these indices.
Tensor sums_between(const std::vector<double>& row, const std::vector<std::int64_t>& places) {
  std::vector<float> sums;
  std::size_t at = 0;
  for (const std::int64_t place : places) {
    double sum = 0;
    for (; at <= static_cast<std::size_t>(place); ++at)
      sum += row[at];
    sums.push_back(static_cast<float>(sum));
  }
  return tensor(sums, Shape{1, static_cast<std::int64_t>(sums.size())});
}

Case scan_case(const std::string& name, std::int64_t rows, std::int64_t length) {
  const std::vector<std::int64_t> shape{rows, length};
  auto make = [=](std::uint64_t set) {
    return std::vector<Tensor>{random_tensor(shape, 16 * set + 1)};
  };
  auto sample = [=](const std::vector<Tensor>& inputs) {
    const auto places = places_of(length);
    Sample s;
    std::vector<Tensor> parts;
    for (const std::int64_t row : sample_rows(rows, 8)) {
      parts.push_back(sums_between(some_rows(inputs[0], {row}).to_vector<double>(), places));
      for (const std::int64_t place : places)
        s.elements.push_back(row * length + place);
    }
    s.inputs = {cat(parts, 0)};
    return s;
  };
  Case c = pure_case(name, cumsum_last, make, sample, 1e-5);
  c.flops = static_cast<double>(rows * length);
  c.bytes = 2 * sizeof(float) * c.flops;
  return c;
}

Workload cumsum_rows(const std::string& name, std::int64_t rows, std::int64_t length) {
  Workload w{name, "running sums of the last axis", name_of(DType::F32), Limit::Copy,
             [=] { return scan_case(name, rows, length); }};
  w.judged = Judged::Both;
  w.memory = 3.0 * sizeof(float) * static_cast<double>(rows * length);
  w.small = [] { return traced(cumsum_last, std::vector<Tensor>{random_tensor({5, 264}, 1)}); };
  return w;
}

} // namespace

std::vector<Workload> scan_workloads() {
  return {
      cumsum_rows("cumsum_f32_16m", 1, 1 << 24),
      cumsum_rows("cumsum_f32_8x2m", 8, 1 << 21),
      cumsum_rows("cumsum_f32_4096x4096", 4096, 4096),
  };
}

} // namespace egret::tool::bench

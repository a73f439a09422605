// One draw: compiled, verified, timed, and divided by what the machine can do at most.
#include "sweep/sweep.h"

#include "egret/compile.h"
#include "egret/device.h"
#include "egret/functional.h"
#include "runtime/profile.h"
#include "runtime/runtime.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <memory>

namespace egret::tool::sweep {

namespace {

constexpr bench::MeasureOptions kBriefly{.seconds = 0.05, .reps = 5};

/// Seconds of a call that computes next to nothing.
double call_seconds() {
  static const double seconds = [] {
    auto compiled = compile([](const Tensor& a) { return a + 1; }, {.name = "ceiling"});
    const Tensor one = full({1}, 1.0).eval();
    Tensor result;
    return bench::time_runs([&] { result = compiled(one); }, kBriefly).median();
  }();
  return seconds;
}

/// Operations a second of a large product, computed as egret does.
double product_rate(DType dtype) {
  const bool gpu = runtime::Runtime::instance().target().is_gpu();
  const std::int64_t size = gpu ? 8192 : 768;
  auto compiled =
      compile([](const Tensor& a, const Tensor& b) { return matmul(a, b); }, {.name = "ceiling"});
  const Tensor a = bench::random_tensor({size, size}, 1, dtype),
               b = bench::random_tensor({size, size}, 2, dtype);
  Tensor result;
  const auto times =
      bench::time_runs([&] { result = Tensor(), result = compiled(a, b); }, kBriefly);
  return 2 * std::pow(static_cast<double>(size), 3) / times.seconds.front();
}

/// The most operations a second of a dtype: of multiply-adds in registers where that is known, of a
/// large product where its units are faster.
double peak(DType dtype) {
  static std::map<DType, double> known;
  auto [place, fresh] = known.try_emplace(dtype, 0);
  if (fresh) {
    const double fma = bench::ceiling(bench::Limit::PeakFma, 0) * (dtype == DType::F64 ? 0.5 : 1);
    place->second = fma > 0 && (dtype == DType::F32 || dtype == DType::F64)
                        ? fma
                        : std::max(fma, product_rate(dtype));
  }
  return place->second;
}

/// Bytes a second of a copy of about as many bytes.
double copy_rate(double bytes) {
  const auto whole = static_cast<std::uint64_t>(std::max(bytes, 65536.0));
  return bench::ceiling(bench::Limit::Copy, static_cast<double>(std::bit_floor(whole)));
}

/// The kernels of a run and how often each was launched.
Json schedules_of(const std::function<void()>& run) {
  std::vector<std::pair<std::string, int>> seen;
  const auto see = [&](const runtime::LaunchRecord& launch) {
    const std::string text =
        fmt::format("{} [{}] {}", launch.kernel.name, launch.kernel.form, launch.kernel.schedule);
    const auto at = std::find_if(seen.begin(), seen.end(),
                                 [&](const auto& each) { return each.first == text; });
    if (at == seen.end())
      seen.emplace_back(text, 1);
    else
      ++at->second;
  };
  {
    const runtime::Observing observing({.launch = see});
    run();
  }
  constexpr std::size_t kShown = 8;
  Json list = Json::array();
  for (std::size_t i = 0; i < std::min(kShown, seen.size()); ++i)
    list.push_back(seen[i].second == 1 ? seen[i].first
                                       : fmt::format("{} x {}", seen[i].second, seen[i].first));
  if (seen.size() > kShown)
    list.push_back(fmt::format("and {} others", seen.size() - kShown));
  return list;
}

struct Floor {
  double seconds = 0;
  const char* limit = "";
};

/// The least time that the machine could take.
Floor floor_of(const Program& program, double bytes, double flops) {
  const auto steps = static_cast<double>(program.steps);
  const double moving = bytes / copy_rate(bytes / steps),
               calculating = flops > 0 ? flops / peak(program.products) : 0,
               calling = call_seconds();
  const double most = std::max({moving, calculating, calling});
  return {most, most == calling ? "launch" : most == moving ? "bytes" : "flops"};
}

} // namespace

Json drawn_line(const Kind& kind, const Options& options, double mb, std::uint64_t index) {
  return {{"kind", kind.name},
          {"seed", options.seed},
          {"index", index},
          {"mb", mb},
          {"params", draw(kind, options.seed, index, limits_of(mb))}};
}

void measure(const Kind& kind, Json& line, const Options& options) {
  const Json inputs = line.at("params").at("inputs");
  const Program program = kind.program(line.at("params"));
  const auto seen = [inputs](const Tensors& bases) {
    Tensors result;
    for (std::size_t i = 0; i < bases.size(); ++i)
      result.push_back(view(bases[i], inputs[i]));
    return result;
  };
  auto compiled =
      compile([seen, run = program.run](const Tensors& bases) { return run(seen(bases)); },
              {.name = kind.name});
  std::vector<Tensors> sets = {make_inputs(inputs, 0)};
  for (std::uint64_t i = 1; i < bench::sets_of(bytes_of(inputs)); ++i)
    sets.push_back(make_inputs(inputs, i));
  std::size_t last = 0;
  Verification verified;
  bench::Case c;
  c.run = [&] {
    last = (last + 1) % sets.size();
    return compiled(sets[last]);
  };
  double bytes = program.bytes;
  c.check = [&](const Tensors& outputs) {
    if (program.bytes == 0) {
      bytes = bytes_of(inputs);
      for (const Tensor& output : outputs)
        bytes += static_cast<double>(output.numel()) * static_cast<double>(size_of(output.dtype()));
    }
    verified = verify(program, inputs, sets[last], outputs);
    return bench::Check{verified.ok, verified.worst};
  };
  const bench::Measurement m = bench::measure_case(c, options.measure);
  line["device"] = device();
  line["ok"] = verified.ok;
  line["verified"] = verified.how;
  line["worst_error"] = std::isfinite(verified.worst) ? Json(verified.worst) : Json("inf");
  if (!verified.ok)
    line["error"] = verified.message;
  bench::unsearched([&] {
    const double flops = program.elements ? 2 * operations(program, seen(sets[0])) : program.flops;
    const Floor floor = floor_of(program, bytes, flops);
    line["ms_median"] = m.ms_median;
    line["ms_min"] = m.ms_min;
    line["reps"] = m.reps;
    line["bytes"] = bytes;
    line["flops"] = flops;
    line["floor_ms"] = 1e3 * floor.seconds;
    line["limit"] = floor.limit;
    line["of_roofline"] = 1e3 * floor.seconds / m.ms_median;
  });
  line["kernels"] = m.kernels;
  line["peak_bytes"] = m.peak_bytes;
  line["compile_seconds"] = m.compile_seconds;
  line["search_seconds"] = m.search_seconds;
  if (m.ratio > 0)
    line["ratio"] = m.ratio;
  line["schedules"] = schedules_of([&] { c.run(); });
}

} // namespace egret::tool::sweep

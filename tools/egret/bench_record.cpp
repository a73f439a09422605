// What it costs that a run is recorded: the same launches with and without a Record or a Profile.
#include "bench.h"

#include "egret/functional.h"
#include "egret/profile.h"
#include "egret/record.h"

#include "support/child_process.h"

#include <memory>

namespace egret::tool::bench {

namespace {

constexpr std::int64_t kRows = 512, kColumns = 2048;

Tensor sum_of_sums(const Tensor& x) {
  return (exp(x).sum(0) + tanh(x).sum(0)).sum();
}

/// What a case writes lives as long as the case: it is open in each run, and goes afterwards.
template <class Written>
struct Open {
  TemporaryFolder folder{"bench", "egret-record"};
  Written written{(folder / "run").string()};
};

Case launches_case(std::shared_ptr<void> open) {
  auto x = std::make_shared<Tensor>(random_tensor({kRows, kColumns}, 1));
  Case c;
  c.run = [x, open] { return std::vector<Tensor>{sum_of_sums(*x).eval()}; };
  c.check = [x](const std::vector<Tensor>& outputs) {
    return compare(outputs[0].to_vector<double>(), by_reference([&] { return sum_of_sums(*x); }),
                   1e-5);
  };
  c.flops = 3.0 * kRows * kColumns;
  c.bytes = 4.0 * kRows * kColumns;
  return c;
}

Workload launches(const std::string& name, const std::string& what,
                  const std::function<std::shared_ptr<void>()>& open) {
  Workload w{name, what, name_of(DType::F32), Limit::None, [=] { return launches_case(open()); }};
  w.judged = Judged::Both;
  return w;
}

} // namespace

std::vector<Workload> record_workloads() {
  return {launches("record_none_f32_512x2048", "two sums by lazy operations: beside it the others",
                   [] { return nullptr; }),
          launches("record_open_f32_512x2048", "the same while a Record is open",
                   [] { return std::make_shared<Open<Record>>(); }),
          launches("record_profile_f32_512x2048", "the same while a Profile is open",
                   [] { return std::make_shared<Open<Profile>>(); })};
}

} // namespace egret::tool::bench

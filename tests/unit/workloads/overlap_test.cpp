// Launches that begin before the one before has ended: what a plan says of each, on a driver that
// runs no kernel.
#include "egret/compile.h"
#include "egret/device.h"
#include "egret/functional.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace egret {
namespace {

using testing::FakeLaunch;
using testing::ScopedEnvironment;

struct Seen {
  unsigned long long settled = 0; ///< EgretArgs::settled
};

/// Adds a Seen to the vector at `data` for a launch with a ring.
void note(const FakeLaunch& launch, void* data) {
  if (std::strstr(launch.text, "eg_bulk_copy(") == nullptr)
    return;
  int pointers = 0, dims = 0, scalars = 0;
  const char* arguments = std::strstr(launch.text, "struct EgretArgs");
  ASSERT_NE(arguments, nullptr);
  ASSERT_EQ(std::sscanf(arguments,
                        "struct EgretArgs {\n  void* p[%d];\n  long long d[%d];\n  unsigned long "
                        "long s[%d];",
                        &pointers, &dims, &scalars),
            3)
      << launch.text;
  Seen seen;
  std::memcpy(&seen.settled,
              static_cast<const char*>(launch.args) +
                  8 * static_cast<std::size_t>(pointers + dims + scalars),
              sizeof seen.settled);
  static_cast<std::vector<Seen>*>(data)->push_back(seen);
}

class Overlap : public ::testing::Test {
protected:
  static constexpr std::int64_t kWidth = 512;
  static Tensor filled(std::int64_t rows) { return full({rows, kWidth}, 0.5f).eval(); }

  /// The launches of one run that have a ring.
  template <class F>
  std::vector<Seen> rings_of(F&& run) {
    std::vector<Seen> rings;
    fake_.launcher = note;
    fake_.launcher_data = &rings;
    run();
    fake_.launcher = nullptr;
    return rings;
  }

  void TearDown() override { use_device("cpu"); }

private:
  ScopedEnvironment driver_{"EGRET_CUDA_DRIVER", EGRET_FAKE_CUDA};
  ScopedEnvironment nvrtc_{"EGRET_NVRTC", EGRET_FAKE_CUDA};
  testing::TemporaryFolder folder_;
  ScopedEnvironment cache_{"XDG_CACHE_HOME", folder_.path().c_str()};
  testing::FakeCuda& fake_ = testing::fake_cuda(EGRET_FAKE_CUDA);
};

Tensor two_layers(const Tensor& x, const Tensor& a, const Tensor& b) {
  return matmul(relu(matmul(x, a.transpose())), b.transpose());
}

TEST_F(Overlap, WeightsAreReadEarlyBehindTheFirstLaunchOfAPlan) {
  use_device("cuda");
  const Tensor x = filled(1), a = filled(kWidth), b = filled(kWidth);
  auto step = compile(&two_layers);
  const std::vector<Seen> rings = rings_of([&] { step(x, a, b).eval(); });
  ASSERT_EQ(rings.size(), 2u) << step.explain();
  // What came before the plan may still be writing what the first one reads.
  EXPECT_EQ(rings[0].settled, 0u);
  EXPECT_EQ(rings[1].settled, 1u);
}

Tensor second_changes(const Tensor& x, const Tensor& a, Tensor& b) {
  b = b * 2;
  return matmul(relu(matmul(x, a.transpose())), b.transpose());
}

TEST_F(Overlap, WhatThePlanWritesIsNotReadEarly) {
  use_device("cuda");
  const Tensor x = filled(1), a = filled(kWidth);
  Tensor b = filled(kWidth);
  auto step = compile(&second_changes);
  const std::vector<Seen> rings = rings_of([&] { step(x, a, b).eval(); });
  ASSERT_FALSE(rings.empty()) << step.explain();
  EXPECT_EQ(rings.back().settled, 0u) << step.explain();
}

} // namespace
} // namespace egret

// Whole steps through the public API: one submission, no allocation, values in place.
#include "egret/egret.h"

#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

TEST(GpuSteps, TheSecondCallIsOneSubmissionWithoutAllocation) {
  Generator random(1);
  Tensor w = randn({64, 64}, random), b = zeros({64});
  auto step = compile([](Tensor& weight, Tensor& bias, const Tensor& x) {
    Tensor y = tanh(matmul(x, weight) + bias);
    weight = weight - 0.01f * matmul(x.transpose(0, 1), y);
    bias = bias - 0.01f * y.sum({0});
    return y.sum();
  });
  const Tensor x = randn({32, 64}, random);
  for (int i = 0; i < 4; ++i)
    step(w, b, x);
  const Counters before = counters();
  for (int i = 0; i < 10; ++i)
    step(w, b, x);
  const Counters used = counters() - before;
  EXPECT_EQ(used.submissions, 10u);
  EXPECT_EQ(used.device_allocations, 0u);
  EXPECT_EQ(used.compiles, 0u);
  EXPECT_EQ(used.host_copies, 0u);
  EXPECT_TRUE(std::isfinite(step(w, b, x).item<float>()));
}

TEST(GpuSteps, TheCpuComputesTheSame) {
  auto run = [](const std::string& device) {
    use_device(device);
    Generator random(7);
    Tensor w = randn({33, 17}, random);
    auto step = compile([](Tensor& weight, const Tensor& x, const Tensor& scale) {
      Tensor y = softmax(matmul(x, weight), -1);
      weight = weight + scale * matmul(x.transpose(0, 1), y);
      return (y * y).sum();
    });
    std::vector<float> losses;
    for (int i = 0; i < 5; ++i)
      losses.push_back(
          step(w, randn({9, 33}, random), tensor({0.1f * static_cast<float>(i)})).item<float>());
    const auto values = w.to_vector<float>();
    losses.insert(losses.end(), values.begin(), values.end());
    return losses;
  };
  const auto cpu = run("cpu"), gpu = run("cuda");
  ASSERT_EQ(cpu.size(), gpu.size());
  for (std::size_t i = 0; i < cpu.size(); ++i)
    EXPECT_NEAR(cpu[i], gpu[i], 1e-4 * (1 + std::abs(cpu[i]))) << i;
}

TEST(GpuSteps, ValuesMoveToTheDeviceInUse) {
  use_device("cpu");
  const Tensor x = tensor({1.f, 2.f, 3.f});
  (x * 2).to_vector<float>();
  use_device("cuda");
  EXPECT_EQ((x * 2).to_vector<float>(), (std::vector<float>{2, 4, 6}));
  const Tensor y = x + 1;
  y.to_vector<float>();
  use_device("cpu");
  EXPECT_EQ((y * x).to_vector<float>(), (std::vector<float>{2, 6, 12}));
  use_device("cuda");
}

} // namespace
} // namespace egret

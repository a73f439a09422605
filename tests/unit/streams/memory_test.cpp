// The memory of a device: figures, limits, giving back.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/memory.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "egret/random.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace egret {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

Tensor filled(std::int64_t mebibytes, double value) {
  return full({mebibytes << 18}, value).eval();
}

/// No limit behind a test, whatever happens in it.
struct Unlimited {
  ~Unlimited() { set_memory_limit("cpu", 0); }
};

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Memory) << error.what();
    return error.what();
  }
  return "nothing was thrown";
}

void expect_in(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Memory, StatisticsTellWhatIsHeldAndWhatIsReserved) {
  const MemoryStats before = memory_stats("cpu");
  reset_memory_peak("cpu");
  {
    const Tensor a = filled(8, 1);
    const MemoryStats now = memory_stats("cpu");
    EXPECT_EQ(now.in_use - before.in_use, 8 * kMiB);
    EXPECT_EQ(now.values - before.values, 8 * kMiB);
    EXPECT_EQ(now.programs, 0u);
    EXPECT_GE(now.reserved, now.in_use);
    EXPECT_GT(now.allocations, before.allocations);
  }
  const MemoryStats after = memory_stats("cpu");
  EXPECT_EQ(after.in_use, before.in_use);
  EXPECT_GE(after.peak - before.in_use, 8 * kMiB);
  expect_in(after.text(), "reserved");
}

TEST(Memory, TrimGivesBackWhatNothingUses) {
  const Tensor held = filled(4, 2);
  filled(64, 1);
  const std::uint64_t before = memory_stats("cpu").reserved;
  const std::uint64_t given = trim("cpu");
  const MemoryStats after = memory_stats("cpu");
  EXPECT_GE(given, 60 * kMiB);
  EXPECT_EQ(before - after.reserved, given);
  EXPECT_GE(after.reserved, after.in_use);
  EXPECT_EQ(held.sum().item(), 2.0 * (4 << 18));
}

TEST(Memory, ALimitSaysWhatHoldsMemoryAndTheProgramGoesOn) {
  const Unlimited unlimited;
  Tensor a = filled(16, 1);
  Tensor b = filled(8, 3);
  trim("cpu");
  set_memory_limit("cpu", memory_stats("cpu").reserved + 8 * kMiB);
  Tensor pending = full({16 << 18}, 2.0) * 2;
  const std::string text = message_of([&] { pending.eval(); });
  expect_in(text, "16777216 bytes");
  expect_in(text, "the limit is ");
  expect_in(text, "values");
  expect_in(text, "the largest: f32[4194304] (16777216 bytes), f32[2097152] (8388608 bytes)");
  EXPECT_FALSE(pending.is_materialized());
  EXPECT_EQ(b.sum().item(), 3.0 * (8 << 18)) << "other values stay usable";
  expect_in(message_of([&] { tensor(std::vector<float>(16 << 18)); }), "the limit is ");
  a = Tensor(); // frees what the value needs
  EXPECT_EQ(pending.max().item(), 4);
  EXPECT_LE(memory_stats("cpu").reserved, memory_stats("cpu").limit);
}

TEST(Memory, ALimitCountsTheIntermediateValuesOfCompiledFunctions) {
  const Unlimited unlimited;
  const Tensor x = (arange(256 * 1024).reshape({256, 1024}).to(DType::F32) * 1e-4).eval();
  auto gram = compile([](const Tensor& a) {
    const Tensor product = matmul(a.transpose(), a); // 4 MiB between two kernels
    return matmul(product, product).sum();
  });
  const double expected = gram(x).item();
  trim("cpu");
  const std::uint64_t held = memory_stats("cpu").reserved;
  set_memory_limit("cpu", held + 2 * kMiB);
  expect_in(message_of([&] { gram(x); }), "the limit is ");
  set_memory_limit("cpu", held + 64 * kMiB);
  EXPECT_EQ(gram(x).item(), expected);
}

TEST(Memory, ALimitBelowWhatIsInUseHoldsForWhatComes) {
  const Unlimited unlimited;
  const Tensor a = filled(4, 5);
  set_memory_limit("cpu", 1);
  expect_in(message_of([] { filled(4, 1); }), "the limit is 1;");
  EXPECT_EQ(a.to_vector()[7], 5);
}

TEST(Memory, OfDevicesThatAreNotThereIsAnError) {
  for (const auto& run : {std::function<void()>([] { memory_stats("gpu"); }),
                          std::function<void()>([] { set_memory_limit("", 5); }),
                          std::function<void()>([] { trim("cpu:3"); })})
    try {
      run();
      FAIL() << "no such device";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Value) << error.what();
    }
}

TEST(Memory, LoopsOfChangingSizesReserveAtMostAQuarterMoreThanTheirPeak) {
  trim("cpu");
  reset_memory_peak("cpu");
  std::mt19937 random(5);
  Tensor w = filled(8, 0.5);
  for (int i = 0; i < 60; ++i) {
    const auto rows = static_cast<std::int64_t>(64 + random() % 1000);
    Tensor x = full({rows, 1024}, 1.0 + i).eval();
    Tensor y = (x * 2 + 1).eval();
    Tensor z = softmax(y + x).eval();
    EXPECT_NEAR(z[0].sum().item(), 1, 1e-3);
  }
  const MemoryStats stats = memory_stats("cpu");
  EXPECT_LE(stats.reserved, stats.peak + stats.peak / 4 + 5 * kMiB) << stats.text();
}

TEST(Memory, APlainTrainingLoopKeepsNoEarlierParameters) {
  Generator random(1);
  nn::Mlp model({64, 256, 8}, random);
  optim::Sgd optimizer(nn::named_parameters(model), {.lr = 1e-2});
  const Tensor x = randn({16, 64}, random).eval(), y = randn({16, 8}, random).eval();
  const auto step = [&] {
    const Tensor loss = mse_loss(model(x), y);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    return loss.item();
  };
  for (int i = 0; i < 4; ++i)
    step();
  const std::uint64_t before = memory_stats("cpu").in_use;
  const double first = step();
  double last = first;
  for (int i = 0; i < 30; ++i)
    last = step();
  EXPECT_LT(last, first);
  EXPECT_LE(memory_stats("cpu").in_use, before + kMiB / 16) << "of 72 KiB of parameters a step";
}

TEST(Memory, ASteadyTrainingLoopAsksTheSystemForNothing) {
  Tensor w = (arange(64 * 64).reshape({64, 64}).to(DType::F32) * 1e-3).eval().set_requires_grad();
  const Tensor x = ones({32, 64}).eval();
  const auto step = [&] {
    Tensor loss = square(tanh(matmul(x, w))).mean();
    loss.backward();
    {
      NoGrad guard;
      w -= w.grad() * 0.1;
    }
    w.zero_grad();
    return loss.item();
  };
  for (int i = 0; i < 3; ++i)
    step();
  const std::uint64_t before = memory_stats("cpu").system_allocations;
  for (int i = 0; i < 20; ++i)
    step();
  EXPECT_EQ(memory_stats("cpu").system_allocations, before);
}

} // namespace
} // namespace egret

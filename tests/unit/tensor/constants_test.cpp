// Values that depend on no tensor that a program is given: computed by its second run, and kept.
#include <egret/egret.h>

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace egret {
namespace {

constexpr std::int64_t kTransformSize = 96;

/// A cosine transform: the matrix is made from positions alone.
Tensor cosine_transform(const Tensor& x) {
  const Tensor place = arange(kTransformSize, DType::F32);
  const Tensor angles = place.unsqueeze(1) * (place + 0.5) * (3.14159265 / kTransformSize);
  const Tensor matrix = cos(angles) + sin(angles) * exp(place * -0.01);
  return matmul(matmul(x, matrix), matrix.transpose());
}

Tensor rows_of_sines(std::int64_t count) {
  return sin(arange(count * kTransformSize, DType::F32)).reshape({count, kTransformSize}).eval();
}

std::uint64_t launches_while(const std::function<void()>& run) {
  const std::uint64_t before = counters().kernels_launched;
  run();
  return counters().kernels_launched - before;
}

TEST(Constants, AreComputedByTheSecondRunAndKept) {
  auto f = compile(&cosine_transform);
  const Tensor x = rows_of_sines(8);
  std::vector<std::uint64_t> launches;
  std::vector<float> first;
  for (int i = 0; i < 5; ++i) {
    Tensor y;
    launches.push_back(launches_while([&] { y = f(x).eval(); }));
    if (i == 0)
      first = y.to_vector<float>();
    EXPECT_EQ(y.to_vector<float>(), first) << i; // bit for bit
  }
  EXPECT_EQ(launches[1], launches[0]);
  EXPECT_EQ(launches[2], 2u) << f.explain(); // the products
  EXPECT_EQ(launches[4], launches[2]);
  // What it is given is no constant.
  const Tensor other = (x * 2).eval();
  EXPECT_EQ(f(other).eval().to_vector<float>(),
            compile(&cosine_transform)(other).eval().to_vector<float>());
}

TEST(Constants, AreNotKeptBeyondABound) {
  // 32 MiB of numbers that a product reads.
  auto f = compile([](const Tensor& x) {
    const Tensor place = arange(1 << 12, DType::F32), other = arange(1 << 11, DType::F32);
    return matmul(x, sin(place.unsqueeze(1) * (other + 0.25)) + cos(other));
  });
  const Tensor x = ones({4, 1 << 12}).eval();
  const std::uint64_t first = launches_while([&] { f(x).eval(); });
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(launches_while([&] { f(x).eval(); }), first) << i;
}

TEST(Constants, AreNoneUnderAMemoryLimit) {
  auto f = compile(&cosine_transform, {.memory_limit = std::int64_t{1} << 30});
  const Tensor x = rows_of_sines(8);
  const std::uint64_t first = launches_while([&] { f(x).eval(); });
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(launches_while([&] { f(x).eval(); }), first) << i;
}

TEST(Constants, ServeSeveralThreads) {
  auto f = compile(&cosine_transform);
  const Tensor x = rows_of_sines(5);
  const std::vector<float> expected = compile(&cosine_transform)(x).eval().to_vector<float>();
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i)
        wrong[t] += f(x).eval().to_vector<float>() != expected;
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(Constants, OfLazyCodeFollowItsNumbers) {
  const Tensor x = rows_of_sines(8);
  const auto scaled = [&](double by) {
    const Tensor place = arange(kTransformSize, DType::F32);
    return matmul(x, sin(place.unsqueeze(1) * (place + 0.5) * by) + cos(place * by));
  };
  std::vector<std::uint64_t> launches;
  std::vector<std::vector<float>> values;
  for (const double by : {0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.25, 0.125})
    launches.push_back(launches_while([&] { values.push_back(scaled(by).to_vector<float>()); }));
  EXPECT_LT(launches[2], launches[0]);
  EXPECT_EQ(launches[3], launches[0]);
  EXPECT_EQ(launches[5], launches[2]);
  EXPECT_EQ(values[2], values[0]);
  EXPECT_EQ(values[5], values[3]);
  EXPECT_EQ(values[6], values[0]);
  EXPECT_NE(values[3], values[0]);
  EXPECT_NE(values[7], values[3]);
}

} // namespace
} // namespace egret

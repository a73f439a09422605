// A C++ temporary that was passed on is not a value that somebody holds, and a held view is no
// value of its own: what is stored is what variables hold.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/nn.h"
#include "runtime/runtime.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <sstream>
#include <thread>

namespace egret {
namespace {

constexpr std::int64_t kCount = 1 << 12;
constexpr std::uint64_t kBytes = 4 * kCount;

Counters spent(const std::function<void()>& run) {
  const Counters before = counters();
  run();
  return counters() - before;
}

Tensor line() {
  return full({kCount}, 0.25).eval();
}

TEST(Temporaries, AnExpressionStoresItsResultOnly) {
  const Tensor x = line();
  const std::function<void()> reads[] = {
      [&] { tanh(x * 2 + 1).eval(); },
      [&] { (x * 2 + 1).tanh().eval(); },
      [&] { tanh(x * 2 + 1).to_vector(); },
      [&] { std::ostringstream() << tanh(x * 2 + 1); },
      [&] { to_string(tanh(1 + 2 * x)); },
      [&] { eval({tanh(x * 2 + 1)}); },
      [&] { tanh(maximum(x * 2, 0.0) + 1).clone().eval(); },
  };
  for (std::size_t i = 0; i < std::size(reads); ++i) {
    SCOPED_TRACE(i);
    const Counters c = spent(reads[i]);
    EXPECT_EQ(c.kernels_launched, 1u);
    EXPECT_EQ(c.bytes_written, kBytes);
    EXPECT_EQ(c.pool_allocations, 1u);
  }
}

TEST(Temporaries, AnEvaluatedOneIsHeldByWhoGetsIt) {
  const Tensor x = line();
  const Tensor y = tanh(x * 2 + 1).eval();
  EXPECT_TRUE(y.is_materialized());
  EXPECT_EQ(spent([&] { (y + 1).eval(); }).bytes_read, kBytes);
}

TEST(Temporaries, ABroadcastProductNeedsNoMemoryOfItsOwn) {
  const std::int64_t n = 64;
  const Tensor x = full({n, n}, 0.5).eval(), w = full({n, n}, 0.25).eval();
  const std::uint64_t before = counters().bytes_in_use;
  reset_peak_bytes();
  const Tensor y = (x.unsqueeze(1) * w.transpose().unsqueeze(0)).sum(-1).eval();
  EXPECT_LT(counters().peak_bytes - before, 4u * 4 * n * n); // n times as much for the product
  EXPECT_FLOAT_EQ(y[3][5].item<float>(), 0.125f * static_cast<float>(n));
}

// The same expression in one statement, with its temporaries alive, and with a statement between.
#define EXPECT_STORES_ITS_RESULT(...)                                                              \
  do {                                                                                             \
    const Counters apart = spent([&] {                                                             \
      const Tensor result = __VA_ARGS__;                                                           \
      result.eval();                                                                               \
    });                                                                                            \
    const Counters at_once = spent([&] { (__VA_ARGS__).eval(); });                                 \
    EXPECT_EQ(at_once.pool_allocations, apart.pool_allocations) << #__VA_ARGS__;                   \
    EXPECT_EQ(at_once.compiles, 0u) << #__VA_ARGS__;                                               \
  } while (false)

TEST(Temporaries, EveryKindOfFunctionLetsGoOfThem) {
  runtime::Runtime::instance().use(runtime::Engine::Reference);
  const Tensor x = tensor({{0.5, 1.5, 2.5, 3.5}, {4.0, 3.0, 2.0, 1.0}}).eval();
  const Tensor i = tensor({{0, 1, 1, 0}, {1, 0, 0, 1}}).eval(), v = x[0].eval();
  Generator g(1);
#define T (x * 2 + 1)
#define I (i + 0)
  EXPECT_STORES_ITS_RESULT(-T);
  EXPECT_STORES_ITS_RESULT(!(T > 2));
  EXPECT_STORES_ITS_RESULT(T + T);
  EXPECT_STORES_ITS_RESULT(T - 1);
  EXPECT_STORES_ITS_RESULT(1 / T);
  EXPECT_STORES_ITS_RESULT(I % 2);
  EXPECT_STORES_ITS_RESULT(((T == T) & (T < 3)) | (T >= T));
  EXPECT_STORES_ITS_RESULT((I << I) ^ (I >> 1));
  EXPECT_STORES_ITS_RESULT(add(T, T));
  EXPECT_STORES_ITS_RESULT(pow(T, T));
  EXPECT_STORES_ITS_RESULT(T.pow(3));
  EXPECT_STORES_ITS_RESULT(atan2(T, T));
  EXPECT_STORES_ITS_RESULT(where(T > 2, T, T));
  EXPECT_STORES_ITS_RESULT(lerp(T, T, T));
  EXPECT_STORES_ITS_RESULT(isclose(T, T));
  EXPECT_STORES_ITS_RESULT(gelu(T));
  EXPECT_STORES_ITS_RESULT(T.sigmoid().relu().clamp(0, 1).softmax().logsumexp());
  EXPECT_STORES_ITS_RESULT(T.to(DType::F64).clone().detach().abs().sqrt());
  EXPECT_STORES_ITS_RESULT(T.bitcast(DType::I32));
  EXPECT_STORES_ITS_RESULT(T[0]);
  EXPECT_STORES_ITS_RESULT(T[Slice(0, 1)]);
  EXPECT_STORES_ITS_RESULT(T[{Slice::all(), 1}]);
  EXPECT_STORES_ITS_RESULT(T.select(1, 1));
  EXPECT_STORES_ITS_RESULT(T.narrow(1, 1, 2));
  EXPECT_STORES_ITS_RESULT(T.flatten().reshape({2, 4}).permute({1, 0}).unsqueeze(0).squeeze());
  EXPECT_STORES_ITS_RESULT(T.transpose().flip(0).expand({3, 4, 2}));
  EXPECT_STORES_ITS_RESULT(cat({T, T}, 1));
  EXPECT_STORES_ITS_RESULT(stack({T, T}));
  EXPECT_STORES_ITS_RESULT(pad(T, {1, 1}, {0, 0}));
  EXPECT_STORES_ITS_RESULT(roll(T, {1}, {1}));
  EXPECT_STORES_ITS_RESULT(tile(T, {2, 2}));
  EXPECT_STORES_ITS_RESULT(T.sum(0) + T.mean(0) + T.var(0) + T.prod(0) + T.max(0) + T.min(0));
  EXPECT_STORES_ITS_RESULT(T.std());
  EXPECT_STORES_ITS_RESULT(T.argmax(1) + T.argmin(1));
  EXPECT_STORES_ITS_RESULT((T > 3).any(0) | (T > 3).all(0));
  EXPECT_STORES_ITS_RESULT(T.cumsum(1));
  EXPECT_STORES_ITS_RESULT(norm(T));
  EXPECT_STORES_ITS_RESULT(logcumsumexp(T, 1));
  EXPECT_STORES_ITS_RESULT(matmul(T, T.transpose()));
  EXPECT_STORES_ITS_RESULT(T.matmul(T.transpose()));
  EXPECT_STORES_ITS_RESULT(linear(T, T));
  EXPECT_STORES_ITS_RESULT(einsum("ij,kj->ik", {T, T}));
  EXPECT_STORES_ITS_RESULT(gather(T, 1, I));
  EXPECT_STORES_ITS_RESULT(embedding(T, I));
  EXPECT_STORES_ITS_RESULT(scatter_add(T, 1, I, T));
  EXPECT_STORES_ITS_RESULT(index(T, {At(v.to(DType::I64) * 0)}));
  EXPECT_STORES_ITS_RESULT(one_hot(I, 3));
  EXPECT_STORES_ITS_RESULT(tril(T));
  EXPECT_STORES_ITS_RESULT(argsort(T));
  EXPECT_STORES_ITS_RESULT(cross_entropy(T, I[0][Slice(0, 2)]));
  EXPECT_STORES_ITS_RESULT(mse_loss(T, T));
  EXPECT_STORES_ITS_RESULT(layer_norm(T, v * 2, v * 3));
  EXPECT_STORES_ITS_RESULT(scaled_dot_product_attention(T, T, T));
  EXPECT_STORES_ITS_RESULT(
      conv1d(T.unsqueeze(0), T.unsqueeze(0)[{Slice::all(), Slice::all(), Slice(0, 2)}]));
  EXPECT_STORES_ITS_RESULT(max_pool1d(T.unsqueeze(0), 2));
  EXPECT_STORES_ITS_RESULT(erfinv(T * 0.01));
  nn::Linear layer(4, 3, g);
  eval({layer.weight, *layer.bias});
  EXPECT_STORES_ITS_RESULT(layer(relu(layer(T)).sum(-1, true).expand({2, 4})));
#undef T
#undef I
  runtime::Runtime::instance().use(runtime::Engine::Compiled);
}

// --- what they are is not lost

Tensor same(const Operand& a) {
  return a;
}

TEST(Temporaries, ACopyHoldsTheValueForAsLongAsItLives) {
  const Tensor x = line();
  const Tensor kept = same(x * 3); // shares the temporary's handle
  (tanh(kept) + 1).eval();
  EXPECT_TRUE(kept.is_materialized());

  auto read_beside_a_copy = [&](const Operand& a) {
    const Tensor copy = a;
    (copy + 1).eval();
    return copy.is_materialized();
  };
  EXPECT_TRUE(read_beside_a_copy(x * 5));
  auto read_behind_a_copy = [&](const Operand& a) {
    { const Tensor copy = a; }
    (a + 1).eval();
    return a.is_materialized();
  };
  EXPECT_FALSE(read_behind_a_copy(x * 7));

  Tensor assigned;
  auto assign_it = [&](const Operand& a) { assigned = a; };
  assign_it(x * 9);
  (assigned + 1).eval();
  EXPECT_TRUE(assigned.is_materialized());
}

TEST(Temporaries, WhatWasMovedIsEmptyOrStillTheValue) {
  const Tensor x = line();
  Tensor moved = x * 2;
  const Tensor y = exp(std::move(moved));
  EXPECT_FALSE(moved.defined()); // NOLINT: that it is
  try {
    exp(moved);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::State);
  }
  (y + 1).eval();
  EXPECT_TRUE(y.is_materialized());

  Tensor passed = x * 4;
  const Tensor z = add(std::move(passed), 1);
  z.eval();
  EXPECT_EQ(passed.to_vector(), std::vector<float>(kCount, 1.0f)); // NOLINT: an Arg moves nothing
  moved = x + 1;
  EXPECT_EQ(moved[7].item(), 1.25);
}

TEST(Temporaries, ASharedHandleIsHeldByTheOtherCopies) {
  const Tensor x = line();
  Tensor a = x * 2;
  const Tensor b = a;
  const Tensor y = exp(std::move(a));
  y.eval();
  EXPECT_TRUE(b.is_materialized());
  Tensor updated = x.clone();
  const Tensor alias = updated;
  updated += 1;
  EXPECT_EQ(alias[0].item(), 1.25);
}

TEST(Temporaries, GradientsPassThroughThem) {
  Tensor w = tensor({0.5, -1.0, 2.0}).eval();
  w.set_requires_grad();
  auto plain = [&] {
    const Tensor doubled = w * 2;
    const Tensor loss = (doubled.exp() * w).sum();
    return grad(loss, w).to_vector();
  };
  const auto want = plain();
  EXPECT_EQ(grad(((w * 2).exp() * w).sum(), w).to_vector(), want);
  ((w * 2).exp() * w).sum().backward();
  EXPECT_EQ(w.grad().to_vector(), want);
  const Tensor between = w * 3;
  const Tensor loss = tanh(between * 1).sum();
  EXPECT_EQ(grad(loss, between).to_vector(), grad(tanh(between).sum(), between).to_vector());
  EXPECT_EQ(grad(grad((w * w * w).sum(), w).sum(), w).to_vector(), (std::vector<float>{3, -6, 12}));
}

TEST(Temporaries, AreTracedAsEverythingElse) {
  const Tensor w = tensor({2.0, 3.0}).eval();
  Tensor held = w * 1;
  auto f = compile([&](const Tensor& x) { return tanh((x * 2 + w).abs() * held).sum(); });
  for (double value : {0.5, 0.25, 0.125}) {
    const Tensor x = full({2}, value).eval();
    const double want = std::tanh((value * 2 + 2) * 2) + std::tanh((value * 2 + 3) * 3);
    EXPECT_NEAR(f(x * 1).item(), want, 1e-6);
    EXPECT_NEAR(f(Tensor(x)).item(), want, 1e-6);
  }
}

TEST(Temporaries, ThreadsShareWhatTheyAreMadeOf) {
  const Tensor x = line();
  const Tensor pending = x * 3; // computed by whoever comes first
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const float factor = static_cast<float>(1 + (t + i) % 3);
        const auto values = (abs(pending * factor - 0.5) + x).to_vector();
        if (std::abs(values[17] - (std::abs(0.75f * factor - 0.5f) + 0.25f)) > 1e-6f)
          ++wrong;
        Tensor mine = same(x * factor);
        std::thread([&wrong, factor, copy = mine] {
          if (std::abs((copy + 1)[3].item<float>() - (0.25f * factor + 1)) > 1e-6f)
            ++wrong;
        }).join();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

// --- views

TEST(Views, OfWhatIsInMemoryAreNeverWritten) {
  const Tensor w = full({64, 32}, 0.5).eval();
  const Tensor turned = w.transpose(), wide = w.unsqueeze(0).expand({16, 64, 32}), row = w[3];
  const Tensor sums = turned.sum(0) + wide.sum({0, 2}) + row.sum();
  const Counters c = spent([&] { sums.eval(); });
  EXPECT_LT(c.bytes_written, 4u * 64 * 32);
  EXPECT_FALSE(turned.is_materialized());
  EXPECT_FALSE(wide.is_materialized());
  EXPECT_FLOAT_EQ(turned[3][5].item<float>(), 0.5f);
  EXPECT_FLOAT_EQ(sums[0].item<float>(), 16 + 16 * 16 + 16);
}

TEST(Views, OfAPendingValueHoldThatValue) {
  const Tensor x = line();
  const Tensor turned = exp(x * 2).reshape({64, 64}).transpose();
  const Counters c = spent([&] { (turned.sum(0) * 2).eval(); });
  EXPECT_EQ(c.bytes_written, kBytes + 4 * 64); // exp(x * 2) and the sums
  const Counters later = spent([&] { (turned + 1).eval(); });
  EXPECT_EQ(later.bytes_read, kBytes); // nothing is computed again
  EXPECT_FLOAT_EQ(turned[1][2].item<float>(), std::exp(0.5f));
}

TEST(Views, OfALittleOfAPendingValueHoldThatOnly) {
  const Tensor x = full({64, 64}, 0.25).eval();
  const Tensor row = exp(x * 2)[5];
  const std::uint64_t before = counters().bytes_in_use;
  const Tensor read = (row * 3).eval();
  EXPECT_EQ(counters().bytes_in_use - before, 2u * 4 * 64);
  EXPECT_EQ(spent([&] { row.eval(); }).kernels_launched, 0u);
  EXPECT_FLOAT_EQ(row[9].item<float>(), std::exp(0.5f));
}

TEST(Views, OfConstantsAreNotStored) {
  const Tensor x = line();
  const Tensor one = ones({kCount});
  EXPECT_EQ(spent([&] { (x + one).eval(); }).bytes_written, kBytes);
  EXPECT_EQ(one[3].item(), 1);
}

TEST(Views, AreReadInFullWhenTheyAreAskedFor) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}}).eval();
  const Tensor turned = x.transpose();
  turned.eval();
  EXPECT_TRUE(turned.is_materialized());
  EXPECT_EQ(turned.to_vector(), (std::vector<float>{1, 3, 2, 4}));
}

} // namespace
} // namespace egret

// Threads that trace, compile, replay and update at once over the same tensors.
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/graph.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <functional>
#include <string>
#include <thread>

namespace egret {
namespace {

using Floats = std::vector<float>;

// Runs `body(i)` on some threads at once; the messages of what they throw.
std::vector<std::string> on_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::string> thrown(static_cast<std::size_t>(count));
  std::barrier start(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      try {
        body(i);
      } catch (const std::exception& error) {
        thrown[static_cast<std::size_t>(i)] = error.what();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  return thrown;
}

std::vector<std::string> none(int count) {
  return std::vector<std::string>(static_cast<std::size_t>(count));
}

TEST(SharedState, AnotherThreadReadsWhatIsBeingTraced) {
  const Tensor w = full({64, 64}, 0.5).eval();
  Tensor late;
  double seen = 0;
  std::string thrown;
  auto f = compile([&](const Tensor& x) {
    const Tensor y = matmul(x, w);
    std::thread([&] {
      try {
        seen = (w + 0).sum().item();
        late = w * 2;
      } catch (const std::exception& error) {
        thrown = error.what();
      }
    }).join();
    return y.sum();
  });
  EXPECT_EQ(f(ones({2, 64})).item(), 2 * 64 * 32);
  EXPECT_EQ(thrown, "");
  EXPECT_EQ(seen, 64 * 32);
  EXPECT_EQ(late.sum().item(), 64 * 64); // what it recorded meanwhile
}

TEST(SharedState, AnUpdateByAnotherThreadIsNoPartOfATrace) {
  Tensor w = tensor({1.0});
  bool first = true;
  auto f = compile([&](const Tensor& x) {
    const Tensor y = x * w;
    if (first)
      std::thread([&] { w += 1; }).join();
    first = false;
    return y;
  });
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(f(ones({1})).item(), 2) << i; // w as it is when the call runs
  EXPECT_EQ(w.item(), 2);
}

TEST(SharedState, FirstCallsOverOneCapturedWeight) {
  const Tensor w = full({8, 8}, 0.5).eval();
  EXPECT_EQ(on_threads(4,
                       [&](int i) {
                         auto f = compile([&](const Tensor& x) { return matmul(x, w) * (i + 1); });
                         for (int k = 0; k < 3; ++k)
                           EXPECT_EQ(f(ones({1, 8})).sum().item(), 32.0 * (i + 1));
                       }),
            none(4));
}

TEST(SharedState, FirstCallsWithOneArgument) {
  const Tensor x = full({8, 8}, 0.5).eval();
  auto shared = compile([](const Tensor& a) { return tanh(a).sum(); });
  const double expected = tanh(x).sum().item();
  EXPECT_EQ(on_threads(4,
                       [&](int i) {
                         auto f = compile([&](const Tensor& a) { return a * (i + 1); });
                         EXPECT_EQ(f(x).sum().item(), 32.0 * (i + 1));
                         EXPECT_EQ(shared(x).item(), expected);
                       }),
            none(4));
  EXPECT_EQ(shared.traces(), 1u);
}

TEST(SharedState, NamedSizesOfOneArgument) {
  const Tensor x = full({8, 2}, 0.5).eval();
  EXPECT_EQ(on_threads(4,
                       [&](int) {
                         auto f = compile(
                             [](const Tensor& a) { return a.sum(0); },
                             {.dims = {{.name = "n", .least = 1, .most = 9, .at = {{0, 0}}}}});
                         EXPECT_EQ(f(x).to_vector(), (Floats{4, 4}));
                         EXPECT_EQ(f(ones({3, 2})).to_vector(), (Floats{3, 3}));
                       }),
            none(4));
  EXPECT_EQ(x.sizes(), (std::vector<std::int64_t>{8, 2}));
}

TEST(SharedState, OneServesWhileOthersCompile) {
  const Tensor w = full({16, 16}, 0.25).eval();
  auto serve = compile([&](const Tensor& x) { return matmul(x, w).sum(); });
  const Tensor x = ones({1, 16});
  serve(x);
  std::atomic<bool> done{false};
  std::atomic<int> served{0};
  EXPECT_EQ(on_threads(2,
                       [&](int i) {
                         if (i == 0) {
                           while (!done.load() || served.load() == 0) {
                             EXPECT_EQ(serve(x).item(), 64);
                             served.fetch_add(1);
                           }
                           return;
                         }
                         for (int k = 1; k <= 6; ++k) {
                           auto other = compile([&](const Tensor& a) { return matmul(a, w) + k; });
                           EXPECT_EQ(other(ones({k, 16})).sum().item(), 16.0 * k * (4 + k));
                         }
                         done.store(true);
                       }),
            none(2));
  EXPECT_EQ(serve.traces(), 1u);
}

TEST(SharedState, NoUpdateIsLostAndNoneIsTorn) {
  Tensor w = zeros({64}).eval(), twice = zeros({64}).eval();
  auto add = compile([&](const Tensor& by) {
    w += by;
    twice += by * 2;
  });
  auto look = compile([&] { return std::pair{w * 1, twice * 1}; });
  constexpr int kCalls = 50;
  EXPECT_EQ(on_threads(4,
                       [&](int i) {
                         for (int k = 0; k < kCalls; ++k) {
                           if (i < 2) {
                             add(scalar(1.f));
                           } else if (i == 2) {
                             w += 0; // an update outside of compiled functions
                           } else {
                             const auto [a, b] = look(); // both before or both after an update
                             const Floats one = a.to_vector(), two = b.to_vector();
                             for (std::size_t e = 0; e < one.size(); ++e) {
                               ASSERT_EQ(one[e], one[0]);
                               ASSERT_EQ(two[e], 2 * one[0]);
                             }
                           }
                         }
                       }),
            none(4));
  EXPECT_EQ(w.to_vector(), Floats(64, 2 * kCalls));
  EXPECT_EQ(twice.to_vector(), Floats(64, 4 * kCalls));
}

TEST(SharedState, UpdatesInPlaceAreOneStepEach) {
  Tensor w = zeros({4}).eval();
  EXPECT_EQ(on_threads(4,
                       [&](int i) {
                         for (int k = 0; k < 100; ++k) {
                           if (i % 2 == 1)
                             w.assign({i / 2}, 0.0);
                           w += 1;
                         }
                       }),
            none(4));
  EXPECT_EQ(w[2].item(), 400); // nobody assigns it
}

// A crossed order of states would let two calls wait for each other.
TEST(SharedState, CallsOverTheSameStatesInAnotherOrderDoNotWaitForEachOther) {
  Tensor a = zeros({8}).eval(), b = zeros({8}).eval();
  auto forth = compile([](Tensor& x, Tensor& y) {
    x += 1;
    y += x * 0 + 1;
  });
  auto back = compile([](Tensor& y, Tensor& x) {
    y += 1;
    x += y * 0 + 1;
  });
  EXPECT_EQ(on_threads(4,
                       [&](int i) {
                         for (int k = 0; k < 50; ++k) {
                           if (i % 2 == 0)
                             forth(a, b);
                           else
                             back(b, a);
                         }
                       }),
            none(4));
  EXPECT_EQ(a.to_vector(), Floats(8, 200));
  EXPECT_EQ(b.to_vector(), Floats(8, 200));
}

// An update that depends on one state and writes another one, amid a call's taking of both.
TEST(SharedState, UpdatesFromOneStateToAnotherBesideCallsOverBoth) {
  Tensor a = zeros({8}).eval(), b = zeros({8}).eval();
  auto f = compile([&] {
    a += 1;
    b += 1;
  });
  EXPECT_EQ(on_threads(4,
                       [&](int i) {
                         for (int k = 0; k < 50; ++k) {
                           if (i % 2 == 0)
                             f();
                           else
                             b.assign(a * 0 + b);
                         }
                         b.eval();
                       }),
            none(4));
  EXPECT_EQ(a.to_vector(), Floats(8, 100));
}

TEST(SharedState, AStateThatCannotBeWrittenIsAsBefore) {
  Tensor w = tensor({1.0, 2.0});
  auto f = compile([&](const Tensor& x) {
    w += 1;
    return x.sum();
  });
  f(ones({2}));
  EXPECT_EQ(w.to_vector(), (Floats{2, 3}));
  const Tensor pending = full({std::int64_t{1} << 45}, 1.0); // more than can be addressed
  try {
    f(pending);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Memory) << error.what();
  }
  EXPECT_EQ(w.to_vector(), (Floats{2, 3}));
  f(ones({2}));
  EXPECT_EQ(w.to_vector(), (Floats{3, 4}));
}

TEST(SharedState, AStateThatBelongsToAGraphIsRefused) {
  Tensor w = tensor({1.0, 2.0}), by = tensor({1.0, 1.0});
  auto f = compile([&] { w += by; }, {.name = "f"});
  f();
  Graph graph;
  const Tensor before = by.clone();
  by.assign(graph.tensor({2}));
  try {
    f();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "f: a tensor of a Graph is used inside; they do not mix");
  }
  EXPECT_EQ(w.to_vector(), (Floats{2, 3}));
  by.assign(before);
  f();
  EXPECT_EQ(w.to_vector(), (Floats{3, 4}));
}

} // namespace
} // namespace egret

// Operations that run without being read, together, and on another thread.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/memory.h"
#include "egret/streams.h"
#include "runtime/profile.h"
#include "support/address_sanitizer.h"
#include "support/scale.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace egret {
namespace {

/// The limits of a test, taken back behind it.
class Limited {
public:
  explicit Limited(const QueueLimits& limits) : before_(queue_limits()) {
    sync();
    set_queue_limits(limits);
  }
  ~Limited() { set_queue_limits(before_); }

private:
  QueueLimits before_;
};

TEST(Queue, NothingRunsBelowTheLimitsAndWithoutARead) {
  const Limited limited({.operations = 1000});
  const Tensor x = ones({16}).eval();
  const Counters before = counters();
  Tensor y = x;
  for (int i = 0; i < 50; ++i)
    y = y * 2 + 1;
  EXPECT_EQ((counters() - before).kernels_launched, 0u);
  EXPECT_FALSE(y.is_materialized());
}

TEST(Queue, ALoopWithoutReadsRunsInPiecesOfOnePlan) {
  const Limited limited({.operations = 200});
  Tensor x = full({64}, 1.0).eval();
  const Counters before = counters();
  for (int i = 0; i < 50'000; ++i)
    x = x * 0.5 + 1; // 100,000 operations
  const Counters spent = counters() - before;
  EXPECT_GE(spent.ops_recorded, 100'000u); // constants among them
  EXPECT_GE(spent.kernels_launched, 400u);
  EXPECT_LE(spent.compiles, 3u) << "the parts are alike";
  EXPECT_EQ(x.to_vector(), std::vector<float>(64, 2.0f));
}

TEST(Queue, MemoryOfALoopWithoutReadsIsThatOfAFewPieces) {
  const Limited limited({.operations = 100});
  constexpr std::int64_t kElements = 1 << 16;
  Tensor x = full({kElements}, 0.0).eval(), sum = x.clone();
  trim("cpu");
  reset_memory_peak("cpu");
  const std::uint64_t start = memory_stats("cpu").in_use;
  for (int i = 0; i < 2'000; ++i) {
    x = x * 0.5 + 1;
    sum += x;
  }
  EXPECT_LE(memory_stats("cpu").peak - start, 8u * 4 * kElements);
  EXPECT_GT(sum.max().item(), 0);
}

TEST(Queue, DataThatWaitsToBeReadIsBounded) {
  constexpr std::int64_t kElements = 1 << 16; // 256 KiB
  const Limited limited({.operations = 100'000, .bytes = 4 << 20});
  const std::vector<float> ones(kElements, 1.0f);
  Tensor sum = zeros({kElements}).eval();
  reset_memory_peak("cpu");
  const std::uint64_t start = memory_stats("cpu").in_use;
  for (int i = 0; i < 200; ++i) // 50 MiB
    sum = sum + tensor(ones);
  EXPECT_LE(memory_stats("cpu").peak - start, 10u << 20);
  EXPECT_EQ(sum.to_vector(), std::vector<float>(kElements, 200.0f));
}

TEST(Queue, RunsWhileMoreIsRecordedAlsoWhereNoVariableChanges) {
  const Limited limited({.operations = 50});
  const Tensor x = ones({8}).eval();
  std::vector<Tensor> all;
  all.reserve(400);
  const Counters before = counters();
  for (int i = 0; i < 400; ++i)
    all.push_back(x * static_cast<double>(i));
  EXPECT_GT((counters() - before).kernels_launched, 0u);
  for (int i = 0; i < 400; ++i)
    EXPECT_EQ(all[static_cast<std::size_t>(i)].to_vector()[3], static_cast<float>(i));
}

// A random program of variables that are made from each other, updated and dropped.
std::vector<std::vector<float>> random_program(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Tensor> all;
  for (int i = 0; i < 4; ++i)
    all.push_back((arange(12).reshape({3, 4}).to(DType::F32) * (0.25 * i + 0.1)).clone());
  const auto any = [&]() -> Tensor& { return all[random() % all.size()]; };
  for (int i = 0; i < 60; ++i) {
    switch (random() % 8) {
    case 0:
      any() = tanh(any() + any());
      break;
    case 1:
      any() += any() * 0.5;
      break;
    case 2:
      any() = any().flip(1).clone();
      break;
    case 3:
      any() = (any().transpose().reshape({3, 4}) + 1) * 0.75;
      break;
    case 4:
      any() = any() - any().mean(1, true);
      break;
    case 5:
      any().assign({1}, any()[0]);
      break;
    case 6:
      any() = where(any() > any(), any(), sin(any()));
      break;
    default:
      any() = any().clone();
      any() = maximum(any(), any());
      break;
    }
  }
  std::vector<std::vector<float>> values;
  for (const Tensor& t : all)
    values.push_back(t.to_vector());
  return values;
}

TEST(Queue, ValuesDoNotDependOnWhenItRuns) {
  for (unsigned seed = 0; seed < 4; ++seed) {
    const auto expected = random_program(seed);
    const Limited limited({.operations = 7 + seed});
    const auto found = random_program(seed);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      for (std::size_t k = 0; k < found[i].size(); ++k)
        EXPECT_NEAR(found[i][k], expected[i][k], 1e-5 * std::abs(expected[i][k]) + 1e-6) << seed;
  }
}

TEST(Queue, AHeldViewIsNotStoredForItsOwnSake) {
  const Limited limited({.operations = 20});
  Tensor x = full({1 << 14}, 3.0).eval();
  const Tensor wide = x.expand({64, 1 << 14});
  reset_memory_peak("cpu");
  const std::uint64_t start = memory_stats("cpu").in_use;
  Tensor y = x;
  for (int i = 0; i < 60; ++i)
    y = y * 0.5;
  EXPECT_LE(memory_stats("cpu").peak - start, 4u * 4 << 14);
  EXPECT_EQ(wide[5].max().item(), 3);
}

TEST(Queue, GradientsAreTheSameInPieces) {
  const auto train = [] {
    Tensor w = full({8}, 1.0).eval().set_requires_grad();
    for (int i = 0; i < 30; ++i) {
      Tensor loss = square(w * 0.5 + 0.25).sum();
      loss.backward();
      NoGrad guard;
      w -= w.grad() * 0.1;
      w.zero_grad();
    }
    return w.to_vector();
  };
  const auto expected = train();
  const Limited limited({.operations = 15});
  const Counters before = counters();
  const auto found = train();
  EXPECT_GT((counters() - before).plan_hits, 1u) << "it ran in parts";
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-6);
}

TEST(Queue, AnErrorThereIsThrownByTheRead) {
  sync();
  trim("cpu");
  const Limited limited({.operations = 10});
  Tensor x = ones({16}).eval();
  struct Unlimited {
    ~Unlimited() { set_memory_limit("cpu", 0); }
  } unlimited;
  set_memory_limit("cpu", memory_stats("cpu").reserved + (1 << 20));
  Tensor large = full({4 << 20}, 1.0);
  const Counters before = counters();
  for (int i = 0; i < 30; ++i)
    large = large * 1.5;
  const Counters spent = counters() - before;
  EXPECT_GT(spent.plan_hits + spent.plan_misses, 0u) << "the queue has not tried";
  EXPECT_THROW(large.eval(), Error);
  EXPECT_EQ((x + 1).sum().item(), 32) << "other values can be had";
  set_memory_limit("cpu", 0);
  EXPECT_NEAR(large[0].item() / std::pow(1.5, 30), 1, 1e-4);
}

TEST(Queue, SyncRunsWhatIsHeld) {
  const Tensor x = ones({5}).eval();
  const Tensor a = x + 1, b = a * 3;
  sync();
  EXPECT_TRUE(a.is_materialized());
  EXPECT_TRUE(b.is_materialized());
  const Counters before = counters();
  sync();
  EXPECT_EQ((counters() - before).kernels_launched, 0u);
  EXPECT_EQ(b.to_vector(), std::vector<float>(5, 6.0f));
}

TEST(Queue, SyncLeavesWhatOtherThreadsHaveRecorded) {
  const Tensor own = ones({1}) * 2; // this thread has its stream before the other one
  Tensor theirs;
  std::thread([&] { theirs = ones({3}).eval() + 1; }).join();
  // This thread's stream may be any but the one that the other thread had.
  const Tensor mine = ones({3}).eval() * 2;
  sync();
  EXPECT_TRUE(mine.is_materialized());
  EXPECT_FALSE(theirs.is_materialized());
  EXPECT_EQ(theirs.sum().item(), 6);
}

TEST(Queue, EvalOfSeveralIsOnePlan) {
  const Tensor x = ones({5}).eval();
  const Tensor a = x + 1, b = x * 3;
  const Counters before = counters();
  eval(a, b);
  const Counters spent = counters() - before;
  EXPECT_EQ(spent.plan_hits + spent.plan_misses, 1u);
  EXPECT_TRUE(a.is_materialized() && b.is_materialized());
}

TEST(Queue, AsyncEvalIsWaitedForByReads) {
  for (int i = 0; i < 50; ++i) {
    const Tensor x = full({300, 300}, 1.0 / 300).eval();
    const Tensor y = matmul(x, x) + static_cast<double>(i), z = y * 2;
    async_eval(y, z);
    if (i % 2 == 0)
      std::this_thread::yield();
    EXPECT_NEAR(z[7].max().item(), 2 * (1.0 / 300 + i), 1e-4);
  }
}

TEST(Queue, AsyncEvalComputesWithoutARead) {
  const Tensor x = ones({64}).eval();
  const Tensor y = exp(x) * 2;
  async_eval(y);
  while (!y.is_materialized())
    std::this_thread::yield();
  EXPECT_NEAR(y.to_vector()[1], 2 * std::exp(1.0), 1e-5);
}

TEST(Queue, AsyncEvalRefusesWhatIsNotKnown) {
  EXPECT_THROW(async_eval(Tensor()), Error);
  auto traced = compile([](const Tensor& a) {
    async_eval(a);
    return a + 1;
  });
  EXPECT_THROW(traced(ones({2})), Error);
}

/// While one lives, launches on other threads than the one that made it wait.
class Held {
public:
  Held() {
    const auto wait = [state = state_, own = std::this_thread::get_id()](const auto&) {
      if (std::this_thread::get_id() == own)
        return;
      state->waits = true;
      while (!state->goes)
        std::this_thread::yield();
    };
    observing_.emplace(runtime::Observer{.launch = wait});
  }
  ~Held() { go(); }
  void wait_for_one() const {
    while (!state_->waits)
      std::this_thread::yield();
  }
  void go() { state_->goes = true; }

private:
  struct State { // the hook's too, which may end after this
    std::atomic<bool> waits{false}, goes{false};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::optional<runtime::Observing> observing_;
};

TEST(Queue, AsyncEvalKeepsNoValueThatNobodyHolds) {
  const Tensor x = ones({1 << 16}).eval(), first = x * 7;
  {
    Held held;
    async_eval(first);
    held.wait_for_one();
    const std::uint64_t start = memory_stats("cpu").in_use;
    for (int i = 0; i < 200; ++i) { // 50 MiB
      const Tensor y = x + static_cast<double>(i);
      async_eval(y);
      y.eval();
    }
    EXPECT_LE(memory_stats("cpu").in_use - start, 2u << 20);
  }
  EXPECT_EQ(first[5].item(), 7);
}

TEST(Queue, AThreadThatAsksForMoreThanAsyncEvalCanDoComputesItself) {
  const Tensor x = ones({16}).eval(), first = x * 7;
  Held held;
  async_eval(first);
  held.wait_for_one();
  std::vector<Tensor> all;
  for (int i = 0; i < 300; ++i) {
    all.push_back(x.flip(0) + static_cast<double>(i));
    async_eval(all.back());
  }
  EXPECT_TRUE(all.back().is_materialized());
  held.go();
  for (int i = 0; i < 300; ++i)
    EXPECT_EQ(all[static_cast<std::size_t>(i)][3].item(), 1 + i);
}

// Exits while the thread of async_eval() computes: 3 if a static object that it could use is
// destroyed before it has ended.
[[noreturn]] void exit_while_it_computes() {
  static std::atomic<bool> begun{false}, gone{false};
  struct Object {
    ~Object() { gone = true; }
  };
  const Tensor x = ones({8}).eval(), first = x + 1, second = exp(x);
  async_eval(first);
  while (!first.is_materialized())
    std::this_thread::yield();
  static const Object made_after_that_thread;
  [[maybe_unused]] static const auto* const observing =
      new runtime::Observing({.launch = [](const auto&) {
        begun = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        if (gone)
          _exit(3);
      }});
  async_eval(second);
  while (!begun)
    std::this_thread::yield();
  std::exit(0);
}

TEST(Queue, AsyncEvalEndsBeforeStaticObjectsAreDestroyed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_while_it_computes(), ::testing::ExitedWithCode(0), "");
}

#if !defined(__SANITIZE_THREAD__) // which lets no forked process start threads
// Until all other threads sleep: then none holds a lock, which nobody would release in a forked
// process.
void wait_for_idle_threads() {
  for (bool idle = false; !idle;) {
    idle = true;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
      if (thread.path().filename() == std::to_string(gettid()))
        continue;
      std::ifstream file(thread.path() / "stat");
      std::string text;
      std::getline(file, text); // "123 (name) S ..."
      const std::size_t end = text.rfind(')');
      idle = idle && end != std::string::npos && text.substr(end, 3) == ") S";
    }
  }
}

TEST(Queue, ComputesInAForkedProcess) {
  const Tensor x = full({1 << 20}, 0.5).eval(), y = x * 2;
  async_eval(y);
  EXPECT_EQ(y[7].item(), 1);
  wait_for_idle_threads();
  const pid_t child = fork();
  if (child == 0) {
    alarm(static_cast<unsigned>(60 * test::scale()));
    const Tensor sum = (x * 4).sum(), other = tanh(x) + x;
    async_eval(other);
    while (!other.is_materialized())
      std::this_thread::yield();
    const int status = sum.item() == 1 << 21 ? 0 : 1;
#if defined(EGRET_ADDRESS_SANITIZER) // what the parent's threads have is no leak
    _exit(status);
#endif
    std::exit(status);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

TEST(Queue, LimitsThatMakeNoSenseAreRefused) {
  const QueueLimits before = queue_limits();
  for (const QueueLimits& limits :
       {QueueLimits{.operations = 0}, QueueLimits{.operations = 1'000'001}, QueueLimits{.bytes = 0},
        QueueLimits{.bytes = ~std::uint64_t{0}}})
    try {
      set_queue_limits(limits);
      FAIL() << limits.operations << ", " << limits.bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Value);
      EXPECT_EQ(std::string(error.what()).find("set_queue_limits: "), 0u) << error.what();
    }
  EXPECT_EQ(queue_limits().operations, before.operations);
  EXPECT_EQ(queue_limits().bytes, before.bytes);
}

TEST(Queue, ManyThreadsRunTheirOwn) {
  const Limited limited({.operations = 30});
  const Tensor shared = full({32}, 0.5).eval();
  std::vector<std::thread> threads;
  std::vector<double> sums(8);
  for (std::size_t t = 0; t < sums.size(); ++t)
    threads.emplace_back([&, t] {
      Tensor x = shared * static_cast<double>(t);
      for (int i = 0; i < 300; ++i)
        x = x * 0.5 + shared;
      sums[t] = x.sum().item();
    });
  for (std::thread& thread : threads)
    thread.join();
  for (const double sum : sums)
    EXPECT_NEAR(sum, 32, 1e-3);
}

} // namespace
} // namespace egret

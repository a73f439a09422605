// Random programs of eight threads that share what they record: values that nobody has computed
// yet, views of them, a sum that all update. What a round computes depends on none but what was
// there when it began, and whole numbers have no rounding: all is equal to what one thread
// computes. EGRET_SHARED_PROGRAMS says how many programs.
#include "egret/functional.h"
#include "egret/streams.h"
#include "runtime/runtime.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>

namespace egret {
namespace {

constexpr std::size_t kSharers = 8;
constexpr int kSharedRounds = 4, kSharedSteps = 14;
constexpr std::int64_t kSharedRows = 4, kSharedColumns = 6;

using Tensors = std::vector<Tensor>;
using Values = std::vector<std::vector<std::uint32_t>>;

// What one thread does: its variables, which live on from round to round.
class SharedProgram {
public:
  SharedProgram(unsigned seed, std::size_t thread) : random_(977 * seed + unsigned(thread)) {}

  /// `others`: what all threads had given when the round began. Gives one more, for the next one.
  Tensor round(const Tensors& others, Tensor& sum) {
    while (own_.size() < 3)
      own_.push_back(others[pick(others.size())].clone());
    for (int i = 0; i < kSharedSteps; ++i)
      step(others, sum);
    return any();
  }
  Values values() const {
    Values all;
    for (const Tensor& t : own_)
      all.push_back(t.to_vector<std::uint32_t>());
    return all;
  }

private:
  std::size_t pick(std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
  }
  const Tensor& any() { return own_[pick(own_.size())]; }
  void put(const Tensor& t) {
    own_.push_back(t.to(DType::U32));
    if (own_.size() > 8)
      own_.erase(own_.begin() + static_cast<std::ptrdiff_t>(pick(own_.size())));
  }

  void step(const Tensors& others, Tensor& sum) {
    const Tensor& theirs = others[pick(others.size())];
    const Tensor mine = any();
    switch (pick(16)) {
    case 0:
      return put(mine + theirs);
    case 1:
      return put(mine * 3 - theirs);
    case 2:
      return put(maximum(mine, theirs.flip(0)));
    case 3:
      return put(where(mine > theirs, mine, theirs + static_cast<double>(pick(5))));
    case 4:
      return put(mine.transpose().reshape({kSharedRows, kSharedColumns}));
    case 5: { // a view of what another thread has recorded, held
      const Tensor row = theirs[static_cast<std::int64_t>(pick(kSharedRows))];
      return put(mine + row);
    }
    case 6:
      return put(mine - mine.sum(1, true).to(DType::U32));
    case 7: { // in place, of a value of its own
      Tensor copy = mine.clone();
      copy += theirs;
      copy *= 5;
      return put(copy);
    }
    case 8: { // in place, of a part
      Tensor copy = theirs.clone();
      copy.assign({static_cast<std::int64_t>(pick(kSharedRows))}, mine[0]);
      return put(copy);
    }
    case 9:
      return put(cat({theirs, mine}, 0)[Slice(2, 2 + kSharedRows)]);
    case 10:
      sum += static_cast<double>(1 + pick(3));
      return;
    case 11:
      own_.erase(own_.begin() + static_cast<std::ptrdiff_t>(pick(own_.size())));
      if (own_.empty())
        put(theirs.clone());
      return;
    case 12:
      return async_eval(mine, theirs);
    case 13:
      return sync();
    case 14:
      theirs.eval();
      return;
    default:
      EXPECT_EQ(mine.to_vector<std::uint32_t>().size(), std::size_t(kSharedRows * kSharedColumns));
      return;
    }
  }

  std::mt19937 random_;
  Tensors own_;
};

// All that the program's threads have in the end, one thread's after another, and the sum.
Values run_shared(unsigned seed, bool together) {
  Tensors others;
  const Tensor start =
      arange(kSharedRows * kSharedColumns, DType::U32).reshape({kSharedRows, kSharedColumns});
  for (std::size_t t = 0; t < kSharers; ++t)
    others.push_back((start * static_cast<double>(t + seed) + 1).flip(std::int64_t(t % 2)));
  Tensor sum = full({3}, 0, DType::U32);
  std::vector<SharedProgram> programs;
  for (std::size_t t = 0; t < kSharers; ++t)
    programs.emplace_back(seed, t);
  for (int round = 0; round < kSharedRounds; ++round) {
    Tensors given(kSharers);
    std::vector<std::string> thrown(kSharers);
    const auto one = [&](std::size_t t) {
      try {
        given[t] = programs[t].round(others, sum);
      } catch (const std::exception& error) {
        thrown[t] = error.what();
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kSharers; ++t)
      if (together)
        threads.emplace_back(one, t);
      else
        one(t);
    for (std::thread& thread : threads)
      thread.join();
    for (const std::string& error : thrown) {
      EXPECT_EQ(error, "");
      if (!error.empty())
        return {};
    }
    others = std::move(given);
  }
  Values all;
  for (const SharedProgram& program : programs)
    for (const auto& values : program.values())
      all.push_back(values);
  all.push_back(sum.to_vector<std::uint32_t>());
  return all;
}

class SharedPrograms : public ::testing::Test {
protected:
  void SetUp() override { set_queue_limits({.operations = 23}); }
  void TearDown() override { set_queue_limits(before_); }
  static unsigned count(unsigned usual) {
    const char* text = std::getenv("EGRET_SHARED_PROGRAMS");
    return text ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : usual;
  }

private:
  const QueueLimits before_ = queue_limits();
};

TEST_F(SharedPrograms, OfEightThreadsAreThoseOfOne) {
  for (unsigned seed = 0; seed < count(2); ++seed)
    ASSERT_EQ(run_shared(seed, true), run_shared(seed, false)) << "seed " << seed;
}

// Without compiling, which takes the time of hundreds of steps.
TEST_F(SharedPrograms, OfEightThreadsAreThoseOfOneOnTheReference) {
  auto& runtime = runtime::Runtime::instance();
  const runtime::Engine before = runtime.engine();
  runtime.use(runtime::Engine::Reference);
  for (unsigned seed = 100; seed < 100 + count(20); ++seed)
    ASSERT_EQ(run_shared(seed, true), run_shared(seed, false)) << "seed " << seed;
  runtime.use(before);
}

} // namespace
} // namespace egret

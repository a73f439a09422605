// Random lazy programs, each run with several sizes, slices, numbers and drops: what plans for
// other numbers compute is what the reference computes operation by operation, and plans are few.
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/random.h"
#include "runtime/runtime.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

namespace egret {
namespace {

// What differs from run to run of one program.
struct Numbers {
  std::int64_t n = 4, m = 4;        // sizes
  std::int64_t row = 0, window = 0; // of 24 rows; the window is n rows
  double factor = 1;
};

constexpr std::int64_t kMost = 40; // of n and m
constexpr std::int64_t kRows = 96;

Numbers draw(std::mt19937& random, bool units) {
  const auto size = [&] {
    const std::uint32_t way = random() % 6;
    if (way == 0 && units)
      return std::int64_t{1};
    return static_cast<std::int64_t>(way == 1 ? 16 * (1 + random() % 2)
                                              : 2 + random() % (kMost - 1));
  };
  Numbers d;
  d.n = size();
  d.m = size();
  d.row = static_cast<std::int64_t>(random()) % d.n;
  d.window = static_cast<std::int64_t>(random() % (kRows - kMost));
  const double factors[] = {0, 1, 2, 0.5, -1, 0.3, -1.7};
  d.factor = factors[units ? random() % 7 : 5 + random() % 2];
  return d;
}

Tensor leaf(std::vector<std::int64_t> sizes, int salt) {
  std::int64_t count = 1;
  for (std::int64_t size : sizes)
    count *= size;
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>((i * 7 + salt * 5) % 23) * 0.125 - 1.25);
  return tensor(values, Shape(sizes.begin(), sizes.end()));
}

// The same operations for a seed, whatever the numbers: on matrices [n,m] and on rows [m].
class RelativeProgram {
public:
  using Result = std::vector<std::vector<double>>;
  RelativeProgram(unsigned seed, const Numbers& numbers, bool by_operation)
      : random_(seed), d_(numbers), by_operation_(by_operation) {
    for (int i = 0; i < 3; ++i)
      matrices_.push_back(leaf({d_.n, d_.m}, i));
    rows_.push_back(leaf({d_.m}, 4));
    table_ = leaf({kRows, d_.m}, 5);
  }

  Result run(int steps) {
    for (int i = 0; i < steps; ++i)
      step();
    Result result;
    for (const Tensor& t : matrices_)
      result.push_back(t.to_vector<double>());
    for (const Tensor& t : rows_)
      result.push_back(t.to_vector<double>());
    return result;
  }
  int reads() const { return reads_ + static_cast<int>(matrices_.size() + rows_.size()); }

private:
  std::size_t pick(std::size_t n) { return random_() % n; }
  Tensor matrix() { return matrices_[pick(matrices_.size())]; }
  Tensor row() { return rows_[pick(rows_.size())]; }
  Tensor done(Tensor t) { return by_operation_ ? t.eval() : t; }
  void put(Tensor t) {
    if (matrices_.size() > 5)
      matrices_.erase(matrices_.begin() + static_cast<std::ptrdiff_t>(pick(matrices_.size())));
    matrices_.push_back(done(std::move(t)));
  }
  void put_row(Tensor t) {
    if (rows_.size() > 4)
      rows_.erase(rows_.begin() + static_cast<std::ptrdiff_t>(pick(rows_.size())));
    rows_.push_back(done(std::move(t)));
  }

  void step() {
    switch (pick(20)) {
    case 0:
      return put(matrix() + matrix());
    case 1:
      return put(matrix() * row() - d_.factor);
    case 2:
      return put(tanh(matrix()) * d_.factor);
    case 3:
      // Between the numbers of leaves: sums that are 0 but for rounding fall to one side.
      return put(where(gt(matrix(), 0.0123456789), matrix(), row()));
    case 4:
      return put_row(matrix().mean(0));
    case 5:
      return put(matrix() - matrix().max(1, true));
    case 6:
      return put(softmax(matrix()));
    case 7: { // [n,n] in between
      const Tensor a = done(tanh(matrix()));
      const Tensor square = done(matmul(a, done(tanh(matrix())).transpose()));
      return put(done(matmul(square, matrix())) * (1.0 / static_cast<double>(d_.n * d_.m)));
    }
    case 8:
      return put_row(matrix()[d_.row]);
    case 9: { // a window of a table of fixed size
      const Tensor window = done(table_[{Slice(d_.window, d_.window + d_.n)}]);
      return put(matrix() + window);
    }
    case 10: { // rows that moved down by one, with the last one in front
      const Tensor a = matrix();
      const Tensor last = done(a[{Slice(d_.n - 1, d_.n)}]);
      const Tensor both = done(cat({last, a}, 0));
      return put(both[{Slice(0, d_.n)}]);
    }
    case 11: { // through a line
      const Tensor line = done(matrix().reshape({d_.n * d_.m}));
      return put(done(line * d_.factor).reshape({d_.n, d_.m}));
    }
    case 12:
      return put(matrix().flip({0}));
    case 13: {
      const Tensor turned = done(matrix().transpose());
      return put(done(turned + row().unsqueeze(1)).transpose());
    }
    case 14: { // in place, with a clone of the value before
      Tensor t = matrix();
      if (pick(2))
        put(t.clone());
      t += matrix() * 0.5;
      return;
    }
    case 15:
      return put(done(cumsum(matrix(), 0)) * 0.25);
    case 16: {
      ++reads_;
      matrix().eval();
      return;
    }
    case 17: { // drawn in a line
      Generator generator(random_());
      return put(matrix() + done(rand({d_.n, d_.m}, generator, DType::F64)));
    }
    case 18: { // a line that is split
      const Tensor line = done(arange(d_.n * d_.m).to(DType::F64) * 0.01);
      return put(matrix() + line.reshape({d_.n, d_.m}));
    }
    default: {
      const Tensor steps = done(arange(d_.m).to(DType::F64));
      return put_row(row() + steps * 0.1);
    }
    }
  }

  std::mt19937 random_;
  Numbers d_;
  bool by_operation_;
  int reads_ = 0;
  std::vector<Tensor> matrices_, rows_;
  Tensor table_;
};

void expect_near(const RelativeProgram::Result& got, const RelativeProgram::Result& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].size(), want[i].size()) << i;
    for (std::size_t e = 0; e < got[i].size(); ++e)
      ASSERT_NEAR(got[i][e], want[i][e], 1e-8 * (1 + std::abs(want[i][e]))) << i << " at " << e;
  }
}

struct Computed {
  unsigned seed;
  Numbers numbers;
  RelativeProgram::Result result;
};

constexpr int kSteps = 14;

// Compares with the reference, operation by operation.
void check(const std::vector<Computed>& runs) {
  runtime::Runtime::instance().use(runtime::Engine::Reference);
  for (const Computed& run : runs) {
    SCOPED_TRACE(testing::Message() << "seed " << run.seed << ", n " << run.numbers.n << ", m "
                                    << run.numbers.m << ", row " << run.numbers.row << ", window "
                                    << run.numbers.window << ", factor " << run.numbers.factor);
    expect_near(run.result, RelativeProgram(run.seed, run.numbers, true).run(kSteps));
    if (::testing::Test::HasFatalFailure())
      break;
  }
  runtime::Runtime::instance().use(runtime::Engine::Compiled);
}

TEST(RelativePlans, RandomProgramsOfAnySizeComputeWhatTheReferenceComputes) {
  std::vector<Computed> runs;
  for (unsigned seed = 0; seed < 12; ++seed) {
    std::mt19937 random(seed + 1000);
    for (int i = 0; i < 7; ++i) {
      const Numbers numbers = draw(random, true);
      runs.push_back({seed, numbers, RelativeProgram(seed, numbers, false).run(kSteps)});
    }
  }
  check(runs);
}

TEST(RelativePlans, PlansOfRandomProgramsAreFew) {
  std::vector<Computed> runs;
  for (unsigned seed = 20; seed < 24; ++seed) {
    std::mt19937 random(seed + 1000);
    const Counters before = counters();
    int reads = 0;
    for (int i = 0; i < 24; ++i) {
      const Numbers numbers = draw(random, false);
      RelativeProgram program(seed, numbers, false);
      runs.push_back({seed, numbers, program.run(kSteps)});
      reads = program.reads();
    }
    const Counters spent = counters() - before;
    // Of each read: one as it is, and a few for sizes that are multiples of 16 or not, or larger.
    EXPECT_LE(spent.plan_explorations, static_cast<std::uint64_t>(7 * reads)) << seed;
    EXPECT_GT(spent.plan_symbolic_hits, 0u) << seed;
  }
  check(runs);
}

TEST(RelativePlans, ThreadsMayExploreTheSameStructures) {
  std::vector<std::vector<Computed>> runs(4);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([t, &runs] {
      std::mt19937 random(t);
      for (unsigned seed = 40; seed < 42; ++seed)
        for (int i = 0; i < 4; ++i) {
          const Numbers numbers = draw(random, true);
          runs[t].push_back({seed, numbers, RelativeProgram(seed, numbers, false).run(kSteps)});
        }
    });
  for (auto& thread : threads)
    thread.join();
  for (const auto& of_thread : runs)
    check(of_thread);
}

} // namespace
} // namespace egret

// Equal expressions made and dropped by several threads at once: one looks a node up while another
// lets its last owner go.
#include "egret/expr.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace egret {
namespace {

TEST(ExprThreads, LookingUpANodeWhileItsLastOwnerGoesNeitherHangsNorDiffers) {
  const Expr n = Expr::symbol("expr_threads_n", 1, 1 << 20);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t i = 0; i < 60000; ++i) {
        const Expr sum = n * 3 + (1000000 + i % 2); // alive for a moment only, in every thread
        wrong[t] += !(sum - n * 3 == Expr(1000000 + i % 2));
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

TEST(ExprThreads, AConstantIsOneNodeInAllThreads) {
  // Up to the usual sizes constants are made at their first use, beyond them as all others.
  std::vector<std::thread> threads;
  std::vector<std::vector<Expr>> met(4);
  for (auto& own : met)
    threads.emplace_back([&] {
      for (std::int64_t i = -70; i < 20000; i += 7)
        own.push_back(Expr(i));
    });
  for (auto& thread : threads)
    thread.join();
  for (const auto& own : met)
    EXPECT_TRUE(own == met[0]);
  for (const Expr& e : met[0])
    EXPECT_TRUE(e + 1 - 1 == e && e * 1 == e && e.constant());
}

} // namespace
} // namespace egret

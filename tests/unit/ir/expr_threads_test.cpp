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

} // namespace
} // namespace egret

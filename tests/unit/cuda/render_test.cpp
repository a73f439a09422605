// The text of kernels, where a compiler that accepts it is not enough.
#include "backend/cuda/render.h"
#include "kernel/builder.h"

#include <gtest/gtest.h>

namespace egret::backend::cuda {
namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++n;
  return n;
}

// Inside of a choice that depends on the thread, a shuffle waits for threads that do not come.
TEST(CudaText, EveryThreadShufflesOnceAStepWhateverTheOperation) {
  for (const DType type : {DType::I8, DType::I64, DType::F32, DType::Bool})
    for (const Monoid monoid : {Monoid::Sum, Monoid::Max}) {
      if (type == DType::Bool && monoid == Monoid::Sum)
        continue;
      kernel::ProgramBuilder b("reduction");
      const Expr t = kernel::thread_variable(32);
      const int in = b.argument("in", type, Expr(32), 64, false);
      const int out = b.argument("out", type, Expr(1), 64, true);
      b.store(out, Expr(0), b.reduce_threads(monoid, b.load(in, t, 1), 32),
              {{t, Expr(0), Expr(1)}});
      kernel::Launch launch;
      launch.workers = 1;
      launch.threads = 32;
      const std::string text = render_cuda(b.finish(launch), CudaTarget{});
      EXPECT_EQ(count(text, "= eg_shuffle_xor("), 5u) << text; // 16, 8, 4, 2, 1
      EXPECT_EQ(count(text, "eg_shuffle_xor("), 6u) << text;   // and its definition
    }
}

} // namespace
} // namespace egret::backend::cuda

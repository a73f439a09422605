// Attention and retention, which has no softmax, for heads of every size, forward and with their
// gradients: the first schedules compile for an H200. NVRTC needs no GPU; where it is not installed
// there is nothing to test. EGRET_HEAD_SIZES=1: all sizes from 16 to 256 in steps of 8, which takes
// a while; else those whose accumulators are at the limits of what a block's registers hold.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "compiler/compile.h"
#include "egret/autodiff.h"
#include "egret/error.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "support/null_device.h"
#include "support/nvrtc.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace egret {
namespace {

constexpr std::int64_t kBatch = 4, kHeads = 16, kTokens = 2048;

struct HeadCase {
  std::int64_t size;
  bool softmax, gradients;
};

ir::Graph graph_of(const HeadCase& c) {
  egret::Graph cx;
  const auto input = [&](const char* name) {
    return cx.tensor({Expr(kBatch), Expr(kHeads), Expr(kTokens), Expr(c.size)}, DType::BF16, name);
  };
  const Tensor q = input("q"), k = input("k"), v = input("v");
  const Tensor row = arange(kTokens).reshape({kTokens, 1}), column = arange(kTokens);
  Tensor scores = matmul(q, k.transpose()).to(DType::F32);
  if (c.softmax) {
    scores = where(column <= row, scores / std::sqrt(static_cast<double>(c.size)), -1e30);
    scores = exp(scores - scores.max(-1, true).detach());
    scores = scores / scores.sum(-1, true);
  } else {
    const Tensor decay = exp((row - column).to(DType::F32) * -0.01);
    scores = scores * where(column <= row, decay, 0.0);
  }
  Tensor y = matmul(scores.to(DType::BF16), v);
  y.retrieve();
  ir::Graph g = ir::parse_graph(cx.text());
  if (!c.gradients)
    return g;
  const std::vector<ir::NodeId> results = g.outputs, inputs = g.inputs();
  const ir::NodeId seed = g.input("seed", g[results[0]].dtype, g[results[0]].shape);
  for (const ir::NodeId id : gradients(g, results, std::vector{seed}, inputs))
    g.outputs.push_back(id);
  return g;
}

/// What is wrong with the case's kernels; empty when nothing is.
std::string check_head(const HeadCase& c, const backend::cuda::Nvrtc& nvrtc, int& streams) {
  const kernel::Target target = backend::cuda::known_target(90);
  testing::NullDevice device(target);
  compiler::KernelCache cache;
  std::string wrong;
  for (const auto& entry : compiler::compile_graph(graph_of(c), {}, device, cache).plan.kernels) {
    if (entry.schedule.generator != "gpu_stream")
      continue;
    ++streams;
    try {
      const auto cuda = backend::cuda::cuda_target(target);
      nvrtc.compile(render_cuda(entry.program, cuda),
                    nvrtc.architecture_for(cuda.capability, cuda.specific), {}, "head");
    } catch (const Error& error) {
      wrong += fmt::format("{} {}{}: {}\n{}\n", c.size, c.softmax ? "softmax" : "retention",
                           c.gradients ? " with gradients" : "", to_string(entry.schedule),
                           error.what());
    }
  }
  return wrong;
}

TEST(Heads, OfEverySizeCompile) {
  const auto nvrtc = testing::nvrtc();
  if (!nvrtc)
    GTEST_SKIP() << "NVRTC is not installed";
  std::vector<HeadCase> cases;
  if (std::getenv("EGRET_HEAD_SIZES")) {
    for (std::int64_t size = 16; size <= 256; size += 8)
      for (const bool softmax : {true, false})
        for (const bool with_gradients : {false, true})
          cases.push_back({size, softmax, with_gradients});
  } else {
    cases = {{72, true, false},  {80, true, false},   {96, true, false}, {224, true, false},
             {256, true, false}, {128, false, false}, {80, true, true}};
  }
  std::atomic<std::size_t> next{0};
  std::mutex guard;
  std::string wrong;
  std::atomic<int> streams{0};
  const auto work = [&] {
    for (std::size_t i; (i = next++) < cases.size();) {
      int found = 0;
      const std::string said = check_head(cases[i], *nvrtc, found);
      streams += found;
      std::lock_guard lock(guard);
      wrong += said;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t)
      threads.emplace_back(work);
    work();
  }
  EXPECT_EQ(wrong, "");
  const auto forward =
      std::count_if(cases.begin(), cases.end(), [](const HeadCase& c) { return !c.gradients; });
  EXPECT_GE(streams, forward); // none of them goes by another generator alone
}

} // namespace
} // namespace egret

// What whole training steps of a GPT in bf16, and a Llama that reads a text, become on an H200,
// without one: plans are made for its target from what a driver that runs no kernel records.
#include "backend/cuda/render.h"
#include "bench.h"
#include "compiler/compile.h"
#include "egret/autocast.h"
#include "egret/compile.h"
#include "egret/device.h"
#include "egret/functional.h"
#include "egret/models.h"
#include "egret/optim.h"
#include "gpt_mixed.h"
#include "llama.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"
#include "support/null_device.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using egret::testing::ScopedEnvironment;

/// So many tokens beside the width that all products but those of small matrices are larger than
/// their factors, as in a training at full size, and scores are the largest values of all.
constexpr std::int64_t kBatch = 4, kTokens = 512, kLayers = 2, kHeads = 6, kWidth = 384;
constexpr std::int64_t kScores = kBatch * kHeads * kTokens * kTokens;
constexpr models::GptOptions kShape{.vocabulary = 512,
                                    .context = kTokens,
                                    .layers = kLayers,
                                    .width = kWidth,
                                    .heads = kHeads,
                                    .tied = true};

struct Training {
  models::Gpt model;
  optim::AdamW optimizer;
  EGRET_FIELDS(model, optimizer)
};

using Step = Tensor (*)(Training&, const Tensor&, const Tensor&);

Tensor trained(Training& t, const Tensor& loss) {
  t.optimizer.zero_grad();
  loss.backward();
  t.optimizer.step();
  return loss;
}

/// With the library's own layers, loss and mixed precision.
Tensor by_autocast(Training& t, const Tensor& x, const Tensor& y) {
  Tensor loss;
  {
    Autocast scope(DType::BF16);
    loss = cross_entropy(t.model(x), y);
  }
  return trained(t, loss);
}

/// As the benchmark of GPT-2 writes it, formula by formula.
Tensor by_formulas(Training& t, const Tensor& x, const Tensor& y) {
  const Tensor logits = tool::mixed_logits(t.model, x, DType::BF16).to(DType::F32);
  Tensor log_p = logits - logits.max(-1, true).detach();
  log_p = log_p - log(exp(log_p).sum(-1, true));
  return trained(t, -(log_p * one_hot(y, logits.size(-1))).sum(-1).mean());
}

/// What `record` gives, which runs on a GPU that there is not.
ir::Graph recorded(const std::function<std::string()>& record) {
  ScopedEnvironment driver("EGRET_CUDA_DRIVER", EGRET_FAKE_CUDA);
  ScopedEnvironment nvrtc("EGRET_NVRTC", EGRET_FAKE_CUDA);
  egret::testing::TemporaryFolder folder;
  ScopedEnvironment cache("XDG_CACHE_HOME", folder.path().c_str());
  egret::testing::fake_cuda(EGRET_FAKE_CUDA).memory = std::size_t{8} << 30;
  use_device("cuda");
  const std::string text = record();
  use_device("cpu");
  return ir::parse_graph(text);
}

std::string text_of_step(Step step) {
  Generator g(1);
  models::Gpt model(kShape, g);
  Training training{model, optim::AdamW(nn::named_parameters(model), {.lr = 1e-3})};
  const Tensor x = randint({kBatch, kTokens}, 0, kShape.vocabulary, g);
  const Tensor y = randint({kBatch, kTokens}, 0, kShape.vocabulary, g);
  eval({x, y});
  return tool::bench::traced(step, training, x, y);
}

/// The plan for an H200, of which no kernel stores as many elements as there are scores.
compiler::Compiled planned(const ir::Graph& graph, std::int64_t scores, std::int64_t streams) {
  egret::testing::NullDevice device(backend::cuda::known_target(90));
  compiler::KernelCache cache;
  auto compiled = compiler::compile_graph(graph, {}, device, cache);
  std::int64_t found = 0;
  for (const auto& kernel : compiled.report.kernels)
    found += kernel.schedule.starts_with("gpu_stream");
  EXPECT_EQ(found, streams);
  for (const auto& entry : compiled.plan.kernels)
    for (const kernel::Output& out : entry.region.outputs)
      EXPECT_LT(element_count(out.shape).value(), scores) << print(entry.region);
  return compiled;
}

class StepPlan : public ::testing::TestWithParam<std::pair<const char*, Step>> {};

TEST_P(StepPlan, StoresNoScoresOfAttention) {
  const ir::Graph graph = recorded([] { return text_of_step(GetParam().second); });
  // Of a layer: forward, by queries, by keys; and the loss, whose logits the rules before autodiff
  // leave to a stream.
  const auto compiled = planned(graph, kScores, 3 * kLayers + 1);
  // Of a layer: its inputs, x between its parts, keys, queries and values, and thrice what its wide
  // layer makes. Stored scores would be four times as much.
  const std::int64_t elements = kBatch * kTokens * kWidth;
  EXPECT_LT(compiled.report.arena_bytes, kLayers * 50 * elements + 12 * elements);
}

TEST(PrefillPlan, StoresNoScoresOfAttention) {
  const tool::llama::Sizes sizes{2, 512, 8, 2, 1024, 1024, 1024, 10000, false, DType::BF16};
  const ir::Graph graph = recorded([&] {
    const tool::llama::Weights weights = make_weights(sizes);
    Generator g(1);
    const Tensor tokens = randint({sizes.context}, 0, sizes.vocabulary, g);
    tokens.eval();
    return tool::bench::traced(&tool::llama::prefill, weights, tokens, sizes.of_head());
  });
  planned(graph, sizes.heads * sizes.context * sizes.context, sizes.layers);
}

INSTANTIATE_TEST_SUITE_P(Of, StepPlan,
                         ::testing::Values(std::pair<const char*, Step>{"Autocast", &by_autocast},
                                           std::pair<const char*, Step>{"Formulas", &by_formulas}),
                         [](const auto& info) { return std::string(info.param.first); });

} // namespace
} // namespace egret

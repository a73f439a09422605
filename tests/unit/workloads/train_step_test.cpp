// A training step on a GPU is one launch of a recorded graph that updates everything where it
// stands; on a driver that runs no kernel.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/device.h"
#include "egret/nn.h"
#include "egret/optim.h"
#include "support/cpu_levels.h"
#include "support/cuda_kernels.h"
#include "support/one_launch.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using egret::testing::ScopedEnvironment;

struct Model {
  nn::Embedding table;
  nn::LayerNorm norm;
  nn::Linear up, down;
  EGRET_FIELDS(table, norm, up, down)
};

TEST(TrainStep, IsOneGraphLaunchThatCopiesNothing) {
  ScopedEnvironment driver("EGRET_CUDA_DRIVER", EGRET_FAKE_CUDA);
  ScopedEnvironment nvrtc("EGRET_NVRTC", EGRET_FAKE_CUDA);
  egret::testing::TemporaryFolder folder;
  ScopedEnvironment cache("XDG_CACHE_HOME", folder.path().c_str());
  auto& fake = egret::testing::fake_cuda(EGRET_FAKE_CUDA);
  use_device("cuda");
  {
    Generator random(3);
    Model model{nn::Embedding(64, 32, random), nn::LayerNorm(32), nn::Linear(32, 48, random),
                nn::Linear(48, 64, random)};
    optim::AdamW optimizer(nn::named_parameters(model), {.lr = 1e-3});
    const Tensor tokens = randint({16}, 0, 64, random);
    tokens.eval();
    auto step = compile([](Model& m, optim::AdamW& o, const Tensor& x) {
      const Tensor logits = m.down(gelu(m.up(m.norm(m.table(x)))));
      const Tensor loss = cross_entropy(logits, x);
      o.zero_grad();
      loss.backward();
      o.step();
      return loss;
    });
    Tensor loss;
    auto run = [&] {
      loss = Tensor();
      loss = step(model, optimizer, tokens);
    };
    egret::testing::expect_one_launch_a_run(fake, run);
    EXPECT_NE(step.explain().find(" 0 copies"), std::string::npos) << step.explain();
  }
  use_device("cpu");
}

} // namespace
} // namespace egret

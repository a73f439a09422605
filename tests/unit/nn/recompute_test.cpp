#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/functional.h"
#include "egret/nn.h"
#include "egret/recompute.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret::nn {
namespace {

struct Chain {
  std::vector<TransformerBlock> blocks;
  EGRET_FIELDS(blocks)

  explicit Chain(std::int64_t count) {
    Generator g(2);
    for (std::int64_t i = 0; i < count; ++i)
      blocks.emplace_back(TransformerBlockOptions{.width = 16, .heads = 2, .dropout = 0.2}, g);
  }
  std::vector<Part> parts() const {
    std::vector<Part> parts;
    for (const auto& block : blocks)
      parts.emplace_back([&](const Tensor& x, Generator* g) { return block(x, g); });
    return parts;
  }
};

Tensor loss_of(const Tensor& y) {
  return y.square().mean();
}

TEST(BackwardInParts, GivesTheGradientsOfTheWhole) {
  Generator data(1);
  const Tensor x = randn({2, 5, 16}, data);
  for (bool drops : {false, true}) {
    Chain chain(2);
    auto parameters = named_parameters(chain);
    Generator a(7), b(7);
    Tensor y = x;
    for (const Part& part : chain.parts())
      y = part(y, drops ? &a : nullptr);
    Tensor whole = loss_of(y);
    whole.backward();
    std::vector<std::vector<float>> want;
    for (auto& [name, p] : parameters) {
      want.push_back(p.grad().to_vector());
      p.zero_grad();
    }
    const Tensor loss =
        backward_in_parts(chain.parts(), x, loss_of, parameters, drops ? &b : nullptr);
    EXPECT_NEAR(loss.item(), whole.item(), 1e-6 * whole.item());
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      auto got = parameters[i].tensor.grad().to_vector();
      for (std::size_t k = 0; k < got.size(); ++k)
        ASSERT_NEAR(got[k], want[i][k], 1e-5) << parameters[i].name << " " << k;
    }
    EXPECT_EQ(a.counter.item<std::uint64_t>(), b.counter.item<std::uint64_t>());
  }
}

TEST(BackwardInParts, AddsToGradients) {
  Chain chain(1);
  auto parameters = named_parameters(chain);
  const Tensor x = ones({1, 3, 16});
  backward_in_parts(chain.parts(), x, loss_of, parameters);
  const auto once = parameters[0].tensor.grad().to_vector();
  backward_in_parts(chain.parts(), x, loss_of, parameters);
  const auto twice = parameters[0].tensor.grad().to_vector();
  for (std::size_t i = 0; i < once.size(); ++i)
    ASSERT_NEAR(twice[i], 2 * once[i], 1e-6);
}

TEST(BackwardInParts, NeedsLessMemory) {
  Generator data(1);
  const Tensor x = randn({16, 32, 16}, data).eval();
  auto peak = [&](auto&& run) {
    Chain chain(8);
    auto parameters = named_parameters(chain);
    std::vector<Tensor> values;
    for (const auto& [name, p] : parameters)
      values.push_back(p);
    eval(values);
    const auto before = counters().bytes_in_use;
    reset_peak_bytes();
    run(chain, parameters);
    return counters().peak_bytes - before;
  };
  const auto whole = peak([&](const Chain& chain, const std::vector<NamedTensor>& parameters) {
    Tensor y = x;
    for (const Part& part : chain.parts())
      y = part(y, nullptr);
    loss_of(y).backward();
    std::vector<Tensor> gradients;
    for (const auto& [name, p] : parameters)
      gradients.push_back(p.grad());
    eval(gradients);
  });
  const auto parts = peak([&](const Chain& chain, const std::vector<NamedTensor>& parameters) {
    backward_in_parts(chain.parts(), x, loss_of, parameters);
  });
  EXPECT_LT(parts, whole / 2) << parts << " bytes in parts, " << whole << " as a whole";
  RecordProperty("bytes_in_parts", static_cast<int>(parts));
  RecordProperty("bytes_as_a_whole", static_cast<int>(whole));
}

TEST(BackwardInParts, IsForTheMemoryLimitWithinCompiledFunctions) {
  Generator data(1);
  const Tensor x = randn({16, 32, 16}, data).eval();
  const auto gradients = [&](std::optional<std::int64_t> limit, bool drops) {
    Chain chain(6);
    auto parameters = named_parameters(chain);
    Generator dropout(7);
    auto step = compile(
        [&](const Tensor& in) {
          for (auto& [name, p] : parameters)
            p.zero_grad();
          std::vector<Tensor> results = {backward_in_parts(chain.parts(), in, loss_of, parameters,
                                                           drops ? &dropout : nullptr)};
          for (const auto& [name, p] : parameters)
            results.push_back(p.grad());
          return results;
        },
        {.memory_limit = limit});
    std::vector<std::vector<float>> values;
    for (const Tensor& t : step(x))
      values.push_back(t.to_vector());
    EXPECT_EQ(limit.has_value(), step.explain().find("computed again") != std::string::npos);
    return values;
  };
  // Kernels of other CPUs want other scratch memory: the least that holds on this one is what a
  // refusal names.
  const std::int64_t least = test::least_limit([&] { gradients(1, true); });
  EXPECT_TRUE(gradients(least, true) == gradients(std::nullopt, true));

  // And they are those of the program that computes at once.
  const auto within = gradients(std::nullopt, false);
  Chain chain(6);
  auto parameters = named_parameters(chain);
  EXPECT_NEAR(backward_in_parts(chain.parts(), x, loss_of, parameters).item(), within[0][0],
              1e-5 * within[0][0]);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto want = parameters[i].tensor.grad().to_vector();
    for (std::size_t k = 0; k < want.size(); ++k)
      ASSERT_NEAR(within[i + 1][k], want[k], 1e-5) << parameters[i].name << " " << k;
  }
}

} // namespace
} // namespace egret::nn

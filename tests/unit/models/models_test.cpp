#include "egret/checkpoint.h"
#include "egret/compile.h"
#include "egret/data.h"
#include "egret/models.h"
#include "egret/optim.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

models::GptOptions tiny() {
  return {.vocabulary = 7, .context = 5, .layers = 2, .width = 8, .heads = 2};
}

Tensor tokens(std::int64_t batch, std::int64_t positions, Generator& g) {
  return randint({batch, positions}, 0, 7, g);
}

TEST(Gpt, ShapesAndNames) {
  Generator g(1);
  models::Gpt model(tiny(), g);
  EXPECT_EQ(model(tokens(3, 4, g)).sizes(), (std::vector<std::int64_t>{3, 4, 7}));
  auto state = nn::state_dict(model);
  for (const char* name :
       {"token_embedding.weight", "position_embedding.weight", "blocks.1.self_attn.in_proj_weight",
        "blocks.0.linear2.bias", "norm.weight", "head.weight"})
    EXPECT_TRUE(state.contains(name)) << name;
  models::GptOptions tied = tiny();
  tied.tied = true;
  models::Gpt small(tied, g);
  EXPECT_FALSE(nn::state_dict(small).contains("head.weight"));
  EXPECT_EQ(small(tokens(3, 4, g)).sizes(), (std::vector<std::int64_t>{3, 4, 7}));
}

TEST(Gpt, IsCausal) {
  Generator g(2);
  models::Gpt model(tiny(), g);
  auto a = model(tensor({{1, 2, 3, 4, 5}})).to_vector();
  auto b = model(tensor({{1, 2, 3, 6, 0}})).to_vector();
  for (int i = 0; i < 3 * 7; ++i)
    EXPECT_NEAR(a[i], b[i], 1e-6) << i;
  EXPECT_NE(a[3 * 7], b[3 * 7]);
}

TEST(Gpt, RefusesMoreThanItsContext) {
  Generator g(3);
  models::Gpt model(tiny(), g);
  EXPECT_NE(test::error_of(ErrorKind::Shape, [&] { model(tokens(1, 6, g)); })
                .find("6 positions, the context holds 5"),
            std::string::npos);
}

struct Training {
  models::Gpt model;
  optim::AdamW optimizer;
  Generator generator;
  EGRET_FIELDS(model, optimizer, generator)

  explicit Training(std::uint64_t seed) : Training(Generator(seed)) {}
  explicit Training(Generator g)
      : model(
            [&] {
              auto o = tiny();
              o.dropout = 0.1;
              return o;
            }(),
            g),
        optimizer(nn::named_parameters(model), {.lr = 0.01}), generator(g) {}

  double step() {
    Tensor x = randint({4, 5}, 0, 7, generator);
    Tensor loss = cross_entropy(model(x, &generator), (x + 1) % 7);
    optimizer.zero_grad();
    loss.backward();
    optim::clip_grad_norm(optimizer.parameters(), 1.0);
    optimizer.step();
    return loss.item();
  }
};

TEST(Checkpoint, ResumedTrainingGivesTheSameBits) {
  test::TempFolder folder;
  Training straight(11);
  for (int i = 0; i < 3; ++i)
    straight.step();
  save_checkpoint(folder / "a.safetensors", straight, {{"step", "3"}});
  std::vector<double> want;
  for (int i = 0; i < 3; ++i)
    want.push_back(straight.step());

  Training resumed(99);
  auto metadata = load_checkpoint(folder / "a.safetensors", resumed);
  EXPECT_EQ(metadata.at("step"), "3");
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(resumed.step(), want[i]) << i;
  auto a = nn::state_dict(straight), b = nn::state_dict(resumed);
  for (const auto& [name, value] : a)
    EXPECT_EQ(value.to_bytes(), b.at(name).to_bytes()) << name;
}

TEST(Checkpoint, OnePartCanBeLoaded) {
  test::TempFolder folder;
  Training training(5);
  save_checkpoint(folder / "a.safetensors", training);
  Generator g(1);
  models::Gpt model(tiny(), g);
  load_checkpoint_part(folder / "a.safetensors", model, "model");
  EXPECT_EQ(model.head->weight.to_vector(), training.model.head->weight.to_vector());
  std::string message = test::error_of(ErrorKind::Value, [&] {
    load_checkpoint_part(folder / "a.safetensors", model, "optimizer");
  });
  EXPECT_NE(message.find("a.safetensors: load_state_dict: missing: token_embedding.weight"),
            std::string::npos)
      << message;
}

TEST(Training, LossFallsAndEveryParameterMoves) {
  Training training(21);
  auto before = nn::state_dict(training.model);
  std::vector<std::vector<float>> values;
  for (auto& [name, value] : before)
    values.push_back(value.to_vector());
  double first = training.step();
  double last = first;
  for (int i = 0; i < 30; ++i)
    last = training.step();
  EXPECT_LT(last, 0.7 * first);
  std::size_t i = 0;
  for (auto& [name, value] : nn::state_dict(training.model))
    EXPECT_NE(value.to_vector(), values[i++]) << name;
}

} // namespace
} // namespace egret

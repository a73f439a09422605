// Whole trainings beside PyTorch's, from the same weights on the same data: each step's loss.
#include "egret/compile.h"
#include "egret/models.h"
#include "egret/optim.h"
#include "support/golden.h"

namespace egret {
namespace {

struct Batch {
  Tensor inputs, targets;
};

/// Trains for `steps` steps and compares each loss. What f32 alone does to the curve is in the file
/// too: PyTorch's own f32 run.
template <class Model, class Optimizer>
void expect_curve(const char* name, Model& model, Optimizer& optimizer,
                  const std::vector<Batch>& batches, double tolerance, std::size_t steps = 50) {
  const auto& want = test::golden("training.json").at("models").at(name);
  ASSERT_GE(want.at("f64").size(), steps);
  auto step = compile(
      [](Model& m, Optimizer& o, const Tensor& x, const Tensor& y) {
        Generator training; // draws nothing: no dropout; it tells that the model is trained
        const Tensor logits = m(x, &training);
        Tensor loss = cross_entropy(logits, y);
        o.zero_grad();
        loss.backward();
        o.step();
        return loss;
      },
      {.name = name});
  double ours = 0, torchs = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    const Batch& batch = batches[i % batches.size()];
    const double got = step(model, optimizer, batch.inputs, batch.targets).item();
    const double truth = want.at("f64")[i];
    ours = std::max(ours, std::abs(got - truth));
    torchs = std::max(torchs, std::abs(want.at("f32")[i].get<double>() - truth));
    ASSERT_NEAR(got, truth, tolerance * (1 + truth)) << name << " step " << i;
  }
  EXPECT_EQ(step.traces(), 1U);
  std::cout << name << ", " << steps << " steps: largest difference from PyTorch's f64 losses "
            << ours << ", of PyTorch's f32 losses " << torchs << "\n";
}

/// The network's norms over few values and its kinks carry f32 away from f64 in some steps, in
/// PyTorch as here: all steps are compared in f64, the first ones in f32 too.
TEST(GoldenTraining, ResNet18) {
  for (DType type : {DType::F64, DType::F32}) {
    Generator g;
    models::ResNet model({.classes = 5, .width = 4}, g);
    if (type == DType::F64)
      test::widen(model);
    test::set_golden_weights(model, 1);
    optim::Sgd optimizer(nn::named_parameters(model),
                         {.lr = 0x1p-11, .momentum = 0.9, .weight_decay = 1e-3});
    std::vector<Batch> batches;
    for (std::uint64_t i = 0; i < 4; ++i)
      batches.push_back({test::golden_data({16, 3, 32, 32}, 70 + i, type).eval(),
                         test::golden_classes({16}, 80 + i, 5)});
    const bool wide = type == DType::F64;
    expect_curve("resnet18", model, optimizer, batches, wide ? 1e-8 : 1e-5, wide ? 50 : 4);
  }
}

/// Words and, for each of them, the word at the same place from the end modulo 5.
std::vector<Batch> tags() {
  std::vector<Batch> batches;
  for (std::uint64_t i = 0; i < 4; ++i) {
    const Tensor words = test::golden_classes({4, 9}, 50 + i, 11);
    batches.push_back({words, (words.flip(1) % 5).eval()});
  }
  return batches;
}

struct LstmTagger {
  nn::Embedding embedding;
  nn::Lstm lstm;
  nn::Linear out;
  explicit LstmTagger(Generator& g)
      : embedding(11, 8, g), lstm(8, 12, g, {.layers = 2, .bidirectional = true}), out(24, 5, g) {}
  Tensor operator()(const Tensor& x, Generator* generator) const {
    return out(lstm(embedding(x), generator).output);
  }
  EGRET_FIELDS(embedding, lstm, out)
};

TEST(GoldenTraining, Lstm) {
  Generator g;
  LstmTagger model(g);
  test::set_golden_weights(model, 2);
  optim::Adam optimizer(nn::named_parameters(model), {.lr = 0.01});
  expect_curve("lstm", model, optimizer, tags(), 1e-4);
}

struct EncoderTagger {
  nn::Embedding embedding;
  nn::TransformerEncoder encoder;
  nn::Linear out;
  explicit EncoderTagger(Generator& g)
      : embedding(11, 16, g), encoder(2,
                                      {.width = 16,
                                       .heads = 4,
                                       .hidden = 32,
                                       .activation = nn::Activation::Relu,
                                       .causal = false,
                                       .norm_first = false},
                                      g),
        out(16, 5, g) {}
  Tensor operator()(const Tensor& x, Generator* generator) const {
    return out(encoder(embedding(x), generator));
  }
  EGRET_FIELDS(embedding, encoder, out)
};

TEST(GoldenTraining, TransformerEncoder) {
  Generator g;
  EncoderTagger model(g);
  test::set_golden_weights(model, 3);
  optim::AdamW optimizer(nn::named_parameters(model), {.lr = 0.003});
  expect_curve("encoder", model, optimizer, tags(), 1e-4);
}

TEST(GoldenTraining, Gpt) {
  Generator g;
  models::Gpt model({.vocabulary = 11, .context = 8, .layers = 2, .width = 16, .heads = 4}, g);
  test::set_golden_weights(model, 4);
  optim::AdamW optimizer(nn::named_parameters(model), {.lr = 0.003, .weight_decay = 0.1});
  std::vector<Batch> batches;
  for (const Batch& batch : tags())
    batches.push_back({batch.inputs.narrow(1, 0, 8).eval(), batch.inputs.narrow(1, 1, 8).eval()});
  expect_curve("gpt", model, optimizer, batches, 1e-4);
}

} // namespace
} // namespace egret

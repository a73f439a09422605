// Convolutional, recurrent and attention layers: names, modes, shapes and the laws between them.
// What they compute is compared with PyTorch in tests/e2e/golden.
#include "egret/compile.h"
#include "egret/grad.h"
#include "egret/models.h"
#include "egret/nn.h"
#include "support/files.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

namespace egret::nn {
namespace {

std::vector<std::string> convnet_names(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& named : tensors)
    names.push_back(named.name);
  return names;
}

std::vector<std::int64_t> dims(std::initializer_list<std::int64_t> list) {
  return list;
}

void expect_within(const Tensor& a, const Tensor& b, float tolerance = 1e-5F) {
  ASSERT_EQ(a.sizes(), b.sizes());
  auto x = a.to_vector(), y = b.to_vector();
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], y[i], tolerance) << i;
}

TEST(BatchNorm, AGeneratorTellsThatItTrains) {
  Generator g(1);
  const Tensor x = randn({8, 3, 4, 4}, g) * 2 + 1;
  const BatchNorm norm(3);
  expect_within(norm(x), x / std::sqrt(1 + 1e-5), 1e-4F); // by the running statistics
  EXPECT_EQ(norm.num_batches_tracked.item(), 0);
  const Tensor y = norm(x, &g);
  expect_within(y.mean({0, 2, 3}), zeros({3}), 1e-4F);
  expect_within(norm.running_mean, x.mean({0, 2, 3}) * 0.1, 1e-5F);
  expect_within(norm.running_var, 0.9 + x.var({0, 2, 3}) * 0.1, 1e-4F);
  EXPECT_EQ(norm.num_batches_tracked.item(), 1);
  BatchNorm copy = norm; // shares its tensors
  EXPECT_EQ(convnet_names(named_parameters(copy)), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(convnet_names(named_tensors(copy)),
            (std::vector<std::string>{"weight", "bias", "running_mean", "running_var",
                                      "num_batches_tracked"}));
}

TEST(BatchNorm, CompiledStepsUpdateTheStatistics) {
  Generator g(1);
  const Tensor x = randn({8, 3, 4, 4}, g);
  Sequential net(Conv2d(3, 4, 3, g, {.padding = 1}, false), BatchNorm(4), Relu{}, MaxPool2d(2),
                 AdaptiveAvgPool2d(1), Flatten{}, Linear(4, 2, g));
  EXPECT_EQ(convnet_names(named_parameters(net)),
            (std::vector<std::string>{"0.weight", "1.weight", "1.bias", "6.weight", "6.bias"}));
  auto step = compile([](decltype(net)& m, Generator& training, const Tensor& in) {
    Tensor loss = m(in, &training).square().mean();
    loss.backward();
    return loss;
  });
  for (int i = 0; i < 3; ++i)
    step(net, g, x);
  EXPECT_EQ(step.traces(), 1U);
  const auto& norm = std::get<1>(net.layers);
  EXPECT_EQ(norm.num_batches_tracked.item(), 3);
  const Tensor y = std::get<0>(net.layers)(x);
  expect_within(norm.running_mean, y.mean({0, 2, 3}) * (1 - std::pow(0.9, 3)), 1e-5F);
}

TEST(Conv, StartsAsPyTorchDoes) {
  Generator g(1);
  Conv2d layer(8, 16, 3, g, {.groups = 2});
  EXPECT_EQ(layer.weight.sizes(), dims({16, 4, 3, 3}));
  const double bound = 1 / std::sqrt(4.0 * 9);
  EXPECT_LE(layer.weight.abs().max().item(), bound);
  EXPECT_GT(layer.weight.abs().max().item(), 0.95 * bound);
  EXPECT_LE(layer.bias->abs().max().item(), bound);
  EXPECT_EQ(ConvTranspose3d(4, 6, 2, g, {.groups = 2}).weight.sizes(), dims({4, 3, 2, 2, 2}));
  EXPECT_EQ(Conv1d(3, 5, 4, g, {.same = true})(zeros({2, 3, 9})).sizes(), dims({2, 5, 9}));
  EXPECT_FALSE(Conv1d(3, 5, 4, g, {}, false).bias);
}

TEST(Pools, AreTheFunctions) {
  Generator g(1);
  const Tensor x = randn({2, 3, 7, 6}, g);
  expect_within(MaxPool2d(3, {.stride = 2, .padding = 1})(x),
                max_pool2d(x, 3, {.stride = 2, .padding = 1}));
  expect_within(AvgPool2d({2, 3}, {.ceil_mode = true})(x),
                avg_pool2d(x, {2, 3}, {.ceil_mode = true}));
  expect_within(AdaptiveMaxPool2d({2, 3})(x), adaptive_max_pool2d(x, {2, 3}));
  expect_within(Identity{}(x), x);
  EXPECT_EQ(Flatten{}(x).sizes(), dims({2, 126}));
}

TEST(Norms, OfGroupsAndInstances) {
  Generator g(1);
  const Tensor x = randn({2, 4, 5}, g);
  expect_within(GroupNorm(4, 4)(x), InstanceNorm(4)(x));
  expect_within(InstanceNorm(4, true)(x), InstanceNorm(4)(x));
  InstanceNorm plain(4);
  EXPECT_TRUE(named_parameters(plain).empty());
}

TEST(Recurrent, ParametersAreNamedAsTorchNamesThem) {
  Generator g(1);
  Lstm lstm(3, 5, g, {.layers = 2, .bidirectional = true});
  auto parameters = named_parameters(lstm);
  ASSERT_EQ(parameters.size(), 16U);
  EXPECT_EQ(parameters[0].name, "weight_ih_l0");
  EXPECT_EQ(parameters[0].tensor.sizes(), dims({20, 3}));
  EXPECT_EQ(parameters[5].name, "weight_hh_l0_reverse");
  EXPECT_EQ(parameters[8].name, "weight_ih_l1");
  EXPECT_EQ(parameters[8].tensor.sizes(), dims({20, 10}));
  EXPECT_EQ(parameters[15].name, "bias_hh_l1_reverse");
  Gru gru(3, 5, g, {.with_bias = false});
  EXPECT_EQ(convnet_names(named_parameters(gru)),
            (std::vector<std::string>{"weight_ih_l0", "weight_hh_l0"}));
  EXPECT_EQ(gru.directions[0].weight_hh.sizes(), dims({15, 5}));
}

TEST(Recurrent, GoesOnFromAState) {
  Generator g(1);
  const Lstm lstm(3, 5, g, {.layers = 2});
  const Tensor x = randn({2, 7, 3}, g);
  const RecurrentOutput whole = lstm(x);
  EXPECT_EQ(whole.output.sizes(), dims({2, 7, 5}));
  EXPECT_EQ(whole.state.cell.sizes(), dims({2, 2, 5}));
  const RecurrentOutput first = lstm(x.narrow(1, 0, 3));
  const RecurrentOutput rest = lstm(x.narrow(1, 3, 4), nullptr, first.state);
  expect_within(cat({first.output, rest.output}, 1), whole.output);
  expect_within(rest.state.hidden, whole.state.hidden);
  expect_within(rest.state.cell, whole.state.cell);
}

TEST(Recurrent, DropoutBetweenLayersOnlyWithAGenerator) {
  Generator g(1);
  const Gru gru(3, 5, g, {.layers = 2, .dropout = 0.5});
  const Tensor x = randn({2, 4, 3}, g);
  expect_within(gru(x).output, gru(x).output);
  EXPECT_NE(gru(x, &g).output.to_vector(), gru(x).output.to_vector());
}

TEST(MultiHeadAttention, AcrossToItselfIsSelfAttention) {
  Generator g(1);
  const Tensor x = randn({2, 5, 8}, g);
  for (std::int64_t kv : {4, 2, 1}) {
    const MultiHeadAttention attention(8, 4, g, false, kv);
    EXPECT_EQ(attention.in_proj_weight.size(0), 8 + 4 * kv);
    expect_within(attention.across(x, x), attention(x));
  }
}

TEST(MultiHeadAttention, SharedHeadsAreRepeatedHeads) {
  Generator g(1);
  const Tensor x = randn({2, 5, 8}, g);
  const MultiHeadAttention few(8, 4, g, true, 2);
  MultiHeadAttention all(8, 4, g, true);
  NoGrad no_grad;
  // Rows of the keys' and values' heads, two for each of few's.
  auto spread = [](const Tensor& rows) {
    const std::int64_t width = rows.rank() == 2 ? rows.size(1) : 1;
    Tensor heads = rows.reshape({2, 1, 2, width}).expand({2, 2, 2, width});
    return rows.rank() == 2 ? heads.reshape({8, width}) : heads.reshape({8});
  };
  auto grown = [&](const Tensor& t) {
    return cat({t.narrow(0, 0, 8), spread(t.narrow(0, 8, 4)), spread(t.narrow(0, 12, 4))}, 0);
  };
  all.in_proj_weight.assign(grown(few.in_proj_weight));
  all.in_proj_bias.assign(grown(few.in_proj_bias));
  all.out_proj = few.out_proj;
  expect_within(few(x), all(x));
}

TEST(MultiHeadAttention, MasksHide) {
  Generator g(1);
  const Tensor x = randn({1, 4, 8}, g);
  const MultiHeadAttention plain(8, 2, g);
  MultiHeadAttention causal = plain;
  causal.causal = true;
  expect_within(plain(x, causal_mask(4, 4)), causal(x));
}

TEST(TransformerLayers, StackAndName) {
  Generator g(1);
  const TransformerBlockOptions o{.width = 8, .heads = 2, .causal = false};
  TransformerEncoder encoder(2, o, g);
  TransformerDecoder decoder(2, o, g);
  const Tensor x = randn({2, 3, 8}, g), memory = encoder(randn({2, 5, 8}, g));
  EXPECT_EQ(decoder(x, memory).sizes(), dims({2, 3, 8}));
  EXPECT_EQ(convnet_names(named_parameters(encoder)).back(), "norm.bias");
  EXPECT_EQ(convnet_names(named_parameters(decoder))[4], "layers.0.multihead_attn.in_proj_weight");
  // Without the part of the memory that differs nothing differs.
  const Tensor other = cat({memory.narrow(1, 0, 4), randn({2, 1, 8}, g)}, 1);
  const Tensor seen = arange(5) < 4;
  expect_within(decoder(x, memory, nullptr, seen), decoder(x, other, nullptr, seen));
}

TEST(Init, HasTheDeviationsThatTheFansAsk) {
  Generator g(1);
  const Shape shape = {64, 32, 3, 3}; // 288 inputs, 576 outputs
  auto deviation = [](const Tensor& t) { return t.std().item(); };
  EXPECT_NEAR(deviation(init::xavier_uniform(shape, g)), std::sqrt(2.0 / 864), 1e-3);
  EXPECT_NEAR(deviation(init::xavier_normal(shape, g, 2)), 2 * std::sqrt(2.0 / 864), 2e-3);
  EXPECT_NEAR(deviation(init::kaiming_uniform(shape, g)), std::sqrt(2.0 / 288), 1e-3);
  EXPECT_NEAR(deviation(init::kaiming_normal(shape, g, {.slope = 1, .out = true})),
              std::sqrt(1.0 / 576), 1e-3);
  EXPECT_LE(init::xavier_uniform(shape, g).abs().max().item(), std::sqrt(6.0 / 864));
}

TEST(Init, OrthogonalRowsOrColumns) {
  Generator g(1);
  for (const Shape& shape : {Shape{5, 9}, Shape{9, 5}, Shape{4, 2, 3}}) {
    Tensor m = init::orthogonal(shape, g, 2).flatten(1);
    const std::int64_t fewer = std::min(m.size(0), m.size(1));
    if (m.size(0) > fewer)
      m = m.transpose();
    expect_within(matmul(m, m.transpose()), eye(fewer) * 4, 1e-5F);
  }
}

TEST(Init, TruncatedNormalStaysWithin) {
  Generator g(1);
  const Tensor x = init::truncated_normal({100000}, g, 1, 2, 0, 4);
  EXPECT_GE(x.min().item(), 0);
  EXPECT_LE(x.max().item(), 4);
  // Of a normal with mean 1 and deviation 2 between 0 and 4: the mean is 1 + 2 (φ(-1/2) - φ(3/2)) /
  // (Φ(3/2) - Φ(-1/2)).
  EXPECT_NEAR(x.mean().item(), 1.7125, 0.01);
}

TEST(NnErrors, NameTheLayer) {
  Generator g;
  auto message = [&](auto&& run) { return test::error_of(ErrorKind::Value, run); };
  EXPECT_NE(
      message([&] { Conv2d(3, 4, 3, g, {.groups = 2}); }).find("Conv: 2 groups do not divide"),
      std::string::npos);
  EXPECT_NE(message([&] {
              Conv2d(3, 4, {3, 3, 3}, g);
            }).find("Conv: a kernel of 3 sizes for 2 axes"),
            std::string::npos);
  EXPECT_NE(message([&] { Conv2d(0, 4, 3, g); }).find("must be positive"), std::string::npos);
  EXPECT_NE(message([&] { GroupNorm(3, 4); }).find("GroupNorm: 3 groups"), std::string::npos);
  EXPECT_NE(message([&] { Lstm(3, 0, g); }).find("width 0"), std::string::npos);
  EXPECT_NE(message([&] { MultiHeadAttention(8, 4, g, false, 3); }).find("3 heads of keys"),
            std::string::npos);
  EXPECT_NE(message([&] { init::truncated_normal({2}, g, 0, 1, 2, 1); }).find("truncated_normal"),
            std::string::npos);
  EXPECT_THROW(init::fans_of({3}), Error);
  EXPECT_THROW(Lstm(3, 2, g)(zeros({2, 3})), Error);
  EXPECT_THROW(Lstm(3, 2, g)(zeros({2, 0, 3})), Error);
  EXPECT_THROW(Lstm(3, 2, g)(zeros({2, 4, 3}), nullptr, {zeros({2, 2, 2}), {}}), Error);
}

} // namespace
} // namespace egret::nn

namespace egret::models {
namespace {

TEST(ResNet, HasTorchvisionsNames) {
  Generator g(1);
  ResNet net({.classes = 10, .width = 4}, g);
  EXPECT_EQ(net(zeros({2, 3, 32, 32})).sizes(), (std::vector<std::int64_t>{2, 10}));
  auto state = nn::state_dict(net);
  EXPECT_EQ(state.size(), 122U); // 20 convolutions, 20 norms of 5 tensors, one linear layer
  for (const char* name : {"conv1.weight", "bn1.running_var", "layer2.0.downsample.1.bias",
                           "layer4.1.bn2.num_batches_tracked", "fc.bias"})
    EXPECT_TRUE(state.contains(name)) << name;
  ResNet full({}, g);
  EXPECT_EQ(nn::count(nn::named_parameters(full)), 11'689'512); // torchvision's resnet18
}

} // namespace
} // namespace egret::models

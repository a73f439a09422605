// Layers, optimizers and schedules beside PyTorch's.
#include "egret/optim.h"
#include "support/golden.h"

namespace egret {
namespace {

const nlohmann::json& wanted(const char* part, const char* name) {
  return test::golden("training.json").at(part).at(name);
}

/// A layer with the weights of `seed`: its outputs, and the gradient of the sum of their cubes.
template <class M, class F>
void expect_layer(const char* name, M module, std::uint64_t seed, const Tensor& input, F&& run) {
  test::set_golden_weights(module, seed);
  Tensor x = input.detach().set_requires_grad();
  std::vector<double> got;
  Tensor loss;
  for (const Tensor& part : run(module, x)) {
    for (double value : part.template to_vector<double>())
      got.push_back(value);
    const Tensor cubes = (part * part * part).sum();
    loss = loss.defined() ? loss + cubes : cubes;
  }
  test::expect_golden(got, wanted("layers", name).at("out"), 2e-6, name);
  loss.backward();
  test::expect_golden(x.grad().to_vector<double>(), wanted("layers", name).at("grad"), 2e-5,
                      std::string(name) + " gradient");
}

template <class M>
void expect_layer(const char* name, M module, std::uint64_t seed, const Tensor& input) {
  expect_layer(name, std::move(module), seed, input, [](const M& m, const Tensor& x) {
    if constexpr (std::is_invocable_v<const M&, const Tensor&, Generator*>) {
      Generator g;
      return std::vector<Tensor>{m(x, &g)};
    } else {
      return std::vector<Tensor>{m(x)};
    }
  });
}

struct GoldenLayers : testing::Test {
  Generator g;
  Tensor x = test::golden_data({2, 5, 4}, 7), memory = test::golden_data({2, 3, 4}, 8);
  Tensor image = test::golden_data({2, 4, 6, 5}, 9),
         volume = test::golden_data({1, 4, 3, 4, 3}, 10);
  Tensor line = test::golden_data({2, 4, 9}, 11);
};

TEST_F(GoldenLayers, Recurrent) {
  auto all = [](const auto& m, const Tensor& in) {
    const nn::RecurrentOutput y = m(in);
    std::vector<Tensor> parts = {y.output, y.state.hidden};
    if (y.state.cell.defined())
      parts.push_back(y.state.cell);
    return parts;
  };
  expect_layer("rnn", nn::Rnn(4, 3, g, {.layers = 2}), 11, x, all);
  expect_layer("rnn_relu", nn::Rnn(4, 3, g, {.bidirectional = true}, nn::Cell::Relu), 12, x, all);
  expect_layer("gru", nn::Gru(4, 3, g, {.layers = 2, .bidirectional = true}), 13, x, all);
  expect_layer("lstm", nn::Lstm(4, 3, g, {.layers = 2, .bidirectional = true}), 14, x, all);
  const nn::RecurrentState from = {test::golden_data({1, 2, 3}, 16),
                                   test::golden_data({1, 2, 3}, 17)};
  expect_layer("lstm_from", nn::Lstm(4, 3, g), 15, x, [&](const nn::Lstm& m, const Tensor& in) {
    const nn::RecurrentOutput y = m(in, nullptr, from);
    return std::vector<Tensor>{y.output, y.state.hidden, y.state.cell};
  });
}

TEST_F(GoldenLayers, Attention) {
  auto across = [&](const Tensor& mask) {
    return [this, mask](const nn::MultiHeadAttention& m, const Tensor& in) {
      return std::vector<Tensor>{m.across(in, memory, mask)};
    };
  };
  const Tensor seen = tensor({{true, false, true},
                              {false, true, true},
                              {true, true, true},
                              {false, false, true},
                              {true, false, false}});
  expect_layer("attention", nn::MultiHeadAttention(4, 2, g), 18, x, across({}));
  expect_layer("attention_mask", nn::MultiHeadAttention(4, 2, g), 19, x, across(seen));
}

TEST_F(GoldenLayers, TransformerLayers) {
  nn::TransformerBlockOptions o{.width = 4,
                                .heads = 2,
                                .hidden = 6,
                                .activation = nn::Activation::Relu,
                                .causal = false,
                                .norm_first = false};
  expect_layer("encoder_post", nn::TransformerBlock(o, g), 20, x);
  auto decode = [&](const nn::TransformerDecoderBlock& m, const Tensor& in) {
    return std::vector<Tensor>{m(in, memory)};
  };
  o.causal = true;
  expect_layer("decoder_post", nn::TransformerDecoderBlock(o, g), 22, x, decode);
  o.norm_first = true;
  expect_layer("decoder_pre", nn::TransformerDecoderBlock(o, g), 23, x, decode);
  o.causal = false;
  o.activation = nn::Activation::Gelu;
  expect_layer("encoder_pre", nn::TransformerBlock(o, g), 21, x);
}

TEST_F(GoldenLayers, Convolutions) {
  expect_layer("conv1d",
               nn::Conv1d(4, 6, 3, g, {.stride = 2, .padding = 1, .dilation = 2, .groups = 2}), 24,
               line);
  expect_layer("conv2d", nn::Conv2d(4, 6, {3, 2}, g, {.stride = {2, 1}, .padding = {1, 0}}), 25,
               image);
  expect_layer("conv3d", nn::Conv3d(4, 2, 2, g), 26, volume);
  expect_layer("conv_transpose1d",
               nn::ConvTranspose1d(4, 6, 3, g,
                                   {.stride = 2, .padding = 1, .output_padding = 1, .groups = 2}),
               27, line);
  expect_layer("conv_transpose2d",
               nn::ConvTranspose2d(4, 3, 3, g, {.stride = 2, .padding = 1, .output_padding = 1}),
               28, image);
}

TEST_F(GoldenLayers, Norms) {
  expect_layer("group_norm", nn::GroupNorm(2, 4), 29, image);
  expect_layer("instance_norm", nn::InstanceNorm(4, true), 30, image);
  nn::BatchNorm norm(4);
  expect_layer("batch_norm", norm, 31, image); // a copy shares its tensors
  norm(image * 2 + 1, &g).eval();
  std::vector<double> got = norm.running_mean.to_vector<double>();
  for (const Tensor& part : {norm.running_var, norm(image)})
    for (double value : part.to_vector<double>())
      got.push_back(value);
  test::expect_golden(got, wanted("layers", "batch_norm_running"), 2e-6, "running statistics");
  EXPECT_EQ(norm.num_batches_tracked.item(), 2);
}

template <class O, class... A>
void expect_path(const char* name, A... options) {
  std::vector<NamedTensor> ps = {
      {"matrix", (test::golden_data({3, 2}, 5) * 2).detach().set_requires_grad()},
      {"vector", (test::golden_data({4}, 6) * 2).detach().set_requires_grad()}};
  auto make = [&] {
    if constexpr (sizeof...(A) == 2) // groups: the second has a tenth of the rate and no decay
      return O(
          {{.parameters = {ps[0]}}, {.parameters = {ps[1]}, .lr_factor = 0.1, .weight_decay = 0}},
          std::get<0>(std::tuple(options...)));
    else
      return O(ps, options...);
  };
  O optimizer = make();
  std::vector<double> got;
  for (int i = 0; i < 20; ++i) {
    for (auto& [key, p] : ps)
      p.set_grad((p * p * p - 1.0).detach());
    optimizer.step();
    for (auto& [key, p] : ps) {
      const auto values = p.template to_vector<double>();
      got.insert(got.end(), values.begin(), values.end());
    }
  }
  test::expect_golden(got, wanted("optimizers", name), 2e-6, name);
}

TEST(GoldenOptimizers, TakeTheSameWay) {
  expect_path<optim::Sgd>(
      "sgd", optim::SgdOptions{.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true});
  expect_path<optim::Adam>(
      "adam", optim::AdamOptions{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.3});
  expect_path<optim::AdamW>(
      "adamw", optim::AdamWOptions{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.3});
  expect_path<optim::Adagrad>(
      "adagrad",
      optim::AdagradOptions{.lr = 0.2, .lr_decay = 0.1, .weight_decay = 0.05, .initial = 0.5});
  expect_path<optim::RmsProp>(
      "rmsprop",
      optim::RmsPropOptions{.lr = 0.02, .alpha = 0.9, .weight_decay = 0.1, .momentum = 0.7});
  expect_path<optim::RmsProp>(
      "rmsprop_centered",
      optim::RmsPropOptions{
          .lr = 0.01, .alpha = 0.8, .eps = 1e-2, .momentum = 0.5, .centered = true});
  expect_path<optim::AdamW>("groups", optim::AdamWOptions{.lr = 0.05}, true);
}

template <class S>
void expect_rates(const char* name, const S& schedule) {
  const auto& want = wanted("schedules", name);
  std::vector<double> got;
  for (std::size_t i = 0; i < want.size(); ++i)
    got.push_back(schedule.at(static_cast<std::int64_t>(i)));
  test::expect_golden(got, want, 1e-8, name);
}

TEST(GoldenSchedules, GiveTheSameRates) {
  expect_rates("one_cycle", optim::OneCycle{.peak = 0.5, .total = 40});
  expect_rates("step", optim::StepDecay{.start = 1, .every = 7, .factor = 0.3});
  expect_rates("exponential", optim::Exponential{.start = 1, .factor = 0.9});
  expect_rates("linear", optim::Linear{.start = 1, .end = 0.25, .total = 20});
  optim::Plateau plateau(
      {.lr = 1, .factor = 0.5, .patience = 2, .threshold = 0.01, .cooldown = 1, .least = 0.05});
  std::vector<double> got;
  for (const auto& value : wanted("schedules", "plateau_measured"))
    got.push_back(plateau.update(value.get<double>()));
  test::expect_golden(got, wanted("schedules", "plateau"), 1e-8, "plateau");
}

} // namespace
} // namespace egret

#include "egret/grad.h"
#include "egret/nn.h"
#include "support/files.h"

#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

namespace egret::nn {
namespace {

std::vector<std::string> names_of(const std::vector<NamedTensor>& tensors) {
  std::vector<std::string> names;
  for (const auto& named : tensors)
    names.push_back(named.name);
  return names;
}

void expect_near(const Tensor& a, const std::vector<float>& want, float tolerance = 1e-5F) {
  auto got = a.to_vector();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], tolerance) << i;
}

struct Net {
  Linear hidden, out;
  LayerNorm norm;
  EGRET_FIELDS(hidden, out, norm)
};

TEST(Modules, FieldsGiveDottedNamesInOrder) {
  Generator g(1);
  Net net{Linear(3, 4, g), Linear(4, 2, g, false), LayerNorm(2)};
  EXPECT_EQ(names_of(named_parameters(net)),
            (std::vector<std::string>{"hidden.weight", "hidden.bias", "out.weight", "norm.weight",
                                      "norm.bias"}));
  EXPECT_EQ(count(named_parameters(net)), 3 * 4 + 4 + 4 * 2 + 2 + 2);
}

TEST(Modules, TransformerBlockIsNamedAsTorchNamesIt) {
  Generator g(1);
  TransformerBlock block({.width = 8, .heads = 2}, g);
  EXPECT_EQ(names_of(named_parameters(block)),
            (std::vector<std::string>{
                "self_attn.in_proj_weight", "self_attn.in_proj_bias", "self_attn.out_proj.weight",
                "self_attn.out_proj.bias", "linear1.weight", "linear1.bias", "linear2.weight",
                "linear2.bias", "norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias"}));
}

TEST(Modules, SequentialIsNumbered) {
  Generator g(1);
  Sequential net(Linear(3, 4, g), Relu{}, Linear(4, 2, g));
  EXPECT_EQ(names_of(named_parameters(net)),
            (std::vector<std::string>{"0.weight", "0.bias", "2.weight", "2.bias"}));
  EXPECT_EQ(net(ones({5, 3})).sizes(), (std::vector<std::int64_t>{5, 2}));
}

TEST(Modules, LinearIsWeightTransposedPlusBias) {
  Generator g(1);
  Linear layer(2, 3, g);
  layer.weight = tensor({{1., 2.}, {3., 4.}, {5., 6.}});
  layer.bias = tensor({10., 20., 30.});
  expect_near(layer(tensor({{1., 1.}, {0., 2.}})), {13, 27, 41, 14, 28, 42});
}

TEST(Modules, LinearStartsUniformWithinTheBound) {
  Generator g(3);
  Linear layer(100, 50, g);
  auto values = layer.weight.to_vector();
  for (float v : values)
    EXPECT_LE(std::abs(v), 0.1F);
  double mean = std::accumulate(values.begin(), values.end(), 0.0) / 5000;
  double square = std::inner_product(values.begin(), values.end(), values.begin(), 0.0) / 5000;
  EXPECT_NEAR(mean, 0, 0.004);
  EXPECT_NEAR(square, 0.01 / 3, 0.0003);
}

TEST(Modules, EqualSeedsGiveEqualParameters) {
  Generator a(5), b(5), c(6);
  EXPECT_EQ(Linear(4, 4, a).weight.to_vector(), Linear(4, 4, b).weight.to_vector());
  EXPECT_NE(Linear(4, 4, a).weight.to_vector(), Linear(4, 4, c).weight.to_vector());
}

TEST(Modules, Norms) {
  LayerNorm layer(4);
  expect_near(layer(tensor({{1., 2., 3., 4.}})),
              {-1.3416355F, -0.44721183F, 0.44721183F, 1.3416355F});
  RmsNorm rms(4);
  float r = std::sqrt(7.5F);
  expect_near(rms(tensor({{1., 2., 3., 4.}})), {1 / r, 2 / r, 3 / r, 4 / r});
}

TEST(Modules, DropoutNeedsAGenerator) {
  Dropout half{0.5};
  Tensor x = ones({1000});
  EXPECT_EQ(half(x, nullptr).to_vector(), x.to_vector());
  Generator g(2);
  auto a = half(x, &g).to_vector();
  auto b = half(x, &g).to_vector();
  EXPECT_NE(a, b) << "the generator's state must advance";
  int zeros = 0;
  for (float v : a) {
    EXPECT_TRUE(v == 0 || v == 2) << v;
    zeros += v == 0 ? 1 : 0;
  }
  EXPECT_NEAR(zeros, 500, 80);
}

TEST(Modules, AttentionAgreesWithTheFormula) {
  Generator g(4);
  const std::int64_t n = 3, width = 4, heads = 2, d = 2;
  for (bool causal : {false, true}) {
    MultiHeadAttention attention(width, heads, g, causal);
    Tensor x = randn({n, width}, g);
    auto got = attention(x).to_vector();
    // By plain loops, for one batch.
    auto in = x.to_vector(), w = attention.in_proj_weight.to_vector(),
         b = attention.in_proj_bias.to_vector();
    auto ow = attention.out_proj.weight.to_vector(), ob = attention.out_proj.bias->to_vector();
    auto proj = [&](std::int64_t i, std::int64_t row) {
      double sum = b[row];
      for (std::int64_t k = 0; k < width; ++k)
        sum += w[row * width + k] * in[i * width + k];
      return sum;
    };
    for (std::int64_t i = 0; i < n; ++i) {
      std::vector<double> mixed(width);
      for (std::int64_t h = 0; h < heads; ++h) {
        std::int64_t seen = causal ? i + 1 : n;
        std::vector<double> p(seen);
        double sum = 0;
        for (std::int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (std::int64_t c = 0; c < d; ++c)
            score += proj(i, h * d + c) * proj(j, width + h * d + c);
          sum += p[j] = std::exp(score / std::sqrt(double(d)));
        }
        for (std::int64_t j = 0; j < seen; ++j)
          for (std::int64_t c = 0; c < d; ++c)
            mixed[h * d + c] += p[j] / sum * proj(j, 2 * width + h * d + c);
      }
      for (std::int64_t o = 0; o < width; ++o) {
        double want = ob[o];
        for (std::int64_t c = 0; c < width; ++c)
          want += ow[o * width + c] * mixed[c];
        EXPECT_NEAR(got[i * width + o], want, 1e-5) << i << "," << o;
      }
    }
  }
}

TEST(Modules, EveryParameterOfABlockGetsAGradient) {
  Generator g(7);
  TransformerBlock block({.width = 8, .heads = 2, .dropout = 0.1}, g);
  block(randn({2, 3, 8}, g), &g).square().sum().backward();
  for (const auto& [name, p] : named_parameters(block)) {
    ASSERT_TRUE(p.grad().defined()) << name;
    EXPECT_EQ(p.grad().sizes(), p.sizes()) << name;
    EXPECT_TRUE(std::isfinite(p.grad().sum().item())) << name;
  }
}

TEST(StateDict, IsASnapshotThatLoadsBack) {
  Generator g(8);
  Mlp a({3, 4, 2}, g), b({3, 4, 2}, g);
  auto state = state_dict(a);
  auto before = a.layers[0].weight.to_vector();
  {
    NoGrad no_grad;
    a.layers[0].weight += 1.0;
  }
  EXPECT_EQ(state.at("layers.0.weight").to_vector(), before);
  auto report = load_state_dict(b, state);
  EXPECT_TRUE(report.complete());
  EXPECT_EQ(b.layers[0].weight.to_vector(), before);
  EXPECT_TRUE(b.layers[0].weight.requires_grad());
  EXPECT_TRUE(b.layers[0].weight.is_leaf());
}

TEST(StateDict, MissingAndUnexpectedNamesAreListed) {
  Generator g(9);
  Mlp mlp({3, 4, 2}, g);
  auto before = mlp.layers[0].weight.to_vector();
  auto state = state_dict(mlp);
  state["layers.0.weight"] = ones({4, 3});
  state.erase("layers.1.bias");
  state["extra"] = ones({1});
  std::string message = test::error_of(ErrorKind::Value, [&] { load_state_dict(mlp, state); });
  EXPECT_NE(message.find("missing: layers.1.bias; unexpected: extra"), std::string::npos)
      << message;
  EXPECT_EQ(mlp.layers[0].weight.to_vector(), before) << "nothing may change";
  auto report = load_state_dict(mlp, state, false);
  EXPECT_EQ(report.missing, std::vector<std::string>{"layers.1.bias"});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"extra"});
  EXPECT_EQ(mlp.layers[0].weight.to_vector(), std::vector<float>(12, 1));
}

TEST(StateDict, ShapesMustBeEqual) {
  Generator g(9);
  Mlp mlp({3, 4, 2}, g);
  auto state = state_dict(mlp);
  state["layers.0.bias"] = ones({1});
  std::string message =
      test::error_of(ErrorKind::Shape, [&] { load_state_dict(mlp, state, false); });
  EXPECT_NE(message.find("'layers.0.bias' is [4] in the module and [1] in the state"),
            std::string::npos)
      << message;
}

TEST(ModuleErrors, SizesThatDoNotFit) {
  Generator g(1);
  EXPECT_NE(test::error_of(ErrorKind::Value, [&] { MultiHeadAttention(6, 4, g); })
                .find("4 heads do not divide"),
            std::string::npos);
  EXPECT_THROW(Linear(0, 3, g), Error);
  EXPECT_THROW(Mlp({3}, g), Error);
  EXPECT_THROW(MultiHeadAttention(4, 2, g)(ones({4})), Error);
}

} // namespace
} // namespace egret::nn

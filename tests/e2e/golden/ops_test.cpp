// Functions beside PyTorch's: the calls of tests/golden/make_ops.py.
#include "egret/functional/fourier.h"
#include "support/golden.h"

#include <fmt/format.h>

#include <functional>
#include <limits>

namespace egret {
namespace {

using Tensors = std::vector<Tensor>;
using Call = std::function<Tensors(const Tensors&)>;

Tensor data(const Shape& shape, std::uint64_t seed) {
  return test::golden_data(shape, seed, DType::F64);
}

double number(const nlohmann::json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

void expect_numbers(const Tensor& have, const nlohmann::json& want, const std::string& what) {
  // PyTorch's sixth is one of f32 there, in f64 too.
  // Windows are f32.
  const double tolerance =
      what == "hardsigmoid gradient" || what.find("_window") != what.npos ? 1e-7 : 1e-9;
  const auto values = have.to_vector<double>();
  ASSERT_EQ(values.size(), want.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double w = number(want[i]);
    if (std::isfinite(w))
      EXPECT_NEAR(values[i], w, tolerance * (1 + std::abs(w))) << what << " " << i;
    else
      EXPECT_TRUE(std::isnan(w) ? std::isnan(values[i]) : values[i] == w)
          << what << " " << i << ": " << values[i] << ", expected " << w;
  }
}

// Results, and the gradient of the sum of their squares where the file has it.
void expect_case(const std::string& name, const Tensors& operands, const Call& call) {
  const auto& cases = test::golden("ops.json");
  ASSERT_TRUE(cases.contains(name)) << name;
  const auto& want = cases.at(name);
  Tensors in = operands;
  if (want.contains("grad"))
    in[0] = in[0].detach().clone().set_requires_grad();
  const Tensors out = call(in);
  ASSERT_EQ(out.size(), want.at("out").size()) << name;
  Tensor total = zeros({}, DType::F64);
  for (std::size_t i = 0; i < out.size(); ++i) {
    expect_numbers(out[i], want.at("out")[i], name);
    if (is_float(out[i].dtype()))
      total = total + (out[i] * out[i]).sum();
  }
  if (want.contains("grad"))
    expect_numbers(grad(total, in[0]), want.at("grad"), name + " gradient");
}

Call one(std::function<Tensor(const Tensors&)> f) {
  return [f](const Tensors& t) { return Tensors{f(t)}; };
}

const Tensor& line() {
  static const Tensor x = data({2, 4, 7}, 1);
  return x;
}
const Tensor& image() {
  static const Tensor x = data({1, 4, 5, 6}, 2);
  return x;
}

TEST(GoldenOps, Convolutions) {
  expect_case("conv1d", {line(), data({6, 2, 3}, 3), data({6}, 4)}, one([](const Tensors& t) {
                return conv1d(t[0], t[1], t[2],
                              {.stride = 2, .padding = 2, .dilation = 2, .groups = 2});
              }));
  expect_case("conv1d same", {line(), data({3, 4, 2}, 5)}, one([](const Tensors& t) {
                return conv1d(t[0], t[1], {}, {.dilation = 3, .same = true});
              }));
  expect_case(
      "conv2d", {image(), data({3, 4, 3, 2}, 6)}, one([](const Tensors& t) {
        return conv2d(t[0], t[1], {}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}});
      }));
  expect_case("conv_transpose1d", {line(), data({4, 3, 3}, 7), data({6}, 8)},
              one([](const Tensors& t) {
                return conv_transpose1d(
                    t[0], t[1], t[2],
                    {.stride = 3, .padding = 2, .output_padding = 1, .dilation = 2, .groups = 2});
              }));
  expect_case("conv_transpose2d", {image(), data({4, 2, 3, 2}, 9)}, one([](const Tensors& t) {
                return conv_transpose2d(
                    t[0], t[1], {},
                    {.stride = {2, 1}, .padding = {1, 0}, .output_padding = {1, 0}});
              }));
}

TEST(GoldenOps, Pooling) {
  expect_case("max_pool1d ceil", {line()}, one([](const Tensors& t) {
                return max_pool1d(t[0], 3, {.stride = 2, .padding = 1, .ceil_mode = true});
              }));
  expect_case("max_pool2d ceil dilated", {image()}, one([](const Tensors& t) {
                return max_pool2d(t[0], 2, {.stride = 2, .dilation = 2, .ceil_mode = true});
              }));
  for (bool include : {true, false})
    expect_case(include ? "avg_pool2d ceil" : "avg_pool2d ceil exclude", {image()},
                one([=](const Tensors& t) {
                  return avg_pool2d(
                      t[0], 3,
                      {.stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = include});
                }));
  expect_case("avg_pool2d divisor", {image()},
              one([](const Tensors& t) { return avg_pool2d(t[0], 2, {.divisor = 3}); }));
  expect_case("adaptive_avg_pool2d", {image()}, one([](const Tensors& t) {
                return adaptive_avg_pool2d(t[0], {3, 4});
              }));
  expect_case("adaptive_max_pool1d", {line()},
              one([](const Tensors& t) { return adaptive_max_pool1d(t[0], 3); }));
}

TEST(GoldenOps, Norms) {
  const Tensor mean = data({4}, 10), var = data({4}, 11) + 2, w = data({4}, 12), b = data({4}, 13);
  expect_case("batch_norm", {line(), w, b}, [&](const Tensors& t) {
    const Tensor m = mean.clone(), v = var.clone();
    const Tensor y =
        batch_norm(t[0], m, v, t[1], t[2], {.training = true, .momentum = 0.3, .eps = 0.1});
    return Tensors{y, m, v};
  });
  expect_case("batch_norm running", {line()}, one([&](const Tensors& t) {
                return batch_norm(t[0], mean, var, {}, {}, {.eps = 0.1});
              }));
  expect_case("group_norm", {line(), w, b},
              one([](const Tensors& t) { return group_norm(t[0], 2, t[1], t[2], 0.1); }));
  expect_case("instance_norm", {line()},
              one([](const Tensors& t) { return instance_norm(t[0], {}, {}, 0.1); }));
}

TEST(GoldenOps, Losses) {
  const Tensor logits = data({6, 5}, 20), target = test::golden_classes({6}, 21, 5),
               weight = data({5}, 22) + 2, probability = (data({6, 5}, 24) + 1.5) / 3;
  auto loss = [&](const char* name, std::function<Tensor(const Tensor&)> f) {
    expect_case(name, {logits}, one([=](const Tensors& t) { return f(t[0]); }));
  };
  const std::pair<const char*, Reduction> reductions[] = {
      {"mean", Reduction::Mean}, {"sum", Reduction::Sum}, {"none", Reduction::None}};
  for (auto [name, reduction] : reductions) {
    const CrossEntropyOptions options{
        .ignore_index = 2, .label_smoothing = 0.2, .reduction = reduction, .weight = weight};
    expect_case(std::string("cross_entropy ") + name, {logits},
                one([&](const Tensors& t) { return cross_entropy(t[0], target, options); }));
  }
  loss("cross_entropy probabilities", [&](const Tensor& x) {
    return cross_entropy(x, (data({6, 5}, 23) + 1) / 2, {.label_smoothing = 0.1, .weight = weight});
  });
  loss("nll_loss",
       [&](const Tensor& x) { return nll_loss(x, target, {.ignore_index = 1, .weight = weight}); });
  expect_case("bce weight", {(data({6, 5}, 25) + 1.5) / 3}, one([&](const Tensors& t) {
                return binary_cross_entropy(t[0], probability, {.weight = weight});
              }));
  loss("bce logits", [&](const Tensor& x) {
    return binary_cross_entropy_with_logits(x, probability,
                                            {.weight = weight, .pos_weight = weight * 2});
  });
  loss("kl_div", [&](const Tensor& x) { return kl_div(x, probability, {.batch_mean = true}); });
  loss("kl_div log", [&](const Tensor& x) { return kl_div(x, logits * 2, {.log_target = true}); });
  loss("smooth_l1", [&](const Tensor& x) { return smooth_l1_loss(x, probability, 0.5); });
  loss("huber", [&](const Tensor& x) { return huber_loss(x, probability, 0.5); });
  loss("gaussian_nll",
       [&](const Tensor& x) { return gaussian_nll_loss(x, logits * 2, probability); });
  const Tensor sign = tensor(std::vector<double>{1, -1, 1, -1, -1, 1});
  loss("cosine_embedding",
       [&](const Tensor& x) { return cosine_embedding_loss(x, probability, sign, 0.1); });
  loss("triplet",
       [&](const Tensor& x) { return triplet_margin_loss(x, probability, logits * 0.5); });
  loss("cosine_similarity", [&](const Tensor& x) { return cosine_similarity(x, probability, 0); });
}

TEST(GoldenOps, Interpolation) {
  struct Case {
    const char* name;
    Tensor x;
    PerAxis size;
  };
  for (const Case& c : {Case{"1d", line(), 11}, {"1d down", line(), 3}, {"2d", image(), {8, 3}}})
    for (auto mode : {Interpolation::Nearest, Interpolation::NearestExact, Interpolation::Linear,
                      Interpolation::Cubic})
      for (bool align : {false, true}) {
        const bool flat = c.name[0] == '1',
                   near = mode == Interpolation::Nearest || mode == Interpolation::NearestExact;
        if ((near && align) || (flat && mode == Interpolation::Cubic))
          continue;
        const char* names[] = {"nearest", "nearest-exact", flat ? "linear" : "bilinear", "bicubic"};
        expect_case(std::string("interpolate ") + c.name + " " + names[int(mode)] +
                        (align ? " True" : " False"),
                    {c.x}, one([&](const Tensors& t) {
                      return interpolate(t[0], c.size, {.mode = mode, .align_corners = align});
                    }));
      }
  expect_case("interpolate factor", {image()}, one([](const Tensors& t) {
                return interpolate_by(t[0], {1.7}, {.mode = Interpolation::Linear});
              }));
  expect_case("interpolate factor nearest", {image()}, one([](const Tensors& t) {
                return interpolate_by(t[0], {1.7, 0.6});
              }));
  expect_case("pixel_shuffle", {image()},
              one([](const Tensors& t) { return pixel_shuffle(t[0], 2); }));
}

TEST(GoldenOps, ProductsAndViews) {
  expect_case("einsum", {line(), data({3, 7}, 30)}, one([](const Tensors& t) {
                return einsum("...ij,kj->...ki", {t[0], t[1]});
              }));
  expect_case("einsum diagonal", {data({3, 3, 4}, 31)},
              one([](const Tensors& t) { return einsum("iij->j", {t[0]}); }));
  const std::pair<const char*, PadMode> modes[] = {{"pad reflect", PadMode::Reflect},
                                                   {"pad replicate", PadMode::Replicate},
                                                   {"pad circular", PadMode::Circular}};
  for (auto [name, mode] : modes)
    expect_case(name, {image()}, one([mode = mode](const Tensors& t) {
                  return pad(t[0], {0, 0, 1, 2}, {0, 0, 2, 3}, mode);
                }));
  expect_case("unfold", {line()}, one([](const Tensors& t) { return unfold(t[0], 2, 3, 2); }));
  expect_case("diagonal", {line()}, one([](const Tensors& t) { return diagonal(t[0], -1, 1, 2); }));
  expect_case("rot90", {line()}, one([](const Tensors& t) { return rot90(t[0], 1, 1, 2); }));
  expect_case("roll", {line()}, one([](const Tensors& t) { return roll(t[0], {2, -1}, {2, 1}); }));
  const Tensor k = data({2, 2, 5, 6}, 61), v = data({2, 2, 5, 6}, 62);
  expect_case("attention shared heads", {data({2, 4, 3, 6}, 60)},
              one([&](const Tensors& t) { return scaled_dot_product_attention(t[0], k, v); }));
}

TEST(GoldenOps, OrderAndScatter) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const Tensor ties = tensor(
      std::vector<double>{2, nan, 1, 2, -inf, 0, -0.0, inf, 1, 1, 0, 0, 1, 0, 1, 0}, Shape{2, 8});
  auto both = [](const auto& pair) { return Tensors{pair.values, pair.indices}; };
  for (bool down : {false, true})
    expect_case(down ? "sort True" : "sort False", {ties},
                [&](const Tensors& t) { return both(sort(t[0], 1, down)); });
  expect_case("topk", {line()}, one([](const Tensors& t) { return topk(t[0], 3, 2).values; }));
  expect_case("median", {ties}, one([](const Tensors& t) { return median(t[0], 1).values; }));
  expect_case("kthvalue", {line()}, [&](const Tensors& t) { return both(kthvalue(t[0], 3, 2)); });
  expect_case("cummax", {ties}, [&](const Tensors& t) { return both(cummax(t[0], 1)); });
  expect_case("cummin", {ties}, [&](const Tensors& t) { return both(cummin(t[0], 1)); });
  expect_case("quantile", {line()}, one([](const Tensors& t) { return quantile(t[0], 0.3, 2); }));
  expect_case("logcumsumexp", {line()},
              one([](const Tensors& t) { return logcumsumexp(t[0], 2); }));
  const Tensor index = test::golden_classes({2, 3, 7}, 40, 4), updates = data({2, 3, 7}, 41);
  const std::pair<const char*, Scatter> kinds[] = {{"amax", Scatter::Max},
                                                   {"amin", Scatter::Min},
                                                   {"mean", Scatter::Mean},
                                                   {"sum", Scatter::Add}};
  for (auto [name, how] : kinds)
    for (bool self : {true, false})
      expect_case(std::string("scatter ") + name + (self ? " True" : " False"), {line()},
                  one([&, how = how](const Tensors& t) {
                    return scatter(t[0], 1, index, updates, how, self);
                  }));
  expect_case("searchsorted", {line()}, one([](const Tensors& t) {
                return searchsorted(sort(t[0], 2).values, data({2, 4, 5}, 50), true);
              }));
}

TEST(GoldenOps, EdgesOfFunctions) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const Tensor edges = tensor(std::vector<double>{0, -0.0, 1, -1, inf, -inf, nan});
  using Binary = Tensor (*)(const Arg&, const Arg&);
  const std::tuple<const char*, Binary, double, double> all[] = {
      {"atan2", atan2, 1, 1},         {"fmod", fmod, 3, 2},   {"remainder", remainder, 3, 2},
      {"logaddexp", logaddexp, 1, 1}, {"xlogy", xlogy, 1, 1}, {"hypot", hypot, 1, 1}};
  for (auto [name, f, p, q] : all)
    expect_case(name, {edges}, one([f = f, p = p, q = q](const Tensors& t) {
                  return f(t[0].unsqueeze(1) * p, t[0].unsqueeze(0) * q);
                }));
  expect_case("nan_to_num", {edges}, one([](const Tensors& t) { return nan_to_num(t[0], 2); }));
  using Unary = std::function<Tensor(const Tensor&)>;
  const std::pair<const char*, Unary> activations[] = {
      {"selu", selu},
      {"mish", mish},
      {"hardswish", hardswish},
      {"hardsigmoid", hardsigmoid},
      {"softsign", softsign},
      {"tanhshrink", tanhshrink},
      {"hardshrink", [](const Tensor& t) { return hardshrink(t); }},
      {"softshrink", [](const Tensor& t) { return softshrink(t); }},
      {"logsigmoid", log_sigmoid},
      {"relu6", relu6}};
  for (auto [name, f] : activations)
    expect_case(name, {line() * 4}, one([f = f](const Tensors& t) { return f(t[0]); }));
}

TEST(GoldenOps, LossesOfImages) {
  const Tensor pixels = data({2, 5, 3, 2}, 70), labels = test::golden_classes({2, 3, 2}, 71, 5),
               weight = data({5}, 22) + 2;
  const std::pair<const char*, Reduction> reductions[] = {
      {"mean", Reduction::Mean}, {"sum", Reduction::Sum}, {"none", Reduction::None}};
  for (auto [name, reduction] : reductions) {
    const CrossEntropyOptions options{.ignore_index = 2,
                                      .label_smoothing = 0.2,
                                      .reduction = reduction,
                                      .weight = weight,
                                      .axis = 1};
    expect_case(std::string("cross_entropy images ") + name, {pixels},
                one([&](const Tensors& t) { return cross_entropy(t[0], labels, options); }));
  }
  expect_case("cross_entropy images probabilities", {pixels}, one([](const Tensors& t) {
                return cross_entropy(t[0], (data({2, 5, 3, 2}, 72) + 1) / 2,
                                     {.label_smoothing = 0.1, .axis = 1});
              }));
  expect_case("nll_loss images", {pixels}, one([&](const Tensors& t) {
                return nll_loss(t[0], labels, {.weight = weight, .axis = 1});
              }));
}

TEST(GoldenOps, LinearAlgebra) {
  const Tensor square = data({3, 4, 4}, 73), right = data({3, 4, 2}, 74),
               definite = matmul(square, transpose(square)) + eye(4, -1, DType::F64),
               tall = data({2, 5, 3}, 75);
  const auto factors = [](const Tensors& t) {
    const linalg::Qr f = linalg::qr(t[0]);
    return Tensors{f.q, f.r};
  };
  expect_case("cholesky", {definite}, one([](const Tensors& t) { return linalg::cholesky(t[0]); }));
  expect_case("solve", {square}, one([&](const Tensors& t) { return linalg::solve(t[0], right); }));
  expect_case("solve of vectors", {right.select(2, 0)},
              one([&](const Tensors& t) { return linalg::solve(square, t[0]); }));
  expect_case("solve_triangular", {definite}, one([&](const Tensors& t) {
                return linalg::solve_triangular(t[0], right, {.upper = true});
              }));
  expect_case("inv", {square}, one([](const Tensors& t) { return linalg::inv(t[0]); }));
  expect_case("det", {square}, one([](const Tensors& t) { return linalg::det(t[0]); }));
  expect_case("slogdet", {square}, [](const Tensors& t) {
    const linalg::SignLog s = linalg::slogdet(t[0]);
    return Tensors{s.sign, s.log};
  });
  expect_case("qr", {square}, factors);
  expect_case("qr tall", {tall}, factors);
  expect_case("lstsq", {tall}, one([](const Tensors& t) {
                return linalg::lstsq(t[0], data({2, 5, 2}, 76));
              }));
  expect_case("lstsq wide", {data({2, 3, 5}, 77)}, one([](const Tensors& t) {
                return linalg::lstsq(t[0], data({2, 3, 2}, 78));
              }));
}

TEST(GoldenOps, Signals) {
  const Tensor sound = data({2, 40}, 80), window = data({12}, 85) + 2;
  const auto parts = [](const fourier::Complex& c) { return Tensors{c.real, c.imag}; };
  for (bool center : {true, false})
    for (bool normalized : {true, false})
      expect_case(
          fmt::format("stft {} {}", center ? "True" : "False", normalized ? "True" : "False"),
          {sound}, [&](const Tensors& t) {
            return parts(fourier::stft(
                t[0], 16,
                {.hop = 5, .window = window, .center = center, .normalized = normalized}));
          });
  expect_case(
      "istft", {data({2, 9, 11}, 81)}, one([](const Tensors& t) {
        return fourier::istft({t[0], data({2, 9, 11}, 82)}, 16, {.hop = 4, .window = {}}, 38);
      }));
  expect_case("rfft n", {sound}, [&](const Tensors& t) {
    return parts(fourier::rfft(t[0], -1, fourier::Norm::Ortho, 50));
  });
  expect_case("irfft n", {data({2, 9}, 83)}, one([](const Tensors& t) {
                return fourier::irfft({t[0], data({2, 9}, 84)}, 12, -1, fourier::Norm::Forward);
              }));
  for (bool periodic : {true, false}) {
    const std::pair<const char*, Tensor> windows[] = {
        {"hann", fourier::hann_window(9, periodic)},
        {"hamming", fourier::hamming_window(9, periodic)},
        {"blackman", fourier::blackman_window(9, periodic)},
        {"bartlett", fourier::bartlett_window(9, periodic)},
        {"kaiser", fourier::kaiser_window(9, periodic)}};
    for (const auto& [name, w] : windows)
      expect_case(fmt::format("{}_window {}", name, periodic ? "True" : "False"), {},
                  one([w = w](const Tensors&) { return w; }));
  }
}

TEST(GoldenOps, QuantilesCountsAndSpecialFunctions) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const Tensor ties = tensor(
      std::vector<double>{2, nan, 1, 2, -inf, 0, -0.0, inf, 1, 1, 0, 0, 1, 0, 1, 0}, Shape{2, 8});
  expect_case("quantiles", {line()}, one([](const Tensors& t) {
                return quantile(t[0], {0.3, 0.9, 0.0}, 2, true);
              }));
  const std::pair<const char*, QuantileBetween> kinds[] = {{"linear", QuantileBetween::Linear},
                                                           {"lower", QuantileBetween::Lower},
                                                           {"higher", QuantileBetween::Higher},
                                                           {"nearest", QuantileBetween::Nearest},
                                                           {"midpoint", QuantileBetween::Midpoint}};
  for (auto [name, how] : kinds)
    expect_case(std::string("nanquantile ") + name, {ties}, one([how = how](const Tensors& t) {
                  return nanquantile(t[0], {0.3, 0.6}, 1, false, how);
                }));
  expect_case("nanmedian", {ties}, one([](const Tensors& t) { return nanmedian(t[0], 1).values; }));
  const std::pair<const char*, Scatter> ways[] = {{"amax", Scatter::Max},
                                                  {"amin", Scatter::Min},
                                                  {"mean", Scatter::Mean},
                                                  {"prod", Scatter::Prod}};
  for (auto [name, how] : ways)
    for (bool self : {true, false})
      expect_case(std::string("index_reduce ") + name + (self ? " True" : " False"), {line()},
                  one([how = how, self](const Tensors& t) {
                    return index_reduce(t[0], 1, tensor({3, 0, 3}), data({2, 3, 7}, 41), how, self);
                  }));
  expect_case("repeat_interleave", {line()}, one([](const Tensors& t) {
                return repeat_interleave(t[0], tensor({2, 0, 1, 3}), 1, 6);
              }));
  expect_case(
      "antialias bilinear", {image()}, one([](const Tensors& t) {
        return interpolate(t[0], {2, 9}, {.mode = Interpolation::Linear, .antialias = true});
      }));
  expect_case("antialias bicubic", {image()}, one([](const Tensors& t) {
                return interpolate(t[0], {3, 4}, {.mode = Interpolation::Cubic, .antialias = true});
              }));
  const Tensor special =
      tensor(std::vector<double>{-inf, -30, -3, -0.7, 0, 0.4, 2, 9, 25, 30, inf, nan});
  const std::pair<const char*, Tensor (*)(const Operand&)> functions[] = {
      {"ndtr", ndtr}, {"log_ndtr", log_ndtr}, {"erfcx", erfcx}, {"entr", entr},
      {"i0", i0},     {"i0e", i0e},           {"i1", i1},       {"i1e", i1e}};
  for (auto [name, f] : functions) {
    const bool finite = f == &i0 || f == &i1;
    expect_case(name, {finite ? special.narrow(0, 1, 9) : special},
                one([f = f](const Tensors& t) { return f(t[0]); }));
  }
  EXPECT_EQ(i0(special)[0].item<double>(), inf);
  EXPECT_EQ(i1(special)[0].item<double>(), -inf);
  const Tensor parts =
      tensor(std::vector<double>{0, 1e-300, 1e-20, 0.01, 0.3, 0.5, 0.7, 0.999, 1, 2, nan});
  expect_case("ndtri", {parts}, one([](const Tensors& t) { return ndtri(t[0]); }));
  const Tensor edges = tensor(std::vector<double>{0, -0.0, 1, -1, inf, -inf, nan});
  expect_case("xlog1py", {edges},
              one([](const Tensors& t) { return xlog1py(t[0].unsqueeze(1), t[0].unsqueeze(0)); }));
  expect_case("multigammaln", {line() * 2 + 5},
              one([](const Tensors& t) { return multigammaln(t[0], 3); }));
}

TEST(GoldenOps, SpectraOfMatrices) {
  using linalg::MatrixNorm;
  const Tensor square = data({3, 4, 4}, 73), symmetric = (square + transpose(square)) / 2,
               tall = data({2, 5, 3}, 75);
  const auto factors = [](const Tensors& t) {
    const linalg::Svd f = linalg::svd(t[0]);
    return Tensors{f.u, f.s, f.vt};
  };
  expect_case("eigh", {symmetric}, [](const Tensors& t) {
    const linalg::Eigh e = linalg::eigh(t[0]);
    return Tensors{e.values, e.vectors};
  });
  expect_case("eigvalsh", {symmetric},
              one([](const Tensors& t) { return linalg::eigvalsh(t[0]); }));
  expect_case("svd", {square}, factors);
  expect_case("svd tall", {tall}, factors);
  expect_case("svd wide", {data({2, 3, 5}, 77)}, factors);
  expect_case("pinv", {tall}, one([](const Tensors& t) { return linalg::pinv(t[0]); }));
  expect_case("pinv rtol", {square},
              one([](const Tensors& t) { return linalg::pinv(t[0], {.relative = 0.4}); }));
  expect_case("matrix_exp", {square * 3},
              one([](const Tensors& t) { return linalg::matrix_exp(t[0]); }));
  expect_case("matrix_power", {square},
              one([](const Tensors& t) { return linalg::matrix_power(t[0], -2); }));
  const std::pair<const char*, MatrixNorm> norms[] = {
      {"fro", MatrixNorm::Frobenius}, {"nuc", MatrixNorm::Nuclear},  {"1", MatrixNorm::One},
      {"-1", MatrixNorm::MinusOne},   {"2", MatrixNorm::Two},        {"-2", MatrixNorm::MinusTwo},
      {"inf", MatrixNorm::Inf},       {"-inf", MatrixNorm::MinusInf}};
  for (const auto& [name, norm] : norms) {
    expect_case(fmt::format("matrix_norm {}", name), {tall},
                one([&](const Tensors& t) { return linalg::matrix_norm(t[0], norm, true); }));
    expect_case(fmt::format("cond {}", name), {square},
                one([&](const Tensors& t) { return linalg::cond(t[0], norm); }));
  }
}

TEST(GoldenOps, DerivativesSplitsAndChoices) {
  expect_case("logsumexp axes", {line()}, one([](const Tensors& t) {
                return logsumexp(t[0], {0, 2});
              }));
  for (const int edge : {1, 2}) {
    expect_case(fmt::format("gradient {}", edge), {line()}, [=](const Tensors& t) {
      return gradient(t[0], {.spacing = {0.5}, .axes = {2, 1}, .edge_order = edge});
    });
    expect_case(fmt::format("gradient at {}", edge), {line()}, [=](const Tensors& t) {
      return gradient(t[0],
                      {.coordinates = {cumsum(data({7}, 86), 0)}, .axes = 2, .edge_order = edge});
    });
  }
  expect_case("tensor_split", {line()}, [](const Tensors& t) { return tensor_split(t[0], 3, 2); });
  expect_case("tensor_split at", {line()}, [](const Tensors& t) {
    return tensor_split(t[0], {5, 2, -1}, 2);
  });
  expect_case("combinations", {data({5}, 93)},
              one([](const Tensors& t) { return combinations(t[0], 3); }));
  expect_case("combinations again", {data({5}, 93)},
              one([](const Tensors& t) { return combinations(t[0], 2, true); }));
  expect_case("histogram", {data({20}, 96)}, one([](const Tensors& t) {
                return histogram(t[0], sort(data({6}, 94)).values, data({20}, 95) + 1, true);
              }));
  expect_case("sigmoid_focal_loss", {data({20}, 99) * 4}, one([](const Tensors& t) {
                return sigmoid_focal_loss(t[0], (data({20}, 98) > 0).to(DType::F64),
                                          {.gamma = 1.5, .reduction = Reduction::None});
              }));
  expect_case("vander", {data({5}, 93)}, one([](const Tensors& t) { return vander(t[0], 4); }));
}

TEST(GoldenOps, GammaFunctions) {
  for (const std::int64_t n : {1, 2, 3, 4}) {
    expect_case(fmt::format("polygamma {}", n), {data({20}, 87) * 3 + 3.5},
                one([=](const Tensors& t) { return polygamma(n, t[0]); }));
    expect_case(fmt::format("polygamma left {}", n), {data({20}, 88) * 0.4 - 1.5},
                one([=](const Tensors& t) { return polygamma(n, t[0]); }));
  }
  expect_case("zeta", {data({20}, 90) * 3 + 5},
              one([](const Tensors& t) { return zeta(t[0], data({20}, 89) + 1.2); }));
  for (const double size : {0.5, 5.0, 50.0, 500.0}) {
    const Tensor a = (data({20}, 91) + 1.2) * size, x = (data({20}, 92) + 1.2) * size;
    expect_case(fmt::format("gammainc {:.1f}", size), {x},
                one([&](const Tensors& t) { return gammainc(a, t[0]); }));
    expect_case(fmt::format("gammaincc {:.1f}", size), {x},
                one([&](const Tensors& t) { return gammaincc(a, t[0]); }));
  }
}

TEST(GoldenOps, FramesOfBothSides) {
  const Tensor sound = data({2, 40}, 80), window = data({12}, 85) + 2;
  const auto parts = [](const fourier::Complex& c) { return Tensors{c.real, c.imag}; };
  for (const bool center : {true, false}) {
    const fourier::StftOptions o{.hop = 5, .window = window, .center = center, .onesided = false};
    const char* name = center ? "True" : "False";
    expect_case(fmt::format("stft twosided {}", name), {sound},
                [&](const Tensors& t) { return parts(fourier::stft(t[0], 16, o)); });
    expect_case(fmt::format("stft complex {}", name), {sound}, [&](const Tensors& t) {
      return parts(fourier::stft(fourier::Complex{t[0], data({2, 40}, 97)}, 16, o));
    });
  }
  const Tensor real = data({2, 16, 11}, 81), imag = data({2, 16, 11}, 82);
  expect_case("istft twosided", {real}, one([&](const Tensors& t) {
                return fourier::istft({t[0], imag}, 16, {.hop = 4, .onesided = false});
              }));
  expect_case("istft complex", {real}, [&](const Tensors& t) {
    return parts(fourier::complex_istft({t[0], imag}, 16, {.hop = 4}));
  });
}

} // namespace
} // namespace egret

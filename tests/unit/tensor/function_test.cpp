// Functions on small known values, edge cases included.
#include "egret/functional.h"

#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/effort.h"
#include "egret/functional/fourier.h"
#include "egret/grad.h"
#include "runtime/runtime.h"
#include "support/files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace egret {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<std::int64_t>;
constexpr double kInf = std::numeric_limits<double>::infinity();

void expect_near(const Tensor& a, const std::vector<double>& want, double tolerance = 1e-5) {
  const auto have = a.to_vector<double>();
  ASSERT_EQ(have.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]))
      EXPECT_TRUE(std::isnan(have[i])) << i << ": " << have[i];
    else if (std::isinf(want[i]))
      EXPECT_EQ(have[i], want[i]) << i;
    else
      EXPECT_NEAR(have[i], want[i], tolerance) << i;
  }
}
const double kNan = std::nan("");

TEST(Create, ListsVectorsAndFormulas) {
  EXPECT_EQ(tensor({1, 2}).dtype(), DType::I64);
  EXPECT_EQ(tensor({1.5, 2.0}).dtype(), DType::F32);
  EXPECT_EQ(tensor({true, false}).dtype(), DType::Bool);
  EXPECT_EQ(tensor(std::vector<double>{1, 2}).dtype(), DType::F64);
  EXPECT_EQ(tensor(std::vector<std::uint8_t>{1, 2}).dtype(), DType::U8);
  EXPECT_EQ(tensor(std::vector<bool>{true, false}).to_vector<bool>(),
            (std::vector<bool>{true, false}));
  EXPECT_EQ(tensor({{1, 2, 3}, {4, 5, 6}}).shape(), (Shape{2, 3}));
  EXPECT_EQ(tensor({{{1}, {2}}}).shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(tensor({{{{1, 2}}}}).shape(), (Shape{1, 1, 1, 2}));
  EXPECT_EQ(tensor({1, 2, 3, 4}, Shape{2, 2}).shape(), (Shape{2, 2}));
  EXPECT_EQ(arange(5).to_vector<std::int64_t>(), (Ints{0, 1, 2, 3, 4}));
  EXPECT_EQ(arange(5, 0, -2).to_vector<std::int64_t>(), (Ints{5, 3, 1}));
  EXPECT_EQ(arange(3, 3).numel(), 0);
  EXPECT_EQ(arange(0.0, 1.0, 0.25).to_vector(), (Floats{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(linspace(0, 1, 5).to_vector(), (Floats{0, 0.25, 0.5, 0.75, 1}));
  EXPECT_EQ(linspace(3, 9, 1).to_vector(), (Floats{3}));
  EXPECT_EQ(eye(2, 3).to_vector(), (Floats{1, 0, 0, 0, 1, 0}));
  EXPECT_EQ(full({2}, 7).dtype(), DType::I64);
  EXPECT_EQ(zeros({0, 3}).to_vector(), Floats{});
  const std::vector<float> raw = {1, 2};
  EXPECT_EQ(from_bytes(DType::F32, {2}, std::as_bytes(std::span(raw))).to_vector(), raw);
  EXPECT_EQ(from_bytes(DType::F32, {2}, std::as_bytes(std::span(raw))).to_bytes().size(), 8u);
}

// i64 would make a negative number of what does not fit.
TEST(Promotion, UnsignedOf64BitsWithSignedIntegersIsAFloat) {
  const Tensor u = tensor(std::vector<std::uint64_t>{1ull << 63, 6});
  for (const DType type : {DType::I8, DType::I16, DType::I32, DType::I64}) {
    const Tensor s = tensor({-1, 3}).to(type);
    EXPECT_EQ((u + s).dtype(), DType::F32);
    EXPECT_EQ((u / s).to_vector(), (Floats{-0x1p63f, 2}));
    EXPECT_EQ((s < u).to_vector<bool>(), (std::vector{true, true}));
    EXPECT_EQ((u > s).to_vector<bool>(), (std::vector{true, true}));
    EXPECT_EQ(maximum(u, s).to_vector(), (Floats{0x1p63f, 6}));
    EXPECT_EQ(where(tensor({true, false}), u, s).to_vector(), (Floats{0x1p63f, 3}));
    EXPECT_EQ(test::error_of(ErrorKind::DType, [&] { u& s; }),
              "bitwise_and: takes bools and integers, got f32");
  }
  EXPECT_EQ((u - 1).dtype(), DType::U64); // a number takes the tensor's type
}

TEST(Promotion, NumbersTakeTheTensorsDtypeUnlessTheirCategoryIsHigher) {
  EXPECT_EQ((tensor({1, 2}).to(DType::I32) + 1).dtype(), DType::I32);
  EXPECT_EQ((tensor({1, 2}).to(DType::I32) * 0.5).dtype(), DType::F32);
  EXPECT_EQ((tensor({true}) + 1).dtype(), DType::I64);
  EXPECT_EQ((tensor({1.0}).to(DType::BF16) * 2.5).dtype(), DType::BF16);
  EXPECT_EQ((tensor({1.0}) + tensor(std::vector<double>{1})).dtype(), DType::F64);
  EXPECT_EQ((tensor({1}) / tensor({2})).dtype(), DType::F32);
  EXPECT_EQ((tensor({1}) == 1).dtype(), DType::Bool);
}

TEST(Elementwise, ArithmeticOfIntegersAndFloats) {
  const Tensor a = tensor({7, -7, 5}), b = tensor({2, 2, 0});
  EXPECT_EQ((a - b).to_vector<std::int64_t>(), (Ints{5, -9, 5}));
  EXPECT_EQ(floor_divide(a, b).to_vector<std::int64_t>(), (Ints{3, -4, 0}));
  EXPECT_EQ((a % b).to_vector<std::int64_t>(), (Ints{1, 1, 0}));
  EXPECT_EQ((a & 3).to_vector<std::int64_t>(), (Ints{3, 1, 1}));
  EXPECT_EQ((a << 1).to_vector<std::int64_t>(), (Ints{14, -14, 10}));
  EXPECT_EQ(minimum(a, b).to_vector<std::int64_t>(), (Ints{2, -7, 0}));
  EXPECT_EQ(minimum(tensor(std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::min()}), 1)
                .item<std::int64_t>(),
            std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(
      minimum(tensor(std::vector<std::uint8_t>{200, 3}), tensor(std::vector<std::uint8_t>{4, 4}))
          .to_vector<int>(),
      (std::vector<int>{4, 3}));
  EXPECT_EQ(abs(a).to_vector<std::int64_t>(), (Ints{7, 7, 5}));
  EXPECT_EQ(sign(a).to_vector<std::int64_t>(), (Ints{1, -1, 1}));
  EXPECT_EQ((1 - tensor({0.25})).item(), 0.75);
  EXPECT_EQ((2 / tensor({4.0})).item(), 0.5);
  EXPECT_EQ((tensor({3, 5}) - 4).to_vector<std::int64_t>(), (Ints{-1, 1}));
}

TEST(Elementwise, RoundingFunctions) {
  const Tensor x = tensor({-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 3.7, -3.7});
  expect_near(round(x), {-2, -2, 0, 0, 2, 2, 0, 4, -4}, 0);
  expect_near(floor(x), {-3, -2, -1, 0, 1, 2, 0, 3, -4}, 0);
  expect_near(ceil(x), {-2, -1, 0, 1, 2, 3, 1, 4, -3}, 0);
  expect_near(trunc(x), {-2, -1, 0, 0, 1, 2, 0, 3, -3}, 0);
}

TEST(Elementwise, NanAndInfinity) {
  const Tensor x = tensor({kNan, kInf, -kInf, 0.0});
  EXPECT_EQ(isnan(x).to_vector<bool>(), (std::vector<bool>{true, false, false, false}));
  EXPECT_EQ(isinf(x).to_vector<bool>(), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(isfinite(x).to_vector<bool>(), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ((x <= x).to_vector<bool>(), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ((x >= x).to_vector<bool>(), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ((x != x).to_vector<bool>(), (std::vector<bool>{true, false, false, false}));
  expect_near(maximum(x, 1), {kNan, kInf, 1, 1});
  expect_near(minimum(x, 1), {kNan, 1, -kInf, 0});
  expect_near(abs(x), {kNan, kInf, kInf, 0});
  expect_near(sign(x), {kNan, 1, -1, 0});
  expect_near(max(x), {kNan});
  expect_near(clamp(tensor({-2.0, 0.5, 2.0}), -1, 1), {-1, 0.5, 1});
}

TEST(Elementwise, NothingOverflowsOnTheWay) {
  EXPECT_EQ(sinc(tensor({3e38, -3e38})).to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_FLOAT_EQ(hardswish(tensor({3e38})).item(), 3e38F);
  const Tensor small = tensor({10.0, -10.0, kNan}).to(DType::F8E4M3);
  expect_near(gelu(small, Gelu::Tanh).to(DType::F32), {10, 0, kNan}, 0);
  EXPECT_EQ(isfinite(small).to_vector<bool>(), (std::vector<bool>{true, true, false}));
}

TEST(Elementwise, PowersBecomeProductsAndRoots) {
  const Tensor x = tensor({1.0, 4.0, 9.0});
  expect_near(pow(x, 2), {1, 16, 81});
  expect_near(pow(x, 3), {1, 64, 729});
  expect_near(pow(x, 0.5), {1, 2, 3});
  expect_near(pow(x, -0.5), {1, 0.5, 1.0 / 3});
  expect_near(pow(x, -1), {1, 0.25, 1.0 / 9});
  expect_near(pow(x, 1.5), {1, 8, 27}, 1e-4);
  expect_near(pow(2, x), {2, 16, 512}, 1e-3);
  EXPECT_EQ(pow(tensor({3}), 2).dtype(), DType::I64);
  EXPECT_EQ(graph_text(pow(x, 3)).find("pow"), std::string::npos);
}

TEST(Elementwise, Activations) {
  const Tensor x = tensor({-3.0, -0.5, 0.0, 0.5, 3.0});
  expect_near(relu(x), {0, 0, 0, 0.5, 3});
  expect_near(leaky_relu(x, 0.1), {-0.3, -0.05, 0, 0.5, 3});
  expect_near(gelu(x), {-0.00404951, -0.15426877, 0, 0.34573123, 2.99595049});
  expect_near(gelu(x, Gelu::Tanh), {-0.00363739, -0.15428599, 0, 0.34571401, 2.99636261});
  expect_near(silu(x), {-0.14227762, -0.18877033, 0, 0.31122967, 2.85772238});
  expect_near(softplus(tensor({-100.0, 0.0, 100.0})), {0, 0.6931472, 100});
  expect_near(elu(x), {std::expm1(-3), std::expm1(-0.5), 0, 0.5, 3});
}

TEST(Elementwise, ActivationsOf16BitsAreRoundedOnce) {
  const std::vector<std::function<Tensor(const Tensor&)>> all = {
      [](const Tensor& x) { return gelu(x); }, [](const Tensor& x) { return gelu(x, Gelu::Tanh); },
      [](const Tensor& x) { return silu(x); }, [](const Tensor& x) { return elu(x, 0.7); },
      [](const Tensor& x) { return softplus(x); }};
  for (const DType type : {DType::BF16, DType::F16}) {
    const Tensor x = linspace(-6, 6, 1001).to(type).eval();
    for (const auto& f : all)
      EXPECT_EQ(f(x).to_vector<float>(), f(x.to(DType::F32)).to(type).to_vector<float>());
  }
}

// As in PyTorch: a value that is no number stays one, and its gradient passes.
TEST(Elementwise, ReluOfNanIsNanOnEveryEngineAndWithEveryEffort) {
  const auto run = [](runtime::Engine engine, Effort how) {
    auto& runtime = runtime::Runtime::instance();
    const auto before = runtime.engine();
    const std::optional<Effort> effort_before = effort_setting();
    runtime.use(engine);
    set_effort(how);
    auto f = compile([](const Tensor& x) {
      Tensor leaf = x.detach().set_requires_grad(true);
      Tensor y = relu(relu(leaf) * 2);
      return std::vector{y, grad(y.sum(), leaf)};
    });
    const std::vector<Tensor> r = f(tensor({kNan, -kNan, -1.0, -0.0, 0.0, 2.0, kInf, -kInf}));
    expect_near(r[0], {kNan, kNan, 0, 0, 0, 4, kInf, 0});
    expect_near(r[1], {2, 2, 0, 0, 0, 2, 2, 0});
    EXPECT_FALSE(std::signbit(r[0].to_vector()[3]));
    runtime.use(before);
    set_effort(effort_before);
  };
  run(runtime::Engine::Reference, Effort::None);
  run(runtime::Engine::Interpreter, Effort::None);
  run(runtime::Engine::Compiled, Effort::None);
  run(runtime::Engine::Compiled, Effort::Quick);
}

TEST(Reduce, AxesKeepdimAndTypes) {
  const Tensor x = tensor({{1.0, 2.0, 3.0}, {4.0, 5.0, 6.0}});
  EXPECT_EQ(x.sum().item(), 21);
  EXPECT_EQ(x.sum(0).to_vector(), (Floats{5, 7, 9}));
  EXPECT_EQ(x.sum(-1, true).shape(), (Shape{2, 1}));
  EXPECT_EQ(x.sum({0, 1}, true).shape(), (Shape{1, 1}));
  EXPECT_EQ(x.mean(1).to_vector(), (Floats{2, 5}));
  expect_near(x.var(1), {1, 1});
  expect_near(x.var(1, false, 0), {2.0 / 3, 2.0 / 3});
  expect_near(x.std(0), {2.1213203, 2.1213203, 2.1213203});
  EXPECT_EQ(x.prod().item(), 720);
  EXPECT_EQ(x.max(0).to_vector(), (Floats{4, 5, 6}));
  EXPECT_EQ(x.min(1).to_vector(), (Floats{1, 4}));
  EXPECT_EQ(x.argmax().item<std::int64_t>(), 5);
  EXPECT_EQ(x.argmax(1).to_vector<std::int64_t>(), (Ints{2, 2}));
  EXPECT_EQ(x.argmin(0, true).shape(), (Shape{1, 3}));
  EXPECT_EQ(argmin(tensor({3, 1, 2})).item<std::int64_t>(), 1);
  EXPECT_EQ(tensor({true, true, false}).sum().item<std::int64_t>(), 2);
  EXPECT_EQ(tensor({1, 2}).to(DType::I8).sum().dtype(), DType::I64);
  EXPECT_EQ(tensor({1, 2}).mean().dtype(), DType::F32);
  EXPECT_TRUE((x > 5).any().item<bool>());
  EXPECT_FALSE((x > 5).all().item<bool>());
  EXPECT_EQ(min(tensor({3, -2, 9})).item<std::int64_t>(), -2);
  EXPECT_EQ(x.cumsum(1).to_vector(), (Floats{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(cumprod(x, 0).to_vector(), (Floats{1, 2, 3, 4, 10, 18}));
  expect_near(norm(tensor({3.0, 4.0})), {5});
  EXPECT_EQ(zeros({0, 2}).sum(0).to_vector(), (Floats{0, 0}));
}

TEST(Reduce, ASumOfOneNumberStartsFromZeroToo) {
  const Tensor x = tensor({{-0.0}, {1.0}});
  expect_near(reciprocal(cumsum(x, 1)), {kInf, 1});
  expect_near(reciprocal(sum(x, 1)), {kInf, 1});
}

TEST(Reduce, SoftmaxFamily) {
  const Tensor x = tensor({{1.0, 2.0, 3.0}, {1000.0, 1000.0, -kInf}});
  expect_near(softmax(x), {0.09003057, 0.24472847, 0.66524096, 0.5, 0.5, 0});
  expect_near(log_softmax(x), {-2.4076059, -1.4076059, -0.4076059, -0.6931472, -0.6931472, -kInf});
  expect_near(logsumexp(x), {3.4076059, 1000.6931}, 1e-3);
  expect_near(logsumexp(tensor({-kInf, -kInf})), {-kInf});
  expect_near(logsumexp(tensor({kInf, 1.0})), {kInf});
}

TEST(Views, NarrowCountsFromTheEnd) {
  const Tensor x = tensor({{1.0F, 2.0F, 3.0F}, {4.0F, 5.0F, 6.0F}});
  EXPECT_EQ(x.narrow(1, -1, 1).to_vector(), (std::vector<float>{3, 6}));
  EXPECT_EQ(x.narrow(1, -3, 2).to_vector(), (std::vector<float>{1, 2, 4, 5}));
  EXPECT_EQ(x.narrow(0, -1, 1).to_vector(), (std::vector<float>{4, 5, 6}));
}

TEST(Views, ReshapePermuteSliceAndJoin) {
  const Tensor x = arange(24).reshape({2, 3, -1});
  EXPECT_EQ(x.shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(x.permute({2, 0, 1}).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ((x.transpose()[{1, 2, 0}].item<std::int64_t>()), 14);
  EXPECT_EQ((x[{Slice(1, 2), 0, Slice::all()}].shape()), (Shape{1, 4}));
  EXPECT_EQ((x[{Ellipsis{}, -1}].to_vector<std::int64_t>()), (Ints{3, 7, 11, 15, 19, 23}));
  EXPECT_EQ((x[{NewAxis{}, 1}].shape()), (Shape{1, 3, 4}));
  EXPECT_EQ((x[{0, 0, Slice({}, {}, -2)}].to_vector<std::int64_t>()), (Ints{3, 1}));
  EXPECT_EQ((x[{0, 0, Slice(1, {}, 2)}].to_vector<std::int64_t>()), (Ints{1, 3}));
  EXPECT_EQ((x[{0, Slice(2, 1)}].shape()), (Shape{0, 4}));
  EXPECT_EQ((x[{0, 0, Slice(-3, 100)}].to_vector<std::int64_t>()), (Ints{1, 2, 3}));
  EXPECT_EQ(x.select(1, -1).shape(), (Shape{2, 4}));
  EXPECT_EQ(x.narrow(2, 1, 2).shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(x.unsqueeze(-1).squeeze().shape(), x.shape());
  EXPECT_EQ(x.flatten(1).shape(), (Shape{2, 12}));
  EXPECT_EQ(arange(3).flip(0).to_vector<std::int64_t>(), (Ints{2, 1, 0}));
  EXPECT_EQ(arange(2).reshape({2, 1}).expand({3, -1, 2}).shape(), (Shape{3, 2, 2}));
  EXPECT_EQ(cat({tensor({{1, 2}}), tensor({{3, 4}, {5, 6}})}).to_vector<std::int64_t>(),
            (Ints{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(cat({tensor({-0.0}), tensor({-0.0})}).to_vector<double>()[0], 0);
  EXPECT_TRUE(std::signbit(cat({tensor({-0.0}), tensor({1.0})}).to_vector()[0]));
  EXPECT_EQ(stack({arange(2), arange(2)}, 1).to_vector<std::int64_t>(), (Ints{0, 0, 1, 1}));
  EXPECT_EQ(split(arange(5), 2).size(), 3u);
  EXPECT_EQ(split(arange(5), 2)[2].to_vector<std::int64_t>(), (Ints{4}));
  EXPECT_EQ(chunk(arange(6), 3)[1].to_vector<std::int64_t>(), (Ints{2, 3}));
  EXPECT_EQ(pad(tensor({1.0}), {1}, {2}, 9).to_vector(), (Floats{9, 1, 9, 9}));
  EXPECT_EQ(repeat(arange(2), {2, 2}).to_vector<std::int64_t>(), (Ints{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(Product, EveryRankAndBroadcastBatch) {
  const Tensor a = arange(6).reshape({2, 3}).to(DType::F32);
  const Tensor b = arange(12).reshape({3, 4}).to(DType::F32);
  EXPECT_EQ(matmul(a, b).to_vector(), (Floats{20, 23, 26, 29, 56, 68, 80, 92}));
  EXPECT_EQ(matmul(a[0], b).shape(), (Shape{4}));
  EXPECT_EQ(matmul(b.transpose(), a[1]).shape(), (Shape{4}));
  EXPECT_EQ(dot(a[0], a[1]).item(), 14);
  EXPECT_EQ(outer(a[0], a[1]).shape(), (Shape{3, 3}));
  const Tensor batch = ones({5, 1, 2, 3}), other = ones({7, 3, 4});
  EXPECT_EQ(matmul(batch, other).shape(), (Shape{5, 7, 2, 4}));
  EXPECT_EQ(matmul(batch, other).mean().item(), 3);
  EXPECT_EQ(matmul(tensor({{1, 2}}), tensor({{3}, {4}})).item<std::int64_t>(), 11);
  EXPECT_EQ(linear(a, ones({5, 3}), ones({5})).to_vector()[0], 4);
  EXPECT_EQ(matmul(ones({2, 0}), ones({0, 3})).to_vector(), (Floats(6, 0.0f)));
  // 1 + 2^-9 in bf16 sums: kept in f32 until the end
  const Tensor low = full({1, 512}, 0.5, DType::BF16);
  EXPECT_EQ(matmul(low, low.transpose()).item(), 128);
}

TEST(Indices, GatherTakeScatter) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 4.0}, {5.0, 6.0}});
  EXPECT_EQ(embedding(x, tensor({2, 0})).to_vector(), (Floats{5, 6, 1, 2}));
  EXPECT_EQ(embedding(x, tensor({{2}, {0}})).shape(), (Shape{2, 1, 2}));
  EXPECT_EQ(take(x, tensor({1}), 1).to_vector(), (Floats{2, 4, 6}));
  EXPECT_EQ(gather(x, 1, tensor({{0}, {1}, {0}})).to_vector(), (Floats{1, 4, 5}));
  EXPECT_EQ(gather(x, 0, tensor({{2, 0}})).to_vector(), (Floats{5, 2}));
  EXPECT_EQ(gather(x, 0, tensor({{3, -1}})).to_vector(), (Floats{0, 0}));
  EXPECT_EQ(index_put(x, tensor({1}), tensor({{9.0, 9.0}}), 0).to_vector(),
            (Floats{1, 2, 9, 9, 5, 6}));
  EXPECT_EQ(index_add(x, tensor({0, 0}), ones({2, 2}), 0).to_vector(), (Floats{3, 4, 3, 4, 5, 6}));
  EXPECT_EQ(one_hot(tensor({1, 0}), 3).to_vector(), (Floats{0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(tril(ones({2, 3})).to_vector(), (Floats{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(triu(ones({2, 3}), 1).to_vector(), (Floats{0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(causal_mask(2, 3).to_vector<bool>(),
            (std::vector<bool>{true, true, false, true, true, true}));
}

TEST(Indices, CombinationsOfNearlyAllAreFew) {
  const Tensor all = combinations(arange(30), 29); // 30, not the many of 15
  EXPECT_EQ(all.shape(), (Shape{30, 29}));
  EXPECT_EQ((29 * 30 / 2 - sum(all, 1)).eval().to_vector(),
            flip(arange(30), 0).to(DType::F32).to_vector()); // the one that is not there
  const Tensor ones = combinations(arange(2), 1000, true);
  EXPECT_EQ(ones.shape(), (Shape{1001, 1000}));
  EXPECT_EQ(sum(ones, 1).to_vector(), arange(1001).to_vector());
}

TEST(Indices, ProductsOfManyUpdatesTakeOneSort) {
  constexpr std::int64_t kLength = 3000, kUpdates = 20000;
  Ints data(kLength), index(kUpdates), updates(kUpdates), want(kLength);
  std::vector<bool> met(kLength, false);
  for (std::int64_t i = 0; i < kLength; ++i)
    data[i] = i % 7 - 3;
  for (std::int64_t j = 0; j < kUpdates; ++j) {
    index[j] = j * 7919 % (kLength + 20) - 10; // some are out of range, and do not count
    updates[j] = j % 5 - 7;
  }
  for (const bool self : {true, false}) {
    want = data;
    met.assign(kLength, false);
    for (std::int64_t j = 0; j < kUpdates; ++j)
      if (index[j] >= 0 && index[j] < kLength) {
        want[index[j]] = self || met[index[j]] ? want[index[j]] * updates[j] : updates[j];
        met[index[j]] = true;
      }
    const Tensor product =
        scatter(tensor(data), 0, tensor(index), tensor(updates), Scatter::Prod, self);
    EXPECT_EQ(product.to_vector<std::int64_t>(), want);
    EXPECT_EQ(scatter(tensor(data).to(DType::F64), 0, tensor(index), tensor(updates).to(DType::F64),
                      Scatter::Prod, self)
                  .to_vector<double>(),
              std::vector<double>(want.begin(), want.end()));
  }
  // No updates, no elements, and f16 rounded once: 1 + 2^-10 to the fourth.
  const Tensor none = zeros({0}, DType::I64);
  EXPECT_EQ(scatter(ones({2}), 0, none, zeros({0}), Scatter::Prod).to_vector(), (Floats{1, 1}));
  EXPECT_EQ(scatter(zeros({0}), 0, tensor({0, 1}), ones({2}), Scatter::Prod).numel(), 0);
  const Tensor half = full({4}, 1 + 0x1p-10, DType::F16);
  EXPECT_EQ(scatter(ones({1}, DType::F16), 0, zeros({4}, DType::I64), half, Scatter::Prod)
                .to(DType::F32)
                .item(),
            1 + 4 * 0x1p-10);
}

TEST(Layers, NormsAndAttention) {
  const Tensor x = tensor({{1.0, 2.0, 3.0, 4.0}});
  expect_near(layer_norm(x, ones({4}), zeros({4})), {-1.3416355, -0.4472118, 0.4472118, 1.3416355});
  expect_near(rms_norm(x, ones({4})), {0.36514834, 0.73029667, 1.095445, 1.4605933});
  const Tensor q = tensor({{1.0, 0.0}, {0.0, 1.0}});
  const Tensor causal = scaled_dot_product_attention(q, q, q, {.causal = true});
  const double e = std::exp(1 / std::sqrt(2.0));
  expect_near(causal, {1, 0, 1 / (1 + e), e / (1 + e)});
  AttentionOptions masked;
  masked.mask = tensor({{true, false}, {true, true}});
  expect_near(scaled_dot_product_attention(q, q, q, masked), causal.to_vector<double>());
}

// Values that are not known when a loss is recorded with them: no error can tell of them.
Tensor computed(const Tensor& x) {
  return x + zeros(x.shape(), x.dtype());
}

void expect_one_row_is_lost(const Tensor& losses, std::size_t row) {
  const auto values = losses.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(std::isnan(values[i]), i == row) << i;
}

TEST(Losses, ATargetThatIsNoClassGivesNaN) {
  const Tensor logits = tensor({{1.0, 2.0, 3.0}, {1.0, 2.0, 3.0}}), weight = ones({3});
  for (const DType type : {DType::I64, DType::I32, DType::I8, DType::U8, DType::U64})
    for (const std::int64_t bad : {3, 100, -1, -100}) {
      if (bad < 0 && !is_signed(type))
        continue;
      SCOPED_TRACE(::testing::Message() << bad << " of " << name_of(type));
      const auto target = [&] { return computed(tensor({std::int64_t{2}, bad}).to(type)); };
      for (const Effort effort : {Effort::None, Effort::Quick}) {
        const auto before = effort_setting();
        set_effort(effort);
        expect_one_row_is_lost(cross_entropy(logits, target(), {.reduction = Reduction::None}), 1);
        EXPECT_TRUE(std::isnan(cross_entropy(logits, target()).item()));
        set_effort(before);
      }
      for (const CrossEntropyOptions& options :
           {CrossEntropyOptions{.label_smoothing = 0.3, .reduction = Reduction::None, .weight = {}},
            CrossEntropyOptions{.reduction = Reduction::None, .weight = weight}}) {
        expect_one_row_is_lost(cross_entropy(logits, target(), options), 1);
        expect_one_row_is_lost(nll_loss(log_softmax(logits), target(), options), 1);
      }
      expect_one_row_is_lost(multi_margin_loss(logits, target(), {.reduction = Reduction::None}),
                             1);
      // Named, it does not count, in the mean neither, and its row has no gradient.
      const Tensor named = cross_entropy(logits, target(), {.ignore_index = bad});
      EXPECT_NEAR(named.item(), 0.4076059, 1e-6);
    }
  const Tensor x = logits.clone().set_requires_grad();
  cross_entropy(x, computed(tensor({2, -100})), {.ignore_index = -100}).backward();
  const auto ignored = x.grad().to_vector();
  EXPECT_NEAR(ignored[2], 0.66524096 - 1, 1e-6);
  EXPECT_EQ(std::vector<float>(ignored.begin() + 3, ignored.end()), std::vector<float>(3));
  const Tensor y = logits.clone().set_requires_grad();
  cross_entropy(y, computed(tensor({2, 7}))).backward();
  const auto gradient = y.grad().to_vector();
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(std::isnan(gradient[i]), i >= 3) << i;
}

TEST(Losses, ACompiledStepWithATargetThatIsNoClassGivesNaN) {
  auto loss =
      compile([](const Tensor& x, const Tensor& target) { return cross_entropy(x, target); });
  const Tensor x = tensor({{1.0, 2.0, 3.0}, {1.0, 2.0, 3.0}});
  EXPECT_NEAR(loss(x, tensor({2, 0})).item(), (0.4076059 + 2.4076059) / 2, 1e-6);
  EXPECT_TRUE(std::isnan(loss(x, tensor({2, 3})).item()));
  EXPECT_TRUE(std::isnan(loss(x, tensor({-1, 0})).item()));
}

// Looking at the targets costs no kernel, and no sweep over the logits.
TEST(Losses, LookingAtTheTargetsCostsNoKernel) {
  const auto plain = [](const Tensor& x, const Tensor& target) {
    const Tensor low = x - x.max(-1, true).detach();
    const Tensor own = where(eq(unsqueeze(target, -1), arange(x.size(-1))), low, 0).sum(-1);
    return (log(exp(low).sum(-1)) - own).mean();
  };
  const auto checked = [](const Tensor& x, const Tensor& target) {
    return cross_entropy(x, target);
  };
  const auto gradient_of = [](const auto& loss) {
    return [loss](const Tensor& x, const Tensor& target) {
      const Tensor leaf = x.detach().set_requires_grad();
      return grad(loss(leaf, target), leaf);
    };
  };
  const Tensor x = sin(arange(64 * 500).to(DType::F32)).reshape({64, 500}).eval();
  const Tensor target = (arange(64) * 7).eval();
  const auto spent = [&](const auto& function) {
    auto compiled = compile(function);
    compiled(x, target).eval();
    const Counters before = counters();
    compiled(x, target).eval();
    return counters() - before;
  };
  const auto expect_as_much = [](const Counters& got, const Counters& want) {
    EXPECT_EQ(got.kernels_launched, want.kernels_launched);
    EXPECT_LE(got.bytes_read, want.bytes_read + 64 * 8) << "the targets once more, from a cache";
    EXPECT_EQ(got.bytes_written, want.bytes_written);
  };
  expect_as_much(spent(checked), spent(plain));
  expect_as_much(spent(gradient_of(checked)), spent(gradient_of(plain)));
}

// Class numbers do not wrap where their type holds fewer than there are classes.
TEST(Losses, NarrowTargetsOfManyClasses) {
  std::vector<double> values(600);
  for (std::size_t i = 0; i < 600; ++i)
    values[i] = static_cast<double>(i % 300) * 0.01;
  const Tensor logits = tensor(values, Shape{2, 300});
  const std::vector<double> want =
      cross_entropy(logits, tensor({7, 100}), {.reduction = Reduction::None}).to_vector<double>();
  for (const DType type : {DType::I8, DType::U8, DType::I16})
    expect_near(cross_entropy(logits, tensor({7, 100}).to(type), {.reduction = Reduction::None}),
                want);
}

TEST(Losses, KnownValues) {
  const Tensor logits = tensor({{1.0, 2.0, 3.0}, {1.0, 2.0, 3.0}}), target = tensor({2, 0});
  expect_near(cross_entropy(logits, target), {(0.4076059 + 2.4076059) / 2});
  expect_near(cross_entropy(logits, target, {.reduction = Reduction::None}),
              {0.4076059, 2.4076059});
  expect_near(cross_entropy(logits, target, {.ignore_index = 0}), {0.4076059});
  expect_near(cross_entropy(logits, target, {.label_smoothing = 0.3}), {1.4076059});
  expect_near(nll_loss(log_softmax(logits), target), {1.4076059});
  expect_near(mse_loss(tensor({1.0, 2.0}), tensor({3.0, 2.0})), {2});
  expect_near(l1_loss(tensor({1.0, 2.0}), tensor({3.0, 2.0}), Reduction::Sum), {2});
  expect_near(binary_cross_entropy(tensor({0.25, 0.0}), tensor({1.0, 0.0})), {1.3862944 / 2});
  expect_near(binary_cross_entropy_with_logits(tensor({100.0, -1.0}), tensor({1.0, 1.0})),
              {1.3132617 / 2});
}

TEST(Text, ValuesShapesAndCuts) {
  EXPECT_EQ(to_string(tensor({{1, 2}, {3, 4}})), "[[1, 2],\n [3, 4]] i64[2,2]");
  EXPECT_EQ(to_string(scalar(0.1)), "0.1 f32[]");
  EXPECT_EQ(to_string(Tensor()), "tensor(empty)");
  EXPECT_NE(to_string(arange(5000)).find("0, 1, 2, ..., 4997, 4998, 4999"), std::string::npos);
}

TEST(Functions, FrequenciesAreThoseOfTheTransformsInTheirOrder) {
  EXPECT_EQ(fourier::frequencies(5, 0.5).to_vector(), (Floats{0, 0.4F, 0.8F, -0.8F, -0.4F}));
  EXPECT_EQ(fourier::frequencies(4).to_vector(), (Floats{0, 0.25F, -0.5F, -0.25F}));
  EXPECT_EQ(fourier::real_frequencies(5).to_vector(), (Floats{0, 0.2F, 0.4F}));
  EXPECT_EQ(fourier::real_frequencies(4, 0.25).to_vector(), (Floats{0, 1, 2}));
}

TEST(Functions, ComplexNumbersHaveSizesAndAngles) {
  const fourier::Complex z{tensor(Floats{3, 0, -1}), tensor(Floats{4, 2, 0})};
  EXPECT_EQ(fourier::abs(z).to_vector(), (Floats{5, 2, 1}));
  const auto angles = fourier::angle(z).to_vector();
  EXPECT_NEAR(angles[0], std::atan2(4.0, 3.0), 1e-6);
  EXPECT_NEAR(angles[1], 1.5707963, 1e-6);
  EXPECT_NEAR(angles[2], 3.1415927, 1e-6);
}

} // namespace
} // namespace egret

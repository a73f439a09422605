// Sizes that differ from call to call: one compile, values as of the same function without them.
#include "egret/compile.h"
#include "egret/counters.h"
#include "egret/error.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "egret/models.h"
#include "egret/optim.h"
#include "support/named_dims.h"

#include <gtest/gtest.h>

#include <cmath>

namespace egret {
namespace {

using testing::expect_near;
using testing::message_of;

NamedDim dim(std::string name, std::int64_t least, std::int64_t most,
             std::vector<NamedDim::Place> at, std::vector<std::int64_t> buckets = {}) {
  NamedDim d;
  d.name = std::move(name);
  d.least = least;
  d.most = most;
  d.at = std::move(at);
  d.buckets = std::move(buckets);
  return d;
}

models::Gpt small_gpt(double dropout = 0) {
  Generator g(1);
  return models::Gpt(
      {.vocabulary = 17, .context = 64, .layers = 2, .width = 16, .heads = 2, .dropout = dropout},
      g);
}

TEST(NamedDims, OneCompileServesFiftyLengths) {
  const models::Gpt model = small_gpt();
  Generator g(2);
  auto forward = compile([](const models::Gpt& m, const Tensor& tokens) { return m(tokens); },
                         {.dims = {dim("tokens", 1, 64, {{1, 1}})}});
  std::vector<Tensor> tokens;
  for (std::int64_t n = 1; n <= 50; ++n)
    tokens.push_back(randint({2, n}, 0, 17, g).eval());
  forward(model, tokens.back());
  const Counters first = counters();
  for (const Tensor& t : tokens)
    EXPECT_EQ(forward(model, t).sizes(), (std::vector<std::int64_t>{2, t.size(1), 17}));
  const Counters more = counters() - first;
  EXPECT_EQ(more.compiles, 0u);
  EXPECT_EQ(more.kernels_compiled, 0u);
  EXPECT_EQ(forward.traces(), 1u);
  for (std::int64_t n : {1, 2, 7, 33, 64}) {
    const Tensor some = randint({2, n}, 0, 17, g).eval();
    expect_near(forward(model, some), model(some), 1e-4);
  }
  EXPECT_NE(forward.graph_text().find("[2,tokens]"), std::string::npos);
}

TEST(NamedDims, EachBucketIsOneTrace) {
  auto total = compile([](const Tensor& x) { return sum(x * x, 1); },
                       {.dims = {dim("n", 1, 1000, {{0, 1}}, {10, 100})}});
  for (std::int64_t n : {1, 5, 10, 11, 50, 100, 101, 500, 1000, 3})
    expect_near(total(ones({3, n}).eval()), full({3}, static_cast<double>(n)), 0);
  EXPECT_EQ(total.traces(), 3u);
}

TEST(NamedDims, ASizeOutsideIsTracedAloneAndSaysWhy) {
  auto twice = compile([](const Tensor& x) { return x * 2; },
                       {.name = "twice", .dims = {dim("n", 2, 8, {{0, 0}})}});
  twice(ones({4}));
  expect_near(twice(ones({9}).eval()), full({9}, 2.0), 0);
  EXPECT_NE(twice.last_report().find("n is 9, and not between 2 and 8"), std::string::npos)
      << twice.last_report();
  EXPECT_EQ(twice.traces(), 2u);
  twice(ones({6}));
  EXPECT_EQ(twice.traces(), 2u);
  twice(ones({6}).to(DType::F64));
  EXPECT_NE(twice.last_report().find("argument 0 is f64[n] now and was f32[n]"), std::string::npos)
      << twice.last_report();
}

TEST(NamedDims, TrainsOnBatchesOfAnySize) {
  Generator g(3);
  auto step = [](nn::Mlp& m, optim::Sgd& o, const Tensor& x, const Tensor& y) {
    const Tensor loss = cross_entropy(m(x), y);
    o.zero_grad();
    loss.backward();
    o.step();
    return loss;
  };
  Generator one(7), two(7);
  nn::Mlp plain({5, 8, 3}, one), named({5, 8, 3}, two);
  optim::Sgd plain_sgd(nn::named_parameters(plain), {.lr = 0.1}),
      named_sgd(nn::named_parameters(named), {.lr = 0.1});
  auto compiled = compile(step, {.dims = {dim("batch", 1, 40, {{2, 0}, {3, 0}})}});
  for (std::int64_t batch : {4, 1, 32, 9, 40}) {
    const Tensor x = randn({batch, 5}, g).eval(), y = randint({batch}, 0, 3, g).eval();
    EXPECT_NEAR(compiled(named, named_sgd, x, y).item(), step(plain, plain_sgd, x, y).item(), 1e-5)
        << batch;
  }
  EXPECT_EQ(compiled.traces(), 1u);
  expect_near(named.layers[0].weight, plain.layers[0].weight, 1e-5);
}

TEST(NamedDims, RandomNumbersAdvanceByTheSizeAtHand) {
  auto draw = compile([](const Tensor& x, Generator& g) { return dropout(x, 0.5, g); },
                      {.dims = {dim("n", 1, 100, {{0, 0}})}});
  Generator a(5), b(5);
  for (std::int64_t n : {3, 50, 7}) {
    const Tensor x = ones({n}).eval();
    expect_near(draw(x, a), dropout(x, 0.5, b), 0);
    EXPECT_EQ(a.counter.item<std::int64_t>(), b.counter.item<std::int64_t>());
  }
  EXPECT_EQ(draw.traces(), 1u);
}

TEST(NamedDims, ReductionsSlicesAndMasks) {
  auto work = [](const Tensor& x) {
    const Expr n = x.shape()[0];
    const Tensor tail = x[Slice(-2, {})], rest = x[Slice(1, {})], back = x[Slice({}, {}, -1)];
    return std::vector<Tensor>{mean(x),
                               var(x, 0),
                               x[0],
                               x[-1],
                               tail,
                               rest,
                               back,
                               x.narrow(0, n - 1, 1),
                               tril(outer(x, x)),
                               cumsum(x, 0),
                               zeros(x.shape()),
                               softmax(x),
                               argmax(x),
                               cat({x, x * 2})};
  };
  auto compiled = compile(work, {.dims = {dim("n", 2, 64, {{0, -1}})}});
  Generator g(9);
  for (std::int64_t n : {2, 3, 17, 64}) {
    const Tensor x = randn({n}, g).eval();
    const auto got = compiled(x), want = work(x);
    for (std::size_t i = 0; i < got.size(); ++i) {
      SCOPED_TRACE(std::to_string(i) + " at " + std::to_string(n));
      expect_near(got[i], want[i], 1e-5);
    }
  }
  EXPECT_EQ(compiled.traces(), 1u);
}

TEST(NamedDims, ASizeThatNothingReadsIsStillKnown) {
  auto make = compile([](const Tensor& x) { return zeros(x.shape()) + 1; },
                      {.dims = {dim("n", 1, 9, {{0, 0}})}});
  expect_near(make(ones({3})), ones({3}), 0);
  expect_near(make(ones({5})), ones({5}), 0);
}

TEST(NamedDims, GradientsOfAnArgumentAreOfItsSize) {
  auto slope = compile(
      [](const Tensor& x) {
        const Tensor y = sum(x * x * x);
        return grad(y, {x})[0];
      },
      {.dims = {dim("n", 1, 9, {{0, 0}})}});
  for (std::int64_t n : {2, 5}) {
    Tensor x = full({n}, 2.0).eval();
    x.set_requires_grad();
    expect_near(slope(x), full({n}, 12.0), 1e-5);
    EXPECT_TRUE(x.requires_grad());
    EXPECT_EQ(x.sizes(), (std::vector<std::int64_t>{n}));
  }
}

struct Batch {
  Tensor x, scale;
  EGRET_FIELDS(x, scale)
};

TEST(NamedDims, OneTensorOfATree) {
  auto run = compile([](const Batch& b) { return b.x * b.scale; },
                     {.dims = {dim("n", 1, 9, {{0, 0, "x"}})}});
  for (std::int64_t n : {2, 5})
    expect_near(run(Batch{ones({n, 2}), ones({2})}), ones({n, 2}), 0);
  EXPECT_EQ(run.traces(), 1u);
}

TEST(NamedDims, MistakesAreNamed) {
  auto f = [](const Tensor& a, const Tensor& b) { return a + b; };
  auto made = [&](NamedDim d) { return message_of([&] { compile(f, {.dims = {std::move(d)}}); }); };
  EXPECT_EQ(made(dim("", 1, 2, {{0, 0}})), "compile: a dim has no name");
  EXPECT_EQ(made(dim("n", 3, 2, {{0, 0}})), "compile: dim n has no size: from 3 to 2");
  EXPECT_EQ(made(dim("n", -3, 2, {{0, 0}})), "compile: dim n has no size: from -3 to 2");
  EXPECT_EQ(made(dim("n", 1, 2, {})),
            "compile: dim n stands nowhere; `at` names argument and axis");
  EXPECT_EQ(made(dim("n", 1, 9, {{0, 0}}, {5, 5})),
            "compile: bucket 5 of dim n: buckets are ascending, from 1 to below 9");
  NamedDim multiple = dim("n", 1, 2, {{0, 0}});
  multiple.multiple_of = 0;
  EXPECT_EQ(made(multiple), "compile: dim n is a multiple of 0, which must be positive");

  auto called = [&](std::vector<NamedDim::Place> at, const Tensor& a, const Tensor& b) {
    auto compiled = compile(f, {.dims = {dim("n", 1, 9, std::move(at))}});
    return message_of([&] { compiled(a, b); });
  };
  EXPECT_EQ(called({{0, 0}, {1, 0}}, ones({2}), ones({3})),
            "compile: dim n is 3 in argument 1 and 2 before");
  EXPECT_EQ(called({{4, 0}}, ones({2}), ones({2})),
            "compile: dim n stands in argument 4, where no tensor is");
  EXPECT_NE(called({{0, 3}}, ones({2}), ones({2})).find("axis 3"), std::string::npos);
  // Only one of the two is named: they are not known to be equal.
  EXPECT_NE(called({{0, 0}}, ones({2}), ones({2})).find("n"), std::string::npos);

  auto read = compile([](const Tensor& x) { return x * static_cast<double>(x.size(0)); },
                      {.dims = {dim("n", 1, 9, {{0, 0}})}});
  EXPECT_NE(message_of([&] { read(ones({2})); }).find("dim n of [n] is symbolic"),
            std::string::npos);
}

TEST(NamedDims, AnExplicitGraphServesManySizes) {
  Graph cx;
  const Expr n = Expr::symbol("n", 1, 100);
  auto x = cx.tensor({n, 2}), both = cx.tensor({n * 2});
  auto y = (matmul(x, transpose(x)).sum(1) + both[Slice({}, {}, 2)]).retrieve();
  cx.compile(Generic{} | Fusion{}, &y);
  const Counters before = counters();
  for (std::int64_t size : {1, 3, 50}) {
    x.set(ones({size, 2}));
    both.set(ones({size * 2}));
    cx.execute();
    EXPECT_EQ(y.data(), std::vector<float>(static_cast<std::size_t>(size), 2.0f * size + 1));
  }
  EXPECT_EQ((counters() - before).graphs_traced, 0u);
  EXPECT_THROW(x.set(ones({101, 2})), Error);
  x.set(ones({3, 2}));
  both.set(ones({7}));
  EXPECT_NE(message_of([&] { cx.execute(); }).find("[2*n], which is [6] now"), std::string::npos)
      << message_of([&] { cx.execute(); });
  both.set(ones({6}));
  EXPECT_EQ(cx.execute_debug().ops.empty(), false);
  EXPECT_EQ(y.data(), std::vector<float>(3, 7));
}

} // namespace
} // namespace egret

// Sums of products that windows place: gradients of convolutions by their data, transposed
// convolutions.
#include "compiler/placed_products.h"

#include "backend/cuda/target.h"
#include "backend/reference/compare.h"
#include "backend/reference/reference.h"
#include "compiler/affine_view.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "egret/passes.h"
#include "support/equal_values.h"
#include "support/graph_runner.h"
#include "support/random_graph.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

struct Gradient {
  std::int64_t spatial = 2, size = 9, kernel = 3, stride = 1, padding = 1, dilation = 1, groups = 1;
  DType dtype = DType::BF16;
  std::int64_t batch = 2, channels = 4, outputs = 6; ///< of a group
  bool last = false;                                 ///< channels, in memory

  std::string text() const {
    return fmt::format("{}d, {} by {}, stride {}, padding {}, dilation {}, {} groups, {}{}",
                       spatial, size, kernel, stride, padding, dilation, groups, name_of(dtype),
                       last ? ", channels last" : "");
  }
};

/// The gradient of a convolution by its data.
Graph graph_of(const Gradient& c) {
  egret::Graph cx;
  const std::int64_t result =
      (c.size + 2 * c.padding - (c.kernel - 1) * c.dilation - 1) / c.stride + 1;
  const auto shape = [&](std::int64_t first, std::int64_t channels, std::int64_t wide) {
    Shape s(std::size_t(c.spatial), Expr(wide));
    s.insert(c.last ? s.end() : s.begin(), Expr(channels));
    s.insert(s.begin(), Expr(first));
    return s;
  };
  const auto seen = [&](const Tensor& t) {
    std::vector<std::int64_t> order{0, c.spatial + 1};
    for (std::int64_t i = 0; i < c.spatial; ++i)
      order.push_back(i + 1);
    return c.last ? t.permute(order) : t;
  };
  const std::int64_t channels = c.channels * c.groups, outputs = c.outputs * c.groups;
  const Tensor seed = cx.tensor(shape(c.batch, outputs, result), c.dtype, "seed"),
               w = cx.tensor(shape(outputs, channels / c.groups, c.kernel), c.dtype, "w");
  Tensor x = zeros(shape(c.batch, channels, c.size), c.dtype);
  x.set_requires_grad();
  const ConvOptions options{.stride = PerAxis(c.stride),
                            .padding = PerAxis(c.padding),
                            .dilation = PerAxis(c.dilation),
                            .groups = c.groups};
  const Tensor y = c.spatial == 1   ? conv1d(seen(x), seen(w), {}, options)
                   : c.spatial == 2 ? conv2d(seen(x), seen(w), {}, options)
                                    : conv3d(seen(x), seen(w), {}, options);
  const Tensor outputs_of[] = {y}, inputs_of[] = {x}, seeds[] = {seen(seed)};
  grad(outputs_of, inputs_of, seeds)[0].retrieve();
  return ir::parse_graph(cx.text());
}

int count(const Graph& g, Op op) {
  int n = 0;
  for (NodeId id = 0; id < g.size(); ++id)
    n += g[id].op == op;
  return n;
}

/// The graph for an H200, or another target, whose values are compared.
Graph placed(const Graph& before, const std::string& what,
             const kernel::Target& target = backend::cuda::known_target(90)) {
  Graph after = with_placed_products(before, target);
  testing::expect_equal_values(before, after, what);
  return after;
}

TEST(PlacedProducts, OfWindowsOneApartAreOneSum) {
  for (const DType dtype : {DType::F16, DType::BF16})
    for (const bool last : {false, true})
      for (const std::int64_t spatial : {1, 2, 3})
        for (const std::int64_t dilation : {1, 2})
          for (const std::int64_t groups : {1, 3}) {
            if (spatial == 3 && (dilation > 1) != (groups > 1))
              continue;
            const Gradient c{.spatial = spatial,
                             .size = spatial == 3 ? 4 : 8,
                             .padding = spatial - 1,
                             .dilation = dilation,
                             .groups = groups,
                             .dtype = dtype,
                             .last = last};
            const Graph before = graph_of(c), after = placed(before, c.text());
            EXPECT_EQ(count(before, Op::ReduceSum), 2) << c.text();
            EXPECT_EQ(count(after, Op::ReduceSum), 1) << c.text();
          }
}

TEST(PlacedProducts, OfWindowsFurtherApartAreABatchOfPhases) {
  int merged = 0;
  for (const DType dtype : {DType::F16, DType::BF16})
    for (const std::int64_t spatial : {1, 2})
      for (const std::int64_t kernel : {3, 4, 5, 7})
        for (const std::int64_t padding : {0, 1, 3}) {
          const Gradient c{.spatial = spatial,
                           .size = 11,
                           .kernel = kernel,
                           .stride = 2,
                           .padding = padding,
                           .dtype = dtype};
          merged += count(placed(graph_of(c), c.text()), Op::ReduceSum) == 1;
        }
  EXPECT_GE(merged, 24);
  const Gradient third{.size = 13, .kernel = 7, .stride = 3, .padding = 2};
  EXPECT_EQ(count(placed(graph_of(third), third.text()), Op::ReduceSum), 1);
}

TEST(PlacedProducts, OfAllStridesPaddingsAndDilationsKeepTheirValues) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    testing::Rng random(seed);
    Gradient c{.spatial = 1 + random.below(2), .kernel = 1 + random.below(5)};
    c.stride = 1 + random.below(4);
    c.dilation = 1 + random.below(3);
    c.padding = random.below(4);
    c.size = std::max<std::int64_t>(1, (c.kernel - 1) * c.dilation + 1 - 2 * c.padding) +
             random.below(7);
    c.groups = 1 + random.below(2);
    c.last = random.chance(0.5);
    placed(graph_of(c), c.text());
    placed(graph_of(c), c.text() + ", on a CPU", {});
  }
}

TEST(PlacedProducts, OfTransposedConvolutionsAreOneSum) {
  for (const std::int64_t stride : {1, 2}) {
    egret::Graph cx;
    const Tensor x = cx.tensor({2, 6, 5, 5}, DType::BF16, "x"),
                 w = cx.tensor({6, 4, 4, 4}, DType::BF16, "w");
    conv_transpose2d(x, w, {}, {.stride = stride, .padding = 1}).retrieve();
    EXPECT_EQ(count(placed(ir::parse_graph(cx.text()), "transposed"), Op::ReduceSum), 1) << stride;
  }
}

// As a group norm's are: groups of channels, or rows that were joined.
TEST(PlacedProducts, OfAFactorBehindAReshapeAreOneSum) {
  const auto sums = [](const Shape& seen, const Shape& made) {
    egret::Graph cx;
    const Tensor from = cx.tensor(made, DType::BF16, "seed"),
                 w = cx.tensor({6, 4, 3, 3}, DType::BF16, "w");
    Tensor x = zeros({2, 4, 9, 9}, DType::BF16);
    x.set_requires_grad();
    const Tensor y = conv2d(x, w, {}, {.padding = PerAxis(1)});
    const Tensor seed = (from * from).reshape(seen);
    const Tensor outputs_of[] = {y}, inputs_of[] = {x}, seeds[] = {seed};
    grad(outputs_of, inputs_of, seeds)[0].retrieve();
    return count(placed(ir::parse_graph(cx.text()), "behind a reshape"), Op::ReduceSum);
  };
  EXPECT_EQ(sums({2, 6, 9, 9}, {2, 2, 3, 9, 9}), 1);
  EXPECT_EQ(sums({2, 6, 9, 9}, {2, 6, 81}), 1);
  EXPECT_EQ(sums({2, 6, 9, 9}, {12, 9, 3, 3}), 1);
}

/// Products by threads: windows' elements come through registers.
TEST(PlacedProducts, OfFullPrecisionAreOneSumWhereColumnsAreManyBytes) {
  const auto sums = [](const Gradient& c) {
    return count(with_placed_products(graph_of(c), backend::cuda::known_target(90)), Op::ReduceSum);
  };
  Gradient c{.size = 56, .dtype = DType::F32, .batch = 32, .channels = 64, .outputs = 64};
  EXPECT_EQ(sums(c), 1);
  c.outputs = 2048; // the products are most of the time
  EXPECT_EQ(sums(c), 2);
  c = {.size = 32, .dtype = DType::F32, .batch = 8, .channels = 24, .outputs = 64};
  EXPECT_EQ(sums(c), 2); // few tiles, which wait at each step
}

TEST(PlacedProducts, OfACpuAreOneSumWithoutPhasesAndWhereFewProductsAreZeros) {
  const auto sums = [](const Gradient& c) {
    const Graph before = graph_of(c), after = with_placed_products(before, {});
    ir::verify(after);
    return count(after, Op::ReduceSum);
  };
  Gradient c{.size = 28, .dtype = DType::F32, .channels = 16, .outputs = 16};
  EXPECT_EQ(sums(c), 1);
  c.groups = 4;
  EXPECT_EQ(sums(c), 1);
  c.stride = 2;
  EXPECT_EQ(sums(c), 2);
  // One place of each window: as many products of zeros as the kernel has elements.
  EXPECT_EQ(sums({.size = 8,
                  .kernel = 8,
                  .padding = 0,
                  .dtype = DType::F32,
                  .channels = 64,
                  .outputs = 512}),
            2);
}

/// Padded windows are at as many positions as the data has elements, also where the gradient that
/// they read is made of another convolution's products, more than it reads.
TEST(PlacedProducts, OfAConvolutionsOwnResultAreOneSum) {
  egret::Graph cx;
  const Tensor w = cx.tensor({12, 4, 3, 3}, DType::F32, "w");
  Tensor x = cx.tensor({2, 4, 6, 7}, DType::F32, "x");
  x.set_requires_grad();
  const Tensor y = conv2d(x, w, {}, {.padding = PerAxis(1)});
  grad((y * y).sum(), x).retrieve();
  const Graph before = passes::normalize()(ir::parse_graph(cx.text()));
  EXPECT_EQ(count(placed(before, "a CPU", {}), Op::ReduceSum), count(before, Op::ReduceSum) - 1);
}

/// sum over w of p[h - w + shift, w] for p = a b, with rows outside of [begin, end) of p left out.
Graph diagonals(std::int64_t begin, std::int64_t end, double fill, bool read_twice) {
  Graph g;
  const Shape box{12, 16, 3};
  const NodeId a = g.input("a", DType::F32, {12, 16}), b = g.input("b", DType::F32, {16, 3});
  const NodeId p = g.reduce(Op::ReduceSum,
                            g.binary(Op::Mul, g.expand(g.reshape(a, {12, 16, 1}), box),
                                     g.expand(g.reshape(b, {1, 16, 3}), box)),
                            {1}); // [12, 3]
  const Expr rows(end - begin);
  NodeId at = g.shrink(p, {Expr(begin), Expr(0)}, {Expr(end), Expr(3)});
  at = g.pad(at, {Expr(begin), Expr(0)}, {Expr(12 - end + 3), Expr(0)},
             Scalar::of(DType::F32, fill));
  at = g.reshape(g.permute(at, {1, 0}), {45}); // windows of 15, one further each
  at = g.reshape(g.shrink(at, {Expr(0)}, {Expr(42)}), {3, 14});
  g.outputs = {g.reduce(Op::ReduceSum, at, {0})};
  if (read_twice)
    g.outputs.push_back(p);
  return g;
}

TEST(PlacedProducts, AreLeftWhereHolesAreWithinTheSum) {
  EXPECT_EQ(count(placed(diagonals(0, 12, 0, false), "whole"), Op::ReduceSum), 1);
  EXPECT_EQ(count(placed(diagonals(2, 12, 0, false), "without two"), Op::ReduceSum), 2);
  EXPECT_EQ(count(placed(diagonals(0, 12, 1, false), "ones"), Op::ReduceSum), 2);
  EXPECT_EQ(count(placed(diagonals(0, 12, 0, true), "read twice"), Op::ReduceSum), 2);
}

/// sum over w of p[h - w, w] for p = a b of n rows, or of 12 from row n of a.
Graph diagonals_of_unknown(bool size) {
  const Expr n = Expr::symbol("n", 1, 8), rows = size ? n : Expr(12);
  const Shape box{rows, Expr(16), Expr(3)};
  Graph g;
  NodeId a = g.input("a", DType::F32, {size ? n : Expr(20), Expr(16)});
  const NodeId b = g.input("b", DType::F32, {Expr(16), Expr(3)});
  if (!size) {
    g.input("rows", DType::F32, {n}); // says what n is
    a = g.shrink(a, {n, Expr(0)}, {n + Expr(12), Expr(16)});
  }
  NodeId at = g.reduce(Op::ReduceSum,
                       g.binary(Op::Mul, g.expand(g.reshape(a, {rows, Expr(16), Expr(1)}), box),
                                g.expand(g.reshape(b, {Expr(1), Expr(16), Expr(3)}), box)),
                       {1});
  at = g.pad(at, {Expr(0), Expr(0)}, {Expr(3), Expr(0)}, Scalar::of(DType::F32, 0.0));
  at = g.reshape(g.permute(at, {1, 0}), {(rows + Expr(3)) * Expr(3)});
  at = g.reshape(g.shrink(at, {Expr(0)}, {(rows + Expr(2)) * Expr(3)}), {Expr(3), rows + Expr(2)});
  g.outputs = {g.reduce(Op::ReduceSum, at, {0})};
  return g;
}

TEST(PlacedProducts, AreLeftWhereSizesAreUnknown) {
  const Graph g = diagonals_of_unknown(true);
  EXPECT_EQ(ir::print(with_placed_products(g, backend::cuda::known_target(90))), ir::print(g));
}

TEST(PlacedProducts, OfAFactorThatBeginsAtAnUnknownRowAreOneSum) {
  const Graph before = diagonals_of_unknown(false);
  const Graph after = with_placed_products(before, backend::cuda::known_target(90));
  EXPECT_EQ(count(after, Op::ReduceSum), 1) << ir::print(after);
  for (std::uint64_t seed = 1; seed <= 5; ++seed) { // and other rows
    const auto inputs = testing::random_inputs(before, seed, {.special = false, .range = 1});
    const auto expected = backend::reference::expect(before, inputs);
    const auto actual = backend::reference::execute(after, inputs);
    const auto result = backend::reference::compare(actual[0], expected[0], "output");
    EXPECT_TRUE(result.ok) << result.message;
  }
}

TEST(AffineViews, ReadWhereTheCoordinatesSay) {
  for (const std::int64_t first : {-3, -1, 1, 2})
    for (const std::int64_t second : {-4, -2, 1, 3})
      for (const std::int64_t added : {-2, 0, 5}) {
        Graph g;
        const NodeId source = g.input("x", DType::F32, {7, 3});
        const Shape dims{4, 2, 5, 3};
        const Expr at =
            Expr::axis(0, 4) * Expr(first) + Expr::axis(2, 5) * Expr(second) + Expr(added);
        ASSERT_TRUE(is_affine_view({at, Expr::axis(3, 3)}));
        g.outputs = {affine_view(g, source, {at, Expr::axis(3, 3)}, dims)};
        ir::verify(g);
        std::vector<double> values(21), expected;
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = double(i) + 1;
        for (std::int64_t i = 0; i < 4; ++i)
          for (int repeat = 0; repeat < 2; ++repeat)
            for (std::int64_t j = 0; j < 5; ++j)
              for (std::int64_t k = 0; k < 3; ++k) {
                const std::int64_t row = i * first + j * second + added;
                expected.push_back(row < 0 || row >= 7 ? 0 : values[std::size_t(row * 3 + k)]);
              }
        EXPECT_EQ(testing::values_of(g, g.outputs[0],
                                     {backend::reference::HostArray(DType::F32, {7, 3}, values)}),
                  expected)
            << at.str();
      }
  EXPECT_FALSE(is_affine_view({Expr::axis(0, 4), Expr::axis(0, 4)}));
  EXPECT_FALSE(is_affine_view({floordiv(Expr::axis(0, 4), Expr(2))}));
}

/// Heads that share keys add up their gradients: not together with a sum over the scores, whose
/// kernels would have to store them.
TEST(PlacedProducts, LeaveGroupsOfHeadsToStreams) {
  egret::Graph cx;
  const auto heads = [&](std::int64_t n, const char* name) {
    return cx.tensor({2, n, 512, 64}, DType::BF16, name);
  };
  const Tensor q = heads(8, "q"), v = heads(2, "v");
  Tensor k = heads(2, "k");
  k.set_requires_grad();
  const auto shared = [](const Tensor& t) { return repeat_interleave(t.to(DType::F32), 4, 1); };
  const Tensor s = matmul(q.to(DType::F32), shared(k).transpose()).to(DType::BF16).to(DType::F32);
  const Tensor y = matmul(softmax(s).to(DType::BF16).to(DType::F32), shared(v));
  grad((y * y).sum(), k).retrieve();
  const Graph g = passes::normalize()(ir::parse_graph(cx.text()));
  EXPECT_EQ(ir::print(with_placed_products(g, backend::cuda::known_target(90))), ir::print(g));
}

} // namespace
} // namespace egret::compiler

// Gradients at ties, zeros, poles and infinities: docs/autodiff.md.
#include "support/graph_runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::values_of;
using testing::vector_of;
using List = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

using Function = std::function<NodeId(Graph&, NodeId)>;

NodeId scalar_like(Graph& g, NodeId like, double value) {
  DType type = g[like].dtype;
  Shape shape = g[like].shape;
  return g.broadcast(g.constant(type, value), shape);
}

/// The gradient of sum(f(x)) at `x`; `order` 2: of the sum of that gradient.
List gradient(const Function& f, std::initializer_list<double> x, int order = 1) {
  Graph g;
  NodeId in = g.input("x", DType::F64, {std::int64_t(x.size())});
  NodeId y = f(g, in);
  for (int i = 0; i < order; ++i)
    y = gradients(g, std::vector{y}, std::vector{scalar_like(g, y, 1)}, std::vector{in})[0];
  return values_of(g, y, {backend::reference::HostArray(DType::F64, {std::int64_t(x.size())}, x)});
}

Function unary(Op op) {
  return [op](Graph& g, NodeId x) { return g.unary(op, x); };
}

/// f(x) where x > 0, else 0.
Function where_positive(const Function& f) {
  return [f](Graph& g, NodeId x) {
    return g.select(g.binary(Op::Lt, scalar_like(g, x, 0), x), f(g, x), scalar_like(g, x, 0));
  };
}

TEST(Conventions, ReluAsSelectIsFlatAtZeroAndPassesAtNan) {
  Function relu = [](Graph& g, NodeId x) {
    const NodeId zero = scalar_like(g, x, 0);
    const NodeId off = g.binary(Op::Or, g.binary(Op::Lt, x, zero), g.binary(Op::Eq, x, zero));
    return g.select(off, zero, x);
  };
  EXPECT_EQ(gradient(relu, {-1, 0, 2, std::nan("")}), (List{0, 0, 1, 1}));
}

TEST(Conventions, TiesOfMaxShareEvenly) {
  Function clip = [](Graph& g, NodeId x) { return g.binary(Op::Max, x, scalar_like(g, x, 0)); };
  EXPECT_EQ(gradient(clip, {-1, 0, 2}), (List{0, 0.5, 1}));
  Function amax = [](Graph& g, NodeId x) { return g.reduce(Op::ReduceMax, x, {0}); };
  EXPECT_EQ(gradient(amax, {3, 1, 3, 3}), (List{1 / 3.0, 0, 1 / 3.0, 1 / 3.0}));
  EXPECT_EQ(gradient(amax, {-kInf, -kInf}), (List{0.5, 0.5}));
  EXPECT_EQ(gradient(amax, {kNaN, 1}), (List{0, 0}));
}

TEST(Conventions, TheRunningMaximumBelongsToItsFirstElement) {
  Function cummax = [](Graph& g, NodeId x) { return g.scan(Op::ScanMax, x, 0); };
  EXPECT_EQ(gradient(cummax, {1, 3, 3, 2, 5}), (List{1, 3, 0, 0, 1}));
}

TEST(Conventions, SqrtAndNormAreFlatAtZero) {
  EXPECT_EQ(gradient(unary(Op::Sqrt), {0, 4, kInf}), (List{0, 0.25, 0}));
  Function norm = [](Graph& g, NodeId x) {
    return g.unary(Op::Sqrt, g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, x), {0}));
  };
  EXPECT_EQ(gradient(norm, {0, 0}), (List{0, 0}));
  EXPECT_NEAR(gradient(norm, {3, 4})[0], 0.6, 1e-15);
  for (double value : gradient(norm, {0, 0}, 2))
    EXPECT_TRUE(std::isfinite(value));
}

TEST(Conventions, PolesGiveZero) {
  EXPECT_EQ(gradient(unary(Op::Recip), {0, 2, kInf}), (List{0, -0.25, 0}));
  EXPECT_EQ(gradient(unary(Op::Log), {0, 2, -1}), (List{0, 0.5, 0}));
  EXPECT_EQ(gradient(unary(Op::Log1p), {-1, 1, -2}), (List{0, 0.5, 0}));
  EXPECT_EQ(gradient(unary(Op::Exp), {1000, 0, -kInf}), (List{0, 1, 0}));
  EXPECT_EQ(gradient(unary(Op::Expm1), {1000, 0, -kInf}), (List{0, 1, 0}));
}

TEST(Conventions, PowersAtZero) {
  auto power = [](double exponent) {
    return [exponent](Graph& g, NodeId x) {
      return g.binary(Op::Pow, x, scalar_like(g, x, exponent));
    };
  };
  EXPECT_EQ(gradient(power(2), {0, 3, -3}), (List{0, 6, -6}));
  EXPECT_EQ(gradient(power(1), {0, -2}), (List{1, 1}));
  EXPECT_EQ(gradient(power(0), {0, 5}), (List{0, 0}));
  EXPECT_EQ(gradient(power(0.5), {0, 4}), (List{0, 0.25}));
  EXPECT_EQ(gradient(power(2), {0, 3}, 2), (List{2, 2}));
  EXPECT_EQ(gradient(power(3), {0, 1}, 2), (List{0, 6}));
  Function base = [](Graph& g, NodeId x) {
    NodeId zeros = scalar_like(g, x, 0);
    return g.binary(Op::Pow, zeros, x); // 0^x
  };
  EXPECT_EQ(gradient(base, {0, 2}), (List{0, 0}));
}

// The gradient of a branch that is not taken is exactly 0, whatever the branch does there, also in
// second derivatives.
TEST(Conventions, NoNaNComesFromABranchNotTaken) {
  const Function functions[] = {
      unary(Op::Log),
      unary(Op::Log2),
      unary(Op::Log1p),
      unary(Op::Sqrt),
      unary(Op::Recip),
      [](Graph& g, NodeId x) { return g.binary(Op::Div, scalar_like(g, x, 3), x); },
      [](Graph& g, NodeId x) { return g.binary(Op::Pow, x, scalar_like(g, x, 0.5)); },
      [](Graph& g, NodeId x) { return g.binary(Op::Pow, x, scalar_like(g, x, -2)); },
      [](Graph& g, NodeId x) { return g.binary(Op::Pow, x, x); },
      [](Graph& g, NodeId x) { return g.binary(Op::Mod, scalar_like(g, x, 3), x); },
      [](Graph& g, NodeId x) { return g.unary(Op::Sqrt, g.unary(Op::Log, x)); },
  };
  for (const Function& f : functions)
    for (int order : {1, 2})
      for (double x : {0.0, -0.0, -1.0, -5.0, -kInf}) {
        List got = gradient(where_positive(f), {x, 2}, order);
        EXPECT_EQ(got[0], 0) << "function " << &f - functions << " at " << x << " order " << order;
        EXPECT_TRUE(std::isfinite(got[1]));
      }
}

TEST(Conventions, NoNaNComesFromAnOverflowNotTaken) {
  for (Op op : {Op::Exp, Op::Exp2, Op::Expm1})
    for (int order : {1, 2}) {
      Function below = [op](Graph& g, NodeId x) {
        return g.select(g.binary(Op::Lt, x, scalar_like(g, x, 700)), g.unary(op, x),
                        scalar_like(g, x, 1));
      };
      EXPECT_EQ(gradient(below, {5000, kInf}, order), (List{0, 0}));
    }
}

TEST(Conventions, GradientOfCumulativeProductsTakesMemoryInProportion) {
  constexpr std::int64_t n = 1000;
  Graph g;
  const NodeId in = g.input("x", DType::F32, {n}), y = g.scan(Op::ScanProd, in, 0);
  gradients(g, std::vector{y}, std::vector{scalar_like(g, y, 1)}, std::vector{in});
  for (NodeId id = 0; id < NodeId(g.size()); ++id)
    EXPECT_LE(element_count(g[id].shape).value(), 2 * n) << "%" << id;
}

TEST(Conventions, CumulativeProductsOfSeveralLengths) {
  for (int n : {1, 2, 3, 4, 5, 8, 9, 31, 37}) {
    List x(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i) // with zeros, alone and in pairs
      x[std::size_t(i)] = i % 7 == 3 || i % 7 == 4 ? 0 : i % 3 == 0 ? -2 : 0.5;
    Graph g;
    const NodeId in = g.input("x", DType::F64, {n}), y = g.scan(Op::ScanProd, in, 0);
    const NodeId seed = g.input("g", DType::F64, {n});
    const NodeId q = gradients(g, std::vector{y}, std::vector{seed}, std::vector{in})[0];
    List w(static_cast<std::size_t>(n)), expected(static_cast<std::size_t>(n));
    for (int i = 0; i < n; ++i)
      w[std::size_t(i)] = i + 1;
    for (int k = 0; k < n; ++k)
      for (int i = k; i < n; ++i) {
        double product = w[std::size_t(i)];
        for (int j = 0; j <= i; ++j)
          product *= j == k ? 1 : x[std::size_t(j)];
        expected[std::size_t(k)] += product;
      }
    EXPECT_EQ(values_of(g, q,
                        {backend::reference::HostArray(DType::F64, {n}, x),
                         backend::reference::HostArray(DType::F64, {n}, w)}),
              expected)
        << n;
  }
}

TEST(Conventions, ProductsWithZeros) {
  Function prod = [](Graph& g, NodeId x) { return g.reduce(Op::ReduceProd, x, {0}); };
  EXPECT_EQ(gradient(prod, {2, 3, 4}), (List{12, 8, 6}));
  EXPECT_EQ(gradient(prod, {2, 0, 4}), (List{0, 8, 0}));
  EXPECT_EQ(gradient(prod, {0, 0, 4}), (List{0, 0, 0}));
  // d²/dx_i dx_j summed over i: for (2, 0, 4) the sums of products of the third element
  EXPECT_EQ(gradient(prod, {2, 0, 4}, 2), (List{0 + 4, 4 + 2, 2 + 0}));
  EXPECT_EQ(gradient(prod, {0, 0, 4}, 2), (List{4, 4, 0}));
  Function cumprod = [](Graph& g, NodeId x) { return g.scan(Op::ScanProd, x, 0); };
  EXPECT_EQ(gradient(cumprod, {2, 0, 4}), (List{1 + 0 + 0, 2 + 8, 0}));
  EXPECT_EQ(gradient(cumprod, {0, 0, 4}, 2), (List{1 + 4, 1 + 4, 0}));
  // No product of the gradient may have an infinite factor of another element.
  EXPECT_EQ(gradient(cumprod, {kInf, 2, 3}), (List{1 + 2 + 6, kInf, kInf}));
}

TEST(Conventions, SoftmaxWithTheMaximumBehindStopGradient) {
  Function softmax = [](Graph& g, NodeId x) {
    NodeId largest = g.unary(Op::StopGradient, g.reduce(Op::ReduceMax, x, {0}));
    Shape shape = g[x].shape;
    NodeId shift = g.binary(Op::Mul, g.broadcast(largest, shape), scalar_like(g, x, -1));
    NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, shift));
    NodeId p = g.binary(Op::Div, e, g.broadcast(g.reduce(Op::ReduceSum, e, {0}), shape));
    // weigh the elements, since their sum does not depend on x
    return g.binary(Op::Mul, p, g.cast(g.iota(shape[0]), DType::F64));
  };
  List got = gradient(softmax, {1000, 1000});
  EXPECT_NEAR(got[0], -0.25, 1e-12);
  EXPECT_NEAR(got[1], 0.25, 1e-12);
  got = gradient(softmax, {0, -kInf}); // a masked score
  EXPECT_EQ(got, (List{0, 0}));
}

TEST(Conventions, StopGradientIsTheValueWithGradientZero) {
  Function f = [](Graph& g, NodeId x) {
    return g.binary(Op::Mul, x, g.unary(Op::StopGradient, x));
  };
  EXPECT_EQ(gradient(f, {3}), List{3});
  EXPECT_EQ(gradient(unary(Op::StopGradient), {3}), List{0});
}

TEST(Conventions, IntegersBoolsAndStepsGiveZero) {
  EXPECT_EQ(gradient(unary(Op::Floor), {1.5}), List{0});
  EXPECT_EQ(gradient(unary(Op::Trunc), {1.5}), List{0});
  Function through = [](Graph& g, NodeId x) { return g.cast(g.cast(x, DType::I64), DType::F64); };
  EXPECT_EQ(gradient(through, {1.5}), List{0});
}

TEST(Conventions, OverwrittenUpdatesGetNothing) {
  Graph g;
  NodeId data = g.input("d", DType::F64, {3}), updates = g.input("u", DType::F64, {4});
  NodeId index = vector_of(g, DType::I32, {1, 1, 7, 0});
  NodeId y = g.scatter(Op::ScatterSet, data, index, updates, 0);
  NodeId seed = vector_of(g, DType::F64, {10, 20, 30});
  auto got = gradients(g, std::vector{y}, std::vector{seed}, std::vector{data, updates});
  std::vector<backend::reference::HostArray> in{{DType::F64, {3}}, {DType::F64, {4}}};
  EXPECT_EQ(values_of(g, got[0], in), (List{0, 0, 30}));
  EXPECT_EQ(values_of(g, got[1], in), (List{0, 20, 0, 10}));
}

TEST(Conventions, TiesOfScatterMaxShareEvenly) {
  Graph g;
  NodeId data = vector_of(g, DType::F64, {5, 1, 2}),
         updates = vector_of(g, DType::F64, {5, 5, 9, 2});
  NodeId index = vector_of(g, DType::I32, {0, 0, 1, -1});
  NodeId y = g.scatter(Op::ScatterMax, data, index, updates, 0);
  NodeId seed = vector_of(g, DType::F64, {9, 20, 30});
  auto got = gradients(g, std::vector{y}, std::vector{seed}, std::vector{data, updates});
  EXPECT_EQ(values_of(g, got[0]), (List{3, 0, 30}));
  EXPECT_EQ(values_of(g, got[1]), (List{3, 3, 20, 0}));
}

} // namespace
} // namespace egret

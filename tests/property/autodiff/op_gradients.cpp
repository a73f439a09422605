// Every differentiable op of the table against central differences in f64, on 21 shapes, with its
// second derivative.
#include "support/graph_runner.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::Rng;
using Arrays = std::vector<std::vector<double>>;

const std::vector<std::vector<std::int64_t>> kShapes = {
    {},        {1},       {0},       {5},       {7},          {1, 1},       {2, 3},
    {3, 1},    {0, 3},    {3, 0},    {1, 4},    {4, 4},       {2, 1, 3},    {1, 1, 1},
    {2, 0, 2}, {2, 3, 2}, {3, 2, 1}, {2, 2, 4}, {1, 2, 1, 2}, {2, 2, 2, 2}, {2, 1, 1, 3}};

Shape shape_of(const std::vector<std::int64_t>& dims) {
  return {dims.begin(), dims.end()};
}

std::int64_t count_of(const std::vector<std::int64_t>& dims) {
  return backend::reference::element_count(dims);
}

/// A graph of one op with inputs at which it is smooth.
struct Case {
  Graph graph;
  Arrays inputs;
  Rng rng{1};

  /// An f64 input with values of both signs whose sizes lie in low..high.
  NodeId input(const std::vector<std::int64_t>& dims, double low, double high, bool negative) {
    auto& values = inputs.emplace_back();
    for (std::int64_t i = 0; i < count_of(dims); ++i) {
      const double size = rng.uniform(low, high);
      values.push_back(negative && rng.chance(0.5) ? -size : size);
    }
    return graph.input("x" + std::to_string(inputs.size()), DType::F64, shape_of(dims));
  }
  NodeId integers(DType type, const std::vector<std::int64_t>& dims, std::int64_t low,
                  std::int64_t high) {
    auto& values = inputs.emplace_back();
    for (std::int64_t i = 0; i < count_of(dims); ++i)
      values.push_back(double(low + rng.below(high - low + 1)));
    return graph.input("i" + std::to_string(inputs.size()), type, shape_of(dims));
  }
  void output(NodeId node) { graph.outputs.push_back(node); }
};

using Dims = std::vector<std::int64_t>;

std::vector<Dims> subsets_of_axes(std::size_t rank) {
  std::vector<Dims> sets;
  for (std::size_t bits = 1; bits < (std::size_t{1} << rank); ++bits) {
    Dims axes;
    for (std::size_t i = 0; i < rank; ++i)
      if (bits >> i & 1)
        axes.push_back(std::int64_t(i));
    sets.push_back(axes);
  }
  return sets;
}

void add_unary(Case& c, Op op, const Dims& dims) {
  const bool positive = op == Op::Log || op == Op::Log2 || op == Op::Sqrt;
  NodeId x = c.input(dims, op == Op::Log1p ? 0.1 : 0.3, op == Op::Log1p ? 0.8 : 2, !positive);
  c.output(c.graph.unary(op, x));
}

void add_binary(Case& c, Op op, const Dims& dims) {
  NodeId a = c.input(dims, 0.5, 2, op != Op::Pow);
  NodeId b = c.input(dims, 0.5, 2, true);
  if (op == Op::Mod) { // keep a / b away from integers
    for (std::size_t i = 0; i < c.inputs[0].size(); ++i)
      c.inputs[0][i] = c.inputs[1][i] * (double(c.rng.below(5) - 2) + c.rng.uniform(0.2, 0.8));
  }
  c.output(c.graph.binary(op, a, b));
}

void add_reduction(Case& c, Op op, const Dims& dims) {
  NodeId x = c.input(dims, 0.3, 2, true);
  if (op == Op::ReduceProd || op == Op::ScanProd) // zeros are the hard case of products
    for (double& value : c.inputs[0])
      if (c.rng.chance(0.3))
        value = 0;
  if (info_of(op).cls == OpClass::Scan) {
    for (std::size_t axis = 0; axis < dims.size(); ++axis)
      c.output(op == Op::ScanLinear
                   ? c.graph.linear_scan(x, c.input(dims, 0.3, 2, true), std::int64_t(axis))
                   : c.graph.scan(op, x, std::int64_t(axis)));
    return;
  }
  for (const Dims& axes : subsets_of_axes(dims.size()))
    c.output(c.graph.reduce(op, x, axes));
}

void add_indexed(Case& c, Op op, const Dims& dims) {
  NodeId data = c.input(dims, 0.3, 2, true);
  for (std::size_t axis = 0; axis < dims.size(); ++axis)
    for (const Dims& index_dims : {Dims{}, Dims{3}, Dims{2, 2}, Dims{0}}) {
      NodeId index = c.integers(DType::I32, index_dims, -1, dims[axis]);
      if (op == Op::Gather) {
        c.output(c.graph.gather(data, index, std::int64_t(axis)));
        continue;
      }
      Dims updates(dims.begin(), dims.begin() + std::ptrdiff_t(axis));
      updates.insert(updates.end(), index_dims.begin(), index_dims.end());
      updates.insert(updates.end(), dims.begin() + std::ptrdiff_t(axis) + 1, dims.end());
      c.output(
          c.graph.scatter(op, data, index, c.input(updates, 0.3, 2, true), std::int64_t(axis)));
    }
}

void add_movement(Case& c, Op op, const Dims& dims) {
  Graph& g = c.graph;
  const Shape shape = shape_of(dims);
  NodeId x = c.input(dims, 0.3, 2, true);
  std::vector<Expr> ones(dims.size(), 1), twos(dims.size(), 2), zeros(dims.size(), 0);
  switch (op) {
  case Op::Reshape:
    c.output(g.reshape(x, {count_of(dims)}));
    c.output(g.reshape(g.binary(Op::Mul, x, x), {1, count_of(dims), 1}));
    break;
  case Op::Permute: {
    Dims order;
    for (std::size_t i = dims.size(); i-- > 0;)
      order.push_back(std::int64_t(i));
    c.output(g.permute(g.binary(Op::Mul, x, x), order));
    break;
  }
  case Op::Expand:
    for (std::size_t at = 0; at <= dims.size(); ++at) {
      Shape wide = shape, one = shape;
      wide.insert(wide.begin() + std::ptrdiff_t(at), 3);
      one.insert(one.begin() + std::ptrdiff_t(at), 1);
      c.output(g.expand(g.reshape(g.binary(Op::Mul, x, x), one), wide));
      wide[at] = 0;
      c.output(g.expand(g.reshape(x, one), wide));
    }
    break;
  case Op::Pad:
    c.output(g.pad(x, ones, twos, Scalar::of(DType::F64, 5.0)));
    break;
  case Op::Shrink: {
    std::vector<Expr> end = shape;
    for (std::size_t i = 0; i < dims.size(); ++i)
      end[i] = std::max<std::int64_t>(dims[i] - 1, 0);
    c.output(g.shrink(x, zeros, end));
    for (std::size_t i = 0; i < dims.size(); ++i)
      zeros[i] = std::min<std::int64_t>(dims[i], 1);
    c.output(g.shrink(x, zeros, shape));
    break;
  }
  default:
    for (const Dims& axes : subsets_of_axes(dims.size()))
      c.output(g.flip(x, axes));
  }
}

Case case_of(Op op, const Dims& dims, std::uint64_t seed) {
  Case c;
  c.rng = Rng(seed);
  switch (info_of(op).cls) {
  case OpClass::Convert: {
    NodeId x = c.input(dims, 0.3, 2, true);
    ir::Attrs attrs;
    attrs.dtype = DType::F64;
    c.output(c.graph.add(op, {&x, 1}, attrs));
    break;
  }
  case OpClass::Unary:
    add_unary(c, op, dims);
    break;
  case OpClass::Binary:
    add_binary(c, op, dims);
    break;
  case OpClass::Ternary: {
    NodeId condition = c.integers(DType::Bool, dims, 0, 1);
    NodeId a = c.input(dims, 0.3, 2, true);
    c.output(c.graph.select(condition, a, c.input(dims, 0.3, 2, true)));
    break;
  }
  case OpClass::Reduce:
  case OpClass::Scan:
    add_reduction(c, op, dims);
    break;
  case OpClass::Gather:
  case OpClass::Scatter:
    add_indexed(c, op, dims);
    break;
  case OpClass::Movement:
    add_movement(c, op, dims);
    break;
  case OpClass::Sort:
  case OpClass::Source:
  case OpClass::Marker:
    break;
  }
  return c;
}

/// The graph of the first derivatives; the seeds are its last inputs.
void differentiate(Case& c) {
  Graph& g = c.graph;
  std::vector<NodeId> seeds, wrt;
  for (NodeId input : g.inputs())
    if (g[input].dtype == DType::F64)
      wrt.push_back(input);
  for (NodeId output : g.outputs) {
    Dims dims;
    for (const Expr& dim : Shape(g[output].shape))
      dims.push_back(dim.value());
    seeds.push_back(c.input(dims, 0.3, 2, true));
  }
  g.outputs = gradients(g, g.outputs, seeds, wrt);
  verify(g);
}

class OpGradient : public ::testing::TestWithParam<Op> {};

TEST_P(OpGradient, AgreesWithDifferences) {
  int checked = 0;
  for (std::size_t s = 0; s < kShapes.size(); ++s) {
    Case c = case_of(GetParam(), kShapes[s], 100 + s);
    if (c.graph.outputs.empty())
      continue; // no axis to take
    ++checked;
    const GradCheck first = gradcheck(c.graph, c.inputs, testing::by_reference());
    EXPECT_TRUE(first) << "shape " << backend::reference::to_string(kShapes[s]) << ": "
                       << first.first << "\n"
                       << print(c.graph);
    const bool many_inputs = info_of(GetParam()).cls == OpClass::Scatter;
    if (count_of(kShapes[s]) > (many_inputs ? 3 : 8))
      continue; // second derivatives are quadratic work
    differentiate(c);
    const GradCheck second =
        gradcheck(c.graph, c.inputs, testing::by_reference(), {}, {.step = 1e-5});
    EXPECT_TRUE(second) << "second derivative, shape " << backend::reference::to_string(kShapes[s])
                        << ": " << second.first << "\n"
                        << print(c.graph);
  }
  EXPECT_GE(checked, 20);
}

std::vector<Op> differentiable_ops() {
  std::vector<Op> ops;
  for (int i = 0; i < kOps; ++i) {
    const OpInfo& row = info_of(static_cast<Op>(i));
    if (row.differentiable && row.op != Op::StopGradient) // zero by decree
      ops.push_back(row.op);
  }
  return ops;
}

INSTANTIATE_TEST_SUITE_P(Table, OpGradient, ::testing::ValuesIn(differentiable_ops()),
                         [](const auto& op) { return std::string(info_of(op.param).name); });

// --- gradcheck itself

TEST(Gradcheck, NamesTheWorstElementOfAWrongGradient) {
  Graph g;
  NodeId x = g.input("x", DType::F64, {3});
  NodeId wrong =
      g.binary(Op::Mul, x, g.unary(Op::StopGradient, x)); // half of the gradient is missing
  g.outputs = {wrong};
  const GradCheck check = gradcheck(g, {{0, 1, 5}}, testing::by_reference());
  EXPECT_FALSE(check.ok);
  EXPECT_GT(check.max_error, 1000);
  EXPECT_EQ(check.first.substr(0, 28), "input 0 element 1: analytic ");
  EXPECT_EQ(check.worst.substr(0, 17), "input 0 element 2") << check.worst;
}

// A rule that is wrong by one part in a thousand, in one element, is caught for every op.
TEST_P(OpGradient, IsCaughtWhenItIsWrong) {
  Case c = case_of(GetParam(), {2, 3}, 5);
  ASSERT_FALSE(c.graph.outputs.empty());
  const auto reference = testing::by_reference();
  bool caught_any = false;
  for (std::size_t element = 0; element < 6 && !caught_any; ++element) {
    const EvaluateGraph planted = [&](const Graph& graph, const Arrays& inputs) {
      Arrays values = reference(graph, inputs);
      if (inputs.size() > c.inputs.size()) // the gradients
        values[0][element] *= 1.001;
      return values;
    };
    // An element whose gradient is 0 shows nothing.
    caught_any = !gradcheck(c.graph, c.inputs, planted);
  }
  EXPECT_TRUE(caught_any);
}

TEST(Gradcheck, TakesANaNForWrong) {
  Graph g;
  NodeId x = g.input("x", DType::F64, {1});
  g.outputs = {g.unary(Op::Sqrt, x)};
  EXPECT_FALSE(gradcheck(g, {{-1}}, testing::by_reference()));
}

TEST(Gradcheck, LeavesOtherInputsAlone) {
  Graph g;
  NodeId x = g.input("x", DType::F64, {2}), y = g.input("y", DType::F64, {2}),
         i = g.input("i", DType::I32, {2});
  g.outputs = {g.binary(Op::Mul, g.gather(x, i, 0), g.unary(Op::StopGradient, y))};
  EXPECT_TRUE(gradcheck(g, {{1, 2}, {3, 4}, {1, 0}}, testing::by_reference(), {0}));
  EXPECT_FALSE(gradcheck(g, {{1, 2}, {3, 4}, {1, 0}}, testing::by_reference(), {1}));
}

} // namespace
} // namespace egret

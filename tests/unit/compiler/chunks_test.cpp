// Large products made chunk by chunk: the same values, less memory, and what is not cut.
#include "backend/cpu/cpu_device.h"
#include "backend/reference/reference.h"
#include "compiler/chunks.h"
#include "compiler/compile.h"
#include "compiler/recompute.h"
#include "support/null_device.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/region_runner.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace egret::compiler {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;

/// Cross-entropy of logits h W^T and its gradients, written out.
class Loss {
public:
  Loss(std::int64_t rows, std::int64_t width, std::int64_t classes, DType type)
      : box_{rows, classes}, h_(g.input("h", type, {rows, width})),
        w_(g.input("w", type, {classes, width})),
        targets_(g.input("t", DType::I64, {rows})), full_{rows, classes, width},
        h32_(along(g.cast(h_, DType::F32), 1)), w32_(along(g.cast(w_, DType::F32), 0)) {}

  /// The loss by row, then the gradients of h and w.
  Graph gradients(bool keep_logits = false) {
    product = g.reduce(Op::ReduceSum, g.binary(Op::Mul, h32_, w32_), {2});
    const NodeId logits = rounded(product);
    const NodeId top = by_row(g.reduce(Op::ReduceMax, logits, {1}));
    const NodeId low = g.binary(Op::Add, logits, times(top, -1));
    const NodeId e = g.unary(Op::Exp, low), sum = g.reduce(Op::ReduceSum, e, {1});
    const NodeId places = g.broadcast(g.iota(box_[1]), box_);
    const NodeId hit = g.binary(Op::Eq, by_row(targets_), places);
    const NodeId zero = g.broadcast(g.constant(DType::F32, 0), box_);
    const NodeId picked = g.reduce(Op::ReduceSum, g.select(hit, low, zero), {1});
    const NodeId loss = g.binary(Op::Add, g.unary(Op::Log, sum), times(picked, -1));
    const NodeId p = g.binary(Op::Div, e, by_row(sum));
    const NodeId d = rounded(g.binary(Op::Add, p, times(g.cast(hit, DType::F32), -1)));
    const NodeId d3 = g.expand(g.reshape(d, {box_[0], box_[1], 1}), full_);
    const DType type = g[h_].dtype;
    g.outputs = {loss, g.cast(g.reduce(Op::ReduceSum, g.binary(Op::Mul, d3, w32_), {1}), type),
                 g.cast(g.reduce(Op::ReduceSum, g.binary(Op::Mul, d3, h32_), {0}), type)};
    if (keep_logits)
      g.outputs.push_back(product);
    return g;
  }

  Graph g;
  NodeId product = ir::kNoNode;

private:
  NodeId by_row(NodeId a) { return g.expand(g.reshape(a, {box_[0], 1}), box_); }
  NodeId rounded(NodeId a) { return g.cast(g.cast(a, g[h_].dtype), DType::F32); }
  NodeId times(NodeId a, double x) {
    return g.binary(Op::Mul, a, g.broadcast(g.constant(DType::F32, x), g[a].shape));
  }
  NodeId along(NodeId a, std::size_t dim) {
    Shape shape = g[a].shape;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(dim), Expr(1));
    return g.expand(g.reshape(a, shape), full_);
  }

  Shape box_;
  NodeId h_, w_, targets_;
  Shape full_;
  NodeId h32_, w32_;
};

std::vector<HostArray> inputs_of(const Graph& graph, std::int64_t classes) {
  std::vector<HostArray> inputs = testing::random_inputs(graph, 3, {.special = false, .range = 1});
  std::vector<double> targets(static_cast<std::size_t>(inputs[2].size()));
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = static_cast<double>((i * 37) % static_cast<std::size_t>(classes));
  inputs[2] = HostArray(DType::I64, {inputs[2].size()}, targets);
  return inputs;
}

void expect_equal(const std::vector<HostArray>& actual,
                  const std::vector<backend::reference::Expected>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t o = 0; o < actual.size(); ++o) {
    const auto result = backend::reference::compare(actual[o], expected[o], "output");
    EXPECT_TRUE(result.ok) << o << ": " << result.message;
  }
}

TEST(Chunks, GiveTheSameValuesAlongEitherAxis) {
  for (const DType type : {DType::F32, DType::BF16}) {
    Loss loss(10, 6, 23, type);
    const Graph graph = loss.gradients();
    const auto inputs = inputs_of(graph, 23);
    const auto expected = backend::reference::expect(graph, inputs);
    int made = 0;
    for (const ProductSplit& cut : possible_splits(graph, 0)) {
      const std::optional<Graph> after = split_into_chunks(graph, cut);
      if (!after)
        continue;
      ++made;
      SCOPED_TRACE(ir::print(*after));
      ir::verify(*after);
      expect_equal(backend::reference::execute(*after, inputs), expected);
    }
    EXPECT_GE(made, 8); // 2 and 4 chunks along two axes, with all sums and without
  }
}

TEST(Chunks, HoldNoValueOfTheProductsSize) {
  Loss loss(12, 4, 64, DType::F32);
  const Graph graph = loss.gradients();
  for (const std::size_t dim : {0, 1}) {
    const std::optional<Graph> after = split_into_chunks(graph, {loss.product, dim, 4, true});
    ASSERT_TRUE(after);
    for (NodeId id = 0; id < after->size(); ++id) {
      const bool whole = (*after)[id].shape == Shape{12, 64};
      EXPECT_FALSE(whole && info_of((*after)[id].op).cls == OpClass::Reduce) << dim << "\n"
                                                                             << ir::print(*after);
    }
  }
}

TEST(Chunks, AreNotMadeOfWhatIsNeededAsAWhole) {
  Loss loss(10, 6, 23, DType::F32);
  const Graph graph = loss.gradients(true); // the logits are an output
  for (const std::size_t dim : {0, 1})
    EXPECT_FALSE(split_into_chunks(graph, {loss.product, dim, 2, true})) << dim;
}

TEST(Chunks, AreNotMadeWhereNothingLargerIsReduced) {
  Graph g;
  const NodeId a = g.input("a", DType::F32, {16, 8}), b = g.input("b", DType::F32, {32, 8});
  const Shape full{16, 32, 8};
  const NodeId product = g.reduce(Op::ReduceSum,
                                  g.binary(Op::Mul, g.expand(g.reshape(a, {16, 1, 8}), full),
                                           g.expand(g.reshape(b, {1, 32, 8}), full)),
                                  {2});
  g.outputs = {g.reduce(Op::ReduceMax, product, {1})};
  EXPECT_FALSE(split_into_chunks(g, {product, 1, 4, false}));
}

class ChunksUnderALimit : public ::testing::Test {
protected:
  Compiled compiled(const Graph& graph, std::optional<std::int64_t> limit, bool may) {
    Options options;
    options.memory_limit = limit;
    if (may)
      options.allow = RuleTags{RuleTag::Reassociates};
    return compile_graph(graph, options, *device_, cache_);
  }
  /// The least limit that can be met.
  std::int64_t least(const Graph& graph, bool may) {
    try {
      compiled(graph, 1, may);
    } catch (const LimitError& error) {
      return error.least();
    }
    return 0;
  }

  std::unique_ptr<backend::Device> device_ = backend::cpu::make_cpu_device(2);
  KernelCache cache_;
};

TEST_F(ChunksUnderALimit, HoldLessThanTheLogits) {
  constexpr std::int64_t kRows = 128, kClasses = 1024;
  Loss loss(kRows, 8, kClasses, DType::F32);
  const Graph graph = loss.gradients();
  const std::int64_t logits = 4 * kRows * kClasses;
  EXPECT_GE(least(graph, false), logits); // by order and recomputation alone
  const std::int64_t limit = least(graph, true);
  EXPECT_LE(limit, logits / 3);
  const Compiled chunked = compiled(graph, limit, true);
  EXPECT_LE(chunked.report.arena_bytes, limit);
  ASSERT_TRUE(chunked.report.memory);
  EXPECT_NE(chunked.report.memory->chunks.find("f32[128,1024]"), std::string::npos)
      << chunked.report.memory->chunks;
  EXPECT_GE(chunked.report.memory->before, logits);
  EXPECT_NE(chunked.report.text().find("chunks along axis"), std::string::npos);
  std::vector<HostArray> inputs = inputs_of(graph, kClasses);
  const auto expected = backend::reference::expect(graph, inputs);
  expect_equal(testing::run_plan(chunked, graph, inputs, device_.get()), expected);
}

TEST_F(ChunksUnderALimit, AreNotMadeUnlessSumsMayBeMadeInParts) {
  Loss loss(64, 16, 512, DType::F32);
  const Graph graph = loss.gradients();
  const std::int64_t with = least(graph, true), without = least(graph, false);
  ASSERT_LT(with, without);
  try {
    compiled(graph, with, false);
    ADD_FAILURE() << "not refused";
  } catch (const LimitError& error) {
    EXPECT_EQ(error.least(), without);
    EXPECT_NE(std::string(error.what()).find("(reassociates)"), std::string::npos);
  }
  // Where the limit can be met without them, nothing is cut.
  EXPECT_EQ(compiled(graph, without, true).report.memory->chunks, "");
}

// The loss's sums come from a kernel that stores no logits (gpu_row_products); a chunk of them is
// made for the gradients.
TEST(ChunksOfAGpu, TakeNoMemoryForTheLogitsOfALargeVocabulary) {
  constexpr std::int64_t kRows = 8192, kWidth = 4096, kClasses = 128256;
  Loss loss(kRows, kWidth, kClasses, DType::BF16);
  const Graph graph = loss.gradients();
  kernel::Target target = testing::test_gpu();
  testing::set_architecture(target, 90);
  target.workers = 132;
  target.block_shared_bytes = target.shared_bytes = 227 << 10;
  target.threads = 2048;
  target.l2_bytes = target.l3_bytes = 50 << 20;
  testing::NullDevice device(target);
  KernelCache cache;
  const std::int64_t logits = 2 * kRows * kClasses, weight = 2 * kClasses * kWidth;
  EXPECT_GE(compile_graph(graph, {}, device, cache).report.arena_bytes, logits);
  Options options;
  options.allow = RuleTags{RuleTag::Reassociates};
  options.memory_limit = weight + logits / 4;
  const Compiled chunked = compile_graph(graph, options, device, cache);
  EXPECT_LE(chunked.report.arena_bytes, *options.memory_limit);
  EXPECT_NE(chunked.report.memory->chunks, "");
  const std::string report = chunked.report.text();
  EXPECT_NE(report.find("gpu_row_products"), std::string::npos) << report;
}

} // namespace
} // namespace egret::compiler

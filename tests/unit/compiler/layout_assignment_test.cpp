// Values in other layouts: what a search thinks of, where it does not, and that nothing changes but
// their places.
#include "compiler/layout_assignment.h"

#include "backend/cpu/cpu_device.h"
#include "compiler/pipeline.h"
#include "compiler/search/layout_moves.h"
#include "kernel/contraction_layouts.h"
#include "support/contraction_regions.h"
#include "support/convolution_graphs.h"
#include "support/fusion_plans.h"
#include "support/graph_runner.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/region_forms.h"
#include "support/region_runner.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret::compiler {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;
using testing::einsum;
using testing::Einsum;
using testing::sizes;

/// tanh(a) [m, k] times b [n, k], and its cosine.
Graph turned_product(std::int64_t m = 12, std::int64_t n = 40, std::int64_t k = 36,
                     bool computed = false, DType dtype = DType::F32) {
  Graph g;
  const Einsum e = sizes("mk", "nk", "mn", m, n, k);
  const NodeId a = g.input("a", dtype, e.shape_of("mk")), b = g.input("b", dtype, e.shape_of("nk"));
  const NodeId right = computed ? g.unary(Op::Tanh, g.unary(Op::Exp, b)) : b;
  g.outputs = {g.unary(Op::Cos, einsum(g, g.unary(Op::Tanh, a), right, e))};
  return g;
}

struct FoundLayouts {
  explicit FoundLayouts(const Graph& graph, LayoutContext context = {},
                        kernel::Target target_ = testing::test_targets()[0], double least = 0)
      : normal(normal_form(graph)), form(*normal), target(std::move(target_)),
        greedy(partition_for(form, {}, target)),
        moves(layout_moves_of(form.facts(), greedy, target, context, least)) {}

  const Move* of(std::string_view what) const {
    const auto it = std::ranges::find_if(
        moves, [&](const Move& m) { return m.what.find(what) != std::string::npos; });
    return it == moves.end() ? nullptr : &*it;
  }
  std::string all() const {
    std::string text;
    for (const Move& move : moves)
      text += move.what + "\n";
    return text;
  }

  std::shared_ptr<const CandidateGraph> normal;
  const CandidateGraph& form;
  kernel::Target target;
  Partitioned greedy;
  std::vector<Move> moves;
};

/// The same results in all bits by the reference; gives the graph with its copies.
LayoutAssignment expect_same(const Graph& graph, const CandidateGraph& form,
                             std::span<const LayoutChange> changes) {
  LayoutAssignment assigned = with_layouts(form.facts(), changes);
  ir::verify(assigned.graph);
  for (const bool special : {false, true}) {
    const auto inputs = testing::inputs_of(graph, 5, special);
    std::vector<HostArray> all = inputs, from;
    for (const std::size_t source : assigned.sources)
      from.push_back(inputs[source]);
    if (!assigned.fill.outputs.empty())
      for (HostArray& array : backend::reference::execute(assigned.fill, from))
        all.push_back(std::move(array));
    const auto before = backend::reference::execute(form.graph(), inputs),
               after = backend::reference::execute(assigned.graph, all);
    EXPECT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(testing::difference(before[i], after[i]), "") << i;
  }
  return assigned;
}

const std::vector<bool> kSecond{false, true};

TEST(LayoutChange, AParameterIsKeptInPanels) {
  const Graph g = turned_product();
  const FoundLayouts found(g, {kSecond, {}});
  const Move* move = found.of("b[40,36] kept in panels of");
  ASSERT_TRUE(move) << found.all();
  const LayoutAssignment assigned = expect_same(g, found.form, move->choices.layout_changes);
  ASSERT_EQ(assigned.report.size(), 1u);
  EXPECT_EQ(assigned.report[0].sources, std::vector<std::string>{"b"});
  EXPECT_EQ(assigned.sources, std::vector<std::size_t>{1});
  EXPECT_TRUE(assigned.copies.empty());
  EXPECT_GE(assigned.kept_bytes, 40 * 36 * 4);
  EXPECT_EQ(assigned.graph.inputs().size(), 3u);
  // Its kernel reads the panels where they are.
  const CandidateGraph laid(assigned.graph);
  const auto parts = partition_for(laid, {}, found.target);
  ASSERT_EQ(parts.regions.size(), found.greedy.regions.size());
  for (const kernel::Buffer& buffer :
       kernel::lower_greedily(parts.regions.back().region, found.target).program.buffers)
    EXPECT_NE(buffer.name, "right");
}

TEST(LayoutChange, PairsOfBf16AreKeptSideBySide) {
  const Graph g = turned_product(12, 40, 36, false, DType::BF16);
  kernel::Target target = testing::test_targets()[0];
  const FoundLayouts none(g, {kSecond, {}}, target);
  testing::set_units(target, true);
  const FoundLayouts found(g, {kSecond, {}}, target);
  const Move* move = found.of("pairs");
  EXPECT_FALSE(none.of("pairs"));
  ASSERT_TRUE(move) << found.all();
  expect_same(g, found.form, move->choices.layout_changes);
}

TEST(LayoutChange, OtherValuesAreConvertedInEachRun) {
  const Graph g = turned_product();
  const FoundLayouts found(g);
  EXPECT_FALSE(found.of("kept"));
  const Move* move = found.of("b[40,36] put into transposed");
  ASSERT_TRUE(move) << found.all();
  const LayoutAssignment assigned = expect_same(g, found.form, move->choices.layout_changes);
  EXPECT_EQ(assigned.copies.size(), 1u);
  EXPECT_TRUE(assigned.report.empty());
  PartitionChoices choices = choices_in_layouts(move->choices, assigned);
  choices.batches = false; // it would share a launch with tanh(a)
  const CandidateGraph laid(assigned.graph);
  EXPECT_EQ(with_launches(laid, {.fuse = true}, found.target, choices).regions.size(),
            found.greedy.regions.size() + 1);
}

TEST(LayoutChange, WhoMakesAValueStoresItInAnotherOrder) {
  Graph g = turned_product(12, 40, 36, true);
  const FoundLayouts found(g);
  // The product would compute its right side anew: it is stored in either case.
  const Move* move = found.of("stored as [1,0]");
  ASSERT_TRUE(move) << found.all();
  const LayoutAssignment assigned = expect_same(g, found.form, move->choices.layout_changes);
  ASSERT_EQ(assigned.copies.size(), 1u);
  PartitionChoices choices = choices_in_layouts(move->choices, assigned);
  choices.batches = false; // both maps would share a launch
  const CandidateGraph laid(assigned.graph);
  const auto parts = with_launches(laid, {.fuse = true}, found.target, choices);
  EXPECT_EQ(parts.regions.size(), found.greedy.regions.size()) << "no kernel of its own";
}

/// Sums over windows that no axis of is innermost on both sides.
int unaligned_windows(const std::vector<BuiltRegion>& regions) {
  return static_cast<int>(std::ranges::count_if(regions, [](const BuiltRegion& built) {
    const auto found = kernel::find_contraction(built.region);
    return found.ok && kernel::axis_to_copy_along(built.region, found.form) >= 0;
  }));
}

TEST(LayoutChange, WindowsOf16BitsArePutAlongTheDepthWhereThatPays) {
  testing::Convolution c{.batch = 8,
                         .channels = 8,
                         .outputs = 16,
                         .sizes = {5, 5},
                         .kernel = {3, 3},
                         .stride = {1, 1},
                         .padding = {1, 1},
                         .dilation = {1, 1}};
  kernel::Target target = testing::test_gpu();
  target.workers = 1;
  for (kernel::MatrixUnit& unit : target.units)
    unit.cycles *= 20; // so slow that even this takes longer than the copies
  const auto expected = [&](const Graph& g) {
    std::vector<LayoutChange> changes;
    for (const Move& move : FoundLayouts(g, {}, target).moves)
      if (move.expected)
        changes.insert(changes.end(), move.choices.layout_changes.begin(),
                       move.choices.layout_changes.end());
    return changes;
  };
  // With the gradients: they read data, weight and seed, too, and have them as they are. That by
  // the data is a sum over windows as well.
  for (const bool gradients : {false, true}) {
    const Graph g = testing::convolution_graph(c, gradients);
    const FoundLayouts found(g, {}, target);
    const int before = unaligned_windows(found.greedy.regions);
    EXPECT_EQ(before, gradients ? 3 : 1);
    const auto changes = expected(g);
    ASSERT_EQ(changes.size(), 2u) << found.all();
    const LayoutAssignment assigned = expect_same(g, found.form, changes);
    const CandidateGraph laid(assigned.graph);
    const PartitionChoices choices = choices_in_layouts({.layout_changes = changes}, assigned);
    EXPECT_LT(unaligned_windows(partition_for(laid, {}, target, choices).regions), before);
  }
  // A product whose sides are rows, along the depth or not, of sizes that fit pieces or do not.
  for (const char* right : {"nk", "kn"})
    for (const char* left : {"mk", "km"})
      for (const std::int64_t n : {64, 63}) {
        Graph product;
        const Einsum e = sizes(left, right, "mn", 64, n, 64);
        product.outputs = {einsum(product, product.input("a", DType::BF16, e.shape_of(left)),
                                  product.input("b", DType::BF16, e.shape_of(right)), e)};
        const bool unaligned = n == 63 && right == std::string_view("kn");
        EXPECT_EQ(expected(product).size(), unaligned ? 1u : 0u)
            << left << " " << right << " " << n;
      }
  // Little work, another type, too few channels, no matrix units.
  c.channels = c.outputs = 8;
  c.batch = 1;
  EXPECT_TRUE(expected(testing::convolution_graph(c, false)).empty());
  c.batch = 64;
  c.channels = 3;
  EXPECT_TRUE(expected(testing::convolution_graph(c, false)).empty());
  c.channels = 16;
  EXPECT_FALSE(expected(testing::convolution_graph(c, false)).empty());
  c.dtype = DType::F32;
  EXPECT_TRUE(expected(testing::convolution_graph(c, false)).empty());
  c.dtype = DType::BF16;
  target.units.clear();
  EXPECT_TRUE(expected(testing::convolution_graph(c, false)).empty());
}

TEST(LayoutChange, RowsOf16BitsGetRoomForWholeVectorsWhereThatPays) {
  kernel::Target target = testing::test_gpu();
  const auto expected = [&](std::int64_t m, std::int64_t n, std::int64_t k, DType dtype) {
    Graph g;
    const Einsum e = sizes("mk", "kn", "mn", m, n, k);
    g.outputs = {
        einsum(g, g.input("a", dtype, e.shape_of("mk")), g.input("b", dtype, e.shape_of("kn")), e)};
    std::string text;
    for (const Move& move : FoundLayouts(g, {}, target).moves)
      if (move.expected)
        for (const LayoutChange& change : move.choices.layout_changes)
          text += to_string(change.layout) + " ";
    return text;
  };
  EXPECT_EQ(expected(4095, 4095, 4095, DType::BF16), "[n0,n1:4096] [n0,n1:4096] ");
  EXPECT_EQ(expected(4095, 4095, 4096, DType::F16), "[n0,n1:4096] ");
  EXPECT_EQ(expected(4095, 4096, 4096, DType::BF16), "");
  EXPECT_EQ(expected(63, 63, 63, DType::BF16), "") << "copies would take longer";
  EXPECT_EQ(expected(4095, 4095, 4095, DType::F32), "") << "they are copied by 4 bytes";
  // The same values, from inputs and from what the program computes.
  target.workers = 1;
  for (kernel::MatrixUnit& unit : target.units)
    unit.cycles *= 1000;
  for (const bool computed : {false, true}) {
    const Graph g = turned_product(20, 23, 31, computed, DType::BF16);
    const FoundLayouts found(g, {}, target);
    std::vector<LayoutChange> changes;
    for (const Move& move : found.moves)
      if (move.expected)
        changes.insert(changes.end(), move.choices.layout_changes.begin(),
                       move.choices.layout_changes.end());
    EXPECT_EQ(changes.size(), 2u) << found.all();
    expect_same(g, found.form, changes);
  }
}

TEST(LayoutChange, WhatMustStayIsLeftAlone) {
  const Graph g = turned_product();
  EXPECT_TRUE(FoundLayouts(g, {kSecond, {false, true}}).moves.empty()) << "a state in place";
  EXPECT_TRUE(FoundLayouts(g, {kSecond, {}}, testing::test_targets()[0], 1e6).moves.empty())
      << "small";
  Graph symbolic;
  const Einsum e = sizes("mk", "nk", "mn", 12, Expr::symbol("N", 1, 64), 36);
  symbolic.outputs = {einsum(symbolic, symbolic.input("a", DType::F32, e.shape_of("mk")),
                             symbolic.input("b", DType::F32, e.shape_of("nk")), e)};
  EXPECT_TRUE(FoundLayouts(symbolic, {kSecond, {}}).moves.empty());
  // An output is stored in its own order, and may be converted.
  Graph output = turned_product(12, 40, 36, true);
  const FoundLayouts before(output);
  const Move* stored = before.of("stored as [1,0]");
  ASSERT_TRUE(stored);
  Graph given = before.form.graph();
  given.outputs.push_back(stored->choices.layout_changes[0].value);
  const FoundLayouts after(given);
  EXPECT_FALSE(after.of("stored as")) << after.all();
  EXPECT_TRUE(after.of("put into")) << after.all();
}

TEST(LayoutChange, WhatAScatterUpdatesStays) {
  Graph g;
  const Einsum e = sizes("mk", "nk", "mn", 12, 40, 36);
  const NodeId b = g.input("b", DType::F32, e.shape_of("nk"));
  const NodeId rows = g.input("rows", DType::I64, {Expr(3)});
  const NodeId filled = g.scatter(Op::ScatterSet, g.unary(Op::Exp, b), rows,
                                  g.input("new", DType::F32, {Expr(3), Expr(36)}), 0);
  g.outputs = {einsum(g, g.input("a", DType::F32, e.shape_of("mk")), filled, e)};
  const FoundLayouts found(g);
  EXPECT_FALSE(found.of("stored as")) << found.all();
  for (const Move& move : found.moves)
    for (const LayoutChange& change : move.choices.layout_changes)
      for (const Use& use : change.readers)
        EXPECT_FALSE(info_of(found.form.graph()[use.reader].op).cls == OpClass::Scatter &&
                     use.operand == 0)
            << move.what;
}

TEST(LayoutChange, LayersChangeTogether) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {Expr(12), Expr(36)});
  const Einsum e = sizes("mk", "nk", "mn", 12, 36, 36);
  for (int layer = 0; layer < 4; ++layer)
    x = g.unary(
        Op::Tanh,
        einsum(g, x, g.input("w" + std::to_string(layer), DType::F32, e.shape_of("nk")), e));
  g.outputs = {x};
  const FoundLayouts found(g, {{false, true, true, true, true}, {}});
  std::size_t most = 0;
  for (const Move& move : found.moves)
    most = std::max(most, move.choices.layout_changes.size());
  EXPECT_GE(most, 3u); // the first reads an input, whose memory is aligned otherwise
}

TEST(LayoutChange, ConcatenationsArePutIntoPanelsAtOnce) {
  Graph g;
  const Einsum e = sizes("mk", "nk", "mn", 12, 40, 36);
  const NodeId x = g.input("x", DType::F32, e.shape_of("mk"));
  std::vector<NodeId> parts;
  for (const char* name : {"p", "q"})
    parts.push_back(einsum(g, x, g.input(name, DType::F32, e.shape_of("nk")), e));
  g.outputs = {g.binary(Op::Mul, parts[0], g.unary(Op::Tanh, parts[1]))};
  const auto first = fold_parameters(g, {false, true, true}, testing::test_targets()[0]);
  ASSERT_TRUE(first);
  const FoundLayouts found(first->main, {{false, true, true, true}, {}});
  const Move* move = found.of("derived0");
  ASSERT_TRUE(move) << found.all();
  const LayoutAssignment assigned = with_layouts(found.form.facts(), move->choices.layout_changes);
  const ParameterFolding both = compose(3, &*first, &assigned, assigned.graph);
  EXPECT_EQ(both.sources, (std::vector<std::size_t>{1, 2}));
  ASSERT_EQ(both.report.size(), 2u);
  EXPECT_TRUE(both.report[0].what.empty()) << "the concatenation itself is not kept";
  EXPECT_EQ(both.report[0].bytes, 0);
  EXPECT_EQ(both.report[1].sources, (std::vector<std::string>{"p", "q"}));
  const auto inputs = testing::inputs_of(g, 5, false);
  std::vector<HostArray> all = inputs;
  for (HostArray& array : backend::reference::execute(both.fill, std::vector{inputs[1], inputs[2]}))
    all.push_back(std::move(array));
  ASSERT_EQ(all.size(), both.main.inputs().size());
  all[3] = HostArray(DType::F32, {1, 80, 36}, std::vector<double>(80 * 36, 7)); // of any numbers
  EXPECT_EQ(testing::difference(backend::reference::execute(g, inputs)[0],
                                backend::reference::execute(both.main, all)[0]),
            "");
}

/// Compiled with and without a change, from small whole numbers, whose sums are exact.
TEST(LayoutChange, PlansGiveTheSameBits) {
  const auto device = backend::cpu::make_cpu_device(2);
  for (const bool computed : {false, true}) {
    const Graph g = turned_product(12, 40, 36, computed);
    const FoundLayouts found(g, {}, device->target());
    ASSERT_FALSE(found.moves.empty());
    std::vector<HostArray> inputs = testing::inputs_of(g, 5, false);
    for (HostArray& array : inputs)
      for (std::int64_t i = 0; i < array.size(); ++i)
        array.set(i, {.f = static_cast<double>(i % 7 - 3)});
    KernelCache cache;
    const Options options;
    const auto run = [&](const CandidateGraph& form, const PartitionChoices& choices) {
      const Compiled compiled =
          testing::compile_fusion_plan(form, choices, options, *device, cache);
      return testing::run_plan(compiled, form.graph(), inputs, device.get());
    };
    const auto before = run(found.form, {});
    for (const Move& move : found.moves) {
      const LayoutAssignment assigned =
          with_layouts(found.form.facts(), move.choices.layout_changes);
      const CandidateGraph laid(assigned.graph);
      const auto after = run(laid, choices_in_layouts(move.choices, assigned));
      EXPECT_EQ(testing::difference(before[0], after[0]), "") << move.what;
    }
  }
}

} // namespace
} // namespace egret::compiler

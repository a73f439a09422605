// Which generator takes which region, and what its programs are made of.
#include "kernel/families.h"
#include "kernel/generator.h"
#include "kernel/loops/tree.h"
#include "support/docs.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

using ir::Graph;
using ir::NodeId;

NodeId scalar(Graph& g, double v, Shape shape) {
  return g.broadcast(g.constant(DType::F32, v), shape);
}

NodeId softmax_node(Graph& g, NodeId x) {
  Shape s = g[x].shape, one = s;
  one.back() = 1;
  auto along = [&](NodeId r) { return g.expand(g.reshape(r, one), s); };
  NodeId m = along(g.reduce(Op::ReduceMax, x, {1}));
  NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, g.binary(Op::Mul, m, scalar(g, -1, s))));
  return g.binary(Op::Div, e, along(g.reduce(Op::ReduceSum, e, {1})));
}

/// The region of a graph that is one kernel, without inputs or values.
testing::RegionCase only_region_of(const Graph& g) {
  auto inputs = testing::random_inputs(g, 1, {.special = false});
  auto cases = testing::region_cases(g, inputs);
  EXPECT_EQ(cases.size(), 1u);
  return std::move(cases.at(0));
}

Target target() {
  return testing::test_targets()[0];
}

template <class Match>
int count_matching(const Block& block, Match match) {
  int n = 0;
  each_statement(block, [&](const Stmt& s) { n += int(match(s)); });
  return n;
}
int loads_of(const KernelProgram& p, int buffer) {
  return count_matching(p.body, [&](const Stmt& s) {
    const auto* load = made_by<inst::Load>(s);
    return load && load->from.buffer == buffer;
  });
}
int stores(const KernelProgram& p) {
  return count_matching(p.body, [](const Stmt& s) { return get_if<Store>(s) != nullptr; });
}
int applied(const KernelProgram& p, Op op) {
  return count_matching(p.body, [&](const Stmt& s) {
    const auto* apply = made_by<inst::Apply>(s);
    return apply && apply->op == op;
  });
}

TEST(Generators, GenericComesBehindAllThatMayBeChosenGreedily) {
  const auto all = generators(target());
  ASSERT_GE(all.size(), 2u);
  EXPECT_EQ(all[all.size() - 2]->name(), "generic");
  EXPECT_EQ(all.back()->name(), "loops"); // whose trees are proposed to searches
}

/// Of a region's workspaces and barriers by the generic template.
std::pair<int, int> generic_waits(const Region& region, const Target& target) {
  Schedule schedule;
  schedule.generator = generic_generator().name();
  const Lowered lowered = generic_generator().lower(region, schedule, target);
  EXPECT_TRUE(lowered.ok) << lowered.reason;
  const auto workspaces = std::ranges::count_if(
      lowered.program.buffers, [](const Buffer& b) { return b.space == Space::Workspace; });
  const int barriers = count_matching(lowered.program.body, [](const Stmt& s) {
    return get_if<Barrier>(s) != nullptr || get_if<Intrinsic>(s) != nullptr;
  });
  return {int(workspaces), barriers};
}

/// The vectors and threads of maps go along the axis that another stage reduces, too.
TEST(Generators, GenericNestsMeetOnlyWhereResultsAreWorthMemory) {
  Graph g;
  const Shape s{40, 4096};
  const NodeId x = g.input("x", DType::F32, s);
  const NodeId e = g.unary(Op::Exp, x);
  g.outputs = {e, g.binary(Op::Mul, e, x)};
  const Region outputs = only_region_of(g).region;
  Graph h;
  const NodeId y = h.input("y", DType::F32, s);
  h.outputs = {softmax_node(h, y)};
  const Region rows = only_region_of(h).region;
  for (const Target& t : {target(), testing::test_gpu()}) {
    EXPECT_EQ(generic_waits(outputs, t), (std::pair{0, 0})) << "the exponential is computed twice";
    EXPECT_EQ(generic_waits(rows, t), (std::pair{3, 3})) << "maxima, exponentials, sums";
  }
}

/// More nests than a tree may be deep.
TEST(Generators, HundredsOfOutputsAreOneKernel) {
  Graph g;
  const Shape s{37};
  g.outputs = {g.unary(Op::Exp, g.input("x", DType::F32, s))};
  testing::RegionCase c = only_region_of(g);
  for (int i = 1; i < loops::kMostDepth + 50; ++i) {
    c.region.stages.push_back(c.region.stages[0]);
    c.region.outputs.push_back(c.region.outputs[0]);
    c.region.outputs.back().stage = i;
    c.outputs.push_back(c.outputs[0]);
  }
  for (const Target& t : {target(), testing::test_gpu()}) {
    EXPECT_EQ(lower_greedily(c.region, t).schedule.generator, "elementwise");
    for (const Generator* generator : {&elementwise_generator(), &generic_generator()}) {
      const auto schedules = generator->space(c.region, t);
      ASSERT_FALSE(schedules.empty()) << generator->name();
      EXPECT_EQ(testing::check_schedule(c, *generator, schedules[0], t, {}, true), "");
    }
  }
}

TEST(Generators, MapReadsOnceAndWritesOnce) {
  Graph g;
  Shape s{4096};
  NodeId x = g.input("x", DType::F32, s);
  g.outputs = {
      g.unary(Op::Tanh, g.binary(Op::Add, g.binary(Op::Mul, x, scalar(g, 2, s)), scalar(g, 1, s)))};
  Chosen c = lower_greedily(only_region_of(g).region, target());
  EXPECT_EQ(c.schedule.generator, "elementwise");
  EXPECT_EQ(loads_of(c.program, 0), int(c.schedule.knob("vectors", 4)));
  EXPECT_EQ(stores(c.program), int(c.schedule.knob("vectors", 4)));
}

TEST(Generators, ContiguousAxesAreOneLoop) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {16, 32, 8});
  g.outputs = {g.unary(Op::Exp, x)};
  auto c = only_region_of(g);
  EXPECT_EQ(c.region.axes.size(), 1u);
  KernelProgram p = lower_greedily(c.region, target()).program;
  EXPECT_EQ(count_matching(p.body, [](const Stmt& s) { return get_if<For>(s) != nullptr; }), 2)
      << "the workers' loop and the vectors'";
}

TEST(Generators, TransposedReadsAreContiguousVectors) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {64, 64});
  g.outputs = {g.unary(Op::Exp, g.permute(x, {1, 0}))};
  Chosen c = lower_greedily(only_region_of(g).region, target());
  EXPECT_EQ(c.schedule.knob("transpose", 0), 1);
  int shuffles = count_matching(c.program.body,
                                [](const Stmt& s) { return made_by<inst::Shuffle>(s) != nullptr; });
  EXPECT_EQ(shuffles, 64) << "16 x log2(16)";
  EXPECT_EQ(loads_of(c.program, 0), 16);
}

/// Two values side by side, as the parts of complex numbers, are whole vectors in memory, but for
/// the last ones.
TEST(Generators, ShortInnermostAxesAreInterleavedInRegisters) {
  Graph g;
  const Shape both{1000, 2};
  const auto part = [&](const char* name) {
    return g.expand(g.reshape(g.input(name, DType::F32, {1000}), {1000, 1}), both);
  };
  const NodeId x = part("x"), y = part("y");
  const NodeId place = g.expand(g.reshape(g.iota(2), {1, 2}), both);
  const NodeId first =
      g.binary(Op::Lt, place, g.broadcast(g.constant(Scalar::of(DType::I64, 1.0)), both));
  g.outputs = {g.select(first, x, y)};
  const auto c = only_region_of(g);
  const auto chosen = lower_greedily(c.region, target());
  int whole = 0;
  each_statement(chosen.program.body, [&](const Stmt& s) {
    const auto* store = get_if<Store>(s);
    if (store == nullptr || !store->mask.empty())
      return;
    const int lanes = chosen.program.values[std::size_t(store->value)].lanes;
    EXPECT_EQ(lanes, 16);
    EXPECT_EQ(coefficient_of(store->to.index, lane_variable(lanes)), Expr(1));
    ++whole;
  });
  EXPECT_GE(whole, 2) << print(chosen.program);
  EXPECT_EQ(testing::run_and_compare(c, chosen.program), "");
}

TEST(Generators, FewShortRowsStayInRegisters) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {8, 64}); // fewer than lanes
  g.outputs = {softmax_node(g, x)};
  Chosen c = lower_greedily(only_region_of(g).region, target());
  EXPECT_EQ(c.schedule.generator, "rows");
  int rows = 2, vectors = 4;
  EXPECT_EQ(loads_of(c.program, 0), rows * vectors) << "each element once for three passes";
  EXPECT_EQ(applied(c.program, Op::Exp), rows * vectors);
}

/// x * x + x, times x plus x, and so on.
NodeId polynomial_of(Graph& g, NodeId x, int steps) {
  NodeId value = x;
  for (int i = 0; i < steps; ++i)
    value = g.binary(Op::Add, g.binary(Op::Mul, value, x), x);
  return value;
}

TEST(Generators, MuchCodeOfAShortRowIsALoop) {
  const auto products = [](int steps) {
    Graph g;
    const NodeId x = g.input("x", DType::F32, {100, 33});
    g.outputs = {g.reduce(Op::ReduceSum, polynomial_of(g, x, steps), {1})};
    const auto c =
        rows_generator().lower(only_region_of(g).region, parse_schedule("rows"), target());
    EXPECT_TRUE(c.ok) << c.reason;
    return applied(c.program, Op::Mul);
  };
  EXPECT_GE(products(4), 4 * 8) << "vectors of several rows";
  EXPECT_LE(products(300), 300 * 3) << "one vector, and what is left of a row";
}

TEST(Generators, LongCodeOfFewPointsHasOneVector) {
  const auto vectors = [](std::int64_t points, int steps) {
    Graph g;
    g.outputs = {polynomial_of(g, g.input("x", DType::F32, {points}), steps)};
    const auto c = lower_greedily(only_region_of(g).region, target());
    EXPECT_EQ(c.schedule.generator, "elementwise");
    return c.schedule.knob("vectors", 4);
  };
  EXPECT_EQ(vectors(500, 200), 1);
  EXPECT_GT(vectors(500, 4), 1) << "of little code";
  EXPECT_GT(vectors(50000, 200), 1) << "of many points";
}

TEST(Generators, LongRowsKeepTheirExponentials) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {64, 4096});
  g.outputs = {softmax_node(g, x)};
  Chosen c = lower_greedily(only_region_of(g).region, target());
  EXPECT_EQ(c.schedule.generator, "rows");
  EXPECT_EQ(applied(c.program, Op::Exp), 2) << "computed in one pass only, for two accumulators";
  int scratch = 0;
  for (const Buffer& b : c.program.buffers)
    scratch += b.space == Space::Worker;
  EXPECT_EQ(scratch, 1);
}

TEST(Generators, SumsOfColumnsRunAlongTheRows) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {128, 2048});
  g.outputs = {g.reduce(Op::ReduceSum, x, {0})};
  auto c = only_region_of(g);
  EXPECT_EQ(classify(c.region), Form::Column);
  EXPECT_EQ(lower_greedily(c.region, target()).schedule.generator, "columns");
}

TEST(Generators, RowsWithAStrideAreReadAsRows) {
  for (const Shape& shape : {Shape{128, 2048}, Shape{1, 20000}}) {
    Graph g;
    const Expr m = shape[0], n = shape[1];
    NodeId pairs = g.reshape(g.input("x", DType::BF16, {m, 2 * n}), {m, n, 2});
    NodeId second = g.reshape(g.shrink(pairs, {0, 0, 1}, {m, n, 2}), shape);
    g.outputs = {g.reduce(Op::ReduceMax, second, {1})};
    EXPECT_EQ(lower_greedily(only_region_of(g).region, target()).schedule.generator, "rows");
  }
}

TEST(Generators, AProductOfUnknownTilesIsNotSplit) {
  Graph g;
  const Expr m = Expr::symbol("m", 1, 4096);
  const Shape box{m, 64, 512};
  const NodeId a = g.input("a", DType::F32, {m, 512}), b = g.input("b", DType::F32, {64, 512});
  g.outputs = {g.reduce(Op::ReduceSum,
                        g.binary(Op::Mul, g.expand(g.reshape(a, {m, 1, 512}), box),
                                 g.expand(g.reshape(b, {1, 64, 512}), box)),
                        {2})};
  const Target gpu = testing::test_gpu();
  const auto cases =
      testing::region_cases(g, testing::random_inputs(g, 1, {.special = false}), gpu);
  ASSERT_EQ(cases.size(), 1u);
  Schedule split;
  split.generator = "gpu_contraction";
  split.split_reduce = 2;
  const Lowered lowered = gpu_contraction_generator().lower(cases[0].region, split, gpu);
  EXPECT_FALSE(lowered.ok);
  EXPECT_EQ(lowered.reason, "a split depth needs a known number of tiles");
}

TEST(Generators, LargeSumsAreCutIntoParts) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {1 << 18});
  g.outputs = {g.reduce(Op::ReduceSum, x, {0})};
  Chosen c = lower_greedily(only_region_of(g).region, target());
  EXPECT_EQ(c.schedule.generator, "rows");
  EXPECT_GT(c.schedule.split_reduce, 1);
  EXPECT_TRUE(c.program.uses_barrier);
  Target many = target();
  many.workers = 64;
  EXPECT_EQ(hash_of(lower_greedily(only_region_of(g).region, many).program), hash_of(c.program))
      << "the parts follow from the region, not from the machine's workers";
}

TEST(Generators, SumsWithEnoughToShareAreNotCut) {
  const auto parts_of = [](const Shape& shape, std::vector<std::int64_t> axes) {
    Graph g;
    g.outputs = {g.reduce(Op::ReduceSum, g.input("x", DType::F32, shape), std::move(axes))};
    return lower_greedily(only_region_of(g).region, target()).schedule.split_reduce;
  };
  EXPECT_GT(parts_of({1 << 18}, {0}), 1);
  EXPECT_GT(parts_of({1 << 14, 32}, {0}), 1) << "few columns";
  EXPECT_EQ(parts_of({1 << 10}, {0}), 1) << "little to sum";
  EXPECT_EQ(parts_of({1 << 10, 1 << 9}, {1}), 1) << "many results";
  EXPECT_EQ(parts_of({1 << 9, 1 << 12}, {0}), 1) << "many columns";
}

TEST(Generators, SeveralSumsAreCutTogether) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {1 << 12, 48});
  g.outputs = {g.reduce(Op::ReduceSum, x, {0}), g.reduce(Op::ReduceMax, x, {0}),
               g.reduce(Op::ReduceSum, g.unary(Op::Exp, x), {0})};
  auto c = only_region_of(g);
  const Chosen chosen = lower_greedily(c.region, target());
  EXPECT_EQ(chosen.schedule.generator, "columns");
  EXPECT_GT(chosen.schedule.split_reduce, 1);
  EXPECT_EQ(testing::run_and_compare(c, chosen.program), "");
}

TEST(Generators, WhatCannotBeCutSaysWhy) {
  const auto reason = [](const Generator& generator, const Shape& shape, Op op,
                         std::vector<std::int64_t> axes) {
    Graph g;
    g.outputs = {g.reduce(op, g.input("x", DType::F32, shape), std::move(axes))};
    Schedule s;
    s.generator = generator.name();
    s.split_reduce = 4;
    return generator.lower(testing::regions_of(g, target()).at(0), s, target()).reason;
  };
  EXPECT_EQ(reason(rows_generator(), {1 << 18}, Op::ReduceSum, {0}), "");
  EXPECT_EQ(reason(columns_generator(), {1 << 12, 64}, Op::ReduceSum, {0}), "");
  EXPECT_EQ(reason(rows_generator(), {Expr::symbol("n", 1, 1 << 20)}, Op::ReduceSum, {0}),
            "the axis to cut has no constant extent");
  EXPECT_EQ(reason(rows_generator(), {2}, Op::ReduceSum, {0}), "too short to be cut");
}

TEST(Generators, ResultsDoNotDependOnTheWorkers) {
  Graph g;
  NodeId x = g.input("x", DType::F32, {200000});
  g.outputs = {g.reduce(Op::ReduceSum, g.unary(Op::Sin, x), {0})};
  auto c = only_region_of(g);
  KernelProgram p = lower_greedily(c.region, target()).program;
  auto first = testing::run_region(c, p, {.workers = 1});
  for (int workers : {2, 3, 7})
    EXPECT_EQ(testing::run_region(c, p, {.workers = workers})[0].bytes, first[0].bytes) << workers;
}

TEST(Generators, ScattersShareOutIndependentColumns) {
  Graph g;
  NodeId data = g.input("data", DType::F32, {100, 4096}),
         index = g.input("index", DType::I64, {64});
  NodeId updates = g.input("updates", DType::F32, {64, 4096});
  g.outputs = {g.scatter(Op::ScatterAdd, data, index, updates, 0)};
  auto inputs = testing::random_inputs(g, 1, {.special = false});
  auto cases = testing::region_cases(g, inputs);
  const Region& region = cases.back().region;
  EXPECT_EQ(classify(region), Form::Scatter);
  KernelProgram p = lower_greedily(region, target()).program;
  EXPECT_GT(p.launch.workers.value(), 1);
}

/// The first column of the table in section `title` of a page: rows "| `name` | ...".
std::vector<std::string> listed(const std::string& page, const std::string& title) {
  std::istringstream lines(testing::read(testing::kDocs + page));
  std::vector<std::string> names;
  bool inside = false, ended = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#"))
      inside = line == title;
    else if (inside && !ended && line.starts_with("| `"))
      names.push_back(line.substr(3, line.find('`', 3) - 3));
    else if (inside && !names.empty())
      ended = true; // other tables of the section
  }
  return names;
}

TEST(Generators, AreThoseOfTheDocumentationInTheirOrder) {
  Target gpu;
  gpu.kind = DeviceKind::Gpu;
  for (const auto& [on, page, title] :
       {std::tuple{target(), "kernels.md", "## The CPU's templates"},
        {gpu, "cuda.md", "## The templates"}}) {
    std::vector<std::string> names;
    for (const Generator* generator : generators(on))
      names.emplace_back(generator->name());
    EXPECT_EQ(listed(page, title), names) << page;
  }
}

} // namespace
} // namespace egret::kernel

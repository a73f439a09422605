// Loop trees from terms and back, the search for them, and what keeps it honest.
#include "egret/egraph.h"
#include "kernel/families.h"
#include "kernel/loops/estimate.h"
#include "loops/facts.h"
#include "loops/nests.h"
#include "loops/space.h"
#include "loops/terms.h"
#include "support/loop_options.h"
#include "support/loop_regions.h"
#include "support/random_graph.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

namespace tree = kernel::loops;
using kernel::Bind;
using kernel::Region;
using kernel::Target;
using loops::LoopOptions;
using loops::LoopReport;
using loops::LoopSpace;
using loops::LoopTerms;
using loops::TreePtr;

const Target& target() {
  static const Target target = testing::loop_target();
  return target;
}

TreePtr parse(const char* text, const Region& region) {
  return tree::parse_tree(text, region);
}

Region running_sums() {
  return testing::region_of([](ir::Graph& g) {
    return std::vector{g.scan(Op::ScanSum, g.input("x", DType::F32, {8, 32}), 1)};
  });
}

bool proved(const Region& region, const TreePtr& t,
            const LoopOptions& options = testing::unhurried()) {
  LoopReport report;
  return loops::prove(region, target(), {t}, options, report)[0];
}

TEST(LoopTermsTest, TreesComeBackAsTheyWent) {
  const Region region = testing::softmax_rows(8, 32);
  LoopTerms terms(region, target());
  for (const char* text : {"for(0,8,1,core,then(acc(0,for(1,2,16,serial,for(1,16,1,vector,body(0)))"
                           "),near(0,for(1,32,1,"
                           "unroll,mask(0,body(1))))))",
                           "then(body(0),then(body(1),body(2)))"}) {
    const TreePtr t = parse(text, region);
    const egraph::Root root = terms.add(*t);
    EXPECT_EQ(tree::to_text(*terms.tree_of(terms.egraph().extract(root)), region), text);
  }
}

TEST(LoopTermsTest, UnknownSizesComeBack) {
  const Region region = testing::region_of([](ir::Graph& g) {
    return std::vector{g.unary(Op::Tanh, g.input("x", DType::F32, {Expr::symbol("n", 1, 4096)}))};
  });
  LoopTerms terms(region, target());
  const TreePtr t = parse("for(0,ceil(16),16,core,for(0,16,1,vector,mask(0,body(0))))", region);
  EXPECT_TRUE(tree::equal(*terms.tree_of(terms.egraph().extract(terms.add(*t))), *t));
  EXPECT_TRUE(proved(region, t));
}

TEST(LoopSpaceTest, TilesOfAProductAreProvedAndDifferByShape) {
  const auto best = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    const Region region = testing::matrix_product(m, n, k);
    const LoopSpace space = loops::loop_space(region, target(), testing::unhurried());
    EXPECT_FALSE(space.trees.empty());
    EXPECT_EQ(space.report.unproved, 0u);
    EXPECT_EQ(tree::why_not(region, *space.trees.at(0).tree), "");
    return tree::to_text(*space.trees.at(0).tree, region);
  };
  const std::string square = best(64, 64, 64), wide = best(4, 1024, 256), deep = best(8, 16, 8192);
  EXPECT_NE(square, wide);
  EXPECT_NE(square, deep);
  EXPECT_NE(wide, deep);
  EXPECT_NE(square.find("vector"), std::string::npos) << square;
  EXPECT_NE(square.find("core"), std::string::npos) << square;
  EXPECT_NE(deep.find("acc(0,for(2,"), std::string::npos) << deep;
}

TEST(LoopSpaceTest, TilesFollowTheMachine) {
  const Region region = testing::matrix_product(512, 512, 512);
  Target narrow = target();
  narrow.vector_bytes = 16;
  narrow.vector_registers = 16;
  narrow.l1_bytes = 8 << 10;
  narrow.l2_bytes = 64 << 10;
  const auto text = [&](const Target& t) {
    return tree::to_text(*loops::loop_space(region, t, testing::unhurried()).trees.at(0).tree,
                         region);
  };
  EXPECT_NE(text(narrow), text(target()));
  EXPECT_EQ(text(narrow).find("16,1,vector"), std::string::npos);
}

TEST(LoopSpaceTest, ProductsOfNarrowFactorsGetMatrixLoops) {
  Target pairs = target();
  testing::set_units(pairs, true);
  const auto of_matrices = [](const Region& region, const Target& t) {
    const LoopSpace space = loops::loop_space(region, t, testing::unhurried());
    EXPECT_FALSE(space.trees.empty());
    EXPECT_EQ(space.report.unproved, 0u);
    std::vector<std::string> found;
    for (const loops::LoopTree& one : space.trees)
      if (std::string text = tree::to_text(*one.tree, region); text.find("matrix") != text.npos)
        found.push_back(text);
    return found;
  };
  ir::Graph g;
  g.outputs = testing::narrow_product_graph(32, 64, 96)(g);
  const auto cases =
      testing::region_cases(g, testing::random_inputs(g, 3, {.special = false}), pairs);
  ASSERT_EQ(cases.size(), 1u);
  const auto trees = of_matrices(cases[0].region, pairs);
  EXPECT_GT(trees.size(), 0u);
  for (const std::string& text : trees) {
    kernel::Schedule schedule;
    schedule.generator = "loops";
    schedule.tree = text;
    const auto lowered = kernel::loops_generator().lower(cases[0].region, schedule, pairs);
    ASSERT_TRUE(lowered.ok) << lowered.reason << "\n" << text;
    EXPECT_EQ(testing::run_and_compare(cases[0], lowered.program), "") << text;
  }
  EXPECT_TRUE(of_matrices(cases[0].region, target()).empty()) << "no instruction for it";
  EXPECT_TRUE(of_matrices(testing::matrix_product(32, 64, 96), pairs).empty()) << "f32";
  EXPECT_TRUE(
      of_matrices(testing::region_of(testing::narrow_product_graph(32, 64, 95)), pairs).empty())
      << "an odd depth";
}

/// Trees of a graph's only region for a GPU, which lower and agree with the evaluator.
std::vector<std::string> gpu_trees(const testing::MakeGraph& make) {
  const Target gpu = testing::test_gpu();
  ir::Graph g;
  g.outputs = make(g);
  const auto cases =
      testing::region_cases(g, testing::random_inputs(g, 3, {.special = false}), gpu);
  EXPECT_EQ(cases.size(), 1u);
  const testing::RegionCase c = testing::aligned_for(cases.at(0), gpu);
  const LoopSpace space = loops::loop_space(c.region, gpu, testing::unhurried());
  EXPECT_EQ(space.report.unproved, 0u);
  EXPECT_GE(space.trees.size(), 4u);
  std::vector<std::string> found;
  for (const loops::LoopTree& one : space.trees) {
    kernel::Schedule schedule;
    schedule.generator = "loops";
    schedule.tree = tree::to_text(*one.tree, c.region);
    found.push_back(schedule.tree);
    const auto lowered = kernel::loops_generator().lower(c.region, schedule, gpu);
    EXPECT_TRUE(lowered.ok) << lowered.reason << "\n" << schedule.tree;
    if (lowered.ok) {
      EXPECT_EQ(testing::run_and_compare(c, lowered.program), "") << schedule.tree;
    }
  }
  return found;
}

testing::MakeGraph sums_graph(std::int64_t rows, std::int64_t columns, int axis) {
  return [=](ir::Graph& g) {
    return testing::Outputs{
        g.reduce(Op::ReduceSum, g.input("x", DType::F32, {rows, columns}), {axis})};
  };
}

bool all_hold(const std::vector<std::string>& trees, const char* part) {
  return std::ranges::all_of(trees, [&](const std::string& t) { return t.find(part) != t.npos; });
}

TEST(GpuLoopSpaceTest, ProductsGoByBlocksAndThreads) {
  const auto square = gpu_trees(testing::product_graph(64, 64, 48));
  EXPECT_TRUE(all_hold(square, "grid"));
  EXPECT_TRUE(all_hold(square, "lane"));
  EXPECT_TRUE(std::ranges::any_of(square, [](const std::string& t) {
    return t.find("near(0,near(1,") != t.npos || t.find("near(1,near(0,") != t.npos;
  })) << square[0];
  EXPECT_NE(square, gpu_trees(testing::product_graph(4, 256, 48)));
  gpu_trees(testing::product_graph(33, 65, 20));
}

TEST(GpuLoopSpaceTest, MapsAreReadSideBySide) {
  const auto trees = gpu_trees(testing::map_graph(64, 256));
  EXPECT_TRUE(all_hold(trees, "lane"));
  EXPECT_TRUE(std::ranges::any_of(trees, [](const std::string& t) {
    return t.find("for(1,4,1,vector,") != t.npos;
  })) << trees[0];
  gpu_trees(testing::map_graph(7, 33));
}

TEST(GpuLoopSpaceTest, RowsAreSummedByThreadsAndColumnsEachByOne) {
  const auto rows = gpu_trees(sums_graph(64, 1000, 1)),
             columns = gpu_trees(sums_graph(24, 4096, 0));
  // the last loop of lanes is one along the axis
  const auto lanes_along = [](const std::string& text, int axis) {
    const std::size_t lane = text.rfind(",lane,"), loop = text.rfind("for(", lane);
    return lane != text.npos && text[loop + 4] == char('0' + axis);
  };
  EXPECT_TRUE(lanes_along(rows[0], 1)) << rows[0];
  EXPECT_TRUE(lanes_along(columns[0], 0)) << columns[0]; // the columns
  gpu_trees(testing::softmax_graph(16, 300));
}

/// bf16, m x k by k x n, with tanh of the results.
testing::MakeGraph with_map_behind(std::int64_t m, std::int64_t n, std::int64_t k) {
  return [=](ir::Graph& g) {
    const testing::Outputs product = testing::narrow_product_graph(m, n, k)(g);
    return testing::Outputs{g.unary(Op::Tanh, product[0])};
  };
}

bool some_hold(const std::vector<std::string>& trees, const std::string& part) {
  return std::ranges::any_of(trees, [&](const std::string& t) { return t.find(part) != t.npos; });
}

const std::string kUnitTarget = "for(0,16,1,matrix,for(1,8,1,matrix,for(2,16,1,matrix,";

TEST(GpuLoopSpaceTest, NarrowProductsGoByTilesOfTheMatrixUnit) {
  const auto square = gpu_trees(testing::narrow_product_graph(64, 64, 64));
  EXPECT_NE(square[0].find(kUnitTarget + "body(0)"), std::string::npos) << square[0];
  EXPECT_NE(square[0].find("near(1,near(0,"), std::string::npos) << square[0];
  EXPECT_TRUE(some_hold(square, ",warp,for(2,"));
  EXPECT_FALSE(all_hold(square, "matrix")) << "others are tried, too";
  // The map goes along the elements that each thread has.
  const auto behind = gpu_trees(with_map_behind(64, 32, 64));
  EXPECT_TRUE(behind[0].find("matrix") != std::string::npos &&
              behind[0].find("for(0,8,1,lane,for(1,4,2,lane,for(1,2,1,vector,body(1)") !=
                  std::string::npos)
      << behind[0];
  EXPECT_TRUE(all_hold(gpu_trees(testing::product_graph(64, 64, 64)), "body") &&
              !some_hold(gpu_trees(testing::product_graph(64, 64, 64)), "matrix"))
      << "none of f32";
}

TEST(GpuLoopSpaceTest, TilesOfTheMatrixUnitFollowTheShape) {
  const auto best = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    return gpu_trees(testing::narrow_product_graph(m, n, k))[0];
  };
  const std::string square = best(64, 64, 64), wide = best(16, 256, 64), tall = best(256, 16, 64);
  EXPECT_NE(square, wide);
  EXPECT_NE(square, tall);
  EXPECT_NE(wide, tall);
  for (const std::string& tree : {square, wide, tall})
    EXPECT_NE(tree.find(kUnitTarget), std::string::npos) << tree;
}

/// Loads of several terms are under way together.
TEST(GpuLoopSpaceTest, TermsAreWrittenOutWhereThreadsWaitForThem) {
  const auto trees = gpu_trees([](ir::Graph& g) {
    const ir::NodeId x = g.input("x", DType::F32, {64, 40, 32});
    return testing::Outputs{g.reduce(Op::ReduceSum, g.unary(Op::Tanh, x), {0, 2})};
  });
  EXPECT_NE(trees[0].find(",8,1,unroll,"), std::string::npos) << trees[0];
}

TEST(GpuLoopSpaceTest, SizesThatNoTileDividesAreMasked) {
  EXPECT_TRUE(some_hold(gpu_trees(testing::narrow_product_graph(40, 20, 44)),
                        kUnitTarget + "mask(0,mask(1,mask(2,body(0)"));
  EXPECT_TRUE(
      some_hold(gpu_trees(with_map_behind(30, 50, 32)), kUnitTarget + "mask(0,mask(1,body(0)"));
}

TEST(GpuLoopSpaceTest, BlocksShareSumsWithFewResults) {
  EXPECT_TRUE(
      gpu_trees(testing::narrow_product_graph(16, 16, 4096))[0].starts_with("acc(0,for(2,"));
  const auto full = gpu_trees([](ir::Graph& g) {
    return testing::Outputs{g.reduce(Op::ReduceSum, g.input("x", DType::F32, {1 << 17}), {0})};
  });
  EXPECT_TRUE(full[0].starts_with("acc(0,for(0,") && full[0].find("grid,acc(0,") != full[0].npos)
      << full[0];
  EXPECT_TRUE(some_hold(full, ",lane,"));
  const auto columns = gpu_trees(sums_graph(3000, 32, 0));
  EXPECT_TRUE(columns[0].find("grid,acc(0,for(0,") != std::string::npos) << columns[0];
  for (const auto& tree : gpu_trees(sums_graph(4096, 64, 1)))
    EXPECT_FALSE(tree.starts_with("acc(0,for(1,")) << "rows enough for all blocks";
}

TEST(LoopSpaceTest, StagesShareLoops) {
  const Region region = testing::softmax_rows(512, 1000);
  const LoopSpace space = loops::loop_space(region, target(), testing::unhurried());
  ASSERT_FALSE(space.trees.empty());
  const std::string best = tree::to_text(*space.trees[0].tree, region);
  EXPECT_TRUE(best.starts_with("for(0,")) << "one nest for all stages: " << best;
  const auto fired = [&](const char* rule) {
    return std::ranges::any_of(space.report.rules, [&](const auto& r) { return r.name == rule; });
  };
  EXPECT_TRUE(fired("fuse"));
  EXPECT_TRUE(fired("fission")) << "in the proofs";
  EXPECT_GT(space.report.skeletons, 1u);
}

TEST(LoopSpaceTest, ATreeThatGoesThroughPointsTwiceIsNotProved) {
  const Region region = testing::one_map(10, 20);
  EXPECT_TRUE(proved(region, parse("for(0,3,4,core,for(0,4,1,serial,for(1,20,1,serial,mask(0,"
                                   "body(0)))))",
                                   region)));
  // beyond the end without a mask; twice; not all
  for (const char* text : {"for(0,3,4,core,for(0,4,1,serial,for(1,20,1,serial,body(0))))",
                           "for(0,5,2,core,for(0,4,1,serial,for(1,20,1,serial,mask(0,body(0)))))",
                           "for(0,9,1,core,for(1,20,1,serial,body(0)))"})
    EXPECT_FALSE(proved(region, parse(text, region))) << text;
}

TEST(LoopSpaceTest, SumsAreNotReadBeforeTheyAreFinished) {
  const Region region = testing::softmax_rows(8, 32);
  const TreePtr early =
      parse("then(for(0,8,1,serial,acc(0,for(1,32,1,serial,then(body(0),body(1)))))"
            ",then(for(0,8,1,serial,acc(2,for(1,32,1,serial,body(2)))),"
            "for(0,8,1,serial,for(1,32,1,serial,body(3)))))",
            region);
  EXPECT_FALSE(proved(region, early));
  // A rule that forgets to ask is believed by the e-graph, and caught by the check of the tree.
  LoopOptions wrong = testing::unhurried();
  wrong.rules =
      R"((rule ((= t (For a n s k (Then x y)))) ((union t (Then (For a n s k x) (For a n s k y))))
                     :ruleset fission :name "wrong-fission")
                   (rule ((= t (Acc p (Then x y))) (nest b p) (= m (stages y)) (= 0 (& m b))) ((union t (Then (Acc p x) y)))
                     :ruleset fission :name "wrong-acc"))";
  EXPECT_TRUE(proved(region, early, wrong));
  EXPECT_NE(tree::why_not(region, *early), "");
}

TEST(LoopSpaceTest, RunningSumsKeepTheirOrder) {
  const Region region = running_sums();
  const TreePtr turned =
      parse("for(0,8,1,serial,acc(0,for(1,8,1,serial,for(1,4,8,serial,body(0)))))", region);
  EXPECT_FALSE(proved(region, turned));
  LoopOptions wrong = testing::unhurried();
  wrong.rules =
      R"((rule ((= t (For a n s k (For b m r l x)))) ((union t (For b m r l (For a n s k x))))
                     :ruleset roles :name "wrong-exchange"))";
  EXPECT_TRUE(proved(region, turned, wrong));
  EXPECT_NE(tree::why_not(region, *turned).find("scan"), std::string::npos);
}

TEST(LoopSpaceTest, SumsStayInOrderWhereTheyMust) {
  const Region region = testing::matrix_product(8, 16, 64);
  const TreePtr lanes =
      parse("for(0,8,1,serial,for(1,16,1,serial,acc(0,for(2,4,16,serial,for(2,16,1,vector,body(0)"
            ")))))",
            region);
  LoopOptions strict = testing::unhurried();
  strict.reassociate = false;
  EXPECT_TRUE(proved(region, lanes));
  EXPECT_FALSE(proved(region, lanes, strict));
  for (const loops::LoopTree& t : loops::loop_space(region, target(), strict).trees)
    EXPECT_EQ(tree::to_text(*t.tree, region).find("for(2,16,1,vector"), std::string::npos);
}

TEST(LoopSpaceTest, RulesThatDivergeStopAtTheirBudgetAndAreNamed) {
  const Region region = testing::softmax_rows(8, 32);
  LoopOptions options = testing::unhurried();
  options.rules =
      R"((rule ((= t (For a (N n) s "serial" x))) ((union t (For a (N (+ n 1)) s "serial" x)))
                       :ruleset fuse :name "grows-for-ever"))";
  options.rows = 3000;
  const LoopSpace space = loops::loop_space(region, target(), options);
  EXPECT_TRUE(std::ranges::any_of(space.report.stopped, [](const std::string& s) {
    return s.find("structure") != std::string::npos &&
           s.find("grows-for-ever") != std::string::npos;
  }));
}

TEST(LoopSpaceTest, ManyAxesNoPointsAndUnknownSizesAreTaken) {
  Region many = testing::one_map(10, 20);
  while (many.axes.size() < 70)
    many.axes.push_back({Expr(2), false, "more"});
  EXPECT_NE(loops::loop_space(many, target()).report.note.find("70 axes"), std::string::npos);
  Region none = testing::one_map(10, 20);
  none.axes[0].extent = Expr(0);
  EXPECT_EQ(loops::loop_space(none, target()).report.note, "there are no points");
  const Region unknown = testing::region_of([](ir::Graph& g) {
    const Expr n = Expr::symbol("n", 1, 4096);
    return std::vector{g.reduce(Op::ReduceSum, g.input("x", DType::F32, {n, 100}), {1})};
  });
  const LoopSpace space = loops::loop_space(unknown, target(), testing::unhurried());
  EXPECT_FALSE(space.trees.empty());
  EXPECT_EQ(space.report.unproved, 0u);
}

TEST(LoopSpaceTest, TheProgramRunsInTheEngineAlone) {
  const Region region = testing::softmax_rows(64, 100);
  const Region other = testing::matrix_product(33, 65, 20);
  const Region* const regions[] = {&region, &other};
  const std::string text = loops::program_text(regions, target());
  EXPECT_NE(text.find("(check (= $plain $tree0))"), std::string::npos);
  egraph::EGraph alone;
  const std::string printed = alone.run_program(text);
  EXPECT_NE(printed.find("(For"), std::string::npos); // and every check held
}

// Values that an iteration masks twice, as in escape-time fractals: each is a stage that two later
// ones read, so that there are 2^16 ways from the last one to the first.
TEST(LoopEstimate, AStageThatManyReadCountsOnce) {
  const Region region = testing::region_of([](ir::Graph& g) {
    const ir::NodeId x = g.input("x", DType::F32, {1000});
    ir::NodeId a = x, b = x;
    for (int i = 0; i < 16; ++i) {
      const ir::NodeId inside = g.binary(Op::Lt, g.binary(Op::Add, a, b), x);
      const ir::NodeId next = g.select(inside, g.binary(Op::Mul, a, b), a);
      b = g.select(inside, g.binary(Op::Max, a, b), b);
      a = next;
    }
    return std::vector{g.binary(Op::Add, a, b)};
  });
  ASSERT_GT(region.stages.size(), 20u);
  const std::string last = std::to_string(region.stages.size() - 1);
  kernel::loops::Estimator estimator(region, target());
  const TreePtr tree = parse(("for(0,1000,1,serial,body(" + last + "))").c_str(), region);
  EXPECT_GT(estimator.seconds(*tree), 0);
  std::size_t loads = region.outputs.size();
  for (const auto& stage : region.stages)
    loads += stage.loads.size();
  EXPECT_LE(estimator.accesses(static_cast<int>(region.stages.size()) - 1).size(), loads);
}

TEST(LoopEstimate, LanesRegistersCoresAndCachesCount) {
  const Region region = testing::matrix_product(256, 256, 256);
  kernel::loops::Estimator estimator(region, target());
  const auto seconds = [&](const char* text) { return estimator.seconds(*parse(text, region)); };
  const double plain =
      seconds("for(0,256,1,serial,for(1,256,1,serial,acc(0,for(2,256,1,serial,body(0)))))");
  const double lanes = seconds("for(0,256,1,serial,for(1,16,16,serial,acc(0,for(2,256,1,serial,for("
                               "1,16,1,vector,body(0))))))");
  const double tile =
      seconds("for(0,64,4,serial,for(1,4,64,serial,acc(0,for(2,256,1,serial,for(0,4,1,unroll,for(1,"
              "4,16,unroll,for(1,16,1,vector,body(0))))))))");
  const double cores =
      seconds("for(0,64,4,core,for(1,4,64,serial,acc(0,for(2,256,1,serial,for(0,4,1,unroll,for(1,"
              "4,16,unroll,for(1,16,1,vector,body(0))))))))");
  const double spilled =
      seconds("for(0,16,16,serial,for(1,4,64,serial,acc(0,for(2,256,1,serial,for(0,16,1,unroll,for("
              "1,4,16,unroll,for(1,16,1,vector,body(0))))))))");
  EXPECT_LT(lanes, plain);
  EXPECT_LT(tile, lanes);
  EXPECT_LT(cores, tile);
  EXPECT_GT(spilled, tile);
}

TEST(LoopNests, KnowWhatIsShared) {
  const Region region = testing::softmax_rows(8, 32);
  EXPECT_EQ(loops::text_of(loops::nests_of(region, *tree::plain_tree(region))),
            "p0 sum0 r1 stage0; p0 p1 stage1; p0 sum2 r1 stage2; p0 p1 stage3");
}

} // namespace
} // namespace egret

// Loop trees: their text, the plain one, and which of them go through a region's points.
#include "kernel/loops/tree.h"

#include "egret/error.h"
#include "support/region_forms.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret::kernel::loops {
namespace {

using ir::Graph;
using ir::NodeId;

Region first_region(const Graph& g) {
  return testing::regions_of(g, testing::test_targets()[0]).at(0);
}

/// Axes 0 and 1 are rows and columns, 2 the depth.
Region product(const Expr& m, const Expr& n, const Expr& k) {
  Graph g;
  const NodeId a = g.input("a", DType::F32, {m, 1, k}), b = g.input("b", DType::F32, {1, n, k});
  const Shape box{m, n, k};
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, g.expand(a, box), g.expand(b, box)), {2})};
  return first_region(g);
}

Region form(const std::string& name, std::int64_t m, std::int64_t n) {
  for (const testing::FormCase& c : testing::region_forms())
    if (c.name == name) {
      Graph g;
      c.make(g, m, n);
      return first_region(g);
    }
  return {};
}

void expect_fits(const Region& region, const std::string& text) {
  const TreePtr tree = parse_tree(text, region);
  EXPECT_EQ(why_not(region, *tree), "") << text << "\n" << print(region);
  EXPECT_EQ(to_text(*tree, region), text);
  EXPECT_TRUE(equal(*parse_tree(to_text(*tree, region), region), *tree));
}

void expect_refused(const Region& region, const std::string& text, const std::string& part) {
  const std::string why = why_not(region, *parse_tree(text, region));
  EXPECT_NE(why.find(part), std::string::npos)
      << text << "\nrefused for: " << (why.empty() ? "nothing" : why) << "\n"
      << print(region);
}

void expect_parse_error(const Region& region, const std::string& text, const std::string& part) {
  try {
    parse_tree(text, region);
    ADD_FAILURE() << "accepted: " << text.substr(0, 200);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Parse);
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(LoopTree, PlainTreesFitTheirRegionsAndReadBack) {
  for (const testing::FormCase& c : testing::region_forms()) {
    Graph g;
    c.make(g, c.sizes.front().first, c.sizes.front().second);
    for (const Region& region : testing::regions_of(g, testing::test_targets()[0])) {
      const TreePtr tree = plain_tree(region);
      const std::string text = to_text(*tree, region);
      EXPECT_EQ(why_not(region, *tree), "") << c.name << " " << text << "\n" << print(region);
      EXPECT_TRUE(equal(*parse_tree(text, region), *tree)) << text;
    }
  }
}

TEST(LoopTree, PlainTreeOfAProduct) {
  const Region r = product(4, 6, 8);
  EXPECT_EQ(to_text(*plain_tree(r), r),
            "for(0,4,1,serial,for(1,6,1,serial,acc(0,for(2,8,1,serial,body(0)))))");
}

TEST(LoopTree, SymbolicExtents) {
  const Region r = product(Expr::symbol("N", 0, 1000), 6, 8);
  EXPECT_EQ(to_text(*plain_tree(r), r),
            "for(0,ceil(1),1,serial,for(1,6,1,serial,acc(0,for(2,8,1,serial,body(0)))))");
  expect_fits(r, "for(0,ceil(4),4,core,for(0,4,1,serial,mask(0,for(1,6,1,serial,acc(0,for(2,8,1,"
                 "serial,body(0)))))))");
  expect_refused(r,
                 "for(0,ceil(8),4,core,for(0,4,1,serial,mask(0,for(1,6,1,serial,acc(0,for(2,8,1,"
                 "serial,body(0)))))))",
                 "does not follow from its step");
  expect_refused(r, "for(0,9,1,core,for(1,6,1,serial,acc(0,for(2,8,1,serial,body(0)))))",
                 "do not make each point");
}

TEST(LoopTree, SplitLoopsAreDigitsOfTheIndex) {
  const Region r = product(16, 6, 8);
  expect_fits(r, "for(0,4,4,core,for(1,6,1,serial,for(0,4,1,serial,acc(0,for(2,8,1,serial,"
                 "body(0))))))");
  // Digits in any order, and one of one value.
  expect_fits(r, "for(0,4,1,serial,for(0,1,16,serial,for(0,4,4,serial,for(1,6,1,serial,acc(0,"
                 "for(2,8,1,serial,body(0)))))))");
  const std::string rest = "for(1,6,1,serial,acc(0,for(2,8,1,serial,body(0))))";
  for (const char* loops :
       {"for(0,4,4,serial,for(0,3,1,serial,", "for(0,4,4,serial,for(0,4,2,serial,",
        "for(0,4,4,serial,for(0,5,1,serial,", "for(0,16,1,serial,for(0,16,1,serial,",
        "for(0,3,4,serial,for(0,4,1,serial,", "for(0,0,4,serial,for(0,4,1,serial,"})
    expect_refused(r, loops + rest + "))", "do not make each point of stage 0 once");
  expect_refused(r, rest, "do not make each point of stage 0 once");
}

TEST(LoopTree, LoopsBeyondTheEndNeedAMaskInsideOfThemAll) {
  const Region r = product(10, 6, 8);
  const std::string rest = "for(1,6,1,serial,acc(0,for(2,8,1,serial,body(0))))";
  expect_fits(r, "for(0,3,4,serial,for(0,4,1,serial,mask(0," + rest + ")))");
  expect_fits(r, "for(0,16,1,vector,mask(0,for(1,6,1,serial,acc(0,for(2,8,1,serial,body(0))))))");
  expect_refused(r, "for(0,3,4,serial,for(0,4,1,serial," + rest + "))", "no mask is inside");
  expect_refused(r, "for(0,3,4,serial,mask(0,for(0,4,1,serial," + rest + ")))",
                 "no mask is inside");
  expect_refused(r, "mask(0,for(0,10,1,serial," + rest + "))", "inside of no loop along it");
}

TEST(LoopTree, SumsEncloseTheirLoops) {
  const Region r = product(4, 6, 8);
  // A tile of sums, a sum of parts, lanes of sums.
  expect_fits(r, "acc(0,for(2,8,1,serial,for(0,4,1,unroll,for(1,6,1,serial,body(0)))))");
  expect_fits(r, "for(0,4,1,serial,for(1,6,1,serial,acc(0,for(2,2,4,core,acc(0,for(2,4,1,serial,"
                 "body(0)))))))");
  expect_fits(r, "for(0,4,1,serial,for(1,6,1,serial,acc(0,for(2,8,1,vector,body(0)))))");
  expect_refused(r, "for(0,4,1,serial,for(1,6,1,serial,for(2,8,1,serial,acc(0,body(0)))))",
                 "is not accumulated outside of its loop along axis 2");
  expect_refused(r, "for(0,4,1,serial,for(1,6,1,serial,for(2,8,1,serial,body(0))))",
                 "is not accumulated");
  expect_refused(r, "for(0,4,1,serial,for(1,6,1,serial,acc(0,for(2,8,1,core,body(0)))))",
                 "has no sum inside of its core loop along axis 2");
  const Region map = form("map", 4, 7);
  expect_refused(map, "acc(0,for(0,4,1,serial,for(1,7,1,serial,body(0))))", "sums nothing");
}

TEST(LoopTree, ReadersComeBehindCompleteResults) {
  const Region r = form("softmax", 4, 7); // max, exp, its sum, the quotient
  const std::string maximum = "acc(0,for(1,7,1,serial,body(0)))",
                    sum = "acc(2,for(1,7,1,serial,body(2)))";
  expect_fits(r,
              "for(0,4,1,core,then(" + maximum + ",then(" + sum + ",for(1,7,1,serial,body(3)))))");
  expect_fits(r, "for(0,4,1,core,then(" + maximum +
                     ",then(acc(2,for(1,7,1,serial,then(body(1),body(2)))),"
                     "for(1,7,1,serial,body(3)))))");
  expect_refused(
      r, "for(0,4,1,core,then(" + sum + ",then(" + maximum + ",for(1,7,1,serial,body(3)))))",
      "reads stage 0, which does not come before it");
  expect_refused(r,
                 "for(0,4,1,core,acc(0,acc(2,for(1,7,1,serial,then(body(0),then(body(2),"
                 "body(3)))))))",
                 "stage 3 reads stage 2 before its sum is complete");
  expect_refused(r,
                 "for(0,4,1,core,acc(0,then(for(1,7,1,serial,body(0)),then(" + sum +
                     ",for(1,7,1,serial,body(3))))))",
                 "before its sum is complete");
  expect_refused(r, "for(0,4,1,core,then(" + maximum + "," + sum + "))",
                 "stage 3 is an output and has no body");
  expect_refused(r, "for(0,4,1,core,then(" + maximum + ",for(1,7,1,serial,body(3))))",
                 "stage 2 is no map and has no body");
  expect_refused(r,
                 "for(0,4,1,core,for(1,7,1,serial,then(acc(0,body(0)),then(acc(2,body(2)),"
                 "body(3)))))",
                 "is not accumulated outside");
}

TEST(LoopTree, SumsGoAlongWithTheirMaximum) {
  const Region r = form("softmax", 4, 7); // max, exp, its sum, the quotient
  const auto tree = [](const std::string& sweep) {
    return "for(0,4,1,core,then(" + sweep + ",for(1,7,1,serial,body(3))))";
  };
  const std::string both = "for(1,7,1,serial,then(body(0),body(2)))";
  expect_fits(r, tree("acc(0,acc(2," + both + "))"));
  expect_fits(r, tree("acc(0,acc(2,4,for(1,2,4,serial,then(for(1,4,1,unroll,mask(1,body(0))),"
                      "for(1,4,1,unroll,mask(1,body(2)))))))"));
  expect_refused(r, tree("acc(2,acc(0," + both + "))"), "whose accumulation is not around it");
  expect_refused(r, tree("acc(0,2,acc(2," + both + "))"), "with one accumulator");
  expect_refused(r, tree("acc(0,acc(2,for(1,7,1,serial,acc(2,then(body(0),body(2))))))"),
                 "one of them is made in parts");
  expect_refused(r, tree("acc(0,acc(2,for(1,7,1,serial,then(body(2),body(0)))))"),
                 "which does not come before it");
}

TEST(LoopTree, SumsHaveSeveralAccumulators) {
  const Region r = product(4, 6, 8);
  const auto tree = [](const std::string& sum) {
    return "for(0,4,1,serial,for(1,6,1,serial," + sum + "))";
  };
  expect_fits(r, tree("acc(0,4,for(2,2,4,serial,for(2,4,1,unroll,body(0))))"));
  expect_parse_error(r, tree("acc(0,65,for(2,8,1,serial,body(0)))"), "a number of accumulators");
  expect_parse_error(r, tree("acc(0,0,for(2,8,1,serial,body(0)))"), "a number of accumulators");
  EXPECT_NE(why_not(r, *accumulate(0, plain_tree(r), 100)).find("100 accumulators"),
            std::string::npos);
}

TEST(LoopTree, PrefetchesAreInsideOfALoop) {
  const Region r = product(4, 6, 8);
  const std::string sum = "acc(0,for(2,8,1,serial,body(0)))";
  expect_fits(r, "for(0,4,1,serial,prefetch(0,1,for(1,6,1,serial," + sum + ")))");
  expect_refused(r, "prefetch(0,1,for(0,4,1,serial,for(1,6,1,serial," + sum + ")))",
                 "is inside of no loop along it");
  expect_parse_error(r, "prefetch(0,0," + sum + ")", "a distance");
}

TEST(LoopTree, BodiesAreThereOnceUnderTheirOwnLoops) {
  const Region r = product(4, 6, 8);
  const std::string one = "for(0,4,1,serial,for(1,6,1,serial,acc(0,for(2,8,1,serial,body(0)))))";
  expect_refused(r, "then(" + one + "," + one + ")", "stage 0 has two bodies");
  const Region softmax = form("softmax", 4, 7);
  expect_refused(softmax,
                 "for(0,4,1,core,then(for(1,7,1,serial,acc(0,body(0))),then(acc(2,for(1,7,1,serial,"
                 "body(2))),for(1,7,1,serial,body(3)))))",
                 "is not accumulated outside");
  expect_refused(softmax,
                 "for(0,4,1,core,then(acc(0,for(1,7,1,serial,body(0))),then(acc(2,acc(0,for(1,7,1,"
                 "serial,body(2)))),for(1,7,1,serial,body(3)))))",
                 "does not hold its body");
}

TEST(LoopTree, Bindings) {
  const Region r = product(16, 32, 64);
  const std::string sum = "acc(0,for(2,64,1,serial,body(0)))";
  expect_refused(r,
                 "for(0,16,1,serial,for(1,32,1,vector,acc(0,for(2,4,16,serial,for(2,16,1,vector,"
                 "body(0))))))",
                 "a vector loop is inside of a vector loop");
  expect_refused(r, "for(0,16,1,vector,for(1,32,1,core," + sum + "))",
                 "a core loop is inside of a vector loop");
  const Region odd = product(6, 512, 64);
  expect_refused(odd, "for(0,6,1,vector,for(1,512,1,serial," + sum + "))", "a vector of 6 lanes");
  expect_refused(odd, "for(0,6,1,serial,for(1,512,1,unroll," + sum + "))", "are not unrolled");
  expect_refused(odd, "for(0,6,1,unroll,for(1,8,64,unroll,for(1,64,1,unroll," + sum + ")))",
                 "copies of a body");
  expect_fits(r, "for(0,16,1,serial,for(1,4,8,serial,acc(0,for(2,4,16,serial,for(0,1,16,matrix,"
                 "for(1,8,1,matrix,for(2,16,1,matrix,body(0))))))))");
  expect_fits(product(30, 30, 60),
              "for(0,2,16,serial,for(1,4,8,serial,acc(0,for(2,4,16,serial,for(0,16,1,matrix,"
              "for(1,8,1,matrix,for(2,16,1,matrix,mask(0,mask(1,mask(2,body(0)))))))))))");
  expect_refused(r,
                 "for(0,16,1,serial,for(1,4,8,serial,acc(0,for(2,4,16,serial,for(0,1,16,matrix,"
                 "for(1,8,1,matrix,for(2,16,1,matrix,near(0,body(0)))))))))",
                 "with a body inside");
  expect_refused(r,
                 "for(0,16,1,serial,for(1,4,8,serial,acc(0,for(2,4,16,serial,for(1,8,1,matrix,"
                 "for(2,16,1,matrix,body(0)))))))",
                 "come in threes");
  expect_refused(r,
                 "for(0,16,1,serial,for(1,4,8,serial,acc(0,for(2,4,16,serial,for(0,1,16,matrix,"
                 "for(2,16,1,matrix,for(1,8,1,matrix,body(0))))))))",
                 "of two result axes and a reduced one");
}

TEST(LoopTree, OrderMattersToSomeStages) {
  const Region arg = form("argmax_rows", 4, 12);
  expect_fits(arg, "for(0,4,1,serial,acc(0,for(1,3,4,serial,for(1,4,1,vector,body(0)))))");
  expect_fits(arg, "for(0,4,1,serial,acc(0,for(1,4,1,vector,for(1,3,4,serial,body(0)))))");
  expect_refused(arg, "for(0,4,1,serial,acc(0,for(1,4,1,serial,for(1,3,4,serial,body(0)))))",
                 "wants its loops along axes 1 and 1 in ascending order");
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4, 12});
  g.outputs = {g.scan(Op::ScanSum, x, 1)};
  const Region scan = first_region(g);
  expect_fits(scan, "for(0,4,1,core,acc(0,for(1,3,4,serial,for(1,4,1,unroll,body(0)))))");
  expect_fits(scan, "acc(0,for(1,12,1,serial,for(0,4,1,vector,body(0))))");
  expect_refused(scan, "for(0,4,1,core,acc(0,for(1,3,4,serial,for(1,4,1,vector,body(0)))))",
                 "one after the other, not by vector");
  expect_refused(scan, "for(0,4,1,core,acc(0,for(1,4,1,serial,for(1,3,4,serial,body(0)))))",
                 "in ascending order");
  expect_refused(scan, "for(0,4,1,core,acc(0,acc(0,for(1,12,1,serial,body(0)))))",
                 "accumulated in parts");
  Graph s;
  const NodeId data = s.input("data", DType::F32, {9, 6}), index = s.input("i", DType::I64, {12}),
               updates = s.input("u", DType::F32, {12, 6});
  s.outputs = {s.scatter(Op::ScatterSet, data, index, updates, 0)};
  const Region scatter = first_region(s);
  expect_fits(scatter, "for(1,6,1,core,for(0,12,1,serial,body(0)))");
  expect_refused(scatter, "for(0,12,1,core,for(1,6,1,serial,body(0)))", "not by core");
  expect_refused(scatter, "for(0,4,1,serial,for(0,3,4,serial,for(1,6,1,serial,body(0))))",
                 "in ascending order");
}

TEST(LoopTree, NearOperands) {
  const Region r = product(4, 6, 8);
  expect_fits(r, "near(1,for(0,4,1,serial,for(1,6,1,serial,acc(0,for(2,8,1,serial,body(0))))))");
}

TEST(LoopTree, CollapsedGridLoops) {
  const Region r = product(4, 6, 8);
  const std::string sum = "acc(0,for(2,8,1,serial,body(0)))";
  expect_fits(r, "collapse(64,2,for(0,4,1,grid,for(1,6,1,grid," + sum + ")))");
  expect_fits(r, "collapse(64,1,for(0,4,1,grid,for(1,6,1,serial," + sum + ")))");
  expect_refused(r, "for(0,4,1,grid,collapse(64,2,for(1,6,1,grid," + sum + ")))",
                 "a collapse is inside of other loops");
  expect_refused(r, "acc(0,collapse(64,2,for(0,4,1,grid,for(1,6,1,grid,for(2,8,1,grid,body(0))))))",
                 "a collapse is inside of other loops or of an accumulation");
  expect_refused(r, "collapse(64,2,for(2,8,1,grid,for(0,4,1,serial,for(1,6,1,serial,body(0)))))",
                 "a collapse takes no loop along axis 2");
  Graph g; // sums, and a map over the axis that they reduce
  const NodeId x = g.input("x", DType::F32, {4, 6});
  g.outputs = {
      g.binary(Op::Mul, x, g.expand(g.reshape(g.reduce(Op::ReduceSum, x, {1}), {4, 1}), {4, 6}))};
  expect_fits(first_region(g),
              "then(collapse(64,1,for(0,4,1,grid,acc(0,for(1,6,1,serial,body(0))))),"
              "collapse(64,1,for(0,4,1,grid,for(1,6,1,grid,body(1)))))");
  expect_parse_error(r, "collapse(0,2,body(0))", "a number of threads");
  expect_parse_error(r, "collapse(2048,2,body(0))", "a number of threads");
  expect_parse_error(r, "collapse(64,65,body(0))", "a number of points of a thread");
  Tree collapse;
  collapse.kind = Kind::Collapse;
  collapse.step = 4096;
  collapse.extent = Expr(1);
  collapse.rest = plain_tree(r);
  EXPECT_NE(why_not(r, collapse).find("points of 4096 threads"), std::string::npos);
}

TEST(LoopTreeErrors, TextNamesWhatIsWrong) {
  const Region r = product(4, 6, 8);
  expect_parse_error(r, "", "column 1: a tree is wanted");
  expect_parse_error(r, "loop(0)", "column 1: a tree is wanted, not 'loop(0)'");
  expect_parse_error(r, "body(1)", "column 6: a stage from 0 to 0 is wanted, not '1)'");
  expect_parse_error(r, "body(-1)", "a stage from 0 to 0");
  expect_parse_error(r, "body(0)x", "column 8: the end is wanted");
  expect_parse_error(r, "for(3,4,1,serial,body(0))", "an axis from 0 to 2");
  expect_parse_error(r, "for(0,-1,1,serial,body(0))", "a number of iterations");
  expect_parse_error(r, "for(0,99999999999999999999,1,serial,body(0))", "a number of iterations");
  expect_parse_error(r, "for(0,4,0,serial,body(0))", "a step from 1");
  expect_parse_error(r, "for(0,4,1,fast,body(0))", "a binding is wanted, not 'fast,body(0)'");
  expect_parse_error(r, "for(0,ceil(0),1,serial,body(0))", "a divisor from 1");
  expect_parse_error(r, "for(0,4,1,serial,body(0)", "')' is wanted");
  expect_parse_error(r, "for(0,4,1,serial)", "a binding is wanted, not 'serial)'");
  expect_parse_error(r, "near(2,body(0))", "an operand from 0 to 1");
  expect_parse_error(r, "then(body(0))", "',' is wanted");
  std::string deep, wide = "body(0)";
  for (int i = 0; i < 300; ++i)
    deep += "acc(0,";
  expect_parse_error(r, deep, "more than 200 deep");
  for (int bodies = 1; bodies <= kMostNodes / 2; bodies *= 2)
    wide = "then(" + wide + "," + wide + ")";
  expect_parse_error(r, wide, "more than 32768 nodes");
}

TEST(LoopTreeErrors, TreesMadeByHandAreLookedAtToo) {
  const Region r = product(4, 6, 8);
  Tree loop;
  loop.kind = Kind::For;
  loop.axis = 7;
  loop.rest = body(0);
  EXPECT_NE(why_not(r, loop).find("there is no axis 7"), std::string::npos);
  loop.axis = 0;
  loop.extent = Expr(4);
  loop.step = 0;
  EXPECT_NE(why_not(r, loop).find("with step 0"), std::string::npos);
  loop.rest = nullptr;
  EXPECT_NE(why_not(r, loop).find("lacks a part"), std::string::npos);
  EXPECT_NE(why_not(r, *body(3)).find("there is no stage 3"), std::string::npos);
  EXPECT_NE(why_not(r, *near(5, body(0))).find("there is no operand 5"), std::string::npos);
  constexpr std::int64_t kFar = std::int64_t(1) << 40;
  EXPECT_NE(why_not(r, *parse_tree("for(0,1099511627776,1099511627776,serial,for(0,1099511627776,"
                                   "1,serial,for(1,6,1,serial,acc(0,for(2,8,1,serial,body(0))))))",
                                   r)),
            "");
  EXPECT_NE(why_not(r, *egret::kernel::loops::loop(0, Expr(kFar), kFar, Bind::Serial, body(0))),
            "");
}

TEST(LoopTree, SchedulesHoldIt) {
  const Region r = product(4, 6, 8);
  Schedule s;
  s.generator = "loops";
  s.tree = to_text(*plain_tree(r), r);
  EXPECT_EQ(to_string(s), "loops @tree=for(0,4,1,serial,for(1,6,1,serial,acc(0,for(2,8,1,serial,"
                          "body(0)))))");
  EXPECT_EQ(parse_schedule(to_string(s)), s);
  EXPECT_THROW(parse_schedule("loops @tree="), Error);
  EXPECT_THROW(parse_schedule("loops @tree=" + std::string(70000, 'x')), Error);
}

} // namespace
} // namespace egret::kernel::loops

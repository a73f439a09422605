// The form of regions: classification, cost, identity, sharing of memory, and each promise that
// verify checks.
#include "kernel/passes.h"
#include "kernel/region.h"
#include "kernel/scatter_axes.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

Expr axis(int n, const Expr& extent) {
  return Expr::axis(n, extent);
}

/// x * 2 over [4, 8], written by hand.
Region doubling() {
  Region r;
  r.name = "doubling";
  r.axes = {{4, false, "m"}, {8, false, "n"}};
  Operand x;
  x.shape = {32};
  x.layout = IndexMap::identity(x.shape);
  x.name = "x";
  r.operands = {x};
  Stage s;
  s.axes = {0, 1};
  IndexMap map{{4, 8}, {axis(0, 4) * Expr(8) + axis(1, 8)}, {}};
  s.loads = {{Source::Operand, 0, 0, map, {}}};
  BodyValue load, two, product;
  load.kind = BodyValue::Kind::Load;
  load.load = 0;
  two.kind = BodyValue::Kind::Constant;
  two.constant = Scalar::of(DType::F32, 2.0);
  product.op = Op::Mul;
  product.args = {0, 1};
  s.body = {load, two, product};
  s.yields = {2};
  s.yield_dtypes = {DType::F32};
  r.stages = {s};
  Output o;
  o.shape = {32};
  o.map = map;
  o.layout = IndexMap::identity(o.shape);
  r.outputs = {o};
  return r;
}

/// The sum over n of it.
Region sums() {
  Region r = doubling();
  r.axes[1].reduction = true;
  r.stages[0].kind = StageKind::Reduce;
  r.stages[0].over = {1};
  r.outputs[0].shape = {4};
  r.outputs[0].layout = IndexMap::identity({4});
  r.outputs[0].map = IndexMap{{4}, {axis(0, 4)}, {}};
  return r;
}

TEST(Region, Classifies) {
  EXPECT_EQ(classify(doubling()), Form::Elementwise);
  EXPECT_EQ(classify(sums()), Form::Row);
  Region columns = sums();
  columns.stages[0].loads[0].map.coords = {axis(1, 8) * Expr(4) + axis(0, 4)};
  EXPECT_EQ(classify(columns), Form::Column);
  // Numbers of a row are little beside the rows themselves.
  Region scaled = sums();
  const IndexMap of_row{{4, 8}, {axis(0, 4)}, {}};
  for (int number : {1, 2}) {
    scaled.operands.push_back(scaled.operands[0]);
    scaled.operands.back().shape = {4};
    scaled.operands.back().layout = IndexMap::identity({4});
    scaled.stages[0].loads.push_back({Source::Operand, number, 0, of_row, {}});
  }
  EXPECT_EQ(classify(scaled), Form::Row);
  Region scan = doubling();
  scan.stages[0].kind = StageKind::Scan;
  scan.stages[0].over = {1};
  EXPECT_EQ(classify(scan), Form::Scan);
  Region scatter = doubling();
  scatter.outputs[0].combine = Combine::Add;
  EXPECT_EQ(classify(scatter), Form::Scatter);
}

TEST(Region, ContractionNeedsFactorsWithAxesOfTheirOwn) {
  Region r = sums();
  r.axes = {{4, false, "m"}, {6, false, "n"}, {8, true, "k"}};
  Shape box{4, 6, 8};
  Stage& s = r.stages[0];
  s.axes = {0, 1, 2};
  s.over = {2};
  IndexMap a{box, {axis(0, 4) * Expr(8) + axis(2, 8)}, {}};
  IndexMap b{box, {axis(2, 8) * Expr(6) + axis(1, 6)}, {}};
  s.loads = {{Source::Operand, 0, 0, a, {}}, {Source::Operand, 1, 0, b, {}}};
  r.operands.push_back(r.operands[0]);
  r.operands[1].shape = {48};
  r.operands[1].layout = IndexMap::identity({48});
  s.body[1] = s.body[0];
  s.body[1].load = 1;
  r.outputs[0].shape = {24};
  r.outputs[0].layout = IndexMap::identity({24});
  r.outputs[0].map = IndexMap{{4, 6}, {axis(0, 4) * Expr(6) + axis(1, 6)}, {}};
  verify(r);
  EXPECT_EQ(classify(r), Form::Contraction);
  s.loads[1].map.coords = {axis(2, 8)};
  EXPECT_NE(classify(r), Form::Contraction) << "a matrix times a vector has rows";
}

TEST(Region, CountsWhatItTouches) {
  Cost c = cost_of(sums());
  EXPECT_EQ(c.bytes_read, Expr(128));
  EXPECT_EQ(c.bytes_written, Expr(16));
  EXPECT_EQ(c.flops, Expr(64)) << "a product and an addition for each of 32 points";
}

TEST(Region, NamesAreNoPartOfItsIdentity) {
  Region a = doubling(), b = doubling();
  b.name = "other";
  b.axes[0].name = "rows";
  b.operands[0].name = "weights";
  b.nodes = {7};
  EXPECT_EQ(hash_of(a), hash_of(b));
  b.stages[0].body[1].constant = Scalar::of(DType::F32, 3.0);
  EXPECT_NE(hash_of(a), hash_of(b));
}

TEST(Region, PrintsWithTheNamesOfItsAxes) {
  EXPECT_EQ(print(sums()), "region doubling (row)\n"
                           "  axis m of 4\n"
                           "  axis n of 8, reduced\n"
                           "  operand0 x: f32[32]\n"
                           "  stage0 (m,n) sum reduce over n in f32\n"
                           "    %0: f32 = x[8*m + n]\n"
                           "    %1: f32 = 2\n"
                           "    %2: f32 = mul %0, %1\n"
                           "    yield %2: f32\n"
                           "  output0: f32[4] store stage0.0 at [m]\n");
}

TEST(Region, MemoryIsSharedOnlyElementByElement) {
  EXPECT_TRUE(may_alias(doubling(), 0, 0));
  Region flipped = doubling();
  flipped.stages[0].loads[0].map.coords = {Expr(31) - (axis(0, 4) * Expr(8) + axis(1, 8))};
  EXPECT_FALSE(may_alias(flipped, 0, 0));
  EXPECT_FALSE(may_alias(sums(), 0, 0)) << "one result for many elements";
  Region other = doubling();
  other.operands[0].dtype = DType::I32;
  EXPECT_FALSE(may_alias(other, 0, 0));
}

void expect_broken_region(const std::function<void(Region&)>& change, const std::string& part) {
  Region r = doubling();
  verify(r);
  change(r);
  try {
    verify(r);
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Region, VerifyNamesTheBrokenPromise) {
  expect_broken_region([](Region& r) { r.outputs.clear(); }, "computes nothing");
  expect_broken_region([](Region& r) { r.stages[0].axes = {1, 0}; }, "axes are not ascending");
  expect_broken_region([](Region& r) { r.stages[0].axes = {0, 5}; }, "no axis 5");
  expect_broken_region([](Region& r) { r.stages[0].over = {1}; }, "a map has no reduced axes");
  expect_broken_region([](Region& r) { r.stages[0].kind = StageKind::Reduce; },
                       "all other stages have some");
  expect_broken_region(
      [](Region& r) {
        r.stages[0].kind = StageKind::Reduce;
        r.stages[0].over = {1};
      },
      "reduced but marked parallel");
  expect_broken_region([](Region& r) { r.stages[0].loads[0].number = 3; }, "no operand 3");
  expect_broken_region([](Region& r) { r.stages[0].loads[0].source = Source::Stage; },
                       "not an earlier one");
  expect_broken_region([](Region& r) { r.stages[0].loads[0].map.coords.clear(); }, "0 coordinates");
  expect_broken_region([](Region& r) { r.stages[0].loads[0].map.dims = {4}; }, "the map's box");
  expect_broken_region([](Region& r) { r.stages[0].loads[0].map.coords = {axis(2, 9)}; },
                       "is not an axis of it");
  expect_broken_region([](Region& r) { r.stages[0].loads[0].map.coords = {axis(1, 9)}; },
                       "another extent");
  expect_broken_region([](Region& r) { r.stages[0].loads[0].map.coords = {indirect_symbol(0)}; },
                       "indirect coordinate that is not given");
  expect_broken_region([](Region& r) { r.stages[0].loads[0].indirect = {2}; }, "no integer value");
  expect_broken_region([](Region& r) { r.stages[0].body[0].dtype = DType::F64; },
                       "is f64, loads f32");
  expect_broken_region([](Region& r) { r.stages[0].body[1].dtype = DType::F64; },
                       "constant of another dtype");
  expect_broken_region([](Region& r) { r.stages[0].body[2].op = Op::ReduceSum; },
                       "is not elementwise");
  expect_broken_region([](Region& r) { r.stages[0].body[2].args = {0}; },
                       "takes 2 operands, has 1");
  expect_broken_region(
      [](Region& r) {
        r.stages[0].body[2].args = {0, 2};
      },
      "not an earlier value");
  expect_broken_region([](Region& r) { r.stages[0].yields = {9}; }, "yields no value 9");
  expect_broken_region([](Region& r) { r.stages[0].yield_dtypes = {}; }, "yields and their dtypes");
  expect_broken_region([](Region& r) { r.outputs[0].dtype = DType::F64; },
                       "another dtype than its value");
  expect_broken_region([](Region& r) { r.outputs[0].stage = 1; }, "no stage 1");
  expect_broken_region(
      [](Region& r) {
        r.outputs[0].alias = 0;
        r.stages[0].loads[0].map.coords = {axis(1, 8)};
      },
      "may not share the memory of operand 0");
}

TEST(Passes, ChainOfReductionsIsLevels) {
  Region r = sums();
  Stage map = doubling().stages[0];
  map.loads.push_back({Source::Stage, 0, 0, IndexMap{{4, 8}, {axis(0, 4)}, {}}, {}});
  BodyValue of_stage;
  of_stage.kind = BodyValue::Kind::Load;
  of_stage.load = 1;
  map.body[1] = of_stage;
  r.stages.push_back(map);
  r.outputs[0].stage = 1;
  r.outputs[0].shape = {32};
  r.outputs[0].layout = IndexMap::identity({32});
  r.outputs[0].map = IndexMap{{4, 8}, {axis(0, 4) * Expr(8) + axis(1, 8)}, {}};
  verify(r);
  Passes p = plan_passes(r);
  EXPECT_EQ(p.reason, "");
  EXPECT_EQ(p.count, 2);
  EXPECT_EQ(p.parallel, std::vector<int>{0});
  EXPECT_EQ(p.reductions[0], std::vector<int>{0});
  EXPECT_EQ(p.outputs[1], std::vector<int>{0});
  EXPECT_EQ(plan_passes(doubling()).reason, "has no reduction");
}

TEST(ScatterAxes, DigitsOfTheOffsetAreIndependent) {
  Region r = doubling();
  Output& o = r.outputs[0];
  o.combine = Combine::Add;
  o.indirect = {0};
  o.map.coords = {indirect_symbol(0) * Expr(8) + axis(1, 8)};
  EXPECT_EQ(independent_axes(r, o), std::vector<int>{1})
      << "n is the last digit, m may meet itself";
  o.map.coords = {indirect_symbol(0) * Expr(4) + axis(1, 8)};
  EXPECT_TRUE(independent_axes(r, o).empty()) << "digits overlap";
  o.map.coords = {axis(0, 4) * Expr(80) + indirect_symbol(0) * Expr(8) + axis(1, 8)};
  EXPECT_TRUE(independent_axes(r, o).empty()) << "an unbounded index may carry into m";
  o.map.holes = {{{{indirect_symbol(0), 0, 10}}, Scalar::of(DType::F32, 0.0)}};
  EXPECT_EQ(independent_axes(r, o), (std::vector<int>{0, 1})) << "a bounded one does not";
  o.map.holes = {{{{indirect_symbol(0), 0, 11}}, Scalar::of(DType::F32, 0.0)}};
  EXPECT_TRUE(independent_axes(r, o).empty());
}

} // namespace
} // namespace egret::kernel

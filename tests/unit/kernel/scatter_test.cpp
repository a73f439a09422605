// Scatters on a CPU: in which order memory is gone through, and what is done for an update.
#include "egret/functional.h"
#include "egret/graph.h"
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/loops/tree.h"
#include "kernel/templates/template.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

using ir::Graph;
using ir::NodeId;

Target target_of(int workers) {
  Target target = testing::test_targets()[0];
  target.workers = workers;
  return target;
}

testing::RegionCase scatter_of(const Graph& g) {
  return std::move(
      testing::region_cases(g, testing::random_inputs(g, 1, {.special = false})).back());
}

/// Updates of rows, or of columns, whose indices are the same for all of a row or column.
Graph sums(const Shape& data, std::int64_t updates, int axis, DType dtype = DType::F32) {
  Graph g;
  Shape brought = data;
  brought[std::size_t(axis)] = Expr(updates);
  g.outputs = {g.scatter(Op::ScatterAdd, g.input("data", dtype, data),
                         g.input("index", DType::I64, {Expr(updates)}),
                         g.input("updates", dtype, brought), axis)};
  return g;
}

std::string generic_tree(const Region& region, int workers) {
  Schedule s;
  s.generator = "generic";
  const auto tree = tree_of(region, s, target_of(workers));
  EXPECT_TRUE(tree) << print(region);
  return tree ? loops::to_text(**tree, region) : "";
}

TEST(Scatters, GoThroughAnUpdatesRowBeforeTheNextUpdate) {
  const Region rows = scatter_of(sums({100, 256}, 640, 0)).region;
  EXPECT_EQ(generic_tree(rows, 1), "for(0,640,1,serial,for(1,16,16,serial,for(1,16,1,vector,"
                                   "mask(1,body(0)))))");
  EXPECT_EQ(generic_tree(rows, 2), "for(1,4,64,core,for(0,640,1,serial,for(1,4,16,unroll,"
                                   "for(1,16,1,vector,mask(1,body(0))))))");
  EXPECT_EQ(generic_tree(rows, 64), "for(1,16,16,core,for(0,640,1,serial,for(1,1,16,unroll,"
                                    "for(1,16,1,vector,mask(1,body(0))))))")
      << "pieces of a line of the cache at the least";
}

TEST(Scatters, KeepRowsApartWhereUpdatesLieInsideOfThem) {
  const Region columns = scatter_of(sums({256, 100}, 640, 1)).region;
  EXPECT_EQ(generic_tree(columns, 2).substr(0, 30), "for(0,256,1,core,for(1,640,1,s");
}

Region scatter_region(const egret::Graph& cx) {
  for (Region& region : testing::regions_of(ir::parse_graph(cx.text()), target_of(2)))
    if (classify(region) == Form::Scatter)
      return std::move(region);
  return {};
}

/// Updates with an index for each element.
Region of_elements(std::int64_t rows, std::int64_t updates, std::int64_t columns) {
  egret::Graph cx;
  scatter_add(cx.tensor({rows, columns}, DType::F32, "data"), 0,
              cx.tensor({updates, columns}, DType::I64, "index"),
              cx.tensor({updates, columns}, DType::F32, "updates"))
      .retrieve();
  return scatter_region(cx);
}

TEST(Scatters, TakePiecesOfWhichACacheHoldsWhatTheyGoTo) {
  Target target = target_of(1);
  target.l1_bytes = 32 << 10;
  target.l2_bytes = 512 << 10;
  Schedule s;
  s.generator = "generic";
  const auto tree = [&](const Region& region) {
    const auto made = tree_of(region, s, target);
    return made ? loops::to_text(**made, region) : "";
  };
  EXPECT_EQ(tree(of_elements(48, 17, 15000)),
            "for(1,157,96,core,for(0,17,1,serial,for(1,96,1,serial,mask(1,body(0)))))")
      << "the first one";
  EXPECT_EQ(tree(of_elements(480, 17, 15000)),
            "for(1,105,144,core,for(0,17,1,serial,for(1,144,1,serial,mask(1,body(0)))))")
      << "the second one";
  EXPECT_EQ(tree(of_elements(4800, 17, 15000)),
            "for(0,17,1,serial,for(1,15000,1,serial,mask(1,body(0))))")
      << "none";
}

TEST(Scatters, TestOnceWhetherAnUpdateCounts) {
  for (const DType dtype : {DType::F32, DType::I32, DType::F64}) {
    const Region region = scatter_of(sums({100, 256}, 64, 0, dtype)).region;
    Schedule s;
    s.generator = "generic";
    const Lowered made = generic_generator().lower(region, s, target_of(2));
    ASSERT_TRUE(made.ok) << made.reason;
    int conditions = 0;
    each_statement(made.program.body, [&](const Stmt& stmt) {
      if (const auto* store = get_if<Store>(stmt)) {
        EXPECT_TRUE(store->mask.empty()) << print(made.program);
      }
      if (const auto* load = made_by<inst::Load>(stmt)) {
        EXPECT_TRUE(load->mask.empty()) << print(made.program);
      }
      conditions += get_if<If>(stmt) != nullptr;
    });
    EXPECT_GE(conditions, 1);
  }
}

TEST(Scatters, VectorsAreAsWideAsWhatTheyAdd) {
  const Region region = scatter_of(sums({100, 256}, 64, 0)).region;
  const int stages[] = {0};
  EXPECT_EQ(lanes_for(region, stages, 64), 16) << "one index of 64 bits is for all lanes";
}

/// Counts of indices as they are, or of numbers that become indices.
Graph counts(std::int64_t updates, std::int64_t bins, bool computed) {
  Graph g;
  NodeId index = g.input("index", computed ? DType::F32 : DType::I64, {Expr(updates)});
  if (computed) {
    const auto number = [&](double v) {
      return g.broadcast(g.constant(DType::F32, v), {Expr(updates)});
    };
    index = g.binary(Op::Mul, g.binary(Op::Add, index, number(2)), number(3));
    index = g.cast(g.unary(Op::Floor, index), DType::I64);
  }
  const NodeId one = g.broadcast(g.constant(DType::I64, 1.0), {Expr(updates)});
  g.outputs = {g.scatter(Op::ScatterAdd, g.input("data", DType::I64, {Expr(bins)}), index, one, 0)};
  return g;
}

/// Whether indices are stored as vectors, and loaded one by one where updates are applied.
bool computes_ahead(const KernelProgram& p) {
  bool vectors = false, one_by_one = false;
  each_statement(p.body, [&](const Stmt& s) {
    const auto bins = [&](int buffer) {
      return p.buffers[static_cast<std::size_t>(buffer)].name == "bins";
    };
    if (const auto* store = get_if<Store>(s); store && bins(store->to.buffer))
      vectors = p.values[static_cast<std::size_t>(store->value)].lanes > 1;
    if (const auto* load = made_by<inst::Load>(s); load && bins(load->from.buffer))
      one_by_one = get_if<Let>(s)->inst.type.lanes == 1;
  });
  return vectors && one_by_one;
}

TEST(Scatters, ComputeIndicesInVectors) {
  const auto made = [](bool computed) {
    return lower_greedily(scatter_of(counts(1 << 20, 1000, computed)).region, target_of(2));
  };
  ASSERT_EQ(made(true).schedule.generator, "scatter");
  EXPECT_TRUE(computes_ahead(made(true).program)) << print(made(true).program);
  EXPECT_FALSE(computes_ahead(made(false).program)) << "nothing is computed";
}

/// Counts of each row's numbers, or of its indices as they are.
Region row_counts(std::int64_t bins, bool computed) {
  const std::int64_t rows = 300, numbers = 1000;
  egret::Graph cx;
  Tensor index = cx.tensor({rows, numbers}, computed ? DType::F32 : DType::I64, "numbers");
  if (computed)
    index = (floor(index * double(bins)).clamp(0, bins - 1)).to(DType::I64);
  scatter_add(zeros({rows, bins}), 1, index, ones({rows, numbers})).retrieve();
  return scatter_region(cx);
}

TEST(Scatters, OfRowsTakeAnUpdateOfSomeRowsInTurn) {
  const auto made = [](std::int64_t bins, bool computed) {
    return lower_greedily(row_counts(bins, computed), target_of(2));
  };
  const Chosen few = made(32, true);
  ASSERT_EQ(to_string(few.schedule), "scatter ahead=1 slices=1 together=4");
  EXPECT_TRUE(computes_ahead(few.program)) << print(few.program);
  EXPECT_EQ(made(8000, true).schedule.knob("together", 0), 1) << "rows as large as the cache";
  EXPECT_EQ(made(32, false).schedule.generator, "generic") << print(row_counts(32, false));
}

TEST(Scatters, CombineSlicesInVectorsOfBins) {
  const KernelProgram p =
      lower_greedily(scatter_of(counts(1 << 20, 1000, false)).region, target_of(2)).program;
  bool behind = false, found = false;
  each_statement(p.body, [&](const Stmt& s) {
    behind = behind || get_if<Barrier>(s) != nullptr;
    if (const auto* let = get_if<Let>(s); let && behind && made_by<inst::Load>(s)) {
      found = true;
      EXPECT_EQ(let->inst.type.lanes, 8) << print(p);
    }
  });
  EXPECT_TRUE(found);
}

TEST(Scatters, GoTogetherOnlyAsFarAsTheFirstCacheHoldsThem) {
  const auto together = [](std::int64_t bins) {
    const Region region = scatter_of(counts(1 << 20, bins, false)).region;
    return lower_greedily(region, target_of(2)).schedule.knob("together", 1);
  };
  EXPECT_EQ(together(1000), 4);
  EXPECT_EQ(together(2000), 2);
  EXPECT_EQ(together(4000), 1);
}

} // namespace
} // namespace egret::kernel

// Each way in which a loop tree may be rewritten: both trees become programs whose values agree
// with the region's and, where no sum is made in another order, with each other bit for bit. On a
// CPU by the interpreter and as machine code, on a GPU by the interpreter and through NVRTC.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "egret/error.h"
#include "kernel/families.h"
#include "kernel/loops/tree.h"
#include "support/cpu_levels.h"
#include "support/nvrtc.h"
#include "support/random_graph.h"
#include "support/region_runner.h"
#include "support/targets.h"

#include <gtest/gtest.h>
#include <regex>

namespace egret::testing {
namespace {

using backend::reference::HostArray;
using ir::Graph;
using ir::NodeId;

struct Rewrite {
  const char* name;
  const char* graph; ///< "product": of 12 x 20 by 20 x 33, "softmax": of 6 rows of 37,
                     ///< "maps": two of 10 x 23, of each other
  bool exact;        ///< no sum is made in another order
  std::string before, after;
};

void PrintTo(const Rewrite& r, std::ostream* out) {
  *out << r.name;
}

Graph named_graph(const std::string& name) {
  Graph g;
  if (name == "product") {
    const NodeId a = g.input("a", DType::F32, {12, 1, 20}), b = g.input("b", DType::F32, {20, 33});
    const Shape box{12, 33, 20};
    const NodeId turned = g.reshape(g.permute(b, {1, 0}), {1, 33, 20});
    g.outputs = {
        g.reduce(Op::ReduceSum, g.binary(Op::Mul, g.expand(a, box), g.expand(turned, box)), {2})};
    return g;
  }
  if (name == "maps") {
    const NodeId x = g.input("x", DType::F32, {10, 23}), y = g.input("y", DType::F32, {10, 23});
    const NodeId e = g.unary(Op::Exp, x);
    g.outputs = {e, g.binary(Op::Mul, e, g.flip(y, {1}))};
    return g;
  }
  const Shape s{6, 37};
  const NodeId x = g.input("x", DType::F32, s);
  const auto along = [&](NodeId r) { return g.expand(g.reshape(r, {6, 1}), s); };
  const NodeId most = along(g.reduce(Op::ReduceMax, x, {1}));
  const NodeId minus = g.broadcast(g.constant(DType::F32, -1.0), s);
  const NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, g.binary(Op::Mul, most, minus)));
  g.outputs = {g.binary(Op::Div, e, along(g.reduce(Op::ReduceSum, e, {1})))};
  return g;
}

RegionCase case_of(const std::string& name) {
  const Graph g = named_graph(name);
  std::vector<RegionCase> cases = region_cases(g, random_inputs(g, 5, {.special = false}));
  EXPECT_EQ(cases.size(), 1u) << name;
  return cases.at(0);
}

kernel::KernelProgram lowered(const RegionCase& c, const std::string& tree,
                              const kernel::Target& target) {
  kernel::Schedule schedule;
  schedule.generator = "loops";
  schedule.tree = tree;
  kernel::Lowered made = kernel::loops_generator().lower(c.region, schedule, target);
  EXPECT_TRUE(made.ok) << tree << "\n" << made.reason << "\n" << print(c.region);
  if (made.ok)
    kernel::verify(made.program);
  return std::move(made.program);
}

std::vector<std::byte> bytes_of(const std::vector<HostArray>& arrays) {
  std::vector<std::byte> all;
  for (const HostArray& a : arrays)
    all.insert(all.end(), a.bytes.begin(), a.bytes.end());
  return all;
}

/// Both trees, by the interpreter and on the device if there is one.
void check_rewrite(const Rewrite& rewrite, const kernel::Target& target, backend::Device* device) {
  const RegionCase c = case_of(rewrite.graph);
  const auto before = lowered(c, rewrite.before, target), after = lowered(c, rewrite.after, target);
  if (::testing::Test::HasFailure())
    return;
  for (int workers : {1, 2, 3}) {
    EXPECT_EQ(run_and_compare(c, before, {.workers = workers}), "") << rewrite.before;
    EXPECT_EQ(run_and_compare(c, after, {.workers = workers}), "") << rewrite.after << "\n"
                                                                   << print(after);
  }
  const auto one = bytes_of(run_region(c, before, {.workers = 1}));
  const auto other = bytes_of(run_region(c, after, {.workers = 2}));
  if (rewrite.exact) {
    EXPECT_EQ(one, other) << rewrite.after;
  }
  EXPECT_EQ(other, bytes_of(run_region(c, after, {.workers = 1})))
      << "depends on the number of workers: " << rewrite.after;
  if (!device)
    return;
  EXPECT_EQ(run_and_compare(c, after, {.device = device}), "") << rewrite.after;
  if (rewrite.exact) {
    EXPECT_EQ(bytes_of(run_region(c, before, {.device = device})),
              bytes_of(run_region(c, after, {.device = device})))
        << rewrite.after;
  }
}

const std::string kSum = "acc(0,for(2,20,1,serial,body(0)))";
const std::string kPlain = "for(0,12,1,serial,for(1,33,1,serial," + kSum + "))";
const std::string kSoftmax =
    "for(0,6,1,serial,then(acc(0,for(1,37,1,serial,body(0))),then(acc(2,for(1,37,1,serial,"
    "then(body(1),body(2)))),for(1,37,1,serial,body(3)))))";

const std::vector<Rewrite> kCpu{
    {"split", "product", true, kPlain,
     "for(0,3,4,serial,for(0,4,1,serial,for(1,33,1,serial," + kSum + ")))"},
    {"split_with_a_rest", "product", true, kPlain,
     "for(0,12,1,serial,for(1,5,8,serial,for(1,8,1,serial,mask(1," + kSum + "))))"},
    {"split_of_a_sum", "product", true, kPlain,
     "for(0,12,1,serial,for(1,33,1,serial,acc(0,for(2,3,8,serial,for(2,8,1,serial,"
     "mask(2,body(0)))))))"},
    {"merge", "product", true,
     "for(0,3,4,serial,for(0,4,1,serial,for(1,33,1,serial," + kSum + ")))", kPlain},
    {"exchange_of_parallel_loops", "product", true, kPlain,
     "for(1,33,1,serial,for(0,12,1,serial," + kSum + "))"},
    {"exchange_with_a_reduced_loop", "product", true, kPlain,
     "for(0,12,1,serial,acc(0,for(2,20,1,serial,for(1,33,1,serial,body(0)))))"},
    {"digits_in_another_order", "product", true, kPlain,
     "for(0,4,1,serial,for(0,3,4,serial,for(1,33,1,serial," + kSum + ")))"},
    {"fuse", "maps", true,
     "then(for(0,10,1,serial,for(1,23,1,serial,body(0))),for(0,10,1,serial,for(1,23,1,serial,"
     "body(1))))",
     "for(0,10,1,serial,then(for(1,23,1,serial,body(0)),for(1,23,1,serial,body(1))))"},
    {"fuse_to_the_point", "maps", true,
     "then(for(0,10,1,serial,for(1,23,1,serial,body(0))),for(0,10,1,serial,for(1,23,1,serial,"
     "body(1))))",
     "for(0,10,1,core,for(1,2,16,serial,for(1,16,1,vector,mask(1,then(body(0),body(1))))))"},
    {"fission", "softmax", true, kSoftmax,
     "then(for(0,6,1,serial,acc(0,for(1,37,1,serial,body(0)))),for(0,6,1,core,then(acc(2,"
     "for(1,37,1,serial,then(body(1),body(2)))),for(1,37,1,serial,body(3)))))"},
    {"fission_of_all", "softmax", true, kSoftmax,
     "then(for(0,6,1,core,acc(0,for(1,37,1,serial,body(0)))),then(for(0,6,1,core,for(1,37,1,"
     "serial,body(1))),then(for(0,6,1,core,acc(2,for(1,37,1,serial,body(2)))),for(0,6,1,serial,"
     "for(1,37,1,core,body(3))))))"},
    {"unroll", "product", true, kPlain,
     "for(0,3,4,serial,for(1,33,1,serial,acc(0,for(2,20,1,serial,for(0,4,1,unroll,body(0))))))"},
    {"unroll_with_a_rest", "product", true, kPlain,
     "for(0,3,5,serial,for(1,33,1,serial,acc(0,for(2,20,1,serial,for(0,5,1,unroll,"
     "mask(0,body(0)))))))"},
    {"vectors_of_results", "product", true, kPlain,
     "for(0,12,1,serial,for(1,3,16,serial,for(1,16,1,vector,mask(1," + kSum + "))))"},
    {"vectors_inside_of_the_sum", "product", true, kPlain,
     "for(0,12,1,serial,for(1,3,16,serial,acc(0,for(2,20,1,serial,for(1,16,1,vector,"
     "mask(1,body(0)))))))"},
    {"vectors_of_a_sum", "product", false, kPlain,
     "for(0,12,1,serial,for(1,33,1,serial,acc(0,for(2,2,16,serial,for(2,16,1,vector,"
     "mask(2,body(0)))))))"},
    {"core", "product", true, kPlain, "for(0,12,1,core,for(1,33,1,core," + kSum + "))"},
    {"core_with_a_rest", "product", true, kPlain,
     "for(1,5,8,core,for(0,12,1,serial,acc(0,for(2,20,1,serial,for(1,8,1,unroll,"
     "mask(1,body(0)))))))"},
    {"near", "product", true, kPlain,
     "for(1,3,16,core,near(1,for(0,12,1,serial,for(1,16,1,vector,mask(1," + kSum + ")))))"},
    {"near_for_all", "product", true, kPlain,
     "near(1,for(0,12,1,core,for(1,33,1,serial," + kSum + ")))"},
    {"parts", "product", false, kPlain,
     "for(0,12,1,serial,for(1,33,1,serial,acc(0,for(2,5,4,serial,acc(0,for(2,4,1,serial,"
     "body(0)))))))"},
    {"parts_of_tiles", "product", false, kPlain,
     "for(1,3,16,core,acc(0,for(2,3,8,serial,for(0,3,4,serial,acc(0,for(2,8,1,serial,for(0,4,1,"
     "unroll,for(1,16,1,vector,mask(1,mask(2,body(0)))))))))))"},
    {"parts_by_cores", "product", false, kPlain,
     "acc(0,for(2,3,8,core,acc(0,for(2,8,1,serial,for(0,12,1,serial,for(1,33,1,serial,"
     "mask(2,body(0))))))))"},
    {"a_tile_with_a_copy", "product", true, kPlain,
     "for(1,2,32,core,near(1,for(0,2,6,serial,acc(0,for(2,20,1,serial,for(0,6,1,unroll,for(1,2,16,"
     "unroll,for(1,16,1,vector,mask(1,body(0))))))))))"},
};

const std::string kGpuPlain = "for(0,12,1,grid,for(1,33,1,serial," + kSum + "))";
const std::vector<Rewrite> kGpu{
    {"grid", "product", true, kPlain, kGpuPlain},
    {"grid_and_lanes", "product", true, kGpuPlain,
     "for(0,12,1,grid,for(1,2,32,grid,for(1,32,1,lane,mask(1," + kSum + "))))"},
    {"warps_lanes_and_a_tile", "product", true, kGpuPlain,
     "for(0,3,4,grid,for(1,2,32,grid,acc(0,for(2,20,1,serial,for(0,2,2,warp,for(1,16,2,lane,"
     "for(0,2,1,unroll,for(1,2,1,unroll,mask(1,body(0))))))))))"},
    {"sums_of_lanes", "product", false, kGpuPlain,
     "for(0,12,1,grid,for(1,33,1,serial,acc(0,for(2,32,1,lane,mask(2,body(0))))))"},
    {"sums_of_a_block", "softmax", false, kSoftmax,
     "for(0,6,1,grid,then(acc(0,for(1,64,1,lane,mask(1,body(0)))),then(acc(2,for(1,64,1,lane,"
     "then(mask(1,body(1)),mask(1,body(2))))),for(1,64,1,lane,mask(1,body(3))))))"},
    {"vectors", "maps", true,
     "for(0,10,1,serial,then(for(1,23,1,serial,body(0)),for(1,23,1,serial,body(1))))",
     "for(0,10,1,grid,for(1,8,4,lane,for(1,4,1,vector,mask(1,then(body(0),body(1))))))"},
    {"near", "product", true, kGpuPlain,
     "for(0,2,8,grid,for(1,5,8,grid,acc(0,for(2,5,4,serial,near(0,near(1,for(2,4,1,serial,for(0,8,"
     "1,lane,for(1,8,1,lane,mask(0,mask(1,body(0))))))))))))"},
    {"results_of_other_threads", "softmax", true, kSoftmax,
     "for(0,2,4,grid,then(for(0,4,1,lane,mask(0,acc(0,for(1,37,1,serial,body(0))))),then("
     "for(1,37,1,lane,for(0,4,1,serial,mask(0,body(1)))),then(for(0,4,1,lane,mask(0,acc(2,"
     "for(1,37,1,serial,body(2))))),for(0,4,1,serial,for(1,37,1,lane,mask(0,body(3))))))))"},
    {"results_of_other_blocks", "softmax", true, kSoftmax,
     "then(for(0,6,1,grid,acc(0,for(1,37,1,serial,body(0)))),then(for(0,6,1,grid,for(1,37,1,lane,"
     "body(1))),then(for(0,6,1,grid,acc(2,for(1,37,1,serial,body(2)))),for(1,37,1,grid,for(0,6,1,"
     "lane,body(3))))))"},
    {"parts_by_blocks", "product", false, kGpuPlain,
     "acc(0,for(2,3,8,grid,acc(0,for(2,8,1,serial,for(0,12,1,lane,for(1,33,1,lane,"
     "mask(2,body(0))))))))"},
};

class LoopRewrites : public ::testing::TestWithParam<Rewrite> {};

TEST_P(LoopRewrites, KeepValues) {
  for (const kernel::Target& target : test_targets())
    check_rewrite(GetParam(), target, nullptr);
  backend::Device& cpu = cpu_at("native");
  check_rewrite(GetParam(), cpu.target(), &cpu);
}

INSTANTIATE_TEST_SUITE_P(Cpu, LoopRewrites, ::testing::ValuesIn(kCpu),
                         [](const auto& info) { return std::string(info.param.name); });

class GpuLoopRewrites : public ::testing::TestWithParam<Rewrite> {};

TEST_P(GpuLoopRewrites, KeepValues) {
  check_rewrite(GetParam(), test_gpu(), nullptr);
}

TEST_P(GpuLoopRewrites, TextCompiles) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  const RegionCase c = case_of(GetParam().graph);
  const auto program = lowered(c, GetParam().after, test_gpu());
  ASSERT_FALSE(HasFailure());
  const std::string text = backend::cuda::render_cuda(program, {80, false});
  const auto cubin = compiler->compile(text, compiler->architecture_for(80, false), {}, "loops");
  for (const auto& k : cubin.kernels)
    EXPECT_EQ(k.spill_stores, 0) << GetParam().after << "\n" << text;
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuLoopRewrites, ::testing::ValuesIn(kGpu),
                         [](const auto& info) { return std::string(info.param.name); });

/// A product of bf16 by matrix loops, as pairs on a CPU that multiplies them.
TEST(LoopMatrices, MultiplyPairsOnACpu) {
  Graph g;
  const NodeId a = g.input("a", DType::BF16, {12, 1, 24}), b = g.input("b", DType::BF16, {24, 32});
  const Shape box{12, 32, 24};
  const NodeId left = g.cast(g.expand(a, box), DType::F32),
               right =
                   g.cast(g.expand(g.reshape(g.permute(b, {1, 0}), {1, 32, 24}), box), DType::F32);
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {2})};
  const auto cases = region_cases(g, random_inputs(g, 5, {.special = false}));
  ASSERT_EQ(cases.size(), 1u);
  const RegionCase& c = cases[0];
  kernel::Target target = test_targets()[0];
  const std::vector<std::string> trees{
      "for(1,2,16,core,acc(0,for(2,12,2,serial,for(0,12,1,unroll,for(0,1,1,matrix,for(1,16,1,"
      "matrix,for(2,2,1,matrix,body(0))))))))",
      "for(1,2,16,core,near(1,for(0,3,4,serial,acc(0,for(2,3,8,serial,for(0,4,1,matrix,for(1,16,1,"
      "matrix,for(2,8,1,matrix,body(0)))))))))",
      "for(0,3,4,serial,for(1,2,16,serial,acc(0,for(0,4,1,matrix,for(1,16,1,matrix,for(2,24,1,"
      "matrix,body(0)))))))",
      "for(0,3,4,serial,acc(0,for(2,3,8,serial,for(1,2,16,serial,for(0,4,1,matrix,for(1,16,1,"
      "matrix,for(2,8,1,matrix,body(0))))))))"};
  for (const std::string& tree : trees) {
    testing::set_units(target, true);
    const auto program = lowered(c, tree, target);
    ASSERT_FALSE(HasFailure());
    EXPECT_NE(print(program).find("u32x16"), std::string::npos) << print(program);
    EXPECT_EQ(run_and_compare(c, program), "") << tree << "\n" << print(program);
    backend::Device& cpu = cpu_at("native");
    if (testing::has_pairs(cpu.target())) {
      EXPECT_EQ(run_and_compare(c, lowered(c, tree, cpu.target()), {.device = &cpu}), "") << tree;
    }
    testing::set_units(target, false);
    kernel::Schedule schedule;
    schedule.generator = "loops";
    schedule.tree = tree;
    EXPECT_EQ(kernel::loops_generator().lower(c.region, schedule, target).reason,
              "no matrix unit that code is written for");
  }
}

/// A product of 16 bits a side, 40 x 44 by 44 x 20 (of `batches`), with a map behind it.
struct UnitProduct {
  DType dtype = DType::BF16;
  bool divides = false;  ///< 64 x 32 by 32 x 24 instead
  bool turned = false;   ///< the second factor lies by columns
  bool computed = false; ///< the first factor is made of what is read
  bool behind = false;   ///< tanh of the results
};

RegionCase case_of(const UnitProduct& p) {
  Graph g;
  const std::int64_t m = p.divides ? 64 : 40, k = p.divides ? 32 : 44, n = p.divides ? 24 : 20;
  const Shape box{m, n, k};
  NodeId a = g.input("a", p.dtype, {m, 1, k});
  if (p.computed)
    a = g.cast(g.binary(Op::Add, g.cast(a, DType::F32),
                        g.broadcast(g.constant(DType::F32, 1.0), {m, 1, k})),
               p.dtype);
  const NodeId b = p.turned
                       ? g.reshape(g.input("b", p.dtype, {n, k}), {1, n, k})
                       : g.reshape(g.permute(g.input("b", p.dtype, {k, n}), {1, 0}), {1, n, k});
  const NodeId left = g.cast(g.expand(a, box), DType::F32),
               right = g.cast(g.expand(b, box), DType::F32);
  const NodeId product = g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {2});
  g.outputs = {p.behind ? g.unary(Op::Tanh, product) : product};
  const auto cases = region_cases(g, random_inputs(g, 5, {.special = false}), test_gpu());
  EXPECT_EQ(cases.size(), 1u);
  return cases.at(0);
}

void compiles(const kernel::KernelProgram& program) {
  std::shared_ptr<const backend::cuda::Nvrtc> compiler;
  try {
    compiler = backend::cuda::Nvrtc::instance();
  } catch (const Error&) {
    return; // NVRTC is not installed
  }
  for (const int capability : {80, 90}) {
    const std::string text = backend::cuda::render_cuda(program, {capability, false});
    const auto cubin =
        compiler->compile(text, compiler->architecture_for(capability, false), {}, "loops");
    for (const auto& k : cubin.kernels)
      EXPECT_EQ(k.spill_stores, 0) << text;
  }
}

const std::string kUnit =
    "for(0,16,1,matrix,for(1,8,1,matrix,for(2,16,1,matrix,mask(0,mask(1,mask(2,body(0)))))))";

/// Products of a warp by matrix loops, beside the plain tree's values.
TEST(LoopMatrices, AreProductsOfAWarpOnAGpu) {
  const std::string by_rows = "for(0,3,16,grid,for(1,3,8,grid,";
  const std::vector<std::string> edges{
      by_rows + "acc(0,for(2,3,16,serial," + kUnit + "))))",
      // two by three tiles of a warp
      "for(0,2,32,grid,acc(0,for(2,3,16,serial,for(0,2,16,unroll,for(1,3,8,unroll," + kUnit +
          ")))))",
      // warps, and copies of both factors for all of them
      "for(0,1,64,grid,acc(0,for(2,3,16,serial,near(0,near(1,for(0,3,16,warp,for(1,3,8,unroll," +
          kUnit + ")))))))",
      // in parts
      by_rows + "acc(0,for(2,2,32,serial,acc(0,for(2,2,16,serial," + kUnit + "))))))",
      "acc(0,for(2,2,32,grid,for(0,3,16,grid,for(1,3,8,grid,acc(0,for(2,2,16,serial," + kUnit +
          "))))))",
      // sums that begin outside of loops over results
      "acc(0,for(0,3,16,grid,for(1,3,8,warp,for(2,3,16,serial," + kUnit + "))))"};
  for (const DType dtype : {DType::BF16, DType::F16})
    for (const bool turned : {false, true})
      for (const bool computed : {false, true}) {
        const RegionCase c =
            case_of(UnitProduct{.dtype = dtype, .turned = turned, .computed = computed});
        for (const std::string& tree : edges) {
          const auto program = lowered(c, tree, test_gpu());
          ASSERT_FALSE(HasFailure());
          const std::string text = print(program);
          EXPECT_NE(text.find("matrix_multiply("), std::string::npos) << text;
          EXPECT_EQ(run_and_compare(c, program, {.workers = 3}), "") << tree << text;
          EXPECT_EQ(text.find("near0") == std::string::npos, tree.find("near") == std::string::npos)
              << text;
          // Copies are under way for later steps of the depth, and are read as whole matrices where
          // they are what is multiplied.
          EXPECT_EQ(text.find("copy_async(") == std::string::npos,
                    tree.find("near") == std::string::npos)
              << text;
          if (tree.find("near") != std::string::npos) {
            const std::regex left("load_matrix\\(row=near0[^\n]*matrices=4");
            const std::regex right("load_matrix\\(row=near1[^\n]*matrices=2");
            EXPECT_EQ(std::regex_search(text, left), !computed) << text;
            EXPECT_TRUE(std::regex_search(text, right)) << text;
            EXPECT_EQ(text.find("transposed") == std::string::npos, turned) << text;
          }
          if (!computed && turned == (dtype == DType::F16))
            compiles(program);
        }
      }
}

/// Of sizes that tiles divide nothing is masked, and one step of the depth needs no loop.
TEST(LoopMatrices, OfWholeTilesHaveNoMasksOnAGpu) {
  const RegionCase c = case_of(UnitProduct{.divides = true});
  const auto program =
      lowered(c,
              "for(0,2,32,grid,for(1,3,8,grid,acc(0,for(2,2,16,serial,for(0,2,16,unroll,for(0,16,1,"
              "matrix,for(1,8,1,matrix,for(2,16,1,matrix,body(0)))))))))",
              test_gpu());
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(run_and_compare(c, program), "") << print(program);
  EXPECT_EQ(print(program).find("where"), std::string::npos) << print(program);
  EXPECT_EQ(print(program).find("if "), std::string::npos) << print(program);
  compiles(program);
  Graph g;
  const Shape box{16, 8, 16};
  const NodeId a = g.cast(g.expand(g.input("a", DType::BF16, {16, 1, 16}), box), DType::F32),
               b = g.cast(g.expand(g.input("b", DType::BF16, {1, 8, 16}), box), DType::F32);
  g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, a, b), {2})};
  const auto one = region_cases(g, random_inputs(g, 5, {.special = false}), test_gpu());
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(run_and_compare(one[0], lowered(one[0],
                                            "acc(0,for(0,16,1,matrix,for(1,8,1,matrix,for(2,16,1,"
                                            "matrix,body(0)))))",
                                            test_gpu())),
            "");
}

/// What follows goes along the elements that each thread has, out of registers; or along others,
/// out of shared memory.
TEST(LoopMatrices, HandResultsOnOnAGpu) {
  const std::string sums = "then(acc(0,for(2,3,16,serial," + kUnit + ")),";
  const std::string held =
      "for(0,2,8,unroll,for(0,8,1,lane,for(1,4,2,lane,for(1,2,1,vector,mask(0,mask(1,body(1)))))))";
  const std::string moved = "for(0,16,1,serial,for(1,8,1,lane,mask(0,mask(1,body(1)))))";
  const RegionCase c = case_of(UnitProduct{.behind = true});
  ASSERT_EQ(c.region.stages.size(), 2u) << print(c.region);
  const auto by = [&](const std::string& what, const char* columns) {
    return "for(0,3,16,grid,for(1,3,8," + std::string(columns) + "," + sums + what + ")))";
  };
  for (const std::string& tree : {by(held, "grid"), by(held, "warp"), by(moved, "grid")}) {
    const auto program = lowered(c, tree, test_gpu());
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(print(program).find("shared") == std::string::npos, tree != by(moved, "grid"))
        << print(program);
    EXPECT_EQ(run_and_compare(c, program), "") << tree << "\n" << print(program);
    compiles(program);
  }
}

TEST(LoopMatrices, AreRefusedOnAGpuWithAReason) {
  const auto says = [](const UnitProduct& p, const kernel::Target& target, const std::string& tree,
                       const std::string& part) {
    const auto made = kernel::loops_generator().lower(
        case_of(p).region, kernel::parse_schedule("loops @tree=" + tree), target);
    EXPECT_FALSE(made.ok) << tree;
    EXPECT_NE(made.reason.find(part), std::string::npos) << tree << "\n" << made.reason;
  };
  const auto over = [](const std::string& unit) {
    return "for(0,3,16,grid,for(1,3,8,grid,acc(0,for(2,3,16,serial," + unit + "))))";
  };
  const UnitProduct bf16;
  says(UnitProduct{.dtype = DType::F32}, test_gpu(), over(kUnit), "are not bf16 or f16");
  says(bf16, test_gpu(), "for(0,3,16,grid,for(1,3,8,lane,acc(0,for(2,3,16,serial," + kUnit + "))))",
       "a lane loop is around the matrix loops");
  says(bf16, test_gpu(),
       "for(0,3,16,grid,for(1,2,16,grid,acc(0,for(2,3,16,serial,for(0,16,1,matrix,for(1,16,1,"
       "matrix,for(2,16,1,matrix,mask(0,mask(1,mask(2,body(0)))))))))))",
       "a matrix product of 16 x 16 by 16, where a warp's is of 16 x 8 by 16");
  says(bf16, test_gpu(),
       "for(0,3,16,grid,acc(0,for(2,3,16,serial,for(1,3,8,serial," + kUnit + "))))",
       "do not fit registers");
  says(bf16, test_gpu(), "for(0,3,16,grid,for(1,3,8,grid,acc(0,for(2,3,16,warp," + kUnit + "))))",
       "cannot combine the sums");
  kernel::Target old = test_gpu();
  testing::set_architecture(old, 75);
  says(bf16, old, over(kUnit), "no matrix unit");
  kernel::Target cpu = test_targets()[0];
  testing::set_units(cpu, true);
  says(bf16, cpu, "for(0,3,16,serial,for(1,3,8,serial,acc(0,for(2,3,16,serial," + kUnit + "))))",
       "go beyond the end of axis");
}

/// What no code is written for says why.
TEST(LoopsGenerator, RefusesWithAReason) {
  const RegionCase c = case_of("product");
  const auto says = [&](const kernel::Target& target, const std::string& text,
                        const std::string& part) {
    kernel::Schedule schedule = kernel::parse_schedule(text);
    const auto made = kernel::loops_generator().lower(c.region, schedule, target);
    EXPECT_FALSE(made.ok) << text;
    EXPECT_NE(made.reason.find(part), std::string::npos) << text << "\n" << made.reason;
  };
  const kernel::Target cpu = test_targets()[0], gpu = test_gpu();
  says(cpu, "loops", "wants a @tree");
  says(cpu, "loops @tree=for(", "an axis from 0 to 2 is wanted");
  says(cpu, "loops @tree=" + kSum, "do not make each point of stage 0 once");
  says(cpu, "loops speed=3 @tree=" + kPlain, "loops has no parameter speed");
  says(cpu, "loops @mma=x @tree=" + kPlain, "takes no @mma");
  says(cpu, "loops @tree=" + kGpuPlain, "a CPU has no grid loops");
  says(cpu, "loops @tree=for(0,12,1,core,for(1,3,11,serial,for(1,11,1,core," + kSum + ")))",
       "a core loop is inside of another");
  says(gpu, "loops @tree=for(0,12,1,core,for(1,33,1,serial," + kSum + "))",
       "a GPU has no core loops");
  says(gpu, "loops @tree=for(0,12,1,lane,for(1,33,1,grid," + kSum + "))",
       "threads share out what is then shared out among blocks");
  says(gpu, "loops @tree=for(0,12,1,lane,for(1,33,1,lane,acc(0,for(2,20,1,lane,body(0)))))",
       "more than 1024 threads");
  says(gpu, "loops @tree=for(0,12,1,grid,acc(0,for(2,20,1,serial,for(1,33,1,serial,body(0)))))",
       "do not fit registers");
}

TEST(LoopsGenerator, OtherGeneratorsTakeNoTree) {
  const RegionCase c = case_of("product");
  const auto made = kernel::generic_generator().lower(
      c.region, kernel::parse_schedule("generic @tree=" + kPlain), test_targets()[0]);
  EXPECT_FALSE(made.ok);
  EXPECT_NE(made.reason.find("generic takes no @tree"), std::string::npos) << made.reason;
}

} // namespace
} // namespace egret::testing

// Products of f32 by sums of bf16 on matrix units: every layout, what is computed before and after,
// and numbers that have no such sums.
#include "backend/cuda/target.h"
#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "kernel/families.h"
#include "support/contraction_regions.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using testing::Einsum;
using testing::sizes;

const char* const kForms[][2] = {{"mk", "kn"}, {"mk", "nk"}, {"km", "kn"}, {"km", "nk"}};
const std::string kSplit = "split_parts=1 @mma=wgmma ";

kernel::Target gpu() {
  return backend::cuda::known_target(90);
}

Graph product_graph(const Einsum& e, DType left = DType::F32, DType right = DType::F32) {
  Graph g;
  const NodeId a = g.cast(testing::input(g, "a", e.left, e, left), DType::F32),
               b = g.cast(testing::input(g, "b", e.right, e, right), DType::F32);
  g.outputs = {testing::einsum(g, a, b, e)};
  return g;
}

/// exp(a) / scale by b, and a bias and a relu: where the first factor is computed, 0 / 0 would be
/// made of what lies behind its rows and its depth.
Graph busy_graph(const Einsum& e) {
  Graph g;
  const NodeId a = testing::input(g, "a", e.left, e), b = testing::input(g, "b", e.right, e);
  const NodeId scale = g.unary(Op::Exp, g.input("scale", DType::F32, e.shape_of(e.left)));
  const NodeId product =
      testing::einsum(g, g.binary(Op::Div, g.unary(Op::Sigmoid, a), scale), b, e);
  const Shape shape = g[product].shape;
  const NodeId bias = g.broadcast(g.input("bias", DType::F32, {e.extent('n')}), shape),
               zero = g.broadcast(g.constant(DType::F32, 0.0), shape);
  g.outputs = {g.binary(Op::Max, g.binary(Op::Add, product, bias), zero)};
  return g;
}

/// Runs schedules on the graph's regions, with inputs of the seed, and compares.
void check(const Graph& g, const std::string& schedule, int workers = 2, std::uint64_t seed = 1,
           bool special = false) {
  int lowered = 0;
  for (const auto& original :
       testing::region_cases(g, testing::random_inputs(g, seed, {.special = special}), gpu())) {
    const testing::RegionCase c = testing::aligned_for(original, gpu());
    const kernel::Schedule s = kernel::parse_schedule("gpu_contraction " + schedule);
    const auto& generator = kernel::gpu_contraction_generator();
    if (!generator.lower(c.region, s, gpu()).ok)
      continue;
    ++lowered;
    EXPECT_EQ(testing::check_schedule(c, generator, s, gpu(), {.workers = workers}, true), "")
        << schedule;
  }
  EXPECT_EQ(lowered, 1) << schedule;
}

/// The program of the graph's product.
std::string text_of(const Graph& g, const std::string& schedule) {
  for (const auto& c : testing::region_cases(g, testing::random_inputs(g, 1), gpu())) {
    const kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
        testing::aligned_for(c, gpu()).region,
        kernel::parse_schedule("gpu_contraction " + schedule), gpu());
    if (lowered.ok)
      return kernel::print(lowered.program);
  }
  return "";
}

TEST(SplitProducts, InEveryLayout) {
  for (const auto& form : kForms) {
    check(product_graph(sizes(form[0], form[1], "mn", 72, 136, 136)),
          kSplit + "bm=64 bn=64 stages=2 wm=1");
    check(product_graph(sizes(form[0], form[1], "mn", 70, 61, 67)),
          kSplit + "bm=64 bn=64 stages=3 wm=1 swap=1");
    check(product_graph(sizes(form[0], form[1], "mn", 200, 65, 130)),
          kSplit + "bm=128 bn=128 stages=2 wm=2", 1);
  }
  check(product_graph(sizes("bmk", "bkn", "bmn", 36, 72, 92, 3)),
        kSplit + "bm=64 bn=32 stages=2 wm=1", 3);
  check(product_graph(sizes("mk", "nk", "mn", 3, 5, 7)), kSplit + "bm=64 bn=64 stages=2 wm=1");
}

TEST(SplitProducts, OfAnArrayInSixteenBitsAndOneInF32) {
  for (const auto& form : kForms)
    for (const bool left : {false, true})
      check(product_graph(sizes(form[0], form[1], "mn", 72, 70, 100),
                          left ? DType::BF16 : DType::F32, left ? DType::F32 : DType::F16),
            kSplit + "bm=64 bn=64 stages=2 wm=1");
}

TEST(SplitProducts, BlocksShareTheDepth) {
  for (const int workers : {1, 3, 5}) {
    check(product_graph(sizes("mk", "nk", "mn", 72, 136, 328)),
          kSplit + "bm=64 bn=64 stages=2 wm=1 @split_reduce=3", workers);
    check(product_graph(sizes("km", "kn", "mn", 150, 68, 324)),
          kSplit + "bm=128 bn=64 stages=2 wm=2 streamk=3", workers);
  }
}

TEST(SplitProducts, FactorsAreComputedOnTheWay) {
  for (const auto& form : kForms)
    check(busy_graph(sizes(form[0], form[1], "mn", 70, 61, 67)),
          kSplit + "bm=64 bn=64 stages=2 wm=1");
}

int count(const std::string& text, const std::string& what) {
  int found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++found;
  return found;
}

/// A value that is used twice, again and again, is loaded once a place.
TEST(SplitProducts, LoadsOfAFactorRunAheadOnceEach) {
  const auto text = [](int squares) {
    const Einsum e = sizes("mk", "nk", "mn", 64, 64, 128);
    Graph g;
    NodeId a = testing::input(g, "a", e.left, e);
    for (int i = 0; i < squares; ++i)
      a = g.binary(Op::Mul, a, a);
    g.outputs = {testing::einsum(g, a, testing::input(g, "b", e.right, e), e)};
    return text_of(g, kSplit + "bm=64 bn=64 stages=2 wm=1");
  };
  const std::string none = text(0), many = text(14);
  EXPECT_GT(count(none, "load a["), 0) << none;
  EXPECT_EQ(count(many, "load a["), count(none, "load a["));
  EXPECT_LT(many.find("load a["), many.find("mbarrier_wait")) << many;
}

/// Columns of several arrays times a weight; along the depth, and along the rows.
TEST(SplitProducts, OfAConcatenationEachTensorIsReadWhereItIs) {
  for (const std::vector<std::int64_t>& widths :
       {std::vector<std::int64_t>{16, 8, 72}, {10, 3, 20, 1, 37}})
    for (const bool across : {false, true}) {
      egret::Graph cx;
      std::vector<Tensor> pieces;
      std::int64_t all = 0;
      for (const std::int64_t width : widths) {
        pieces.push_back(cx.tensor({70, width}, DType::F32, fmt::format("piece{}", pieces.size())));
        all += width;
      }
      const Tensor joined = cat(pieces, 1);
      relu(across ? matmul(joined.transpose(), cx.tensor({70, 61}, DType::F32, "w"))
                  : matmul(joined, cx.tensor({all, 61}, DType::F32, "w")))
          .retrieve();
      const Graph g = ir::parse_graph(cx.text());
      const std::string text = text_of(g, kSplit + "bm=64 bn=64 stages=2 wm=1");
      const bool apart = widths[0] % 8 == 0; // eight neighbours are of one tensor
      const std::string produced = text.substr(0, text.find("matrix_fence"));
      EXPECT_EQ(count(produced, "f32x8 = select") == 0, apart) << produced;
      check(g, kSplit + "bm=64 bn=64 stages=2 wm=1");
      check(g, kSplit + "bm=64 bn=64 stages=2 wm=1", 2, 3, true);
    }
}

/// Each product has an error below that of one rounding to f32. Six products of parts reach that;
/// three would be 2^-16 off.
TEST(SplitProducts, AreAsExactAsF32) {
  const std::int64_t n = 64;
  Graph g = product_graph(sizes("mk", "nk", "mn", n, n, n));
  std::vector<backend::reference::HostArray> inputs =
      testing::random_inputs(g, 5, {.special = false});
  const auto cases = testing::region_cases(g, inputs, gpu());
  ASSERT_EQ(cases.size(), 1u);
  const testing::RegionCase c = testing::aligned_for(cases[0], gpu());
  const kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
      c.region, kernel::parse_schedule("gpu_contraction " + kSplit + "bm=64 bn=64 stages=2 wm=1"),
      gpu());
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  const auto results = testing::run_region(c, lowered.program);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0, size = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        const double term = inputs[0].at(i * n + k).f * inputs[1].at(j * n + k).f;
        sum += term;
        size += std::abs(term);
      }
      EXPECT_NEAR(results[0].at(i * n + j).f, sum, size * 0x1p-23) << i << ", " << j;
    }
}

/// Infinities, NaN, and numbers that round to infinities in bf16: tiles that meet them are computed
/// by multiply-adds.
TEST(SplitProducts, NumbersWithoutPartsGiveWhatF32Gives) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const auto& form = kForms[seed % 4];
    check(product_graph(sizes(form[0], form[1], "mn", 70, 61, 67)),
          kSplit + "bm=64 bn=64 stages=2 wm=1", 2, seed, true);
    check(busy_graph(sizes(form[0], form[1], "mn", 20, 61, 130)),
          kSplit + "bm=64 bn=64 stages=2 wm=1 @split_reduce=2", 2, seed, true);
  }
}

TEST(SplitProducts, StoresThatNoFenceOrdersAreFound) {
  Graph g = product_graph(sizes("mk", "nk", "mn", 64, 64, 64));
  const testing::RegionCase c = testing::aligned_for(
      testing::region_cases(g, testing::random_inputs(g, 1), gpu()).at(0), gpu());
  kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
      c.region, kernel::parse_schedule("gpu_contraction " + kSplit + "bm=64 bn=64 stages=2 wm=1"),
      gpu());
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  EXPECT_EQ(testing::run_and_compare(c, lowered.program), "");
  const std::function<void(kernel::Block&)> take_out = [&](kernel::Block& block) {
    std::erase_if(block, [](const kernel::Stmt& s) {
      const auto* use = kernel::get_if<kernel::Intrinsic>(s);
      return use && use->id == kernel::IntrinsicId::CopyFence;
    });
    for (kernel::Stmt& s : block)
      each_block(s, take_out);
  };
  take_out(lowered.program.body);
  EXPECT_NE(testing::run_and_compare(c, lowered.program)
                .find("an arrival behind a store_swizzled, without a copy_fence"),
            std::string::npos);
}

TEST(SplitProducts, OthersAreRefused) {
  const auto reason = [](const Einsum& e, DType dtype, const std::string& schedule) {
    return kernel::gpu_contraction_generator()
        .lower(testing::product_region(e, dtype, 64),
               kernel::parse_schedule("gpu_contraction " + schedule), gpu())
        .reason;
  };
  const Einsum e = sizes("mk", "nk", "mn", 200, 136, 512);
  EXPECT_EQ(reason(e, DType::F64, kSplit + "bm=64 bn=64 stages=2 wm=1"),
            "its factors are no numbers of f32");
  EXPECT_EQ(reason(e, DType::F32, "bk=8 bm=32 bn=32 split_parts=1 stages=3 wm=1 wn=1"),
            "split_parts is of wgmma alone");
  EXPECT_EQ(reason(e, DType::F32, kSplit + "bm=128 bn=128 stages=2 wm=1"),
            "two sets of sums that threads lack registers for");
  EXPECT_EQ(reason(e, DType::F32, kSplit + "bm=128 bn=128 stages=4 wm=2"),
            "more shared memory than a block can have");
  EXPECT_EQ(reason(e, DType::F32, kSplit + "bm=64 bn=64 stages=2 wm=1 pingpong=2"),
            "products of split values are whole tiles that are stored");
}

} // namespace
} // namespace egret

// Contractions on a GPU without one: every kind of product through the interpreter, which copies
// and multiplies as late as the program allows, and against the region's own semantics.
#include "backend/cuda/render.h"
#include "backend/cuda/target.h"
#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "compiler/compile.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "kernel/contraction_form.h"
#include "kernel/families.h"
#include "kernel/serialize.h"
#include "support/contraction_regions.h"
#include "support/region_runner.h"
#include "unit/kernel/gpu_products.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace egret {
namespace {

using backend::reference::verify_kernel;
using ir::Graph;
using ir::NodeId;
using testing::built_region;
using testing::check_product;
using testing::Einsum;
using testing::gpu;
using testing::input;
using testing::kMma;
using testing::kWgmma;
using testing::sizes;

kernel::Region plain(const Einsum& e, DType dtype) {
  return testing::product_region(e, dtype, 64);
}

/// relu((a + 0.5) b + bias) + rest: where the sum begins behind the depth's end, a is not 0.
kernel::Region busy(const Einsum& e, DType dtype) {
  return built_region([&](Graph& g) {
    const NodeId x = input(g, "a", e.left, e, dtype);
    const NodeId half = g.broadcast(g.constant(dtype, 0.5), e.shape_of(e.left));
    const NodeId a = g.binary(Op::Add, x, half), b = input(g, "b", e.right, e, dtype);
    const NodeId product = testing::einsum(g, a, b, e);
    const Shape shape = g[product].shape;
    const NodeId bias = g.broadcast(g.input("bias", dtype, {e.extent('n')}), shape);
    const NodeId sum = g.binary(Op::Add, product, bias);
    const NodeId zero = g.broadcast(g.constant(dtype, 0.0), shape);
    return std::vector{
        g.binary(Op::Add, g.binary(Op::Max, sum, zero), g.input("rest", dtype, shape))};
  });
}

const std::string kFma = "bk=8 bm=32 bn=32 stages=3 wm=1 wn=1";

const char* const kForms[][2] = {{"mk", "kn"}, {"mk", "nk"}, {"km", "kn"}, {"km", "nk"}};

/// The bits of the outputs with so many blocks.
std::vector<std::vector<std::byte>> bits_of(const kernel::Region& region,
                                            const std::string& schedule, int workers) {
  const kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
      region, kernel::parse_schedule("gpu_contraction " + schedule), gpu());
  std::vector<std::vector<std::byte>> bits;
  const auto launch = [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
    backend::reference::interpret(program, block, {.workers = workers});
    int argument = 0;
    for (const kernel::Buffer& b : program.buffers) {
      if (b.space != kernel::Space::Argument)
        continue;
      const auto* at = static_cast<const std::byte*>(block.pointers[argument++]);
      if (b.written)
        bits.emplace_back(at, at + b.elements.value() * std::int64_t(size_of(b.dtype)));
    }
  };
  verify_kernel(region, lowered.program, launch, {});
  return bits;
}

/// sum over n of a[n] * b[n, k], or of b[k, n].
kernel::Region sums_of_products(std::int64_t terms, std::int64_t results, bool across) {
  return built_region([&](Graph& g) {
    const Shape box = across ? Shape{terms, results} : Shape{results, terms};
    const NodeId a = g.input("a", DType::F32, {terms}), b = g.input("b", DType::F32, box);
    const NodeId one = g.reshape(a, across ? Shape{terms, 1} : Shape{1, terms});
    return std::vector{
        g.reduce(Op::ReduceSum, g.binary(Op::Mul, b, g.expand(one, box)), {across ? 0 : 1})};
  });
}

TEST(GpuContraction, ManyTermsOfFewResultsAreSharedByAllMultiprocessors) {
  for (const bool across : {false, true}) {
    const kernel::Target target = gpu();
    const kernel::Region few = sums_of_products(1 << 20, 8, across);
    EXPECT_TRUE(kernel::gpu_skinny_generator().space(few, target).empty());
    const kernel::Chosen chosen = kernel::lower_greedily(few, target);
    EXPECT_GE(chosen.program.launch.workers.value(), target.workers / 2)
        << to_string(chosen.schedule);
    EXPECT_FALSE(
        kernel::gpu_skinny_generator().space(sums_of_products(4096, 4096, across), target).empty());
  }
}

TEST(GpuContraction, TilesOfTheLastWaveAreCutIntoEqualShares) {
  // 3 x 4 tiles of 5 steps: 10 whole ones and 10 steps of two tiles for 5 blocks, or all 60 for 7.
  const kernel::Region product =
      plain({"mk", "kn", "mn", {{'m', 150}, {'n', 200}, {'k', 320}}}, DType::BF16);
  for (const char* shares :
       {"streamk=5", "streamk=7", "streamk=13", "@split_reduce=2", "@split_reduce=3"})
    for (const char* staged : {"", "staged=1 "}) {
      const std::string schedule =
          fmt::format("bm=64 bn=64 stages=2 {}wm=1 {} @mma=wgmma", staged, shares);
      for (const int workers : {1, 3, 7})
        check_product(product, schedule, workers);
      const auto one = bits_of(product, schedule, 1);
      EXPECT_FALSE(one.empty());
      EXPECT_EQ(one, bits_of(product, schedule, 2)) << schedule;
      EXPECT_EQ(one, bits_of(product, schedule, 13)) << schedule;
    }
  EXPECT_EQ(kernel::gpu_contraction_generator()
                .lower(product,
                       kernel::parse_schedule("gpu_contraction bm=64 bn=64 stages=2 wm=1 "
                                              "streamk=6 @mma=wgmma"),
                       gpu())
                .reason,
            "the last wave of tiles is full");
  EXPECT_EQ(kernel::gpu_contraction_generator()
                .lower(product, kernel::parse_schedule("gpu_contraction streamk=6"), gpu())
                .reason,
            "streamk is of wgmma alone");
}

TEST(GpuContraction, AnInefficientLastWaveIsOfferedAsShares) {
  const auto offered = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    const kernel::Region r = plain({"mk", "kn", "mn", {{'m', m}, {'n', n}, {'k', k}}}, DType::BF16);
    for (const kernel::Schedule& s : kernel::gpu_contraction_generator().space(r, gpu()))
      if (s.knob("streamk", 0) > 0)
        return true;
    return false;
  };
  EXPECT_TRUE(offered(256, 4096, 14336));  // 32 tiles of 128 x 256
  EXPECT_TRUE(offered(2048, 2304, 16384)); // 144 of them
}

TEST(GpuContraction, MultiplyAddsInEveryLayout) {
  for (const auto& form : kForms) {
    check_product(plain(sizes(form[0], form[1], "mn", 37, 41, 19), DType::F32), kFma);
    check_product(plain(sizes(form[0], form[1], "mn", 64, 32, 40), DType::F32), kFma);
  }
  check_product(plain(sizes("bmk", "bkn", "bmn", 33, 36, 12, 3), DType::F32), kFma);
  check_product(plain(sizes("mk", "kn", "mn", 20, 40, 9), DType::F64), kFma);
  check_product(plain(sizes("mk", "kn", "mn", 20, 40, 9), DType::I32), kFma);
  check_product(plain(sizes("mk", "kn", "mn", 20, 40, 9), DType::BF16), kFma);
}

TEST(GpuContraction, WarpsShareTheDepthOfAPiece) {
  for (const auto& form : kForms)
    for (const char* shared : {"wk=2", "wk=4", "wk=8", "wk=4 @split_reduce=3"}) {
      const auto schedule = [&](int warps_m) {
        return fmt::format("bk=16 bm={} bn=32 stages=3 wm={} wn=1 {}", 16 * warps_m, warps_m,
                           shared);
      };
      check_product(plain(sizes(form[0], form[1], "mn", 37, 41, 150), DType::F32), schedule(1));
      check_product(busy(sizes(form[0], form[1], "mn", 37, 41, 100), DType::F32), schedule(2));
    }
  check_product(plain(sizes("bmk", "bkn", "bmn", 17, 36, 70, 3), DType::F32),
                "bk=16 bm=16 bn=32 stages=2 wk=4 wm=1 wn=1 @split_reduce=2");
  const auto reason = [](DType dtype, const std::string& schedule) {
    return kernel::gpu_contraction_generator()
        .lower(plain(sizes("mk", "kn", "mn", 64, 64, 64), dtype),
               kernel::parse_schedule("gpu_contraction " + schedule), gpu())
        .reason;
  };
  EXPECT_EQ(reason(DType::F32, kFma + " wk=3"),
            "warps that share a piece's depth are a power of two that divides it");
  EXPECT_EQ(reason(DType::F32, kFma + " wk=16"),
            "warps that share a piece's depth are a power of two that divides it");
  EXPECT_EQ(reason(DType::BF16, kMma + " wk=2"), "wk is of fused multiply-adds alone");
  // The same bits for any number of blocks.
  const kernel::Region deep = plain(sizes("km", "kn", "mn", 24, 24, 500), DType::F32);
  const std::string schedule = "bk=16 bm=16 bn=32 stages=3 wk=4 wm=1 wn=1 @split_reduce=7";
  EXPECT_EQ(bits_of(deep, schedule, 1), bits_of(deep, schedule, 5));
}

TEST(GpuContraction, FewResultsKeepAllSchedulersBusy) {
  const struct {
    std::int64_t m, n, k;
    const char *left, *right;
  } products[] = {{96, 96, 20000, "km", "kn"},
                  {24, 24, 100000, "mk", "kn"},
                  {512, 128, 402, "mk", "nk"},
                  {64, 64, 65536, "mk", "kn"}};
  for (const auto& p : products) {
    const kernel::Region region = plain(sizes(p.left, p.right, "mn", p.m, p.n, p.k), DType::F32);
    const auto space = kernel::gpu_contraction_generator().space(region, gpu());
    ASSERT_FALSE(space.empty());
    const kernel::Lowered first =
        kernel::gpu_contraction_generator().lower(region, space[0], gpu());
    ASSERT_TRUE(first.ok) << first.reason;
    const std::int64_t warps =
        first.program.launch.workers.value() * first.program.launch.threads / 32;
    EXPECT_GE(warps, 4 * gpu().workers * 3 / 4) << to_string(space[0]);
  }
  // Where there is work for all, warps of their own have larger parts of the tiles.
  const kernel::Schedule large = kernel::gpu_contraction_generator().space(
      plain(sizes("mk", "kn", "mn", 4096, 4096, 4096), DType::F32), gpu())[0];
  EXPECT_EQ(large.split_reduce, 1) << to_string(large);
  EXPECT_GE(large.knob("bm", 0) * large.knob("bn", 0), 6144) << to_string(large);
}

/// relu(x w^T) of the rows of several tensors side by side.
kernel::Region product_of_pieces(const std::vector<std::int64_t>& widths, std::int64_t rows,
                                 std::int64_t columns, DType dtype) {
  egret::Graph cx;
  std::vector<Tensor> pieces;
  std::int64_t depth = 0;
  for (const std::int64_t width : widths) {
    pieces.push_back(cx.tensor({rows, width}, dtype, fmt::format("piece{}", pieces.size())));
    depth += width;
  }
  relu(linear(cat(pieces, 1), cx.tensor({columns, depth}, dtype, "w"))).retrieve();
  const auto regions = testing::regions_of(ir::parse_graph(cx.text()), gpu());
  EXPECT_EQ(regions.size(), 1u);
  kernel::Region region = regions.at(0);
  for (kernel::Operand& operand : region.operands)
    operand.alignment = 64;
  return region;
}

TEST(GpuContraction, PiecesOfAConcatenationAreCopiedFromTheirTensors) {
  const auto text = [](const kernel::Region& region, const std::string& schedule) {
    const kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
        region, kernel::parse_schedule("gpu_contraction " + schedule), gpu());
    EXPECT_TRUE(lowered.ok) << lowered.reason;
    return kernel::print(lowered.program);
  };
  const kernel::Region odd = product_of_pieces({10, 3, 20, 1, 7}, 37, 29, DType::F32);
  for (const char* more : {"", " @split_reduce=3"}) {
    check_product(odd, kFma + more);
    check_product(odd, std::string("bk=16 bm=16 bn=32 stages=4 wk=4 wm=1 wn=1") + more);
  }
  EXPECT_EQ(text(odd, kFma).find("load piece"), std::string::npos) << "through registers";
  // Borders that are multiples of a copy are of one tensor each.
  const kernel::Region even = product_of_pieces({16, 8, 40}, 37, 29, DType::BF16);
  check_product(even, kMma);
  EXPECT_NE(text(even, kMma).find("from=piece1"), std::string::npos) << text(even, kMma);
  EXPECT_NE(text(even, kMma).find("elements=8"), std::string::npos);
  const kernel::Region uneven = product_of_pieces({16, 9, 40}, 37, 29, DType::BF16);
  check_product(uneven, kMma); // half of a copy's least size: through registers
  EXPECT_EQ(text(uneven, kMma).find("from=piece"), std::string::npos);
}

/// w times a product of complex numbers whose real and imaginary parts are beside each other along
/// the depth.
kernel::Region product_of_complex(std::int64_t width, std::int64_t rows, std::int64_t columns) {
  egret::Graph cx;
  const auto one = [&](const char* name) { return cx.tensor({rows, width}, DType::F32, name); };
  const Tensor a = one("a"), b = one("b"), c = one("c"), d = one("d");
  linear(cat({a * c - b * d, a * d + b * c}, 1), cx.tensor({columns, 2 * width}, DType::F32, "w"))
      .retrieve();
  const auto regions = testing::regions_of(ir::parse_graph(cx.text()), gpu());
  EXPECT_EQ(regions.size(), 1u);
  return regions.at(0);
}

/// A thread's elements are of one part, known when the program is made, so that no load has a
/// condition, and both parts share what they read.
TEST(GpuContraction, ElementsOfASideThatIsMadeAreOfOnePartEach) {
  const std::string schedule = "bk=32 bm=16 bn=32 stages=3 wk=2 wm=1 wn=1";
  const auto loads = [&](std::int64_t width) {
    const kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
        product_of_complex(width, 64, 48), kernel::parse_schedule("gpu_contraction " + schedule),
        gpu());
    EXPECT_TRUE(lowered.ok) << lowered.reason;
    const std::string text = print(lowered.program);
    std::pair<int, int> found; // all, and those with conditions
    for (std::size_t at = 0; (at = text.find("load a[", at)) != std::string::npos; ++at) {
      ++found.first;
      found.second +=
          text.substr(at, text.find('\n', at) - at).find(" where ") != std::string::npos;
    }
    return found;
  };
  const auto [even, even_masked] = loads(16);
  EXPECT_EQ(even_masked, 0);
  const auto [odd, odd_masked] = loads(12); // parts that begin within a thread's elements
  EXPECT_GE(odd_masked, 2 * even);
  for (const std::int64_t width : {16, 12, 64})
    check_product(product_of_complex(width, 37, 29), schedule);
}

TEST(GpuContraction, WorkBeforeAndAfterTheProductIsInlined) {
  check_product(busy(sizes("mk", "kn", "mn", 37, 44, 18), DType::F32), kFma);
  check_product(busy(sizes("mk", "nk", "mn", 37, 44, 24), DType::BF16), kMma);
  check_product(busy(sizes("km", "kn", "mn", 37, 44, 24), DType::BF16), kMma + " staged=1");
}

/// x w^T of bf16, where w is small integers with a scale of each row, or of each 16 of the depth.
kernel::Region unpacked(std::int64_t m, std::int64_t n, std::int64_t k, bool of_blocks) {
  return built_region([&](Graph& g) {
    const Einsum e = sizes("mk", "nk", "mn", m, n, k);
    const NodeId codes = g.cast(input(g, "w", e.right, e, DType::I8), DType::F32);
    const Shape box = of_blocks ? Shape{n, k / 16, 16} : Shape{n, 1, k},
                few = of_blocks ? Shape{n, k / 16, 1} : Shape{n, 1, 1};
    const NodeId scale =
                     g.expand(g.reshape(g.input("s", DType::F32, {element_count(few)}), few), box),
                 w = g.binary(Op::Mul, g.reshape(codes, box), scale),
                 low = g.reshape(g.cast(w, DType::BF16), {n, k});
    return std::vector{testing::einsum(g, input(g, "x", e.left, e, DType::BF16), low, e)};
  });
}

/// Software pipelining: what a piece of the depth is made of waits in registers for a step.
TEST(GpuContraction, WhatASideIsMadeOfIsLoadedAStepAhead) {
  for (const bool of_blocks : {false, true})
    for (const std::int64_t depth : {16, 32, 112, 128}) {
      const kernel::Region region = unpacked(37, 45, depth, of_blocks);
      check_product(region, kMma);
      check_product(region, kMma + " @split_reduce=2");
      check_product(region, "bk=16 bm=32 bn=32 stages=2 wm=1 wn=2 @mma=m16n8k16");
      check_product(region, kMma + " staged=1", 1);
    }
  const auto held = [](const std::string& schedule) {
    const kernel::Lowered lowered = kernel::gpu_contraction_generator().lower(
        unpacked(64, 64, 1024, false), kernel::parse_schedule("gpu_contraction " + schedule),
        gpu());
    EXPECT_TRUE(lowered.ok) << lowered.reason;
    const auto& variables = lowered.program.variables;
    return std::count_if(variables.begin(), variables.end(),
                         [](const kernel::Type& t) { return t.dtype == DType::I8; });
  };
  EXPECT_EQ(held("bk=64 bm=64 bn=64 stages=3 wm=2 wn=2 @mma=m16n8k16"), 4); // 8 each
  // More than registers suffice for.
  EXPECT_EQ(held("bk=64 bm=32 bn=256 stages=2 wm=1 wn=2 @mma=m16n8k16"), 0);
}

/// One element, read through two views of which one has zeros there, is two loads.
TEST(GpuContraction, LoadsAStepAheadOfOneElementKeepTheirHoles) {
  const Einsum e = sizes("mk", "nk", "mn", 37, 45, 64);
  for (const double fill : {0.0, 3.0})
    for (const bool whole_first : {false, true}) {
      const kernel::Region region = built_region([&](Graph& g) {
        const NodeId codes = input(g, "w", e.right, e, DType::I8);
        const NodeId part =
            g.pad(g.shrink(codes, {0, 0}, {45, 24}), {0, 0}, {0, 40}, Scalar::of(DType::I8, fill));
        const NodeId sum =
            whole_first ? g.binary(Op::Add, codes, part) : g.binary(Op::Add, part, codes);
        return std::vector{
            testing::einsum(g, input(g, "x", e.left, e, DType::BF16), g.cast(sum, DType::BF16), e)};
      });
      check_product(region, kMma);
      check_product(region, "bk=16 bm=32 bn=32 stages=2 wm=1 wn=2 @mma=m16n8k16");
    }
}

TEST(GpuContraction, SidesThatAreMadeHaveWarpsThatHideTheirLoads) {
  const kernel::Target target = gpu();
  const auto space =
      kernel::gpu_contraction_generator().space(unpacked(64, 2048, 4096, true), target);
  ASSERT_FALSE(space.empty());
  const kernel::Lowered lowered =
      kernel::gpu_contraction_generator().lower(unpacked(64, 2048, 4096, true), space[0], target);
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  const auto warps = lowered.program.launch.workers.value() * lowered.program.launch.threads / 32;
  EXPECT_GE(warps, 6 * target.workers) << to_string(space[0]);
  // Where there is little to make, too, matrix units are better than other ones.
  for (const std::int64_t depth : {32, 64})
    EXPECT_FALSE(kernel::gpu_contraction_generator()
                     .space(unpacked(49, 49, depth, false), target)[0]
                     .mma.empty());
}

TEST(GpuContraction, MatrixInstructionsInEveryLayout) {
  for (const auto& form : kForms) {
    check_product(plain(sizes(form[0], form[1], "mn", 40, 48, 40), DType::BF16), kMma);
    check_product(plain(sizes(form[0], form[1], "mn", 33, 35, 19), DType::BF16),
                  kMma + " staged=1");
  }
  check_product(plain(sizes("bmk", "bkn", "bmn", 32, 40, 24, 3), DType::F16), kMma);
}

TEST(GpuContraction, SharesOfTheDepthAreAddedInOrder) {
  for (int workers : {1, 3, 7}) {
    check_product(plain(sizes("mk", "kn", "mn", 37, 41, 70), DType::F32), kFma + " @split_reduce=3",
                  workers);
    check_product(busy(sizes("mk", "nk", "mn", 37, 44, 100), DType::BF16),
                  kMma + " staged=1 @split_reduce=4", workers);
  }
  // So many that they are not loaded at once, in even groups or not, by several sets of warps.
  for (const int shares : {8, 11}) {
    const std::string split = " @split_reduce=" + std::to_string(shares);
    check_product(plain(sizes("mk", "kn", "mn", 20, 33, 300), DType::F32), kFma + split);
    check_product(plain(sizes("mk", "nk", "mn", 20, 40, 1200), DType::BF16),
                  kMma + " staged=1" + split);
  }
  // More shares than steps.
  check_product(plain(sizes("mk", "kn", "mn", 20, 33, 9), DType::F32), kFma + " @split_reduce=4");
}

TEST(GpuContraction, WarpGroupsMultiplyWhatTheCopyEngineBrings) {
  for (const auto& form : kForms) {
    check_product(plain(sizes(form[0], form[1], "mn", 72, 136, 136), DType::BF16), kWgmma);
    check_product(plain(sizes(form[0], form[1], "mn", 64, 64, 192), DType::F16),
                  kWgmma + " staged=1");
  }
  check_product(plain(sizes("bmk", "bkn", "bmn", 72, 72, 72, 3), DType::BF16), kWgmma, 3);
  check_product(plain(sizes("mk", "kn", "mn", 200, 136, 72), DType::BF16),
                "bm=128 bn=64 staged=1 stages=2 wm=2 @mma=wgmma");
  // The few rows are the columns of the instruction.
  check_product(plain(sizes("mk", "nk", "mn", 24, 136, 200), DType::BF16),
                "bm=64 bn=16 stages=3 wm=1 swap=1 @mma=wgmma");
}

TEST(GpuContraction, WarpGroupsMultiplyWhatThreadsCopy) {
  // Rows that begin at multiples of 8 or 4 bytes, on one side or on both.
  for (const auto& form : kForms)
    for (const int odd : {60, 70}) {
      check_product(plain(sizes(form[0], form[1], "mn", 2 * odd, odd, odd + 16), DType::BF16),
                    kWgmma);
      check_product(plain(sizes(form[0], form[1], "mn", 72, odd, 136), DType::F16),
                    "bm=64 bn=64 stages=3 staged=1 swap=1 wm=1 @mma=wgmma");
    }
  check_product(plain(sizes("bmk", "bkn", "bmn", 36, 72, 92, 3), DType::BF16), kWgmma, 3);
  check_product(plain(sizes("mk", "nk", "mn", 140, 68, 332), DType::BF16),
                kWgmma + " @split_reduce=3", 3);
  check_product(plain(sizes("mk", "kn", "mn", 150, 68, 324), DType::BF16),
                "bm=128 bn=64 staged=1 stages=2 streamk=3 wm=2 @mma=wgmma", 3);
  // Consumers get registers from producers that copy.
  check_product(plain(sizes("mk", "nk", "mn", 132, 260, 100), DType::BF16),
                "bm=128 bn=192 stages=2 wm=2 @mma=wgmma");
  const Expr m = Expr::symbol("m", 1, 1000), k = Expr::symbol("k", 4, 1000, 4);
  backend::reference::Bindings dims;
  dims.set(m, 45);
  dims.set(k, 132);
  check_product(plain(sizes("mk", "nk", "mn", m, 72, k), DType::BF16), kWgmma, 2, dims);
}

TEST(GpuContraction, WarpGroupsTakeTilesInTurn) {
  const std::string turns = "bm=64 bn=64 wm=1 pingpong=2 @mma=wgmma @order=fixed/2 ";
  for (const int workers : {1, 3})
    for (const auto& form : kForms) {
      check_product(plain(sizes(form[0], form[1], "mn", 200, 136, 136), DType::BF16),
                    turns + "stages=2", workers);
      check_product(plain(sizes(form[0], form[1], "mn", 72, 200, 328), DType::F16),
                    turns + "staged=1 stages=3", workers);
      // Fewer pieces than the ring has, and one tile.
      check_product(plain(sizes(form[0], form[1], "mn", 200, 72, 64), DType::BF16),
                    turns + "stages=5", workers);
      check_product(plain(sizes(form[0], form[1], "mn", 40, 64, 264), DType::BF16),
                    turns + "stages=4", workers);
    }
  // Consumers get registers from producers; two groups of a tile, three sets; pieces by threads.
  check_product(plain(sizes("mk", "nk", "mn", 300, 264, 136), DType::BF16),
                "bm=128 bn=128 stages=3 staged=1 wm=1 pingpong=2 @mma=wgmma", 2);
  check_product(plain(sizes("mk", "nk", "mn", 600, 72, 136), DType::BF16),
                "bm=128 bn=64 stages=2 staged=1 wm=2 pingpong=2 @mma=wgmma", 1);
  check_product(plain(sizes("mk", "nk", "mn", 600, 72, 136), DType::BF16),
                "bm=64 bn=64 stages=2 wm=1 pingpong=3 @mma=wgmma", 1);
  check_product(plain(sizes("mk", "nk", "mn", 210, 140, 70), DType::BF16), turns + "stages=3", 2);
  const Expr m = Expr::symbol("m", 1, 1000), k = Expr::symbol("k", 4, 1000, 4);
  backend::reference::Bindings dims;
  dims.set(m, 245);
  dims.set(k, 332);
  check_product(plain(sizes("mk", "nk", "mn", m, 72, k), DType::BF16), turns + "stages=3", 2, dims);
  const auto reason = [](const std::string& schedule) {
    return kernel::gpu_contraction_generator()
        .lower(plain(sizes("mk", "kn", "mn", 200, 136, 512), DType::BF16),
               kernel::parse_schedule("gpu_contraction " + schedule), gpu())
        .reason;
  };
  EXPECT_EQ(reason(turns + "stages=2 @split_reduce=2"),
            "tiles in turn are whole ones that are stored");
  EXPECT_EQ(reason(kMma + " pingpong=2"), "pingpong is of wgmma alone");
}

TEST(GpuContraction, WarpGroupsShareTheDepthOut) {
  for (const int workers : {1, 3, 5}) {
    check_product(plain(sizes("mk", "nk", "mn", 72, 136, 328), DType::BF16),
                  kWgmma + " @split_reduce=3", workers);
    check_product(plain(sizes("km", "kn", "mn", 136, 72, 640), DType::BF16),
                  "bm=128 bn=64 staged=1 stages=2 wm=2 @mma=wgmma @split_reduce=5 @order=fixed/2",
                  workers);
  }
  check_product(plain(sizes("bmk", "bkn", "bmn", 72, 72, 136, 3), DType::BF16),
                kWgmma + " @split_reduce=2", 3);
  check_product(plain(sizes("mk", "nk", "mn", 24, 136, 200), DType::BF16),
                "bm=64 bn=16 stages=3 wm=1 swap=1 @mma=wgmma @split_reduce=2", 3);
  // Groups of warps that take registers from the one that copies, and share them again.
  check_product(plain(sizes("mk", "nk", "mn", 128, 256, 128), DType::F16),
                "bm=128 bn=256 staged=1 stages=2 wm=2 @mma=wgmma @split_reduce=2", 2);
}

TEST(GpuContraction, EveryShareOfTheDepthHasWork) {
  const auto reason = [](const Expr& k, const char* split) {
    return kernel::gpu_contraction_generator()
        .lower(plain(sizes("mk", "nk", "mn", 64, 64, k), DType::BF16),
               kernel::parse_schedule("gpu_contraction " + kWgmma + " @split_reduce=" + split),
               gpu())
        .reason;
  };
  EXPECT_EQ(reason(320, "4"), // five pieces, two a share
            "the depth has not as many pieces as it is to be shared out");
  EXPECT_EQ(reason(320, "3"), "");
  // None that has not is offered.
  kernel::Target target = gpu(90);
  target.workers = 132;
  for (const int depth : {4096, 5000, 18816, 100352}) {
    const kernel::Region r = plain(sizes("mk", "nk", "mn", 64, 192, depth), DType::BF16);
    for (const kernel::Schedule& s : kernel::gpu_contraction_generator().space(r, target))
      if (s.mma == "wgmma" && s.split_reduce > 1) {
        EXPECT_EQ(kernel::gpu_contraction_generator().lower(r, s, target).reason, "")
            << depth << " " << to_string(s);
      }
  }
}

TEST(GpuContraction, FewTilesShareADeepProduct) {
  const auto split = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    kernel::Target target = gpu(90);
    target.workers = 132;
    const auto space = kernel::gpu_contraction_generator().space(
        plain(sizes("km", "kn", "mn", m, n, k), DType::BF16), target);
    EXPECT_EQ(space.at(0).mma, "wgmma");
    return space.at(0).split_reduce;
  };
  EXPECT_GT(split(64, 576, 100352), 16); // few tiles
  EXPECT_GT(split(768, 768, 32768), 1);  // gradients of weights
  EXPECT_GT(split(768, 3072, 32768), 1);
  EXPECT_EQ(split(32768, 768, 3072), 1); // enough tiles for all
  EXPECT_EQ(split(768, 3072, 256), 1);   // not deep enough
}

// [b, h, s, d] read as [b, s, h * d], as attention leaves its result: the depth, or the columns,
// and the rows are several axes of memory.
TEST(GpuContraction, TheCopyEngineFollowsAxesOverTheirEdges) {
  const auto heads = [](Graph& g) {
    const NodeId x = g.input("x", DType::BF16, {2, 3, 64, 64});
    return g.reshape(g.permute(x, {0, 2, 1, 3}), {2, 64, 192});
  };
  const kernel::Region rows = built_region([&](Graph& g) {
    const Einsum e{"bsk", "nk", "bsn", {{'b', 2}, {'s', 64}, {'k', 192}, {'n', 72}}};
    return std::vector{testing::einsum(g, heads(g), input(g, "w", "nk", e, DType::BF16), e)};
  });
  check_product(rows, kWgmma);
  const kernel::Region columns = built_region([&](Graph& g) {
    const Einsum e{"kn", "km", "nm", {{'k', 128}, {'n', 72}, {'m', 192}}};
    return std::vector{testing::einsum(g, input(g, "y", "kn", e, DType::BF16),
                                       g.reshape(heads(g), {128, 192}), e)};
  });
  check_product(columns, kWgmma);
}

TEST(GpuContraction, TheCopyEngineTakesOnlyWhatItCan) {
  const auto reason = [](const kernel::Region& region, const std::string& schedule) {
    const auto lowered = kernel::gpu_contraction_generator().lower(
        region, kernel::parse_schedule("gpu_contraction " + schedule), gpu());
    EXPECT_FALSE(lowered.ok);
    return lowered.reason;
  };
  EXPECT_EQ(reason(plain(sizes("mk", "kn", "mn", 64, 64, 61), DType::BF16), kWgmma),
            "a factor's rows do not begin at multiples of 4 bytes");
  EXPECT_EQ(reason(plain(sizes("mk", "kn", "mn", 64, 64, 64), DType::F32), kWgmma),
            "its factors are not both bf16 or both f16");
  EXPECT_EQ(reason(busy(sizes("mk", "kn", "mn", 64, 64, 64), DType::BF16), kWgmma),
            "a factor is no array of two-byte elements");
}

TEST(GpuContraction, SizesMayBeSymbols) {
  const Expr m = Expr::symbol("m", 1, 1000), k = Expr::symbol("k", 8, 1000, 8);
  backend::reference::Bindings dims;
  dims.set(m, 45);
  dims.set(k, 24);
  check_product(plain(sizes("mk", "kn", "mn", m, 40, k), DType::F32), kFma, 2, dims);
  check_product(plain(sizes("mk", "kn", "mn", m, 40, k), DType::BF16), kMma, 2, dims);
  check_product(plain(sizes("mk", "kn", "mn", m, 72, k), DType::BF16), kWgmma, 2, dims);
  for (const auto& form : kForms)
    check_product(plain(sizes(form[0], form[1], "mn", m, 72, k), DType::F32),
                  kWgmma + " split_parts=1", 2, dims);
}

TEST(GpuContraction, SchedulesOfTheSpacePass) {
  for (const auto& region : {plain(sizes("mk", "kn", "mn", 72, 72, 72), DType::BF16),
                             plain(sizes("mk", "nk", "mn", 50, 36, 36), DType::F32)}) {
    const auto space = kernel::gpu_contraction_generator().space(region, gpu());
    for (std::size_t i = 0; i < space.size(); ++i) {
      const std::string text = to_string(space[i]);
      EXPECT_EQ(kernel::parse_schedule(text), space[i]);
      if (i % 3 == 0) // large tiles take their time here
        check_product(region, text.substr(text.find(' ') + 1), 3);
    }
  }
}

TEST(GpuContraction, SpaceIsForTheTarget) {
  const auto region = plain(sizes("mk", "kn", "mn", 4096, 4096, 4096), DType::BF16);
  const auto hopper = kernel::gpu_contraction_generator().space(region, gpu(90)),
             ampere = kernel::gpu_contraction_generator().space(region, gpu(80));
  ASSERT_FALSE(hopper.empty());
  ASSERT_FALSE(ampere.empty());
  EXPECT_EQ(hopper[0].mma, "wgmma");
  EXPECT_EQ(ampere[0].mma, "m16n8k16");
  // Rows that are not aligned come element by element; with room at their ends, in boxes.
  const auto with_room = [&](std::int64_t room) {
    return built_region([&](Graph& g) {
      const Einsum e = sizes("mk", "nk", "mn", 667, 157, 10375);
      const auto side = [&](const char* name, std::int64_t rows) {
        const NodeId all = g.input(name, DType::BF16, {Expr(rows), Expr(10375 + room)});
        return g.shrink(all, {Expr(0), Expr(0)}, {Expr(rows), Expr(10375)});
      };
      return std::vector{testing::einsum(g, side("a", 667), side("b", 157), e)};
    });
  };
  EXPECT_EQ(kernel::gpu_contraction_generator().space(with_room(0), gpu()).at(0).mma, "m16n8k16");
  EXPECT_EQ(kernel::gpu_contraction_generator().space(with_room(1), gpu()).at(0).mma, "wgmma");
  // f32 stays as exact as f32.
  const auto f32 = plain(sizes("mk", "kn", "mn", 2048, 2048, 2048), DType::F32);
  for (const auto& s : kernel::gpu_contraction_generator().space(f32, gpu(90)))
    EXPECT_EQ(s.mma.empty(), s.knob("split_parts", 0) == 0) << to_string(s);
  EXPECT_EQ(kernel::gpu_contraction_generator().space(f32, gpu(90)).at(0).knob("split_parts", 0),
            1);
  for (const auto& s : kernel::gpu_contraction_generator().space(f32, gpu(80)))
    EXPECT_TRUE(s.mma.empty());
}

/// One to eight rows. `shares`: blocks that share the depth, of all schedules; 0: as they say.
void check_skinny(const kernel::Region& region, std::size_t schedules = 3,
                  std::int64_t shares = 0) {
  auto space = kernel::gpu_skinny_generator().space(region, gpu());
  ASSERT_FALSE(space.empty()) << kernel::print(region);
  for (std::size_t i = 0; i < space.size() && i < schedules; ++i) {
    if (shares > 0)
      space[i].split_reduce = shares;
    const kernel::Lowered lowered = kernel::gpu_skinny_generator().lower(region, space[i], gpu());
    ASSERT_TRUE(lowered.ok) << lowered.reason;
    const auto launch = [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
      backend::reference::interpret(program, block, {.workers = 3});
    };
    try {
      const auto result = verify_kernel(region, lowered.program, launch);
      ASSERT_TRUE(result.ok) << to_string(space[i]) << "\n"
                             << result.message << "\n"
                             << kernel::print(region);
    } catch (const std::exception& e) {
      FAIL() << to_string(space[i]) << "\n" << e.what() << "\n" << kernel::print(lowered.program);
    }
  }
}

TEST(GpuSkinny, AVectorTimesAMatrixInEveryLayout) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    check_skinny(plain(sizes("k", "nk", "n", 1, 70, 600), dtype), 100);
    check_skinny(plain(sizes("k", "kn", "n", 1, 70, 600), dtype), 100);
    check_skinny(plain(sizes("k", "nk", "n", 1, 9, 77), dtype));
    check_skinny(plain(sizes("k", "kn", "n", 1, 9, 77), dtype));
  }
}

/// Where neighbours along the depth lie apart in the few rows, or the matrix's rows are not
/// aligned, lanes beside each other read numbers beside each other.
TEST(GpuSkinny, LanesReadWhatLiesTogether) {
  const auto bytes = [](const kernel::Region& region) {
    const auto space = kernel::gpu_skinny_generator().space(region, gpu());
    return space.empty() ? -1 : space[0].vector_bytes;
  };
  EXPECT_EQ(bytes(plain(sizes("mk", "nk", "mn", 3, 70, 512), DType::F32)), 0);
  EXPECT_EQ(bytes(plain(sizes("mk", "nk", "mn", 3, 70, 510), DType::F32)), 8);
  EXPECT_EQ(bytes(plain(sizes("mk", "nk", "mn", 3, 70, 509), DType::BF16)), 2);
  EXPECT_EQ(bytes(plain(sizes("km", "nk", "mn", 3, 70, 512), DType::F32)), 4);
  for (const DType dtype : {DType::F32, DType::BF16}) {
    check_skinny(plain(sizes("km", "nk", "mn", 7, 70, 256), dtype), 100);
    check_skinny(plain(sizes("bkm", "bnk", "bmn", 8, 19, 77, 3), dtype), 100);
    check_skinny(plain(sizes("mk", "nk", "mn", 2, 70, 77), dtype), 100);
  }
}

TEST(GpuSkinny, SeveralRowsAndWorkAround) {
  check_skinny(plain(sizes("mk", "nk", "mn", 3, 70, 260), DType::BF16));
  // Of a depth that a warp has too many lanes for, it has several columns.
  for (const std::int64_t depth : {3, 20, 64, 128}) {
    check_skinny(plain(sizes("bmk", "bnk", "bmn", 4, 70, depth, 3), DType::BF16), 100);
    check_skinny(busy(sizes("mk", "nk", "mn", 2, 70, depth), DType::F32), 100);
  }
  check_skinny(plain(sizes("mk", "kn", "mn", 8, 72, 260), DType::F32));
  check_skinny(busy(sizes("mk", "kn", "mn", 2, 72, 70), DType::BF16));
  check_skinny(busy(sizes("mk", "nk", "mn", 2, 72, 70), DType::F32));
  check_skinny(plain(sizes("bmk", "bnk", "bmn", 2, 40, 96, 3), DType::F32));
  // Few columns are rows as well.
  check_skinny(plain(sizes("mk", "nk", "mn", 70, 2, 96), DType::F32));
}

TEST(GpuSkinny, BlocksShareTheDepthOfFewColumns) {
  // Values and weights of attention with 4 heads of one query over 8192 keys.
  const auto decode = plain(sizes("bmk", "bkn", "bmn", 4, 128, 8192, 2), DType::F32);
  const auto space = kernel::gpu_skinny_generator().space(decode, gpu());
  ASSERT_FALSE(space.empty());
  EXPECT_GT(space[0].split_reduce, 4) << to_string(space[0]);
  const kernel::Lowered lowered = kernel::gpu_skinny_generator().lower(decode, space[0], gpu());
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  EXPECT_GE(2 * lowered.program.launch.workers.value(), gpu().workers) << to_string(space[0]);
  // Where columns are enough for all multiprocessors, none shares.
  for (const kernel::Schedule& s : kernel::gpu_skinny_generator().space(
           plain(sizes("mk", "nk", "mn", 1, 65536, 512), DType::F16), gpu()))
    EXPECT_EQ(s.split_reduce, 1) << to_string(s);
  // Threads that read element by element have more blocks.
  const auto narrow = kernel::gpu_skinny_generator().space(
      plain(sizes("mk", "kn", "mn", 51, 3, 26791), DType::BF16), gpu());
  ASSERT_FALSE(narrow.empty());
  EXPECT_GT(narrow[0].split_reduce, 4) << to_string(narrow[0]);
  for (const std::int64_t shares : {2, 3, 7}) { // some of which have nothing to add
    check_skinny(plain(sizes("mk", "kn", "mn", 4, 40, 700), DType::F32), 2, shares);
    check_skinny(plain(sizes("mk", "nk", "mn", 3, 9, 700), DType::BF16), 2, shares);
    check_skinny(busy(sizes("bmk", "bkn", "bmn", 2, 24, 90, 3), DType::F32), 2, shares);
  }
  const Expr columns = Expr::symbol("n", 1, 1000);
  kernel::Schedule shared = kernel::parse_schedule("gpu_skinny @split_reduce=2");
  EXPECT_EQ(kernel::gpu_skinny_generator()
                .lower(plain(sizes("mk", "nk", "mn", 1, columns, 512), DType::F32), shared, gpu())
                .reason,
            "a split depth needs a known number of tiles");
}

} // namespace
} // namespace egret

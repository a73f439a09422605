#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "compiler/compile.h"
#include "kernel/contraction_form.h"
#include "kernel/contraction_segments.h"
#include "kernel/families.h"
#include "support/contraction_regions.h"
#include "support/cpu_levels.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace egret {
namespace {

using backend::reference::KernelCheckOptions;
using backend::reference::verify_kernel;
using ir::Graph;
using ir::NodeId;
using testing::Einsum;
using testing::input;
using testing::product_region;
using testing::region_of;
using testing::sizes;

/// Checks the first schedules on the CPU at each level (at lesser levels one), or interpreted with
/// its checks of bounds and races.
void check_contraction(const kernel::Region& region, std::size_t schedules = 2,
                       bool interpreted = false, const backend::reference::Bindings& sizes = {},
                       const KernelCheckOptions& options = {}) {
  const kernel::Generator& generator = kernel::contraction_generator();
  for (const std::string level : testing::cpu_levels()) {
    backend::Device& device = testing::cpu_at(level);
    auto space = generator.space(region, device.target());
    ASSERT_FALSE(space.empty()) << kernel::find_contraction(region).reason << "\n"
                                << kernel::print(region);
    space.resize(std::min<std::size_t>(space.size(), level == "native" ? schedules : 1));
    for (const kernel::Schedule& schedule : space) {
      const kernel::Lowered lowered = generator.lower(region, schedule, device.target());
      ASSERT_TRUE(lowered.ok) << lowered.reason;
      const auto launch = [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
        if (interpreted)
          backend::reference::interpret(program, block, {.workers = 2});
        else
          device.launch(*device.compile(program), program, block);
      };
      const auto result = verify_kernel(region, lowered.program, launch, sizes, options);
      ASSERT_TRUE(result.ok) << level << " " << to_string(schedule) << "\n"
                             << result.message << "\n"
                             << kernel::print(region);
    }
  }
}

TEST(ContractionForm, ColumnsAreWhatTheOutputIsContiguousAlong) {
  const auto region = product_region(sizes("mk", "kn", "mn", 6, 7, 8));
  const auto found = kernel::find_contraction(region);
  ASSERT_TRUE(found.ok) << found.reason;
  EXPECT_EQ(found.form.rows.extent, Expr(6));
  EXPECT_EQ(found.form.columns.extent, Expr(7));
  EXPECT_EQ(found.form.depth.extent, Expr(8));
  EXPECT_EQ(found.form.left.order, kernel::Side::Order::Depth);
  EXPECT_EQ(found.form.right.order, kernel::Side::Order::Panel);
  EXPECT_TRUE(found.form.left.plain && found.form.right.plain);
  // Written transposed, the sides change places.
  const auto swapped = kernel::find_contraction(product_region(sizes("mk", "kn", "nm", 6, 7, 8)));
  ASSERT_TRUE(swapped.ok);
  EXPECT_EQ(swapped.form.columns.extent, Expr(6));
}

/// x w^T where w is made of small integers, row by row, and a scale of each row.
kernel::Region scaled_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  const Einsum e = sizes("mk", "nk", "mn", m, n, k);
  return region_of([&](Graph& g) {
    const NodeId scale = g.reshape(g.input("s", DType::F32, {n}), {n, 1});
    const NodeId w = g.binary(Op::Mul, g.cast(input(g, "w", "nk", e, DType::I8), DType::F32),
                              g.expand(scale, {n, k}));
    return std::vector{testing::einsum(g, input(g, "a", "mk", e), w, e)};
  });
}

TEST(ContractionForm, AScaleOfEachRowDoesNotSayHowTheNumbersLie) {
  const auto found = kernel::find_contraction(scaled_product(4, 70, 96));
  ASSERT_TRUE(found.ok) << found.reason;
  EXPECT_EQ(found.form.right.order, kernel::Side::Order::Depth);
}

TEST(ContractionForm, AScaleOfEachBlockDoesNotSayHowTheNumbersLie) {
  // The scales' neighbours are blocks of the depth, the numbers' those within a block.
  constexpr std::int64_t kRows = 4, kColumns = 32, kBlocks = 6, kWithin = 16;
  const auto found = kernel::find_contraction(region_of([&](Graph& g) {
    const Shape box{kRows, kColumns, kBlocks, kWithin};
    const NodeId codes = g.cast(g.input("w", DType::I8, {kColumns, kBlocks, kWithin}), DType::F32),
                 scale = g.expand(g.reshape(g.input("s", DType::F32, {kColumns, kBlocks}),
                                            {kColumns, kBlocks, 1}),
                                  {kColumns, kBlocks, kWithin}),
                 w = g.reshape(g.binary(Op::Mul, codes, scale), {1, kColumns, kBlocks, kWithin}),
                 x = g.reshape(g.input("x", DType::F32, {kRows, kBlocks, kWithin}),
                               {kRows, 1, kBlocks, kWithin});
    return std::vector{
        g.reduce(Op::ReduceSum, g.binary(Op::Mul, g.expand(x, box), g.expand(w, box)), {2, 3})};
  }));
  ASSERT_TRUE(found.ok) << found.reason;
  ASSERT_EQ(found.form.depth.axes.size(), 2u);
  EXPECT_EQ(found.form.right.order, kernel::Side::Order::Depth);
  EXPECT_EQ(found.form.left.depth_stride, 1);
}

TEST(Contraction, PanelsThatAreReadOnceArePackedByTheirReader) {
  const auto region = scaled_product(4, 70, 96);
  check_contraction(region, 3);
  check_contraction(scaled_product(3, 37, 40), 2, true);
  const kernel::Target target = testing::cpu_at("native").target();
  EXPECT_EQ(kernel::contraction_generator().space(region, target).at(0).knob("shared", -1), 0);
  EXPECT_EQ(kernel::contraction_generator()
                .space(scaled_product(20000, 70, 96), target)
                .at(0)
                .knob("shared", -1),
            1);
}

TEST(Contraction, VectorsThatGoOverTheEndOfAnAxisArePacked) {
  // result[b,m,n] = sum of left[m,k] * right[b,k,n]: the columns are b and n, and several tiles of
  // rows read them.
  for (const std::int64_t n : {7, 8, 9, 15, 19, 32}) {
    const auto region = product_region(sizes("mk", "bkn", "bmn", 41, n, 11, 3));
    const auto found = kernel::find_contraction(region);
    ASSERT_TRUE(found.ok) << found.reason;
    EXPECT_EQ(found.form.columns.axes.size(), 2U);
    for (const std::string level : testing::cpu_levels()) {
      const kernel::Target& target = testing::cpu_at(level).target();
      const auto space = kernel::contraction_generator().space(region, target);
      const auto lanes = target.vector_bytes / std::int64_t(size_of(DType::F32));
      EXPECT_EQ(space.at(0).knob("pack_right", -1), n % lanes == 0 ? 0 : 1) << level << " " << n;
    }
    check_contraction(region, 4);
  }
}

TEST(Contraction, RowsThatOneBlockReadsArePackedByIt) {
  // The left side is a transposed sum, so it is packed, and all columns are one block.
  const auto region = region_of([](Graph& g) {
    const Einsum e = sizes("km", "kn", "mn", 37, 20, 50);
    const NodeId a = input(g, "a", "km", e);
    return std::vector{testing::einsum(g, g.binary(Op::Add, a, a), input(g, "b", "kn", e), e)};
  });
  bool own = false;
  for (const auto& schedule :
       kernel::contraction_generator().space(region, testing::cpu_at("native").target()))
    own |= schedule.knob("shared", -1) == 2;
  EXPECT_TRUE(own);
  check_contraction(region, 1000);
  check_contraction(region, 1000, true);
}

/// left[m,k] * right[b,k,n], where the right side is `first` and behind it, along the depth,
/// `second`: both [b,n,half], so that neighbours along the depth are neighbours in memory.
kernel::Region joined_product(std::int64_t m, std::int64_t n, std::int64_t half, std::int64_t b) {
  const Einsum e = sizes("mk", "bkn", "bmn", m, n, 2 * half, b);
  return region_of([&](Graph& g) {
    const auto part = [&](const char* name, std::int64_t before) {
      const NodeId turned = g.permute(g.input(name, DType::F32, {b, n, half}), {0, 2, 1});
      return g.pad(turned, {0, before, 0}, {0, half - before, 0}, Scalar::of(DType::F32, 0.0));
    };
    const NodeId step = g.expand(g.reshape(g.iota(2 * half), {1, 2 * half, 1}), {b, 2 * half, n});
    const NodeId end = g.broadcast(g.constant(DType::I64, double(half)), {b, 2 * half, n});
    const NodeId right =
        g.select(g.binary(Op::Lt, step, end), part("first", 0), part("second", half));
    return std::vector{testing::einsum(g, input(g, "a", "mk", e), right, e)};
  });
}

/// left[m,k] * right[b,k,n], where the depth is an axis of 2 outside of n and one of `half` inside.
kernel::Region divided_product(std::int64_t m, std::int64_t n, std::int64_t half, std::int64_t b) {
  const Einsum e = sizes("mk", "bkn", "bmn", m, n, 2 * half, b);
  return region_of([&](Graph& g) {
    const NodeId x = g.permute(g.input("x", DType::F32, {b, 2, n, half}), {0, 1, 3, 2});
    const NodeId right = g.reshape(x, {b, 2 * half, n});
    return std::vector{testing::einsum(g, input(g, "a", "mk", e), right, e)};
  });
}

bool has(const std::string& line, const std::string& word) {
  return line.find(word) != std::string::npos;
}

/// The lines of the program that the first schedule gives that have all of `words`.
std::vector<std::string> lines_of_first(const kernel::Region& region, const kernel::Target& target,
                                        const std::vector<std::string>& words) {
  const kernel::Generator& generator = kernel::contraction_generator();
  const kernel::Lowered lowered =
      generator.lower(region, generator.space(region, target).at(0), target);
  EXPECT_TRUE(lowered.ok) << lowered.reason;
  std::istringstream text(kernel::print(lowered.program));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);)
    if (std::ranges::all_of(words, [&](const std::string& word) { return has(line, word); }))
      lines.push_back(line);
  return lines;
}

TEST(ContractionSegments, EndWhereWhatTheSideReadsChanges) {
  const auto segments = [](const kernel::Region& region) {
    const auto found = kernel::find_contraction(region);
    EXPECT_TRUE(found.ok) << found.reason;
    EXPECT_EQ(found.form.right.order, kernel::Side::Order::Depth);
    return kernel::segments_of_depth(region, found.form, found.form.right);
  };
  using Begins = std::vector<std::int64_t>;
  EXPECT_EQ(segments(joined_product(40, 10, 20, 30)), (Begins{0, 20}));
  EXPECT_EQ(segments(divided_product(40, 10, 20, 30)), (Begins{0, 20}));
  EXPECT_EQ(segments(product_region(sizes("mk", "bnk", "bmn", 40, 10, 20, 30))), Begins{0});
}

TEST(ContractionSegments, ArePackedByVectorsOfNeighbours) {
  for (const std::string level : testing::cpu_levels()) {
    const kernel::Target& target = testing::cpu_at(level).target();
    // Neither masks nor choices: each tensor is read in its segment only.
    const auto joined = joined_product(40, 10, 20, 30);
    EXPECT_FALSE(lines_of_first(joined, target, {"load first["}).empty());
    EXPECT_TRUE(lines_of_first(joined, target, {"load first[", "where"}).empty());
    EXPECT_TRUE(lines_of_first(joined, target, {"load second[", "where"}).empty());
    EXPECT_TRUE(lines_of_first(joined, target, {"select"}).empty());
    // Lanes are neighbours along the depth.
    const auto divided = divided_product(40, 10, 20, 30);
    for (const std::string& line : lines_of_first(divided, target, {"load x["}))
      EXPECT_TRUE(has(line, "load x[lane + ")) << line;
  }
  for (const std::int64_t half : {3, 8, 13, 20, 40}) { // shorter than a vector, and longer
    check_contraction(joined_product(9, 10, half, 7), 6);
    check_contraction(divided_product(9, 10, half, 7), 6);
  }
  check_contraction(joined_product(9, 10, 20, 7), 100, true);
  check_contraction(divided_product(9, 6, 5, 7), 100, true);
  check_contraction(divided_product(9, 10, 300, 7), 6); // a depth of several parts
}

/// left[m,k] * right[b,k,n], where every second element of the right side's memory counts.
kernel::Region spread_product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t b) {
  const Einsum e = sizes("mk", "bkn", "bmn", m, n, k, b);
  return region_of([&](Graph& g) {
    const NodeId x = g.shrink(g.input("x", DType::F32, {b, k, n, 2}), {0, 0, 0, 1}, {b, k, n, 2});
    return std::vector{testing::einsum(g, input(g, "a", "mk", e), g.reshape(x, {b, k, n}), e)};
  });
}

TEST(Contraction, RunsOfWhatLiesApartAreInWholeVectors) {
  // result[b,m,n] with an n that is no whole vectors: those that go over its end would be gathered.
  const kernel::Generator& generator = kernel::contraction_generator();
  for (const std::string level : testing::cpu_levels()) {
    const kernel::Target& target = testing::cpu_at(level).target();
    const auto region = spread_product(20, 31, 20, 300);
    EXPECT_EQ(generator.space(region, target).at(0).knob("padded", 0), 1) << level;
    for (const char* access : {"store out0[", "load x["}) {
      const auto lines = lines_of_first(region, target, {access, "lane"});
      EXPECT_FALSE(lines.empty());
      for (const std::string& line : lines)
        EXPECT_FALSE(has(line, "(lane") || has(line, "(2*lane")) << line; // divided
    }
  }
  const kernel::Target target = testing::cpu_at("native").target();
  for (const std::int64_t n : {3, 9, 19}) {
    const auto region = product_region(sizes("mk", "bkn", "bmn", 11, n, 13, 7));
    const auto space = generator.space(region, target);
    EXPECT_TRUE(std::ranges::any_of(
        space, [](const kernel::Schedule& s) { return s.knob("padded", 0) == 1; }));
    check_contraction(region, 100);
    check_contraction(region, 100, true);
    check_contraction(spread_product(9, n, 8, 5), 100);
    check_contraction(spread_product(9, n, 8, 5), 100, true);
  }
  check_contraction(joined_product(11, 10, 20, 7), 100);
  // Whole vectors have no runs.
  const auto whole = product_region(sizes("mk", "bkn", "bmn", 11, 64, 13, 7));
  kernel::Schedule schedule = generator.space(whole, target).at(0);
  schedule.knobs["padded"] = 1;
  EXPECT_FALSE(generator.lower(whole, schedule, target).ok);
}

TEST(ContractionForm, SaysWhyARegionIsNone) {
  const auto reason = [](const std::function<NodeId(Graph&)>& make) {
    const auto found =
        kernel::find_contraction(region_of([&](Graph& g) { return std::vector{make(g)}; }));
    EXPECT_FALSE(found.ok);
    return found.reason;
  };
  EXPECT_EQ(reason([](Graph& g) { return g.unary(Op::Sqrt, g.input("x", DType::F32, {4})); }),
            "it reduces nothing");
  EXPECT_EQ(reason([](Graph& g) {
              return g.reduce(Op::ReduceMax, g.input("x", DType::F32, {4, 5}), {1});
            }),
            "it does not sum one value");
  EXPECT_EQ(reason([](Graph& g) {
              return g.reduce(Op::ReduceSum, g.input("x", DType::F32, {4, 5}), {1});
            }),
            "the summed value is no product");
  EXPECT_EQ(reason([](Graph& g) {
              NodeId x = g.input("x", DType::F32, {4, 5});
              return g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, x), {1});
            }),
            "one side has no axis of its own");
  const Einsum e = sizes("mk", "kn", "mn", 3, 4, 5);
  EXPECT_EQ(reason([&](Graph& g) {
              return testing::einsum(g, input(g, "a", "mk", e, DType::I8),
                                     input(g, "b", "kn", e, DType::I8), e);
            }),
            "it accumulates in i8");
}

TEST(Contraction, EverySchedulePassesAtEveryLevel) {
  check_contraction(product_region(sizes("mk", "kn", "mn", 37, 70, 300)), 100);
  check_contraction(product_region(sizes("mk", "nk", "mn", 20, 100, 64)));
  check_contraction(product_region(sizes("km", "kn", "mn", 33, 48, 100)));
  check_contraction(product_region(sizes("km", "nk", "mn", 17, 35, 19)));
}

TEST(Contraction, LongDepthsGoInParts) {
  check_contraction(product_region(sizes("mk", "kn", "mn", 70, 90, 1030)));
  check_contraction(product_region(sizes("km", "nk", "mn", 64, 128, 1024)));
}

TEST(Contraction, InterpreterFindsNoBadAccess) {
  for (const char* form : {"mk", "km"})
    for (const char* other : {"kn", "nk"}) {
      check_contraction(product_region(sizes(form, other, "mn", 19, 37, 21)), 100, true);
      check_contraction(product_region(sizes(form, other, "mn", 8, 32, 16)), 3, true);
    }
  check_contraction(product_region(sizes("bmk", "bkn", "bmn", 5, 20, 9, 7)), 100, true);
  check_contraction(product_region(sizes("mk", "kn", "mn", 5, 18, 700)), 2, true);
}

TEST(Contraction, Batches) {
  check_contraction(product_region(sizes("bmk", "bkn", "bmn", 20, 36, 24, 3)));
  check_contraction(product_region(sizes("bmk", "bnk", "bmn", 16, 32, 8, 9)));
  check_contraction(product_region(sizes("mbk", "bkn", "mbn", 18, 24, 12, 5)));
}

TEST(Contraction, SmallAndOddSizes) {
  for (const int m : {2, 3, 9})
    for (const int n : {2, 5, 17})
      for (const int k : {2, 7})
        check_contraction(product_region(sizes("mk", "kn", "mn", m, n, k)), 2);
}

TEST(Contraction, EmptyShapes) {
  const Expr k = Expr::symbol("K", 0, 100), m = Expr::symbol("M", 0, 100);
  backend::reference::Bindings none;
  none.set(k, 0);
  none.set(m, 5);
  check_contraction(product_region(sizes("mk", "kn", "mn", m, 5, k)), 2, false, none);
  backend::reference::Bindings nothing;
  nothing.set(k, 3);
  nothing.set(m, 0);
  check_contraction(product_region(sizes("mk", "kn", "mn", m, 5, k)), 2, false, nothing);
  // Where a size is known to be 0 there is nothing to compute.
  const auto region = product_region(sizes("mk", "kn", "mn", 0, 5, 3));
  for (const auto& schedule :
       kernel::contraction_generator().space(region, testing::cpu_at("native").target()))
    EXPECT_TRUE(kernel::contraction_generator()
                    .lower(region, schedule, testing::cpu_at("native").target())
                    .ok);
}

TEST(Contraction, OtherTypes) {
  const Einsum e = sizes("mk", "kn", "mn", 21, 40, 33);
  check_contraction(product_region(e, DType::F64));
  check_contraction(product_region(e, DType::I32));
  check_contraction(product_region(e, DType::I64));
  for (const DType low : {DType::BF16, DType::F16}) {
    const auto region = region_of([&](Graph& g) {
      const NodeId a = g.cast(input(g, "a", "mk", e, low), DType::F32);
      const NodeId b = g.cast(input(g, "b", "kn", e, low), DType::F32);
      return std::vector{g.cast(testing::einsum(g, a, b, e), low)};
    });
    // A sum near the middle of two neighbours may go to either.
    check_contraction(region, 2, false, {}, {.scale = 2});
  }
}

/// Factors in bf16, summed in f32; `work` on the left one and after the product.
kernel::Region low_region(const Einsum& e, bool work = false, DType low = DType::BF16) {
  return region_of([&](Graph& g) {
    NodeId a = input(g, "a", e.left, e, low);
    if (work) {
      const NodeId zero = g.broadcast(g.constant(low, 0), e.shape_of(e.left));
      a = g.select(g.binary(Op::Lt, zero, a), a, zero);
    }
    const NodeId b = g.cast(input(g, "b", e.right, e, low), DType::F32);
    NodeId product = testing::einsum(g, g.cast(a, DType::F32), b, e);
    if (work)
      product = g.binary(Op::Add, product, input(g, "c", e.result, e));
    return std::vector{product};
  });
}

/// Products of pairs at every level, by code for CPUs that have none where the level has none.
void check_pairs(const kernel::Region& region, const std::string& knobs = "mr=2 nr=16 unroll=1",
                 const std::string& unit = "bf16_pairs") {
  const auto schedule = kernel::parse_schedule("contraction " + knobs + " @mma=" + unit);
  for (const std::string level : testing::cpu_levels()) {
    backend::Device& device = testing::cpu_at(level);
    kernel::Target target = device.target();
    testing::set_units(target, true);
    const auto lowered = kernel::contraction_generator().lower(region, schedule, target);
    ASSERT_TRUE(lowered.ok) << lowered.reason;
    EXPECT_NE(kernel::print(lowered.program).find("u32"), std::string::npos);
    for (const bool interpreted : {false, true}) {
      if (interpreted && level != "native")
        continue;
      const auto launch = [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
        if (interpreted)
          backend::reference::interpret(program, block, {.workers = 2});
        else
          device.launch(*device.compile(program), program, block);
      };
      const auto result = verify_kernel(region, lowered.program, launch);
      ASSERT_TRUE(result.ok) << level << " " << to_string(schedule) << "\n"
                             << result.message << "\n"
                             << kernel::print(region);
    }
  }
}

TEST(ContractionPairs, AreRightInEveryLayoutAndSize) {
  for (const char* left : {"mk", "km"})
    for (const char* right : {"kn", "nk"}) {
      check_pairs(low_region(sizes(left, right, "mn", 19, 37, 38)), "kc=16 mr=3 nr=16 unroll=1");
      check_pairs(low_region(sizes(left, right, "mn", 2, 3, 2)));
      check_pairs(low_region(sizes(left, right, "mn", 8, 32, 16)), "mr=2 nr=16 shared=0");
      // A depth that ends within a pair: by packed panels, and by what lies in memory.
      for (const std::int64_t depth : {3, 37}) {
        check_pairs(low_region(sizes(left, right, "mn", 19, 37, depth)), "kc=16 mr=3 nr=16");
        check_pairs(low_region(sizes(left, right, "mn", 3, 37, depth)),
                    "mr=3 nr=32 pack_left=0 pack_right=0 shared=0");
      }
      check_pairs(low_region(sizes(left, right, "mn", 3, 24, 33)),
                  "mr=2 nr=20 kc=16 pack_left=0 @vector_bytes=16");
    }
  check_pairs(low_region(sizes("bmk", "bkn", "bmn", 10, 20, 8, 3)),
              "mc=4 nc=16 mr=2 nr=16 unroll=1");
  check_pairs(low_region(sizes("mk", "kn", "mn", 19, 40, 34), true), "mr=2 nr=32 unroll=1");
  check_pairs(low_region(sizes("mk", "kn", "mn", 19, 40, 34)),
              "mr=2 nr=16 unroll=1 @vector_bytes=32");
}

/// A product of narrow integers, summed in i32.
kernel::Region integer_region(const Einsum& e, DType left, DType right, double zero = 0) {
  return region_of([&](Graph& g) {
    const auto factor = [&](const char* name, const std::string& letters, DType type) {
      const NodeId v = g.cast(input(g, name, letters, e, type), DType::I32);
      if (zero == 0)
        return v;
      const NodeId point = g.reshape(g.constant(DType::I32, -zero), Shape(letters.size(), Expr(1)));
      return g.binary(Op::Add, v, g.expand(point, e.shape_of(letters)));
    };
    return std::vector{
        testing::einsum(g, factor("a", e.left, left), factor("b", e.right, right), e)};
  });
}

TEST(IntegerPairs, AreExactInEveryLayoutAndType) {
  for (const auto& [left, right] : {std::pair{DType::I8, DType::I8},
                                    {DType::U8, DType::I8},
                                    {DType::I16, DType::I16},
                                    {DType::I16, DType::U8}})
    for (const char* order : {"kn", "nk"})
      for (const std::int64_t rows : {3, 19})
        check_pairs(integer_region(sizes("mk", order, "mn", rows, 37, 35), left, right),
                    "kc=16 mr=3 nr=16 pack_left=0 pack_right=0", "i16_pairs");
  check_pairs(integer_region(sizes("bkm", "bkn", "bmn", 9, 12, 8, 2), DType::I8, DType::U8),
              "mr=2 nr=8 @vector_bytes=16", "i16_pairs");
  // Less a zero point, with a depth that ends within a pair, and packed or not.
  for (const char* packed : {"pack_left=0 pack_right=0", "pack_left=1 pack_right=1"})
    check_pairs(integer_region(sizes("mk", "nk", "mn", 19, 37, 35), DType::U8, DType::I8, 128),
                fmt::format("kc=16 mr=3 nr=16 {}", packed), "i16_pairs");
}

TEST(IntegerPairs, AreTheFirstChoiceForWhatTheyMultiply) {
  for (const std::string level : testing::cpu_levels()) {
    const kernel::Target& target = testing::cpu_at(level).target();
    const auto unit = [&](DType left, DType right) {
      const auto region = integer_region(sizes("mk", "kn", "mn", 64, 64, 64), left, right);
      return kernel::contraction_generator().space(region, target)[0].mma;
    };
    EXPECT_EQ(unit(DType::I8, DType::I8), "i16_pairs") << level;
    EXPECT_EQ(unit(DType::U8, DType::I16), "i16_pairs") << level;
    EXPECT_EQ(unit(DType::U16, DType::I8), "") << level;
    EXPECT_EQ(unit(DType::I32, DType::I8), "") << level;
  }
}

TEST(ContractionPairs, ReadPlacesThatAreReadOnceOrLieInPairs) {
  kernel::Target target = testing::cpu_at("native").target();
  testing::set_units(target, true);
  const auto first = [&](const char* left, const char* right, std::int64_t rows) {
    const auto region = low_region(sizes(left, right, "mn", rows, 96, 64));
    return kernel::contraction_generator().space(region, target)[0];
  };
  EXPECT_EQ(first("mk", "kn", 64).knob("pack_left", 1), 0);
  EXPECT_EQ(first("km", "kn", 64).knob("pack_left", 0), 1) << "its pairs lie apart";
  EXPECT_EQ(first("mk", "kn", 64).knob("pack_right", 0), 1) << "several tiles of rows read it";
  EXPECT_EQ(first("mk", "kn", 2).knob("pack_right", 1), 0) << "one does";
  EXPECT_EQ(first("mk", "nk", 2).knob("pack_right", 0), 1) << "columns lie apart";
}

TEST(Contraction, TakesVectorsThatFewColumnsFill) {
  kernel::Target target = testing::cpu_at("native").target();
  target.vector_bytes = 64;
  const auto bytes = [&](std::int64_t columns) {
    const auto region = product_region(sizes("mk", "kn", "mn", 64, columns, 64));
    return kernel::contraction_generator().space(region, target)[0].vector_bytes;
  };
  EXPECT_EQ(bytes(2), 32);
  EXPECT_EQ(bytes(8), 32);
  EXPECT_EQ(bytes(9), 0) << "the target's";
}

TEST(ContractionPairs, AreProposedAndRefusedByTheFactors) {
  kernel::Target target = testing::cpu_at("native").target();
  const auto& generator = kernel::contraction_generator();
  const auto schedule = kernel::parse_schedule("contraction @mma=bf16_pairs");
  const auto proposed = [&](const kernel::Region& region) {
    const auto space = generator.space(region, target);
    return std::any_of(space.begin(), space.end(), [](const auto& s) { return !s.mma.empty(); });
  };
  const auto reason = [&](const kernel::Region& region) {
    EXPECT_FALSE(proposed(region));
    return generator.lower(region, schedule, target).reason;
  };
  const Einsum e = sizes("mk", "kn", "mn", 64, 64, 64);
  testing::set_units(target, true);
  for (const std::int64_t depth : {64, 63})
    EXPECT_EQ(generator.space(low_region(sizes("mk", "kn", "mn", 64, 64, depth)), target)[0].mma,
              "bf16_pairs");
  EXPECT_FALSE(proposed(low_region(sizes("mk", "kn", "mn", 64, 64, 1))));
  EXPECT_EQ(reason(product_region(e)), "its factors are not bf16, summed in f32");
  EXPECT_EQ(reason(low_region(e, false, DType::F16)), "its factors are not bf16, summed in f32");
  EXPECT_EQ(generator.lower(low_region(e), kernel::parse_schedule("contraction @mma=wgmma"), target)
                .reason,
            "contraction takes no @mma of wgmma");
  testing::set_units(target, false);
  EXPECT_EQ(reason(low_region(e)), "this CPU multiplies no pairs of bf16");
}

TEST(Contraction, PrologueAndEpilogue) {
  const Einsum e = sizes("mk", "kn", "mn", 26, 40, 35);
  const auto region = region_of([&](Graph& g) {
    const NodeId a = input(g, "a", "mk", e), x = input(g, "x", "mk", e), b = input(g, "b", "nk", e);
    const NodeId zero = g.broadcast(g.constant(DType::F32, 0), e.shape_of("mk"));
    const NodeId masked = g.select(g.binary(Op::Lt, zero, x), a, zero);
    Einsum transposed = e;
    transposed.right = "nk";
    const NodeId product = testing::einsum(g, masked, b, transposed);
    const NodeId bias = g.broadcast(g.input("bias", DType::F32, {e.extent('n')}), e.shape_of("mn"));
    const NodeId before = g.binary(Op::Add, product, bias);
    const NodeId after = g.binary(Op::Mul, g.unary(Op::Tanh, before),
                                  g.input("scale", DType::F32, e.shape_of("mn")));
    return std::vector{before, after};
  });
  ASSERT_EQ(region.outputs.size(), 2u);
  check_contraction(region);
  check_contraction(region, 2, true);
}

TEST(Contraction, PaddedOperandsReadTheirFill) {
  const Einsum e = sizes("mk", "kn", "mn", 24, 36, 20);
  check_contraction(region_of([&](Graph& g) {
    const NodeId a =
        g.pad(g.input("a", DType::F32, {20, 17}), {1, 2}, {3, 1}, Scalar::of(DType::F32, 0.5));
    return std::vector{testing::einsum(g, a, input(g, "b", "kn", e), e)};
  }));
}

TEST(Contraction, HeadsOfAttention) {
  // [B,T,H,D] read as [B,H,T,D]; scores, values, and the projection of the joined heads.
  const Einsum scores{
      "bthd", "bshd", "bhts", {{'b', 2}, {'t', 18}, {'s', 18}, {'h', 3}, {'d', 16}}};
  check_contraction(product_region(scores));
  const Einsum values{"bhts", "bshd", "bthd", scores.extents};
  check_contraction(product_region(values));
  const Einsum project{"bhtd", "hdn", "btn", {{'b', 2}, {'t', 18}, {'h', 3}, {'d', 16}, {'n', 40}}};
  check_contraction(product_region(project));
  const Einsum gradient{"bhtd", "btn", "hdn", project.extents};
  check_contraction(product_region(gradient));
}

TEST(Contraction, ResultsDoNotDependOnTheNumberOfWorkers) {
  const auto region = product_region(sizes("mk", "kn", "mn", 150, 130, 300));
  backend::Device& device = testing::cpu_at("native");
  const kernel::Generator& generator = kernel::contraction_generator();
  const auto lowered =
      generator.lower(region, generator.space(region, device.target())[0], device.target());
  const auto artifact = device.compile(lowered.program);
  std::vector<std::vector<float>> memory;
  for (const kernel::Buffer& buffer : lowered.program.buffers)
    memory.emplace_back(std::size_t(buffer.elements.value()) + 16);
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < memory[i].size(); ++j)
      memory[i][j] = float((j * 2654435761u >> 7) % 1000) / 997.0f - 0.5f;
  std::vector<std::vector<float>> results;
  for (const int workers : {1, 2}) {
    std::vector<void*> pointers;
    for (std::size_t i = 0; i < memory.size(); ++i)
      if (lowered.program.buffers[i].space == kernel::Space::Argument ||
          lowered.program.buffers[i].space == kernel::Space::Workspace)
        pointers.push_back(memory[i].data());
    kernel::ArgBlock block{pointers.data(), nullptr, nullptr, nullptr, nullptr};
    device.launch(*artifact, lowered.program, block, workers);
    results.push_back(memory[2]);
  }
  EXPECT_EQ(results[0], results[1]);
}

/// The outputs of a schedule with so many workers, and whether they are right.
std::vector<float> split_results(const kernel::Region& region, const std::string& schedule,
                                 int workers) {
  const kernel::Target target = testing::cpu_at("native").target();
  const auto lowered = kernel::contraction_generator().lower(
      region, kernel::parse_schedule("contraction " + schedule), target);
  EXPECT_TRUE(lowered.ok) << schedule << ": " << lowered.reason;
  std::vector<float> results;
  const auto launch = [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
    backend::reference::interpret(program, block, {.workers = workers});
    int argument = 0;
    for (const kernel::Buffer& b : program.buffers)
      if (b.space == kernel::Space::Argument) {
        const auto* at = static_cast<const float*>(block.pointers[argument++]);
        if (b.written)
          results.insert(results.end(), at, at + b.elements.value());
      }
  };
  const auto result = verify_kernel(region, lowered.program, launch);
  EXPECT_TRUE(result.ok) << schedule << "\n" << result.message;
  return results;
}

TEST(Contraction, SharesOfADepthAreAddedUpInOrderForAnyNumberOfWorkers) {
  const auto epilogue = [](const Einsum& e) {
    return region_of([&](Graph& g) {
      const NodeId product =
          testing::einsum(g, input(g, "a", e.left, e), input(g, "b", e.right, e), e);
      const Shape shape = g[product].shape;
      const NodeId rest = g.input("rest", DType::F32, shape);
      return std::vector{product, g.binary(Op::Add, g.unary(Op::Tanh, product), rest)};
    });
  };
  for (const auto& [left, right] : {std::pair{"mk", "kn"}, {"km", "kn"}, {"bmk", "bnk"}}) {
    const bool batched = left[0] == 'b';
    const Einsum e = sizes(left, right, batched ? "bmn" : "mn", 11, 37, 200, batched ? 2 : 1);
    const kernel::Region region = epilogue(e);
    for (const char* sides : {"shared=0", "shared=1", "pack_left=0 pack_right=0 shared=0"})
      for (const char* depth : {"kc=64 @split_reduce=2", "kc=32 @split_reduce=16"}) {
        const std::string schedule = fmt::format("mr=4 nr=16 mc=8 nc=32 {} {}", sides, depth);
        const auto one = split_results(region, schedule, 1);
        EXPECT_EQ(one, split_results(region, schedule, 2)) << schedule;
        EXPECT_EQ(one, split_results(region, schedule, 5)) << schedule;
        if (::testing::Test::HasFailure())
          return;
      }
  }
}

TEST(Contraction, ALongDepthOfFewResultsIsOfferedInShares) {
  const kernel::Generator& generator = kernel::contraction_generator();
  const kernel::Target target = testing::cpu_at("native").target();
  const auto shares = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    std::int64_t most = 1;
    for (const auto& s : generator.space(product_region(sizes("km", "kn", "mn", m, n, k)), target))
      most = std::max(most, s.split_reduce);
    return most;
  };
  EXPECT_GT(shares(64, 64, 65536), 1);
  EXPECT_EQ(shares(64, 64, 256), 1);
  EXPECT_EQ(shares(2048, 2048, 65536), 1);
  const auto region = product_region(sizes("mk", "kn", "mn", 8, 32, 100));
  EXPECT_EQ(
      generator.lower(region, kernel::parse_schedule("contraction kc=100 @split_reduce=2"), target)
          .reason,
      "a depth that is one part, or of unknown size, is not split");
}

TEST(Contraction, SymbolicSizes) {
  const Expr m = Expr::symbol("M", 1, 4096), n = Expr::symbol("N", 1, 4096),
             k = Expr::symbol("K", 1, 4096);
  const auto region = product_region(sizes("mk", "kn", "mn", m, n, k));
  for (const auto& [a, b, c] : {std::tuple{37, 70, 41}, {8, 64, 300}, {1, 1, 1}, {100, 16, 520}}) {
    backend::reference::Bindings bound;
    bound.set(m, a);
    bound.set(n, b);
    bound.set(k, c);
    check_contraction(region, 2, false, bound);
  }
}

} // namespace
} // namespace egret

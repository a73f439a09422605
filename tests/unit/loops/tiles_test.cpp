// Matrix loops of AMX's sizes: the programs that they become, and trees with them that the search
// proposes.
#include "kernel/families.h"
#include "kernel/loops/tree.h"
#include "loops/space.h"
#include "support/amx.h"
#include "support/loop_options.h"
#include "support/loop_regions.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

using kernel::Region;
using testing::Einsum;
using testing::input;

const std::string kUnit = "for(0,16,1,matrix,for(1,16,1,matrix,for(2,32,1,matrix,body(0))))";

/// 64 x 96 by a depth of 64, in bf16; tanh of the results, if asked.
Region product(const std::string& left = "mk", const std::string& right = "kn",
               bool behind = false) {
  return testing::region_of([&](ir::Graph& g) {
    const Einsum e = testing::sizes(left, right, "mn", 64, 96, 64);
    const auto wide = [&](const char* name, const std::string& letters) {
      return g.cast(input(g, name, letters, e, DType::BF16), DType::F32);
    };
    const ir::NodeId a = wide("a", e.left), sum = testing::einsum(g, a, wide("b", e.right), e);
    return std::vector{behind ? g.unary(Op::Tanh, sum) : sum};
  });
}

kernel::KernelProgram check(const Region& region, const std::string& tree) {
  kernel::Schedule schedule;
  schedule.generator = "loops";
  schedule.tree = tree;
  const auto lowered =
      kernel::loops_generator().lower(region, schedule, testing::target_with_tiles());
  EXPECT_TRUE(lowered.ok) << lowered.reason << "\n" << tree;
  if (lowered.ok) {
    SCOPED_TRACE(tree);
    testing::check_tiles(region, lowered.program);
  }
  return lowered.program;
}

bool mentions(const kernel::KernelProgram& program, const std::string& part) {
  return print(program).find(part) != std::string::npos;
}

int count(const kernel::KernelProgram& program, const std::string& part) {
  const std::string text = print(program);
  int n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; ++at)
    ++n;
  return n;
}

TEST(LoopTiles, ReadRowsWhereTheyAreAndPutColumnsTogether) {
  const auto program = check(
      product(), "for(0,4,16,core,for(1,6,16,serial,acc(0,for(2,2,32,serial," + kUnit + "))))");
  EXPECT_TRUE(mentions(program, "tile_load(at=a[")) << print(program);
  EXPECT_TRUE(mentions(program, "tile_load(at=right_tile[0]"));
  EXPECT_FALSE(mentions(program, "left_tile"));
  const auto turned =
      check(product("km", "nk"),
            "for(0,4,16,core,for(1,6,16,serial,acc(0,for(2,2,32,serial," + kUnit + "))))");
  EXPECT_TRUE(mentions(turned, "tile_load(at=left_tile[0]")) << print(turned);
}

TEST(LoopTiles, UnrolledLoopsAreTilesOfSums) {
  const std::string tree =
      "near(1,for(0,2,32,core,near(0,for(1,3,32,serial,acc(0,for(2,2,32,serial,for(0,2,16,unroll,"
      "for(1,2,16,unroll," +
      kUnit + "))))))))";
  for (const char* left : {"mk", "km"})
    for (const char* right : {"kn", "nk"}) {
      const auto program = check(product(left, right), tree);
      EXPECT_EQ(count(program, "tile_multiply("), 4) << print(program);
      EXPECT_EQ(count(program, "tile_load(at=near"), 4) << "each factor once\n" << print(program);
      EXPECT_FALSE(mentions(program, "_tile"));
    }
}

TEST(LoopTiles, SumsOfOtherLoopsWaitInMemory) {
  for (const std::string& tree : std::vector<std::string>{
           "for(0,4,16,core,acc(0,for(2,2,32,serial,for(1,6,16,serial," + kUnit + "))))",
           "for(0,4,16,core,for(1,6,16,serial,acc(0,for(2,2,32,serial,acc(0," + kUnit + ")))))",
           "for(0,4,16,core,near(1,for(1,6,16,serial,acc(0,for(2,2,32,serial," + kUnit + ")))))",
           "for(0,1,64,core,acc(0,for(2,2,32,serial,for(0,4,16,unroll,for(1,6,16,unroll," + kUnit +
               ")))))"})
    check(product(), tree);
}

TEST(LoopTiles, MapsBehindReadTheResults) {
  check(product("mk", "kn", true),
        "for(0,4,16,core,for(1,6,16,serial,then(acc(0,for(2,2,32,serial," + kUnit +
            ")),for(0,16,1,serial,for(1,16,1,vector,body(1))))))");
  check(product("mk", "kn", true),
        "for(0,4,16,core,for(1,6,16,serial,then(acc(0,for(2,2,32,serial," + kUnit +
            ")),for(0,16,1,unroll,for(1,16,1,vector,body(1))))))");
}

TEST(LoopTiles, AreProposedWhereTheCpuHasThem) {
  kernel::Target target = testing::target_with_tiles();
  testing::set_units(target, false, true); // none but tiles
  for (const char* left : {"mk", "km"}) {
    const Region region = product(left, "kn");
    const loops::LoopSpace space = loops::loop_space(region, target, testing::unhurried());
    EXPECT_EQ(space.report.unproved, 0u);
    int tiles = 0;
    for (const loops::LoopTree& one : space.trees) {
      const std::string text = kernel::loops::to_text(*one.tree, region);
      if (text.find("matrix") == text.npos)
        continue;
      ++tiles;
      check(region, text);
    }
    EXPECT_GT(tiles, 0);
  }
  testing::set_units(target, false);
  for (const loops::LoopTree& one :
       loops::loop_space(product(), target, testing::unhurried()).trees)
    EXPECT_EQ(kernel::loops::to_text(*one.tree, product()).find("matrix"), std::string::npos);
}

} // namespace
} // namespace egret

// egret compile --emit and --schedule: schedules as text that people read, change and give back.
#include "support/run_tool.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::Ran;

class Schedules : public ::testing::Test {
protected:
  void SetUp() override {
    test::write_file(folder_ / "g.txt",
                     "%x: f32[64,48] = input \"x\"\n%y: f32[64,48] = exp(%x)\noutputs %y\n");
  }
  Ran compile(const std::string& arguments) const {
    return egret_command("compile --device cpu " + path("g.txt") + " " + arguments);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  /// With these lines as the schedules.
  Ran with(const std::string& lines, const std::string& arguments) const {
    test::write_file(folder_ / "s.txt", lines);
    return compile("--schedule " + path("s.txt") + " " + arguments);
  }

  test::TempFolder folder_;
};

TEST_F(Schedules, TreesThatArePrintedAreReadAgain) {
  const Ran tree = compile("--emit tree");
  ASSERT_EQ(tree.code, 0) << tree.err;
  expect_contains(tree.out, "map_exp = loops @tree=for(");
  const Ran again = with("# as chosen\n\n" + tree.out, "--checked --emit tree");
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(again.out, tree.out);
}

TEST_F(Schedules, OneWrittenByHandIsWhatRuns) {
  const std::string tree = "for(0,6,512,core,for(0,64,8,serial,for(0,8,1,vector,body(0))))";
  const Ran taken = with("map_exp = loops @tree=" + tree + "\n", "--checked --emit program");
  ASSERT_EQ(taken.code, 0) << taken.err;
  expect_contains(taken.out, "from 0 to 6, over cores");
  expect_contains(with("map_exp = elementwise vectors=2\n", "--report").out, "vectors=2");
  expect_contains(with("map_exp = generic\n", "--effort none --emit tree").out,
                  "map_exp = loops @tree=for(0,");
}

TEST_F(Schedules, OfKernelsWithOneNameHaveNumbers) {
  test::write_file(folder_ / "g.txt", "%x: f32[64,48] = input \"x\"\n"
                                      "%y: f32[64] = sum(%x) axes=[1]\n"
                                      "%z: f32[64,1] = reshape(%y)\n"
                                      "%u: f32[64,48] = expand(%z)\n"
                                      "%v: f32[64,48] = mul(%u, %x)\n"
                                      "%w: f32[48] = sum(%v) axes=[0]\n"
                                      "outputs %w\n");
  const Ran both = compile("--emit tree");
  ASSERT_EQ(both.code, 0) << both.err;
  expect_contains(both.out, "#1 = ");
  expect_contains(both.out, "#2 = ");
  const std::string name = both.out.substr(0, both.out.find("#1"));
  const Ran second = with(name + "#2 = generic\n", "--emit tree");
  ASSERT_EQ(second.code, 0) << second.err;
  expect_contains(second.out, both.out.substr(0, both.out.find('\n')));
  EXPECT_NE(second.out, both.out);
  const Ran unclear = with(name + " = generic\n", "--emit tree");
  EXPECT_EQ(unclear.code, 1);
  expect_contains(unclear.err, "the program has no such kernel; it has " + name + "#1, ");
}

TEST_F(Schedules, WhatDoesNotFitIsRefusedWithTheReason) {
  const auto refused = [&](const std::string& lines, int code, std::string_view part) {
    const Ran ran = with(lines, "--emit tree");
    EXPECT_EQ(ran.code, code) << lines << ran.err;
    EXPECT_EQ(ran.out, "");
    expect_contains(ran.err, part);
  };
  refused("map_exp\n", 1, "line 1: `KERNEL = SCHEDULE` is wanted");
  refused("# two\nmap_exp = generic\nmap_exp = generic\n", 1,
          "line 3: `map_exp` has a schedule already");
  refused("map_log = generic\n", 1,
          "schedule of map_log: the program has no such kernel; it has map_exp");
  refused("map_exp = gpu_rows\n", 1, "`gpu_rows` is no template for cpu; there are loops, ");
  refused("map_exp = elementwise vectors=99\n", 1,
          "schedule of map_exp: elementwise vectors=99: vectors=99 is not one of 1, 2 ... 16");
  refused("map_exp = loops @tree=for(0,64,1,serial,body(0))\n", 1,
          "schedule of map_exp: loops @tree=for(0,64,1,serial,body(0)): the loops along axis 0 of "
          "3072 do not make each point of stage 0 once");
  refused("map_exp = loops @tree=for(0,64\n", 1, "column");
  const Ran cuda = compile("--emit cuda");
  EXPECT_EQ(cuda.code, 2);
  expect_contains(cuda.err, "--emit cuda: wants --device cuda");
  EXPECT_EQ(compile("--emit fortran").code, 2);
  EXPECT_EQ(compile("--emit tree --json").code, 2);
}

} // namespace
} // namespace egret

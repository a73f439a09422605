// egret --device c: graphs that run by way of the system's C compiler, and their C as text that
// somebody else compiles and calls.
#include "support/c_compiler.h"
#include "support/run_tool.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::Ran;

class DeviceC : public ::testing::Test {
protected:
  void SetUp() override {
    EGRET_NEEDS_C_COMPILER();
    test::write_file(folder_ / "g.txt", "%x: f32[40] = iota\noutputs %x\n");
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  test::TempFolder folder_;
};

// Softmax of rows and their sums' logarithm in bf16.
constexpr const char* kGraph = "%i: f32[240] = iota\n"
                               "%x: f32[6,40] = reshape(%i)\n"
                               "%s: f32[6,40] = sin(%x)\n"
                               "%e: f32[6,40] = exp(%s)\n"
                               "%t: f32[6] = sum(%e) axes=[1]\n"
                               "%c: f32[6,1] = reshape(%t)\n"
                               "%w: f32[6,40] = expand(%c)\n"
                               "%y: f32[6,40] = div(%e, %w)\n"
                               "%l: f32[6] = log(%t)\n"
                               "%b: bf16[6] = cast(%l)\n"
                               "outputs %y, %b\n";

TEST_F(DeviceC, RunsGraphsAsTheReferenceDoes) {
  test::write_file(folder_ / "g.txt", kGraph);
  const Ran ran = egret_command("run --device c --checked " + path("g.txt"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
}

TEST_F(DeviceC, PrintsAllKernelsAsOneFileThatCompilesWithoutAWarning) {
  test::write_file(folder_ / "g.txt", kGraph);
  const Ran ran = egret_command("compile --device c --emit c " + path("g.txt"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  expect_contains(ran.out, "struct EgretArgs {");
  test::write_file(folder_ / "all.c", ran.out);
  const std::string command = "cc -std=c11 -O1 -Wall -Wextra -pedantic -Werror -c " +
                              path("all.c") + " -o " + path("all.o") + " 2>" + path("words");
  EXPECT_EQ(std::system(command.c_str()), 0) << test::read_file(folder_ / "words");
}

// What the head of the text says is all that a caller needs.
TEST_F(DeviceC, AKernelIsCalledFromPlainC) {
  test::write_file(folder_ / "g.txt", "%x: f32[37] = input \"x\"\n"
                                      "%h: f32[] = const 0.5\n"
                                      "%r: f32[1] = reshape(%h)\n"
                                      "%w: f32[37] = expand(%r)\n"
                                      "%y: f32[37] = add(%x, %w)\n"
                                      "outputs %y\n");
  const Ran ran = egret_command("compile --device c --emit c " + path("g.txt"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  test::write_file(folder_ / "kernel.c", ran.out);
  const std::size_t at = ran.out.find("\nvoid k_");
  ASSERT_NE(at, std::string::npos) << ran.out;
  const std::string name = ran.out.substr(at + 6, ran.out.find('(', at) - at - 6);
  test::write_file(folder_ / "main.c", "#include \"kernel.c\"\n"
                                       "int main(void) {\n"
                                       "  float x[37], y[37];\n"
                                       "  void* pointers[] = {x, y};\n"
                                       "  const struct EgretArgs args = {.pointers = pointers};\n"
                                       "  for (int i = 0; i < 37; ++i) x[i] = (float)i;\n"
                                       "  for (int worker = 0; worker < 3; ++worker) " +
                                           name +
                                           "(&args, worker, 3);\n"
                                           "  for (int i = 0; i < 37; ++i)\n"
                                           "    if (y[i] != (float)i + 0.5f) return 1;\n"
                                           "  return 0;\n"
                                           "}\n");
  const std::string command =
      "cc -std=c11 -O2 " + path("main.c") + " -o " + path("main") + " -lm && " + path("main");
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST_F(DeviceC, MistakesAreToldByName) {
  const Ran other = egret_command("compile --device cpu --emit c " + path("g.txt"));
  EXPECT_EQ(other.code, 2);
  expect_contains(other.err, "--emit c: wants --device c");
  EXPECT_EQ(egret_command("compile --device c --emit cuda " + path("g.txt")).code, 2);
  const Ran none = egret_command("run --device c " + path("g.txt"), "EGRET_CC=/nowhere/cc");
  EXPECT_EQ(none.code, 1);
  expect_contains(none.err, "egret: c: EGRET_CC names /nowhere/cc, which is no C compiler");
}

} // namespace
} // namespace egret

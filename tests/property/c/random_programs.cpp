// Random kernel programs and regions as C: the interpreter's bits, the reference's values, and
// nothing that a compiler warns of.
#include "support/random_programs.h"
#include "backend/c/render.h"
#include "support/c_compiler.h"
#include "support/files.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace egret {
namespace {

TEST(RandomProgramsInC, GiveTheInterpretersBits) {
  EGRET_NEEDS_C_COMPILER();
  for (std::uint64_t seed = 100; seed < 116 && !HasFatalFailure(); ++seed)
    testing::check_random_program(*testing::c_device(), "c", seed);
}

// All in one file, as the kernels of one program are printed.
TEST(RandomProgramsInC, CompileWithoutAWarning) {
  EGRET_NEEDS_C_COMPILER();
  test::TempFolder folder;
  std::string text;
  for (std::uint64_t seed = 0; seed < 24; ++seed)
    text += backend::c::render_c(testing::random_program(seed));
  text += backend::c::render_c(testing::random_program(0)); // one that is there already
  test::write_file(folder / "all.c", text);
  const std::string command = "cc -O1 -std=c11 -Wall -Wextra -pedantic -Werror -c " +
                              (folder / "all.c").string() + " -o " + (folder / "all.o").string() +
                              " 2>" + (folder / "words").string();
  EXPECT_EQ(std::system(command.c_str()), 0) << test::read_file(folder / "words");
}

TEST(RandomRegionsInC, AgreeWithTheReference) {
  EGRET_NEEDS_C_COMPILER();
  testing::RandomGraphOptions options;
  options.max_elements = 2000;
  options.ops = 8;
  backend::Device& device = *testing::c_device();
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const ir::Graph graph = testing::random_graph(seed, options);
    const auto inputs = testing::random_inputs(graph, seed, {.special = false});
    for (const auto& c : testing::region_cases(graph, inputs, device.target())) {
      const std::string wrong =
          testing::check_generators(c, device.target(), {.device = &device}, 1);
      ASSERT_TRUE(wrong.empty()) << "seed " << seed << ": " << wrong;
    }
  }
}

} // namespace
} // namespace egret

// Explicit graphs on a device that a pass names, and their loop form.
#include "egret/device.h"
#include "egret/display.h"
#include "egret/functional.h"
#include "egret/graph.h"
#include "egret/memory.h"
#include "egret/search_steps.h"
#include "support/c_compiler.h"
#include "support/files.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

TEST(OnDevice, CopiesInputsAndLeavesResultsThere) {
  EGRET_NEEDS_C_COMPILER();
  Graph cx;
  auto a = cx.tensor({2, 2}).set({1, 2, 3, 4}).keep();
  const Tensor plain = (ones({2, 2}) * 10).eval();
  auto y = (matmul(a, a) + plain).retrieve();
  const std::vector<float> expected = {17, 20, 25, 32};

  cx.compile(Generic{} | Fusion{} | OnDevice("c"), &y);
  cx.execute();
  EXPECT_EQ(y.to_vector(), expected);
  EXPECT_GE(memory_stats("c").values, sizeof(float) * expected.size());
  EXPECT_NE(cx.report().find("on c: "), std::string::npos) << cx.report();
  EXPECT_EQ(plain.device().name(), "cpu"); // as it was

  cx.compile(Generic{} | Fusion{}, &y); // where its tensors are
  cx.execute();
  EXPECT_EQ(y.to_vector(), expected);
  EXPECT_EQ(memory_stats("c").values, 0u);
  EXPECT_THROW(OnDevice("c0"), Error);
}

TEST(LoopForm, OfACompiledGraphIsTextAPictureAndTerms) {
  const test::TempFolder folder;
  const auto path = folder / "loops.svg";
  Graph cx;
  auto a = cx.tensor({64, 48}).set(ones({64, 48})).keep();
  auto y = (exp(a) * 2).retrieve();
  EXPECT_EQ(cx.schedules() + cx.loops() + cx.loop_program(), "");
  EXPECT_THROW(display_loops(cx, path.string()), Error);

  cx.compile(Generic{} | Fusion{}, &y);
  EXPECT_EQ(cx.schedules().rfind("map_mul = ", 0), 0u) << cx.schedules();
  EXPECT_NE(cx.loops().find("for "), std::string::npos) << cx.loops();
  display_loops(cx, path.string());
  const std::string svg = test::read_file(path);
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_NE(svg.find("map_mul"), std::string::npos) << svg;
  display_loops(cx, (folder / "loops.dot").string());
  EXPECT_EQ(test::read_file(folder / "loops.dot").rfind("digraph", 0), 0u);
  try {
    display_loops(cx, (folder / "loops.png").string());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Value);
  }
  EXPECT_NO_THROW(tensor_egraph().run_program(cx.loop_program()));
}

TEST(SearchSteps, FillAnEGraphAndExtract) {
  const ir::Graph graph = ir::parse_graph("%x: f32[4,6] = input \"x\"\n"
                                          "%t: f32[6,4] = permute(%x) axes=[1,0]\n"
                                          "%e: f32[6,4] = exp(%t)\n"
                                          "%s: f32[4] = sum(%e) axes=[0]\noutputs %s\n");
  egraph::EGraph space = tensor_egraph();
  const std::string program = rewrite_program(graph);
  EXPECT_NE(program.find("(rewrite "), std::string::npos);
  const std::string extracted = space.run_program(program);
  EXPECT_NE(extracted.find("Exp"), std::string::npos) << extracted;
  EXPECT_NE(space.to_json().find("\"root_eclasses\""), std::string::npos);
}

} // namespace
} // namespace egret

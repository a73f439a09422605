// The pages on the graph say what the code does: their lists are generated, their programs are the
// ones below, their graphs parse.
#include "backend/reference/reference.h"
#include "egret/passes.h"
#include "ir/passes/rules.h"
#include "support/docs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

namespace egret {
namespace {

using testing::expect_generated;
using testing::kDocs;
using testing::read;

const char* kind_of(DTypeRule rule) {
  switch (rule) {
  case DTypeRule::Float:
    return "floats";
  case DTypeRule::Integer:
  case DTypeRule::Order:
    return "integers";
  case DTypeRule::IntegerBool:
    return "integers, bool";
  case DTypeRule::Number:
  case DTypeRule::Index:
    return "numbers";
  case DTypeRule::Compare:
    return "any, gives bool";
  case DTypeRule::Select:
    return "bool, any, any";
  case DTypeRule::Gather:
    return "any, integers";
  case DTypeRule::Scatter:
    return "any, integers, any";
  case DTypeRule::Any:
    return "any";
  case DTypeRule::Attribute:
    return "";
  }
  return "";
}

std::string op_list() {
  std::string result = "| op | takes | means |\n|---|---|---|\n";
  for (int i = 0; i < kOps; ++i) {
    const OpInfo& row = info_of(static_cast<Op>(i));
    const char* takes = row.cls == OpClass::Convert ? "any" : kind_of(row.dtypes);
    result += fmt::format("| `{}` | {} | {}{} |\n", row.name, takes, row.definition,
                          row.intrinsic ? " *(intrinsic)*" : "");
  }
  return result;
}

std::string rule_list() {
  std::string result = "| on | identity |\n|---|---|\n";
  for (auto table : {passes::arithmetic_rules(), passes::logic_rules(), passes::conversion_rules(),
                     passes::reduction_rules(), passes::movement_rules()})
    for (const passes::Rule& rule : table) {
      std::string name(rule.name);
      for (std::size_t at = 0; (at = name.find('|', at)) != std::string::npos; at += 2)
        name.insert(at, "\\");
      result += fmt::format("| `{}` | {} |\n", info_of(rule.op).name, name);
    }
  return result;
}

TEST(Docs, TheListOfOpsIsThatOfTheTable) {
  expect_generated("graph.md", "ops", op_list());
}
TEST(Docs, TheListOfIdentitiesIsThatOfTheRules) {
  expect_generated("graph.md", "rules", rule_list());
}

/// Blocks of a page that start with ```<start> .., with the rest of that line as a title.
std::vector<std::pair<std::string, std::string>> blocks(const std::string& page,
                                                        const std::string& start) {
  std::vector<std::pair<std::string, std::string>> result;
  std::istringstream in(read(kDocs + page));
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("```" + start))
      continue;
    std::string title = line.substr(3 + start.size()), text;
    while (std::getline(in, line) && !line.starts_with("```"))
      text += line + "\n";
    result.emplace_back(title, text);
  }
  return result;
}

std::string without_indent(const std::string& text) {
  std::string result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);)
    result += (line.size() > 2 ? line.substr(2) : "") + "\n";
  return result;
}

/// The part of this file between two comments with the title.
std::string program(const std::string& title) {
  std::string source = read(std::string(EGRET_TEST_SOURCE_DIR) + "/unit/graph/docs_test.cpp"),
              mark = "// doc:" + title + "\n";
  std::size_t begin = source.find(mark);
  if (begin == std::string::npos)
    return "no program " + title;
  begin += mark.size();
  std::size_t end = source.find("  // end", begin);
  return without_indent(source.substr(begin, end - begin));
}

TEST(Docs, ProgramsOfThePagesAreThoseBelow) {
  int found = 0;
  for (const char* page : {"graph.md", "patterns.md"})
    for (const auto& [title, text] : blocks(page, "cpp doc:")) {
      EXPECT_EQ(text, program(title)) << page << ": " << title;
      ++found;
    }
  EXPECT_EQ(found, 7);
}

ir::Graph matmul_graph() {
  // doc:matmul
  ir::Graph g;
  auto x = g.input("x", DType::F32, {1, 4});
  auto w = g.input("w", DType::F32, {4, 5});
  auto left = g.expand(g.reshape(x, {1, 1, 4}), {1, 5, 4});
  auto right = g.expand(g.reshape(g.permute(w, {1, 0}), {1, 5, 4}), {1, 5, 4});
  auto product = g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {2});
  g.outputs = {product};
  std::string text = print(g);
  // end
  EXPECT_EQ(text, blocks("graph.md", "graph matmul")[0].second);
  return g;
}

TEST(Docs, TheMatmulOfThePagePrintsAndComputesWhatItSays) {
  using backend::reference::HostArray;
  std::vector<double> weights;
  for (int i = 1; i <= 20; ++i)
    weights.push_back(0.1 * i);
  std::vector<HostArray> inputs{HostArray(DType::F32, {1, 4}, {1, 2, 3, 4}),
                                HostArray(DType::F32, {4, 5}, weights)};
  auto y = backend::reference::execute(matmul_graph(), inputs)[0].doubles();
  for (int i = 0; i < 5; ++i)
    EXPECT_NEAR(y[static_cast<std::size_t>(i)], 11 + i, 1e-5);
}

TEST(Docs, TheGraphOfThePageParsesUpToItsErrorWhichIsTold) {
  std::string text = blocks("graph.md", "graph")[1].second;
  try {
    ir::parse_graph(text);
    FAIL() << "the page shows an error";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("graph: line 14, column 28")) << error.what();
  }
  std::size_t wrong = text.find("%both");
  text.erase(wrong, text.find('\n', wrong) - wrong);
  ir::Graph g = ir::parse_graph(text);
  EXPECT_EQ(symbols_of(g).size(), 2u);
}

TEST(Docs, SymbolicDims) {
  // doc:symbolic
  ir::Graph g;
  Expr rows = Expr::symbol("rows", 1, 4096);
  auto x = g.input("x", DType::F32, {rows, 6});
  g.outputs = {g.reduce(Op::ReduceSum, g.reshape(x, {2 * rows, 3}), {1})}; // f32[2*rows]
  ir::Graph for_five = with_dims(g, [](const Expr&) { return Expr(5); });  // f32[10]
  // end
  EXPECT_EQ(g[g.outputs[0]].shape, (Shape{2 * rows}));
  EXPECT_EQ(for_five[for_five.outputs[0]].shape, (Shape{10}));
}

TEST(Docs, Passes) {
  ir::Graph g = matmul_graph();
  ::testing::internal::CaptureStdout();
  // doc:passes
  Pass count("count_nodes", [](const ir::Graph& graph, Notes& notes) {
    notes.push_back(std::to_string(graph.size()) + " nodes");
    return graph;
  });
  std::vector<PassReport> reports;
  ir::Graph better = (passes::normalize() | count)(g, &reports);
  for (const PassReport& report : reports)
    std::cout << report.text();
  // end
  std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(printed.find("count_nodes: 8 -> 8 nodes, unchanged\n  8 nodes\n"), std::string::npos)
      << printed;
}

TEST(Docs, FindAMatmul) {
  ir::Graph graph = matmul_graph();
  ::testing::internal::CaptureStdout();
  // doc:find-matmul
  using namespace egret::pattern;
  Pattern a = any("a").shape("MNK").broadcast("N").varies("MK");
  Pattern b = any("b").shape("MNK").broadcast("M").varies("NK");
  Pattern product = node(Op::Mul, {a, b}).shape("MNK").single_use();
  Pattern matmul = node(Op::ReduceSum, {product}).over("K");
  for (const Match& m : find(graph, matmul))
    std::cout << "matmul " << m.dim('M').str() << " x " << m.dim('N').str() << " x "
              << m.dim('K').str() << " at %" << m.root << "\n";
  // end
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "matmul 1 x 5 x 4 at %7\n");
}

TEST(Docs, LookThroughMovements) {
  ir::Graph graph = matmul_graph();
  ::testing::internal::CaptureStdout();
  // doc:viewed
  using namespace egret::pattern;
  Pattern bare = node(Op::ReduceSum, {node(Op::Mul, {viewed(any("a")), viewed(any("b"))})});
  for (const Match& m : find(graph, bare))
    std::cout << "%" << m["a"] << " is read at " << m.views.at("a").str() << "\n";
  // end
  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            "%0 is read at (d0,d1,d2)[1,5,4] -> (0,d2)\n");
}

TEST(Docs, RewriteAndPass) {
  ir::Graph graph = ir::parse_graph("%x: f32[2] = input \"x\"\n%s: f32[2] = sigmoid(%x)\n"
                                    "%y: f32[2] = mul(%s, %x)\noutputs %y\n");
  ::testing::internal::CaptureStdout();
  // doc:rewrite
  using namespace egret::pattern;
  Rewrite silu{"silu", node(Op::Mul, {any("x"), node(Op::Sigmoid, {any("x")})}),
               [](Graph& out, const Match& m) {
                 NodeId x = m["x"]; // x * sigmoid(x) = x / (1 + exp(-x))
                 auto like_x = [&](double v) {
                   return out.broadcast(out.constant(out[x].dtype, v), Shape(out[x].shape));
                 };
                 NodeId e = out.unary(Op::Exp, out.binary(Op::Mul, x, like_x(-1)));
                 return out.binary(Op::Div, x, out.binary(Op::Add, e, like_x(1)));
               }};
  Rewritten result = rewrite(graph, silu);
  std::cout << result.applied << " replaced\n";
  // end
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "1 replaced\n");
  // doc:pass
  Pass all = passes::normalize() | Pass(silu) | passes::dead_code();
  std::vector<PassReport> reports;
  ir::Graph better = all(graph, &reports);
  // end
  EXPECT_EQ(canonical_hash(better), canonical_hash(result.graph));
}

} // namespace
} // namespace egret

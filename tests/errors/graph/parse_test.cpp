// Each message of the graph parser, and texts made to hurt it.
#include "egret/ir.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

namespace egret::ir {
namespace {

void expect_parse_error(const std::string& text, const std::string& message) {
  try {
    parse_graph(text);
    FAIL() << "no error for: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), message);
    EXPECT_EQ(error.kind(), ErrorKind::Parse);
  }
}

const std::string kX = "%0: f32[2,3] = input \"x\"\n";

TEST(Parse, Lines) {
  expect_parse_error("", "graph: line 1, column 1: the line `outputs %label, ..` is missing");
  expect_parse_error("hello\n", "graph: line 1, column 1: expected `%label: type = op(..)`, `dim` "
                                "or `outputs`, found `hello`");
  expect_parse_error(kX + "outputs %0\noutputs %0\n",
                     "graph: line 3, column 1: `outputs` must be the last line, found `outputs`");
  expect_parse_error(kX + "outputs %1\n", "graph: line 2, column 9: %1 is not defined above");
  expect_parse_error(kX + "outputs %0 %0\n",
                     "graph: line 2, column 12: expected the end of the line, found `%0`");
  expect_parse_error(kX + kX, "graph: line 2, column 1: %0 is defined twice");
}

TEST(Parse, Nodes) {
  expect_parse_error("% f32", "graph: line 1, column 6: expected `:`, found the end of the text");
  expect_parse_error("%: f32", "graph: line 1, column 2: expected a label, found `:`");
  expect_parse_error("%0 f32", "graph: line 1, column 4: expected `:`, found `f32`");
  expect_parse_error(
      "%0: f33[2] = iota",
      "graph: line 1, column 5: dtype: 'f33' is not an element type; there are "
      "bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, f8e4m3, f8e5m2");
  expect_parse_error("%0: f32[2] iota", "graph: line 1, column 12: expected `=`, found `iota`");
  expect_parse_error("%0: f32[2] = matmul(%1)",
                     "graph: line 1, column 14: there is no operation `matmul` (docs/graph.md "
                     "lists them)");
  expect_parse_error("%0: f32[2] = 3",
                     "graph: line 1, column 14: expected an operation, found `3`");
  expect_parse_error(kX + "%1: f32[2,3] = exp %0\n",
                     "graph: line 2, column 20: expected `(`, found `%0`");
  expect_parse_error(kX + "%1: f32[2,3] = exp(%0, %0)\n",
                     "graph: line 2, column 23: exp takes 1 operand");
  expect_parse_error(kX + "%1: f32[2,3] = add(%0)\n",
                     "graph: line 2, column 16: add: takes 2 operands, got 1");
  expect_parse_error(kX + "%1: f32[3,2] = exp(%0)\n",
                     "graph: line 2, column 5: %1 is declared f32[3,2], but exp gives f32[2,3]");
  expect_parse_error(kX + "%1: f32[2] = sum(%0) axes=[7]\n",
                     "graph: line 2, column 14: sum: axis 7 is out of range for shape [2,3] of "
                     "rank 2");
}

TEST(Parse, Attributes) {
  expect_parse_error(kX + "%1: f32[2] = sum(%0) axis=1\n",
                     "graph: line 2, column 22: sum has no attribute `axis`");
  expect_parse_error(kX + "%1: f32[2,3] = cumsum(%0) axes=[1]\n",
                     "graph: line 2, column 27: cumsum has no attribute `axes`");
  expect_parse_error(kX + "%1: f32[2] = sum(%0) axes=1\n",
                     "graph: line 2, column 27: expected `[`, found `1`");
  expect_parse_error(kX + "%1: f32[2] = sum(%0) axes=[x]\n",
                     "graph: line 2, column 28: expected an axis, found `x]`");
  expect_parse_error(kX + "%1: f32[2] = sum(%0) axes=[99999999999999999999]\n",
                     "graph: line 2, column 28: an axis does not fit 64 bits");
  expect_parse_error(kX + "%1: f32[2] = sum(%0) 5\n",
                     "graph: line 2, column 22: expected an attribute, found `5`");
  expect_parse_error("%0: i8[] = const 200\n",
                     "graph: line 1, column 18: scalar: cannot read '200' as i8: out of range");
  expect_parse_error("%0: f32[] = const abc\n",
                     "graph: line 1, column 19: scalar: cannot read 'abc' as f32: not a number");
  expect_parse_error("%0: f32[2] = input x\n",
                     "graph: line 1, column 20: expected `\"`, found `x`");
  expect_parse_error("%0: f32[2] = input \"x\n",
                     "graph: line 1, column 20: this text has no closing quote");
  expect_parse_error("%0: f32[2] = input \"\\q\"\n",
                     "graph: line 1, column 22: unknown escape; \\\" \\\\ \\n \\t and \\xHH are "
                     "known");
}

TEST(Parse, Dims) {
  expect_parse_error("%0: f32[n] = input \"x\"\n",
                     "graph: line 1, column 9: dim `n` is not declared; write `dim n in 1..4096` "
                     "above");
  expect_parse_error("dim 5 in 1..2", "graph: line 1, column 5: expected the name of a dim, found "
                                      "`5`");
  expect_parse_error("dim min in 1..2", "graph: line 1, column 5: a dim cannot be called `min`");
  expect_parse_error("dim q1 of 1..2", "graph: line 1, column 8: expected `in low..high`, found "
                                       "`of`");
  expect_parse_error("dim q1 in 5..2", "graph: line 1, column 5: dim `q1`: 5..2 by 1 is no range "
                                       "of sizes");
  expect_parse_error("dim q1 in 1..8 by 0", "graph: line 1, column 5: dim `q1`: 1..8 by 0 is no "
                                            "range of sizes");
  expect_parse_error("dim q2 in 1..8\ndim q2 in 1..8\n",
                     "graph: line 2, column 5: dim `q2` is declared twice");
  expect_parse_error("%0: f32[2*] = iota\n",
                     "graph: line 1, column 9: expression: column 3: expected a number, a name or "
                     "'(' at the end");
  expect_parse_error("%0: f32[-2] = input \"x\"\n",
                     "graph: line 1, column 15: input: dim 0 of [-2] may be negative (-2 >= -2)");
}

TEST(Parse, HostileTextsAreRefused) {
  auto refused = [](const std::string& text) {
    EXPECT_THROW(parse_graph(text), Error) << text.substr(0, 80);
  };
  auto repeated = [](const std::string& piece, int times) {
    std::string result;
    for (int i = 0; i < times; ++i)
      result += piece;
    return result;
  };
  std::string ones = repeated("1,", 100000);
  refused("%0: f32[" + ones + "1] = input \"x\"\noutputs %0\n");
  refused(kX + "%1: f32[] = sum(%0) axes=[" + ones + "1]\noutputs %1\n");
  refused("%0: f32[" + repeated("(", 100000) + "1" + repeated(")", 100000) + "] = iota\n");
  refused("%0: f32[" + repeated("-", 100000) + "1] = iota\n");
  refused("%0: f32[" + repeated("min(1,", 5000) + "1" + repeated(")", 5000) + "] = iota\n");
  refused("%0: f32[9223372036854775807,9223372036854775807] = input \"x\"\noutputs %0\n");
  refused("%0: f32[9223372036854775808] = input \"x\"\noutputs %0\n");
  refused("%0: f32[4294967296*4294967296] = input \"x\"\noutputs %0\n");
  refused("%0: f32[1//0] = input \"x\"\noutputs %0\n");
  refused("%99999999999999999999: f32[1] = iota\n");
  refused("%0: f32[" + repeated("1+", 100000) + "] = iota\n");
  refused(repeated("%", 100000));
  refused(std::string("\0\0\0", 3));
  refused(kX + "%1: f32[2,3] = exp(" + repeated("%0,", 100000) + "%0)\n");
  std::string symbols, sum;
  for (int i = 0; i < 40; ++i) {
    symbols += "dim hostile" + std::to_string(i) + " in 1..9\n";
    sum += (i == 0 ? "hostile" : "+hostile") + std::to_string(i);
  }
  std::string power = "(" + sum + ")";
  for (int i = 0; i < 8; ++i)
    power += "*(" + sum + ")";
  refused(symbols + "%0: f32[" + power + "] = input \"x\"\noutputs %0\n");
}

TEST(Parse, NoTruncationOrChangedByteCrashes) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::string text = print(testing::random_graph(seed, {.symbolic = seed % 2 == 1}));
    testing::Rng rng(seed);
    for (int i = 0; i < 300; ++i) {
      std::string broken = text;
      auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(text.size())));
      if (rng.chance(0.3))
        broken.resize(at);
      else
        broken[at] =
            rng.chance(0.5)
                ? static_cast<char>(rng.below(256))
                : text[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(text.size())))];
      try {
        verify(parse_graph(broken));
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Parse) << error.what();
      }
    }
  }
}

} // namespace
} // namespace egret::ir

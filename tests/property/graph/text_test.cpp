// A printed graph parses back equal, whatever graph it is.
#include "support/random_graph.h"

#include <gtest/gtest.h>

namespace egret::testing {
namespace {

void expect_round_trip(const ir::Graph& graph, std::uint64_t seed) {
  std::string text = print(graph);
  ir::Graph back;
  ASSERT_NO_THROW(back = ir::parse_graph(text)) << "seed " << seed << "\n" << text;
  EXPECT_EQ(print(back), text) << "seed " << seed;
  EXPECT_EQ(canonical_hash(back), canonical_hash(graph)) << "seed " << seed;
}

TEST(Text, PrintedGraphsParseBackEqual) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed)
    expect_round_trip(random_graph(seed), seed);
}

TEST(Text, PrintedGraphsWithSymbolicDimsParseBackEqual) {
  for (std::uint64_t seed = 0; seed < 500; ++seed)
    expect_round_trip(random_graph(seed, {.symbolic = true}), seed);
}

TEST(Text, AllDTypesAndManyConstantsParseBackEqual) {
  std::vector<DType> dtypes;
  for (int d = 0; d < kDTypes; ++d)
    dtypes.push_back(static_cast<DType>(d));
  for (std::uint64_t seed = 0; seed < 300; ++seed)
    expect_round_trip(random_graph(seed, {.dtypes = dtypes}), seed);
}

} // namespace
} // namespace egret::testing

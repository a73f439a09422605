// Values may stand in any order in memory: random graphs with random layouts compute what the
// reference says. At length in tests/property/slow_compiler.
#include "support/layout_graphs.h"

namespace egret::testing {
namespace {

TEST(LayoutGraphs, AgreeWithTheReference) {
  LayoutGraphs graphs;
  graphs.run(70001, 60);
  EXPECT_GT(graphs.kept, 40);
  EXPECT_GT(graphs.copied, 80);
}

} // namespace
} // namespace egret::testing

// As property/compiler/relaid_graphs_test.cpp, at length.
#include "support/layout_graphs.h"

namespace egret::testing {
namespace {

TEST(RelaidGraphsAtLength, AgreeWithTheReference) {
  LayoutGraphs graphs;
  graphs.run(300000, 1000);
  EXPECT_GT(graphs.kept, 500);
  EXPECT_GT(graphs.copied, 1000);
}

} // namespace
} // namespace egret::testing

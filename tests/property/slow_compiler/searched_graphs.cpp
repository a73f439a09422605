// As property/compiler/searched_graphs_test.cpp, at length.
#include "support/searched_graphs.h"

namespace egret::testing {
namespace {

TEST(SearchedGraphsAtLength, AgreeWithTheReference) {
  SearchedGraphs graphs(false);
  graphs.run(100000, 2500);
  graphs.expect_all_covered();
}
TEST(SearchedGraphsAtLength, AgreeWhateverTheOrderOfRules) {
  SearchedGraphs graphs(true);
  graphs.run(200000, 2500);
  graphs.expect_all_covered();
}

} // namespace
} // namespace egret::testing

// Random graphs through effort `search` agree with the evaluator, whatever schedules win and
// whatever the order of rules.
#include "support/searched_graphs.h"

namespace egret::testing {
namespace {

TEST(SearchedGraphs, AgreeWithTheReference) {
  SearchedGraphs graphs(false);
  graphs.run(1, 60);
}
TEST(SearchedGraphs, AgreeWhateverTheOrderOfRules) {
  SearchedGraphs graphs(true);
  graphs.run(5001, 60);
}

} // namespace
} // namespace egret::testing

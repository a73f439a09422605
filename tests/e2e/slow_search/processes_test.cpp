// Processes that share a database, as often as ./x test --full has time for.
#include "support/search_processes.h"

namespace egret::testing {
namespace {

TEST(SearchProcessesLong, FrozenPlansAndResultsAreTheSameInTwentyProcesses) {
  run_frozen(20);
}
TEST(SearchProcessesLong, AHundredKilledSearchesLoseNothing) {
  kill_searches(100);
}
TEST(SearchProcessesLong, SixteenProcessesSearchAtTheSameTime) {
  search_together(16);
}
TEST(SearchProcessesLong, SixteenProcessesShareMachineCode) {
  load_together(16);
}

} // namespace
} // namespace egret::testing

// The database of choices under as much abuse as ./x test --full has time for.
#include "support/tuning.h"

namespace egret::testing {
namespace {

TEST(TuningDatabaseLong, LosesNothingWhenItsProcessIsKilledAHundredTimes) {
  kill_while_writing(100);
}
TEST(TuningDatabaseLong, SurvivesAThousandDamages) {
  read_damaged(1000);
}
TEST(TuningDatabaseLong, IsSharedBySixteenProcesses) {
  share(16, 60);
}

} // namespace
} // namespace egret::testing

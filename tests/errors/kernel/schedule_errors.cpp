// Each message of parse_schedule.
#include "egret/error.h"
#include "kernel/schedule.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

void expect_message(const char* text, const std::string& part) {
  try {
    parse_schedule(text);
    ADD_FAILURE() << "accepted: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Parse);
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(ScheduleErrors, NamesWhatIsWrong) {
  expect_message("", "does not begin with the name of a generator");
  expect_message("mr=6", "does not begin with the name of a generator");
  expect_message("rows rows", "'rows' is not of the form name=value");
  expect_message("rows =3", "'=3' is not of the form name=value");
  expect_message("rows rows=many", "'many' is not a number in 'rows=many'");
  expect_message("rows rows=1 rows=2", "knob 'rows' is given twice");
  expect_message("rows @speed=9", "unknown setting '@speed'");
  expect_message("rows @store=fast", "'fast' is not a word of '@store=fast'");
  expect_message("rows @loops=0/4/core", "unknown setting '@loops'");
  expect_message("rows @order=fixed", "an order is kind/group, not 'fixed'");
}

} // namespace
} // namespace egret::kernel

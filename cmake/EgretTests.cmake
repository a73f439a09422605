# What ctest gives every test.

# How much more time everything gets than a machine with two idle cores needs: sanitizers make programs slower, and EGRET_TEST_SCALE,
# read when the build is configured, says what slow or busy machines need.
set(EGRET_TEST_SCALE 1)
if(EGRET_SANITIZE)
  set(EGRET_TEST_SCALE 5)
endif()
if("$ENV{EGRET_TEST_SCALE}" MATCHES "^[1-9][0-9]*$")
  math(EXPR EGRET_TEST_SCALE "${EGRET_TEST_SCALE} * $ENV{EGRET_TEST_SCALE}")
endif()
# A test that hangs must not eat the whole run; the slowest takes a small part of this.
math(EXPR EGRET_TEST_SECONDS "900 * ${EGRET_TEST_SCALE}")

# Schedules are chosen without what the user's searches found before; tests of that name folders of their own. A kernel that a compiler
# or verification refuses is an error; tests that plant one take that back.
set(EGRET_TEST_ENVIRONMENT EGRET_CACHE=off EGRET_STRICT=1 EGRET_TEST_SCALE=${EGRET_TEST_SCALE}) # tests/support/scale.h

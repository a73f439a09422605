# What ctest gives every test.

# A test that hangs must not eat the whole run; the slowest takes a small part of this on two idle cores. EGRET_TEST_SCALE, read when
# the build is configured, multiplies it for slow machines.
set(EGRET_TEST_SECONDS 900)
if(EGRET_SANITIZE)
  set(EGRET_TEST_SECONDS 4500)
endif()
if("$ENV{EGRET_TEST_SCALE}" MATCHES "^[0-9]+$")
  math(EXPR EGRET_TEST_SECONDS "${EGRET_TEST_SECONDS} * $ENV{EGRET_TEST_SCALE}")
endif()

# Schedules are chosen without what the user's searches found before; tests of that name folders of their own. A kernel that a compiler
# or verification refuses is an error; tests that plant one take that back.
set(EGRET_TEST_ENVIRONMENT EGRET_CACHE=off EGRET_STRICT=1)

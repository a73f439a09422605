// What a compiled step on a GPU may ask of the driver.
#pragma once

#include "egret/counters.h"

#include <gtest/gtest.h>

#include <functional>

namespace egret::testing {

/// After three runs, each of five more is one graph launch that copies and allocates nothing; gives
/// what the five used.
template <class Fake>
Counters expect_one_launch_a_run(Fake& fake, const std::function<void()>& run) {
  for (int i = 0; i < 3; ++i)
    run();
  const Counters before = counters();
  const auto launches = fake.graph_launches, copies = fake.copies;
  for (int i = 0; i < 5; ++i)
    run();
  const Counters used = counters() - before;
  EXPECT_EQ(used.submissions, 5u);
  EXPECT_EQ(fake.graph_launches - launches, 5u);
  EXPECT_EQ(fake.copies - copies, 0u);
  EXPECT_EQ(used.device_allocations, 0u);
  EXPECT_EQ(used.host_copies, 0u);
  return used;
}

} // namespace egret::testing

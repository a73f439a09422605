// As property/compiler/reduction_graphs_test.cpp, at length.
#include "support/reduction_check.h"

namespace egret::testing {
namespace {

TEST(ReductionGraphsAtLength, AgreeWithTheReference) {
  ReductionCheck().run(1000, 2000);
}

} // namespace
} // namespace egret::testing

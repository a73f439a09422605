// Programs of reductions, softmaxes and chains of products agree with the reference; 2,000 of them
// in property/slow_compiler.
#include "support/reduction_check.h"

namespace egret::testing {
namespace {

TEST(ReductionGraphs, AgreeWithTheReference) {
  ReductionCheck().run(1, 60);
}

} // namespace
} // namespace egret::testing

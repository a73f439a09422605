// Random typed graphs agree with the reference, forward and backward. EGRET_TYPED_GRAPHS=N checks
// the graphs of seeds 1 to N (2,000); EGRET_TYPED_GRAPH=SEED that of one seed alone.
#include "backend/cpu/cpu_device.h"
#include "support/op_cases.h"
#include "support/typed_graphs.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace egret::testing {
namespace {

/// No gradient passes through these: sources, steps, what gives integers or bools, and
/// stop_gradient by decree. They stand in graphs that are differentiated all the same.
const std::set<Op> kWithoutGradient{
    Op::Input, Op::Constant, Op::Iota,         Op::Bitcast, Op::Floor,       Op::Trunc,
    Op::IDiv,  Op::Eq,       Op::Lt,           Op::And,     Op::Or,          Op::Xor,
    Op::Shl,   Op::Shr,      Op::ReduceArgMax, Op::ArgSort, Op::StopGradient};

void expect_all_covered(const TypedGraphs& graphs) {
  for (int i = 0; i < kOps; ++i) {
    const Op op = static_cast<Op>(i);
    EXPECT_TRUE(graphs.drawn.contains(op)) << info_of(op).name;
    EXPECT_NE(graphs.differentiated.contains(op), kWithoutGradient.contains(op))
        << info_of(op).name;
  }
  for (DType type : all_dtypes())
    EXPECT_TRUE(graphs.dtypes.contains(type)) << name_of(type);
  const auto device = backend::cpu::make_cpu_device(2);
  for (const kernel::Generator* generator : reachable_generators(device->target()))
    EXPECT_TRUE(graphs.generators.contains(generator->name())) << generator->name();
  EXPECT_EQ(graphs.most_ops, 40u);
  EXPECT_LT(graphs.vacuous, graphs.checked / 50) << "elements of which nothing could be said";
}

TEST(TypedGraphs, AgreeWithTheReferenceForwardAndBackward) {
  const char* alone = std::getenv("EGRET_TYPED_GRAPH");
  const char* given = std::getenv("EGRET_TYPED_GRAPHS");
  TypedGraphs graphs;
  if (alone)
    graphs.run(std::strtoull(alone, nullptr, 10), 1);
  else
    graphs.run(1, given ? std::strtoull(given, nullptr, 10) : 2000);
  for (const TypedFailure& failure : graphs.failures)
    ADD_FAILURE() << failure.text();
  RecordProperty("graphs", std::to_string(graphs.graphs));
  RecordProperty("elements", std::to_string(graphs.checked));
  RecordProperty("elements of which nothing could be said", std::to_string(graphs.vacuous));
  if (graphs.graphs >= 2000 && graphs.failures.empty())
    expect_all_covered(graphs);
}

} // namespace
} // namespace egret::testing

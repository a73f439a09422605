// Tests generated from the op table: each row on each dtype it takes, with operands in every
// layout.
#include "support/op_cases.h"

#include "backend/reference/reference.h"
#include "egret/passes.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <set>

namespace egret::testing {
namespace {

using backend::reference::HostArray;

const std::vector<OpCase>& cases() {
  static const std::vector<OpCase> kCases = op_cases();
  return kCases;
}

TEST(OpCases, CoverEveryOpAndEveryDTypeThatItTakes) {
  std::set<std::pair<Op, DType>> covered;
  for (const OpCase& c : cases()) {
    ir::verify(c.graph);
    covered.emplace(c.op, c.dtype);
  }
  for (int i = 0; i < kOps; ++i)
    for (DType dtype : all_dtypes()) {
      auto op = static_cast<Op>(i);
      if (op == Op::Input || op == Op::Constant)
        continue;
      EXPECT_EQ(covered.contains({op, dtype}), takes(op, dtype))
          << info_of(op).name << " " << name_of(dtype);
    }
}

TEST(OpCases, WhatAnOpDoesNotTakeIsRefused) {
  for (int i = 0; i < kOps; ++i) {
    auto op = static_cast<Op>(i);
    for (DType dtype : all_dtypes()) {
      if (takes(op, dtype) || op == Op::Iota)
        continue;
      ir::Graph g;
      ir::NodeId x = g.input("x", dtype, {2}), index = g.input("i", DType::I64, {2});
      std::vector<ir::NodeId> operands(static_cast<std::size_t>(info_of(op).arity), x);
      if (info_of(op).cls == OpClass::Scatter)
        operands[1] = index;
      ir::Attrs attrs;
      if (info_of(op).cls == OpClass::Reduce || info_of(op).cls == OpClass::Scan ||
          info_of(op).cls == OpClass::Scatter)
        attrs.axes = {0};
      if (info_of(op).cls == OpClass::Sort) {
        attrs.axes = {0};
        attrs.shape = {2};
      }
      try {
        g.add(op, operands, attrs);
        ADD_FAILURE() << info_of(op).name << " took " << name_of(dtype);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::DType) << error.what();
      }
    }
  }
}

TEST(OpCases, ParseBackFromTheirText) {
  for (const OpCase& c : cases()) {
    std::string text = print(c.graph);
    EXPECT_EQ(print(ir::parse_graph(text)), text) << c.name;
  }
}

TEST(OpCases, TheReferenceComputesWhatTheTableDefines) {
  for (const OpCase& c : cases()) {
    if (!is_elementwise(c.op))
      continue;
    auto inputs = random_inputs(c.graph, static_cast<std::uint64_t>(c.op));
    const ir::Node& node = c.graph[c.graph.outputs[0]];
    auto operands = backend::reference::execute(c.graph, inputs, node.inputs);
    HostArray result = backend::reference::execute(c.graph, inputs)[0];
    for (std::int64_t i = 0; i < result.size(); ++i) {
      std::vector<Scalar> values;
      for (const HostArray& a : operands)
        values.push_back(backend::reference::scalar_of(a.dtype, a.at(i)));
      Scalar wanted = apply(c.op, node.dtype, values);
      EXPECT_TRUE(
          backend::reference::same(node.dtype, result.at(i), backend::reference::number_of(wanted)))
          << c.name << " of " << values[0].str() << ": " << wanted.str() << " by the table, "
          << backend::reference::text_of(node.dtype, result.at(i)) << " by the reference";
    }
  }
}

TEST(OpCases, NormalizationKeepsTheirValues) {
  for (const OpCase& c : cases()) {
    auto inputs = random_inputs(c.graph, 7);
    HostArray wanted = backend::reference::execute(c.graph, inputs)[0];
    HostArray got = backend::reference::execute(passes::normalize()(c.graph), inputs)[0];
    for (std::int64_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(backend::reference::same(wanted.dtype, wanted.at(i), got.at(i))) << c.name;
  }
}

} // namespace
} // namespace egret::testing

// Tables whose slices are gathered from where they lie together.
#include "compiler/gather_tables.h"

#include "support/equal_values.h"

#include <gtest/gtest.h>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;

/// Rows of the transposed matrix, `places` of them.
Graph transposed_rows(std::int64_t rows, std::int64_t columns, std::int64_t places,
                      int readers = 1) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {columns, rows}), table = g.permute(x, {1, 0});
  for (int i = 0; i < readers; ++i) {
    const NodeId at = g.input("at" + std::to_string(i), DType::I64, {places});
    g.outputs.push_back(g.gather(table, at, 0));
  }
  return g;
}

int copies(const Graph& g) {
  const Graph after = with_gather_tables(g);
  ir::verify(after);
  int found = 0;
  for (NodeId id = 0; id < after.size(); ++id)
    found += after[id].op == Op::StopGradient;
  return found;
}

TEST(GatherTables, AViewWhoseSlicesLieApartIsCopiedOnce) {
  EXPECT_EQ(copies(transposed_rows(50, 16, 200)), 1);
  EXPECT_EQ(copies(transposed_rows(50, 16, 200, 3)), 1); // for all readers
  EXPECT_EQ(copies(transposed_rows(50, 16, 60)), 0);     // too few are gathered
  EXPECT_EQ(copies(transposed_rows(50, 4, 400)), 0);     // short slices
}

TEST(GatherTables, WhatLiesTogetherStays) {
  Graph g;
  const NodeId x = g.input("x", DType::F32, {4, 50, 16}), at = g.input("at", DType::I64, {400});
  g.outputs = {g.gather(g.reshape(x, {200, 16}), at, 0)};
  EXPECT_EQ(ir::print(with_gather_tables(g)), ir::print(g));
  Graph last; // single elements along the last axis
  const NodeId y = last.input("y", DType::F32, {16, 50}), of = last.input("at", DType::I64, {400});
  last.outputs = {last.gather(last.permute(y, {1, 0}), of, 1)};
  EXPECT_EQ(copies(last), 0);
}

TEST(GatherTables, ValuesStay) {
  const Graph g = transposed_rows(50, 16, 200, 2);
  testing::expect_equal_values(g, with_gather_tables(g));
}

} // namespace
} // namespace egret::compiler

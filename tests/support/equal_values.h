// Whether a pass keeps the values of a graph.
#pragma once

#include "backend/reference/compare.h"
#include "backend/reference/reference.h"
#include "egret/ir.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>

#include <string>

namespace egret::testing {

/// Compares what two graphs of the same inputs compute on the oracle, of random numbers up to 1 and
/// within its error bounds; checks the second one, too. `what` stands before messages.
inline void expect_equal_values(const ir::Graph& before, const ir::Graph& after,
                                const std::string& what = {}) {
  ir::verify(after);
  const auto inputs = random_inputs(before, 5, {.special = false, .range = 1});
  const auto expected = backend::reference::expect(before, inputs);
  const auto actual = backend::reference::execute(after, inputs);
  for (std::size_t o = 0; o < actual.size(); ++o) {
    const auto result = backend::reference::compare(actual[o], expected[o], "output");
    EXPECT_TRUE(result.ok) << what << "\n" << result.message << "\n" << ir::print(after);
  }
}

} // namespace egret::testing

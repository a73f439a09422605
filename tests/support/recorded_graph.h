// Graphs as their tests record them.
#pragma once

#include "egret/graph.h"
#include "egret/ir.h"
#include "egret/passes.h"

#include <span>

namespace egret::testing {

/// The graph of the outputs as recorded, then normalized. Nothing is compiled: machine code for a
/// graph that is only looked at takes most of a test's time.
inline ir::Graph recorded_graph(egret::Graph& cx, std::span<Tensor> outputs) {
  struct Recorded {};
  ir::Graph graph;
  for (Tensor& output : outputs)
    output.retrieve();
  try {
    cx.compile(Pass("record", [&](const ir::Graph& g, Notes&) -> ir::Graph {
      graph = g;
      throw Recorded{};
    }));
  } catch (const Recorded&) { // all that was wanted
  }
  return passes::normalize()(ir::without_dead_code(graph));
}

} // namespace egret::testing

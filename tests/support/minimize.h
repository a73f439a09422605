// Makes a graph that fails a check as small as it gets, so that a failure can be read and kept.
#pragma once

#include "egret/ir.h"

#include <functional>

namespace egret::testing {

/// Whether a graph still shows the failure. Asked of verified graphs only; inputs that have the
/// name of an input of the first graph stand for that input.
using Fails = std::function<bool(const ir::Graph&)>;

/// For a graph that fails, a smaller one that fails too: fewer outputs, nodes replaced by operands
/// or inputs of their type, symbols by sizes, sizes by smaller ones; without dead nodes and inputs
/// that nothing reads. No single such step makes it smaller unless `trials` (calls of `fails`) ran
/// out. The graph itself when it does not fail.
ir::Graph minimized(const ir::Graph& graph, const Fails& fails, int trials = 2000);

} // namespace egret::testing

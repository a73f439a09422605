// The compiler's search for a cheaper graph, step by step: the graph as terms with the rules, the
// e-graph that they fill, what is extracted of it (docs/search.md). compile() does all of it; this
// is for looking at it.
#pragma once

#include "egret/egraph.h"
#include "egret/ir.h"

#include <string>

namespace egret {

/// The graph as a program of the rule engine: its terms, the compiler's exact rules, the order in
/// which they run, and an extraction of each output. Error(Unsupported) for what has no terms.
std::string rewrite_program(const ir::Graph& graph);

/// An e-graph that knows the functions over shapes and attributes which such programs, and those of
/// Graph::loop_program(), call:
///
///   egraph::EGraph space = tensor_egraph();
///   std::cout << space.run_program(rewrite_program(graph)); // what was extracted
///   std::ofstream("space.json") << space.to_json();
egraph::EGraph tensor_egraph();

} // namespace egret

#include "compiler/candidate_graph.h"

#include <utility>

namespace egret::compiler {

CandidateGraph::CandidateGraph(ir::Graph graph, std::size_t ops)
    : graph_(std::move(graph)), ops_(ops > 0 ? ops : graph_.size()), facts_(graph_) {}

} // namespace egret::compiler

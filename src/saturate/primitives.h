// The functions over attributes that rules may call, as primitives of an e-graph.
#pragma once

#include "egret/egraph.h"
#include "saturate/attributes.h"

#include <memory>

namespace egret::saturate {

/// Declares them (docs/search.md lists them). The e-graph and its copies share `attributes` and
/// keep it alive; they then belong to one thread together.
void declare_primitives(egraph::EGraph& egraph, std::shared_ptr<Attributes> attributes);

} // namespace egret::saturate

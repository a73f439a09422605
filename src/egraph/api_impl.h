// What the public classes hold.
#pragma once

#include "egraph/interpreter.h"

namespace egret::egraph {

struct EGraph::Impl {
  Interpreter interpreter;
  Engine& engine() { return interpreter.engine; }
};

/// For the command, which shows more than the interface does.
struct EGraphAccess {
  static Interpreter& interpreter(EGraph& egraph) { return egraph.impl_->interpreter; }
};

/// Typed nodes under construction. The engine is that of the e-graph the builder was made for.
struct RuleBuilder::Parts {
  const Engine* engine = nullptr;
  Typed typed;
  std::map<std::string, std::uint32_t> variables;
};

} // namespace egret::egraph

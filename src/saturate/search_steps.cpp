#include "egret/search_steps.h"

#include "egret/passes.h"
#include "saturate/primitives.h"
#include "saturate/saturate.h"

namespace egret {

std::string rewrite_program(const ir::Graph& graph) {
  return saturate::program_text(passes::normalize()(graph), {});
}

egraph::EGraph tensor_egraph() {
  egraph::EGraph made;
  saturate::declare_primitives(made, std::make_shared<saturate::Attributes>());
  return made;
}

} // namespace egret

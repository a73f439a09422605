// What the forms between passes look like as text, and what must hold of them.
#pragma once

#include "compiler/compilation.h"

#include <string>

namespace egret::compiler {

/// By node that is a view of another: the chain of movement operations as one index map; and which
/// sums are of products.
std::string print(const GraphFacts& facts);
/// One line a group: its kind, its loops and the nodes that it computes.
std::string print(const Partition& partition, const ir::Graph& graph);
std::string print(const std::vector<BuiltRegion>& regions);
std::string print(const Proposed& proposed);
std::string print(const GeneratedCode& code, const kernel::Plan& plan,
                  const std::vector<Chain>& chains);

/// Every stored node that is no input is computed by one group, unless it is recomputed by all that
/// read it, and groups come before those that read what they store. InternalError otherwise.
void verify(const GraphFacts& facts, const Partition& partition);
/// Regions are well formed, and know the node of each operand and output.
void verify(const std::vector<BuiltRegion>& regions, const ir::Graph& graph);
/// Every region has a verified program.
void verify(const Proposed& proposed, const std::vector<BuiltRegion>& regions);

} // namespace egret::compiler

// The order of long independent computations in straight-line code.
#pragma once

#include <llvm/IR/Function.h>

namespace egret::backend::cpu {

/// Marks `result` as the end of a long chain of dependent instructions, a transcendental function.
void mark_chain(llvm::Value* result);

/// Where a block computes several marked chains one after the other, `together` of them at a time
/// are made to advance in step. A CPU looks ahead by some hundred instructions only: of chains in
/// sequence it has the next few under way, of chains in step twice as many.
void interleave_chains(llvm::Function& function, int together);

} // namespace egret::backend::cpu

#include "backend/cpu_codegen/interleave.h"

#include <llvm/ADT/DenseMap.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/LLVMContext.h>

#include <algorithm>
#include <vector>

namespace egret::backend::cpu {
namespace {

constexpr const char* kMark = "egret.chain";

// Cycles until a dependent instruction can start, roughly.
int latency(const llvm::Instruction& instruction) {
  if (instruction.getOpcode() == llvm::Instruction::FDiv)
    return 11;
  if (llvm::isa<llvm::GetElementPtrInst>(instruction))
    return 0; // part of the load
  return instruction.getType()->isFPOrFPVectorTy() ? 4 : 1;
}

// Orders instructions by the time at which their operands are there; those of the same time keep
// their order, and so do accesses to memory of which one writes.
void advance_in_step(const std::vector<llvm::Instruction*>& part, llvm::Instruction* end) {
  llvm::DenseMap<const llvm::Value*, int> ready;
  std::vector<std::pair<int, llvm::Instruction*>> order;
  int last_write = 0, last_access = 0;
  for (llvm::Instruction* instruction : part) {
    int start = 0;
    for (const llvm::Use& operand : instruction->operands())
      if (auto found = ready.find(operand.get()); found != ready.end())
        start = std::max(start, found->second);
    if (instruction->mayWriteToMemory())
      last_write = start = std::max({start, last_write, last_access});
    else if (instruction->mayReadFromMemory())
      start = std::max(start, last_write);
    if (instruction->mayReadOrWriteMemory())
      last_access = std::max(last_access, start);
    ready[instruction] = start + latency(*instruction);
    order.emplace_back(start, instruction);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [start, instruction] : order)
    instruction->moveBefore(end);
}

} // namespace

void mark_chain(llvm::Value* result) {
  if (auto* instruction = llvm::dyn_cast<llvm::Instruction>(result))
    instruction->setMetadata(kMark, llvm::MDNode::get(instruction->getContext(), {}));
}

void interleave_chains(llvm::Function& function, int together) {
  for (llvm::BasicBlock& block : function) {
    int chains = 0;
    for (llvm::Instruction& instruction : block)
      chains += instruction.getMetadata(kMark) != nullptr ? 1 : 0;
    if (chains < 2)
      continue;
    std::vector<std::vector<llvm::Instruction*>> parts(1);
    int ended = 0;
    for (llvm::Instruction& instruction : block) {
      if (llvm::isa<llvm::PHINode>(instruction))
        continue;
      if (instruction.isTerminator())
        break;
      parts.back().push_back(&instruction);
      if (instruction.getMetadata(kMark) != nullptr && ++ended % together == 0 && ended < chains)
        parts.emplace_back();
    }
    for (auto& part : parts) {
      // Parts keep their order: each goes in front of what follows it.
      llvm::Instruction* next = part.empty() ? nullptr : part.back()->getNextNode();
      if (next != nullptr)
        advance_in_step(part, next);
    }
  }
}

} // namespace egret::backend::cpu

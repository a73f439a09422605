// Transcendental functions.
#include "backend/cpu/ops.h"

#include "support/fail.h"

#include <llvm/IR/Module.h>

#include <string>

namespace egret::backend::cpu {

Num call_library(const char* name, Num x, llvm::Value* second) {
  llvm::IRBuilder<>& b = x.b();
  llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::Module& module = *function->getParent();
  llvm::BasicBlock& entry = function->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  auto spill = [&](llvm::Value* v) {
    llvm::AllocaInst* slot = at_entry.CreateAlloca(v->getType());
    slot->setAlignment(llvm::Align(64));
    b.CreateAlignedStore(v, slot, llvm::Align(64));
    return slot;
  };
  llvm::AllocaInst* first = spill(x);
  llvm::SmallVector<llvm::Value*, 3> args{first};
  if (second != nullptr)
    args.push_back(spill(second));
  args.push_back(b.getInt64(static_cast<std::uint64_t>(x.lanes())));
  llvm::SmallVector<llvm::Type*, 3> types;
  for (llvm::Value* arg : args)
    types.push_back(arg->getType());
  llvm::FunctionCallee callee =
      module.getOrInsertFunction(name, llvm::FunctionType::get(b.getVoidTy(), types, false));
  llvm::CallInst* call = b.CreateCall(callee, args);
  call->setDoesNotThrow();
  // Only the arrays are touched.
  call->setMemoryEffects(llvm::MemoryEffects::argMemOnly());
  return x.with(b.CreateAlignedLoad(x.type(), first, llvm::Align(64)));
}

Num math(Op op, Num x) {
  std::string name = "egret_" + std::string(info_of(op).name) + "_f64";
  if (x.bits() == 64)
    return call_library(name.c_str(), x);
  return to_f32(call_library(name.c_str(), to_f64(x)));
}

Num power(Num x, Num y) {
  if (x.bits() == 64)
    return call_library("egret_pow_f64", x, y);
  return to_f32(call_library("egret_pow_f64", to_f64(x), to_f64(y)));
}

Num floor_mod(Num x, Num y) {
  if (x.bits() == 64)
    return call_library("egret_mod_f64", x, y);
  return to_f32(call_library("egret_mod_f64", to_f64(x), to_f64(y)));
}

} // namespace egret::backend::cpu

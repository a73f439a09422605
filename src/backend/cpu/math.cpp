// Transcendental functions.
#include "backend/cpu/math_f32.h"
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
  if (x.bits() == 64) {
    std::string name = "egret_" + std::string(info_of(op).name) + "_f64";
    return call_library(name.c_str(), x);
  }
  switch (op) {
  case Op::Exp:
    return exp_f32(x);
  case Op::Exp2:
    return exp2_f32(x);
  case Op::Expm1:
    return expm1_f32(x);
  case Op::Log:
    return log_f32(x);
  case Op::Log2:
    return log2_f32(x);
  case Op::Log1p:
    return log1p_f32(x);
  case Op::Sin:
    return sin_f32(x);
  case Op::Cos:
    return cos_f32(x);
  case Op::Tanh:
    return tanh_f32(x);
  case Op::Erf:
    return erf_f32(x);
  case Op::Sigmoid:
    return sigmoid_f32(x);
  default:
    break;
  }
  ensure(false, "cpu renderer: {} has no code for floats", info_of(op).name);
  return x;
}

Num power(Num x, Num y) {
  return x.bits() == 64 ? call_library("egret_pow_f64", x, y) : power_f32(x, y);
}

Num floor_mod(Num x, Num y) {
  return x.bits() == 64 ? call_library("egret_mod_f64", x, y) : floor_mod_f32(x, y);
}

} // namespace egret::backend::cpu

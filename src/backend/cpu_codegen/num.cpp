#include "backend/cpu_codegen/num.h"

#include <llvm/IR/Module.h>

#include <bit>

namespace egret::backend::cpu {

Num fma(Num a, Num b, Num c) {
  if (a.sink().isa.fma)
    return a.with(a.b().CreateIntrinsic(llvm::Intrinsic::fma, {a.type()}, {a, b, c}));
  if (a.bits() == 64)
    return a * b + c;
  return to_f32(to_f64(a) * to_f64(b) + to_f64(c));
}

Num exact_sum_odd(Num a, Num b) {
  Num sum = a + b;
  Num bb = sum - a;
  Num error = (a - (sum - bb)) + (b - bb); // exact, Knuth
  Num bits = to_bits(sum);
  Num one = bits.word(1);
  // When the error points away from zero the neighbour below in magnitude is not wanted: both
  // neighbours of an even number are odd, and the right one lies in the direction of the error.
  Num away = (to_bits(error) ^ bits) >= 0.0; // same sign
  Num odd = select(away, bits + one, bits - one);
  Num even = (bits & one) == bits.word(0);
  Num inexact = error.with(error.b().CreateFCmpONE(error, error.like(0)));
  return from_bits(select(even & inexact, odd, bits));
}

Num exact_fma(Num a, Num b, Num c) {
  if (a.sink().isa.fma)
    return fma(a, b, c);
  if (a.bits() == 32)
    return to_f32(exact_sum_odd(to_f64(a) * to_f64(b), to_f64(c)));
  return call_library("egret_fma_f64", a, {b, c});
}

namespace {

// Adding 1.5 * 2^(mantissa bits) leaves the integer in the low bits.
double rounding_summand(Num x) {
  return x.bits() == 32 ? 0x1.8p23 : 0x1.8p52;
}

Num unshift(Num shifted, Num* as_int) {
  Num magic = shifted.like(rounding_summand(shifted));
  if (as_int != nullptr) {
    // Added, so that it joins what callers add to it.
    double summand = rounding_summand(shifted);
    std::uint64_t bits = shifted.bits() == 32
                             ? std::bit_cast<std::uint32_t>(static_cast<float>(summand))
                             : std::bit_cast<std::uint64_t>(summand);
    *as_int = to_bits(shifted) + to_bits(shifted).word(-bits);
  }
  return shifted - magic;
}

} // namespace

Num round_small(Num x, Num* as_int) {
  return unshift(x + rounding_summand(x), as_int);
}

Num round_small_product(Num x, double c, Num* as_int) {
  Num magic = x.like(rounding_summand(x));
  return unshift(x.sink().isa.fma ? fma(x, x.like(c), magic) : x * c + magic, as_int);
}

Num trunc(Num x) {
  if (x.sink().isa.sse41)
    return x.with(x.b().CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x));
  // Beyond 2^mantissa every number is integral, and NaN and infinities stay.
  Num small = abs(x) < (x.bits() == 32 ? 0x1p23 : 0x1p52);
  Num safe = select(small, x, 0.0);
  llvm::Value* whole = x.b().CreateFPToSI(safe, x.as_int_type());
  Num rounded = copysign(x.with(x.b().CreateSIToFP(whole, x.type())), x);
  return select(small, rounded, x);
}

Num floor(Num x) {
  if (x.sink().isa.sse41)
    return x.with(x.b().CreateUnaryIntrinsic(llvm::Intrinsic::floor, x));
  Num t = trunc(x);
  return select(t > x, t - 1.0, t);
}

Num call_library(const char* name, Num x, std::initializer_list<Num> others) {
  llvm::IRBuilder<>& b = x.b();
  llvm::Function* function = b.GetInsertBlock()->getParent();
  llvm::BasicBlock& entry = function->getEntryBlock();
  llvm::IRBuilder<> at_entry(&entry, entry.begin());
  llvm::SmallVector<llvm::Value*, 4> args;
  llvm::SmallVector<llvm::Type*, 4> types;
  auto spill = [&](Num v) {
    llvm::AllocaInst* slot = at_entry.CreateAlloca(v.type());
    slot->setAlignment(llvm::Align(64));
    b.CreateAlignedStore(v, slot, llvm::Align(64));
    args.push_back(slot);
  };
  spill(x);
  for (Num other : others)
    spill(other);
  args.push_back(b.getInt64(static_cast<std::uint64_t>(x.lanes())));
  for (llvm::Value* arg : args)
    types.push_back(arg->getType());
  llvm::FunctionCallee callee = function->getParent()->getOrInsertFunction(
      name, llvm::FunctionType::get(b.getVoidTy(), types, false));
  llvm::CallInst* call = b.CreateCall(callee, args);
  call->setDoesNotThrow();
  call->setMemoryEffects(llvm::MemoryEffects::argMemOnly());
  return x.with(b.CreateAlignedLoad(x.type(), args[0], llvm::Align(64)));
}

Num any(Num condition) {
  return condition.type()->isVectorTy() ? condition.with(condition.b().CreateOrReduce(condition))
                                        : condition;
}

Num to_f32_odd(Num x) {
  Num nearest = to_f32(x);
  Num back = to_f64(nearest);
  Num bits = to_bits(nearest);
  Num beyond = abs(back) > abs(x);
  Num toward_zero = select(beyond, bits - bits.word(1), bits);
  Num inexact = x.with(x.b().CreateFCmpONE(back, x));
  return from_bits(select(inexact, toward_zero | toward_zero.word(1), toward_zero));
}

} // namespace egret::backend::cpu

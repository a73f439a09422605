// A small language over LLVM's builder, so that formulas in this folder read as formulas. A Num is
// a scalar or vector, float or integer; an operator emits the instruction for its type.
#pragma once

#include "backend/cpu/host.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <cstdint>
#include <initializer_list>

namespace egret::backend::cpu {

/// Where instructions go and what the machine can do.
struct Sink {
  llvm::IRBuilder<>& b;
  const Isa& isa;
};

class Num {
public:
  Num(Sink& sink, llvm::Value* value) : sink_(&sink), value_(value) {}
  llvm::Value* value() const { return value_; }
  operator llvm::Value*() const { return value_; }
  Sink& sink() const { return *sink_; }
  llvm::IRBuilder<>& b() const { return sink_->b; }

  llvm::Type* type() const { return value_->getType(); }
  llvm::Type* element() const { return type()->getScalarType(); }
  bool is_float() const { return type()->isFPOrFPVectorTy(); }
  unsigned bits() const { return element()->getScalarSizeInBits(); }
  int lanes() const {
    auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(type());
    return vector == nullptr ? 1 : static_cast<int>(vector->getNumElements());
  }
  /// The same shape with another element type.
  llvm::Type* shaped(llvm::Type* element) const {
    return lanes() == 1 && !type()->isVectorTy()
               ? element
               : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes()));
  }
  llvm::Type* as_int_type() const { return shaped(b().getIntNTy(bits())); }

  /// Constants of this number's type.
  Num like(double x) const {
    return {*sink_,
            is_float()
                ? llvm::ConstantFP::get(type(), x)
                : llvm::ConstantInt::get(
                      type(), static_cast<std::uint64_t>(static_cast<std::int64_t>(x)), true)};
  }
  Num word(std::uint64_t x) const { return {*sink_, llvm::ConstantInt::get(type(), x)}; }
  Num with(llvm::Value* value) const { return {*sink_, value}; }

private:
  Sink* sink_;
  llvm::Value* value_;
};

inline Num operator+(Num a, Num b) {
  return a.with(a.is_float() ? a.b().CreateFAdd(a, b) : a.b().CreateAdd(a, b));
}
inline Num operator-(Num a, Num b) {
  return a.with(a.is_float() ? a.b().CreateFSub(a, b) : a.b().CreateSub(a, b));
}
inline Num operator*(Num a, Num b) {
  return a.with(a.is_float() ? a.b().CreateFMul(a, b) : a.b().CreateMul(a, b));
}
inline Num operator/(Num a, Num b) {
  return a.with(a.b().CreateFDiv(a, b));
} ///< floats only
inline Num operator-(Num a) {
  return a.with(a.is_float() ? a.b().CreateFNeg(a) : a.b().CreateNeg(a));
}
inline Num operator&(Num a, Num b) {
  return a.with(a.b().CreateAnd(a, b));
}
inline Num operator|(Num a, Num b) {
  return a.with(a.b().CreateOr(a, b));
}
inline Num operator^(Num a, Num b) {
  return a.with(a.b().CreateXor(a, b));
}
inline Num operator~(Num a) {
  return a.with(a.b().CreateNot(a));
}
inline Num operator<<(Num a, int n) {
  return a.with(a.b().CreateShl(a, static_cast<unsigned>(n)));
}
/// Logical; sar() is the arithmetic one.
inline Num operator>>(Num a, int n) {
  return a.with(a.b().CreateLShr(a, static_cast<unsigned>(n)));
}
inline Num sar(Num a, int n) {
  return a.with(a.b().CreateAShr(a, static_cast<unsigned>(n)));
}

/// Comparisons: floats ordered (false for NaN) but !=, integers signed.
inline Num operator<(Num a, Num b) {
  return a.with(a.is_float() ? a.b().CreateFCmpOLT(a, b) : a.b().CreateICmpSLT(a, b));
}
inline Num operator<=(Num a, Num b) {
  return a.with(a.is_float() ? a.b().CreateFCmpOLE(a, b) : a.b().CreateICmpSLE(a, b));
}
inline Num operator>(Num a, Num b) {
  return b < a;
}
inline Num operator>=(Num a, Num b) {
  return b <= a;
}
inline Num operator==(Num a, Num b) {
  return a.with(a.is_float() ? a.b().CreateFCmpOEQ(a, b) : a.b().CreateICmpEQ(a, b));
}
inline Num operator!=(Num a, Num b) {
  return a.with(a.is_float() ? a.b().CreateFCmpUNE(a, b) : a.b().CreateICmpNE(a, b));
}
inline Num is_nan(Num a) {
  return a.with(a.b().CreateFCmpUNO(a, a));
}

#define EGRET_WITH_CONSTANT(op)                                                                    \
  inline Num operator op(Num a, double c) {                                                        \
    return a op a.like(c);                                                                         \
  }
EGRET_WITH_CONSTANT(+)
EGRET_WITH_CONSTANT(-)
EGRET_WITH_CONSTANT(*)
EGRET_WITH_CONSTANT(/)
EGRET_WITH_CONSTANT(<)
EGRET_WITH_CONSTANT(<=)
EGRET_WITH_CONSTANT(>)
EGRET_WITH_CONSTANT(>=)
EGRET_WITH_CONSTANT(==)
EGRET_WITH_CONSTANT(!=)
#undef EGRET_WITH_CONSTANT

inline Num select(Num condition, Num a, Num b) {
  return a.with(a.b().CreateSelect(condition, a, b));
}
inline Num select(Num condition, Num a, double b) {
  return select(condition, a, a.like(b));
}
inline Num select(Num condition, double a, Num b) {
  return select(condition, b.like(a), b);
}

/// The bits of a float as an integer of the same width, and back.
inline Num to_bits(Num a) {
  return a.with(a.b().CreateBitCast(a, a.as_int_type()));
}
inline Num from_bits(Num a) {
  llvm::Type* type = a.bits() == 32 ? a.b().getFloatTy() : a.b().getDoubleTy();
  return a.with(a.b().CreateBitCast(a, a.shaped(type)));
}
inline Num to_f64(Num a) {
  return a.with(a.b().CreateFPExt(a, a.shaped(a.b().getDoubleTy())));
}
inline Num to_f32(Num a) {
  return a.with(a.b().CreateFPTrunc(a, a.shaped(a.b().getFloatTy())));
}
inline Num int_to(Num a, unsigned bits, bool is_signed) {
  return a.with(a.b().CreateIntCast(a, a.shaped(a.b().getIntNTy(bits)), is_signed));
}

inline Num abs(Num a) {
  return a.with(a.b().CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a));
}
inline Num copysign(Num magnitude, Num sign) {
  return magnitude.with(
      magnitude.b().CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign));
}

/// a*b + c. Rounded once in hardware where the CPU has it; else f32 goes through f64, where the
/// product is exact and the sum rounded before it is rounded to f32 (a difference in a few cases in
/// 2^29), and f64 rounds twice.
Num fma(Num a, Num b, Num c);
/// a*b + c rounded once, everywhere.
Num exact_fma(Num a, Num b, Num c);
/// The sum of two f64 with its last bit set where it is not exact (rounding to odd), so that a
/// later rounding is the only one.
Num exact_sum_odd(Num a, Num b);
/// Rounded to nearest integral value, |x| < 2^22 (f32) or 2^51 (f64); `as_int` gets it as an
/// integer. NaN gives NaN and some integer.
Num round_small(Num x, Num* as_int = nullptr);
/// The same of x * c, where the CPU has fma without rounding the product.
Num round_small_product(Num x, double c, Num* as_int);
Num floor(Num x);
Num trunc(Num x);
/// f64 to f32 so that a later rounding to a narrower type rounds as if from the f64: towards zero,
/// with the last bit set when inexact.
Num to_f32_odd(Num x);

/// Calls the library function `name` (math_library.h) on the lanes of `x`: it takes an array of
/// them, arrays of the others, and their number, and works in place on the first.
Num call_library(const char* name, Num x, std::initializer_list<Num> others = {});

/// Whether any lane of an i1 holds, as one i1.
Num any(Num condition);

/// `usual`, but make() in the lanes where the condition holds; make()'s code runs only when some
/// lane needs it.
template <class F>
Num where_rare(Num condition, Num usual, F make) {
  llvm::IRBuilder<>& b = usual.b();
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::Function* function = before->getParent();
  auto* rare = llvm::BasicBlock::Create(b.getContext(), "rare", function);
  auto* after = llvm::BasicBlock::Create(b.getContext(), "usual", function);
  llvm::MDNode* weights = llvm::MDBuilder(b.getContext()).createBranchWeights(1, 2000);
  b.CreateCondBr(any(condition), rare, after, weights);
  b.SetInsertPoint(rare);
  Num replaced = select(condition, make(), usual);
  llvm::BasicBlock* end = b.GetInsertBlock();
  b.CreateBr(after);
  b.SetInsertPoint(after);
  llvm::PHINode* joined = b.CreatePHI(usual.type(), 2);
  joined->addIncoming(usual, before);
  joined->addIncoming(replaced, end);
  return usual.with(joined);
}

} // namespace egret::backend::cpu

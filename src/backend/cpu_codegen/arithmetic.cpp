// The arithmetic, comparisons and bit operations of the op table.
#include "backend/cpu_codegen/ops.h"

#include "support/fail.h"

#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/PatternMatch.h>

#include <limits>

namespace egret::backend::cpu {
namespace {

// Division of integers of at most 32 bits goes through f64, whose quotient is exact enough to
// truncate: CPUs have no vector division of integers, and the distance of a quotient a/b to the
// next integer, 1/|b|, is far above its rounding error. Of 64 bits it is one division a lane.
Num divide_safely(Num a, Num b, bool is_signed) {
  if (a.lanes() == 1 || a.bits() == 64)
    return a.with(is_signed ? a.b().CreateSDiv(a, b) : a.b().CreateUDiv(a, b));
  llvm::Type* f64 = a.shaped(a.b().getDoubleTy());
  auto as_float = [&](Num n) {
    return a.with(is_signed ? a.b().CreateSIToFP(n, f64) : a.b().CreateUIToFP(n, f64));
  };
  Num q = as_float(a) / as_float(b);
  return a.with(is_signed ? a.b().CreateFPToSI(q, a.type()) : a.b().CreateFPToUI(q, a.type()));
}

// floor(a / b); 0 where b is 0; the lowest value by -1 wraps to itself.
Num floor_divide(Num a, Num b, bool is_signed) {
  Num zero = a.word(0), one = a.word(1);
  Num by_zero = b == zero;
  if (!is_signed)
    return select(by_zero, zero, divide_safely(a, select(by_zero, one, b), false));
  Num by_minus_one = b == a.word(~std::uint64_t{0});
  Num divisor = select(by_zero | by_minus_one, one, b);
  Num q = divide_safely(a, divisor, true);
  Num rest = a - q * divisor;
  Num below = (rest != zero) & ((rest ^ divisor) < zero);
  q = select(below, q - one, q);
  q = select(by_minus_one, -a, q);
  return select(by_zero, zero, q);
}

Num floor_modulo(Num a, Num b, bool is_signed) {
  Num rest = a - floor_divide(a, b, is_signed) * b;
  return select(b == a.word(0), a.word(0), rest);
}

Num shift(Num a, Num count, bool left, bool is_signed) {
  Num zero = a.word(0);
  Num width = a.word(a.bits());
  Num oversized = a.with(a.b().CreateICmpUGE(count, width));
  if (!left && is_signed) {
    Num all = a.word(a.bits() - 1);
    return a.with(a.b().CreateAShr(a, select(oversized, all, count)));
  }
  Num safe = select(oversized, zero, count);
  Num shifted = a.with(left ? a.b().CreateShl(a, safe) : a.b().CreateLShr(a, safe));
  return select(oversized, zero, shifted);
}

Num float_op(Sink& sink, Op op, std::span<llvm::Value* const> args) {
  Num a(sink, args[0]);
  Num b(sink, args.size() > 1 ? args[1] : args[0]);
  switch (op) {
  case Op::Add:
    return a + b;
  case Op::Mul:
    return a * b;
  case Op::Div:
    return a / b;
  case Op::Recip:
    return a.like(1) / a;
  case Op::Sqrt:
    return a.with(a.b().CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a));
  case Op::Floor:
    return floor(a);
  case Op::Trunc:
    return trunc(a);
  case Op::Max:
    return maximum(a, b, a.bits() == 32 ? DType::F32 : DType::F64);
  case Op::Mod:
    return floor_mod(a, b);
  case Op::Pow:
    return power(a, b);
  case Op::Eq:
    return a == b;
  case Op::Lt:
    return a < b;
  default:
    return math(op, a);
  }
}

Num int_op(Sink& sink, Op op, DType type, std::span<llvm::Value* const> args) {
  Num a(sink, args[0]);
  Num b(sink, args.size() > 1 ? args[1] : args[0]);
  bool is_sig = is_signed(type);
  switch (op) {
  case Op::Add:
    return a + b;
  case Op::Mul:
    return a * b;
  case Op::IDiv:
    return floor_divide(a, b, is_sig);
  case Op::Mod:
    return floor_modulo(a, b, is_sig);
  case Op::Max:
    return maximum(a, b, type);
  case Op::Eq:
    return a == b;
  case Op::Lt:
    return a.with(is_sig ? a.b().CreateICmpSLT(a, b) : a.b().CreateICmpULT(a, b));
  case Op::And:
    return a & b;
  case Op::Or:
    return a | b;
  case Op::Xor:
    return a ^ b;
  case Op::Shl:
    return shift(a, b, true, is_sig);
  case Op::Shr:
    return shift(a, b, false, is_sig);
  default:
    break;
  }
  ensure(false, "cpu renderer: {} is not defined for {}", info_of(op).name, name_of(type));
  return a;
}

/// Whether `b` is -a.
bool is_negation(Num b, Num a) {
  using namespace llvm::PatternMatch;
  return match(b.value(), m_c_FMul(m_Specific(a.value()), m_SpecificFP(-1.0))) ||
         match(b.value(), m_FNeg(m_Specific(a.value())));
}

/// The instruction of x86 gives its second operand where both are zeros or one is NaN. What two of
/// them, with the operands exchanged, have in common is the larger: they differ where one is 0 and
/// the other one -0, and the bits of both are those of 0. LLVM chooses by the sign of an operand
/// instead, of scalars with a branch that is not predicted; of constants it knows the sign.
Num float_maximum(Num a, Num b) {
  if (is_negation(b, a))
    return abs(a);
  if (is_negation(a, b))
    return abs(b);
  if (!a.sink().isa.x86 || llvm::isa<llvm::Constant>(a.value()) ||
      llvm::isa<llvm::Constant>(b.value()))
    return a.with(a.b().CreateBinaryIntrinsic(llvm::Intrinsic::maximum, a, b));
  const Num larger = from_bits(to_bits(select(a > b, a, b)) & to_bits(select(b > a, b, a)));
  const Num unordered = a.with(a.b().CreateFCmpUNO(a, b));
  return select(unordered, std::numeric_limits<double>::quiet_NaN(), larger);
}

Num bitcast(Num a, DType from, DType to) {
  if (from == to)
    return a;
  if (to == DType::Bool)
    return a != a.word(0);
  if (from == DType::Bool)
    a = int_to(a, 8, false);
  return a.with(a.b().CreateBitCast(a, a.shaped(element_type(a.b().getContext(), to))));
}

} // namespace

llvm::Type* element_type(llvm::LLVMContext& context, DType type) {
  switch (type) {
  case DType::Bool:
    return llvm::Type::getInt1Ty(context);
  case DType::F32:
    return llvm::Type::getFloatTy(context);
  case DType::F64:
    return llvm::Type::getDoubleTy(context);
  default:
    return llvm::Type::getIntNTy(context, static_cast<unsigned>(8 * size_of(type)));
  }
}

llvm::Type* memory_element(llvm::LLVMContext& context, DType type) {
  return type == DType::Bool ? llvm::Type::getInt8Ty(context) : element_type(context, type);
}

llvm::Type* vector_of(llvm::Type* element, int lanes) {
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

llvm::Constant* constant(llvm::LLVMContext& context, Scalar value, int lanes) {
  llvm::Type* element = element_type(context, value.dtype);
  llvm::Constant* c;
  if (value.dtype == DType::F32 || value.dtype == DType::F64) {
    bool single = value.dtype == DType::F32;
    llvm::APInt bits(single ? 32 : 64, value.bits);
    c = llvm::ConstantFP::get(
        element,
        llvm::APFloat(single ? llvm::APFloat::IEEEsingle() : llvm::APFloat::IEEEdouble(), bits));
  } else {
    c = llvm::ConstantInt::get(element, value.dtype == DType::Bool ? value.bits != 0 : value.bits);
  }
  return lanes == 1 ? c
                    : llvm::ConstantVector::getSplat(
                          llvm::ElementCount::getFixed(static_cast<unsigned>(lanes)), c);
}

Num maximum(Num a, Num b, DType type) {
  if (is_low(type))
    return narrow(maximum(widen(a, type), widen(b, type), DType::F32), type);
  if (is_float(type))
    return float_maximum(a, b);
  if (type == DType::Bool)
    return a | b;
  return a.with(a.b().CreateBinaryIntrinsic(
      is_signed(type) ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, a, b));
}

Num apply(Sink& sink, Op op, DType result, DType operand, std::span<llvm::Value* const> args) {
  Num first(sink, args[0]);
  switch (op) {
  case Op::Cast:
    return convert(first, operand, result);
  case Op::Bitcast:
    return bitcast(first, operand, result);
  case Op::Select:
    return select(first, Num(sink, args[1]), Num(sink, args[2]));
  case Op::StopGradient:
    return first;
  default:
    break;
  }
  if (is_low(operand)) {
    llvm::SmallVector<llvm::Value*, 2> wide;
    for (llvm::Value* arg : args)
      wide.push_back(widen(Num(sink, arg), operand));
    Num value = float_op(sink, op, wide);
    return result == DType::Bool ? value : narrow(value, result);
  }
  return is_float(operand) ? float_op(sink, op, args) : int_op(sink, op, operand, args);
}

Num apply_pairs(Sink& sink, llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  const Num x(sink, a), y(sink, b), z(sink, c);
  const int lanes = z.lanes();
  if (sink.isa.bf16_dot && (lanes == 4 || lanes == 8 || lanes == 16)) {
    auto* pairs =
        llvm::FixedVectorType::get(sink.b.getBFloatTy(), 2 * static_cast<unsigned>(lanes));
    const llvm::Intrinsic::ID dot = lanes == 16  ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512
                                    : lanes == 8 ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256
                                                 : llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128;
    return z.with(sink.b.CreateIntrinsic(
        dot, {}, {c, sink.b.CreateBitCast(a, pairs), sink.b.CreateBitCast(b, pairs)}));
  }
  const auto upper = [](Num pair) { return from_bits(pair & pair.word(0xFFFF0000u)); };
  const auto lower = [](Num pair) { return from_bits(pair << 16); };
  return exact_fma(lower(x), lower(y), exact_fma(upper(x), upper(y), z));
}

Num apply_integer_pairs(Sink& sink, llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  const Num x(sink, a), y(sink, b), z(sink, c);
  const int lanes = z.lanes();
  // Both products and their sum; LLVM makes one instruction of it and of the addition where the CPU
  // has one.
  const bool has = lanes == 16  ? sink.isa.avx512
                   : lanes == 8 ? sink.isa.avx2
                                : lanes == 4 && sink.isa.x86;
  if (has) {
    auto* halves =
        llvm::FixedVectorType::get(sink.b.getInt16Ty(), 2 * static_cast<unsigned>(lanes));
    const llvm::Intrinsic::ID both = lanes == 16  ? llvm::Intrinsic::x86_avx512_pmaddw_d_512
                                     : lanes == 8 ? llvm::Intrinsic::x86_avx2_pmadd_wd
                                                  : llvm::Intrinsic::x86_sse2_pmadd_wd;
    return z + z.with(sink.b.CreateIntrinsic(
                   both, {}, {sink.b.CreateBitCast(a, halves), sink.b.CreateBitCast(b, halves)}));
  }
  auto& builder = sink.b;
  const auto upper = [&](llvm::Value* v) { return z.with(builder.CreateAShr(v, 16)); };
  const auto lower = [&](llvm::Value* v) {
    return z.with(builder.CreateAShr(builder.CreateShl(v, 16), 16));
  };
  return z + upper(a) * upper(b) + lower(a) * lower(b);
}

llvm::Value* quick_bf16(Sink& sink, llvm::Value* a) {
  auto& b = sink.b;
  const int lanes = Num(sink, a).lanes();
  if (!sink.isa.bf16_dot || (lanes != 8 && lanes != 16 && lanes != 32))
    return nullptr;
  llvm::Value* narrow = nullptr;
  if (lanes == 32) {
    llvm::SmallVector<int, 16> lower, upper;
    for (int i = 0; i < 16; ++i) {
      lower.push_back(i);
      upper.push_back(16 + i);
    }
    narrow = b.CreateIntrinsic(llvm::Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512, {},
                               {b.CreateShuffleVector(a, upper), b.CreateShuffleVector(a, lower)});
  } else {
    narrow = b.CreateIntrinsic(lanes == 16 ? llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_512
                                           : llvm::Intrinsic::x86_avx512bf16_cvtneps2bf16_256,
                               {}, {a});
  }
  return b.CreateBitCast(narrow,
                         llvm::FixedVectorType::get(b.getInt16Ty(), static_cast<unsigned>(lanes)));
}

Num apply_fma(Sink& sink, DType type, llvm::Value* a, llvm::Value* b, llvm::Value* c) {
  Num x(sink, a), y(sink, b), z(sink, c);
  if (is_low(type)) {
    // The product is exact in f64; the sum is rounded to odd there and on the way to f32, so that
    // the last rounding is the only one.
    Num sum =
        exact_sum_odd(to_f64(widen(x, type)) * to_f64(widen(y, type)), to_f64(widen(z, type)));
    return narrow(to_f32_odd(sum), type);
  }
  return is_float(type) ? exact_fma(x, y, z) : x * y + z;
}

} // namespace egret::backend::cpu

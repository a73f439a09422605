// The elementwise operations of the op table as IR, for any dtype and any number of lanes.
//
// How values are held: bool as i1; f16 and bf16 as their bits in i16 (arithmetic on them is done in
// f32 and rounded); all others as LLVM's own types.
#pragma once

#include "backend/cpu_codegen/num.h"
#include "egret/op.h"
#include "egret/scalar.h"
#include "kernel/program.h"

#include <span>

namespace egret::backend::cpu {

llvm::Type* element_type(llvm::LLVMContext& context, DType type); ///< of values
llvm::Type* memory_element(llvm::LLVMContext& context,
                           DType type);                ///< of values in memory: bool is a byte
llvm::Type* vector_of(llvm::Type* element, int lanes); ///< the element itself for one lane
llvm::Constant* constant(llvm::LLVMContext& context, Scalar value, int lanes);

/// The op on `args`, all of `operand` dtype but where the table says otherwise (the dtype of
/// select's is `result`).
Num apply(Sink& sink, Op op, DType result, DType operand, std::span<llvm::Value* const> args);
/// f32 c, and added to it the products of the upper bf16 of a and b (u32), then those of the lower
/// ones; numbers below the smallest normal may count as zero.
Num apply_pairs(Sink& sink, llvm::Value* a, llvm::Value* b, llvm::Value* c);
/// The same of i16, added to i32.
Num apply_integer_pairs(Sink& sink, llvm::Value* a, llvm::Value* b, llvm::Value* c);
/// f32 in bf16 by the CPU's instruction, which takes subnormal numbers for zero; null where it has
/// none for so many lanes.
llvm::Value* quick_bf16(Sink& sink, llvm::Value* a);
/// a*b + c rounded once; integers wrap.
Num apply_fma(Sink& sink, DType type, llvm::Value* a, llvm::Value* b, llvm::Value* c);
/// `a` converted as the table's cast does.
Num convert(Num a, DType from, DType to);
/// f16 or bf16 bits to f32 and back (round to nearest even).
Num widen(Num a, DType from);
Num narrow(Num a, DType to);
/// An f32 that is a number of bf16 (kernel/narrow_values.h) as such.
Num cut_to_bf16(Num a);
/// The larger of two values of a dtype as the table's max.
Num maximum(Num a, Num b, DType type);

/// The transcendental functions of the table on f32 or f64 numbers.
Num math(Op op, Num x);
Num power(Num x, Num y);
/// x - y*floor(x/y).
Num floor_mod(Num x, Num y);

} // namespace egret::backend::cpu

// Instructions that touch no memory.
#include "backend/cpu_codegen/renderer.h"

#include "support/fail.h"

namespace egret::backend::cpu {

using kernel::Inst;
using kernel::Type;

llvm::Value* Renderer::instruction(const Inst& inst, Type type) {
  using namespace kernel::inst;
  auto& b = builder_;
  auto count = static_cast<unsigned>(type.lanes);
  return std::visit(
      overloaded{
          [&](const Constant& x) -> Value* { return constant(context(), x.value, type.lanes); },
          [&](const Argument& x) -> Value* { return scalar_argument(x.number, type.lanes); },
          [&](const Index& x) -> Value* { return index(x.expr, type); },
          [&](const Apply& x) -> Value* { return apply_op(x, type); },
          [&](const Fma& x) -> Value* {
            if (dtype_of(x.args[0]) == DType::U32 && type.dtype != DType::U32) {
              auto* pairs = type.dtype == DType::F32 ? apply_pairs : apply_integer_pairs;
              return pairs(sink_, value(x.args[0]), value(x.args[1]), value(x.args[2]));
            }
            return apply_fma(sink_, type.dtype, value(x.args[0]), value(x.args[1]),
                             value(x.args[2]));
          },
          [&](const Load& x) -> Value* { return load(x, type); },
          [&](const Read& x) -> Value* {
            return b.CreateLoad(vector_of(element_type(context(), type.dtype), type.lanes),
                                variables_[static_cast<std::size_t>(x.variable)]);
          },
          [&](const Splat& x) -> Value* {
            return type.lanes == 1 ? value(x.value) : b.CreateVectorSplat(count, value(x.value));
          },
          [&](const Extract& x) -> Value* {
            Value* from = value(x.value);
            return from->getType()->isVectorTy()
                       ? b.CreateExtractElement(from, static_cast<std::uint64_t>(x.lane))
                       : from;
          },
          [&](const ReduceLanes& x) -> Value* { return reduce_lanes(x); },
          [&](const Shuffle& x) -> Value* { return shuffle(x); },
          [&](const Test& x) -> Value* { return test(x.mask, type.lanes); },
          [&](const kernel::Intrinsic& x) -> Value* {
            ensure(false, "kernel {}: {} makes no value on a CPU", program_.name,
                   info_of(x.id).name);
            return nullptr;
          }},
      inst.op);
}

llvm::Value* Renderer::apply_op(const kernel::inst::Apply& inst, Type type) {
  llvm::SmallVector<Value*, 3> args;
  for (kernel::ValueId id : inst.args)
    args.push_back(value(id));
  if (inst.op == Op::Bitcast && lanes_of(inst.args.at(0)) != type.lanes) // pairs
    return builder_.CreateBitCast(args[0],
                                  vector_of(element_type(context(), type.dtype), type.lanes));
  if (inst.approximate && inst.op == Op::Cast)
    if (Value* quick = quick_bf16(sink_, args[0]))
      return quick;
  if (inst.op == Op::Cast && type.dtype == DType::BF16 &&
      bf16_values_[static_cast<std::size_t>(inst.args[0])])
    return cut_to_bf16(Num(sink_, args[0]));
  return apply(sink_, inst.op, type.dtype, dtype_of(inst.args.at(0)), args);
}

llvm::Value* Renderer::test(const std::vector<Guard>& guards, int lanes) {
  Mask mask = mask_of(guards, lanes, 32);
  if (lanes == 1)
    return mask.scalar == nullptr ? builder_.getTrue() : mask.scalar;
  Value* vector = mask_vector(mask, lanes);
  return vector == nullptr
             ? builder_.CreateVectorSplat(static_cast<unsigned>(lanes), builder_.getTrue())
             : vector;
}

llvm::Value* Renderer::scalar_argument(int number, int lanes) {
  const auto value = [&] {
    if (number < 0)
      return problem_scalars_.at(static_cast<std::size_t>(-1 - number));
    Value*& scalar = scalars_[static_cast<std::size_t>(number)];
    if (scalar == nullptr) {
      DType type = program_.scalars[static_cast<std::size_t>(number)];
      Value* raw = load_at_entry(memory_element(context(), type), argument_field(2), number);
      scalar = at_entry([&] { return from_memory(raw, type); });
    }
    return scalar;
  };
  Value* scalar = value();
  return lanes == 1 ? scalar : builder_.CreateVectorSplat(static_cast<unsigned>(lanes), scalar);
}

llvm::Value* Renderer::index(const Expr& unresolved, Type type) {
  Expr e = indices_.resolve(unresolved);
  if (!indices_.varies(e)) {
    Value* scalar = convert(Num(sink_, indices_.scalar(e)), DType::I64, type.dtype);
    return type.lanes == 1 ? scalar
                           : builder_.CreateVectorSplat(static_cast<unsigned>(type.lanes), scalar);
  }
  bool narrow = indices_.fits_32(e);
  return convert(Num(sink_, indices_.vector(e, type.lanes, narrow ? 32 : 64)),
                 narrow ? DType::I32 : DType::I64, type.dtype);
}

// The upper half of the lanes is combined with the lower half until one is left: lane i meets lane
// i + n/2.
llvm::Value* Renderer::reduce_lanes(const kernel::inst::ReduceLanes& inst) {
  Value* v = value(inst.value);
  DType type = dtype_of(inst.value);
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(v->getType());
  if (vector == nullptr)
    return v;
  // Integers may be added in any order. LLVM 19 takes some halvings of masked bytes by shuffles for
  // undefined on AVX2 and drops what they store, but not its own reduction.
  if (inst.monoid == Monoid::Sum && vector->getElementType()->isIntegerTy() &&
      !vector->getElementType()->isIntegerTy(1))
    return builder_.CreateAddReduce(v);
  for (unsigned n = vector->getNumElements() / 2; n >= 1; n /= 2) {
    llvm::SmallVector<int, 64> low, high;
    for (unsigned i = 0; i < n; ++i) {
      low.push_back(static_cast<int>(i));
      high.push_back(static_cast<int>(i + n));
    }
    Value* halves[2];
    if (n == 1) {
      halves[0] = builder_.CreateExtractElement(v, std::uint64_t{0});
      halves[1] = builder_.CreateExtractElement(v, std::uint64_t{1});
    } else {
      halves[0] = builder_.CreateShuffleVector(v, low);
      halves[1] = builder_.CreateShuffleVector(v, high);
    }
    v = apply(sink_, op_of(inst.monoid), type, type, halves);
  }
  return v;
}

llvm::Value* Renderer::shuffle(const kernel::inst::Shuffle& inst) {
  Value* first = value(inst.args.at(0));
  Value* second = inst.args.size() > 1 ? value(inst.args[1]) : nullptr;
  auto as_vector = [&](Value* v) {
    return v == nullptr || v->getType()->isVectorTy() ? v : builder_.CreateVectorSplat(1, v);
  };
  first = as_vector(first);
  second = as_vector(second);
  if (inst.lanes_from.size() == 1) {
    auto from = static_cast<unsigned>(inst.lanes_from[0]);
    unsigned count = llvm::cast<llvm::FixedVectorType>(first->getType())->getNumElements();
    return from < count ? builder_.CreateExtractElement(first, from)
                        : builder_.CreateExtractElement(second, from - count);
  }
  return second == nullptr ? builder_.CreateShuffleVector(first, inst.lanes_from)
                           : builder_.CreateShuffleVector(first, second, inst.lanes_from);
}

} // namespace egret::backend::cpu

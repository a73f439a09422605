// Loads and stores: contiguous, reversed, repeated, strided or gathered, with masks.
#include "backend/cpu_codegen/renderer.h"

#include "support/fail.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <vector>

namespace egret::backend::cpu {

using kernel::CachePolicy;
using kernel::Space;
using kernel::Type;

namespace {

/// Elements at fixed places from one another, near enough for a few whole vectors.
struct NearLanes {
  Expr base;                         ///< the lowest one's index
  std::vector<std::int64_t> offsets; ///< by lane, from the base
  bool ascend = true;                ///< each lane's is above the one before
  std::int64_t span() const { return *std::max_element(offsets.begin(), offsets.end()) + 1; }
};

std::optional<NearLanes> near_lanes(const Indices& indices, const Expr& e, int lanes) {
  constexpr std::int64_t kVectors = 4;
  const Expr lane = kernel::lane_variable(lanes);
  const auto at = [&](std::int64_t i) {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      return v == lane ? std::optional(Expr(i)) : std::nullopt;
    });
  };
  const Expr first = at(0);
  if (indices.varies(first))
    return std::nullopt;
  NearLanes near;
  for (int i = 0; i < lanes; ++i) {
    const auto offset = (at(i) - first).constant();
    if (!offset)
      return std::nullopt;
    near.ascend = near.ascend && (i == 0 || *offset > near.offsets.back());
    near.offsets.push_back(*offset);
  }
  const std::int64_t lowest = *std::min_element(near.offsets.begin(), near.offsets.end());
  for (std::int64_t& offset : near.offsets)
    offset -= lowest;
  near.base = first + Expr(lowest);
  if (near.span() > kVectors * lanes)
    return std::nullopt;
  return near;
}

} // namespace

llvm::Value* Renderer::from_memory(Value* raw, DType type) {
  return type == DType::Bool
             ? builder_.CreateICmpNE(raw, llvm::Constant::getNullValue(raw->getType()))
             : raw;
}

llvm::Value* Renderer::to_memory(Value* value, DType type) {
  if (type != DType::Bool)
    return value;
  Num n(sink_, value);
  return builder_.CreateZExt(value, n.shaped(builder_.getInt8Ty()));
}

llvm::Value* Renderer::base_of(int buffer) {
  Value*& base = bases_[static_cast<std::size_t>(buffer)];
  if (base != nullptr)
    return base;
  const kernel::Buffer& own = program_.buffers[static_cast<std::size_t>(buffer)];
  if (own.space == Space::Worker) {
    // The worker's memory holds its buffers one after another, each from a multiple of 64 bytes.
    Expr offset = 0;
    for (int i = 0; i < buffer; ++i) {
      const kernel::Buffer& other = program_.buffers[static_cast<std::size_t>(i)];
      if (other.space == Space::Worker)
        offset =
            offset +
            ceildiv(other.elements * Expr(static_cast<std::int64_t>(size_of(other.dtype))), 64) *
                64;
    }
    Value* all = argument_field(3);
    base = at_entry([&]() -> Value* {
      Value* slot = builder_.CreateGEP(builder_.getPtrTy(), all, function_->getArg(1));
      Value* memory = builder_.CreateLoad(builder_.getPtrTy(), slot);
      return builder_.CreateGEP(builder_.getInt8Ty(), memory, indices_.scalar(offset));
    });
    return base;
  }
  ensure(own.space != Space::Shared, "kernel {}: a CPU has no shared memory space", program_.name);
  int number = own.argument;
  if (own.space == Space::Workspace) {
    number = 0;
    for (int i = 0; i < static_cast<int>(program_.buffers.size()); ++i) {
      Space space = program_.buffers[static_cast<std::size_t>(i)].space;
      if (space == Space::Argument || (space == Space::Workspace && i < buffer))
        ++number;
    }
  }
  base = load_at_entry(builder_.getPtrTy(), argument_field(0), number);
  return base;
}

llvm::Value* Renderer::address(int buffer, const Expr& e) {
  DType type = program_.buffers[static_cast<std::size_t>(buffer)].dtype;
  return indices_.address(buffer, base_of(buffer), memory_element(context(), type), e);
}

// Loads and stores promise no more than the element's size: unaligned vectors cost nothing where
// they happen to be aligned, and memory that a caller brought along may be.
llvm::Align Renderer::element_alignment(int buffer) const {
  return llvm::Align(size_of(program_.buffers[static_cast<std::size_t>(buffer)].dtype));
}

llvm::Align Renderer::known_alignment(int buffer, const Expr& e) const {
  const kernel::Buffer& own = program_.buffers[static_cast<std::size_t>(buffer)];
  auto size = static_cast<std::uint64_t>(size_of(own.dtype));
  std::uint64_t base = own.space == Space::Argument || own.space == Space::Problem
                           ? static_cast<std::uint64_t>(std::max<std::int64_t>(own.alignment, 1))
                           : 64;
  std::int64_t multiple = indices_.multiple_of(e);
  auto low_bit = [](std::uint64_t x) { return x & (~x + 1); };
  std::uint64_t index = multiple == 0 ? 4096 : low_bit(static_cast<std::uint64_t>(multiple)) * size;
  return llvm::Align(std::min<std::uint64_t>({low_bit(base), index, 4096}));
}

// Enough zero bytes for one vector of any type: what a load reads whose condition fails.
llvm::Value* Renderer::zeros() {
  auto* type = llvm::ArrayType::get(builder_.getInt8Ty(), 64 * 8);
  auto* global = module_.getGlobalVariable("zeros", true);
  if (global == nullptr) {
    global = new llvm::GlobalVariable(module_, type, true, llvm::GlobalValue::PrivateLinkage,
                                      llvm::Constant::getNullValue(type), "zeros");
    global->setAlignment(llvm::Align(64));
  }
  return global;
}

llvm::Value* Renderer::reverse(Value* vector) {
  auto count = llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements();
  llvm::SmallVector<int, 64> order;
  for (unsigned i = 0; i < count; ++i)
    order.push_back(static_cast<int>(count - 1 - i));
  return builder_.CreateShuffleVector(vector, order);
}

// ---- masks --------------------------------------------------------------------------------------

Renderer::Mask Renderer::mask_of(const std::vector<Guard>& guards, int lanes,
                                 unsigned compare_bits) {
  Mask mask;
  auto both = [&](Value*& so_far, Value* more) {
    if (more != nullptr)
      so_far = so_far == nullptr ? more : builder_.CreateAnd(so_far, more);
  };
  const auto bound = [&](const Expr& e) {
    return without_ends(indices_, indices_.resolve(e), lanes);
  };
  for (const Guard& raw : guards) {
    Guard guard{bound(raw.value), bound(raw.lo), bound(raw.hi)};
    bool varies =
        indices_.varies(guard.value) || indices_.varies(guard.lo) || indices_.varies(guard.hi);
    if (const auto same = varies ? same_in_all_lanes(guard, lanes) : std::nullopt)
      both(mask.scalar, indices_.holds(*same));
    else if (varies)
      both(mask.lanes, lane_guard(guard, lanes, compare_bits));
    else
      both(mask.scalar, indices_.holds(guard));
  }
  return mask;
}

// A range that begins and ends between whole vectors, as the operands of a concatenation do, holds
// for all lanes or for none: that of the first lane.
std::optional<Guard> Renderer::same_in_all_lanes(const Guard& guard, int lanes) const {
  const auto affine = lane_affine(indices_, guard.value, lanes);
  if (!affine || !(affine->stride == Expr(1)) || indices_.varies(guard.lo) ||
      indices_.varies(guard.hi))
    return std::nullopt;
  const auto whole = [&](const Expr& e) { return indices_.multiple_of(e) % lanes == 0; };
  const bool lower = !proves_less_equal(guard.lo, guard.value);
  const bool upper = !proves_less(guard.value, guard.hi);
  if (!whole(affine->base) || (lower && !whole(guard.lo)) || (upper && !whole(guard.hi)))
    return std::nullopt;
  return Guard{affine->base, lower ? guard.lo : Expr(INT64_MIN / 2),
               upper ? guard.hi : Expr(INT64_MAX)};
}

llvm::Value* Renderer::lane_guard(const Guard& guard, int lanes, unsigned compare_bits) {
  auto& b = builder_;
  bool lower = !proves_less_equal(guard.lo, guard.value);
  bool upper = !proves_less(guard.value, guard.hi);
  if (!lower && !upper)
    return nullptr;
  auto count = static_cast<unsigned>(lanes);
  auto affine = lane_affine(indices_, guard.value, lanes);
  if (affine && affine->stride == Expr(1) && !indices_.varies(guard.lo) &&
      !indices_.varies(guard.hi)) {
    // Lanes from .. to-1: bounds as scalars, compared with the lanes' numbers.
    llvm::Type* element = b.getIntNTy(compare_bits);
    Value* numbers = indices_.vector(kernel::lane_variable(lanes), lanes, compare_bits);
    auto bound = [&](const Expr& e) {
      Value* scalar = indices_.scalar(e);
      const std::int64_t most = INT64_MAX >> (64 - compare_bits);
      if (compare_bits < 64 && (e.lower() < -most || e.upper() > most)) {
        scalar = b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, scalar, b.getInt64(0));
        scalar = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, scalar, b.getInt64(count));
      }
      return b.CreateVectorSplat(count, b.CreateTrunc(scalar, element));
    };
    Value* result = nullptr;
    if (upper)
      result = b.CreateICmpSLT(numbers, bound(guard.hi - affine->base));
    if (lower) {
      Value* above = b.CreateICmpSGE(numbers, bound(guard.lo - affine->base));
      result = result == nullptr ? above : b.CreateAnd(result, above);
    }
    return result;
  }
  bool narrow =
      indices_.fits_32(guard.value) && indices_.fits_32(guard.lo) && indices_.fits_32(guard.hi);
  unsigned bits = narrow ? 32 : 64;
  Value* value = indices_.vector(guard.value, lanes, bits);
  Value* result = nullptr;
  if (upper)
    result = b.CreateICmpSLT(value, indices_.vector(guard.hi, lanes, bits));
  if (lower) {
    Value* above = b.CreateICmpSGE(value, indices_.vector(guard.lo, lanes, bits));
    result = result == nullptr ? above : b.CreateAnd(result, above);
  }
  return result;
}

// Both parts as one vector; null when all lanes hold.
llvm::Value* Renderer::mask_vector(const Mask& mask, int lanes) {
  if (mask.scalar == nullptr)
    return mask.lanes;
  Value* all = builder_.CreateVectorSplat(static_cast<unsigned>(lanes), mask.scalar);
  return mask.lanes == nullptr ? all : builder_.CreateAnd(mask.lanes, all);
}

// ---- loads --------------------------------------------------------------------------------------

// A failing condition reads zeros instead: no branch. Nor may a masked load that no lane wants have
// an address outside of memory: the CPU's microcode then takes thousands of cycles to find that no
// lane faults.
llvm::Value* Renderer::or_zeros(Value* pointer, Value* condition) {
  return condition == nullptr ? pointer : builder_.CreateSelect(condition, pointer, zeros());
}

llvm::Value* Renderer::load_one(Value* pointer, Value* condition, llvm::Type* type,
                                llvm::Align align) {
  return builder_.CreateAlignedLoad(type, or_zeros(pointer, condition), align);
}

llvm::Value* Renderer::load(const kernel::inst::Load& inst, Type type) {
  const int buffer = inst.from.buffer;
  auto& b = builder_;
  llvm::Type* element = memory_element(context(), type.dtype);
  Expr e = without_ends(indices_, indices_.resolve(inst.from.index), type.lanes);
  auto bits = static_cast<unsigned>(8 * size_of(type.dtype));
  Mask mask = mask_of(inst.mask, type.lanes, bits);
  if (type.lanes > 1 && indices_.varies(e))
    return from_memory(load_lanes(buffer, e, mask, type.lanes), type.dtype);

  // One element, repeated: where some lanes are masked out, it is read if any wants it.
  Value* condition = mask.scalar;
  if (mask.lanes != nullptr) {
    Value* any = b.CreateOrReduce(mask.lanes);
    condition = condition == nullptr ? any : b.CreateAnd(condition, any);
  }
  Value* one = load_one(address(buffer, e), condition, element, element_alignment(buffer));
  one = from_memory(one, type.dtype);
  if (type.lanes == 1)
    return one;
  Value* all = b.CreateVectorSplat(static_cast<unsigned>(type.lanes), one);
  return mask.lanes == nullptr
             ? all
             : b.CreateSelect(mask.lanes, all, llvm::Constant::getNullValue(all->getType()));
}

llvm::Value* Renderer::load_lanes(int buffer, const Expr& e, const Mask& mask, int lanes) {
  auto& b = builder_;
  DType dtype = program_.buffers[static_cast<std::size_t>(buffer)].dtype;
  llvm::Type* element = memory_element(context(), dtype);
  llvm::Type* vector = vector_of(element, lanes);
  llvm::Constant* zero = llvm::Constant::getNullValue(vector);
  auto affine = lane_affine(indices_, e, lanes);
  bool forward = affine && affine->stride == Expr(1);
  bool backward = affine && affine->stride == Expr(-1);
  if (forward || backward) {
    Expr first = forward ? affine->base : affine->base - Expr(lanes - 1);
    llvm::Align align = element_alignment(buffer);
    Value* pointer = address(buffer, first);
    Value* loaded;
    if (mask.lanes == nullptr) {
      loaded = load_one(pointer, mask.scalar, vector, align);
    } else {
      loaded = b.CreateMaskedLoad(vector, or_zeros(pointer, mask.scalar), align,
                                  forward ? mask.lanes : reverse(mask.lanes), zero);
    }
    return forward ? loaded : reverse(loaded);
  }
  Value* lanes_on = mask_vector(mask, lanes);
  if (const auto near = near_lanes(indices_, e, lanes);
      near && (lanes_on == nullptr || (near->ascend && size_of(dtype) >= 4))) {
    // Whole vectors that cover the elements, and every lane taken from its place in one of them.
    const std::int64_t span = near->span(), width = std::min<std::int64_t>(span, lanes);
    llvm::Type* part = vector_of(element, static_cast<int>(width));
    Value* all = nullptr;
    for (std::int64_t begin = 0; begin < span; begin += width) {
      const std::int64_t from = std::min(begin, span - width);
      Value* pointer = address(buffer, near->base + Expr(from));
      llvm::SmallVector<int, 64> wanted(static_cast<std::size_t>(width), lanes), order;
      for (int i = 0; i < lanes; ++i) {
        const std::int64_t place = near->offsets[static_cast<std::size_t>(i)] - from;
        const bool here = place >= begin - from && place < width;
        if (here)
          wanted[static_cast<std::size_t>(place)] = i;
        order.push_back(static_cast<int>(here ? place : all == nullptr ? 0 : width + i));
      }
      Value* loaded;
      if (mask.lanes == nullptr) {
        loaded = load_one(pointer, mask.scalar, part, element_alignment(buffer));
      } else {
        Value* none = llvm::Constant::getNullValue(mask.lanes->getType());
        loaded = b.CreateMaskedLoad(part, or_zeros(pointer, mask.scalar), element_alignment(buffer),
                                    b.CreateShuffleVector(mask.lanes, none, wanted),
                                    llvm::Constant::getNullValue(part));
      }
      // The second operand of a shuffle has the first one's length: all lanes, in order.
      all = width == lanes && all != nullptr ? b.CreateShuffleVector(loaded, all, order)
                                             : b.CreateShuffleVector(loaded, order);
    }
    return all;
  }
  // On both sides of an axis's end, neighbours: two vectors, of which each has its lanes. (Without
  // registers of masks, masks are of 32 and 64 bits.)
  if (const auto pieces = lane_pieces(indices_, e, lanes);
      pieces && pieces->stride == 1 && (size_of(dtype) >= 4 || sink_.isa.vector_bytes == 64)) {
    Value* below = below_cut(*pieces, lanes, static_cast<unsigned>(8 * size_of(dtype)));
    const auto piece = [&](const Expr& first, Value* here) -> Value* {
      if (lanes_on == nullptr && is_within(buffer, first, lanes)) // and so need not be masked
        return b.CreateAlignedLoad(vector, address(buffer, first), element_alignment(buffer));
      return b.CreateMaskedLoad(vector, address(buffer, first), element_alignment(buffer),
                                lanes_on == nullptr ? here : b.CreateAnd(here, lanes_on), zero);
    };
    Value* low = piece(pieces->first, below);
    return b.CreateSelect(below, low, piece(pieces->last - Expr(lanes - 1), b.CreateNot(below)));
  }
  Value* pointers = lane_addresses(buffer, e, lanes);
  if (lanes_on != nullptr && !sink_.isa.gathers) {
    // A gather by loads is a load and, for its condition, a branch each: zeros are read instead.
    pointers = b.CreateSelect(lanes_on, pointers,
                              b.CreateVectorSplat(static_cast<unsigned>(lanes), zeros()));
    lanes_on = nullptr;
  }
  return b.CreateMaskedGather(vector, pointers, element_alignment(buffer), lanes_on,
                              lanes_on == nullptr ? nullptr : zero);
}

// Whether the buffer has so many elements from `first` on, whatever the values of variables.
bool Renderer::is_within(int buffer, const Expr& first, int lanes) const {
  const auto elements = program_.buffers[static_cast<std::size_t>(buffer)].elements.constant();
  return elements && first.lower() >= 0 && first.upper() <= *elements - lanes;
}

// Lanes before the end of the axis.
llvm::Value* Renderer::below_cut(const LanePieces& pieces, int lanes, unsigned bits) {
  return builder_.CreateICmpSLT(indices_.vector(kernel::lane_variable(lanes), lanes, bits),
                                indices_.vector(pieces.cut, lanes, bits));
}

// Pointers for a gather or scatter: one scalar base and offsets as narrow as is known to suffice.
llvm::Value* Renderer::lane_addresses(int buffer, const Expr& e, int lanes) {
  DType dtype = program_.buffers[static_cast<std::size_t>(buffer)].dtype;
  llvm::Type* element = memory_element(context(), dtype);
  Value* base;
  Expr offset = e;
  if (auto affine = lane_affine(indices_, e, lanes)) {
    base = address(buffer, affine->base);
    offset = affine->stride * kernel::lane_variable(lanes);
  } else {
    base = base_of(buffer);
  }
  bool narrow = indices_.fits_32(offset);
  return builder_.CreateGEP(element, base, indices_.vector(offset, lanes, narrow ? 32 : 64));
}

// ---- stores -------------------------------------------------------------------------------------

void Renderer::store(const kernel::Store& stmt) {
  const int buffer = stmt.to.buffer;
  Value* value = this->value(stmt.value);
  DType dtype = program_.buffers[static_cast<std::size_t>(buffer)].dtype;
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  int lanes = vector == nullptr ? 1 : static_cast<int>(vector->getNumElements());
  Expr e = without_ends(indices_, indices_.resolve(stmt.to.index), lanes);
  auto bits = static_cast<unsigned>(8 * size_of(dtype));
  Mask mask = mask_of(stmt.mask, lanes, bits);
  value = to_memory(value, dtype);
  if (lanes > 1 && (indices_.varies(e) || mask.lanes != nullptr)) {
    store_lanes(stmt, e, mask, value, lanes);
    return;
  }
  // All lanes go to one place: the last one stays.
  if (lanes > 1)
    value = builder_.CreateExtractElement(value, static_cast<std::uint64_t>(lanes - 1));
  guarded(mask.scalar, [&] {
    builder_.CreateAlignedStore(value, address(buffer, e), element_alignment(buffer));
  });
}

void Renderer::store_lanes(const kernel::Store& stmt, const Expr& e, const Mask& mask, Value* value,
                           int lanes) {
  auto& b = builder_;
  const int buffer = stmt.to.buffer;
  DType dtype = program_.buffers[static_cast<std::size_t>(buffer)].dtype;
  auto affine = lane_affine(indices_, e, lanes);
  bool forward = affine && affine->stride == Expr(1);
  bool backward = affine && affine->stride == Expr(-1);
  if (!forward && !backward) {
    // Lanes are stored in order, so of equal addresses the last one stays.
    const auto scatter = [&] {
      b.CreateMaskedScatter(value, lane_addresses(buffer, e, lanes), element_alignment(buffer),
                            mask_vector(mask, lanes));
    };
    const auto pieces = lane_pieces(indices_, e, lanes);
    if (!pieces || pieces->stride != 1 || mask.lanes != nullptr) {
      scatter();
      return;
    }
    // One vector where no axis ends inside of it.
    guarded(mask.scalar, [&] {
      Value* whole = indices_.holds({pieces->cut, Expr(lanes), Expr(INT64_MAX)});
      Value* inside = whole == nullptr ? nullptr : b.CreateNot(whole);
      guarded(whole, [&] {
        b.CreateAlignedStore(value, address(buffer, pieces->first), element_alignment(buffer));
      });
      if (inside != nullptr)
        guarded(inside, scatter);
    });
    return;
  }
  Expr first = forward ? affine->base : affine->base - Expr(lanes - 1);
  llvm::Align align = element_alignment(buffer);
  if (backward)
    value = reverse(value);
  if (mask.lanes != nullptr) {
    Value* lanes_on = mask_vector(mask, lanes);
    b.CreateMaskedStore(value, address(buffer, first), align,
                        forward ? lanes_on : reverse(lanes_on));
    return;
  }
  guarded(mask.scalar, [&] {
    llvm::StoreInst* stored = b.CreateAlignedStore(value, address(buffer, first), align);
    if (stmt.policy != CachePolicy::Streaming)
      return;
    // Around the caches only whole aligned vectors pay, and others are not possible.
    auto bytes = static_cast<std::uint64_t>(lanes) * size_of(dtype);
    auto needed =
        std::min<std::uint64_t>(bytes, static_cast<std::uint64_t>(sink_.isa.vector_bytes));
    llvm::Align known = known_alignment(buffer, first);
    if (needed < 16 || known.value() < needed)
      return;
    stored->setAlignment(known);
    stored->setMetadata(llvm::LLVMContext::MD_nontemporal,
                        llvm::MDNode::get(context(), llvm::ConstantAsMetadata::get(b.getInt32(1))));
  });
}

void Renderer::prefetch(const kernel::Address& at) {
  Expr e = indices_.resolve(at.index);
  if (indices_.varies(e)) {
    // The line of the first lane.
    int lanes = 0;
    for (const Expr& variable : variables_of(e))
      lanes = std::max(lanes, kernel::lanes_of(variable).value_or(0));
    auto affine = lanes > 0 ? lane_affine(indices_, e, lanes) : std::nullopt;
    if (!affine)
      return;
    e = affine->base;
  }
  Value* pointer = address(at.buffer, e);
  builder_.CreateIntrinsic(
      llvm::Intrinsic::prefetch, {pointer->getType()},
      {pointer, builder_.getInt32(0), builder_.getInt32(3), builder_.getInt32(1)});
}

} // namespace egret::backend::cpu

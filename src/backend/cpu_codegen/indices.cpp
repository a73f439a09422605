#include "backend/cpu_codegen/indices.h"

#include "support/fail.h"

#include <llvm/IR/Module.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace egret::backend::cpu {
namespace {

constexpr std::int64_t kInt32Min = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();

bool is_power_of_two(std::int64_t x) {
  return x > 0 && (x & (x - 1)) == 0;
}

} // namespace

void Indices::enter(llvm::BasicBlock* prologue) {
  scopes_.push_back({prologue, {}, {}});
}

void Indices::leave() {
  int level = static_cast<int>(scopes_.size()) - 1;
  std::erase_if(loops_, [&](const auto& loop) { return loop.second.level == level; });
  std::erase_if(symbols_, [&](const auto& symbol) { return symbol.second.level == level; });
  std::erase_if(buffers_, [&](const auto& buffer) { return buffer.second == level; });
  scopes_.pop_back();
}

void Indices::bind_loop(int number, llvm::Value* value, std::int64_t multiple) {
  loops_[number] = {value, static_cast<int>(scopes_.size()) - 1, multiple};
}

void Indices::bind_symbol(const Expr& symbol, llvm::Value* value) {
  symbols_.insert_or_assign(symbol, Loop{value, static_cast<int>(scopes_.size()) - 1, 1});
}

std::int64_t Indices::multiple_of(const Expr& e) const {
  const ExprNode& node = e.node();
  // Only powers of two are asked for, and small ones: larger factors are cut, so that nothing
  // overflows.
  auto cut = [](std::int64_t x) {
    return x == 0 ? 0
                  : std::int64_t{1} << std::min(__builtin_ctzll(static_cast<std::uint64_t>(x)), 16);
  };
  switch (node.kind) {
  case ExprKind::Axis: {
    auto found = loops_.find(e.axis_number());
    return found == loops_.end() ? 1 : cut(found->second.multiple);
  }
  case ExprKind::Sum: {
    std::int64_t all = cut(node.value);
    for (std::size_t i = 0; i < node.operands.size(); ++i)
      all = std::gcd(all, cut(node.coefficients[i]) * multiple_of(node.operands[i]));
    return all;
  }
  case ExprKind::Product: {
    std::int64_t all = 1;
    for (const Expr& factor : node.operands)
      all = cut(all * multiple_of(factor));
    return all;
  }
  default:
    return cut(node.divisor);
  }
}

Expr Indices::resolve(const Expr& e) const {
  if (replaced_.empty() || e.is_constant())
    return e;
  return substitute(e, [&](const Expr& variable) -> std::optional<Expr> {
    if (!variable.is_axis())
      return std::nullopt;
    auto found = replaced_.find(variable.axis_number());
    return found == replaced_.end() ? std::nullopt : std::optional<Expr>(found->second);
  });
}

bool Indices::varies(const Expr& e) const {
  if (kernel::lanes_of(e))
    return true;
  if (auto id = kernel::value_of(e)) {
    auto found = values_.find(*id);
    return found != values_.end() && found->second->getType()->isVectorTy();
  }
  return std::any_of(e.node().operands.begin(), e.node().operands.end(),
                     [&](const Expr& part) { return varies(part); });
}

int Indices::level(const Expr& e) const {
  if (kernel::value_of(e) || kernel::lanes_of(e))
    return kInPlace;
  if (e.is_axis()) {
    auto found = loops_.find(e.axis_number());
    ensure(found != loops_.end(), "cpu renderer: {} is used outside of its loop", e.str());
    return found->second.level;
  }
  if (auto found = symbols_.find(e); found != symbols_.end())
    return found->second.level;
  int deepest = 0;
  for (const Expr& part : e.node().operands)
    deepest = std::max(deepest, level(part));
  return deepest;
}

template <class F>
llvm::Value* Indices::at_level(int level, F make) {
  if (level == kInPlace || level + 1 > static_cast<int>(scopes_.size()))
    return make();
  llvm::IRBuilderBase::InsertPointGuard guard(sink_.b);
  sink_.b.SetInsertPoint(scopes_[static_cast<std::size_t>(level)].prologue->getTerminator());
  return make();
}

llvm::Value* Indices::scalar(const Expr& e) {
  if (auto c = e.constant())
    return sink_.b.getInt64(static_cast<std::uint64_t>(*c));
  int at = level(e);
  if (at == kInPlace)
    return emit(e, at);
  auto& cache = scopes_[static_cast<std::size_t>(at)].scalars;
  if (auto found = cache.find(e); found != cache.end())
    return found->second;
  llvm::Value* value = at_level(at, [&] { return emit(e, at); });
  scopes_[static_cast<std::size_t>(at)].scalars.emplace(e, value);
  return value;
}

Expr Indices::lower_part(const Expr& e, int at, Expr& rest) const {
  const ExprNode& node = e.node();
  if (node.kind == ExprKind::Sum) {
    Expr lower = 0;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      Expr term = node.operands[i] * Expr(node.coefficients[i]);
      (level(node.operands[i]) < at ? lower : rest) =
          (level(node.operands[i]) < at ? lower : rest) + term;
    }
    rest = rest + Expr(node.value);
    return lower;
  }
  Expr lower = 1;
  for (const Expr& factor : node.operands)
    (level(factor) < at ? lower : rest) = (level(factor) < at ? lower : rest) * factor;
  return lower;
}

llvm::Value* Indices::emit(const Expr& e, int at) {
  llvm::IRBuilder<>& b = sink_.b;
  const ExprNode& node = e.node();
  switch (node.kind) {
  case ExprKind::Constant:
    return b.getInt64(static_cast<std::uint64_t>(node.value));
  case ExprKind::Symbol:
    if (auto id = kernel::value_of(e)) {
      auto found = values_.find(*id);
      ensure(found != values_.end(), "cpu renderer: value {} is used before it is made", *id);
      return b.CreateSExtOrTrunc(found->second, b.getInt64Ty());
    }
    if (auto found = symbols_.find(e); found != symbols_.end())
      return found->second.value;
    return load_dim_(e);
  case ExprKind::Axis:
    return loops_.at(e.axis_number()).value;
  case ExprKind::Sum: {
    Expr rest = 0;
    Expr lower = lower_part(e, at, rest);
    if (!lower.is_constant() && !rest.is_constant())
      return b.CreateAdd(scalar(lower), scalar(rest));
    llvm::Value* sum = nullptr;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      llvm::Value* term = scalar(node.operands[i]);
      if (node.coefficients[i] != 1)
        term = b.CreateMul(term, b.getInt64(static_cast<std::uint64_t>(node.coefficients[i])));
      sum = sum == nullptr ? term : b.CreateAdd(sum, term);
    }
    return node.value == 0 ? sum
                           : b.CreateAdd(sum, b.getInt64(static_cast<std::uint64_t>(node.value)));
  }
  case ExprKind::Product: {
    Expr rest = 1;
    Expr lower = lower_part(e, at, rest);
    if (!lower.is_constant() && !rest.is_constant())
      return b.CreateMul(scalar(lower), scalar(rest));
    llvm::Value* product = nullptr;
    for (const Expr& factor : node.operands)
      product = product == nullptr ? scalar(factor) : b.CreateMul(product, scalar(factor));
    return product;
  }
  case ExprKind::FloorDiv:
  case ExprKind::FloorMod:
    return emit_division(e);
  case ExprKind::Min:
  case ExprKind::Max: {
    llvm::Value* x = scalar(node.operands[0]);
    llvm::Value* y = scalar(node.operands[1]);
    llvm::Value* less = b.CreateICmpSLT(x, y);
    return node.kind == ExprKind::Min ? b.CreateSelect(less, x, y) : b.CreateSelect(less, y, x);
  }
  }
  ensure(false, "cpu renderer: unknown expression {}", e.str());
  return nullptr;
}

namespace {

// floor(x / y) or its rest, on scalars or vectors; y is never 0. Non-negative operands divide
// unsigned, so that constants become shifts.
llvm::Value* divide(llvm::IRBuilder<>& b, llvm::Value* x, llvm::Value* y, const Expr& a,
                    const Expr& d, bool quotient) {
  if (auto c = d.constant(); c && is_power_of_two(*c)) {
    auto shift = static_cast<std::uint64_t>(__builtin_ctzll(static_cast<std::uint64_t>(*c)));
    llvm::Type* type = x->getType();
    return quotient
               ? b.CreateAShr(x, llvm::ConstantInt::get(type, shift))
               : b.CreateAnd(x, llvm::ConstantInt::get(type, static_cast<std::uint64_t>(*c - 1)));
  }
  if (a.lower() >= 0 && d.lower() > 0)
    return quotient ? b.CreateUDiv(x, y) : b.CreateURem(x, y);
  llvm::Type* type = x->getType();
  llvm::Value* zero = llvm::ConstantInt::get(type, 0);
  llvm::Value* rest = b.CreateSRem(x, y);
  llvm::Value* below =
      b.CreateAnd(b.CreateICmpNE(rest, zero), b.CreateICmpSLT(b.CreateXor(rest, y), zero));
  if (!quotient)
    return b.CreateAdd(rest, b.CreateSelect(below, y, zero));
  return b.CreateAdd(b.CreateSDiv(x, y),
                     b.CreateSelect(below, llvm::ConstantInt::getAllOnesValue(type), zero));
}

} // namespace

llvm::Value* Indices::emit_division(const Expr& e) {
  const ExprNode& node = e.node();
  const Expr& a = node.operands[0];
  const Expr& d = node.operands[1];
  return divide(sink_.b, scalar(a), scalar(d), a, d, node.kind == ExprKind::FloorDiv);
}

llvm::Value* Indices::holds(const Guard& guard) {
  llvm::IRBuilder<>& b = sink_.b;
  const auto& [value, lo, hi] = guard;
  const bool lower = !proves_less_equal(lo, value), upper = !proves_less(value, hi);
  if (lower && upper && lo.constant() == 0 && hi.lower() >= 0) // a negative number is a large one
    return b.CreateICmpULT(scalar(value), scalar(hi));
  llvm::Value* result = lower ? b.CreateICmpSLE(scalar(lo), scalar(value)) : nullptr;
  if (upper) {
    llvm::Value* below = b.CreateICmpSLT(scalar(value), scalar(hi));
    result = result == nullptr ? below : b.CreateAnd(result, below);
  }
  return result;
}

bool Indices::fits_32(const Expr& e) const {
  if (e.lower() < kInt32Min || e.upper() > kInt32Max)
    return false;
  const ExprNode& node = e.node();
  for (std::size_t i = 0; i < node.operands.size(); ++i) {
    if (!fits_32(node.operands[i]))
      return false;
    // A term times its coefficient, too; partial sums wrap harmlessly, since the whole fits.
    if (node.kind == ExprKind::Sum &&
        (node.coefficients[i] < kInt32Min || node.coefficients[i] > kInt32Max))
      return false;
  }
  return true;
}

llvm::Value* Indices::vector(const Expr& e, int lanes, unsigned bits) {
  llvm::IRBuilder<>& b = sink_.b;
  llvm::Type* element = b.getIntNTy(bits);
  auto count = static_cast<unsigned>(lanes);
  if (!varies(e))
    return b.CreateVectorSplat(count, b.CreateTrunc(scalar(e), element));
  const ExprNode& node = e.node();
  auto splat = [&](std::int64_t c) {
    return llvm::ConstantInt::get(llvm::FixedVectorType::get(element, count),
                                  static_cast<std::uint64_t>(c), true);
  };
  if (const auto pieces = lane_pieces(*this, e, lanes)) {
    llvm::Value* numbers = vector(kernel::lane_variable(lanes), lanes, bits);
    llvm::Value* below = b.CreateICmpSLT(numbers, vector(pieces->cut, lanes, bits));
    llvm::Value* from =
        b.CreateSelect(below, vector(pieces->first, lanes, bits),
                       vector(pieces->last - Expr(pieces->stride * (lanes - 1)), lanes, bits));
    return pieces->stride == 0 ? from
                               : b.CreateAdd(from, b.CreateMul(numbers, splat(pieces->stride)));
  }
  auto part = [&](std::size_t i) { return vector(node.operands[i], lanes, bits); };
  switch (node.kind) {
  case ExprKind::Sum: {
    // What does not vary is one scalar.
    Expr fixed = node.value;
    llvm::Value* sum = nullptr;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      if (!varies(node.operands[i])) {
        fixed = fixed + node.operands[i] * Expr(node.coefficients[i]);
        continue;
      }
      llvm::Value* term = part(i);
      if (node.coefficients[i] != 1)
        term = b.CreateMul(term, splat(node.coefficients[i]));
      sum = sum == nullptr ? term : b.CreateAdd(sum, term);
    }
    return fixed == Expr(0) ? sum : b.CreateAdd(sum, vector(fixed, lanes, bits));
  }
  case ExprKind::Product: {
    llvm::Value* product = part(0);
    for (std::size_t i = 1; i < node.operands.size(); ++i)
      product = b.CreateMul(product, part(i));
    return product;
  }
  case ExprKind::FloorDiv:
  case ExprKind::FloorMod:
    return divide(b, part(0), part(1), node.operands[0], node.operands[1],
                  node.kind == ExprKind::FloorDiv);
  case ExprKind::Min:
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, part(0), part(1));
  case ExprKind::Max:
    return b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, part(0), part(1));
  default:
    break;
  }
  if (auto id = kernel::value_of(e))
    return b.CreateSExtOrTrunc(values_.at(*id), llvm::FixedVectorType::get(element, count));
  auto own = kernel::lanes_of(e);
  ensure(own == lanes, "cpu renderer: a lane of {} lanes in a vector of {}", own.value_or(0),
         lanes);
  llvm::SmallVector<llvm::Constant*, 64> numbers;
  for (unsigned i = 0; i < count; ++i)
    numbers.push_back(llvm::ConstantInt::get(element, i));
  return llvm::ConstantVector::get(numbers);
}

llvm::Value* Indices::address(int buffer, llvm::Value* base, llvm::Type* element, const Expr& e) {
  // The constant part is added last, so that unrolled copies share all else and it ends up in the
  // instruction.
  std::int64_t offset = e.node().kind == ExprKind::Sum || e.is_constant() ? e.node().value : 0;
  llvm::Value* pointer = address_of(buffer, base, element, e - Expr(offset));
  return offset == 0 ? pointer
                     : sink_.b.CreateGEP(element, pointer,
                                         sink_.b.getInt64(static_cast<std::uint64_t>(offset)));
}

llvm::Value* Indices::address_of(int buffer, llvm::Value* base, llvm::Type* element,
                                 const Expr& e) {
  if (e == Expr(0))
    return base;
  const int own = level(e);
  const auto pointed = buffers_.find(buffer);
  const int at = pointed == buffers_.end() ? own : std::max(own, pointed->second);
  if (at != kInPlace)
    for (auto& [number, pointer] : scopes_[static_cast<std::size_t>(at)].addresses[e])
      if (number == buffer)
        return pointer;
  llvm::Value* pointer = at_level(at, [&] {
    Expr rest = 0;
    const bool splits = e.node().kind == ExprKind::Sum && own == at;
    Expr lower = splits ? lower_part(e, at, rest) : Expr(0);
    if (!splits)
      rest = e;
    llvm::Value* from = address_of(buffer, base, element, lower);
    return rest == Expr(0) ? from : sink_.b.CreateGEP(element, from, scalar(rest));
  });
  if (at != kInPlace)
    scopes_[static_cast<std::size_t>(at)].addresses[e].emplace_back(buffer, pointer);
  return pointer;
}

std::optional<LaneAffine> lane_affine(const Indices& indices, const Expr& e, int lanes) {
  Expr lane = kernel::lane_variable(lanes);
  auto stride = coefficient_of(e, lane);
  if (!stride || indices.varies(*stride))
    return std::nullopt;
  Expr base = e - *stride * lane;
  if (indices.varies(base))
    return std::nullopt;
  return LaneAffine{base, *stride};
}

namespace {

/// How an index changes from lane to lane between the ends of an axis.
class PieceFinder {
public:
  PieceFinder(const Indices& indices, Expr lane) : indices_(indices), lane_(std::move(lane)) {}

  /// The index's stride between ends; nothing where that is no constant.
  std::optional<std::int64_t> stride(const Expr& e) {
    if (!indices_.varies(e))
      return 0;
    if (e == lane_)
      return 1;
    const ExprNode& node = e.node();
    switch (node.kind) {
    case ExprKind::Sum: {
      std::int64_t all = 0;
      for (std::size_t i = 0; i < node.operands.size(); ++i) {
        const auto part = stride(node.operands[i]);
        if (!part || (*part != 0 && std::abs(node.coefficients[i]) > kInt32Max))
          return std::nullopt;
        all += *part * node.coefficients[i];
      }
      return all;
    }
    case ExprKind::FloorDiv:
    case ExprKind::FloorMod: {
      const auto inside = stride(node.operands[0]);
      if (!inside || indices_.varies(node.operands[1]))
        return std::nullopt;
      if (*inside == 0)
        return 0;
      const auto extent = node.operands[1].constant();
      if (*inside != 1 || !extent || !ends(node.operands[0] - lane_, *extent))
        return std::nullopt;
      return node.kind == ExprKind::FloorMod ? 1 : 0;
    }
    case ExprKind::Product:
    case ExprKind::Min:
    case ExprKind::Max:
      // Of what stays the same between ends.
      for (const Expr& part : node.operands)
        if (stride(part) != 0)
          return std::nullopt;
      return 0;
    default:
      return std::nullopt;
    }
  }

  /// The numerator's base and the least extent; nothing was divided: 0.
  const Expr& base() const { return base_; }
  std::int64_t extent() const { return extent_; }

private:
  /// Lane + base is divided by `extent`: all such ends are ends of the shortest axis.
  bool ends(const Expr& base, std::int64_t extent) {
    if (indices_.varies(base))
      return false;
    if (extent_ == 0) {
      base_ = base;
      extent_ = extent;
      return true;
    }
    if (!(base == base_) || std::max(extent, extent_) % std::min(extent, extent_) != 0)
      return false;
    extent_ = std::min(extent, extent_);
    return true;
  }

  const Indices& indices_;
  Expr lane_, base_ = 0;
  std::int64_t extent_ = 0;
};

} // namespace

std::optional<LanePieces> lane_pieces(const Indices& indices, const Expr& e, int lanes) {
  const Expr lane = kernel::lane_variable(lanes);
  PieceFinder finder(indices, lane);
  const auto stride = finder.stride(e);
  if (!stride || finder.extent() == 0 || finder.extent() < lanes - 1)
    return std::nullopt;
  const auto at = [&](std::int64_t number) {
    return substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      return v == lane ? std::optional(Expr(number)) : std::nullopt;
    });
  };
  const Expr extent(finder.extent());
  // Vectors that begin at a multiple of their length, which divides the axis's.
  const bool whole = is_power_of_two(lanes) && finder.extent() % lanes == 0 &&
                     indices.multiple_of(finder.base()) % lanes == 0;
  const Expr cut = whole ? Expr(lanes) : min(extent - floormod(finder.base(), extent), Expr(lanes));
  return LanePieces{at(0), at(lanes - 1), cut, *stride};
}

Expr without_ends(const Indices& indices, const Expr& e, int lanes) {
  if (lanes == 1 || !indices.varies(e) || lane_affine(indices, e, lanes))
    return e;
  const auto pieces = lane_pieces(indices, e, lanes);
  return pieces && pieces->cut == Expr(lanes)
             ? pieces->first + Expr(pieces->stride) * kernel::lane_variable(lanes)
             : e;
}

} // namespace egret::backend::cpu

// Index expressions as IR: scalars hoisted to the loop level where they are known, addresses, and
// vectors over the lanes.
#pragma once

#include "backend/cpu_codegen/num.h"
#include "kernel/program.h"

#include <functional>
#include <unordered_map>
#include <vector>

namespace egret::backend::cpu {

struct ExprHash {
  std::size_t operator()(const Expr& e) const noexcept {
    return static_cast<std::size_t>(e.hash());
  }
};

/// Renders expressions over dims, loop variables, values and the lane. An expression is emitted in
/// the prologue of the innermost loop whose variable it reads, once, so that no later pass has to
/// hoist; those that read values are emitted in place.
class Indices {
public:
  using DimLoader = std::function<llvm::Value*(const Expr& dim)>;
  Indices(Sink& sink, DimLoader load_dim) : sink_(sink), load_dim_(std::move(load_dim)) {}

  /// Opens the scope of a loop (or, first, of the function): `prologue` is a block with a
  /// terminator, before which hoisted code goes.
  void enter(llvm::BasicBlock* prologue);
  void leave();
  /// Binds a loop variable, always a multiple of `multiple`, to its value in the innermost scope.
  void bind_loop(int number, llvm::Value* value, std::int64_t multiple = 1);
  /// Replaces a loop variable by an expression until unbound: how bodies are unrolled.
  void replace_loop(int number, Expr by) { replaced_[number] = std::move(by); }
  void restore_loop(int number) { replaced_.erase(number); }
  /// Binds a symbol that is no dim to its value, until the innermost scope is left.
  void bind_symbol(const Expr& symbol, llvm::Value* value);
  /// The pointer of the buffer is available in the innermost scope only, until that is left.
  void bind_buffer(int buffer) { buffers_[buffer] = static_cast<int>(scopes_.size()) - 1; }
  void bind_value(kernel::ValueId id, llvm::Value* value) { values_[id] = value; }

  /// The expression with unrolled variables replaced.
  Expr resolve(const Expr& e) const;
  /// Whether it differs from lane to lane.
  bool varies(const Expr& e) const;
  /// An i64; `e` is resolved and must not vary.
  llvm::Value* scalar(const Expr& e);
  /// An i1: lo <= value < hi of a resolved guard, what is proved left out (null when all is).
  llvm::Value* holds(const Guard& guard);
  /// Lane by lane, as integers of `bits` (32 only when fits_32 says so, or 64). Of two pieces
  /// (lane_pieces) it has two scalar divisions, and none of vectors.
  llvm::Value* vector(const Expr& e, int lanes, unsigned bits);
  /// Whether every part of the expression stays within 32 signed bits.
  bool fits_32(const Expr& e) const;
  /// A number that divides every value of the resolved expression, from what is known of dims and
  /// of the loops' steps; 0 for the constant 0.
  std::int64_t multiple_of(const Expr& e) const;
  /// Pointer to element `e` (which must not vary) of the array at `base`, which is available in the
  /// outermost scope unless bind_buffer() says another. `buffer` names it in caches.
  llvm::Value* address(int buffer, llvm::Value* base, llvm::Type* element, const Expr& e);

private:
  struct Scope {
    llvm::BasicBlock* prologue;
    std::unordered_map<Expr, llvm::Value*, ExprHash> scalars;
    std::unordered_map<Expr, std::vector<std::pair<int, llvm::Value*>>, ExprHash> addresses;
  };
  static constexpr int kInPlace = 1 << 30;

  int level(const Expr& e) const;
  /// Sum or product without the parts that are first known at `level` itself; the others go to
  /// `rest`.
  Expr lower_part(const Expr& e, int level, Expr& rest) const;
  llvm::Value* emit(const Expr& e, int level);
  llvm::Value* emit_division(const Expr& e);
  llvm::Value* address_of(int buffer, llvm::Value* base, llvm::Type* element, const Expr& e);
  template <class F>
  llvm::Value* at_level(int level, F make);

  Sink& sink_;
  DimLoader load_dim_;
  std::vector<Scope> scopes_;
  struct Loop {
    llvm::Value* value;
    int level;
    std::int64_t multiple;
  };
  std::unordered_map<int, Loop> loops_;
  std::unordered_map<Expr, Loop, ExprHash> symbols_;
  std::unordered_map<int, int> buffers_; ///< scopes of pointers, by buffer
  std::unordered_map<int, Expr> replaced_;
  std::unordered_map<kernel::ValueId, llvm::Value*> values_;
};

/// The lane-free part and the factor of the lane of an affine expression; nothing when it is not
/// affine in the lane, or the factor varies.
struct LaneAffine {
  Expr base, stride;
};
std::optional<LaneAffine> lane_affine(const Indices& indices, const Expr& e, int lanes);

/// An index whose lanes go over the end of an axis: it divides lane + base by the axis's extent,
/// which is so long that a vector has one end inside at the most. Lanes below `cut` have the index
/// first + stride * lane, those from it on last - stride * (lanes - 1 - lane). `first` and `last`
/// are the indices of the first and of the last lane; cut is at most lanes: then no end is inside.
struct LanePieces {
  Expr first, last, cut;
  std::int64_t stride;
};
std::optional<LanePieces> lane_pieces(const Indices& indices, const Expr& e, int lanes);
/// The same index, affine in the lane where vectors begin at such places that no axis ends inside.
Expr without_ends(const Indices& indices, const Expr& e, int lanes);

} // namespace egret::backend::cpu

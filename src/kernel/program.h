// A kernel program: typed loop code that any backend renders. Indices are Expr over loop variables,
// dims and the lane number, so that their algebra is simplified once, here, and a renderer only has
// to see whether an index is contiguous, constant or strided in the lane.
#pragma once

#include "egret/expr.h"
#include "egret/index_map.h"
#include "egret/op.h"
#include "egret/scalar.h"
#include "kernel/intrinsics.h"
#include "kernel/library_product.h"
#include "kernel/program_types.h"
#include "kernel/schedule.h"
#include "support/overloaded.h"

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace egret::kernel {

/// How a value is made. These run on every target; what a device has beside them is an Intrinsic.
namespace inst {

struct Constant { ///< splat over the lanes
  Scalar value;
  friend bool operator==(const Constant&, const Constant&) = default;
};
/// Scalar number `number` of the argument block, splat; where it is negative, scalar number
/// -1 - `number` of the problem (ProblemGroup::scalars).
struct Argument {
  int number = 0;
  friend bool operator==(const Argument&, const Argument&) = default;
};
struct Index { ///< `expr` as an integer (or converted to a float type); may depend on the lane
  Expr expr;
  friend bool operator==(const Index&, const Index&) = default;
};
/// An elementwise op of the table; cast and bitcast convert to the value's type. Never arithmetic
/// in f16 or bf16: that is f32 and a cast. CPU: a bitcast to half as many u32 takes two neighbours
/// of 16 bits for each, the first in the lower half.
struct Apply {
  Op op = Op::Add;
  std::vector<ValueId> args;
  /// Fast-math. Exp2 and Recip in f32 on a GPU: relative errors up to 2^-21, or of one unit in the
  /// last place; below the smallest normal number results may be 0 and divisors count as 0. Exp of
  /// an f32 that is at most 0, for a sum that has a term of 1: an error of 2^-21 of the result and
  /// of 2^-23 besides. Cast of f32 to bf16 on a CPU: subnormal numbers may become 0.
  bool approximate = false;
  friend bool operator==(const Apply&, const Apply&) = default;
};
/// args[0] * args[1] + args[2], rounded once. CPU, with u32 args[0] and args[1]: these hold two
/// numbers each. For f32 these are bf16; the products of the upper halves, then of the lower ones
/// are added, and numbers below the smallest normal may count as zero. For i32 they are i16, and
/// the sum wraps.
struct Fma {
  std::array<ValueId, 3> args{};
  friend bool operator==(const Fma&, const Fma&) = default;
};
struct Load { ///< the elements at `from`; where `mask` fails: 0 without touching memory
  Address from;
  std::vector<Guard> mask; ///< over loop variables, dims, values and the lane
  CachePolicy policy = CachePolicy::Default;
  friend bool operator==(const Load&, const Load&) = default;
};
struct Read { ///< a variable
  VarId variable = 0;
  friend bool operator==(const Read&, const Read&) = default;
};
struct Splat { ///< `value` in all lanes
  ValueId value = 0;
  friend bool operator==(const Splat&, const Splat&) = default;
};
struct Extract { ///< one lane of `value`
  ValueId value = 0;
  int lane = 0;
  friend bool operator==(const Extract&, const Extract&) = default;
};
struct ReduceLanes { ///< the lanes of `value`, by Sum, Max or Prod, in a fixed tree order
  ValueId value = 0;
  Monoid monoid = Monoid::Sum;
  friend bool operator==(const ReduceLanes&, const ReduceLanes&) = default;
};
/// Lane i is lane lanes_from[i] of args[0] then args[1] concatenated (args[0] alone is allowed).
struct Shuffle {
  std::vector<ValueId> args;
  std::vector<int> lanes_from;
  friend bool operator==(const Shuffle&, const Shuffle&) = default;
};
struct Test { ///< bool: whether all of `mask` hold, lane by lane
  std::vector<Guard> mask;
  friend bool operator==(const Test&, const Test&) = default;
};

} // namespace inst

/// An instruction: what makes a value of type `type`.
struct Inst {
  Type type;
  std::variant<inst::Constant, inst::Argument, inst::Index, inst::Apply, inst::Fma, inst::Load,
               inst::Read, inst::Splat, inst::Extract, inst::ReduceLanes, inst::Shuffle, inst::Test,
               Intrinsic>
      op;
  friend bool operator==(const Inst&, const Inst&) = default;
};

struct Stmt;
using Block = std::vector<Stmt>;

struct Let { ///< value `target` = inst
  ValueId target = -1;
  Inst inst;
};
struct Assign { ///< variable = value
  VarId variable = -1;
  ValueId value = -1;
};
struct Store { ///< the elements at `to` = the lanes of `value`, where `mask` holds
  Address to;
  ValueId value = -1;
  std::vector<Guard> mask;
  CachePolicy policy = CachePolicy::Default;
};
/// How the threads of a block go through the iterations of one queue in roles, each role by a loop
/// of its own: one thread leads, which takes iterations from the queue, and subgroups follow it.
struct Relay {
  /// Shared u64 elements from `at` on: two signals that a number is there, two that it has been
  /// read, and the two numbers.
  static constexpr std::int64_t kWords = 5;
  Address at;
  bool leads = false;
};
/// Variable axis(number, extent) from begin while < end in steps of step. Core: iterations are
/// shared out among the workers in contiguous pieces. Grid: static round-robin scheduling over the
/// blocks (block b does iterations b, b + blocks ...), or with a `queue` dynamic scheduling: blocks
/// take the next iteration from this element of a counter and the one behind it.
struct For {
  int number = 0; ///< of the loop variable; unique in the program
  Expr extent;    ///< bound of the loop variable, for its interval: 0 <= variable < extent
  Expr begin, end, step;
  Bind bind = Bind::Serial;
  std::optional<Address> queue;
  std::optional<Relay> relay; ///< of a loop with a queue
  int unroll = 1;             ///< copies of the body a renderer should make
  /// Of a grid loop: what does not change from one iteration to the next is computed in each of
  /// them, as there is too much of it for the registers.
  bool keeps_invariants = false;
  Block body;
};
struct If { ///< body where all of `condition` hold (not lane dependent), else `otherwise`
  std::vector<Guard> condition;
  Block body, otherwise;
};
struct Barrier {}; ///< all workers of the launch (CPU) or all threads of the block (GPU)
/// The body runs where `by`, an intrinsic by which blocks wait for each other, lets the block in;
/// what the others wrote before is visible there.
struct Acquire {
  Intrinsic by;
  Block body;
};
/// The body for the problem of a group that has the item `item`, with its sizes and memory. The
/// item is the same in all threads of a block; a problem does not stand within another.
struct InProblem {
  int group = -1;
  Expr item; ///< 0 <= item < items of the group
  Block body;
};

struct Stmt {
  using Node = std::variant<Let, Assign, Store, For, If, Barrier, Intrinsic, Acquire, InProblem>;
  Node node;
  Stmt() = default;
  template <class T>
  requires(!std::is_same_v<std::decay_t<T>, Stmt>) Stmt(T&& made) : node(std::forward<T>(made)) {}
};

/// The statement, or the instruction, if it is a T; else null.
template <class T>
const T* get_if(const Stmt& s) {
  return std::get_if<T>(&s.node);
}
template <class T>
T* get_if(Stmt& s) {
  return std::get_if<T>(&s.node);
}
template <class T>
const T* get_if(const Inst& i) {
  return std::get_if<T>(&i.op);
}
template <class T>
T* get_if(Inst& i) {
  return std::get_if<T>(&i.op);
}
/// A Let's instruction if it is a T; else null.
template <class T>
const T* made_by(const Stmt& s) {
  const Let* let = get_if<Let>(s);
  return let ? get_if<T>(let->inst) : nullptr;
}
template <class T>
T* made_by(Stmt& s) {
  Let* let = get_if<Let>(s);
  return let ? get_if<T>(let->inst) : nullptr;
}

/// Calls f with each block that stands in the statement itself.
template <class S, class F>
void each_block(S& stmt, F&& f) {
  constexpr bool kConst = std::is_const_v<S>;
  using Loop = std::conditional_t<kConst, const For, For>;
  using Choice = std::conditional_t<kConst, const If, If>;
  using Behind = std::conditional_t<kConst, const Acquire, Acquire>;
  using One = std::conditional_t<kConst, const InProblem, InProblem>;
  std::visit(overloaded{[](const Let&) {}, [](const Assign&) {}, [](const Store&) {},
                        [](const Barrier&) {}, [](const Intrinsic&) {},
                        [&](Loop& loop) { f(loop.body); },
                        [&](Choice& choice) {
                          f(choice.body);
                          f(choice.otherwise);
                        },
                        [&](Behind& behind) { f(behind.body); }, [&](One& one) { f(one.body); }},
             stmt.node);
}

/// Calls f with each statement, those that contain others first.
template <class B, class F>
void each_statement(B& block, F&& f) {
  for (auto& s : block) {
    f(s);
    each_block(s, [&](auto& inner) { each_statement(inner, f); });
  }
}

/// Whether a statement of the block, or of one inside of it, is such that `test` holds.
template <class F>
bool any_statement(const Block& block, const F& test) {
  bool found = false;
  each_statement(block, [&](const Stmt& s) { found = found || test(s); });
  return found;
}

/// A program with threads == 0 is one worker's code on a CPU. Else it is the code of one thread of
/// a GPU, right for any number of blocks from 1 on: code outside of Grid loops runs in every block.
struct Launch {
  Expr workers;          ///< CPU: workers that can be of use, at least 1. GPU: blocks that can be
  int threads = 0;       ///< GPU: threads of a block, a multiple of 32
  bool resident = false; ///< GPU: no more blocks than run at the same time (grid barriers need it;
                         ///< work that blocks take from a queue or in turn may profit)
  int blocks_per_core = 0; ///< GPU: blocks of a multiprocessor to compile for, and with `resident`
                           ///< to launch; 0: as many as fit
  std::int64_t least_shared = 0; ///< GPU: bytes of shared memory a block asks for at the least
};

/// A tensor map descriptor: how bulk tensor copies see a buffer, a tensor of `extents`, innermost
/// first, whose neighbours along the others are `strides` elements apart (strides[0] is 1), from
/// element `offset` on. Copies move boxes; in shared memory these lie with `swizzle` bytes (0 or
/// 128): of each 1024 bytes, bits 4 to 6 of an address are changed by its bits 7 to 9. Indices in
/// programs do not know of that.
struct TensorMap {
  int buffer = 0;
  Expr offset;
  std::vector<Expr> extents, strides;
  std::vector<int> box;
  int swizzle = 128;
  friend bool operator==(const TensorMap&, const TensorMap&) = default;
};

/// Problems that one code computes and that differ in their sizes and in their memory: the problems
/// of a grouped GEMM (CUTLASS), or the tensors of a multi-tensor apply (Apex). The work of all of
/// them is numbered in one row of items; those of problem p are begin[p] to begin[p + 1] - 1.
struct ProblemGroup {
  std::vector<std::int64_t> begin; ///< ascending from 0; one more than there are problems
  Expr item;                       ///< symbol: an item's number among those of its problem
  std::vector<Expr> sizes;         ///< symbols that each problem has a value of
  std::vector<std::vector<std::int64_t>> values; ///< by size, by problem
  std::vector<int> buffers;                      ///< those of Space::Problem
  std::vector<std::vector<int>> arguments; ///< by buffer, by problem: the argument buffer that the
                                           ///< buffer is there
  std::vector<std::vector<int>> scalars;   ///< by scalar of the problems, by problem: which scalar
                                           ///< of the argument block it is there; all of one type

  std::size_t problems() const { return begin.empty() ? 0 : begin.size() - 1; }
  /// The problem that has an item; 0 <= item < begin.back().
  std::size_t problem_of(std::int64_t item) const;
};

/// The scalar of the argument block that `x` is; `group` and `problem` are those around it.
inline int scalar_of(const inst::Argument& x, const ProblemGroup* group, std::size_t problem) {
  return x.number >= 0 ? x.number : group->scalars.at(std::size_t(-1 - x.number)).at(problem);
}

/// Arguments: pointers in the order of the buffers with Space::Argument, dims in the order of
/// `dims`, scalars in the order of `scalars`.
struct KernelProgram {
  std::string name;
  std::vector<Buffer> buffers;
  std::vector<Expr> dims;      ///< the symbols whose values come in the argument block
  std::vector<DType> scalars;  ///< by-value arguments
  std::vector<Type> variables; ///< VarId -> type; zero at the start
  std::vector<Type> values;    ///< ValueId -> type
  std::vector<ProblemGroup> groups;
  Block body;
  Launch launch;
  std::vector<TensorMap>
      tensor_maps; ///< further arguments, encoded by the device from pointers and dims
  bool uses_barrier = false;
  bool deterministic = true;
  /// All that the program does, where a library does it: the body is empty then. GPU.
  std::optional<LibraryProduct> product;
};

std::string print(const KernelProgram& program);
/// Types, visibility of values, buffers in range, masks and lane numbers well formed; throws
/// InternalError.
void verify(const KernelProgram& program);
/// Hash of the code itself: equal programs share one compiled artifact.
std::uint64_t hash_of(const KernelProgram& program);
/// Of an instruction with everything that distinguishes it.
std::uint64_t hash_of(const Inst& inst);

/// The one calling convention: `void kernel(const ArgBlock*, i64 worker, i64 workers)`.
struct ArgBlock {
  void* const* pointers; ///< Argument buffers, then Workspace buffers, in the order of
                         ///< KernelProgram::buffers
  const std::int64_t* dims;
  const std::uint64_t* scalars; ///< bits of each scalar in the low bytes
  void* const* worker_memory; ///< by worker: memory for its Worker buffers, laid out in order, each
                              ///< aligned to 64 bytes
  void* barrier;              ///< backend's barrier object; null when uses_barrier is false
};

/// Whether some buffer is Buffer::settled: such a program has the waits of GridDependencyWait.
bool has_settled(const KernelProgram& program);

/// Whether a launch lets the next one begin before the one before it has ended: small ones do, as
/// their blocks leave room. Behind larger ones early blocks would crowd on the multiprocessors that
/// are free.
bool begins_next_at_once(const KernelProgram& program);

} // namespace egret::kernel

// Intrinsics: what a device can do beside loads, stores and arithmetic. One row each says what it
// is given, who executes it together and what a target must have. The rows are all that the
// printer, the serializer, the splicer, the builder and most of the verifier know of them; the
// interpreter and the renderers have a case for each.
#pragma once

#include "kernel/capability.h"
#include "kernel/program_types.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::kernel {

struct KernelProgram;

/// "subgroup": the lanes of a GPU that execute in step (a warp). "Subgroup group": four of them (a
/// warp group). Words after a colon are the operands in their order.
enum class IntrinsicId : std::uint8_t {
  Prefetch, ///< the element `at` into the cache
  // Lanes of a block
  ReduceThreads, ///< `value` combined by `monoid` (Sum, Max, Prod) over aligned groups of
                 ///< `threads`: a power of two up to the subgroup, or all threads of the block. All
                 ///< of the group get the result. Fixed tree order: over a subgroup, lane i with
                 ///< lane i xor 16, 8, 4, 2, 1; over a block, then the subgroups' results likewise,
                 ///< padded with the identity to a power of two
  ScanThreads,   ///< exclusive scan: `value` of the threads before this one in its aligned group of
                 ///< `threads` (a power of two from 2 to the subgroup), combined by `monoid`; of
                 ///< the first one the identity. Fixed order (Hillis and Steele): what a thread has
                 ///< is combined with what the thread 1, 2, 4 ... before it has
  ShuffleXor, ///< `value` of the lane of the subgroup whose number differs from this one's in the
              ///< bits of `mask`; all lanes of the subgroup come here
  SubgroupBarrier, ///< the lanes of the subgroup
  CountInOrder,    ///< the lanes of a subgroup, one after the other: the variable (i32) = element
                   ///< `at`, which then is one more; where the mask fails, 0 and nothing. All lanes
  ///< come here, and no other subgroup counts the element before a barrier. `mark`,
  ///< for the target's use, is 0 and belongs to `at` alone
  // Blocks that run at the same time
  GridBarrier, ///< all threads of all blocks, through elements `counter` and the next one; or with
               ///< `blocks` > 0, without a counter, of a cluster: `blocks` neighbours, whose first
               ///< has a number that is a multiple of it, and which run at the same time
  LastArriver, ///< Acquire: body in the block that is the last of `arrivals` to come here with
               ///< this element `counter`, which is then zero again. A barrier of the block
  LastArriverOfGroup, ///< the same where only the last `threads` of each block come, which meet at
                      ///< barrier number `barrier` of the block
  PublishFlag, ///< decoupled look-back (Merrill and Garland 2016): what this thread wrote before
               ///< is there for those who wait for element `flag`; once a launch
  WaitFlags,   ///< Acquire: body behind the publication of elements `begin` to `end` of a
               ///< counter. A barrier of the block; what a block waits for was begun before
  PublishWord, ///< decoupled look-back in words: `value` is there for those who await `word`, two
               ///< elements of a counter from an even one on: the value and its flag, in one
               ///< access, so that neither side needs a fence; once a launch
  AwaitWord,   ///< the variable (u32) = the value that is published as `word`, as soon as it is;
               ///< 0 where the mask fails. Each thread waits for itself; whose word it is was begun
               ///< before
  ClearFlags,  ///< each block comes here once, behind all that it waits for: the last one makes
               ///< the first `count` elements of `flags` zero again; `arrived` is a counter of
               ///< one element
  // Launches that overlap (programmatic dependent launch, CUDA programming guide). A program
  // without a GridDependencyWait has one before everything else
  GridDependencyWait, ///< until the launch before this one has ended and its memory can be seen.
                      ///< All blocks come here. Before it only shared memory is written, and
                      ///< nothing else is read. `unless_settled`: not where the launch is told that
                      ///< buffers which are Buffer::settled have their values; behind such a wait
                      ///< alone, these may be read
  LaunchDependents,   ///< the blocks of the next launch may come as soon as all blocks of this one
                      ///< were here or have ended
  // Copies to a block's shared memory
  CopyAsync, ///< `elements` neighbours from `from` on to `to`: 4, 8 or 16 bytes, aligned so; zeros
             ///< where the mask fails. At any time up to the thread's WaitCopies for its group.
             ///< `swizzled`: `to` is in a buffer in the swizzled order of tensor maps
  StoreSwizzled, ///< eight neighbours of bf16 to `to`, which is in a buffer in the swizzled order
                 ///< of tensor maps; queued products see them behind the CopyFence of this thread
                 ///< and a barrier at which it then arrives
  CommitCopies,  ///< the thread's asynchronous copies since the last one are a group
  WaitCopies,    ///< until at most `groups` of the thread's groups of copies are under way; others
                 ///< see what was copied after a barrier
  MbarrierInit, ///< `barrier`, an element of a u64 buffer, has `arrivals` a phase; a barrier of the
                ///< block must follow. Phases are numbered from 0; one ends when all arrivals have
                ///< come and all bytes that were announced
  MbarrierArrive,       ///< at `barrier`; announces `bytes` for this phase first
  MbarrierArriveCopies, ///< at `barrier`, as soon as the asynchronous copies that the thread began
                        ///< since its last CommitCopies have come
  MbarrierWait,   ///< until the phase of `barrier` whose number has the `parity` has ended; the one
                  ///< before the first counts as ended
  BulkTensorCopy, ///< the box at coordinates `at`, innermost first, of tensor map `map` to `to`,
                  ///< zeros where it leaves the tensor; its bytes then count at `barrier`
  BulkCopy,  ///< `elements` neighbours from `from` on to `to`, a multiple of 16 bytes, aligned to
             ///< 16; its bytes then count at `barrier`
  CopyFence, ///< what asynchronous copies brought before the barrier that this thread waited at
             ///< is there for the products that it queues, and what it stored itself for those of
             ///< all that wait for it from here on
  // Matrix units
  LoadMatrix, ///< `matrices` (1, 2 or 4) of 8 x 8 elements of two bytes: lane l of the subgroup
              ///< says by `row` where row l % 8 of matrix l / 8 begins (8 neighbours). Gives u32 x
              ///< matrices: of matrix i the elements (l / 4, 2 * (l % 4)) and its right neighbour,
              ///< the first in the low half; `transposed`: of the mirrored matrix
  MatrixMultiply, ///< a subgroup's product of a 16 x 16 by a 16 x 8 matrix of `element` (bf16,
                  ///< f16), added to 16 x 8 of f32. `a`: LoadMatrix's quarters upper left, lower
                  ///< left, upper right, lower right; `b`: upper and lower half of the transposed;
                  ///< `c`: of row l / 4 columns 2 * (l % 4) and the next, then the same of the row
                  ///< 8 below
  MatrixFence,    ///< registers and shared memory are as the queued products want them; the
                  ///< variables are those that were written since the last products
  MatrixMultiplyAsync, ///< queued: variables (f32 x 4 each, 8 columns of a subgroup group's 64 rows
                       ///< as in MatrixMultiply) += A * B, a depth of 16; = where the mask fails.
                       ///< `b` and `a` are in the swizzled order of tensor maps: rows of 64
                       ///< neighbours along the depth, or (transposed) groups of 64 along the rows
                       ///< or columns, each `group` elements long. With the value `fragment` (u32 x
                       ///< 4, as MatrixMultiply's a), each subgroup's 16 rows of A are there
                       ///< instead of in `a`
  MatrixCommit,        ///< the queued products since the last one are a group
  MatrixWait, ///< until at most `groups` of products are under way; before that nothing may
              ///< touch their variables, which are read from then on
  ReallocateRegisters, ///< of each lane, to `registers`: more (`raise`) or fewer than before
  // Matrix registers of a CPU's thread: kTiles of 16 rows of 64 bytes, undefined at the start
  TileZero,     ///< `tile` = 0
  TileLoad,     ///< row i of `tile` = the 64 bytes from `at` + i * `stride` on
  TileMultiply, ///< `sum` (16 x 16 of f32) += `left` * `right`. Left: 16 rows by a depth of 32
                ///< `element` (bf16). Right: 16 columns by the same depth, row k holding elements
                ///< 2k and 2k + 1 of each column side by side. Elements of even and of odd depth
                ///< are summed apart, each product added with one rounding, and then both added to
                ///< the tile; numbers below the smallest normal may count as zero
  TileStore,    ///< row i of `tile` to the 64 bytes from `at` + i * `stride` on
  // Elements that many threads update
  AtomicCombine, ///< element `at`, an integer of 4 or 8 bytes, = itself combined with `value` by
                 ///< `monoid` (Sum, which wraps, or Max) in one step, where the mask holds. Threads
                 ///< do so in any order, which the result does not depend on; loads and stores of
                 ///< the element stand behind barriers
  AtomicFetchAdd, ///< the variable (i32) = element `at`, which grows by `value` in one step; 0
                  ///< where the mask fails. Threads that meet come in any order
};
inline constexpr int kIntrinsics = static_cast<int>(IntrinsicId::AtomicFetchAdd) + 1;

inline constexpr int kTiles = 8, kTileRows = 16, kTileBytes = 64; ///< of a row

/// A use of an intrinsic, its operands in the order of the row's lists. As a statement or the
/// condition of an Acquire, or as an instruction if it has a result.
struct Intrinsic {
  IntrinsicId id = IntrinsicId::Prefetch;
  std::vector<Address> memory = {};
  std::vector<ValueId> values = {};
  std::vector<VarId> variables = {};
  std::vector<std::int64_t> numbers = {};
  std::vector<Expr> indices = {};
  std::vector<Guard> mask = {};
  friend bool operator==(const Intrinsic&, const Intrinsic&) = default;

  /// Numbers by the name that they have in the row; InternalError when there is none.
  std::int64_t number(std::string_view name) const;
  DType dtype(std::string_view name) const { return static_cast<DType>(number(name)); }
  Monoid monoid() const { return static_cast<Monoid>(number("monoid")); }
};

/// The rows' operands.
struct MemoryOperand {
  enum class Effect : std::uint8_t { None, Read, Write, Update }; // Update: read and write
  std::string_view name;
  std::vector<Space> spaces; ///< where the buffer may be
  Effect effect = Effect::None;
  std::optional<DType> dtype = {};
  bool uniform = false; ///< the same element in all threads that execute it together
  bool optional = false;
};
struct ValueOperand {
  std::string_view name;
  std::optional<Type> type = {}; ///< none: any
  bool optional = false;
};
struct NumberOperand {
  enum class Kind : std::uint8_t { Count, Flag, DType, Monoid };
  std::string_view name;
  Kind kind = Kind::Count;
  std::int64_t least = 0, most = INT32_MAX; ///< of a Count
};
struct IndexOperand {
  std::string_view name;
  bool uniform = false;
};

struct IntrinsicInfo {
  IntrinsicId id;
  std::string_view name; ///< in programs' text
  std::string_view doc;  ///< one line
  IntrinsicScope scope = IntrinsicScope::Lane;
  std::optional<Capability> requirement = {}; ///< what the target must have
  std::vector<MemoryOperand> memory = {};
  std::vector<ValueOperand> values = {};
  std::vector<NumberOperand> numbers = {};
  std::vector<IndexOperand> indices = {};
  bool any_indices = false;           ///< as many as are given, all named as the one in the row
  std::optional<Type> variables = {}; ///< takes variables of this type
  bool any_variables = false;         ///< takes variables of any type of 4 bytes, or none
  bool masked = false;                ///< takes a mask
  bool result = false;                ///< makes a value
  bool body = false;                  ///< the condition of an Acquire
  bool acquires = false;              ///< loads behind it see what other threads wrote
  /// What the lists above cannot say: why this use is not well formed; empty when it is. `result`:
  /// type of the value.
  std::string (*refused)(const KernelProgram& program, const Intrinsic& use,
                         const Type& result) = nullptr;
};

const IntrinsicInfo& info_of(IntrinsicId id);
std::span<const IntrinsicInfo> all_intrinsics();

/// What a target must have for the use.
std::optional<Capability> requirement_of(const Intrinsic& use);
/// What the program needs of a target beside arithmetic, each once.
std::vector<Capability> requirements_of(const KernelProgram& program);

} // namespace egret::kernel

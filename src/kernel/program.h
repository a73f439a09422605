// A kernel program: typed loop code that any backend renders. Indices are Expr over loop variables,
// dims and the lane number, so that their algebra is simplified once, here, and a renderer only has
// to see whether an index is contiguous, constant or strided in the lane.
#pragma once

#include "egret/expr.h"
#include "egret/index_map.h"
#include "egret/op.h"
#include "egret/scalar.h"
#include "kernel/library_product.h"
#include "kernel/schedule.h"

#include <optional>
#include <string>
#include <vector>

namespace egret::kernel {

struct Type {
  DType dtype = DType::F32;
  int lanes = 1; ///< 1: scalar; a power of two, at most 64
  friend bool operator==(const Type&, const Type&) = default;
};

/// Where a buffer lives. A pointer in the argument block for Argument and Workspace (shared by the
/// workers or blocks of a launch); memory of one worker for Worker (CPU). On a GPU: memory of a
/// block for Shared, of constant size and undefined at the start; Counter is u32 memory that the
/// device keeps with the loaded kernel (its pointers stand behind the workspaces'), zero when it is
/// loaded and left zero by every launch, so that only one launch at a time may use it.
enum class Space : std::uint8_t { Argument, Workspace, Worker, Shared, Counter };

struct Buffer {
  std::string name;
  DType dtype = DType::F32;
  Space space = Space::Argument;
  int argument = -1; ///< Argument: its pointer's number in the block
  Expr elements;     ///< size (Workspace and Worker: what to provide)
  bool read = false, written = false;
  std::int64_t alignment = 64;
  bool aliased = false; ///< an operand whose memory an output may take over: what is read may
                        ///< change during the launch
};

using ValueId = int; ///< a value made by an instruction; each is set once and visible in the rest
                     ///< of its block and in nested ones
using VarId = int;   ///< a mutable register

/// The lane's number inside a vector, for expressions: 0 <= lane < lanes.
Expr lane_variable(int lanes);
/// An i64 or i32 value of the program used in an index expression (gathers). For a vector value,
/// that of the lane.
Expr value_symbol(ValueId value);
/// This thread's number in its block, for programs of a GPU: 0 <= thread < threads.
Expr thread_variable(int threads);
/// The lanes of a lane variable, the threads of a thread variable, the number of a value symbol;
/// nothing for every other expression.
std::optional<int> lanes_of(const Expr& variable);
std::optional<int> threads_of(const Expr& variable);
std::optional<ValueId> value_of(const Expr& variable);

enum class InstKind : std::uint8_t {
  Constant, ///< `constant`, splat over the lanes
  Scalar,   ///< scalar number `number` of the argument block, splat
  Index,    ///< `expr` as an integer (or converted to a float type); may depend on the lane
  Apply, ///< elementwise op of the table on args (`number`: see exp_beside_one); cast and bitcast
         ///< convert to `type`. Never arithmetic in f16 or bf16: that is f32 and a cast. CPU: a
         ///< bitcast to half as many u32 takes two neighbours of 16 bits for each, the first in the
         ///< lower half
  Fma,   ///< args[0] * args[1] + args[2] rounded once. CPU, f32 with u32 args[0] and args[1]: these
       ///< hold two bf16 each; the products of the upper halves, then of the lower ones are added,
       ///< and numbers below the smallest normal may count as zero
  Load,        ///< buffer[expr]; where `mask` fails: 0 without touching memory
  ReadVar,     ///< variable `number`
  Splat,       ///< args[0] in all lanes
  Extract,     ///< lane `number` of args[0]
  ReduceLanes, ///< combination of the lanes of args[0] by `monoid`, in a fixed tree order (Sum,
               ///< Max, Prod)
  Shuffle, ///< lane i is lane lanes_from[i] of args[0] then args[1] concatenated (args[0] alone is
           ///< allowed)
  Test,    ///< bool: whether all of `mask` hold, lane by lane
  // GPU
  ReduceThreads, ///< args[0] combined by `monoid` (Sum, Max, Prod) over aligned groups of `number`
                 ///< threads: a power of two up to 32, or all threads of the block. All of the
                 ///< group come here, and all get the result. Fixed tree order: over a warp, thread
                 ///< i with thread i xor 16, 8, 4, 2, 1; over a block, then the warps' results
                 ///< likewise, padded with the identity to a power of two.
  ScanThreads, ///< args[0] of the threads before this one in its aligned group of `number` (a power
               ///< of two from 2 to 32), combined by `monoid` (Sum, Max, Prod); of the first thread
               ///< the identity. All of the group come here. Fixed order: what a thread has is
               ///< combined with what the thread 1, 2, 4 ... before it has, in turn.
  LoadMatrix,  ///< `number` (1, 2 or 4) matrices of 8 x 8 elements of two bytes from Shared memory:
               ///< lane l of the warp says where row l % 8 of matrix l / 8 begins (buffer[expr], 8
               ///< neighbours). Gives u32 x number: of matrix i the elements (l / 4, 2 * (l % 4))
               ///< and its right neighbour, the first in the low half; `transposed`: of the matrix
               ///< mirrored at its diagonal
  Mma, ///< a warp's product of a 16 x 16 by a 16 x 8 matrix of `element` (bf16, f16), added to 16 x
       ///< 8 of f32. args: a (u32 x 4: LoadMatrix's quarters upper left, lower left, upper right,
       ///< lower right), b (u32 x 2: upper and lower half of the transposed), c (f32 x 4: of row l
       ///< / 4 columns 2 * (l % 4) and the next, then the same of the row 8 below)
};

struct Inst {
  InstKind kind = InstKind::Constant;
  Type type;
  Scalar constant;
  int number = 0;
  Expr expr;
  Op op = Op::Add;
  Monoid monoid = Monoid::Sum;
  int buffer = -1;
  std::vector<Guard> mask; ///< over loop variables, dims, values and the lane
  CachePolicy policy = CachePolicy::Default;
  std::vector<ValueId> args;
  std::vector<int> lanes_from;
  // GPU: copies and matrices
  DType element = DType::F32;
  bool transposed = false;
  bool quick = false; ///< Apply of exp2 or recip in f32 on a GPU: relative errors up to 2^-21, or
                      ///< of one unit in the last place, will do; powers below the smallest normal
                      ///< number may be 0. Of a cast of f32 to bf16 on a CPU: so may those
  int source = -1; ///< a second buffer, and the place in it
  Expr source_expr;
  bool source_transposed = false;
  std::vector<Expr> at; ///< coordinates in a tensor map, innermost first
  friend bool operator==(const Inst&, const Inst&) = default;
};

struct Stmt;
using Block = std::vector<Stmt>;

enum class StmtKind : std::uint8_t {
  Let,      ///< value `target` = inst
  Set,      ///< variable `target` = value args[0]
  Store,    ///< inst.buffer[inst.expr] = value args[0] where inst.mask holds
  For,      ///< variable axis(number, extent) from begin while < end in steps of step
  If,       ///< body where all of inst.mask hold (not lane dependent), else `otherwise`
  Barrier,  ///< all workers of the launch (CPU) or all threads of the block (GPU)
  Prefetch, ///< inst.buffer[inst.expr] into the cache
  // GPU
  GridBarrier, ///< all threads of all blocks, through the counter inst.buffer[inst.expr] and the
               ///< next one; asks for launch.resident
  Last,        ///< body where this block is the last of `end` that come here with this counter,
        ///< inst.buffer[inst.expr], which is then zero again. What the others wrote before is
        ///< visible in the body. A barrier of the block; with a `number`, of its last `target`
        ///< threads, which alone come here, by the barrier of that number.
  WarpBarrier, ///< the threads of the warp
  CopyAsync, ///< Shared inst.buffer[inst.expr ...] = inst.source[inst.source_expr ...]: type.lanes
             ///< neighbours, together 4, 8 or 16 bytes and aligned so; zeros where inst.mask fails.
             ///< It happens at any time up to the thread's WaitCopies for the group of copies it is
             ///< in
  CommitCopies, ///< the thread's copies since the last one are a group
  // Compute capability 9.0a. A signal is an element of a u64 Shared buffer; it goes through phases,
  // numbered from 0. A phase ends when all arrivals have come and all bytes that were announced.
  InitSignal, ///< signal inst.buffer[inst.expr] has `number` arrivals a phase; a barrier must
              ///< follow
  Arrive,     ///< at signal inst.buffer[inst.expr]; announces `number` bytes for this phase first
  Await, ///< until the phase of signal inst.buffer[inst.expr] whose number has the parity args[0]
         ///< (i32) has ended. The one before it counts as ended at the start
  TensorCopy, ///< the box at inst.at of tensor map `number` to Shared inst.buffer[inst.expr], zeros
              ///< where it leaves the tensor; the bytes of the whole box then count at signal
              ///< inst.source[inst.source_expr]
  FenceProducts, ///< registers and shared memory are as the next products want them;
                 ///< `variables` are those that were written since the last products
  MultiplyAsync, ///< variables (f32 x 4 each, 8 columns of a warp group's 64 rows as in Mma) += A *
                 ///< B in steps of 16 along the depth; = where inst.mask fails. inst.element are
                 ///< A's at inst.buffer[inst.expr] and B's at inst.source[inst.source_expr], both
                 ///< in the swizzled order of tensor maps: rows of 64 neighbours along the depth,
                 ///< or (transposed) groups of 64 along the rows or columns, each as long as
                 ///< `target` (A) and `number` (B) elements. All four warps come here. With
                 ///< args[0] (u32 x 4, as Mma's a), each warp's 16 rows of A are there instead of
                 ///< in a buffer
  CommitProducts, ///< the products since the last one are a group
  WaitProducts,   ///< until at most `number` groups of products are still under way; before that
                  ///< nothing may touch their variables. `variables` are read from then on
  SetRegisters, ///< of a thread, `number` of them, more (target 1) or less (target 0) than before;
                ///< all four warps
  WaitCopies,   ///< until at most `number` of the thread's groups of copies are still under way;
                ///< others see them after a barrier
  // Between blocks that all run at the same time.
  Post,       ///< what this thread wrote before is there for those who await element inst.expr of
              ///< the counter inst.buffer; once a launch
  AwaitPosts, ///< body behind the posts of elements inst.expr to `end` of the counter, where what
              ///< was written before them is visible. A barrier of the block. For programs whose
              ///< blocks all run at the same time, and where what a block waits for was begun
              ///< before
  ClearPosts, ///< each block comes here once, behind all that it awaits: the last one makes the
              ///< first `number` elements of the counter inst.buffer zero again. inst.source is a
              ///< counter of one element
  // CPU with AMX: a worker has kTiles registers that hold a matrix each, 16 rows of 64 bytes. What
  // is in them at the start is not defined.
  TileZero,     ///< tile `target` = 0
  TileLoad,     ///< tile `target`: row i is the 64 bytes from inst.buffer[inst.expr + i *
                ///< inst.source_expr] on
  TileMultiply, ///< tile `target` (16 x 16 of f32) += A * B. A is tile `number`: 16 rows by a depth
                ///< of 32 inst.element (bf16). B is tile `inst.number`: 16 columns by the same
                ///< depth, row k holding elements 2k and 2k + 1 of each column side by side.
                ///< Elements of even and of odd depth are summed apart, each product added with
                ///< one rounding, and then both added to the tile; numbers below the smallest
                ///< normal may count as zero
  TileStore,    ///< row i of tile `target` to the 64 bytes from inst.buffer[inst.expr + i *
                ///< inst.source_expr] on
};

inline constexpr int kTiles = 8, kTileRows = 16, kTileBytes = 64; ///< of a row

struct Stmt {
  StmtKind kind = StmtKind::Let;
  int target = -1;
  Inst inst;
  std::vector<ValueId> args;
  // For
  int number = 0; ///< of the loop variable; unique in the program
  Expr extent;    ///< bound of the loop variable, for its interval: 0 <= variable < extent
  Expr begin, end, step;
  /// Core: iterations are shared out among the workers in contiguous pieces. Grid: dealt to the
  /// blocks in turn (block b does iterations b, b + blocks ...), or drawn by them (`order` Drawn)
  /// from the counter inst.buffer[inst.expr] and the next one.
  Bind bind = Bind::Serial;
  WorkOrder order = WorkOrder::Fixed;
  std::vector<VarId> variables; ///< MultiplyAsync, FenceProducts, WaitProducts
  int unroll = 1;               ///< copies of the body a renderer should make
  Block body, otherwise;
};

/// A program with threads == 0 is one worker's code on a CPU. Else it is the code of one thread of
/// a GPU, right for any number of blocks from 1 on: code outside of Grid loops runs in every block.
struct Launch {
  Expr workers;          ///< CPU: workers that can be of use, at least 1. GPU: blocks that can be
  int threads = 0;       ///< GPU: threads of a block, a multiple of 32
  bool resident = false; ///< GPU: no more blocks than run at the same time (grid barriers need it;
                         ///< drawn and dealt work may profit)
  int blocks_per_core = 0; ///< GPU: blocks of a multiprocessor to compile for, and with `resident`
                           ///< to launch; 0: as many as fit
  std::int64_t least_shared = 0; ///< GPU: bytes of shared memory a block asks for at the least
};

/// How bulk tensor copies (TMA, compute capability 9.0) see a buffer: a tensor of `extents`, innermost
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

/// Arguments: pointers in the order of the buffers with Space::Argument, dims in the order of
/// `dims`, scalars in the order of `scalars`.
struct KernelProgram {
  std::string name;
  std::vector<Buffer> buffers;
  std::vector<Expr> dims;      ///< the symbols whose values come in the argument block
  std::vector<DType> scalars;  ///< by-value arguments
  std::vector<Type> variables; ///< VarId -> type; zero at the start
  std::vector<Type> values;    ///< ValueId -> type
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

} // namespace egret::kernel

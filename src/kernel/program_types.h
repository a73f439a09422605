// What statements and intrinsics of a kernel program are made of: types, buffers, addresses, and
// the variables of index expressions.
#pragma once

#include "egret/expr.h"
#include "egret/index_map.h"
#include "egret/op.h"
#include "egret/scalar.h"

#include <optional>
#include <string>

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
/// loaded and left zero by every launch, so that only one launch at a time may use it. Problem: the
/// memory of one of the argument buffers, another one in each problem of a group.
enum class Space : std::uint8_t { Argument, Workspace, Worker, Shared, Counter, Problem };

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
  /// May be read before the launch before this one has ended, where the launch is told that the
  /// values are there. See IntrinsicId::GridDependencyWait.
  bool settled = false;
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

/// An element of a buffer; of an access of several lanes, the index may depend on the lane.
struct Address {
  int buffer = -1;
  Expr index;
  friend bool operator==(const Address&, const Address&) = default;
};

} // namespace egret::kernel

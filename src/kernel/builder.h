// Writes kernel programs: values in scopes, each computed once and as far outside of the loops as
// it can be.
#pragma once

#include "kernel/program.h"

#include <functional>
#include <span>
#include <unordered_map>

namespace egret::kernel {

/// Builds one KernelProgram from the outside in. A pure instruction asked for again gives the value
/// that is already there, and an instruction that does not depend on the innermost loops is put
/// before them. A load moves out of a loop only when the loop is known to run and nothing in the
/// program writes the buffer; out of an If it never moves.
class ProgramBuilder {
public:
  explicit ProgramBuilder(std::string name);

  /// Buffers. Argument buffers must be declared first, in the order of the argument block.
  int argument(const std::string& name, DType dtype, const Expr& elements, std::int64_t alignment,
               bool written);
  int workspace(const std::string& name, DType dtype, const Expr& elements);
  int worker_memory(const std::string& name, DType dtype, const Expr& elements);
  /// Of a GPU's block, `elements` of them; u32 counters that are zero between launches.
  int shared(const std::string& name, DType dtype, std::int64_t elements,
             std::int64_t alignment = 16);
  int counter(const std::string& name, std::int64_t elements);
  /// Says that an output may take over the memory of `argument`.
  void mark_aliased(int argument) { program_.buffers.at(argument).aliased = true; }
  /// Says that an argument may be read before the launch before this one has ended.
  void mark_settled(int argument) { program_.buffers.at(argument).settled = true; }
  int add_scalar(DType dtype); ///< a by-value argument; gives its number

  /// Values.
  ValueId let(Inst inst);
  ValueId constant(const Scalar& value, int lanes = 1);
  ValueId scalar(int number);
  ValueId index(const Expr& e, DType dtype, int lanes);
  ValueId apply(Op op, DType result, std::vector<ValueId> args);
  /// exp of an f32 that is at most 0, for a sum that has a term of 1, by an approximation.
  ValueId exp_beside_one(ValueId v);
  ValueId fma(ValueId a, ValueId b, ValueId c);
  ValueId quick(Op op, ValueId x); ///< exp2 or recip: see inst::Apply
  ValueId quick_bf16(ValueId x);   ///< likewise, a cast
  ValueId cast(ValueId v, DType dtype);
  /// Neighbours of 16 bits in pairs, each a u32 with the first in the lower half.
  ValueId words(ValueId v);
  ValueId load(int buffer, const Expr& offset, int lanes, std::vector<Guard> mask = {},
               CachePolicy policy = CachePolicy::Default);
  ValueId test(std::vector<Guard> mask, int lanes);
  ValueId splat(ValueId v, int lanes); ///< `v` itself when it has that many lanes already
  ValueId extract(ValueId v, int lane);
  ValueId reduce_lanes(Monoid monoid, ValueId v);
  ValueId reduce_threads(Monoid monoid, ValueId v, int threads);
  ValueId scan_threads(Monoid monoid, ValueId v, int threads); ///< exclusive
  ValueId shuffle_xor(ValueId v, ValueId mask);                ///< of another lane
  ValueId shuffle(ValueId a, ValueId b, std::vector<int> lanes_from);
  DType buffer_dtype(int buffer) const { return program_.buffers[buffer].dtype; }
  const Type& type_of(ValueId v) const { return program_.values[v]; }
  const Inst& made_by(ValueId v) const { return made_by_[v]; }
  bool visible(ValueId v) const { return value_depth_[v] >= 0; }
  /// Whether a value is made once, before all loops.
  bool made_once(ValueId v) const { return value_depth_[v] == 0; }

  /// Mutable registers.
  VarId variable(Type type);
  void set(VarId variable, ValueId value);
  ValueId read(VarId variable);

  /// Effects and control.
  void store(int buffer, const Expr& offset, ValueId value, std::vector<Guard> mask = {},
             CachePolicy policy = CachePolicy::Default);
  void prefetch(int buffer, const Expr& offset);
  /// Loads of the buffer from here on are repeated, instead of reusing loaded values.
  void forget_loads(int buffer) { ++epoch_.at(buffer); }
  /// for var in [begin, end) by step. `extent`: an exclusive bound of the variable. The body gets
  /// the variable. Emits nothing when the loop provably does not run, and only the body, with
  /// `begin`, when it provably runs once and is not shared out among workers.
  void loop(const Expr& begin, const Expr& end, const Expr& step, const Expr& extent, Bind bind,
            const std::function<void(const Expr&)>& body);
  void when(std::vector<Guard> condition, const std::function<void()>& body);
  /// `body` where the condition holds, which must be able to hold and to fail, else `otherwise`.
  void either(std::vector<Guard> condition, const std::function<void()>& body,
              const std::function<void()>& otherwise);
  void barrier();

  // Of a GPU.
  /// A loop over the grid. With a counter of two elements, that is the queue of its iterations.
  void grid_loop(const Expr& end, const std::function<void(const Expr&)>& body, int counter = -1);
  /// Shared memory by which the loops of a block's roles go through one queue's iterations
  /// together. One thread prepares it, before all come to a barrier; so many subgroups follow.
  int relay(const std::string& name);
  void prepare_relay(int relay, int followers);
  /// The loop of one role: of the one thread that leads, or of subgroups that follow it.
  void relayed_loop(const Expr& end, int counter, int relay, bool leads,
                    const std::function<void(const Expr&)>& body);
  /// A barrier of all blocks by elements `place` and place + 1 of the counter.
  void grid_barrier(int counter, const Expr& place);
  /// `body` in the last of `arrivals` blocks that come here with this element of the counter.
  void last_arriver(int counter, const Expr& place, const Expr& arrivals,
                    const std::function<void()>& body);
  /// The same where only the last `threads` of each block come, which meet at barrier `number`.
  void last_arriver_of_group(int number, int threads, int counter, const Expr& place,
                             const Expr& arrivals, const std::function<void()>& body);

  // Intrinsics, by their rows (intrinsics.h).
  void atomic_combine(Monoid monoid, int buffer, const Expr& offset, ValueId value,
                      std::vector<Guard> mask = {});
  ValueId atomic_fetch_add(int buffer, const Expr& offset, ValueId value,
                           std::vector<Guard> mask = {});
  void publish_flag(int counter, const Expr& place);
  void wait_flags(int counter, const Expr& begin, const Expr& end,
                  const std::function<void()>& body);
  /// Word `word` is elements 2 * word and the next of a counter.
  void publish_word(int counter, const Expr& word, ValueId value);
  ValueId await_word(int counter, const Expr& word, std::vector<Guard> mask = {});
  void clear_flags(int counter, std::int64_t count, int arrivals);
  ValueId load_matrix(int buffer, const Expr& row, int matrices, bool transposed);
  ValueId matrix_multiply(DType element, ValueId a, ValueId b, ValueId c);
  void copy_async(int to, const Expr& place, int from, const Expr& offset, int lanes,
                  std::vector<Guard> mask = {}, bool swizzled = false);
  /// Eight neighbours of bf16.
  void store_swizzled(int to, const Expr& place, ValueId elements, std::vector<Guard> mask = {});
  void commit_copies();
  void subgroup_barrier();
  /// What element `place` of `counters` was when it was this lane's turn to count it up.
  ValueId count_in_order(int counters, int marks, const Expr& place, std::vector<Guard> mask);
  void wait_copies(int groups);
  void tile_zero(int tile);
  void tile_load(int tile, int buffer, const Expr& place, const Expr& stride);
  void tile_multiply(int sum, int left, int right);
  void tile_store(int tile, int buffer, const Expr& place, const Expr& stride);
  int tensor_map(TensorMap map); ///< gives its number
  void bulk_tensor_copy(int map, std::vector<Expr> at, int to, const Expr& place, int barriers,
                        const Expr& barrier);
  void bulk_copy(int to, const Expr& place, int from, const Expr& offset, std::int64_t elements,
                 int barriers, const Expr& barrier);
  void grid_dependency_wait(bool unless_settled);
  void launch_dependents();
  void mbarrier_init(int barriers, const Expr& place, int arrivals);
  void mbarrier_arrive(int barriers, const Expr& place, std::int64_t bytes = 0);
  void mbarrier_arrive_copies(int barriers, const Expr& place);
  void mbarrier_wait(int barriers, const Expr& place, ValueId parity);
  void copy_fence();
  void matrix_fence(std::vector<VarId> variables = {});
  /// A product of two matrices in shared memory, or of a fragment in registers and one.
  struct QueuedProduct {
    struct Side {
      Address at;
      bool transposed = false;
      int group = -1; ///< elements of a group of 64 rows or columns
    };
    DType element = DType::BF16;
    Side left, right;
    ValueId fragment = -1; ///< of the left side; -1: it is in memory
    std::vector<VarId> sums;
    std::vector<Guard> added; ///< where the product is added; elsewhere it replaces the sums
  };
  void matrix_multiply_async(const QueuedProduct& product);
  void matrix_commit();
  void matrix_wait(int groups, std::vector<VarId> variables = {});
  void reallocate_registers(int registers, bool raise);
  /// Any intrinsic that is a statement.
  void intrinsic(Intrinsic use);

  /// Changes with every loop or condition that is opened or closed: between two places with one
  /// number all code runs in a row.
  std::int64_t stretch() const { return stretch_; }

  /// The finished program, verified. `workers`: how many workers can be of use.
  KernelProgram finish(const Expr& workers);
  KernelProgram finish(Launch launch);

private:
  struct Scope {
    Block block;
    Expr variable; ///< of the loop, an axis; 0 for the outermost scope and for an If
    bool loads_may_leave = false;
    bool is_loop = false;
    std::vector<ValueId> made;
    std::unordered_multimap<std::uint64_t, ValueId> known;
  };
  int depth_of(const Expr& e) const;
  int depth_of(const Inst& inst) const;
  int add_buffer(Buffer buffer);
  void inside(Stmt statement, Scope scope, const std::function<void()>& body);
  For over_grid(const Expr& end);
  void open(For loop, bool runs, const std::function<void(const Expr&)>& body);
  void append(Stmt statement);
  void acquire(Intrinsic by, const std::function<void()>& body);
  void take_effect(const Intrinsic& use);
  void see_others(); ///< loads from here on see what other threads wrote
  void close(Scope& scope);

  KernelProgram program_;
  std::vector<Scope> scopes_;
  std::vector<int> value_depth_;    ///< by value: the scope it was made in; -1 when that is closed
  std::vector<Inst> made_by_;       ///< by value
  std::vector<std::int64_t> epoch_; ///< by buffer: stores so far
  std::vector<std::int64_t> load_epoch_; ///< by value: its buffer's epoch when loaded
  int loops_ = 0;
  std::int64_t stretch_ = 0;
};

/// The guards that can fail, each once.
std::vector<Guard> unproved(std::vector<Guard> mask);

/// Whether `e` mentions a lane variable.
bool depends_on_lane(const Expr& e);
bool depends_on_lane(const Guard& g);

} // namespace egret::kernel

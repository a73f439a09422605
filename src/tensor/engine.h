// From pending nodes to values: collects what some roots need, finds or compiles its program, runs
// it and makes leaves of its results.
#pragma once

#include "runtime/program.h"
#include "tensor/node.h"

#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace egret::detail {

/// Set in Node::place of a leaf met by a walk; the rest is its slot.
constexpr std::uint32_t kLeafBit = 0x80000000u;

/// Programs of more operations are run in pieces, so that the compiler's time stays in proportion.
constexpr std::size_t kMostOps = 8192;

/// The pending operations below some roots. Needs an EngineLock or engine_mutex() while it is made
/// and while its raw pointers are used; void where an EngineLock has missed something.
struct Walk {
  std::vector<Node*> order;             ///< operations, operands first
  std::vector<NodePtr> leaves;          ///< by input slot of the graph
  std::vector<NodePtr> outputs;         ///< operations whose values are wanted
  std::vector<std::uint64_t> signature; ///< describe(): equal for equal structures
  std::vector<std::int64_t> numbers;    ///< describe(): sizes and the like beside the structure
  /// Room for who looks at the references to each operation.
  std::vector<std::pair<const NodePtr*, long>> references;
  Node* busy = nullptr; ///< a node that another thread is computing; the rest is then void
  NodePtr transfer;     ///< a pending copy from another device; the rest is then void
  bool is_whole() const noexcept { return !busy && !transfer; }
  /// Empty again, with the memory that it has.
  void clear() noexcept;
};

/// A pending node that is another arrangement, or a part, of its operand's elements: nothing is
/// computed for it but where it is read.
bool is_view(const Node& node) noexcept;

enum class WalkOutputs : std::uint8_t {
  Roots,       ///< the roots that are operations
  RootsAndHeld ///< and every operation on the way that a user handle holds; of views their bases
};

/// `scope`: the one whose placeholders may be met; any other is Error(State) in the name of `who`.
/// Roots behind the first `asked` are on the way only: outputs if they are held.
Walk walk(std::span<const NodePtr> roots, WalkOutputs outputs, const Scope* scope, const char* who,
          std::size_t asked = std::numeric_limits<std::size_t>::max());

/// A walk that may get more roots.
class Walker {
public:
  /// `room`: its memory is used.
  Walker(const Scope* scope, const char* who, Walk room = {});
  /// Adds what is below them.
  void add(std::span<const NodePtr> roots);
  /// Sets the outputs: `asked`, whether or not they are held, and what is held if `held`.
  void list_outputs(std::span<const NodePtr> asked, bool held);
  /// So far; of what add() could not walk only what keeps it from being whole.
  Walk& walk() noexcept { return walk_; }

private:
  void visit(const NodePtr& root);
  void meet_leaf(Node& node);
  void stop(Node* busy, NodePtr transfer);

  struct Frame {
    Node* node;
    std::size_t next;
  };
  const Scope* const scope_;
  const char* const who_;
  const std::uint64_t epoch_;
  Walk walk_;
  bool stopped_ = false;
  std::vector<Frame> stack_;
};

/// The number of a traversal that begins, for Node::epoch: no other traversal has it.
std::uint64_t next_epoch() noexcept;

/// Waits for what keeps a walk from being whole, or makes the copy that does; the walk is void
/// then. `lock` is of engine_mutex(), and let go meanwhile.
void settle(std::unique_lock<EngineMutex>& lock, Walk& walk, const char* who);
/// The same when no other thread computes a value on the way any more, and copies from other
/// devices are there. `lock` is of engine_mutex(), and let go meanwhile.
Walk settled_walk(std::unique_lock<EngineMutex>& lock, std::span<const NodePtr> roots,
                  WalkOutputs outputs, const Scope* scope, const char* who);

/// What reading `roots` computes: what they need, and held values that depend on something which
/// would be computed on the way and forgotten, if that stays one program. What was looked at goes
/// to `dropped`, to be let go after engine_mutex(): its handles may have let it go meanwhile.
/// Roots behind the first `asked` as in walk(). `room` as Walker's.
Walk walk_to_read(std::span<const NodePtr> roots, const char* who, std::vector<NodePtr>& dropped,
                  std::size_t asked, Walk room = {});

/// The graph of a walk: inputs by leaf (numbers by value), outputs in order.
ir::Graph graph_of(const Walk& walk);
/// Tells call_sites where the operations of the walk were recorded, whose nodes `graph` has by the
/// walk's order, if somebody wants to know.
void note_sites(const ir::Graph& graph, const Walk& walk, std::span<const ir::NodeId> nodes);

/// Computes the values of `roots` and keeps them. `who` is for errors.
void evaluate(std::span<const NodePtr> roots, const char* who);
void evaluate(const NodePtr& root, const char* who);
/// Computes what is on the way to `roots` and held, roots among it.
void evaluate_held(std::span<const NodePtr> roots, const char* who);

/// The next `count` numbers of a generator whose counter is given: which is the first of them.
std::uint64_t take_numbers(Handle& counter, std::uint64_t count);

/// A value that this thread is going to compute: who reads it waits until it has landed or was
/// withdrawn.
NodePtr pending_node(DType dtype, Shape shape);
struct Landing {
  NodePtr node;
  runtime::StoragePtr value;
};
/// Gives pending nodes their values, all at once.
void land(std::vector<Landing> landings);
/// A pending node is `before` after all.
void withdraw(const NodePtr& pending, const NodePtr& before) noexcept;

/// The value of a leaf or of a node that evaluate() has computed. Numbers get memory of their own.
runtime::StoragePtr storage_of(const NodePtr& node);
/// Brings a value in memory to the device in use; it stays there.
void settle(const NodePtr& node);
/// The same for a run, on the device in use: memory, or bits of a number.
runtime::RunInput run_input(const NodePtr& node);

} // namespace egret::detail

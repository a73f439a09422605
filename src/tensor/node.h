// What lazy tensors are made of: nodes that record operations, handles that users hold, and the
// scopes (a traced function, an explicit graph) that nodes belong to.
#pragma once

#include "egret/ir.h"
#include "egret/tensor.h"
#include "runtime/storage.h"
#include "support/block_pool.h"
#include "support/spin_lock.h"
#include "tensor/engine_lock.h"
#include "tensor/forms.h"
#include "tensor/placement.h"
#include "tensor/queue.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace egret::detail {

/// Where the gradient of a leaf is summed. It outlives the leaf's values: an in-place update gives
/// the handle another node with the same slot.
struct GradSlot : std::enable_shared_from_this<GradSlot> {
  std::mutex mutex;
  std::shared_ptr<Handle> gradient; ///< null: none
};

/// What a traced function sees in place of a handle from outside. The handle itself does not
/// change, so that other threads see nothing of the trace.
struct Inside {
  NodePtr placeholder;            ///< the value at the start of a call
  NodePtr now;                    ///< the value as the function has changed it so far
  std::shared_ptr<GradSlot> slot; ///< as Handle::slot()
  void set(NodePtr node);
};

/// A region of recording whose placeholders have no value of their own.
class Scope : public std::enable_shared_from_this<Scope> {
public:
  enum class Kind : std::uint8_t { Trace, Graph };
  Scope(Kind kind, std::string name) : kind(kind), name(std::move(name)) {}
  virtual ~Scope() = default;
  /// A handle from outside met while the scope's thread records: gives the node to record with.
  virtual NodePtr capture(const std::shared_ptr<Handle>& handle, NodePtr node) = 0;
  /// What stands for a handle from outside that was met before; null for all others. Valid until
  /// the next handle is met.
  virtual Inside* inside(const Handle& handle) {
    (void)handle;
    return nullptr;
  }
  /// The scope's thread reads or copies a Tensor object.
  virtual void reached(const Tensor& object) { (void)object; }
  /// It is about to bind a Tensor object to another handle.
  virtual void rebinding(Tensor& object) { (void)object; }
  /// A node with the value of one of the scope's nodes; null when it has none.
  virtual NodePtr value_of(const Node& node) {
    (void)node;
    return nullptr;
  }
  /// The gradient of a leaf while the scope's thread records. Needs slot.mutex.
  virtual std::shared_ptr<Handle> read_gradient(GradSlot& slot) { return slot.gradient; }
  virtual void write_gradient(GradSlot& slot, std::shared_ptr<Handle> gradient) {
    slot.gradient = std::move(gradient);
  }

  const Kind kind;
  const std::string name;
};

/// Random numbers that are taken from a generator: a Graph takes others at every execute().
struct Draw {
  std::shared_ptr<Handle> counter; ///< of the generator
  Expr count;                      ///< how many
  bool taken = true; ///< the generator has moved on by as many when they were recorded
};

/// The operands of a node: no operation has more than three.
class Inputs {
public:
  static constexpr std::size_t kMost = 3;
  Inputs() noexcept = default;
  Inputs(NodePtr a) noexcept : list_{std::move(a)}, size_(1) {}
  Inputs(NodePtr a, NodePtr b) noexcept : list_{std::move(a), std::move(b)}, size_(2) {}
  Inputs(NodePtr a, NodePtr b, NodePtr c) noexcept
      : list_{std::move(a), std::move(b), std::move(c)}, size_(3) {}
  Inputs(Inputs&& other) noexcept
      : list_(std::move(other.list_)), size_(std::exchange(other.size_, 0)) {}
  Inputs& operator=(Inputs&& other) noexcept {
    list_ = std::move(other.list_);
    size_ = std::exchange(other.size_, 0);
    return *this;
  }
  void push_back(NodePtr node);
  void clear() noexcept {
    for (NodePtr& node : *this)
      node.reset();
    size_ = 0;
  }
  std::size_t size() const noexcept { return size_; }
  bool empty() const noexcept { return size_ == 0; }
  NodePtr* begin() noexcept { return list_.data(); }
  NodePtr* end() noexcept { return list_.data() + size_; }
  const NodePtr* begin() const noexcept { return list_.data(); }
  const NodePtr* end() const noexcept { return list_.data() + size_; }
  NodePtr& operator[](std::size_t i) noexcept { return list_[i]; }
  const NodePtr& operator[](std::size_t i) const noexcept { return list_[i]; }

private:
  std::array<NodePtr, kMost> list_;
  std::size_t size_ = 0;
};

/// How many handles refer to a value, and how many of them hold it: all but temporaries' (Handle).
class HandleCount {
public:
  void add(int handles, int claims) noexcept {
    both_.fetch_add(handles + claims * kClaim, std::memory_order_relaxed);
  }
  int handles() const noexcept {
    return static_cast<int>(both_.load(std::memory_order_relaxed) % kClaim);
  }
  int claims() const noexcept {
    return static_cast<int>(both_.load(std::memory_order_relaxed) / kClaim);
  }

private:
  static constexpr std::int64_t kClaim = std::int64_t{1} << 32;
  std::atomic<std::int64_t> both_{0};
};

/// One value: an operation on other values, or a leaf. form, inputs and scope never change, but
/// that materialization drops the inputs of nodes that no gradient needs. What is marked (lock)
/// belongs to the thread that holds its home stream or all nodes (engine_lock.h).
struct Node : std::enable_shared_from_this<Node> {
  // What every walk looks at, close together.
  enum class Kind : std::uint8_t { Op, Data, Number, Placeholder } kind = Kind::Op;
  bool in_flight = false; ///< (lock) some thread is computing it
  bool transfer = false;  ///< a copy of its operand, which is computed where that one is
  bool by_value = false;  ///< a placeholder of rank 0 that is passed to kernels by value
  bool grad_leaf =
      false; ///< (lock) a leaf that requires a gradient, whether or not a handle is left
  std::uint32_t place = 0;     ///< (lock) its number in the traversal that met it last
  std::uint64_t epoch = 0;     ///< (lock) of that traversal
  std::uint32_t site = 0;      ///< call_sites::Id of where the program recorded it; 0: unknown
  runtime::StoragePtr storage; ///< (lock) the value, row-major; null while pending
  HandleCount handles;         ///< user handles that refer to this value
  std::atomic<bool> needs_grad{false};
  std::atomic<bool> spent{false}; ///< backward() has let its recipe go
  Inputs inputs;                  ///< (lock) once the node is shared
  Stream* stream = nullptr;       ///< of the thread that recorded it; null in a scope
  std::atomic<Stream*> home;      ///< whose holder may use what is marked (lock)
  std::int64_t queued = 0;        ///< (lock) what it counts there: 1, or bytes of data
  const FormPtr shared_form;      ///< never null
  const ir::Node& form;           ///< that one
  std::shared_ptr<Scope> scope;   ///< null for plain lazy tensors
  /// (lock) Of a leaf that requires a gradient. The handle owns it: the gradient's recipe refers to
  /// the leaf, which must not own the gradient in turn.
  std::weak_ptr<GradSlot> slot;
  Scalar number{};                  ///< value of a number
  std::shared_ptr<const Draw> draw; ///< of a number at which a generator's numbers begin
  /// (lock) What its evaluation threw, where what it was to be computed from is gone.
  std::exception_ptr failure;

  /// At home in this thread's stream.
  explicit Node(const FormPtr& form);
  Node(const FormPtr& form, Inputs&& inputs) noexcept;
  Node(const Node&) = delete;
  ~Node(); ///< iterative: a chain of any length may go at once

  /// Only changes while one thread has the node, and where it becomes a leaf.
  Placement placement() const noexcept { return placement_.load(std::memory_order_relaxed); }
  void place_at(Placement to) noexcept { placement_.store(to, std::memory_order_relaxed); }

  bool is_leaf_value() const noexcept { return kind != Kind::Op || storage != nullptr; }
  /// It waits for a value no longer, or is about to go.
  void leave_queue() noexcept {
    if (queued != 0)
      (kind == Kind::Op ? stream->operations : stream->bytes)
          .add(-std::exchange(queued, 0), stream == own_stream);
  }

private:
  std::atomic<Placement> placement_{Placement{}};
};

inline bool within_reach(const Node& node) noexcept {
  if (!held_stream || node.home.load(std::memory_order_relaxed) == held_stream) [[likely]]
    return true;
  held_stream->missed = true;
  return false;
}

/// What copies of a Tensor share. It holds its value, which is then stored with what is computed
/// beside it, except while a temporary that was passed on is the only Tensor that has the handle.
class Handle {
public:
  explicit Handle(NodePtr node);
  ~Handle();
  Handle(const Handle&) = delete;
  NodePtr node() const;
  NodePtr node_at(const Stream& home) const; ///< null if it is at home elsewhere
  void set(NodePtr node);                    ///< of equal shape and dtype
  NodePtr exchange(NodePtr node);            ///< likewise; gives the old one
  /// exchange() with `node` if the value is still `expected`; whether it was.
  bool replace(const NodePtr& expected, NodePtr& node);
  /// Keeps a slot alive for as long as the handle lives.
  void own(std::shared_ptr<GradSlot> slot);
  std::shared_ptr<GradSlot> slot() const; ///< the one that it keeps; null: none

  /// Whether the value is held.
  bool holds() const;
  /// `object`, the only Tensor that has the handle, is a temporary that was passed on.
  void let_go(const Tensor* object) noexcept;
  /// A Tensor beside the temporary has the handle now.
  void hold() noexcept;
  /// The Tensor `object`, one of `objects` that have the handle, is about to leave it. Only called
  /// while there is a temporary.
  void leave(const Tensor* object, long objects) noexcept;
  bool has_temporary() const noexcept {
    return temporary_.load(std::memory_order_relaxed) != nullptr;
  }

private:
  const FormPtr form_; ///< of its first value; all have its shape and dtype

public:
  const Shape& shape;
  const DType dtype;
  std::atomic<bool> retired{false}; ///< another tensor stands for it (retire())
  std::atomic<bool> watched{false}; ///< Tensor objects that hold it tell owners.h when they change
  std::uint64_t mark = 0;           ///< (calls_mutex) the call that met it last

private:
  friend void for_each_handle(const std::function<void(const Handle&)>& visit);
  friend void visit_handles(HandleList& list, const std::function<void(const Handle&)>& visit);
  void tell_home(const Node& node) const noexcept;  // Stream::abroad
  void refer(Node& node, int count) const noexcept; // needs mutex_
  void set_holds(bool holds) noexcept;              // needs mutex_
  mutable SpinLock mutex_;
  NodePtr node_;
  bool holds_ = true;
  std::atomic<const Tensor*> temporary_{nullptr}; // the one that was passed on
  std::shared_ptr<GradSlot> slot_;
  Stream& stream_;                               ///< in whose list it is
  Handle *before_ = nullptr, *behind_ = nullptr; ///< in the list
};

/// Visits all handles of all threads. `visit` must not make or drop handles.
void for_each_handle(const std::function<void(const Handle&)>& visit);
/// Of one list.
void visit_handles(HandleList& list, const std::function<void(const Handle&)>& visit);

/// The way from Tensors to nodes and back.
struct Access {
  static const std::shared_ptr<Handle>& handle(const Tensor& a) noexcept { return a.handle_; }
  static Tensor wrap(NodePtr node) {
    return Tensor(std::allocate_shared<Handle>(BlockAllocator<Handle>(), std::move(node)));
  }
  static Tensor share(std::shared_ptr<Handle> handle) { return Tensor(std::move(handle)); }
  /// Swaps the handle of a Tensor object, and nothing else.
  static void bind(Tensor& a, std::shared_ptr<Handle>& handle) noexcept { a.handle_.swap(handle); }
  /// A Tensor object is about to give up its handle.
  static void leaving(const Tensor& a) noexcept;
  /// Gives a Tensor object another handle, and tells who has to know.
  static void rebind(Tensor& a, std::shared_ptr<Handle> handle) noexcept;
  /// The node as it is, within a scope the scope's. Throws Error(State) naming `who` for an empty
  /// tensor.
  static NodePtr raw(const Tensor& a, const char* who);
  static const Handle& held(const Tensor& a, const char* who);
  static const Shape& shape(const Tensor& a, const char* who);
  /// The node to read: for tensors of a graph that has run, one with the value.
  static NodePtr readable(const Tensor& a, const char* who);
  /// The node to record with: within a scope, what stands for a handle from outside.
  static NodePtr node(const Tensor& a, const char* who);
  /// Replaces the value, within a scope the scope's.
  static void put(const Tensor& a, NodePtr node);
  /// put() if the value is still `expected`, as node() gave it; whether it was.
  static bool replace(const Tensor& a, const NodePtr& expected, NodePtr node);
  /// The slot of a leaf that requires a gradient; null for every other value, a clone of the leaf
  /// among them.
  static std::shared_ptr<GradSlot> slot(const Tensor& a, const char* who);
  /// Makes it the handle's that slot() asks for; null: none.
  static void own(const Tensor& a, std::shared_ptr<GradSlot> slot);
};

/// Handle::replace(), between the moments at which calls of compiled functions take their values:
/// such a call sees all updates of another thread up to one, and none behind it.
bool replace_outside(Handle& handle, const NodePtr& expected, NodePtr node);

[[gnu::tls_model("initial-exec")]] inline constinit thread_local Scope* scope_of_thread = nullptr;
/// The scope in which this thread records; null most of the time.
inline Scope*& current_scope() noexcept {
  return scope_of_thread;
}
/// Sets it for as long as the object lives.
class ScopeGuard {
public:
  explicit ScopeGuard(Scope* scope) : before_(current_scope()) { current_scope() = scope; }
  ~ScopeGuard() { current_scope() = before_; }
  ScopeGuard(const ScopeGuard&) = delete;

private:
  Scope* before_;
};

/// Records an operation; shape and dtype are inferred and checked by the rules of the op table.
NodePtr record(Op op, Inputs&& inputs);
NodePtr record(Op op, Inputs&& inputs, const ir::Attrs& attrs);
/// Records one whose shape and dtype are known.
NodePtr record_known(Op op, DType dtype, const Shape& shape, Inputs&& inputs,
                     const ir::Attrs& attrs);
/// Records one whose form is known.
NodePtr record_form(const FormPtr& form, Inputs&& inputs);
/// A rank-0 leaf that is passed to kernels by value.
NodePtr number_node(Scalar value);
/// A leaf with a value in memory.
NodePtr data_node(DType dtype, Shape shape, runtime::StoragePtr storage);
NodePtr placeholder_node(std::shared_ptr<Scope> scope, DType dtype, Shape shape, std::string name);
/// Another node for the same value, without gradient.
NodePtr alias_node(const NodePtr& node);

/// Makes a node a leaf that requires a gradient, summed in `slot`.
void make_grad_leaf(Node& node, const std::shared_ptr<GradSlot>& slot);
/// The slot of a leaf; null when it is none, or when no handle is left to see its gradient.
std::shared_ptr<GradSlot> slot_of(const NodePtr& node);

/// shape as integers; throws Error(Shape) naming `who` when a dim is symbolic.
std::vector<std::int64_t> concrete(const Shape& shape, const char* who);

} // namespace egret::detail

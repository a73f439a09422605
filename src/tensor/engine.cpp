#include "tensor/engine.h"

#include "runtime/count.h"
#include "runtime/runtime.h"
#include "support/call_sites.h"
#include "support/fail.h"
#include "tensor/holders.h"
#include "tensor/known_plans.h"
#include "tensor/queue.h"

#include <limits>
#include <optional>
#include <utility>

namespace egret::detail {
namespace {

[[noreturn]] void refuse_placeholder(const Node& node, const char* who) {
  if (node.scope->kind == Scope::Kind::Graph)
    fail(ErrorKind::State,
         "{}: the value depends on input `{}` of {}, which runs when told to: mark the tensor with "
         "retrieve(), compile() the graph and execute() it",
         who, node.form.attrs.name, node.scope->name);
  fail(ErrorKind::State,
       "{}: the value is not known while {} is traced, or after: it stands for what every call "
       "computes anew (return it, or assign it to a tensor that lives outside; where() chooses "
       "by a value)",
       who, node.scope->name);
}

// A gradient may need the recipe of a node with a value: none goes beyond a leaf, such as what an
// optimizer has put in a parameter's place.
bool keeps_recipe(const Node& node) {
  return node.needs_grad.load(std::memory_order_relaxed) && !node.spent.load() && !node.grad_leaf;
}

// Moves the operands of a node with a value to `dropped`, unless a gradient may need them.
void drop_recipe(Node& node, std::vector<NodePtr>& dropped) {
  if (keeps_recipe(node))
    return;
  for (NodePtr& input : node.inputs)
    dropped.push_back(std::move(input));
  node.inputs.clear();
}

// A reshape or marker of a value in memory is that memory.
void adopt(Node& node, std::vector<NodePtr>& dropped) {
  if (!within_reach(node) || node.is_leaf_value() || node.in_flight ||
      (node.form.op != Op::Reshape && node.form.op != Op::StopGradient) ||
      !within_reach(*node.inputs[0]) || !node.inputs[0]->storage ||
      node.placement() != node.inputs[0]->placement())
    return;
  node.storage = node.inputs[0]->storage;
  node.leave_queue();
  drop_recipe(node, dropped);
}

// A pending node that cannot be computed any more.
void fail_for_good(Node& node, const std::exception_ptr& failure) {
  node.failure = failure;
  node.leave_queue();
}

double bytes_of(const Node& node) {
  double bytes = static_cast<double>(size_of(node.form.dtype));
  for (const Expr& dim : node.form.shape)
    bytes *= static_cast<double>(dim.is_constant() ? dim.value() : dim.upper());
  return bytes;
}

// What is stored for a held operation that a walk computes. A view remains a recipe: what is stored
// is the smallest of its bases on the way to the first one that is no view, and nothing where that
// one is in memory or made of nothing (a constant, the numbers 0, 1, ...). Null: nothing.
Node* stored_for(Node& held) {
  Node* best = &held;
  Node* at = &held;
  while (is_view(*at)) {
    at = at->inputs[0].get();
    if (bytes_of(*at) <= bytes_of(*best))
      best = at;
  }
  return at == &held || (!at->is_leaf_value() && !at->inputs.empty()) ? best : nullptr;
}

} // namespace

std::uint64_t next_epoch() noexcept {
  return this_stream().next_epoch();
}

void Walk::clear() noexcept {
  order.clear();
  leaves.clear();
  outputs.clear();
  signature.clear();
  numbers.clear();
  references.clear();
  busy = nullptr;
  transfer = nullptr;
}

Walker::Walker(const Scope* scope, const char* who, Walk room)
    : scope_(scope), who_(who), epoch_(next_epoch()), walk_(std::move(room)) {}

void Walker::meet_leaf(Node& node) {
  if (node.kind == Node::Kind::Placeholder && node.scope.get() != scope_)
    refuse_placeholder(node, who_);
  node.epoch = epoch_;
  node.place = static_cast<std::uint32_t>(walk_.leaves.size()) | kLeafBit;
  walk_.leaves.push_back(node.shared_from_this());
}

// Only what the walk waits for, nothing where it met what is out of reach: a leaf that others let
// go meanwhile would go with it, under the lock, and may tell its owner.
void Walker::stop(Node* busy, NodePtr transfer) {
  walk_.clear();
  walk_.busy = busy;
  walk_.transfer = std::move(transfer);
  stopped_ = true;
}

void Walker::visit(const NodePtr& root) {
  if (!within_reach(*root))
    return stop(nullptr, nullptr);
  if (root->epoch == epoch_)
    return;
  stack_.clear();
  stack_.push_back({root.get(), 0});
  while (!stack_.empty()) {
    Node& node = *stack_.back().node;
    if (node.epoch == epoch_) { // met again by another way while it waited
      stack_.pop_back();
      continue;
    }
    if (node.in_flight)
      return stop(&node, nullptr);
    if (node.failure) { // what is made of it is lost, too
      for (const Frame& frame : stack_)
        fail_for_good(*frame.node, node.failure);
      std::rethrow_exception(node.failure);
    }
    if (node.is_leaf_value()) {
      meet_leaf(node);
      stack_.pop_back();
      continue;
    }
    if (node.transfer)
      return stop(nullptr, node.shared_from_this());
    std::size_t& next = stack_.back().next;
    Node* pending = nullptr;
    for (; next < node.inputs.size() && !pending; ++next) {
      Node& input = *node.inputs[next];
      if (!within_reach(input))
        return stop(nullptr, nullptr);
      if (input.epoch != epoch_)
        pending = &input;
    }
    if (pending) {
      stack_.push_back({pending, 0});
      continue;
    }
    stack_.pop_back();
    node.epoch = epoch_;
    node.place = static_cast<std::uint32_t>(walk_.order.size());
    walk_.order.push_back(&node);
  }
}

void Walker::add(std::span<const NodePtr> roots) {
  for (const NodePtr& root : roots)
    if (!stopped_)
      visit(root);
}

void Walker::list_outputs(std::span<const NodePtr> asked, bool held) {
  if (stopped_)
    return;
  walk_.outputs.clear();
  std::vector<bool> listed(walk_.order.size());
  const auto list = [&](Node& node) {
    if (listed[node.place])
      return;
    listed[node.place] = true;
    walk_.outputs.push_back(node.shared_from_this());
  };
  if (held)
    for (Node* node : walk_.order)
      if (node->handles.claims() > 0)
        if (Node* stored = stored_for(*node))
          list(*stored);
  for (const NodePtr& root : asked)
    if (!root->is_leaf_value())
      list(*root);
}

Walk walk(std::span<const NodePtr> roots, WalkOutputs outputs, const Scope* scope, const char* who,
          std::size_t asked) {
  Walker walker(scope, who);
  walker.add(roots);
  walker.list_outputs(roots.first(std::min(asked, roots.size())),
                      outputs == WalkOutputs::RootsAndHeld);
  return std::move(walker.walk());
}

bool is_view(const Node& node) noexcept {
  return !node.is_leaf_value() && !node.transfer && is_movement(node.form.op) &&
         node.form.op != Op::Pad;
}

void settle(std::unique_lock<EngineMutex>& lock, Walk& walk, const char* who) {
  if (walk.busy)
    return wait_for_others(lock);
  lock.unlock();
  evaluate(walk.transfer, who);
  walk.transfer = nullptr;
  lock.lock();
}

Walk settled_walk(std::unique_lock<EngineMutex>& lock, std::span<const NodePtr> roots,
                  WalkOutputs outputs, const Scope* scope, const char* who) {
  for (;;) {
    Walk w = walk(roots, outputs, scope, who);
    if (w.is_whole())
      return w;
    settle(lock, w, who);
  }
}

ir::Graph graph_of(const Walk& w) {
  ir::Graph graph;
  std::vector<ir::NodeId> leaves, ops;
  leaves.reserve(w.leaves.size());
  ops.reserve(w.order.size());
  for (std::size_t slot = 0; slot < w.leaves.size(); ++slot) {
    const Node& leaf = *w.leaves[slot];
    const bool by_value = leaf.kind == Node::Kind::Number || leaf.by_value;
    std::string name = leaf.form.attrs.name;
    if (name.empty())
      name = fmt::format("{}{}", by_value ? "s" : "x", slot);
    leaves.push_back(graph.input(std::move(name), leaf.form.dtype, leaf.form.shape, by_value));
  }
  std::vector<ir::NodeId> inputs;
  for (const Node* node : w.order) {
    inputs.clear();
    for (const NodePtr& input : node->inputs)
      inputs.push_back(input->place & kLeafBit ? leaves[input->place & ~kLeafBit]
                                               : ops[input->place]);
    ops.push_back(graph.add(node->form.op, inputs, node->form.attrs));
    ensure(graph[ops.back()].shape == node->form.shape &&
               graph[ops.back()].dtype == node->form.dtype,
           "{} was recorded as {}{}", info_of(node->form.op).name, name_of(node->form.dtype),
           to_string(node->form.shape));
  }
  for (const NodePtr& output : w.outputs)
    graph.outputs.push_back(ops[output->place]);
  note_sites(graph, w, ops);
  return graph;
}

void note_sites(const ir::Graph& graph, const Walk& walk, std::span<const ir::NodeId> nodes) {
  if (!call_sites::wanted())
    return;
  std::vector<call_sites::Id> sites(graph.size());
  for (std::size_t i = 0; i < nodes.size(); ++i)
    if (call_sites::Id& site = sites[nodes[i]]; site == 0) // of equal nodes the first
      site = walk.order[i]->site;
  call_sites::note(ir::canonical_hash(graph), std::move(sites));
}

namespace {

/// Memory that values have left, to be let go after the lock: it may be somebody else's, who is
/// called then and may wait for locks of his own.
using Left = std::vector<runtime::StoragePtr>;

// The value in memory that the device in use can work with, where it stays from now on.
runtime::StoragePtr storage_here_locked(Node& node, Left& left) {
  if (node.storage) {
    runtime::StoragePtr here = node.storage;
    runtime::Runtime::instance().bring_here(here);
    if (here != node.storage)
      left.push_back(std::exchange(node.storage, std::move(here)));
  }
  return node.storage;
}

runtime::RunInput run_input_locked(Node& node, Left& left) {
  runtime::RunInput input;
  input.shape = &node.form.shape;
  if (node.kind == Node::Kind::Number)
    input.bits = node.number.bits;
  else
    input.storage = storage_here_locked(node, left);
  return input;
}

// Leaves of a walk whose values nothing needs any more once its outputs have theirs, such as a
// parameter before its update: a run may write over them.
class Given {
public:
  Given() = default;
  /// Under the lock of the walk. `inputs`: of the leaves; each that is given says so.
  Given(const Walk& w, std::vector<runtime::RunInput>& inputs) {
    const std::vector<int> ending = references_that_end(w);
    for (std::size_t slot = 0; slot < w.leaves.size(); ++slot) {
      const NodePtr& leaf = w.leaves[slot];
      if (leaf->storage && ends(leaf, ending[slot]) && is_sole(inputs[slot].storage)) {
        inputs[slot].given = true;
        leaves_.push_back({leaf, inputs[slot].storage->version()});
      }
    }
  }

  /// Whether all are within reach.
  bool within_reach() const {
    return std::all_of(leaves_.begin(), leaves_.end(),
                       [](const Leaf& leaf) { return detail::within_reach(*leaf.node); });
  }
  /// Where they are. Who comes to read what was overwritten all the same gets an error, not other
  /// numbers. Whether anything was.
  bool forget_overwritten() const {
    bool any = false;
    for (const auto& [leaf, version] : leaves_)
      if (leaf->storage && leaf->storage->version() != version) {
        leaf->storage = nullptr; // the run and its result have it
        leaf->failure = overwritten();
        any = true;
      }
    return any;
  }

private:
  struct Leaf {
    NodePtr node;
    std::uint64_t version;
  };

  // By leaf: how many references to it end when the outputs have values. An output lets its recipe
  // go, and so does every operation that only such recipes refer to.
  static std::vector<int> references_that_end(const Walk& w) {
    std::vector<int> of_operations(w.order.size(), 0), of_leaves(w.leaves.size(), 0);
    std::vector<bool> is_output(w.order.size(), false);
    for (const NodePtr& output : w.outputs)
      is_output[output->place] = true;
    for (std::size_t i = w.order.size(); i-- > 0;) {
      const Node& node = *w.order[i];
      if (is_output[i] ? keeps_recipe(node) : node.weak_from_this().use_count() != of_operations[i])
        continue;
      for (const NodePtr& input : node.inputs)
        ++(input->place & kLeafBit ? of_leaves[input->place & ~kLeafBit]
                                   : of_operations[input->place]);
    }
    return of_leaves;
  }
  static const std::exception_ptr& overwritten() {
    static const auto* const error = new std::exception_ptr(
        std::make_exception_ptr(InternalError("a value is read that a result was written over")));
    return *error;
  }
  // The walk has one reference of its own.
  static bool ends(const NodePtr& leaf, long ending) { return leaf.use_count() == ending + 1; }
  // `storage` is the second reference beside the leaf's.
  static bool is_sole(const runtime::StoragePtr& storage) {
    if (!storage || storage.use_count() != 2 || storage->borrowed())
      return false;
    runtime::StoragePtr last = storage; // its release orders what others read of it before the run
    last = nullptr;
    return true;
  }

  std::vector<Leaf> leaves_;
};

// Another thread may have taken them to its stream since they were looked up.
void reach(EngineLock& lock, const std::vector<NodePtr>& outputs, const Given& given) {
  if (!given.within_reach() ||
      !std::all_of(outputs.begin(), outputs.end(),
                   [](const NodePtr& node) { return within_reach(*node); }))
    lock.widen();
}

// Sets values, lets recipes go that no gradient needs, and wakes who waits.
void publish(const std::vector<NodePtr>& outputs, std::vector<runtime::StoragePtr> values,
             const Given& given = {}) {
  std::vector<NodePtr> dropped; // let go after the lock
  {
    EngineLock lock;
    reach(lock, outputs, given);
    given.forget_overwritten();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      Node& node = *outputs[i];
      node.in_flight = false;
      node.storage = std::move(values[i]);
      node.leave_queue();
      drop_recipe(node, dropped);
    }
  }
  tell_others();
}

// They can be computed again, unless values that they are made of are gone.
void withdraw(const std::vector<NodePtr>& outputs, const Given& given = {}) {
  {
    EngineLock lock;
    reach(lock, outputs, given);
    const std::exception_ptr failure =
        given.forget_overwritten() ? std::current_exception() : nullptr;
    for (const NodePtr& node : outputs) {
      node->in_flight = false;
      if (failure)
        fail_for_good(*node, failure);
    }
  }
  tell_others();
}

} // namespace

namespace {

// A first piece of a walk that is too long: the values that cross from its first operations to the
// others. The place of the cut, in the second half of what is allowed, is where they have the
// fewest bytes: not between the product and the sum of a matmul.
std::vector<NodePtr> first_piece(const Walk& w) {
  std::vector<std::size_t> last_use(w.order.size());
  for (std::size_t i = 0; i < w.order.size(); ++i)
    for (const NodePtr& input : w.order[i]->inputs)
      if (!(input->place & kLeafBit))
        last_use[input->place] = i;
  for (const NodePtr& output : w.outputs)
    last_use[output->place] = w.order.size();
  std::vector<double> change(w.order.size() +
                             2); // of the bytes that cross a cut before operation i
  for (std::size_t i = 0; i < w.order.size(); ++i) {
    change[i + 1] += bytes_of(*w.order[i]);
    change[last_use[i] + 1] -= bytes_of(*w.order[i]);
  }
  std::size_t cut = kMostOps;
  double crossing = 0, fewest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i <= kMostOps; ++i) {
    crossing += change[i];
    if (i >= kMostOps / 2 && crossing <= fewest) {
      fewest = crossing;
      cut = i;
    }
  }
  std::vector<NodePtr> piece;
  for (std::size_t i = 0; i < cut; ++i)
    if (last_use[i] >= cut)
      piece.push_back(w.order[i]->shared_from_this());
  return piece;
}

// What is left to do for some roots: nothing, a copy from another device first, or more of them.
struct Rest {
  bool any = false;
  NodePtr transfer;
  bool ran = true; ///< a program
};

// What is evaluated together is at home together: the next time no other thread is in the way.
// Needs engine_mutex().
void take_home(const Walk& w) {
  Stream& stream = this_stream();
  for (Node* node : w.order)
    node->home.store(&stream, std::memory_order_relaxed);
  for (const NodePtr& leaf : w.leaves)
    leaf->home.store(&stream, std::memory_order_relaxed);
  stream.abroad.store(true, std::memory_order_relaxed);
}

// A walk in the memory of the one that this thread made last, to which it is given back.
struct RoomForWalk {
  RoomForWalk() {
    if (const auto& spare = this_stream().walk)
      walk = std::move(*spare);
  }
  ~RoomForWalk() {
    if (walk.order.capacity() > 2 * kMostOps) // more than a steady loop needs
      return;
    walk.clear();
    auto& spare = this_stream().walk;
    if (!spare)
      spare = std::make_shared<Walk>();
    *spare = std::move(walk);
  }
  RoomForWalk(const RoomForWalk&) = delete;
  Walk walk;
};

// One program's worth, on this thread's device: everything below `roots` that is pending, or else
// the first piece of it. Roots behind the first `asked` as in walk().
Rest evaluate_once(std::span<const NodePtr> roots, const char* who, std::size_t asked) {
  RoomForWalk room;
  Walk& w = room.walk;
  KnownPlans::Found found;
  std::vector<runtime::RunInput> inputs;
  std::vector<NodePtr> dropped; // let go after the lock
  Left left;
  Given given;
  std::vector<NodePtr> piece, stored;
  {
    EngineLock lock;
    if (this_stream().crossed.exchange(false, std::memory_order_relaxed))
      lock.widen();
    for (;;) {
      for (const NodePtr& root : roots)
        adopt(*root, dropped);
      w.clear();
      w = walk_to_read(roots, who, dropped, asked, std::move(w));
      if (lock.missed()) {
        w.clear();
        lock.widen();
        continue;
      }
      if (w.busy) {
        lock.wait_for_others();
        continue;
      }
      if (w.transfer)
        return {true, std::move(w.transfer), false};
      if (w.outputs.empty())
        return {false, nullptr, false};
      if (w.order.size() <= kMostOps)
        break;
      if (asked == 0) { // without what leads to nothing that is stored, such as held views
        stored = std::move(w.outputs);
        roots = stored;
        asked = stored.size();
        continue;
      }
      piece = first_piece(w);
      roots = piece;
      asked = piece.size();
    }
    describe(w);
    found = known_plans().find(w);
    inputs.reserve(w.leaves.size());
    for (const NodePtr& leaf : w.leaves)
      inputs.push_back(run_input_locked(*leaf, left));
    if (found.exploration || found.plan.overwrites)
      given = Given(w, inputs);
    for (const NodePtr& output : w.outputs)
      output->in_flight = true;
    if (lock.has_all())
      take_home(w);
    w.order.clear(); // raw pointers end with the lock
  }
  const QueueHold hold; // what hooks record is for later: our outputs are in flight
  try {
    if (found.plan) {
      runtime::count().plan_hits.add(1);
      runtime::count().plan_symbolic_hits.add(found.plan.relative ? 1 : 0);
    }
    const KnownPlan plan = explored(w, std::move(found));
    std::vector<Shape> sizes; // what inputs point to
    if (plan.relative)
      add_inputs(*plan.relative, w.numbers, sizes, inputs);
    publish(w.outputs, plan.program->run(inputs), given);
  } catch (const Error& error) {
    withdraw(w.outputs, given);
    rethrow_with_holders(error);
  } catch (...) {
    withdraw(w.outputs, given);
    throw;
  }
  return {!piece.empty(), nullptr, true};
}

// Makes the copy that a transfer is if its operand has a value, and else gives the operand, which
// is to be computed first.
NodePtr copied_or_operand(const NodePtr& transfer) {
  runtime::StoragePtr value;
  {
    std::unique_lock lock(engine_mutex());
    while (transfer->in_flight)
      wait_for_others(lock);
    if (transfer->is_leaf_value())
      return nullptr;
    if (!transfer->inputs[0]->storage)
      return transfer->inputs[0];
    value = transfer->inputs[0]->storage;
    transfer->in_flight = true;
  }
  try {
    const runtime::ThreadDevice device(device_for(transfer->placement()));
    naming_holders([&] { runtime::Runtime::instance().bring_here(value); });
    publish({transfer}, {std::move(value)});
  } catch (...) {
    withdraw(std::vector{transfer});
    throw;
  }
  return nullptr;
}

// Of roots of one device, which is this thread's; whether anything was to be computed.
bool evaluate_here(std::span<const NodePtr> roots, const char* who, std::size_t asked) {
  this_stream().devices.insert(runtime::ThreadDevice::now());
  std::vector<NodePtr> transfers; // each on the way to the operand of the one before it
  for (bool computed = false;;) {
    Rest rest;
    if (transfers.empty()) {
      rest = evaluate_once(roots, who, asked);
      computed = computed || rest.ran || rest.transfer;
      if (!rest.any)
        return computed;
    } else if (const NodePtr operand = copied_or_operand(transfers.back())) {
      const runtime::ThreadDevice device(device_for(operand->placement()));
      rest = evaluate_once(std::span(&operand, 1), who, 1);
    } else {
      transfers.pop_back();
    }
    if (rest.transfer)
      transfers.push_back(std::move(rest.transfer));
  }
}

// Each device's roots together; those of numbers with the first ones of a device. `held`: what is
// on the way and held, instead of the roots. Whether anything was to be computed.
bool evaluate_by_device(std::span<const NodePtr> roots, const char* who, bool held) {
  if (roots.size() == 1) {
    const runtime::ThreadDevice device(device_for(roots[0]->placement()));
    return evaluate_here(roots, who, held ? 0 : 1);
  }
  std::vector<runtime::DeviceNumber> devices(roots.size());
  std::vector<std::size_t> of_numbers;
  std::optional<runtime::DeviceNumber> first;
  bool one = true;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    devices[i] = device_for(roots[i]->placement());
    if (roots[i]->placement().kind == Placement::Kind::Numbers) {
      of_numbers.push_back(i);
      continue;
    }
    first = first.value_or(devices[i]);
    one = one && devices[i] == *first;
  }
  const runtime::DeviceNumber main = first.value_or(device_for({}));
  for (const std::size_t i : of_numbers)
    devices[i] = main;
  if (one) {
    const runtime::ThreadDevice device(main);
    return evaluate_here(roots, who, held ? 0 : roots.size());
  }
  bool computed = false;
  std::vector<bool> done(roots.size());
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (done[i])
      continue;
    std::vector<NodePtr> together;
    for (std::size_t j = i; j < roots.size(); ++j)
      if (devices[j] == devices[i]) {
        together.push_back(roots[j]);
        done[j] = true;
      }
    const runtime::ThreadDevice device(devices[i]);
    computed = evaluate_here(together, who, held ? 0 : together.size()) || computed;
  }
  return computed;
}

} // namespace

void evaluate(std::span<const NodePtr> roots, const char* who) {
  values_read(roots, evaluate_by_device(roots, who, false));
}

void evaluate_held(std::span<const NodePtr> roots, const char* who) {
  evaluate_by_device(roots, who, true);
}

void evaluate(const NodePtr& root, const char* who) {
  evaluate(std::span(&root, 1), who);
}

NodePtr pending_node(DType dtype, Shape shape) {
  auto node = std::allocate_shared<Node>( // when it is withdrawn, it is that of the value before
      BlockAllocator<Node>(), make_form(Op::StopGradient, dtype, std::move(shape), {}));
  node->in_flight = true;
  return node;
}

void land(std::vector<Landing> landings) {
  {
    EngineLock lock;
    for (const Landing& landing : landings)
      if (!within_reach(*landing.node))
        lock.widen();
    for (Landing& landing : landings) {
      landing.node->in_flight = false;
      landing.node->storage = std::move(landing.value);
      landing.node =
          nullptr; // before anybody is told: who writes it next wants to be its sole owner
    }
  }
  tell_others();
}

void withdraw(const NodePtr& pending, const NodePtr& before) noexcept {
  {
    const EngineLock lock(*pending);
    pending->in_flight = false;
    pending->inputs.push_back(before);
  }
  tell_others();
}

runtime::StoragePtr storage_of(const NodePtr& node) {
  if (node->kind == Node::Kind::Number) {
    auto& runtime = runtime::Runtime::instance();
    auto storage = runtime.allocate(size_of(node->form.dtype));
    runtime.copy_in(storage, &node->number.bits, size_of(node->form.dtype));
    return storage;
  }
  const EngineLock lock(*node);
  ensure(node->storage != nullptr, "a value is read before it is computed");
  return node->storage;
}

void settle(const NodePtr& node) {
  Left left;
  const EngineLock lock(*node);
  storage_here_locked(*node, left);
}

runtime::RunInput run_input(const NodePtr& node) {
  Left left;
  const EngineLock lock(*node);
  return run_input_locked(*node, left);
}

} // namespace egret::detail

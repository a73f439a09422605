#include "tensor/node.h"

#include "egret/grad.h"
#include "ir/shape_rules.h"
#include "runtime/count.h"
#include "support/call_sites.h"
#include "support/fail.h"
#include "tensor/owners.h"

namespace egret::detail {
namespace {

// Nodes that the outermost destructor on this thread still has to let go; null when none runs.
[[gnu::tls_model("initial-exec")]] thread_local std::vector<NodePtr>* dying = nullptr;

// The scope that a node recorded from `inputs` belongs to.
std::shared_ptr<Scope> scope_for(Op op, const Inputs& inputs) {
  std::shared_ptr<Scope> scope;
  for (const NodePtr& input : inputs) {
    if (!input->scope || input->scope == scope)
      continue;
    if (scope)
      fail(ErrorKind::State, "{}: one operand belongs to {}, the other to {}; they do not mix",
           info_of(op).name, scope->name, input->scope->name);
    scope = input->scope;
  }
  return scope;
}

} // namespace

namespace {

// Lets operands go, those that others have too at once, the others later.
void drop_operands(Inputs& inputs, std::vector<NodePtr>& later) noexcept {
  for (NodePtr& input : inputs)
    if (input.use_count() > 1)
      input.reset(); // should it be the last one after all, its operands are for later
    else
      later.push_back(std::move(input));
  inputs.clear();
}

} // namespace

void Inputs::push_back(NodePtr node) {
  ensure(size_ < kMost, "an operation with more than {} operands", kMost);
  list_[size_++] = std::move(node);
}

Node::Node(const FormPtr& f) : home(&this_stream()), shared_form(f), form(*f) {}
Node::Node(const FormPtr& f, Inputs&& in) noexcept
    : inputs(std::move(in)), home(&this_stream()), shared_form(f), form(*f) {}

Node::~Node() {
  leave_queue();
  if (inputs.empty())
    return;
  if (dying) {
    drop_operands(inputs, *dying);
    return;
  }
  std::vector<NodePtr> list;
  dying = &list;
  drop_operands(inputs, list);
  while (!list.empty()) {
    NodePtr next = std::move(list.back());
    list.pop_back();
    next.reset(); // may push its operands
  }
  dying = nullptr;
}

Handle::Handle(NodePtr node)
    : form_(node->shared_form), shape(form_->shape), dtype(form_->dtype), node_(std::move(node)),
      stream_(this_stream()) {
  node_->handles.add(1, 1);
  HandleList& list = stream_.handles;
  {
    std::lock_guard lock(list.mutex);
    behind_ = list.first;
    if (behind_)
      behind_->before_ = this;
    list.first = this;
  }
  tell_home(*node_); // which looks at the list afterwards
}

Handle::~Handle() {
  refer(*node_, -1);
  HandleList& list = stream_.handles;
  std::lock_guard lock(list.mutex); // let go before the members are destroyed
  (before_ ? before_->behind_ : list.first) = behind_;
  if (behind_)
    behind_->before_ = before_;
}

void for_each_handle(const std::function<void(const Handle&)>& visit) {
  for_each_stream([&](Stream& stream) { visit_handles(stream.handles, visit); });
}

void visit_handles(HandleList& list, const std::function<void(const Handle&)>& visit) {
  std::lock_guard lock(list.mutex);
  for (const Handle* h = list.first; h; h = h->behind_)
    visit(*h);
}

NodePtr Handle::node() const {
  std::lock_guard lock(mutex_);
  return node_;
}

NodePtr Handle::node_at(const Stream& home) const {
  std::lock_guard lock(mutex_);
  return node_->home.load(std::memory_order_relaxed) == &home ? node_ : nullptr;
}

void Handle::tell_home(const Node& node) const noexcept {
  Stream* const home = node.home.load(std::memory_order_relaxed);
  if (home != &stream_ && !home->abroad.load(std::memory_order_relaxed))
    home->abroad.store(true, std::memory_order_relaxed);
}

void Handle::refer(Node& node, int count) const noexcept {
  tell_home(node);
  node.handles.add(count, holds_ ? count : 0);
}

void Handle::set_holds(bool holds) noexcept {
  if (holds != holds_)
    node_->handles.add(0, holds ? 1 : -1);
  holds_ = holds;
}

bool Handle::holds() const {
  std::lock_guard lock(mutex_);
  return holds_;
}

void Handle::let_go(const Tensor* object) noexcept {
  std::lock_guard lock(mutex_);
  temporary_.store(object, std::memory_order_relaxed);
  set_holds(false);
}

void Handle::hold() noexcept {
  std::lock_guard lock(mutex_);
  set_holds(true);
}

void Handle::leave(const Tensor* object, long objects) noexcept {
  std::lock_guard lock(mutex_);
  const Tensor* temporary = temporary_.load(std::memory_order_relaxed);
  if (temporary == object) {
    temporary_.store(nullptr, std::memory_order_relaxed);
    set_holds(true); // of whoever is left
  } else if (temporary && objects == 2) {
    set_holds(false); // the temporary is left alone
  }
}

NodePtr Handle::exchange(NodePtr node) {
  std::lock_guard lock(mutex_);
  refer(*node, 1);
  refer(*node_, -1);
  node_.swap(node);
  return node;
}

void Handle::set(NodePtr node) {
  exchange(std::move(node));
}

bool Handle::replace(const NodePtr& expected, NodePtr& node) {
  std::lock_guard lock(mutex_);
  if (node_ != expected)
    return false;
  refer(*node, 1);
  refer(*node_, -1);
  node_.swap(node);
  return true;
}

std::shared_ptr<GradSlot> Handle::slot() const {
  std::lock_guard lock(mutex_);
  return slot_;
}

void Handle::own(std::shared_ptr<GradSlot> slot) {
  std::lock_guard lock(mutex_);
  slot_.swap(slot); // the old one goes after the lock
}

void make_grad_leaf(Node& node, const std::shared_ptr<GradSlot>& slot) {
  const EngineLock lock(node);
  node.slot = slot;
  node.grad_leaf = true;
  if (Placement at = node.placement(); at.kind == Placement::Kind::Preferred)
    node.place_at({Placement::Kind::Fixed, at.device});
  node.needs_grad.store(true);
}

std::shared_ptr<GradSlot> slot_of(const NodePtr& node) {
  const EngineLock lock(*node);
  return node->slot.lock();
}

void Inside::set(NodePtr node) {
  node->handles.add(1, 0);
  if (now)
    now->handles.add(-1, 0);
  now = std::move(node);
}

const Handle& Access::held(const Tensor& a, const char* who) {
  if (!a.defined())
    fail(ErrorKind::State, "{}: the tensor is empty (default constructed or moved from)", who);
  if (Scope* scope = current_scope())
    scope->reached(a);
  return *a.handle_;
}

namespace {

// What stands for a tensor in the scope in which this thread records; null: it stands for itself.
Inside* inside(const Handle& handle) {
  Scope* scope = current_scope();
  return scope ? scope->inside(handle) : nullptr;
}

} // namespace

NodePtr Access::raw(const Tensor& a, const char* who) {
  const Handle& handle = held(a, who);
  const Inside* own = inside(handle);
  return own ? own->now : handle.node();
}

const Shape& Access::shape(const Tensor& a, const char* who) {
  const Handle& handle = held(a, who);
  const Inside* own = inside(handle);
  return own ? own->placeholder->form.shape : handle.shape;
}

NodePtr Access::readable(const Tensor& a, const char* who) {
  NodePtr node = Access::node(a, who);
  if (node->scope)
    if (NodePtr value = node->scope->value_of(*node))
      return value;
  return node;
}

NodePtr Access::node(const Tensor& a, const char* who) {
  NodePtr node = held(a, who).node();
  Scope* scope = current_scope();
  if (scope && node->scope.get() != scope)
    return scope->capture(a.handle_, std::move(node));
  return node;
}

void Access::put(const Tensor& a, NodePtr node) {
  if (Inside* own = inside(*a.handle_)) {
    own->set(std::move(node));
    return;
  }
  NodePtr old; // let go after the lock
  {
    const Updating update;
    old = a.handle_->exchange(std::move(node));
  }
  statement_ended();
}

bool Access::replace(const Tensor& a, const NodePtr& expected, NodePtr node) {
  Inside* own = inside(*a.handle_);
  if (!own)
    return replace_outside(*a.handle_, expected, std::move(node));
  own->set(std::move(node)); // nobody else sees it
  return true;
}

bool replace_outside(Handle& handle, const NodePtr& expected, NodePtr node) {
  const Updating update;
  return handle.replace(expected, node); // the old one goes after the update
}

std::shared_ptr<GradSlot> Access::slot(const Tensor& a, const char* who) {
  auto slot = slot_of(Access::node(a, who));
  if (!slot)
    return nullptr;
  const Inside* own = inside(*a.handle_);
  return (own ? own->slot : a.handle_->slot()) == slot ? slot : nullptr;
}

void Access::own(const Tensor& a, std::shared_ptr<GradSlot> slot) {
  if (Inside* own = inside(*a.handle_))
    own->slot = std::move(slot);
  else
    a.handle_->own(std::move(slot));
}

void Access::rebind(Tensor& a, std::shared_ptr<Handle> handle) noexcept {
  leaving(a);
  if (handle && handle->has_temporary())
    handle->hold();
  Scope* scope = current_scope();
  if (scope)
    scope->rebinding(a);
  if (scope || (a.handle_ && a.handle_->watched.load()))
    rebind_watched(a, handle);
  else
    bind(a, handle);
}

void Access::leaving(const Tensor& a) noexcept {
  if (a.handle_ && a.handle_->has_temporary())
    a.handle_->leave(&a, a.handle_.use_count());
}

void retire(const Tensor& leaf) noexcept {
  Access::handle(leaf)->retired.store(true);
}
bool same_place(const Tensor& a, const Tensor& b) noexcept {
  return Access::handle(a) == Access::handle(b);
}
bool is_retired(const Tensor& leaf) noexcept {
  return leaf.defined() && Access::handle(leaf)->retired.load();
}

void let_go(const Tensor& temporary) noexcept {
  const auto& handle = Access::handle(temporary);
  if (handle.use_count() == 1)
    handle->let_go(&temporary);
}

NodePtr record_form(const FormPtr& form, Inputs&& given) {
  const Op op = form->op;
  auto node = std::allocate_shared<Node>(BlockAllocator<Node>(), form, std::move(given));
  const Inputs& inputs = node->inputs;
  Stream& own = *node->home.load(std::memory_order_relaxed);
  Placement placement;
  bool needs_grad = false;
  for (const NodePtr& input : inputs) {
    placement = joined_by(placement, input->placement(), info_of(op).name);
    if (Stream* const home = input->home.load(std::memory_order_relaxed);
        home != &own && input->kind == Node::Kind::Op)
      home->crossed.store(true, std::memory_order_relaxed);
    needs_grad = needs_grad || input->needs_grad.load(std::memory_order_relaxed);
  }
  node->place_at(placement);
  node->scope = scope_for(op, inputs);
  if (!node->scope && current_scope())
    node->scope = current_scope()->shared_from_this();
  needs_grad = needs_grad && is_float(form->dtype) && op != Op::StopGradient && grad_enabled();
  if (needs_grad)
    node->needs_grad.store(true, std::memory_order_relaxed);
  if (call_sites::wanted())
    node->site = call_sites::here();
  runtime::count_operation();
  if (!node->scope) {
    node->stream = &own;
    own.triggers.recorded(node);
    // What a gradient may need keeps its recipe: nothing is gained by running it early.
    if (!needs_grad) {
      node->queued = 1;
      operation_recorded(own);
    }
  }
  return node;
}

namespace {

Forms& forms() {
  Stream& stream = this_stream();
  if (!stream.forms) [[unlikely]]
    stream.forms = std::make_shared<Forms>();
  return *stream.forms;
}

// The form of an operation, where it is none of those made lately by `make()`.
template <class Make>
const FormPtr& form_of(Op op, const Inputs& inputs, const ir::Attrs& attrs, Make&& make) {
  std::array<const FormPtr*, Inputs::kMost> operands;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    operands[i] = &inputs[i]->shared_form;
  return forms().of(op, {operands.data(), inputs.size()}, attrs, make);
}

const ir::Attrs kNoAttrs;

} // namespace

NodePtr record_known(Op op, DType dtype, const Shape& shape, Inputs&& inputs,
                     const ir::Attrs& attrs) {
  const FormPtr& form =
      form_of(op, inputs, attrs, [&] { return make_form(op, dtype, shape, attrs); });
  return record_form(form, std::move(inputs));
}

NodePtr record(Op op, Inputs&& inputs, const ir::Attrs& attrs) {
  const FormPtr& form = form_of(op, inputs, attrs, [&] {
    std::array<const ir::Node*, Inputs::kMost> operands;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      operands[i] = &inputs[i]->form;
    auto inferred = ir::infer(op, {operands.data(), inputs.size()}, attrs);
    return make_form(op, inferred.dtype, std::move(inferred.shape), attrs);
  });
  return record_form(form, std::move(inputs));
}

NodePtr record(Op op, Inputs&& inputs) {
  return record(op, std::move(inputs), kNoAttrs);
}

namespace {

std::shared_ptr<Node> leaf(Node::Kind kind, DType dtype, Shape shape, std::string name = {}) {
  ir::Attrs attrs{.dtype = dtype, .shape = shape, .name = std::move(name)};
  auto node = std::allocate_shared<Node>(
      BlockAllocator<Node>(),
      forms().same(make_form(Op::Input, dtype, std::move(shape), std::move(attrs))));
  node->kind = kind;
  if (current_scope() && kind != Node::Kind::Placeholder)
    node->scope = current_scope()->shared_from_this();
  return node;
}

} // namespace

NodePtr number_node(Scalar value) {
  auto node = leaf(Node::Kind::Number, value.dtype, {});
  node->number = value;
  return node;
}

NodePtr data_node(DType dtype, Shape shape, runtime::StoragePtr storage) {
  auto node = leaf(Node::Kind::Data, dtype, std::move(shape));
  node->place_at(placement_of_data());
  node->storage = std::move(storage);
  return node;
}

NodePtr placeholder_node(std::shared_ptr<Scope> scope, DType dtype, Shape shape, std::string name) {
  auto node = leaf(Node::Kind::Placeholder, dtype, std::move(shape), std::move(name));
  node->scope = std::move(scope);
  return node;
}

NodePtr alias_node(const NodePtr& node) {
  if (node->kind == Node::Kind::Number)
    return number_node(node->number);
  runtime::StoragePtr storage;
  {
    const EngineLock lock(*node);
    storage = node->storage;
  }
  if (storage) {
    auto copy = data_node(node->form.dtype, node->form.shape, std::move(storage));
    copy->scope = node->scope;
    copy->place_at(node->placement());
    return copy;
  }
  return record(Op::StopGradient, {node});
}

std::vector<std::int64_t> concrete(const Shape& shape, const char* who) {
  std::vector<std::int64_t> sizes;
  sizes.reserve(shape.size());
  for (const Expr& dim : shape) {
    auto size = dim.constant();
    if (!size)
      fail(ErrorKind::Shape, "{}: dim {} of {} is symbolic; its size is known only at run time",
           who, dim.str(), to_string(shape));
    sizes.push_back(*size);
  }
  return sizes;
}

} // namespace egret::detail

#include "tensor/trace.h"

#include "egret/tracing.h"
#include "runtime/count.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/engine.h"

#include <fmt/format.h>

#include <map>
#include <utility>

namespace egret::detail {

// --- the scope

NodePtr Trace::add(TraceSource source, std::shared_ptr<Handle> handle, const NodePtr& node,
                   const Shape& shape, std::string name) {
  auto self = std::static_pointer_cast<Scope>(shared_from_this());
  Entry entry;
  entry.placeholder = placeholder_node(std::move(self), node->form.dtype, shape, std::move(name));
  entry.placeholder->place_at(node->placement());
  entry.set(entry.placeholder);
  entry.needs_grad = node->needs_grad.load();
  entry.placeholder->needs_grad.store(entry.needs_grad);
  entry.original_slot = slot_of(node);
  if (entry.original_slot) {
    owner_of_.emplace(entry.original_slot.get(), entries_.size());
    make_grad_leaf(*entry.placeholder, entry.original_slot);
  }
  entry.symbolic = shape != node->form.shape;
  if (source.kind == TraceSource::Kind::Gradient) {
    handle = std::make_shared<Handle>(entry.placeholder);
  } else {
    entry.slot = handle->slot();
    entry_of_.emplace(handle.get(), entries_.size());
  }
  entry.source = std::move(source);
  entry.outer = std::move(handle);
  entry.original = node;
  entries_.push_back(std::move(entry));
  return entries_.back().placeholder;
}

std::size_t Trace::enter(const std::shared_ptr<Handle>& handle, const Shape& shape,
                         std::size_t leaf, bool state, const std::string& name) {
  if (const auto met = entry_of_.find(handle.get()); met != entry_of_.end()) { // it occurs twice
    Entry& entry = entries_[met->second];
    if (entry.placeholder->form.shape != shape)
      fail(ErrorKind::State,
           "{}: `{}` and `{}` are one tensor, with a dim that differs from call to call in one of "
           "them only; name it for both",
           this->name, entry.placeholder->form.attrs.name, name);
    entry.source.state |= state;
    return met->second;
  }
  const NodePtr node = handle->node();
  if (node->scope)
    fail(ErrorKind::State, "{}: argument `{}` belongs to {}; pass a tensor with a value",
         this->name, name, node->scope->name);
  TraceSource source;
  source.kind = TraceSource::Kind::Argument;
  source.leaf = leaf;
  source.state = state;
  add(std::move(source), handle, node, shape, name);
  return entries_.size() - 1;
}

Inside* Trace::inside(const Handle& handle) {
  const auto met = entry_of_.find(&handle);
  return met == entry_of_.end() ? nullptr : &entries_[met->second];
}

NodePtr Trace::capture(const std::shared_ptr<Handle>& handle, NodePtr node) {
  if (const Inside* own = inside(*handle))
    return own->now;
  if (node->scope)
    fail(ErrorKind::State, "{}: a tensor of {} is used inside; they do not mix", name,
         node->scope->name);
  TraceSource source;
  source.kind = TraceSource::Kind::Captured;
  source.handle = handle;
  return add(std::move(source), handle, node, node->form.shape,
             fmt::format("captured{}", entries_.size()));
}

// --- Tensor objects outside that lead to what is captured

void Trace::reached(const Tensor& object) {
  const auto& handle = Access::handle(object);
  if (!recording_ || !handle || handle->node()->scope.get() == this)
    return;
  OwnerPtr owner = watch(object);
  const Owner* const key = owner.get();
  owners_.emplace(key, std::move(owner));
}

void Trace::rebinding(Tensor& object) {
  const auto& handle = Access::handle(object);
  if (!recording_ || (handle && handle->node()->scope.get() == this))
    return; // a value of the trace's own: a local variable, or one that was rebound before
  OwnerPtr owner = watch(object);
  const bool read = owners_.contains(owner.get());
  rebound_.push_back({std::move(owner), &object, handle, read});
}

std::vector<const Trace::Rebound*> Trace::rebound(const LeafObjects& leaves) const {
  std::vector<const Rebound*> found;
  std::unordered_set<const Tensor*> met; // the first time counts
  for (const Rebound& r : rebound_)
    if (r.owner->object == r.object && !leaves.contains(r.object) && met.insert(r.object).second &&
        Access::handle(*r.object) != r.before)
      found.push_back(&r);
  return found;
}

void Trace::refuse_rebinding(const LeafObjects& leaves) {
  std::shared_ptr<Handle> before;
  {
    std::lock_guard lock(calls_mutex());
    for (const Rebound* r : rebound(leaves))
      if (r->read)
        before = r->before;
  }
  if (before)
    fail(ErrorKind::State,
         "{}: the function reads a tensor that it captures ({}{}) and binds it to another one (w = "
         "...), which no later call would do; update it in place (+=, assign), return the value, "
         "or take the tensor by non-const reference",
         name, name_of(before->dtype), to_string(before->shape));
  rebound_.clear();
}

void Trace::restore_bindings(const LeafObjects& leaves) noexcept {
  recording_ = false;
  std::vector<std::pair<Tensor*, std::shared_ptr<Handle>>> back;
  {
    std::lock_guard lock(calls_mutex());
    for (const Rebound* r : rebound(leaves))
      back.emplace_back(r->object, r->before);
  }
  for (auto& [object, handle] : back)
    Access::rebind(*object, std::move(handle));
  rebound_.clear();
}

void Trace::settle_owners(const LeafObjects& leaves) {
  {
    std::lock_guard lock(calls_mutex());
    for (auto& [key, owner] : owners_) {
      if (!owner->object || leaves.contains(owner->object))
        continue;
      const auto& handle = Access::handle(*owner->object);
      if (const auto entry = entry_of_.find(handle.get()); entry != entry_of_.end())
        entries_[entry->second].source.reached_by.push_back(owner);
      else
        looked_at_.push_back({owner, handle});
    }
  }
  // What a state with sizes of a call becomes would not be seen under another name in a call with
  // other tensors.
  for (const Entry& entry : entries_)
    if (entry.symbolic && entry.source.state && !entry.source.reached_by.empty())
      fail(ErrorKind::State,
           "{}: `{}` is a state with sizes that differ from call to call, and is reached by "
           "another way too (a capture, or a part of another argument); use the argument only",
           name, entry.placeholder->form.attrs.name);
}

// --- gradients

std::shared_ptr<Handle> Trace::read_gradient(GradSlot& slot) {
  if (auto found = gradients_.find(&slot); found != gradients_.end())
    return found->second;
  std::shared_ptr<Handle> own;
  if (auto owner = owner_of_.find(&slot); owner != owner_of_.end()) {
    gradient_reads_.push_back({owner->second, slot.gradient != nullptr});
    if (slot.gradient) {
      TraceSource source;
      source.kind = TraceSource::Kind::Gradient;
      source.owner = owner->second;
      const NodePtr node = slot.gradient->node();
      if (entries_[owner->second].symbolic)
        fail(ErrorKind::State,
             "{}: the gradient of {} is read, which has sizes that differ from call to call; "
             "zero_grad() it before the call",
             name, entries_[owner->second].placeholder->form.attrs.name);
      add(std::move(source), nullptr, node, node->form.shape,
          entries_[owner->second].placeholder->form.attrs.name + ".grad");
      own = entries_.back().outer;
    }
  }
  gradients_.emplace(&slot, own);
  return own;
}

void Trace::write_gradient(GradSlot& slot, std::shared_ptr<Handle> gradient) {
  gradients_[&slot] = std::move(gradient);
}

void Trace::clear() noexcept {
  entries_.clear();
  entry_of_.clear();
  owner_of_.clear();
  gradients_.clear();
  owners_.clear();
  rebound_.clear();
  looked_at_.clear();
}

// --- tracing

namespace {

using Value = TracedProgram::Value;

constexpr std::size_t kNoEntry = ~std::size_t{0};

// What the function left behind, by node, before it is lowered.
struct Left {
  std::vector<NodePtr> results;  // null: empty
  std::vector<NodePtr> leaves;   // by leaf of the call; null: empty
  std::vector<NodePtr> captured; // by entry of the trace
};

std::string leaf_name(const Call::Leaf& leaf) {
  return leaf.path.empty() ? fmt::format("argument{}", leaf.argument)
                           : fmt::format("argument{}.{}", leaf.argument, leaf.path);
}

LeafObjects objects_of(const Call& call) {
  LeafObjects objects;
  for (const Call::Leaf& leaf : call.leaves)
    objects.insert(leaf.tensor);
  return objects;
}

// Tensor objects bound as they were, also when the function throws. Handles need no such care: the
// trace does not touch them.
class Restorer {
public:
  Restorer(Trace& trace, Caller& caller, const Call& call) : trace_(trace), caller_(caller) {
    for (const Call::Leaf& leaf : call.leaves)
      owners_.push_back(*leaf.tensor);
  }
  ~Restorer() {
    trace_.end_of_function();
    try { // pointers of before may be void by now
      const Call now = caller_.flatten(false);
      if (now.leaves.size() == owners_.size())
        for (std::size_t i = 0; i < owners_.size(); ++i)
          if (Access::handle(*now.leaves[i].tensor) != Access::handle(owners_[i]))
            *now.leaves[i].tensor = owners_[i];
      trace_.restore_bindings(objects_of(now));
    } catch (...) { // a tree that cannot be walked any more keeps what it has
    }
    trace_.clear();
  }
  Restorer(const Restorer&) = delete;

private:
  Trace& trace_;
  Caller& caller_;
  std::vector<Tensor> owners_;
};

Left what_is_left(const Trace& trace, const Call& before, const Call& after,
                  const std::vector<Tensor>& results) {
  if (after.signature != before.signature || after.leaves.size() != before.leaves.size())
    fail(ErrorKind::State,
         "{}: the function changes the structure of its arguments (a container grew, a number "
         "changed); create what it needs before the first call, and keep numbers that change in "
         "tensors of rank 0",
         trace.name);
  Left left;
  for (const Tensor& result : results)
    left.results.push_back(result.defined() ? Access::node(result, "compile") : nullptr);
  for (const Call::Leaf& leaf : after.leaves)
    left.leaves.push_back(leaf.tensor->defined() ? Access::node(*leaf.tensor, "compile") : nullptr);
  for (const Trace::Entry& entry : trace.entries())
    left.captured.push_back(entry.now);
  return left;
}

// Converts nodes to values of the traced program: outputs of the graph, sources, constants.
class Lowering {
public:
  explicit Lowering(const Trace& trace) {
    for (std::size_t i = 0; i < trace.entries().size(); ++i)
      source_of_.emplace(trace.entries()[i].placeholder.get(), i);
  }
  Value value_of(const NodePtr& node) {
    Value value;
    if (!node)
      return value;
    if (auto source = source_of_.find(node.get()); source != source_of_.end()) {
      value.kind = Value::Kind::Source;
      value.number = source->second;
      passed_on_.push_back(source->second);
    } else if (is_leaf(*node)) {
      value.kind = Value::Kind::Constant;
      value.constant = node;
    } else {
      auto [place, fresh] = output_of_.emplace(node.get(), roots.size());
      if (fresh)
        roots.push_back(node);
      value.kind = Value::Kind::Output;
      value.number = place->second;
    }
    return value;
  }
  bool passed_on(std::size_t source) const {
    return std::find(passed_on_.begin(), passed_on_.end(), source) != passed_on_.end();
  }
  const std::unordered_map<const Node*, std::size_t>& sources() const { return source_of_; }

  std::vector<NodePtr> roots;

private:
  static bool is_leaf(const Node& node) {
    const EngineLock lock(node);
    return node.is_leaf_value();
  }
  std::unordered_map<const Node*, std::size_t> source_of_, output_of_;
  std::vector<std::size_t> passed_on_;
};

// The tensors that the function changed.
std::vector<TracedProgram::State> states_of(const Trace& trace, const Call& call, const Left& left,
                                            const std::vector<std::size_t>& entry_of_leaf,
                                            Lowering& lowering) {
  std::vector<TracedProgram::State> states;
  std::vector<bool> done(trace.entries().size());

  for (std::size_t i = 0; i < call.leaves.size(); ++i) {
    TracedProgram::State state;
    state.leaf = i;
    state.is_leaf = true;
    const NodePtr& now = left.leaves[i];
    if (entry_of_leaf[i] == kNoEntry) { // was empty
      if (!now)
        continue;
      state.value = lowering.value_of(now);
      states.push_back(std::move(state));
      continue;
    }
    const std::size_t entry = entry_of_leaf[i];
    const NodePtr& before = trace.entries()[entry].placeholder;
    if (now == before || done[entry])
      continue;
    if (!call.leaves[i].state)
      fail(ErrorKind::State,
           "{}: the function changes {}, which it takes by value or const reference; take it by "
           "non-const reference",
           trace.name, leaf_name(call.leaves[i]));
    done[entry] = true;
    state.has_source = true;
    state.source = entry;
    state.reshaped =
        !now || now->form.shape != before->form.shape || now->form.dtype != before->form.dtype;
    state.value = lowering.value_of(now);
    states.push_back(std::move(state));
  }
  for (std::size_t i = 0; i < trace.entries().size(); ++i) {
    const Trace::Entry& entry = trace.entries()[i];
    if (entry.source.kind != TraceSource::Kind::Captured || left.captured[i] == entry.placeholder)
      continue;
    TracedProgram::State state;
    state.has_source = true;
    state.source = i;
    state.value = lowering.value_of(left.captured[i]);
    states.push_back(std::move(state));
  }
  return states;
}

// Which states receive their new value in the memory of the old one: computed ones whose old value
// nothing gives on, one for each output.
void choose_donations(TracedProgram& traced, const Trace& trace, const Walk& w,
                      const Lowering& lowering) {
  std::unordered_map<const Node*, std::size_t> slot_of;
  for (std::size_t slot = 0; slot < w.leaves.size(); ++slot)
    slot_of.emplace(w.leaves[slot].get(), slot);
  traced.options.outputs.assign(lowering.roots.size(), {});
  for (TracedProgram::State& state : traced.states) {
    if (!state.has_source || state.reshaped || state.value.kind != Value::Kind::Output ||
        lowering.passed_on(state.source))
      continue;
    auto& spec = traced.options.outputs[state.value.number];
    const auto slot = slot_of.find(trace.entries()[state.source].placeholder.get());
    if (spec.state_input >= 0 || slot == slot_of.end())
      continue;
    spec.state_input = static_cast<std::int64_t>(slot->second);
    traced.bindings[slot->second].donated = true;
    state.value.donated = true;
  }
}

// Numbers that are read and not changed are passed by value.
void pass_numbers_by_value(Trace& trace, const std::vector<TracedProgram::State>& states) {
  std::vector<bool> changed(trace.entries().size());
  for (const TracedProgram::State& state : states)
    if (state.has_source)
      changed[state.source] = true;
  for (std::size_t i = 0; i < trace.entries().size(); ++i) {
    const Trace::Entry& entry = trace.entries()[i];
    if (!changed[i] && entry.original->kind == Node::Kind::Number)
      entry.placeholder->by_value = true;
  }
}

// (engine_mutex) Numbers of the same bits become one input, so that updates of many parameters by
// the same numbers differ in their sizes only.
void merge_equal_numbers(Walk& w) {
  std::map<std::pair<DType, std::uint64_t>, std::size_t> first;
  std::vector<NodePtr> kept;
  for (NodePtr& leaf : w.leaves) {
    std::size_t place = kept.size();
    if (leaf->kind == Node::Kind::Number)
      place = first.emplace(std::pair(leaf->form.dtype, leaf->number.bits), place).first->second;
    leaf->place = static_cast<std::uint32_t>(place) | kLeafBit;
    if (place == kept.size())
      kept.push_back(std::move(leaf));
  }
  w.leaves = std::move(kept);
}

// By input of the program: what the function neither gets as an argument nor changes.
std::vector<bool> steady_inputs(const TracedProgram& traced) {
  std::vector<bool> steady;
  for (const TracedProgram::Binding& b : traced.bindings) {
    bool is = !b.by_value && !b.donated;
    if (b.kind == TracedProgram::Binding::Kind::Source)
      is = is && traced.sources[b.source].kind == TraceSource::Kind::Captured &&
           std::none_of(traced.states.begin(), traced.states.end(), [&](const auto& state) {
             return state.has_source && state.source == b.source;
           });
    steady.push_back(is && b.kind != TracedProgram::Binding::Kind::Number);
  }
  return steady;
}

// With any effort above None, values that are made of captured parameters alone may be kept.
std::shared_ptr<const runtime::Program> program_for(const TracedProgram& traced) {
  const runtime::ThreadDevice device(device_for(traced.placement));
  auto& runtime = runtime::Runtime::instance();
  compiler::Options options = traced.options;
  runtime.complete(options);
  if (!options.fuse || options.effort == Effort::None)
    return runtime.program(traced.graph, traced.options);
  options = traced.options;
  options.steady = steady_inputs(traced);
  if (std::none_of(options.steady.begin(), options.steady.end(), [](bool is) { return is; }))
    options.steady.clear();
  return runtime.program(traced.graph, options);
}

std::shared_ptr<TracedProgram> lower(Trace& trace, const Call& call, const Left& left,
                                     const std::vector<std::size_t>& entry_of_leaf,
                                     const CompileOptions& options, bool compiled) {
  auto traced = std::make_shared<TracedProgram>();
  Lowering lowering(trace);
  for (const NodePtr& result : left.results) {
    traced->results.push_back(lowering.value_of(result));
    traced->results.back().needs_grad =
        result && result->needs_grad.load() && !result->spent.load();
  }
  traced->states = states_of(trace, call, left, entry_of_leaf, lowering);
  pass_numbers_by_value(trace, traced->states);
  for (const Trace::Entry& entry : trace.entries()) {
    traced->sources.push_back(entry.source);
    traced->needs_grad.push_back(entry.needs_grad);
    traced->leaf.push_back(entry.original_slot != nullptr);
    traced->devices.push_back(device_code(*entry.placeholder));
    traced->names.push_back(entry.placeholder->form.attrs.name);
    traced->dtypes.push_back(entry.placeholder->form.dtype);
    traced->shapes.push_back(entry.placeholder->form.shape);
    traced->symbolic.push_back(entry.symbolic ? entry.placeholder->form.shape : Shape());
  }
  traced->gradient_reads = trace.gradient_reads();
  traced->looked_at = trace.looked_at();
  for (const NodePtr& root : lowering.roots)
    traced->placement = joined(traced->placement, root->placement(), trace.name);
  if (lowering.roots.empty())
    return traced;

  Walk w;
  {
    std::lock_guard lock(engine_mutex());
    w = walk(lowering.roots, WalkOutputs::Roots, &trace, trace.name.c_str());
    ensure(w.is_whole(), "another thread or device computes a value of a trace");
    merge_equal_numbers(w);
    // What gives a size its value is an input, read or not.
    for (const Trace::Entry& entry : trace.entries())
      if (entry.symbolic &&
          std::find(w.leaves.begin(), w.leaves.end(), entry.placeholder) == w.leaves.end())
        w.leaves.push_back(entry.placeholder);
    traced->graph = graph_of(w);
  }
  for (const NodePtr& leaf : w.leaves) {
    TracedProgram::Binding binding;
    if (auto source = lowering.sources().find(leaf.get()); source != lowering.sources().end()) {
      binding.source = source->second;
      binding.by_value = leaf->by_value;
    } else {
      binding.kind = leaf->kind == Node::Kind::Number ? TracedProgram::Binding::Kind::Number
                                                      : TracedProgram::Binding::Kind::Data;
      binding.constant = leaf;
    }
    traced->bindings.push_back(std::move(binding));
  }
  traced->options.fuse = options.fuse;
  traced->options.effort = options.effort;
  traced->options.budget_seconds = options.budget_seconds;
  traced->options.allow = options.allow;
  traced->options.memory_limit = options.memory_limit;
  traced->options.schedules = options.schedules;
  choose_donations(*traced, trace, w, lowering);
  if (compiled)
    traced->program = program_for(*traced);
  return traced;
}

// A constant must not keep the trace's nodes alive.
void release_constants(TracedProgram& traced) {
  auto release = [](NodePtr& constant) {
    if (!constant)
      return;
    NodePtr free =
        constant->kind == Node::Kind::Number
            ? number_node(constant->number)
            : data_node(constant->form.dtype, constant->form.shape, storage_of(constant));
    free->scope = nullptr;
    free->place_at(constant->placement());
    constant = std::move(free);
  };
  for (auto& binding : traced.bindings)
    release(binding.constant);
  for (auto& state : traced.states)
    release(state.value.constant);
  for (auto& value : traced.results)
    release(value.constant);
}

} // namespace

std::shared_ptr<const TracedProgram> trace_function(Caller& caller, const NamedDims::Seen& seen,
                                                    const CompileOptions& options, bool compiled) {
  auto trace = std::make_shared<Trace>(options.name);
  const Call call = caller.flatten(true);
  runtime::count().graphs_traced.add(1);
  compiler::Options chosen;
  chosen.fuse = options.fuse;
  chosen.effort = options.effort;
  chosen.allow = options.allow;
  runtime::Runtime::instance().complete(chosen);
  if (options.fuse && chosen.effort != Effort::None && !chosen.deterministic)
    trace->rules = chosen.rules;
  std::shared_ptr<TracedProgram> traced;
  {
    Restorer restorer(*trace, caller, call);
    ScopeGuard guard(trace.get());
    std::vector<std::size_t> entry_of_leaf(call.leaves.size(), kNoEntry);
    for (std::size_t i = 0; i < call.leaves.size(); ++i) {
      const Call::Leaf& leaf = call.leaves[i];
      if (!leaf.tensor->defined())
        continue;
      const auto& handle = Access::handle(*leaf.tensor);
      const auto symbols = seen.with_symbols.find(i);
      entry_of_leaf[i] =
          trace->enter(handle, symbols == seen.with_symbols.end() ? handle->shape : symbols->second,
                       i, leaf.state, leaf_name(leaf));
    }
    Result result = caller.trace();
    trace->end_of_function();
    const Call after = caller.flatten(false);
    const LeafObjects leaves = objects_of(after);
    trace->refuse_rebinding(leaves);
    const Left left = what_is_left(*trace, call, after, result.tensors);
    trace->settle_owners(leaves);
    traced = lower(*trace, call, left, entry_of_leaf, options, compiled);
    traced->prototype = std::move(result.prototype);
    traced->rules_text = std::move(trace->rules_text);
  }
  release_constants(*traced);
  return traced;
}

} // namespace egret::detail

bool egret::tracing() noexcept {
  return detail::current_scope() != nullptr;
}

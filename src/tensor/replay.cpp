// One call of a traced function: inputs bound, the program run, states written, results given.
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/engine.h"
#include "tensor/holders.h"
#include "tensor/sizes.h"
#include "tensor/trace.h"

#include <fmt/format.h>

#include <unordered_map>

namespace egret::detail {

namespace {

using Value = TracedProgram::Value;

// One call of a traced program.
class Replay {
public:
  Replay(const TracedProgram& traced, const Call& call,
         std::vector<std::shared_ptr<Handle>> handles)
      : traced_(traced), call_(call), handles_(std::move(handles)) {}
  Replay(const Replay&) = delete;
  ~Replay() { // what was claimed and is not written is as it was
    for (std::size_t i = 0; i < claims_.size(); ++i)
      if (claims_[i])
        give_back(traced_.states[i].source, claims_[i]);
  }

  Result run() {
    const runtime::ThreadDevice device(device_for(traced_.placement));
    claim();
    for (std::size_t i = 0; i < traced_.sources.size(); ++i)
      if (!traced_.symbolic[i].empty())
        sizes_.bind(traced_.symbolic[i], nodes_[i]->form.shape, "compile", "an argument");
    materialize();
    if (traced_.program) {
      naming_holders([&] {
        bind();
        outputs_ = traced_.program->run(inputs_);
      });
      inputs_.clear();
    }
    Result result;
    result.prototype = traced_.prototype;
    for (const Value& value : traced_.results)
      result.tensors.push_back(value.kind == Value::Kind::Empty ? Tensor()
                                                                : Access::wrap(result_for(value)));
    write_states();
    return result;
  }

private:
  static bool is_claimed(const TracedProgram::State& state) {
    return state.has_source && !state.reshaped && state.value.kind != Value::Kind::Empty;
  }

  // Takes the values of all sources, and puts values that are to come in the place of the states.
  // Whoever reads a state from now on waits for this call, and this call waits for those that
  // claimed before. As updates by other threads (Access::put, Access::replace) come before or after
  // all of it, no value that is taken here depends on one that this call is to make.
  void claim() {
    nodes_.reserve(handles_.size());
    std::vector<NodePtr> to_come(traced_.states.size());
    for (std::size_t i = 0; i < traced_.states.size(); ++i)
      if (is_claimed(traced_.states[i])) {
        const Handle& handle = *handles_[traced_.states[i].source];
        to_come[i] = pending_node(handle.dtype, handle.shape);
        to_come[i]->place_at(handle.node()->placement());
      }
    std::lock_guard lock(calls_mutex());
    for (const auto& handle : handles_)
      nodes_.push_back(handle->node());
    for (std::size_t i = 0; i < traced_.states.size(); ++i) {
      if (!to_come[i])
        continue;
      Handle& handle = *handles_[traced_.states[i].source];
      const NodePtr& node = nodes_[traced_.states[i].source];
      if (const auto slot = slot_of(node); slot && slot == handle.slot())
        make_grad_leaf(*to_come[i], slot);
      handle.set(to_come[i]);
    }
    claims_ = std::move(to_come);
  }

  void materialize() {
    std::vector<NodePtr> pending;
    {
      std::lock_guard lock(engine_mutex());
      for (const NodePtr& node : nodes_)
        if (!node->is_leaf_value())
          pending.push_back(node);
    }
    if (!pending.empty())
      evaluate(pending, "compile");
  }

  void bind() {
    auto& runtime = runtime::Runtime::instance();
    for (const TracedProgram::Binding& binding : traced_.bindings) {
      if (binding.kind != TracedProgram::Binding::Kind::Source) {
        inputs_.push_back(run_input(binding.constant));
        continue;
      }
      NodePtr& node = nodes_[binding.source];
      joined(traced_.placement, node->placement(), "compile");
      if (binding.donated) {
        inputs_.push_back(donated(binding.source));
      } else if (binding.by_value) {
        runtime::RunInput input = run_input(node);
        if (input.storage) {
          runtime.copy_out(&input.bits, input.storage, size_of(node->form.dtype));
          input.storage = nullptr;
        }
        inputs_.push_back(std::move(input));
      } else {
        settle(node);
        runtime::RunInput input;
        input.shape = &node->form.shape;
        input.storage = storage_of(node);
        inputs_.push_back(std::move(input));
      }
    }
  }

  // Memory that may be overwritten: that of the value when nobody else holds it, else a copy. The
  // handle has let go of the value, so that nobody can come to hold it any more.
  runtime::RunInput donated(std::size_t source) {
    auto& runtime = runtime::Runtime::instance();
    const NodePtr& node = nodes_[source];
    settle(node);
    runtime::StoragePtr storage;
    if (node.use_count() == 1) {
      NodePtr last = node; // its release orders what others read of the value before this call
      last = nullptr;
      std::lock_guard lock(engine_mutex());
      if (node->storage && node->inputs.empty() && node->storage.use_count() == 1 &&
          !node->storage->borrowed())
        storage = std::move(node->storage);
    }
    if (!storage) {
      const runtime::StoragePtr old = storage_of(node);
      storage = old;
      if (node->kind != Node::Kind::Number) {
        storage = runtime.allocate(old->bytes());
        runtime.copy(storage, old, old->bytes());
      }
    }
    runtime::RunInput input;
    input.shape = &node->form.shape;
    input.storage = storage;
    storage->change();
    donated_.emplace(source, std::move(storage));
    return input;
  }

  // A result that depends on leaves says so, and has no recipe: backward() through it is an error,
  // not a gradient that is silently zero.
  NodePtr result_for(const Value& value) {
    NodePtr node = node_for(value);
    if (value.needs_grad && value.kind == Value::Kind::Output) {
      node = alias_node(node);
      node->needs_grad.store(true);
    }
    return node;
  }

  NodePtr node_for(const Value& value) {
    switch (value.kind) {
    case Value::Kind::Output: {
      if (made_.size() <= value.number)
        made_.resize(outputs_.size());
      NodePtr& node = made_[value.number];
      if (!node) {
        const ir::Node& form = traced_.graph[traced_.graph.outputs[value.number]];
        node = data_node(form.dtype, sizes_.of(form.shape), outputs_[value.number]);
        if (traced_.placement.kind != Placement::Kind::Numbers)
          node->place_at(traced_.placement);
      }
      return node;
    }
    case Value::Kind::Source: {
      const NodePtr& node = nodes_[value.number];
      return node->needs_grad.load() ? alias_node(node) : node;
    }
    default:
      return value.constant;
    }
  }

  // The memory of a state's new value.
  runtime::StoragePtr new_value(const TracedProgram::State& state) {
    const Value& value = state.value;
    if (value.donated) // written in place, or into the copy that stands for it
      return std::move(donated_.at(state.source));
    switch (value.kind) {
    case Value::Kind::Output:
      return outputs_[value.number];
    case Value::Kind::Source:
      return storage_of(nodes_[value.number]);
    default:
      return storage_of(value.constant);
    }
  }

  void write_states() {
    std::vector<Landing> landings;
    for (std::size_t i = 0; i < traced_.states.size(); ++i)
      if (claims_[i])
        landings.push_back({claims_[i], new_value(traced_.states[i])});
    for (const TracedProgram::State& state : traced_.states)
      if (!is_claimed(state))
        *call_.leaves[state.leaf].tensor =
            state.value.kind == Value::Kind::Empty ? Tensor() : Access::wrap(node_for(state.value));
    // Nothing of this call may hold the values when they land: the next call would copy them.
    made_.clear();
    outputs_.clear();
    nodes_.clear();
    claims_.clear();
    land(std::move(landings));
  }

  // A state that is not written is the old value.
  void give_back(std::size_t source, const NodePtr& claim) noexcept {
    const NodePtr& old = nodes_[source];
    if (const auto taken = donated_.find(source); taken != donated_.end()) {
      std::lock_guard lock(engine_mutex());
      if (!old->is_leaf_value())
        old->storage = std::move(taken->second);
    }
    withdraw(claim, old);
    replace_outside(*handles_[source], claim, old);
  }

  const TracedProgram& traced_;
  const Call& call_;
  const std::vector<std::shared_ptr<Handle>> handles_; // by source
  std::vector<NodePtr> nodes_;                         // by source: values at the start of the call
  std::vector<NodePtr> claims_;                        // by state: the value to come; null: none
  std::unordered_map<std::size_t, runtime::StoragePtr> donated_; // by source
  Sizes sizes_;                                                  // of symbolic dims
  std::vector<runtime::RunInput> inputs_;
  std::vector<runtime::StoragePtr> outputs_;
  std::vector<NodePtr> made_; // by output
};

} // namespace

namespace {

std::string of_handle(const Handle& handle) {
  return name_of(handle.dtype) + to_string(handle.shape);
}

// (calls_mutex) The handles of arguments and of what is captured, read through the objects that led
// to them.
void find_handles(const TracedProgram& traced, const Call& call, Resolved& found) {
  static std::uint64_t last_mark = 0;
  const std::uint64_t mark = ++last_mark;
  for (std::size_t i = 0; i < traced.sources.size(); ++i) {
    const TraceSource& source = traced.sources[i];
    if (source.kind == TraceSource::Kind::Gradient)
      continue;
    std::shared_ptr<Handle>& handle = found.handles[i];
    if (source.kind == TraceSource::Kind::Argument)
      handle = Access::handle(*call.leaves[source.leaf].tensor);
    for (const OwnerPtr& owner : source.reached_by) {
      if (!owner->object) {
        found.gone = true;
        found.changed = fmt::format("an object that led to {} was destroyed, moved or emptied",
                                    traced.names[i]);
        return;
      }
      const auto& bound = Access::handle(*owner->object);
      if (!handle)
        handle = bound;
      if (handle != bound) {
        found.changed = fmt::format(
            "{} is reached by several ways, which lead to different tensors now", traced.names[i]);
        return;
      }
    }
    if (!handle)
      handle = source.handle;
    if (handle->mark == mark) {
      found.changed = fmt::format("{} and another tensor are one now", traced.names[i]);
      return;
    }
    handle->mark = mark;
  }
  for (const LookedAt& looked : traced.looked_at)
    if (!looked.owner->object || Access::handle(*looked.owner->object) != looked.handle) {
      found.gone = !looked.owner->object;
      found.changed = fmt::format("a captured {} that it only looks at is another one",
                                  of_handle(*looked.handle));
      return;
    }
}

// What differs between a captured tensor and the one of the trace, for which the trace stands.
std::string misfit(const TracedProgram& traced, std::size_t i, const Handle& handle) {
  const TraceSource& source = traced.sources[i];
  const NodePtr node = handle.node();
  if (node->scope)
    return fmt::format("{} belongs to {} now", traced.names[i], node->scope->name);
  if (node->needs_grad.load() != traced.needs_grad[i])
    return fmt::format("{} requires {} gradient now", traced.names[i],
                       traced.needs_grad[i] ? "no" : "a");
  if (device_code(*node) != traced.devices[i])
    return fmt::format("{} is on {} now", traced.names[i], device_name(node->placement()));
  if (&handle == source.handle.get())
    return {};
  if (handle.dtype != source.handle->dtype || handle.shape != source.handle->shape)
    return fmt::format("{} is {} now and was {}", traced.names[i], of_handle(handle),
                       of_handle(*source.handle));
  if ((slot_of(node) != nullptr) != traced.leaf[i])
    return fmt::format("{} is {} leaf now", traced.names[i], traced.leaf[i] ? "no" : "a");
  return {};
}

// The gradient of a handle's value, and whether it has a place for one.
std::pair<bool, std::shared_ptr<Handle>> gradient_of(const Handle& handle) {
  const auto slot = slot_of(handle.node());
  if (!slot)
    return {false, nullptr};
  std::lock_guard lock(slot->mutex);
  return {true, slot->gradient};
}

} // namespace

Resolved resolve(const TracedProgram& traced, const Call& call) {
  Resolved found;
  found.handles.resize(traced.sources.size());
  {
    std::lock_guard lock(calls_mutex());
    find_handles(traced, call, found);
  }
  if (!found.changed.empty())
    return found;
  for (std::size_t i = 0; i < traced.sources.size() && found.changed.empty(); ++i)
    if (traced.sources[i].kind == TraceSource::Kind::Captured)
      found.changed = misfit(traced, i, *found.handles[i]);
  for (const Trace::GradientRead& read : traced.gradient_reads) {
    const auto [has_place, gradient] = gradient_of(*found.handles[read.owner]);
    if (!has_place || (gradient != nullptr) != read.present)
      found.changed = fmt::format("the gradient of {} came or went", traced.names[read.owner]);
    for (std::size_t i = 0; i < traced.sources.size(); ++i)
      if (traced.sources[i].kind == TraceSource::Kind::Gradient &&
          traced.sources[i].owner == read.owner)
        found.handles[i] = gradient;
  }
  return found;
}

runtime::DeviceNumber device_code(const Node& node) noexcept {
  return node.placement().is_bound() ? device_for(node.placement()) : runtime::DeviceNumber{0};
}

Result replay(const TracedProgram& traced, const Call& call,
              std::vector<std::shared_ptr<Handle>> handles) {
  return Replay(traced, call, std::move(handles)).run();
}

} // namespace egret::detail

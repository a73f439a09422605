// One call of a traced function: inputs bound, the program run, states written, results given.
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/engine.h"
#include "tensor/sizes.h"
#include "tensor/trace.h"

namespace egret::detail {

namespace {

using Value = TracedProgram::Value;

std::shared_ptr<Handle> handle_of(const TracedProgram& traced, const Call& call,
                                  std::size_t source) {
  const TraceSource& from = traced.sources[source];
  switch (from.kind) {
  case TraceSource::Kind::Argument:
    return Access::handle(*call.leaves[from.leaf].tensor);
  case TraceSource::Kind::Captured:
    return from.handle;
  default: {
    const auto slot = slot_of(handle_of(traced, call, from.owner)->node());
    ensure(slot != nullptr, "the gradient of a tensor without one is read");
    std::lock_guard lock(slot->mutex);
    return slot->gradient;
  }
  }
}

NodePtr leaf_with_slot(DType dtype, const Shape& shape, runtime::StoragePtr storage,
                       const std::shared_ptr<GradSlot>& slot) {
  NodePtr node = data_node(dtype, shape, std::move(storage));
  if (slot)
    make_grad_leaf(*node, slot);
  return node;
}

// One call of a traced program.
class Replay {
public:
  Replay(const TracedProgram& traced, const Call& call) : traced_(traced), call_(call) {
    for (std::size_t i = 0; i < traced.sources.size(); ++i) {
      handles_.push_back(handle_of(traced, call, i));
      nodes_.push_back(handles_.back()->node());
      if (!traced.symbolic[i].empty())
        sizes_.bind(traced.symbolic[i], nodes_.back()->form.shape, "compile", "an argument");
    }
  }

  Result run() {
    materialize();
    if (traced_.program) {
      bind();
      outputs_ = traced_.program->run(inputs_);
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

  // Memory that may be overwritten: that of the value when nobody else holds it, else a copy.
  runtime::RunInput donated(std::size_t source) {
    auto& runtime = runtime::Runtime::instance();
    NodePtr& node = nodes_[source];
    const DType dtype = node->form.dtype;
    const std::shared_ptr<GradSlot> slot = slot_of(node);
    settle(node);
    bool ours = false;
    {
      std::lock_guard lock(engine_mutex());
      // Two owners: the handle and nodes_.
      ours = node->storage && node->inputs.empty() && node.use_count() == 2 &&
             node->storage.use_count() == 1;
    }
    if (!ours) {
      auto old = storage_of(node);
      auto fresh = old;
      if (node->kind != Node::Kind::Number) {
        fresh = runtime.allocate(old->bytes());
        runtime.copy(fresh, old, old->bytes());
      }
      const Shape shape = node->form.shape;
      node = leaf_with_slot(dtype, shape, std::move(fresh), slot);
    }
    runtime::RunInput input;
    input.shape = &node->form.shape;
    input.storage = storage_of(node);
    input.storage->change();
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

  void write_states() {
    for (const TracedProgram::State& state : traced_.states) {
      if (state.value.donated) { // written in place, or into the copy that stands for it
        if (handles_[state.source]->node() != nodes_[state.source])
          handles_[state.source]->set(nodes_[state.source]);
        continue;
      }
      if (state.value.kind == Value::Kind::Empty) {
        *call_.leaves[state.leaf].tensor = Tensor();
        continue;
      }
      NodePtr node = node_for(state.value);
      if (!state.has_source || state.reshaped) {
        *call_.leaves[state.leaf].tensor = Access::wrap(std::move(node));
        continue;
      }
      if (const auto slot = slot_of(nodes_[state.source]))
        node = leaf_with_slot(node->form.dtype, node->form.shape, storage_of(node), slot);
      handles_[state.source]->set(std::move(node));
    }
  }

  const TracedProgram& traced_;
  const Call& call_;
  std::vector<std::shared_ptr<Handle>> handles_;
  std::vector<NodePtr> nodes_; // by source: values at the start of the call
  Sizes sizes_;                // of symbolic dims
  std::vector<runtime::RunInput> inputs_;
  std::vector<runtime::StoragePtr> outputs_;
  std::vector<NodePtr> made_; // by output
};

} // namespace

bool still_holds(const TracedProgram& traced, const Call& call) {
  for (std::size_t i = 0; i < traced.sources.size(); ++i) {
    if (traced.sources[i].kind != TraceSource::Kind::Captured)
      continue;
    const NodePtr node = traced.sources[i].handle->node();
    if (node->needs_grad.load() != traced.needs_grad[i])
      return false;
  }
  for (const Trace::GradientRead& read : traced.gradient_reads) {
    const auto slot = slot_of(handle_of(traced, call, read.owner)->node());
    if (!slot)
      return false;
    std::lock_guard lock(slot->mutex);
    if ((slot->gradient != nullptr) != read.present)
      return false;
  }
  return true;
}

Result replay(const TracedProgram& traced, const Call& call) {
  return Replay(traced, call).run();
}

} // namespace egret::detail

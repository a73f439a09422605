// Gradients of lazy tensors: the recipe becomes a graph, autodiff extends it, and what it added is
// recorded as lazy operations again.
#include "egret/grad.h"

#include "egret/passes.h"
#include "saturate/saturate.h"
#include "support/fail.h"
#include "tensor/engine.h"
#include "tensor/ops.h"
#include "tensor/trace.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace egret {

using namespace detail;

namespace {

[[gnu::tls_model("initial-exec")]] thread_local bool recording_gradients = true;

// The part of the recipe that gradients flow through, as a graph; everything else enters as inputs.
struct Recipe {
  ir::Graph graph;
  std::vector<NodePtr> nodes;                        // by graph node; null for what autodiff adds
  std::unordered_map<const Node*, ir::NodeId> place; // of lazy nodes
  std::vector<NodePtr> leaves;                       // those with a slot, in order of discovery

  ir::NodeId enter(const NodePtr& node) {
    if (auto found = place.find(node.get()); found != place.end())
      return found->second;
    const ir::NodeId id =
        graph.input(fmt::format("x{}", graph.inputs().size()), node->form.dtype, node->form.shape);
    return put(node, id);
  }
  ir::NodeId put(const NodePtr& node, ir::NodeId id) {
    if (nodes.size() <= id)
      nodes.resize(id + 1);
    if (!nodes[id])
      nodes[id] = node;
    place.emplace(node.get(), id);
    return id;
  }
};

bool has_recipe(const Node& node) {
  return node.kind == Node::Kind::Op && !node.grad_leaf && node.needs_grad.load() &&
         !node.inputs.empty();
}

// A value that needs a gradient and cannot pass it on.
[[noreturn]] void refuse_dead_end(const Node& node, const char* who) {
  const std::string what = name_of(node.form.dtype) + to_string(node.form.shape);
  switch (node.kind) {
  case Node::Kind::Placeholder:
    fail(ErrorKind::State,
         "{}: `{}` ({}) was computed from tensors that require gradients, outside of {}; detach() "
         "it before the call",
         who, node.form.attrs.name, what, node.scope->name);
  case Node::Kind::Data:
    fail(ErrorKind::State,
         "{}: a value on the way ({}) is the result of a compiled function, which carries no "
         "recipe; "
         "call backward() inside the function, or detach() the result",
         who, what);
  default:
    fail(ErrorKind::State,
         "{}: backward() was called before on a value on the way ({}), which let its recipe go; "
         "pass "
         "retain = true to that call",
         who, what);
  }
}

// What is taken off before an exponential, -max(x) behind stop_gradient, x being in the recipe
// already: its nodes enter as what they are although no gradient passes them, as the rules look for
// them (autodiff/guards.h).
class TakenOff {
public:
  explicit TakenOff(const Recipe& recipe) : recipe_(recipe) {}

  bool has(const NodePtr& node) {
    if (nodes_.count(node.get()) == 0 && is_plain(*node)) {
      std::vector<const Node*> way;
      if (is_minus_max(*node, way))
        nodes_.insert(way.begin(), way.end());
    }
    return nodes_.count(node.get()) != 0;
  }

private:
  static bool is_plain(const Node& node) {
    return node.kind == Node::Kind::Op && !node.grad_leaf && !node.needs_grad.load();
  }
  // Follows views, whose nodes are added to the way.
  static const Node& below_views(const Node& node, std::vector<const Node*>& way) {
    const Node* at = &node;
    way.push_back(at);
    while (is_plain(*at) && (at->form.op == Op::Expand || at->form.op == Op::Reshape) &&
           !at->inputs.empty())
      way.push_back(at = at->inputs[0].get());
    return *at;
  }

  bool is_minus_max(const Node& node, std::vector<const Node*>& way) const {
    const Node& product = below_views(node, way);
    return is_plain(product) && product.form.op == Op::Mul && product.inputs.size() == 2 &&
           ((is_max(*product.inputs[0], way) && is_number(*product.inputs[1], way)) ||
            (is_max(*product.inputs[1], way) && is_number(*product.inputs[0], way)));
  }
  static bool is_number(const Node& node, std::vector<const Node*>& way) {
    const Node& number = below_views(node, way);
    return is_plain(number) && number.form.op == Op::Constant;
  }
  bool is_max(const Node& node, std::vector<const Node*>& way) const {
    const Node& stopped = below_views(node, way);
    if (!is_plain(stopped) || stopped.form.op != Op::StopGradient || stopped.inputs.empty())
      return false;
    const Node* at = stopped.inputs[0].get();
    while (has_recipe(*at) && at->form.op == Op::Reshape)
      at = at->inputs[0].get();
    return has_recipe(*at) && at->form.op == Op::ReduceMax &&
           recipe_.place.count(at->inputs[0].get()) != 0;
  }

  const Recipe& recipe_;
  std::unordered_set<const Node*> nodes_;
};

// `ends`: nodes at which gradients may stop.
Recipe recipe_of(const std::vector<NodePtr>& roots, const std::vector<NodePtr>& ends,
                 const char* who) {
  struct Frame {
    NodePtr node;
    std::size_t next;
  };
  Recipe recipe;
  TakenOff taken_off(recipe);
  std::lock_guard lock(engine_mutex());
  std::vector<Frame> stack;
  std::vector<ir::NodeId> inputs;
  for (const NodePtr& root : roots) {
    stack.push_back({root, 0});
    while (!stack.empty()) {
      const NodePtr node = stack.back().node;
      if (recipe.place.count(node.get())) {
        stack.pop_back();
        continue;
      }
      if (!has_recipe(*node) && !taken_off.has(node)) {
        if (node->needs_grad.load() && !node->grad_leaf &&
            std::find(ends.begin(), ends.end(), node) == ends.end())
          refuse_dead_end(*node, who);
        recipe.enter(node);
        if (node->grad_leaf)
          recipe.leaves.push_back(node);
        stack.pop_back();
        continue;
      }
      std::size_t& next = stack.back().next;
      while (next < node->inputs.size() && recipe.place.count(node->inputs[next].get()))
        ++next;
      if (next < node->inputs.size()) {
        stack.push_back({node->inputs[next], 0});
        continue;
      }
      inputs.clear();
      for (const NodePtr& input : node->inputs)
        inputs.push_back(recipe.place.at(input.get()));
      recipe.put(node, recipe.graph.add(node->form.op, inputs, node->form.attrs));
      stack.pop_back();
    }
  }
  return recipe;
}

// The nodes that autodiff added below `results`, as lazy operations.
std::vector<Tensor> raised(Recipe& recipe, const std::vector<ir::NodeId>& results) {
  const ir::Graph& graph = recipe.graph;
  recipe.nodes.resize(graph.size());
  std::vector<bool> needed(graph.size());
  for (ir::NodeId id : results)
    needed[id] = true;
  for (ir::NodeId id = static_cast<ir::NodeId>(graph.size()); id-- > 0;)
    if (needed[id] && !recipe.nodes[id])
      for (ir::NodeId input : graph[id].inputs)
        needed[input] = true;
  std::vector<bool> forward(graph.size());
  for (ir::NodeId id = 0; id < graph.size(); ++id) {
    forward[id] = recipe.nodes[id] != nullptr;
    if (!needed[id] || recipe.nodes[id])
      continue;
    const ir::Node& node = graph[id];
    Inputs inputs;
    bool known[3] = {};
    for (ir::NodeId input : node.inputs) {
      known[inputs.size()] = forward[input];
      inputs.push_back(recipe.nodes[input]);
    }
    place_together(inputs, {known, inputs.size()});
    recipe.nodes[id] = record_known(node.op, node.dtype, node.shape, std::move(inputs), node.attrs);
  }
  std::vector<Tensor> tensors;
  for (ir::NodeId id : results)
    tensors.push_back(Access::wrap(recipe.nodes[id]));
  return tensors;
}

// The seed of an output as a node of the recipe's graph: ones when none is given.
ir::NodeId seed_of(Recipe& recipe, const NodePtr& output, const Tensor& seed, const char* who) {
  const Shape& shape = output->form.shape;
  if (!seed.defined()) {
    if (!(element_count(shape) == Expr(1)))
      fail(ErrorKind::Shape,
           "{}: {} has more than one element; give a seed of its shape, or sum it first", who,
           to_string(shape));
    return recipe.graph.broadcast(recipe.graph.constant(output->form.dtype, 1), shape);
  }
  if (seed.shape() != shape)
    fail(ErrorKind::Shape, "{}: the seed is {} and the value {}; they must be equal", who,
         shape_of(seed), to_string(shape));
  if (seed.dtype() != output->form.dtype)
    fail(ErrorKind::DType, "{}: the seed is {} and the value {}; they must be equal", who,
         name_of(seed.dtype()), name_of(output->form.dtype));
  return recipe.enter(Access::node(seed, who));
}

// Rules that keep values and not gradients: of equal operands of a maximum each gets its share.
constexpr const char* kSharingRules[] = {"max-again", "max-constants", "amax-of-max"};

// In a traced function that the rules may rewrite, the recipe of `outputs` as they leave it; gives
// the outputs. All of `wrt` must be inputs of the recipe: other nodes may be gone afterwards.
std::vector<ir::NodeId> rewritten(Recipe& recipe, std::vector<ir::NodeId> outputs,
                                  const std::vector<NodePtr>& wrt) {
  auto* const trace = dynamic_cast<Trace*>(current_scope());
  const auto is_input = [&](const NodePtr& node) {
    const auto place = recipe.place.find(node.get());
    return place == recipe.place.end() || recipe.graph[place->second].op == Op::Input;
  };
  if (!trace || !trace->rules || !std::all_of(wrt.begin(), wrt.end(), is_input))
    return outputs;
  saturate::SaturateOptions rules = *trace->rules;
  rules.without.insert(rules.without.end(), std::begin(kSharingRules), std::end(kSharingRules));
  rules.allowed = {};
  for (RuleTag tag : {RuleTag::Exact, RuleTag::Reassociates, RuleTag::Approximate})
    if (trace->rules->allowed.has(tag))
      rules.allowed.add(tag);
  recipe.graph.outputs = std::move(outputs);
  // Markers stay, unlike in normalize(): gradients stop there.
  const Pass simplify = passes::fold_constants() | passes::simplify() | passes::dead_code();
  const ir::Graph simple = simplify(recipe.graph);
  saturate::Saturated saturated(simple, rules);
  Recipe best;
  best.graph = std::move(saturated.extract().at(0));
  best.leaves = std::move(recipe.leaves);
  for (std::size_t slot = 0; slot < recipe.graph.inputs().size(); ++slot)
    best.put(recipe.nodes[recipe.graph.inputs()[slot]], best.graph.inputs()[slot]);
  trace->rules_text += "before autodiff, " +
                       compiler::rules_text(saturated.report(), simple.size(), best.graph.size());
  recipe = std::move(best);
  return std::exchange(recipe.graph.outputs, {});
}

std::vector<Tensor> differentiate(Recipe& recipe, const std::vector<NodePtr>& outputs,
                                  const std::vector<Tensor>& seeds, const std::vector<NodePtr>& wrt,
                                  const char* who) {
  const QueueHold hold; // a gradient is one with what it is made of
  std::vector<ir::NodeId> output_ids, seed_ids, wrt_ids;
  for (const NodePtr& output : outputs)
    output_ids.push_back(recipe.place.at(output.get()));
  output_ids = rewritten(recipe, std::move(output_ids), wrt);
  for (std::size_t i = 0; i < outputs.size(); ++i)
    seed_ids.push_back(seed_of(recipe, outputs[i], seeds[i], who));
  for (const NodePtr& node : wrt)
    wrt_ids.push_back(recipe.enter(node));
  const auto results = gradients(recipe.graph, output_ids, seed_ids, wrt_ids);
  std::vector<Tensor> found = raised(recipe, results);
  for (std::size_t i = 0; i < wrt.size(); ++i)
    if (const Placement at = wrt[i]->placement(); at.is_bound())
      if (const NodePtr node = Access::node(found[i], who); !joined(at, node->placement()))
        found[i] = Access::wrap(placed(node, at, who));
  return found;
}

} // namespace

NoGrad::NoGrad() noexcept : before_(recording_gradients) {
  recording_gradients = false;
}
NoGrad::~NoGrad() {
  recording_gradients = before_;
}
bool grad_enabled() noexcept {
  return recording_gradients;
}

std::vector<Tensor> grad(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> seeds) {
  if (!seeds.empty() && seeds.size() != outputs.size())
    fail(ErrorKind::Value, "grad: {} outputs and {} seeds; give one for each, or none",
         outputs.size(), seeds.size());
  std::vector<NodePtr> from, to;
  std::vector<Tensor> given;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const NodePtr node = Access::node(outputs[i], "grad");
    if (node->spent.load())
      fail(ErrorKind::State,
           "grad: backward() has let the recipe of output {} go; pass retain = "
           "true to it",
           i);
    if (!node->needs_grad.load())
      continue; // it depends on nothing that requires a gradient
    from.push_back(node);
    given.push_back(seeds.empty() ? Tensor() : seeds[i]);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    to.push_back(Access::node(inputs[i], "grad"));
    if (!to.back()->needs_grad.load())
      fail(ErrorKind::State,
           "grad: input {} ({}{}) does not require a gradient; call set_requires_grad() on it "
           "before it is used",
           i, name_of(to.back()->form.dtype), to_string(to.back()->form.shape));
  }
  Recipe recipe = recipe_of(from, to, "grad");
  return differentiate(recipe, from, given, to, "grad");
}

std::vector<Tensor> grad(const Operand& output, std::initializer_list<Tensor> inputs) {
  const Tensor& of = output;
  return grad(std::span(&of, 1), std::span(inputs.begin(), inputs.size()));
}

Tensor grad(const Operand& output, const Operand& input) {
  const Tensor &of = output, &by = input;
  return grad(std::span(&of, 1), std::span(&by, 1))[0];
}

// --- Tensor's side

namespace {

bool is_grad_leaf(const Node& node) {
  std::lock_guard lock(engine_mutex());
  return node.grad_leaf;
}

} // namespace

bool Tensor::requires_grad() const {
  return Access::node(*this, "requires_grad")->needs_grad.load();
}

Tensor& Tensor::set_requires_grad(bool on) {
  NodePtr node = Access::node(*this, "set_requires_grad");
  if (!is_float(node->form.dtype))
    fail(ErrorKind::DType, "set_requires_grad: {} has no gradients; only floats have",
         name_of(node->form.dtype));
  if (node->needs_grad.load() == on) {
    if (on && is_grad_leaf(*node)) { // a clone of a leaf becomes the leaf, too
      auto slot = slot_of(node);
      if (!slot)
        make_grad_leaf(*node, slot = std::make_shared<GradSlot>());
      Access::own(*this, std::move(slot));
    }
    return *this;
  }
  if (on) {
    if (node->handles.handles() > 1 || node->kind == Node::Kind::Number) {
      node = node->kind == Node::Kind::Number ? number_node(node->number) : alias_node(node);
      Access::put(*this, node);
    }
    auto slot = std::make_shared<GradSlot>();
    make_grad_leaf(*node, slot);
    Access::own(*this, std::move(slot));
    return *this;
  }
  if (!is_leaf())
    fail(ErrorKind::State, "set_requires_grad: this value is computed from tensors that require "
                           "gradients; use detach()");
  Access::put(*this, alias_node(node));
  Access::own(*this, nullptr);
  return *this;
}

namespace {

// A slot's gradient as this thread sees it: within a traced function it is the trace's own.
std::shared_ptr<Handle> gradient_in(GradSlot& slot) {
  return current_scope() ? current_scope()->read_gradient(slot) : slot.gradient;
}
// Gives the one before, which is to be let go after the lock: it may hold memory of somebody who is
// told then.
std::shared_ptr<Handle> put_gradient(GradSlot& slot, std::shared_ptr<Handle> gradient) {
  if (!current_scope())
    return std::exchange(slot.gradient, std::move(gradient));
  current_scope()->write_gradient(slot, std::move(gradient));
  return nullptr;
}

} // namespace

bool Tensor::is_leaf() const {
  return !requires_grad() || Access::slot(*this, "is_leaf") != nullptr;
}

Tensor Tensor::grad() const {
  const auto slot = Access::slot(*this, "grad");
  if (!slot)
    return {};
  std::lock_guard lock(slot->mutex);
  const auto handle = gradient_in(*slot);
  return handle ? Access::share(handle) : Tensor();
}

void Tensor::set_grad(const Tensor& gradient) {
  const auto slot = Access::slot(*this, "set_grad");
  if (!slot)
    fail(ErrorKind::State, "set_grad: this is no leaf that requires a gradient");
  if (gradient.defined() && (gradient.shape() != shape() || gradient.dtype() != dtype()))
    fail(ErrorKind::Shape, "set_grad: the gradient is {}{} and the tensor {}{}; they must be equal",
         name_of(gradient.dtype()), shape_of(gradient), name_of(dtype()), shape_of(*this));
  std::shared_ptr<Handle> before;
  std::lock_guard lock(slot->mutex);
  before = put_gradient(*slot, gradient.defined() ? Access::handle(gradient) : nullptr);
}

void Tensor::zero_grad() {
  if (const auto slot = Access::slot(*this, "zero_grad")) {
    std::shared_ptr<Handle> before;
    std::lock_guard lock(slot->mutex);
    before = put_gradient(*slot, nullptr);
  }
}

void Tensor::backward(const Tensor& seed, bool retain) const {
  const NodePtr root = Access::node(*this, "backward");
  if (!root->needs_grad.load())
    fail(ErrorKind::State, "backward: the value does not depend on any tensor that requires a "
                           "gradient; call set_requires_grad() on the leaves first");
  if (root->spent.load())
    fail(ErrorKind::State, "backward: it was called before on this value, which let the recipe go; "
                           "pass retain = true to the first call");
  NoGrad guard;
  const QueueHold hold;
  Recipe recipe = recipe_of({root}, {}, "backward");
  const std::vector<NodePtr> leaves = recipe.leaves;
  const std::vector<Tensor> found = differentiate(recipe, {root}, {seed}, leaves, "backward");
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto slot = slot_of(leaves[i]);
    if (!slot)
      continue; // no handle is left that could see it
    std::lock_guard lock(slot->mutex);
    const auto before = gradient_in(*slot); // an operand of the sum
    put_gradient(*slot, Access::handle(before ? Access::share(before) + found[i] : found[i]));
  }
  if (retain)
    return;
  Inputs dropped; // let go after the lock
  std::lock_guard lock(engine_mutex());
  if (root->grad_leaf)
    return;
  root->spent.store(true);
  if (root->storage && !root->in_flight)
    dropped = std::move(root->inputs);
}

// --- gradcheck

namespace {

// Fixed numbers in [0.5, 1.5) that weigh the elements of the outputs.
Tensor weights_of(const Tensor& output, std::uint64_t seed) {
  Generator generator(seed);
  return rand(output.shape(), generator, DType::F64) + 0.5;
}

void require_f64(const std::vector<Tensor>& inputs, const char* who) {
  for (const Tensor& input : inputs)
    if (Access::raw(input, who)->form.dtype != DType::F64)
      fail(ErrorKind::DType, "{}: inputs must be f64, got {}; convert with to(DType::F64)", who,
           name_of(input.dtype()));
}

} // namespace

GradCheck gradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
                    const std::vector<Tensor>& inputs, const GradCheckOptions& options) {
  require_f64(inputs, "gradcheck");
  auto weighed = [&](const std::vector<Tensor>& at) {
    Tensor total = zeros({}, DType::F64);
    std::uint64_t number = 1;
    for (const Tensor& output : function(at))
      total = total + sum(output.to(DType::F64) * weights_of(output, number++));
    return total;
  };
  std::vector<std::vector<double>> values;
  for (const Tensor& input : inputs)
    values.push_back(input.to_vector<double>());
  // The function may differentiate by its inputs, so that they are leaves for the differences, too.
  auto leaves_at = [&](const std::vector<std::vector<double>>& at) {
    std::vector<Tensor> leaves;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      leaves.push_back(egret::tensor(at[i], inputs[i].shape()).set_requires_grad());
    return leaves;
  };
  const std::vector<Tensor> leaves = leaves_at(values);
  const Tensor total = weighed(leaves);
  GradCheck result;
  double worst = -1;
  const std::vector<Tensor> analytic = grad(std::span(&total, 1), leaves);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto found = analytic[i].to_vector<double>();
    for (std::size_t e = 0; e < found.size(); ++e) {
      auto shifted = [&](double by) {
        auto moved = values;
        moved[i][e] += by;
        return weighed(leaves_at(moved)).item<double>();
      };
      const double numeric = (shifted(options.step) - shifted(-options.step)) / (2 * options.step);
      const double error =
          std::abs(found[e] - numeric) / (options.absolute + options.relative * std::abs(numeric));
      const bool bad = !(error <= 1);
      const std::string text =
          fmt::format("input {} element {}: analytic {}, numeric {}", i, e, found[e], numeric);
      if (bad && result.ok) {
        result.ok = false;
        result.first = text;
      }
      if (!(error <= worst)) {
        worst = error;
        result.max_error = error;
        result.worst = text;
      }
    }
  }
  return result;
}

GradCheck gradcheck(const std::function<Tensor(const Tensor&)>& function, const Tensor& input,
                    const GradCheckOptions& options) {
  return gradcheck(
      [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{function(in[0])}; },
      std::vector<Tensor>{input}, options);
}

GradCheck
gradgradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function,
              const std::vector<Tensor>& inputs, const GradCheckOptions& options) {
  require_f64(inputs, "gradgradcheck");
  std::vector<Tensor> all = inputs; // and a seed for each output
  std::vector<DType> types;
  std::uint64_t number = 101;
  for (const Tensor& output : function(inputs)) {
    all.push_back(weights_of(output, number++));
    types.push_back(output.dtype());
  }
  const auto gradients = [&](const std::vector<Tensor>& at) {
    const std::vector<Tensor> in(at.begin(),
                                 at.begin() + static_cast<std::ptrdiff_t>(inputs.size()));
    std::vector<Tensor> seeds;
    for (std::size_t i = 0; i < types.size(); ++i)
      seeds.push_back(at[inputs.size() + i].to(types[i]));
    return grad(function(in), in, seeds);
  };
  return gradcheck(gradients, all, options);
}

GradCheck gradgradcheck(const std::function<Tensor(const Tensor&)>& function, const Tensor& input,
                        const GradCheckOptions& options) {
  return gradgradcheck(
      [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{function(in[0])}; },
      std::vector<Tensor>{input}, options);
}

} // namespace egret

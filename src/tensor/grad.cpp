// Gradients of lazy tensors, as users ask for them.
#include "egret/grad.h"

#include "egret/functional.h"
#include "egret/random.h"
#include "support/fail.h"
#include "tensor/derivatives.h"
#include "tensor/engine.h"
#include "tensor/ops.h"

#include <utility>

namespace egret {

using namespace detail;

namespace {

[[gnu::tls_model("initial-exec")]] thread_local bool recording_gradients = true;

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
  std::vector<NodePtr> from, to, given;
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
    given.push_back(seeds.empty() || !seeds[i].defined() ? nullptr
                                                         : Access::node(seeds[i], "grad"));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    to.push_back(Access::node(inputs[i], "grad"));
    if (!to.back()->needs_grad.load())
      fail(ErrorKind::State,
           "grad: input {} ({}{}) does not require a gradient; call set_requires_grad() on it "
           "before it is used",
           i, name_of(to.back()->form.dtype), to_string(to.back()->form.shape));
  }
  const Derivatives found = differentiate({from, given, &to, "grad"});
  std::vector<Tensor> gradients;
  for (const NodePtr& gradient : found.gradients)
    gradients.push_back(Access::wrap(gradient));
  return gradients;
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
  const EngineLock lock(node);
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
  const NodePtr given = seed.defined() ? Access::node(seed, "backward") : nullptr;
  const Derivatives found =
      differentiate({std::span(&root, 1), std::span(&given, 1), nullptr, "backward"});
  for (std::size_t i = 0; i < found.by.size(); ++i) {
    const auto slot = slot_of(found.by[i]);
    if (!slot)
      continue; // no handle is left that could see it
    const Tensor gradient = Access::wrap(found.gradients[i]);
    std::lock_guard lock(slot->mutex);
    const auto before = gradient_in(*slot); // an operand of the sum
    put_gradient(*slot, Access::handle(before ? Access::share(before) + gradient : gradient));
  }
  if (retain)
    return;
  Inputs dropped; // let go after the lock
  const EngineLock lock(*root);
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

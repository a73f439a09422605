// The handle's own members: queries, reading, in-place updates, and the short forms of functions.
#include "egret/tensor.h"

#include "egret/grad.h"
#include "runtime/count.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "tensor/engine.h"
#include "tensor/ops.h"
#include "tensor/owners.h"

#include <algorithm>
#include <cstring>

namespace egret {

using namespace detail;

Tensor::~Tensor() {
  if (handle_ && handle_->watched.load())
    object_gone(this);
  Access::leaving(*this);
}
Tensor::Tensor(const Tensor& other) noexcept : handle_(other.handle_) {
  if (Scope* scope = current_scope())
    scope->reached(other);
  if (handle_ && handle_->has_temporary())
    handle_->hold();
}
Tensor::Tensor(Tensor&& other) noexcept {
  if (other.handle_ && other.handle_->watched.load())
    object_gone(&other);
  Access::leaving(other);
  handle_ = std::move(other.handle_);
}
Tensor& Tensor::operator=(const Tensor& other) noexcept {
  if (Scope* scope = current_scope())
    scope->reached(other);
  if (handle_ != other.handle_)
    Access::rebind(*this, other.handle_);
  statement_ended();
  return *this;
}
Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this == &other)
    return *this;
  if (other.handle_ && other.handle_->watched.load())
    object_gone(&other);
  Access::leaving(other);
  Access::rebind(*this, std::move(other.handle_));
  statement_ended();
  return *this;
}
Tensor::Tensor(std::shared_ptr<Handle> handle) noexcept : handle_(std::move(handle)) {}

// --- queries

const Shape& Tensor::shape() const {
  return Access::shape(*this, "shape");
}
DType Tensor::dtype() const {
  return Access::held(*this, "dtype").dtype;
}
std::int64_t Tensor::rank() const {
  return static_cast<std::int64_t>(Access::shape(*this, "rank").size());
}
std::int64_t Tensor::size(std::int64_t axis) const {
  const Shape& shape = Access::shape(*this, "size");
  const auto at = axis_of(axis, static_cast<std::int64_t>(shape.size()), shape, "size");
  const Expr& dim = shape[static_cast<std::size_t>(at)];
  if (!dim.is_constant())
    fail(ErrorKind::Shape, "size: dim {} of {} is symbolic; its size is known only at run time",
         dim.str(), to_string(shape));
  return dim.value();
}
std::int64_t Tensor::numel() const {
  std::int64_t count = 1;
  for (std::int64_t size : sizes())
    count *= size;
  return count;
}
std::vector<std::int64_t> Tensor::sizes() const {
  const Shape& shape = Access::shape(*this, "sizes");
  if (std::all_of(shape.begin(), shape.end(), [](const Expr& dim) { return dim.is_constant(); }))
    return concrete(shape, "sizes");
  return concrete(Access::readable(*this, "sizes")->form.shape, "sizes");
}
bool Tensor::is_materialized() const {
  const NodePtr node = Access::readable(*this, "is_materialized");
  const EngineLock lock(*node);
  return node->kind == Node::Kind::Number || node->storage != nullptr;
}

// --- reading

namespace detail {

void read_elements(const Tensor& a, DType dtype, void* out, std::size_t count, const char* who) {
  NodePtr node = Access::readable(a, who);
  const auto sizes = concrete(node->form.shape, who);
  std::size_t have = 1;
  for (std::int64_t size : sizes)
    have *= static_cast<std::size_t>(size);
  if (have != count)
    fail(ErrorKind::Shape, "{}: {} has {} elements; one is needed (to_vector() reads all)", who,
         to_string(node->form.shape), have);
  if (node->kind == Node::Kind::Number) {
    const Scalar value = Access::wrap(node).dtype() == dtype
                             ? node->number
                             : egret::apply(Op::Cast, dtype, std::span(&node->number, 1));
    std::memcpy(out, &value.bits, size_of(dtype));
    return;
  }
  if (have == 0)
    return;
  auto& runtime = runtime::Runtime::instance();
  if (node->form.dtype == dtype) {
    evaluate(node, who);
    runtime.copy_out(out, storage_of(node), count * size_of(dtype));
    return;
  }
  // Evaluated as it is, so that it is kept; converted on this side.
  evaluate(node, who);
  const DType from = node->form.dtype;
  const std::size_t width = size_of(from);
  std::vector<std::byte> bytes(count * width);
  runtime.copy_out(bytes.data(), storage_of(node), bytes.size());
  auto* to = static_cast<std::byte*>(out);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * width, width);
    const Scalar value = Scalar::from_bits(from, bits);
    const Scalar converted = egret::apply(Op::Cast, dtype, std::span(&value, 1));
    std::memcpy(to + i * size_of(dtype), &converted.bits, size_of(dtype));
  }
}

} // namespace detail

std::vector<std::byte> Tensor::to_bytes() const {
  const NodePtr node = Access::node(*this, "to_bytes");
  std::vector<std::byte> bytes(static_cast<std::size_t>(numel()) * size_of(node->form.dtype));
  if (!bytes.empty())
    read_elements(*this, node->form.dtype, bytes.data(), static_cast<std::size_t>(numel()),
                  "to_bytes");
  return bytes;
}

Tensor Tensor::eval() const& {
  evaluate(Access::readable(*this, "eval"), "eval");
  return *this;
}

Tensor Tensor::eval() && {
  evaluate(Access::readable(*this, "eval"), "eval");
  return std::move(*this);
}

void eval(std::span<const Tensor> tensors) {
  std::vector<NodePtr> roots;
  for (const Tensor& t : tensors)
    roots.push_back(Access::readable(t, "eval"));
  evaluate(roots, "eval");
}

void eval(std::initializer_list<Tensor> tensors) {
  eval(std::span<const Tensor>(tensors.begin(), tensors.size()));
}

// --- conversions

Tensor Tensor::to(DType type) const& {
  return Access::wrap(cast_node(Access::node(*this, "to"), type));
}

Tensor Tensor::clone() const& {
  return Access::wrap(Access::node(*this, "clone"));
}

Tensor Tensor::detach() const& {
  const NodePtr node = Access::node(*this, "detach");
  return Access::wrap(node->needs_grad.load() ? alias_node(node) : node);
}

Tensor Tensor::bitcast(DType type) const& {
  Access::held(*this, "bitcast");
  if (size_of(type) != size_of(dtype()))
    fail(ErrorKind::DType, "bitcast: {} has {} bytes an element and {} has {}; they must be equal",
         name_of(dtype()), size_of(dtype()), name_of(type), size_of(type));
  return apply(Op::Bitcast, {this}, {.dtype = type}, "bitcast");
}

// --- in place

namespace {

NodePtr fitted(const Tensor& target, const Tensor& value, const char* who) {
  const Shape shape = target.shape();
  if (!broadcasts_to(value.shape(), shape))
    fail(ErrorKind::Shape, "{}: {} does not broadcast to {}, the shape of what is updated", who,
         shape_of(value), to_string(shape));
  const Tensor result = broadcast_to(value.to(target.dtype()), shape, who);
  return Access::node(result, who);
}

} // namespace

namespace detail {

void update(const Tensor& target, const std::function<Tensor(const Tensor& now)>& next,
            const char* who) {
  for (;;) {
    const NodePtr old = Access::node(target, who); // within a scope this captures the handle
    const auto slot = Access::slot(target, who);
    if (slot && grad_enabled())
      fail(ErrorKind::State,
           "{}: in-place update of a leaf that requires a gradient; do it while a NoGrad lives",
           who);
    NodePtr value = fitted(target, next(Access::wrap(old)), who);
    if (value == old)
      return;
    if (slot) { // it stays a leaf
      if (value->needs_grad.load() || value.use_count() > 1)
        value = alias_node(value);
      make_grad_leaf(*value, slot);
    }
    if (Access::replace(target, old, std::move(value)))
      return statement_ended(); // else another thread has updated it meanwhile: once more, from
                                // what it is now
  }
}

} // namespace detail

#define EGRET_UPDATE(op, function, who)                                                            \
  Tensor& Tensor::operator op(const Arg& other) {                                                  \
    update(                                                                                        \
        *this, [&](const Tensor& now) { return function(now, other); }, who);                      \
    return *this;                                                                                  \
  }
EGRET_UPDATE(+=, egret::add, "+=")
EGRET_UPDATE(-=, egret::sub, "-=")
EGRET_UPDATE(*=, egret::mul, "*=")
EGRET_UPDATE(/=, egret::div, "/=")
#undef EGRET_UPDATE

Tensor& Tensor::assign(const Arg& value) {
  Access::held(*this, "assign");
  Tensor given = value.is_tensor() ? value.tensor() : literal(dtype(), value.number());
  const Placement at = Access::node(*this, "assign")->placement();
  if (const NodePtr node = Access::node(given, "assign"); !joined(at, node->placement()))
    given = Access::wrap(placed(node, at, "assign")); // the value moves, not the place for it
  update(
      *this, [&](const Tensor&) { return given.clone(); }, "assign");
  return *this;
}

// --- short forms

Tensor Tensor::flatten(std::int64_t first, std::int64_t last) const& {
  const Shape from = shape();
  if (from.empty())
    return egret::reshape(*this, {Expr(1)});
  const auto rank = static_cast<std::int64_t>(from.size());
  first = axis_of(first, rank, from, "flatten");
  last = axis_of(last, rank, from, "flatten");
  if (first > last)
    fail(ErrorKind::Axis, "flatten: axis {} comes after axis {} in {}", first, last,
         to_string(from));
  Shape merged(from.begin(), from.begin() + first);
  merged.push_back(element_count(Shape(from.begin() + first, from.begin() + last + 1)));
  merged.insert(merged.end(), from.begin() + last + 1, from.end());
  return egret::reshape(*this, merged);
}

#define EGRET_SHORT_FORM(name, parameters, call)                                                   \
  Tensor Tensor::name parameters const& {                                                          \
    const Tensor& self = *this;                                                                    \
    return egret::call;                                                                            \
  }                                                                                                \
  Tensor Tensor::name parameters&& {                                                               \
    const Operand self(std::move(*this));                                                          \
    return egret::call;                                                                            \
  }
EGRET_SHORT_FORM(reshape, (const Shape& shape), reshape(self, shape))
EGRET_SHORT_FORM(permute, (std::vector<std::int64_t> axes), permute(self, std::move(axes)))
EGRET_SHORT_FORM(transpose, (std::int64_t a, std::int64_t b), transpose(self, a, b))
EGRET_SHORT_FORM(squeeze, (std::optional<std::int64_t> axis), squeeze(self, axis))
EGRET_SHORT_FORM(unsqueeze, (std::int64_t axis), unsqueeze(self, axis))
EGRET_SHORT_FORM(expand, (const Shape& shape), expand(self, shape))
EGRET_SHORT_FORM(flip, (Axes axes), flip(self, axes))
EGRET_SHORT_FORM(sum, (const Axes& axes, bool keepdim), sum(self, axes, keepdim))
EGRET_SHORT_FORM(mean, (const Axes& axes, bool keepdim), mean(self, axes, keepdim))
EGRET_SHORT_FORM(var, (const Axes& axes, bool keepdim, double correction),
                 var(self, axes, keepdim, correction))
EGRET_SHORT_FORM(std, (const Axes& axes, bool keepdim, double correction),
                 stddev(self, axes, keepdim, correction))
EGRET_SHORT_FORM(prod, (const Axes& axes, bool keepdim), prod(self, axes, keepdim))
EGRET_SHORT_FORM(max, (const Axes& axes, bool keepdim), max(self, axes, keepdim))
EGRET_SHORT_FORM(min, (const Axes& axes, bool keepdim), min(self, axes, keepdim))
EGRET_SHORT_FORM(argmax, (std::optional<std::int64_t> axis, bool keepdim),
                 argmax(self, axis, keepdim))
EGRET_SHORT_FORM(argmin, (std::optional<std::int64_t> axis, bool keepdim),
                 argmin(self, axis, keepdim))
EGRET_SHORT_FORM(any, (const Axes& axes, bool keepdim), any(self, axes, keepdim))
EGRET_SHORT_FORM(all, (const Axes& axes, bool keepdim), all(self, axes, keepdim))
EGRET_SHORT_FORM(cumsum, (std::int64_t axis), cumsum(self, axis))
EGRET_SHORT_FORM(pow, (const Arg& exponent), pow(self, exponent))
EGRET_SHORT_FORM(exp, (), exp(self))
EGRET_SHORT_FORM(log, (), log(self))
EGRET_SHORT_FORM(sqrt, (), sqrt(self))
EGRET_SHORT_FORM(rsqrt, (), rsqrt(self))
EGRET_SHORT_FORM(square, (), square(self))
EGRET_SHORT_FORM(abs, (), abs(self))
EGRET_SHORT_FORM(sin, (), sin(self))
EGRET_SHORT_FORM(cos, (), cos(self))
EGRET_SHORT_FORM(tanh, (), tanh(self))
EGRET_SHORT_FORM(sigmoid, (), sigmoid(self))
EGRET_SHORT_FORM(relu, (), relu(self))
EGRET_SHORT_FORM(clamp, (std::optional<Number> low, std::optional<Number> high),
                 clamp(self, low, high))
EGRET_SHORT_FORM(softmax, (std::int64_t axis), softmax(self, axis))
EGRET_SHORT_FORM(log_softmax, (std::int64_t axis), log_softmax(self, axis))
EGRET_SHORT_FORM(logsumexp, (std::int64_t axis, bool keepdim), logsumexp(self, axis, keepdim))
EGRET_SHORT_FORM(matmul, (const Operand& other), matmul(self, other))
#undef EGRET_SHORT_FORM

// --- of temporaries

#define EGRET_OF_TEMPORARY(name, parameters, arguments)                                            \
  Tensor Tensor::name parameters&& {                                                               \
    const Operand self(std::move(*this));                                                          \
    return self.name arguments;                                                                    \
  }
EGRET_OF_TEMPORARY(to, (DType type), (type))
EGRET_OF_TEMPORARY(clone, (), ())
EGRET_OF_TEMPORARY(detach, (), ())
EGRET_OF_TEMPORARY(bitcast, (DType type), (type))
EGRET_OF_TEMPORARY(operator[], (std::int64_t position), (position))
EGRET_OF_TEMPORARY(operator[], (Slice slice), (slice))
EGRET_OF_TEMPORARY(operator[], (std::initializer_list<Index> indices), (indices))
EGRET_OF_TEMPORARY(index, (std::span<const Index> indices), (indices))
EGRET_OF_TEMPORARY(select, (std::int64_t axis, std::int64_t position), (axis, position))
EGRET_OF_TEMPORARY(narrow, (std::int64_t axis, const Expr& begin, const Expr& length),
                   (axis, begin, length))
EGRET_OF_TEMPORARY(flatten, (std::int64_t first, std::int64_t last), (first, last))
#undef EGRET_OF_TEMPORARY

} // namespace egret

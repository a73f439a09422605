#include "tensor/placement.h"

#include "backend/all/backends.h"
#include "egret/grad.h"
#include "support/fail.h"
#include "tensor/engine.h"

#include <utility>

namespace egret {
namespace detail {

using Kind = Placement::Kind;

Placement placement_of_data() noexcept {
  const runtime::DeviceNumber here = runtime::ThreadDevice::now();
  return here == 0 ? Placement{Kind::InUse, 0} : Placement{Kind::Fixed, here};
}

Placement fixed_placement(const Device& device, const char* who) {
  const backend::DeviceName name = backend::backends().parse(device.name(), who);
  runtime::Runtime::instance().pool(name); // refuses what cannot be had
  return {Kind::Fixed, runtime::number_of(name)};
}

runtime::DeviceNumber device_for(Placement placement) noexcept {
  runtime::DeviceNumber device = placement.device;
  if (placement.kind == Kind::Numbers)
    device = runtime::ThreadDevice::now();
  return device == runtime::Runtime::instance().device_number() ? 0 : device;
}

std::optional<Placement> joined(Placement a, Placement b) noexcept {
  if (a == b || b.kind == Kind::Numbers)
    return a;
  if (!a.is_bound() && (b.is_bound() || a.kind == Kind::Numbers))
    return b;
  if (!b.is_bound()) // of two that prefer a device the first one decides
    return a;
  if (device_for(a) != device_for(b))
    return std::nullopt;
  return a.kind == Kind::Fixed ? a : b;
}

Placement joined(Placement a, Placement b, std::string_view who) {
  const auto both = joined(a, b);
  if (!both)
    fail(ErrorKind::Device, "{}: one operand is on {}, another on {}; to(\"{}\") moves one", who,
         device_name(a), device_name(b), device_name(a));
  return *both;
}

std::string device_name(Placement placement) {
  runtime::DeviceNumber device = device_for(placement);
  if (device == 0)
    device = runtime::Runtime::instance().device_number();
  return backend::backends().text(runtime::device_of(device));
}

namespace {

Tensor preferring(Tensor made, runtime::DeviceNumber device) {
  const NodePtr node = Access::handle(made)->node();
  if (node->kind == Node::Kind::Op && !node->placement().is_bound())
    node->place_at({Kind::Preferred, device});
  return made;
}

} // namespace

Tensor made_here(Tensor made) {
  const runtime::DeviceNumber here = runtime::ThreadDevice::now();
  return here == 0 ? made : preferring(std::move(made), here);
}

Tensor made_like(Tensor made, const Tensor& model) {
  const Placement at = Access::node(model, "like")->placement();
  return at.device == 0 ? made : preferring(std::move(made), at.device);
}

NodePtr placed(const NodePtr& node, Placement to, const char* who) {
  const Placement from = node->placement();
  if (from == to || node->kind == Node::Kind::Number)
    return node;
  const bool copies = from.is_bound();
  if (copies && (node->scope || current_scope())) {
    if (device_for(from) == device_for(to))
      return node;
    fail(ErrorKind::State,
         "{}: from {} to {} within {}, which runs on one device; move the tensor before the call",
         who, device_name(from), device_name(to),
         current_scope() ? current_scope()->name : node->scope->name);
  }
  NodePtr moved = record_known(Op::Reshape, node->form.dtype, node->form.shape, {node},
                               {.shape = node->form.shape});
  moved->place_at(to);
  moved->transfer = copies;
  return moved;
}

void place_together(std::span<NodePtr> operands, std::span<const bool> known) {
  std::optional<Placement> common = Placement{};
  for (const NodePtr& operand : operands)
    common = common ? joined(*common, operand->placement()) : common;
  if (common)
    return;
  Placement at;
  for (const bool forward : {true, false})
    for (std::size_t i = 0; i < operands.size() && !at.is_bound(); ++i)
      if (known[i] == forward && operands[i]->placement().is_bound())
        at = operands[i]->placement();
  for (NodePtr& operand : operands)
    if (!joined(at, operand->placement()))
      operand = placed(operand, at, "backward");
}

} // namespace detail

using namespace detail;

Device Tensor::device() const {
  const NodePtr node = Access::node(*this, "device");
  if (!node->placement().is_bound()) {
    const EngineLock lock(*node);
    if (node->storage)
      return Device(node->storage->device().name());
  }
  return Device(device_name(node->placement()));
}

Tensor Tensor::to(const Device& device) const& {
  const NodePtr node = Access::node(*this, "to");
  return Access::wrap(placed(node, fixed_placement(device, "to"), "to"));
}
Tensor Tensor::to(const Device& device) && {
  const Operand self(std::move(*this));
  return self.to(device);
}

Tensor& Tensor::set_device(const Device& device) {
  const Placement to = fixed_placement(device, "set_device");
  const NoGrad no_grad;
  const QueueHold hold;
  std::shared_ptr<GradSlot> slot;
  for (;;) {
    const NodePtr old = Access::node(*this, "set_device");
    slot = Access::slot(*this, "set_device");
    if (!slot && old->needs_grad.load())
      fail(ErrorKind::State,
           "set_device: this value is computed from tensors that require gradients; use to()");
    NodePtr value = placed(old, to, "set_device");
    if (value == old)
      break;
    if (slot)
      make_grad_leaf(*value, slot);
    if (Access::replace(*this, old, std::move(value)))
      break;
  }
  if (const Tensor gradient = slot ? grad() : Tensor(); gradient.defined())
    set_grad(gradient.to(device));
  return *this;
}

bool same_device(const Tensor& a, const Tensor& b) {
  return joined(Access::node(a, "same_device")->placement(),
                Access::node(b, "same_device")->placement())
      .has_value();
}

} // namespace egret

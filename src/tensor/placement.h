// Which device a value belongs to, and how it comes to another one.
#pragma once

#include "egret/device.h"
#include "egret/tensor.h"
#include "runtime/runtime.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace egret::detail {

struct Node;
using NodePtr = std::shared_ptr<Node>;

/// Where a value is, or is computed when it is read.
struct Placement {
  enum class Kind : std::uint8_t {
    Numbers,   ///< made of none but numbers: wherever an operation needs it
    Preferred, ///< the same, made within a DeviceScope: on its device, if nothing else decides
    InUse,     ///< on the device in use (use_device)
    Fixed      ///< on its device
  };
  Kind kind = Kind::Numbers;
  runtime::DeviceNumber device = 0; ///< Preferred, Fixed
  bool is_bound() const noexcept { return kind >= Kind::InUse; }
  friend bool operator==(const Placement&, const Placement&) = default;
};

/// Of what this thread makes from data: its DeviceScope's, or in use.
Placement placement_of_data() noexcept;
/// Opens the device: Error(Device) when it cannot be had. `who` is for errors.
Placement fixed_placement(const Device& device, const char* who);
/// Of an operation on both; nothing where they belong to two devices.
std::optional<Placement> joined(Placement a, Placement b) noexcept;
/// The same; Error(Device) in the name of `who`, with both devices.
Placement joined(Placement a, Placement b, std::string_view who);
/// The same, quick where there is nothing to decide.
inline Placement joined_by(Placement a, Placement b, std::string_view who) {
  if (a == b || b.kind == Placement::Kind::Numbers)
    return a;
  return a.kind == Placement::Kind::Numbers ? b : joined(a, b, who);
}
/// The device to compute on; 0: that of use_device(). Of numbers this thread's.
runtime::DeviceNumber device_for(Placement placement) noexcept;
/// As users write it.
std::string device_name(Placement placement);

/// What this thread has just made by a formula: within a DeviceScope, it prefers its device.
Tensor made_here(Tensor made);
/// What it has just made in the image of `model`: it prefers the model's device.
Tensor made_like(Tensor made, const Tensor& model);
/// The value at a placement that is bound. Records a copy where it is elsewhere: a reshape to its
/// own shape with Node::transfer. Error(State) in the name of `who` for a copy between devices that
/// a traced function or a Graph would compute.
NodePtr placed(const NodePtr& node, Placement to, const char* who);
/// Operands of one gradient's operation on one device: that of those that `known` says, which are
/// values of the forward pass, or else of the first one.
void place_together(std::span<NodePtr> operands, std::span<const bool> known);

} // namespace egret::detail

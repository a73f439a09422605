// Devices by the names that users give them.
#pragma once

#include <string_view>

namespace egret::backend {

struct DeviceName {
  bool cuda = false;
  int index = 0;
};

/// "cpu", "cuda" (the first GPU), "cuda:1". Anything else is an Error(Value) that begins with
/// `who`.
DeviceName parse_device(std::string_view name, std::string_view who);

} // namespace egret::backend

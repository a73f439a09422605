// --device of the commands that compute.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace egret::tool {

/// Adds --device to a command. Empty stands for what EGRET_DEVICE names, or the CPU.
void add_device_option(CLI::App& command, std::string& device);

/// Switches to the device; to be called before anything is recorded. Error(Device) that says what
/// is missing when it cannot be had.
void turn_to(const std::string& device);

} // namespace egret::tool

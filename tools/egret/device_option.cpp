#include "device_option.h"

#include "backend/all/backends.h"
#include "egret/device.h"
#include "egret/error.h"

#include <CLI/CLI.hpp>
#include <string_view>

namespace egret::tool {

void add_device_option(CLI::App& command, std::string& device) {
  const CLI::Validator is_device(
      [](const std::string& name) -> std::string {
        try {
          backend::backends().parse(name, "device");
          return {};
        } catch (const Error& error) {
          std::string_view why = error.what(); // the option is named anyway
          if (constexpr std::string_view kWho = "device: "; why.starts_with(kWho))
            why.remove_prefix(kWho.size());
          return std::string(why);
        }
      },
      backend::backends().choices());
  command.add_option("--device", device, "Where to compute (default: EGRET_DEVICE, or cpu)")
      ->check(is_device);
}

void turn_to(const std::string& device) {
  if (!device.empty())
    use_device(device);
}

} // namespace egret::tool

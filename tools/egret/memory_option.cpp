#include "memory_option.h"

#include "egret/error.h"
#include "support/sizes.h"

#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <string>

namespace egret::tool {

void add_memory_option(CLI::App& command, std::optional<std::int64_t>& limit, const char* what) {
  command
      .add_option_function<std::string>(
          "--memory-limit",
          [&limit](const std::string& text) {
            try {
              limit = parse_bytes(text, "--memory-limit");
            } catch (const Error& error) {
              throw CLI::ValidationError(error.what());
            }
          },
          fmt::format("Memory for intermediate values of {}, such as 64MB: some are computed "
                      "again instead of held",
                      what))
      ->type_name("SIZE");
}

} // namespace egret::tool

// The option of commands that compile under a memory limit.
#pragma once

#include <cstdint>
#include <optional>

namespace CLI {
class App;
}

namespace egret::tool {

/// --memory-limit SIZE, of `what`: bytes for intermediate values.
void add_memory_option(CLI::App& command, std::optional<std::int64_t>& limit, const char* what);

} // namespace egret::tool

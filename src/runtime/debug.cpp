#include "runtime/debug.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace egret::runtime {
namespace {

int level_of_environment() noexcept {
  const char* text = std::getenv("EGRET_DEBUG");
  return text ? std::atoi(text) : 0; // what is no level is refused by check_environment()
}

std::atomic<int>& level() noexcept {
  static std::atomic<int> value{level_of_environment()};
  return value;
}

} // namespace

int debug_level() noexcept {
  return level().load(std::memory_order_relaxed);
}

void set_debug_level(int value) noexcept {
  level().store(value, std::memory_order_relaxed);
}

void write_debug(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines += "egret: ";
    lines += text.substr(0, end);
    lines += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  std::fwrite(lines.data(), 1, lines.size(), stderr);
}

} // namespace egret::runtime

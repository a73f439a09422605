#include "support/host_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace egret {

namespace {

/// The number in a file that holds one; 0 for others ("max").
std::uint64_t number_in(const char* path) {
  std::uint64_t value = 0;
  std::ifstream(path) >> value;
  return value;
}

} // namespace

std::uint64_t free_host_memory() {
  std::ifstream system("/proc/meminfo");
  std::uint64_t available = 0;
  for (std::string name, unit; system >> name && available == 0;) {
    std::uint64_t value = 0;
    if (!(system >> value))
      break;
    std::getline(system, unit);
    if (name == "MemAvailable:")
      available = value * 1024;
  }
  const std::uint64_t most = number_in("/sys/fs/cgroup/memory.max"),
                      used = number_in("/sys/fs/cgroup/memory.current");
  if (most > 0)
    available = std::min(available, most - std::min(used, most));
  return available;
}

} // namespace egret

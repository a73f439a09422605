#include "backend/common/host_machine.h"

#include "support/fail.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace egret::backend {
namespace {

template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return value;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int affinity_count() {
#if defined(__linux__)
  // The mask may be wider than cpu_set_t on large machines.
  for (int cpus = CPU_SETSIZE; cpus <= (1 << 17); cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    bool known = set != nullptr && sched_getaffinity(0, bytes, set) == 0;
    int count = known ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (known && count > 0)
      return count;
  }
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// The path of this process in the hierarchy of a cgroup controller: "" names the unified hierarchy
// (version 2).
std::string cgroup_path(std::string_view controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    std::size_t first = line.find(':');
    std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos)
      continue;
    std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    if (names.find("," + std::string(controller) + ",") != std::string::npos)
      return line.substr(second + 1);
  }
  return {};
}

// Cores' worth of time that the cgroup grants, rounded up; nothing when unlimited.
std::optional<int> cores_of(std::int64_t quota, std::int64_t period) {
  if (quota <= 0 || period <= 0)
    return std::nullopt;
  return static_cast<int>(std::clamp<std::int64_t>((quota + period - 1) / period, 1, 1 << 20));
}

std::optional<int> cgroup_cores() {
  std::optional<int> least;
  auto take = [&](std::optional<int> cores) {
    if (cores)
      least = std::min(least.value_or(*cores), *cores);
  };
  // A limit may stand at any level above the process; inside a container only the root is visible.
  auto levels = [](std::string path) {
    std::vector<std::string> all{""};
    for (; path.size() > 1; path = path.substr(0, path.rfind('/')))
      all.push_back(path);
    return all;
  };
  for (const std::string& level : levels(cgroup_path(""))) {
    std::string line = read_line("/sys/fs/cgroup" + level + "/cpu.max"); // "max 100000"
    std::size_t space = line.find(' ');
    if (space == std::string::npos)
      continue;
    auto quota = parse_number<std::int64_t>(std::string_view(line).substr(0, space));
    auto period = parse_number<std::int64_t>(std::string_view(line).substr(space + 1));
    if (quota && period)
      take(cores_of(*quota, *period));
  }
  for (const std::string& level : levels(cgroup_path("cpu"))) {
    std::string folder = "/sys/fs/cgroup/cpu" + level;
    auto quota = parse_number<std::int64_t>(read_line(folder + "/cpu.cfs_quota_us"));
    auto period = parse_number<std::int64_t>(read_line(folder + "/cpu.cfs_period_us"));
    if (quota && period)
      take(cores_of(*quota, *period));
  }
  return least;
}

constexpr int kMostWorkers = 1024;

// "1024K" as sysfs writes it.
std::optional<std::int64_t> parse_size(std::string text) {
  std::int64_t unit = 1;
  if (!text.empty() && (text.back() == 'K' || text.back() == 'M' || text.back() == 'G')) {
    unit = text.back() == 'K' ? 1 << 10 : text.back() == 'M' ? 1 << 20 : 1 << 30;
    text.pop_back();
  }
  auto number = parse_number<std::int64_t>(text);
  if (!number || *number <= 0 || *number > (std::int64_t{1} << 30))
    return std::nullopt;
  return *number * unit;
}

} // namespace

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

int count_workers(int asked, std::string_view who) {
  if (asked < 0 || asked > kMostWorkers)
    fail(ErrorKind::Value, "{}: {} workers; allowed are 1 to {}, or 0 for all cores", who, asked,
         kMostWorkers);
  if (asked > 0)
    return asked;
  if (std::string_view text = environment("EGRET_THREADS"); !text.empty()) {
    auto count = parse_number<int>(text);
    if (!count || *count < 1 || *count > kMostWorkers)
      fail(ErrorKind::Value, "EGRET_THREADS: \"{}\" is no number from 1 to {}", text, kMostWorkers);
    return *count;
  }
  int cores = affinity_count();
  if (auto limit = cgroup_cores())
    cores = std::min(cores, *limit);
  return std::clamp(cores, 1, kMostWorkers);
}

void read_caches(kernel::Target& target) {
  for (int index = 0; index < 8; ++index) {
    std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    std::string type = read_line(folder + "type");
    auto size = parse_size(read_line(folder + "size"));
    if ((type != "Data" && type != "Unified") || !size)
      continue;
    std::string level = read_line(folder + "level");
    if (level == "1")
      target.l1_bytes = *size;
    else if (level == "2")
      target.l2_bytes = *size;
    else if (level == "3")
      target.l3_bytes = *size;
  }
}

} // namespace egret::backend

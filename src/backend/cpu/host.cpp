#include "backend/cpu/host.h"

#include "support/fail.h"
#include "support/hash.h"

#include <llvm/ADT/StringMap.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace egret::backend::cpu {
namespace {

enum class Level { Native, Avx2, Sse2 };

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

Level wanted_level() {
  std::string_view text = environment("EGRET_CPU");
  if (text.empty() || text == "native")
    return Level::Native;
  if (text == "avx2")
    return Level::Avx2;
  if (text == "sse2")
    return Level::Sse2;
  fail(ErrorKind::Value, "EGRET_CPU: \"{}\" is none of native, avx2, sse2", text);
}

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

// ---- workers ------------------------------------------------------------------------------------

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

int count_workers(int asked) {
  if (asked < 0 || asked > kMostWorkers)
    fail(ErrorKind::Value, "cpu device: {} workers; allowed are 1 to {}, or 0 for all cores", asked,
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

// ---- caches -------------------------------------------------------------------------------------

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

// ---- instruction set ----------------------------------------------------------------------------

// Tiles are 8 KiB more of state for each thread, so the system wants to be asked before any thread
// of the process uses them. It is asked once; an older one, or one that says no, has no tiles.
bool tiles_allowed() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr int kRequestPermission = 0x1023, kTileData = 18; // of arch_prctl; a part of the state
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
#else
  return false;
#endif
}

// A CPU that LLVM knows by another generation's name, or not at all, is scheduled as the nearest
// one that has its features.
std::string name_by_features(const llvm::StringMap<bool>& has, std::string detected) {
  auto on = [&](const char* feature) { return has.lookup(feature); };
  bool amd = detected.rfind("znver", 0) == 0 || detected.rfind("bdver", 0) == 0;
  if (amd || !on("avx512f") || !on("avx512vl"))
    return detected;
  if (on("amx-tile"))
    return detected == "graniterapids" ? detected : "sapphirerapids";
  return detected;
}

Isa native_isa() {
  Isa isa;
  llvm::StringMap<bool> has = llvm::sys::getHostCPUFeatures();
  isa.cpu = name_by_features(has, llvm::sys::getHostCPUName().str());
  std::vector<std::string> features;
  for (const auto& feature : has)
    features.push_back((feature.second ? "+" : "-") + feature.first().str());
  std::sort(features.begin(), features.end());
  for (const std::string& f : features)
    isa.features += (isa.features.empty() ? "" : ",") + f;
  auto on = [&](const char* feature) { return has.lookup(feature); };
  isa.x86 = llvm::Triple(llvm::sys::getProcessTriple()).isX86();
  if (!isa.x86) {
    // Other machines that LLVM's native target covers here have 128-bit vectors with fused
    // multiply-add and half precision conversions.
    isa.fma = isa.f16c = isa.sse41 = true;
    return isa;
  }
  isa.sse41 = on("sse4.1");
  isa.avx2 = on("avx2");
  isa.fma = on("fma");
  isa.f16c = on("f16c");
  isa.avx512 = isa.avx2 && isa.fma && isa.f16c && on("avx512f") && on("avx512bw") &&
               on("avx512dq") && on("avx512vl");
  isa.bf16_dot = isa.avx512 && on("avx512bf16");
  isa.amx = isa.avx512 && on("amx-tile") && on("amx-bf16") && tiles_allowed();
  isa.vector_bytes = isa.avx512 ? 64 : isa.avx2 ? 32 : 16;
  return isa;
}

Isa narrowed(const Isa& native, Level level) {
  if (level == Level::Native)
    return native;
  const char* name = level == Level::Avx2 ? "avx2" : "sse2";
  if (!native.x86 || (level == Level::Avx2 && !(native.avx2 && native.fma && native.f16c)))
    fail(ErrorKind::Device, "EGRET_CPU: this CPU ({}) cannot run {} code", native.cpu, name);
  Isa isa;
  isa.x86 = true;
  if (level == Level::Avx2) {
    isa.cpu = "x86-64-v3";
    isa.vector_bytes = 32;
    isa.sse41 = isa.avx2 = isa.fma = isa.f16c = true;
  } else {
    isa.cpu = "x86-64";
  }
  return isa;
}

} // namespace

void describe_units(kernel::Target& target, bool pairs, bool tiles) {
  using kernel::OperandSource;
  target.units.clear();
  target.capabilities = 0;
  if (pairs)
    target.units.push_back({.name = "bf16_pairs",
                            .layout = kernel::FragmentLayout::Pairs,
                            .m = 1,
                            .n = target.vector_bytes / 4,
                            .k = 2,
                            .elements = {DType::BF16},
                            .left = {OperandSource::Vector},
                            .right = {OperandSource::Vector}});
  if (!tiles)
    return;
  target.add(kernel::Capability::MatrixTiles);
  target.units.push_back({.name = "bf16_tiles",
                          .layout = kernel::FragmentLayout::Tiles,
                          .m = 16,
                          .n = 16,
                          .k = 32,
                          .elements = {DType::BF16},
                          .left = {OperandSource::Tile},
                          .right = {OperandSource::Tile},
                          .cycles = 16});
}

Host detect_host(int workers) {
  Host host;
  Level level = wanted_level();
  host.isa = narrowed(native_isa(), level);
  const Isa& isa = host.isa;
  kernel::Target& target = host.target;
  target.device = "cpu";
  target.name = isa.cpu;
  target.workers = count_workers(workers);
  target.vector_bytes = isa.vector_bytes;
  target.vector_registers = isa.avx512 || !isa.x86 ? 32 : 16;
  target.has_fma = isa.fma;
  describe_units(target, isa.bf16_dot, isa.amx);
  read_caches(target);
  std::uint64_t print = hash_text(isa.cpu);
  print = combine(print, hash_text(isa.features));
  print = combine(print, isa.amx ? 1u : 0u);
  for (std::int64_t number : {std::int64_t{target.workers}, std::int64_t{target.vector_bytes},
                              target.l1_bytes, target.l2_bytes, target.l3_bytes})
    print = combine(print, static_cast<std::uint64_t>(number));
  target.fingerprint = print;
  return host;
}

} // namespace egret::backend::cpu

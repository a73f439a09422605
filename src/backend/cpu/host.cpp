#include "backend/cpu/host.h"

#include "backend/common/host_machine.h"
#include "backend/cpu/code_generator.h"
#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <string_view>
#include <vector>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace egret::backend::cpu {
namespace {

enum class Level { Native, Avx2, Sse2 };

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

bool has(const HostCpu& cpu, const std::string& feature) {
  return std::binary_search(cpu.features.begin(), cpu.features.end(), "+" + feature);
}

// AMD's, whatever their generation.
bool is_amd(const HostCpu& cpu) {
  return cpu.name.starts_with("znver") || cpu.name.starts_with("bdver");
}

// A CPU that LLVM knows by another generation's name, or not at all, is scheduled as the nearest
// one that has its features.
std::string name_by_features(const HostCpu& cpu) {
  if (is_amd(cpu) || !has(cpu, "avx512f") || !has(cpu, "avx512vl"))
    return cpu.name;
  if (has(cpu, "amx-tile"))
    return cpu.name == "graniterapids" ? cpu.name : "sapphirerapids";
  return cpu.name;
}

Isa native_isa() {
  Isa isa;
  const HostCpu cpu = code_generator_library().host_cpu();
  isa.cpu = name_by_features(cpu);
  isa.features = fmt::format("{}", fmt::join(cpu.features, ","));
  const auto on = [&](const char* feature) { return has(cpu, feature); };
  isa.x86 = cpu.x86;
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
  // AMD's CPUs execute a gather as many operations, more than loads and insertions take.
  isa.gathers = isa.avx512 && !is_amd(cpu);
  if (is_amd(cpu))
    isa.features += ",+prefer-no-gather";
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
  target.units.push_back({.name = "i16_pairs",
                          .layout = kernel::FragmentLayout::Pairs,
                          .m = 1,
                          .n = target.vector_bytes / 4,
                          .k = 2,
                          .elements = {DType::I8, DType::U8, DType::I16},
                          .accumulator = DType::I32,
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
  target.workers = count_workers(workers, "cpu device");
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

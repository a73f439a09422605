// egret info: the machine and the build, as the compiler sees them.
#include "commands.h"
#include "console.h"

#include "backend/all/backends.h"
#include "egret/device.h"
#include "runtime/runtime.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

nlohmann::ordered_json backends_json() {
  nlohmann::ordered_json all = nlohmann::ordered_json::object();
  for (const backend::Backend& backend : backend::backends().list()) {
    const backend::Diagnosis found = backend.diagnose();
    auto& one = all[std::string(backend.name)];
    one = {{"usable", found.usable}, {"why_not", found.why_not}};
    for (const auto& [component, text] : found.components)
      one[component] = text;
  }
  return all;
}

void info(bool json) {
  const kernel::Target& t = runtime::Runtime::instance().target();
  std::vector<std::string> units;
  for (const kernel::MatrixUnit& unit : t.units)
    units.push_back(unit.name);
  if (json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const DeviceInfo& d : devices())
      all.push_back({{"name", d.name}, {"description", d.description}});
    fmt::print("{}\n",
               nlohmann::ordered_json{{"version", EGRET_VERSION},
                                      {"llvm", EGRET_LLVM_VERSION},
                                      {"device", t.device},
                                      {"target", t.name},
                                      {"workers", t.workers},
                                      {"vector_bytes", t.vector_bytes},
                                      {"vector_registers", t.vector_registers},
                                      {"fma", t.has_fma},
                                      {"matrix_units", units},
                                      {"l1_bytes", t.l1_bytes},
                                      {"l2_bytes", t.l2_bytes},
                                      {"l3_bytes", t.l3_bytes},
                                      {"fingerprint", fmt::format("{:016x}", t.fingerprint)},
                                      {"devices", all},
                                      {"backends", backends_json()}}
                   .dump());
    return;
  }
  std::string features = t.has_fma ? " fma" : "";
  for (const std::string& unit : units)
    features += " " + unit;
  fmt::print("egret        {} (LLVM {})\n", EGRET_VERSION, EGRET_LLVM_VERSION);
  fmt::print("device       {}: {}, {} workers\n", t.device, t.name, t.workers);
  fmt::print("vectors      {} registers of {} bytes,{}\n", t.vector_registers, t.vector_bytes,
             features.empty() ? " no fma" : features);
  fmt::print("caches       {} kB, {} kB, {} kB\n", t.l1_bytes / 1024, t.l2_bytes / 1024,
             t.l3_bytes / 1024);
  fmt::print("fingerprint  {:016x}\n", t.fingerprint);
  for (const DeviceInfo& d : devices())
    if (d.name != "cpu")
      fmt::print("{:<12} {}\n", d.name, d.description);
  for (const backend::Backend& backend : backend::backends().list()) {
    const backend::Diagnosis found = backend.diagnose();
    fmt::print("{:<12} {}\n", backend.name,
               found.usable ? "usable" : "not usable: " + found.why_not);
    for (const auto& [component, text] : found.components)
      fmt::print("  {:<10} {}\n", component, text.empty() ? "none" : text);
  }
}

} // namespace

void add_info_command(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  auto* command = app.add_subcommand("info", "Show this machine, as the compiler sees it");
  command->add_flag("--json", *json, "Print it as JSON");
  command->callback([json] { info(*json); });
}

} // namespace egret::tool

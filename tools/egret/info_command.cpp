// egret info: the machine and the build, as the compiler sees them.
#include "commands.h"
#include "console.h"

#include "egret/device.h"
#include "runtime/runtime.h"

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

void info(bool json) {
  const kernel::Target& t = runtime::Runtime::instance().target();
  const CudaStatus cuda = cuda_status();
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
                                      {"bf16_dot", t.has_bf16_dot},
                                      {"amx", t.has_amx},
                                      {"l1_bytes", t.l1_bytes},
                                      {"l2_bytes", t.l2_bytes},
                                      {"l3_bytes", t.l3_bytes},
                                      {"fingerprint", fmt::format("{:016x}", t.fingerprint)},
                                      {"devices", all},
                                      {"cuda",
                                       {{"usable", cuda.usable},
                                        {"driver", cuda.driver},
                                        {"nvrtc", cuda.nvrtc},
                                        {"why_not", cuda.why_not}}}}
                   .dump());
    return;
  }
  std::string features = fmt::format("{}{}{}", t.has_fma ? " fma" : "",
                                     t.has_bf16_dot ? " bf16" : "", t.has_amx ? " amx" : "");
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
  fmt::print("CUDA         {}\n",
             cuda.usable ? "driver " + cuda.driver : "not usable: " + cuda.why_not);
  fmt::print("NVRTC        {}\n", cuda.nvrtc.empty() ? "none" : cuda.nvrtc);
}

} // namespace

void add_info_command(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  auto* command = app.add_subcommand("info", "Show this machine, as the compiler sees it");
  command->add_flag("--json", *json, "Print it as JSON");
  command->callback([json] { info(*json); });
}

} // namespace egret::tool

#include "compiler/compile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace egret::compiler {

namespace {

std::string human_bytes(double bytes) {
  const char* unit[] = {"B", "KB", "MB", "GB"};
  int u = 0;
  while (bytes >= 10000 && u < 3) {
    bytes /= 1024;
    ++u;
  }
  return fmt::format("{:.0f} {}", bytes, unit[u]);
}

std::string node_name(const ir::Graph& graph, ir::NodeId id) {
  return fmt::format("%{} {}{}", id, info_of(graph[id].op).name, to_string(graph[id].shape));
}

} // namespace

std::string CompileReport::text() const {
  std::string out = fmt::format(
      "{} ops recorded, {} after normalization, {} kernels ({} compiled, {} from the cache)\n",
      ops_recorded, ops_normalized, kernels.size(), kernels_compiled, kernels_from_cache);
  out += fmt::format("arena {}, at least {} by liveness\n",
                     human_bytes(static_cast<double>(arena_bytes)),
                     human_bytes(static_cast<double>(liveness_bound_bytes)));
  out += "stages:";
  for (const StageTime& s : stages)
    out += fmt::format(" {} {:.2f} ms", s.stage, s.seconds * 1e3);
  out += "\nkernels:\n";
  int number = 0;
  for (const KernelReport& k : kernels)
    out += fmt::format("  {:3} {} [{}] reads {}, writes {}, {:.3g} flops, {} phase{}: {} | {}\n",
                       number++, k.name, k.form, human_bytes(static_cast<double>(k.bytes_read)),
                       human_bytes(static_cast<double>(k.bytes_written)), k.flops, k.phases,
                       k.phases == 1 ? "" : "s", fmt::join(k.ops, " "), k.schedule);
  if (!unfused.empty())
    out += "not fused:\n";
  for (const Unfused& u : unfused)
    out += fmt::format("  {} -> {}: {}\n", node_name(graph, u.producer),
                       node_name(graph, u.consumer), u.why);
  return out;
}

} // namespace egret::compiler

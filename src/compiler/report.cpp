#include "compiler/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

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

std::string microseconds(double seconds) {
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string memory_text(const MemoryReport& m, const CompileReport& report) {
  std::string out =
      fmt::format("memory limit {} bytes: {} without it, {} with it", m.limit, m.before, m.after);
  if (!m.chunks.empty())
    out += "; " + m.chunks;
  if (m.again.empty())
    return out + ", nothing is computed again\n";
  out += fmt::format("; computed again: {} read and written, {:.3g} flops, predicted {}\n",
                     human_bytes(static_cast<double>(m.added_bytes)), m.added_flops,
                     microseconds(m.added_seconds));
  for (const MemoryReport::Again& again : m.again) {
    const KernelReport& kernel = report.kernels[again.kernel];
    out +=
        fmt::format("  {:3} {} (%{}){}\n", again.kernel, kernel.name, fmt::join(kernel.nodes, " %"),
                    again.times > 1 ? fmt::format(", {} times", again.times) : "");
  }
  return out;
}

std::string node_name(const ir::Graph& graph, ir::NodeId id) {
  return fmt::format("%{} {}{}", id, info_of(graph[id].op).name, to_string(graph[id].shape));
}

} // namespace

std::string rules_text(const saturate::SaturateReport& s, std::size_t before, std::size_t after) {
  std::string out = fmt::format(
      "rules: {} ops became {}; {} e-classes, {} e-nodes, {} rounds, {}; loaded in {:.2f} ms, ran "
      "{:.2f} ms, {:.0f} % of matching found nothing\n",
      before, after, s.classes, s.nodes, s.rounds,
      s.saturated ? "saturated" : "stopped by " + s.stopped, s.load_seconds * 1e3,
      s.run_seconds * 1e3, s.zero_match_share * 100);
  for (const saturate::RuleUse& use : s.rules)
    out += fmt::format("  {:6} {} [{}, {}] {} new, {:.2f} ms\n", use.fired, use.rule, use.group,
                       name_of(use.tag), use.rows_added, use.seconds * 1e3);
  return out;
}

std::string refusal_text(const RefusedKernel& r) {
  return fmt::format("refused: kernel {} by {}; instead by {}: {}", r.kernel, r.schedule, r.instead,
                     r.reason);
}

void add_time(std::vector<PassTime>& times, std::string_view pass, double seconds) {
  const auto known = std::ranges::find_if(times, [&](const PassTime& t) { return t.pass == pass; });
  if (known == times.end())
    times.push_back({std::string(pass), seconds});
  else
    known->seconds += seconds;
}

void add_times(std::vector<PassTime>& times, const std::vector<PassTime>& more) {
  for (const PassTime& of_pass : more)
    add_time(times, of_pass.pass, of_pass.seconds);
}

std::string CompileReport::text() const {
  std::string out = fmt::format("{} ops recorded, {} after normalization, {} kernels ({} compiled, "
                                "{} loaded from disk, {} from the cache), {} "
                                "copies\n",
                                ops_recorded, ops_normalized, kernels.size(), kernels_compiled,
                                kernels_loaded, kernels_from_cache, copies);
  out += fmt::format("arena {}, at least {} by liveness\n",
                     human_bytes(static_cast<double>(arena_bytes)),
                     human_bytes(static_cast<double>(liveness_bound_bytes)));
  if (memory)
    out += memory_text(*memory, *this);
  if (saturation)
    out += rules_text(*saturation, ops_before_rules, ops_extracted);
  out += "passes:";
  for (const PassTime& p : passes)
    out += fmt::format(" {} {:.2f} ms", p.pass, p.seconds * 1e3);
  out += "\nkernels:\n";
  int number = 0;
  for (const KernelReport& k : kernels)
    out += fmt::format(
        "  {:3} {} [{}]{} reads {}, writes {}, {:.3g} flops, {} phase{}, predicted {}{}: {} "
        "(%{}) | {}\n",
        number++, k.name, k.form, k.parts > 1 ? fmt::format(" {} independent parts,", k.parts) : "",
        human_bytes(static_cast<double>(k.bytes_read)),
        human_bytes(static_cast<double>(k.bytes_written)), k.flops, k.phases,
        k.phases == 1 ? "" : "s", microseconds(k.predicted),
        k.measured > 0 ? ", measured " + microseconds(k.measured) : "", fmt::join(k.ops, " "),
        fmt::join(k.nodes, " %"), k.schedule);
  for (const std::string& line : chains)
    out += line + "\n";
  for (const FoldedParameter& d : derived)
    if (!d.what.empty())
      out += fmt::format("derived: {} {}{} of {}, kept until one of them changes, {}\n", d.what,
                         name_of(d.dtype), to_string(d.shape), fmt::join(d.sources, ", "),
                         human_bytes(d.bytes));
  for (const std::string& line : recomputed)
    out += line + "\n";
  for (const std::string& line : layouts)
    out += line + "\n";
  for (const RefusedKernel& r : refused)
    out += refusal_text(r) + "\n";
  for (const ClaimedKernel& c : claimed)
    out += fmt::format("builder {}: kernel {} by {}{}: {}\n", c.builder, c.kernel, c.schedule,
                       c.against > 0 ? fmt::format(", {} against {}", microseconds(c.seconds),
                                                   microseconds(c.against))
                                     : "",
                       c.outcome);
  if (!unfused.empty())
    out += "not fused:\n";
  for (const Unfused& u : unfused)
    out += fmt::format("  {} -> {}: {}\n", node_name(graph, u.producer),
                       node_name(graph, u.consumer), u.why);
  return out + search.text();
}

} // namespace egret::compiler

#include "compiler/search/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace egret::compiler {
namespace {

std::string time_text(double seconds) {
  return seconds <= 0     ? "-"
         : seconds < 1e-3 ? fmt::format("{:.2f} us", seconds * 1e6)
                          : fmt::format("{:.3f} ms", seconds * 1e3);
}

std::string line_of(const CandidateReport& c) {
  std::string line = fmt::format("      {:9} {}", c.state, c.schedule);
  if (c.seconds > 0)
    line += fmt::format("  {} +-{}", time_text(c.seconds), time_text(c.spread));
  if (c.predicted > 0)
    line += fmt::format("{} predicted {}", c.seconds > 0 ? "," : " ", time_text(c.predicted));
  if (c.ratio > 0)
    line += fmt::format(", {:.3f} of greedy", c.ratio);
  if (!c.message.empty())
    line += ": " + c.message.substr(0, c.message.find('\n'));
  return line + "\n";
}

std::string lines_of(const loops::LoopReport& l) {
  if (!l.note.empty())
    return fmt::format("      loops     none: {}\n", l.note);
  std::string text = fmt::format(
      "      loops     {} skeletons, {} trees estimated, {} refused, {} not proved, {} e-nodes, "
      "{:.3f} s\n",
      l.skeletons, l.points, l.illegal, l.unproved, l.nodes, l.seconds);
  std::string rules;
  for (const loops::LoopRule& rule : l.rules)
    rules += fmt::format("{}{} {}", rules.empty() ? "" : ", ", rule.name, rule.fired);
  if (!rules.empty())
    text += fmt::format("        rules   {}\n", rules);
  for (const std::string& stopped : l.stopped)
    text += fmt::format("        stopped {}\n", stopped);
  for (const std::string& refused : l.refused)
    text += fmt::format("        refused {}\n", refused);
  return text;
}

} // namespace

std::int64_t SearchReport::candidates() const {
  std::int64_t count = 0;
  for (const RegionSearch& r : regions)
    count += std::count_if(r.candidates.begin(), r.candidates.end(),
                           [](const CandidateReport& c) { return c.tried(); });
  return count;
}

std::int64_t SearchReport::rejected() const {
  std::int64_t count = 0;
  for (const RegionSearch& r : regions)
    count += std::count_if(r.candidates.begin(), r.candidates.end(),
                           [](const CandidateReport& c) { return c.rejected(); });
  return count;
}

std::string SearchReport::text() const {
  if (effort == Effort::None)
    return {};
  std::string out = fmt::format(
      "search: effort {}, {} kernels, {} remembered, {} candidates tried ({} rejected), {:.2f} s\n",
      name_of(effort), regions.size(), cache_hits, candidates(), rejected(), seconds);
  out +=
      fmt::format("  predictions by {}: a launch {}, memory {:.1f} GB/s, products {:.1f} GFLOP/s\n",
                  machine.measured ? "measurements of this machine" : "round figures",
                  time_text(machine.launch_seconds), machine.bytes_per_second * 1e-9,
                  machine.flops_per_second * 1e-9);
  if (!note.empty())
    out += fmt::format("  not all was searched: {}\n", note);
  if (fusion_plans_seen > 0)
    out += fmt::format("  {} other fusion plans, {} of them likely enough to try{}\n",
                       fusion_plans_seen, fusion_plans.size(),
                       fusion_plan_note.empty() ? "" : ": " + fusion_plan_note);
  for (const FusionPlanReport& d : fusion_plans) {
    out +=
        fmt::format("      {:9} {}, predicted {:.3f} of the first", d.state, d.what, d.predicted);
    out += d.ratio > 0
               ? fmt::format(", {}, {:.3f} of the best before\n", time_text(d.seconds), d.ratio)
               : "\n";
  }
  for (const RegionSearch& r : regions) {
    out += fmt::format("  {} {:016x}: {}", r.name, r.region, r.chosen);
    if (r.predicted > 0)
      out += fmt::format(", predicted {}", time_text(r.predicted));
    if (r.seconds > 0)
      out += fmt::format(", measured {}", time_text(r.seconds));
    if (r.seconds > 0 && r.greedy_seconds > 0)
      out += fmt::format(" ({:.3f} of greedy)", r.seconds / r.greedy_seconds);
    out += r.cache_hit ? ", remembered\n" : r.note.empty() ? "\n" : fmt::format("; {}\n", r.note);
    if (!r.dropped.empty())
      out += fmt::format("      dropped   {}\n", r.dropped);
    for (const CandidateReport& c : r.candidates)
      if (c.tried())
        out += line_of(c);
    if (r.loops)
      out += lines_of(*r.loops);
  }
  return out;
}

} // namespace egret::compiler

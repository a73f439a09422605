#include "compiler/report_json.h"

#include <fmt/format.h>

#include <utility>

namespace egret::compiler {

using saturate::SaturateReport;
using Json = nlohmann::ordered_json;

namespace {

Json json_of(const MemoryReport& m, const CompileReport& report) {
  Json again = Json::array();
  for (const auto& kernel : m.again)
    again.push_back({{"kernel", kernel.kernel},
                     {"name", report.kernels[kernel.kernel].name},
                     {"nodes", report.kernels[kernel.kernel].nodes},
                     {"times", kernel.times}});
  return {{"limit_bytes", m.limit},
          {"bytes_without_limit", m.before},
          {"bytes", m.after},
          {"again", again},
          {"chunks", m.chunks},
          {"added_bytes", m.added_bytes},
          {"added_flops", m.added_flops},
          {"added_predicted_seconds", m.added_seconds}};
}

Json json_of(const SaturateReport& s) {
  Json rules = Json::array();
  for (const saturate::RuleUse& use : s.rules)
    rules.push_back({{"rule", use.rule},
                     {"group", use.group},
                     {"tag", name_of(use.tag)},
                     {"fired", use.fired},
                     {"rows_added", use.rows_added},
                     {"seconds", use.seconds},
                     {"idle_seconds", use.idle_seconds}});
  return {{"classes", s.classes},
          {"nodes", s.nodes},
          {"rounds", s.rounds},
          {"saturated", s.saturated},
          {"stopped", s.stopped},
          {"load_seconds", s.load_seconds},
          {"run_seconds", s.run_seconds},
          {"zero_match_share", s.zero_match_share},
          {"rules", rules}};
}

Json json_of(const loops::LoopReport& l) {
  Json rules = Json::array();
  for (const loops::LoopRule& rule : l.rules)
    rules.push_back({{"rule", rule.name}, {"ruleset", rule.ruleset}, {"fired", rule.fired}});
  return {{"note", l.note},           {"skeletons", l.skeletons}, {"estimated", l.points},
          {"illegal", l.illegal},     {"unproved", l.unproved},   {"refused", l.refused},
          {"nodes", l.nodes},         {"seconds", l.seconds},     {"stopped", l.stopped},
          {"rules", std::move(rules)}};
}

} // namespace

Json json_of(const SearchReport& s) {
  Json regions = Json::array();
  for (const RegionSearch& r : s.regions) {
    Json candidates = Json::array();
    for (const CandidateReport& c : r.candidates)
      candidates.push_back({{"schedule", c.schedule},
                            {"state", c.state},
                            {"message", c.message},
                            {"predicted_seconds", c.predicted},
                            {"seconds", c.seconds},
                            {"spread", c.spread},
                            {"ratio", c.ratio}});
    regions.push_back({{"name", r.name},
                       {"region", fmt::format("{:016x}", r.region)},
                       {"cache_hit", r.cache_hit},
                       {"note", r.note},
                       {"chosen", r.chosen},
                       {"predicted_seconds", r.predicted},
                       {"seconds", r.seconds},
                       {"greedy_seconds", r.greedy_seconds},
                       {"search_seconds", r.search_seconds},
                       {"dropped", r.dropped},
                       {"candidates", candidates}});
    if (r.loops)
      regions.back()["loops"] = json_of(*r.loops);
  }
  Json fusion_plans = Json::array();
  for (const FusionPlanReport& d : s.fusion_plans)
    fusion_plans.push_back({{"what", d.what},
                            {"state", d.state},
                            {"predicted_ratio", d.predicted},
                            {"seconds", d.seconds},
                            {"ratio", d.ratio}});
  return {{"effort", name_of(s.effort)},
          {"note", s.note},
          {"seconds", s.seconds},
          {"candidates", s.candidates()},
          {"rejected", s.rejected()},
          {"measurements", s.measured},
          {"cache_hits", s.cache_hits},
          {"machine",
           {{"measured", s.machine.measured},
            {"launch_seconds", s.machine.launch_seconds},
            {"bytes_per_second", s.machine.bytes_per_second},
            {"flops_per_second", s.machine.flops_per_second}}},
          {"fusion_plan", s.fusion_plan},
          {"fusion_plans_seen", s.fusion_plans_seen},
          {"fusion_plans_note", s.fusion_plan_note},
          {"fusion_plans", fusion_plans},
          {"regions", regions}};
}

Json json_of(const CompileReport& r) {
  Json json = {{"ops_recorded", r.ops_recorded}, {"ops_normalized", r.ops_normalized}};
  json["passes"] = Json::array();
  for (const PassTime& pass : r.passes)
    json["passes"].push_back({{"pass", pass.pass}, {"seconds", pass.seconds}});
  if (r.saturation) {
    json["ops_before_rules"] = r.ops_before_rules;
    json["ops_extracted"] = r.ops_extracted;
    json["saturation"] = json_of(*r.saturation);
  }
  json["kernels"] = Json::array();
  for (const auto& k : r.kernels)
    json["kernels"].push_back({{"name", k.name},
                               {"form", k.form},
                               {"schedule", k.schedule},
                               {"nodes", k.nodes},
                               {"ops", k.ops},
                               {"bytes_read", k.bytes_read},
                               {"bytes_written", k.bytes_written},
                               {"flops", k.flops},
                               {"phases", k.phases},
                               {"predicted_seconds", k.predicted},
                               {"measured_seconds", k.measured}});
  json["derived"] = Json::array();
  for (const auto& d : r.derived)
    if (!d.what.empty())
      json["derived"].push_back({{"what", d.what}, {"of", d.sources}, {"bytes", d.bytes}});
  json["layouts"] = r.layouts;
  json["not_fused"] = Json::array();
  for (const auto& u : r.unfused)
    json["not_fused"].push_back(
        {{"producer", u.producer}, {"consumer", u.consumer}, {"why", u.why}});
  json["refused"] = Json::array();
  for (const auto& k : r.refused)
    json["refused"].push_back({{"kernel", k.kernel},
                               {"schedule", k.schedule},
                               {"reason", k.reason},
                               {"instead", k.instead}});
  json["arena_bytes"] = r.arena_bytes;
  json["liveness_bound_bytes"] = r.liveness_bound_bytes;
  if (r.memory)
    json["memory"] = json_of(*r.memory, r);
  json["kernels_compiled"] = r.kernels_compiled;
  json["kernels_loaded"] = r.kernels_loaded;
  json["kernels_from_cache"] = r.kernels_from_cache;
  if (r.search.effort != Effort::None)
    json["search"] = json_of(r.search);
  return json;
}

} // namespace egret::compiler

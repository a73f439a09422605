#include "compiler/record/record.h"

#include "backend/common/machine_code.h"
#include "compiler/compilation.h"
#include "compiler/pipeline.h"
#include "compiler/report_json.h"
#include "compiler/requested_schedules.h"
#include "ir/text.h"
#include "saturate/saturate.h"
#include "support/read_text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

namespace egret::compiler {

using Json = nlohmann::ordered_json;

namespace {

/// Names may hold any bytes; JSON is UTF-8.
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view name_of(kernel::SlotKind kind) {
  switch (kind) {
  case kernel::SlotKind::Input:
    return "input";
  case kernel::SlotKind::Output:
    return "output";
  case kernel::SlotKind::State:
    return "state";
  case kernel::SlotKind::Arena:
    return "arena";
  }
  return "";
}

std::string_view name_of(kernel::StepKind kind) {
  switch (kind) {
  case kernel::StepKind::Launch:
    return "launch";
  case kernel::StepKind::Copy:
    return "copy";
  case kernel::StepKind::Wait:
    return "wait";
  case kernel::StepKind::Host:
    return "host";
  }
  return "";
}

/// Whether the pass makes graphs that pass_forms and the record show as such, not as text.
bool gives_graph(const Pass& pass) {
  return pass.phase == Phase::Program || pass.name == "simplify" || pass.name == "extract" ||
         (pass.phase == Phase::Graph && pass.name != "views") || pass.name == "assign-layouts";
}

Json step_json(const kernel::Plan& plan, const kernel::Step& step) {
  Json json = {{"kind", name_of(step.kind)}};
  const std::span<const int> slots(step.slots);
  std::size_t reads = step.kind == kernel::StepKind::Copy ? 1 : slots.size();
  std::size_t writes = slots.size();
  if (step.kind == kernel::StepKind::Launch) {
    const kernel::Region& region = plan.kernels[static_cast<std::size_t>(step.kernel)].region;
    reads = static_cast<std::size_t>(
        std::count_if(region.operands.begin(), region.operands.end(),
                      [](const auto& operand) { return operand.role == kernel::Role::Tensor; }));
    writes = reads + region.outputs.size();
    json["kernel"] = step.kernel;
    json["nodes"] = step.nodes;
  }
  json["reads"] = slots.subspan(0, reads);
  json["writes"] = slots.subspan(reads, writes - reads);
  json["workspaces"] = slots.subspan(writes);
  return json;
}

Json slot_json(const kernel::Slot& slot) {
  Json json = {{"kind", name_of(slot.kind)},
               {"type", fmt::format("{}{}", name_of(slot.dtype), to_string(slot.shape))},
               {"bytes", slot.bytes.upper()},
               {"first_step", slot.first_step},
               {"last_step", slot.last_step}};
  if (slot.kind == kernel::SlotKind::Arena)
    json["offset"] = slot.offset.upper();
  if (slot.number >= 0)
    json["number"] = slot.number;
  return json;
}

Json use_json(const backend::CodeUse& use) {
  return {{"registers", use.registers},
          {"stack_bytes", use.stack_bytes},
          {"spill_stores", use.spill_stores},
          {"spill_loads", use.spill_loads},
          {"shared_bytes", use.shared_bytes},
          {"threads", use.threads},
          {"blocks", use.blocks},
          {"occupancy", use.occupancy}};
}

/// Empty when it cannot be read: the line is told all the same.
std::string text_of_source(const std::string& file) {
  constexpr std::uint64_t kMostText = 1 << 20;
  try {
    return read_text(file, kMostText);
  } catch (const Error&) {
    return {};
  }
}

} // namespace

// The file.

RecordWriter::RecordWriter(Sink sink, Detail detail) : sink_(std::move(sink)), detail_(detail) {
  write(line_of({{"event", "record"}, {"format", "egret-record"}, {"version", kVersion}}));
}

void RecordWriter::write(std::string_view line) {
  std::lock_guard lock(mutex_);
  if (!ended_)
    sink_(line);
}

void RecordWriter::source(std::string_view file, std::string_view text, std::uint64_t hash,
                          std::vector<int> lines) {
  int number = 0;
  {
    std::lock_guard lock(mutex_);
    number = sources_++;
    lines_.insert_or_assign(hash, Lines{number, std::move(lines)});
  }
  write(line_of({{"event", "source"}, {"source", number}, {"file", file}, {"text", text}}));
}

std::unique_ptr<ProgramRecord>
RecordWriter::program(const ir::Graph& graph, std::string_view device, const Options& options) {
  std::unique_ptr<ProgramRecord> program;
  {
    std::lock_guard lock(mutex_);
    program.reset(new ProgramRecord(*this, programs_++));
    if (const auto known = lines_.find(ir::canonical_hash(graph));
        known != lines_.end() && known->second.lines.size() == graph.size()) {
      program->source_ = known->second.source;
      program->lines_ = known->second.lines;
    }
  }
  write(line_of({{"event", "program"},
                 {"program", program->number_},
                 {"device", device},
                 {"effort", egret::name_of(options.effort.value_or(Effort::None))},
                 {"begin", seconds(Clock::now())}}));
  program->graph_number(graph, nullptr, "");
  program->lines_.clear();
  if (program->source_ >= 0) // its lines are in the record already
    return program;
  const auto sites = call_sites::places_of(ir::canonical_hash(graph), graph.size());
  std::lock_guard lock(mutex_);
  for (ir::NodeId id = 0; id < sites.size(); ++id)
    if (sites[id] != 0)
      sited_.push_back({program->number_, program->forms_[0].nodes[id], sites[id]});
  return program;
}

void RecordWriter::launch(int program, std::size_t launch, Clock::time_point begin,
                          Clock::time_point end) {
  write(line_of({{"event", "launch"},
                 {"program", program},
                 {"launch", launch},
                 {"begin", seconds(begin)},
                 {"seconds", std::chrono::duration<double>(end - begin).count()}}));
}

void RecordWriter::copy(std::string_view what, std::size_t bytes, Clock::time_point begin,
                        Clock::time_point end) {
  write(line_of({{"event", "copy"},
                 {"what", what},
                 {"bytes", bytes},
                 {"begin", seconds(begin)},
                 {"seconds", seconds(end) - seconds(begin)}}));
}

void RecordWriter::range(std::string_view path, Clock::time_point begin, Clock::time_point end) {
  write(line_of({{"event", "range"},
                 {"path", path},
                 {"begin", seconds(begin)},
                 {"seconds", seconds(end) - seconds(begin)}}));
}

void RecordWriter::memory(std::string_view device, Clock::time_point at, std::size_t in_use,
                          std::size_t reserved) {
  write(line_of({{"event", "memory"},
                 {"device", device},
                 {"at", seconds(at)},
                 {"in_use", in_use},
                 {"reserved", reserved}}));
}

/// Lines of the user's program are found all at once: that takes a process.
void RecordWriter::write_sites() {
  std::vector<Sited> sited;
  {
    std::lock_guard lock(mutex_);
    sited = std::exchange(sited_, {});
  }
  if (sited.empty())
    return;
  std::vector<call_sites::Id> ids;
  for (const Sited& one : sited)
    ids.push_back(one.site);
  const std::vector<call_sites::Place> places = call_sites::locate(ids);
  std::map<std::string, int> files;
  std::map<int, Json> nodes; // by program
  for (std::size_t i = 0; i < sited.size(); ++i) {
    Json node = {{"node", sited[i].node}};
    const call_sites::Place& place = places[i];
    if (!place.file.empty()) {
      const auto [file, fresh] = files.emplace(place.file, 0);
      if (fresh) {
        {
          std::lock_guard lock(mutex_);
          file->second = sources_++;
        }
        write(line_of({{"event", "source"},
                       {"source", file->second},
                       {"file", place.file},
                       {"text", text_of_source(place.file)}}));
      }
      node["source"] = file->second;
      node["line"] = place.line;
    }
    if (!place.within.empty())
      node["within"] = place.within;
    if (node.size() > 1)
      nodes.try_emplace(sited[i].program, Json::array()).first->second.push_back(std::move(node));
  }
  for (const auto& [program, list] : nodes)
    write(line_of({{"event", "lines"}, {"program", program}, {"nodes", list}}));
}

void RecordWriter::end() {
  write_sites();
  const std::string line = line_of({{"event", "end"}, {"begin", seconds(Clock::now())}});
  std::lock_guard lock(mutex_);
  if (!std::exchange(ended_, true))
    sink_(line);
}

// One program.

int ProgramRecord::graph_number(const ir::Graph& graph, const NodeHistory::Form* before,
                                std::string_view pass) {
  NodeHistory::Seen seen = history_.see(graph, before);
  for (const NodeHistory::Fresh& fresh : seen.fresh) {
    const ir::Node& node = graph[fresh.id];
    Json json = {{"event", "node"},
                 {"program", number_},
                 {"node", fresh.number},
                 {"op", info_of(node.op).name},
                 {"type", ir::type_text(node)}};
    Json operands = Json::array();
    for (const ir::NodeId operand : node.inputs)
      operands.push_back(seen.form.nodes[operand]);
    json["operands"] = std::move(operands);
    if (node.op == Op::Input)
      json["name"] = node.attrs.name;
    else if (const std::string attrs = ir::attrs_text(node); !attrs.empty())
      json["attrs"] = attrs.substr(1);
    if (fresh.id < lines_.size()) {
      json["source"] = source_;
      json["line"] = lines_[fresh.id];
    }
    if (!pass.empty())
      json["pass"] = pass;
    if (!fresh.replaces.empty())
      json["replaces"] = fresh.replaces;
    writer_.write(line_of(json));
  }
  const auto known = std::find(forms_.begin(), forms_.end(), seen.form);
  last_graph_ = static_cast<int>(known - forms_.begin());
  if (known == forms_.end()) {
    writer_.write(line_of({{"event", "graph"},
                           {"program", number_},
                           {"graph", last_graph_},
                           {"nodes", seen.form.nodes},
                           {"outputs", seen.form.outputs}}));
    forms_.push_back(std::move(seen.form));
  }
  return last_graph_;
}

int ProgramRecord::candidate_number(const std::shared_ptr<const CandidateGraph>& candidate,
                                    std::string_view pass) {
  if (candidate == candidate_)
    return candidate_graph_;
  candidate_ = candidate;
  const NodeHistory::Form before = forms_[static_cast<std::size_t>(last_graph_)];
  return candidate_graph_ = graph_number(candidate->graph(), &before, pass);
}

/// What a pass on a graph began with: each graph that rules extracted is normalized by itself.
const NodeHistory::Form* ProgramRecord::form_before(const PassEvent& event) {
  int before = last_graph_;
  if (!event.fusion_plan.empty()) {
    const auto known = graph_of_.find(event.fusion_plan);
    if (known != graph_of_.end())
      before = known->second;
    else if (next_extracted_ < extracted_.size())
      before = extracted_[next_extracted_++];
  }
  return &forms_[static_cast<std::size_t>(before)];
}

std::vector<int> ProgramRecord::graphs_after(const PassEvent& event) {
  const Compilation& c = *event.compilation;
  const Pass& pass = find_pass(event.pass, "record");
  if (pass.name == "saturate")
    return {};
  if (pass.name == "extract") {
    const int saturated = last_graph_;
    const NodeHistory::Form before = forms_[static_cast<std::size_t>(saturated)];
    extracted_.clear();
    next_extracted_ = 0;
    for (const ir::Graph& graph : c.extracted)
      extracted_.push_back(graph_number(graph, &before, pass.name));
    if (!extracted_.empty()) {
      const bool all = writer_.detail_ == RecordWriter::Detail::All;
      if (all)
        write_egraph(c, before, saturated);
      last_graph_ = extracted_.front();
      if (all)
        write_rules(c, before);
    }
    return extracted_;
  }
  if (c.candidate)
    return {candidate_number(c.candidate, pass.name)};
  const NodeHistory::Form before = *form_before(event);
  const int graph = graph_number(c.graph, &before, pass.name);
  if (!event.fusion_plan.empty())
    graph_of_.insert_or_assign(std::string(event.fusion_plan), graph);
  return {graph};
}

void ProgramRecord::write_egraph(const Compilation& c, const NodeHistory::Form& before, int graph) {
  saturate::Saturated again(c.graph, c.options.chosen_rules(), saturate::Journal::Kept);
  const ir::Graph cheapest = again.extract(1).front();
  const int extracted = graph_number(cheapest, &before, "extract");
  const saturate::Growth growth = again.growth(kMostENodes);
  Json steps = Json::array(), nodes = Json::array(), joins = Json::array();
  Json types = Json::array(), classes = Json::array();
  for (const saturate::Growth::Step& step : growth.steps)
    steps.push_back({{"round", step.round}, {"group", step.group}});
  for (const saturate::Growth::ENode& node : growth.enodes) {
    Json json = {{"op", node.op}};
    if (!node.attributes.empty())
      json["attrs"] = node.attributes;
    json["operands"] = node.operands;
    json["class"] = node.of_class;
    json["step"] = node.step;
    if (node.rule != saturate::Growth::kNoRule)
      json["rule"] = node.rule;
    json["cost"] = node.cost;
    if (node.chosen)
      json["chosen"] = true;
    nodes.push_back(std::move(json));
  }
  for (const saturate::Growth::Join& join : growth.joins) {
    Json json = {{"class", join.lost}, {"into", join.kept}, {"step", join.step}};
    if (join.rule != saturate::Growth::kNoRule)
      json["rule"] = join.rule;
    joins.push_back(std::move(json));
  }
  for (const auto& [of_class, type] : growth.types)
    types.push_back({of_class, type});
  const auto add_classes = [&](const saturate::NodeClasses& of, const NodeHistory::Form& form) {
    for (const auto& [node, of_class] : of)
      classes.push_back({form.nodes.at(node), of_class});
  };
  add_classes(growth.given, before);
  add_classes(growth.chosen, forms_[static_cast<std::size_t>(extracted)]);
  writer_.write(line_of({{"event", "egraph"},
                         {"program", number_},
                         {"graph", graph},
                         {"extracted", extracted},
                         {"rules", growth.rules},
                         {"steps", std::move(steps)},
                         {"enodes", std::move(nodes)},
                         {"joins", std::move(joins)},
                         {"types", std::move(types)},
                         {"classes", std::move(classes)},
                         {"left_out", growth.left_out}}));
}

void ProgramRecord::write_rules(const Compilation& c, const NodeHistory::Form& before) {
  const std::set<NodeHistory::Number> were(before.nodes.begin(), before.nodes.end());
  const NodeHistory::Form& after = forms_[static_cast<std::size_t>(extracted_.front())];
  std::map<NodeHistory::Number, std::vector<std::string>> rules_of;
  for (const NodeHistory::Number node : after.nodes)
    if (!were.contains(node))
      rules_of[node];
  if (rules_of.empty())
    return;
  const std::vector<saturate::RuleUse>& rules = c.saturated->report().rules;
  const auto begin = RecordWriter::Clock::now();
  std::size_t tried = 0;
  for (; tried < rules.size() &&
         writer_.seconds(RecordWriter::Clock::now()) - writer_.seconds(begin) < kRuleSeconds;
       ++tried) {
    saturate::SaturateOptions less = c.options.chosen_rules();
    less.without.push_back(rules[tried].rule);
    const ir::Graph graph = saturate::Saturated(c.graph, less).extract(1).front();
    const std::vector<NodeHistory::Number> still = history_.known(graph);
    for (auto& [node, needed] : rules_of)
      if (!std::binary_search(still.begin(), still.end(), node))
        needed.push_back(rules[tried].rule);
  }
  Json nodes = Json::array();
  for (const auto& [node, needed] : rules_of)
    nodes.push_back({{"node", node}, {"rules", needed}});
  writer_.write(line_of({{"event", "rules"},
                         {"program", number_},
                         {"graph", extracted_.front()},
                         {"fired", rules.size()},
                         {"tried", tried},
                         {"nodes", std::move(nodes)}}));
}

void ProgramRecord::pass(const PassEvent& event) {
  const Pass& pass = find_pass(event.pass, "record");
  Json json = {{"event", "pass"},
               {"program", number_},
               {"pass", event.pass},
               {"phase", compiler::name_of(pass.phase)},
               {"what", pass.what}};
  if (!event.fusion_plan.empty())
    json["fusion_plan"] = event.fusion_plan;
  json["begin"] = writer_.seconds(event.begin);
  json["seconds"] = event.seconds;
  json["changed"] = event.changed();
  json["graphs"] = graphs_after(event);
  if (!gives_graph(pass)) {
    json["text"] = event.after;
    if (event.changed() && !event.before.empty())
      json["before"] = event.before;
  }
  std::string line = line_of(json);
  if (pass.phase == Phase::Regions || pass.phase == Phase::Launches) {
    std::vector<HeldPass>& held = held_[std::string(event.fusion_plan)];
    if (std::ranges::any_of(held, [&](const HeldPass& one) { return one.pass == pass.name; }))
      held.clear(); // the plan was only looked at before
    held.push_back({pass.name, std::move(line)});
    return;
  }
  if (pass.phase == Phase::Schedules) {
    if (const auto held = held_.find(event.fusion_plan); held != held_.end())
      for (const HeldPass& before : held->second)
        writer_.write(before.line);
    held_.clear();
  }
  writer_.write(line);
  if (pass.name == "generate-code")
    keep_plan(*event.compilation);
}

void ProgramRecord::keep_plan(const Compilation& compilation) {
  plan_ = compilation.planned->plan;
  artifacts_ = compilation.code.artifacts;
  target_ = compilation.target;
  plan_graph_ = candidate_graph_;
}

void ProgramRecord::write_kernels() {
  for (std::size_t k = 0; k < plan_.kernels.size(); ++k) {
    const kernel::KernelEntry& entry = plan_.kernels[k];
    Json json = {{"event", "kernel"},
                 {"program", number_},
                 {"kernel", k},
                 {"name", entry.region.name},
                 {"form", kernel::name_of(kernel::classify(entry.region))},
                 {"schedule", kernel::to_string(entry.schedule)},
                 {"region", kernel::print(entry.region)},
                 {"tree", schedules_text(std::span(&entry, 1), target_)},
                 {"loops", kernel::print(entry.program)}};
    if (artifacts_[k])
      json["code"] = artifacts_[k]->code(entry.program);
    if (const auto* code = dynamic_cast<const backend::MachineCode*>(artifacts_[k].get())) {
      json["use"] = use_json(code->use());
      try {
        json["assembly"] = code->assembly();
      } catch (const Error& error) { // what was compiled may still be refused as text
        json["assembly"] = fmt::format("// {}\n", error.what());
      }
    }
    writer_.write(line_of(json));
  }
}

void ProgramRecord::write_plan() {
  Json slots = Json::array(), steps = Json::array();
  for (const kernel::Slot& slot : plan_.slots)
    slots.push_back(slot_json(slot));
  for (const kernel::Step& step : plan_.steps)
    steps.push_back(step_json(plan_, step));
  writer_.write(line_of({{"event", "plan"},
                         {"program", number_},
                         {"graph", plan_graph_},
                         {"arena_bytes", plan_.arena_bytes.upper()},
                         {"liveness_bound_bytes", plan_.liveness_bound_bytes.upper()},
                         {"slots", std::move(slots)},
                         {"steps", std::move(steps)}}));
}

void ProgramRecord::finished(const CompileReport& report) {
  if (plan_graph_ >= 0) {
    if (writer_.detail_ == RecordWriter::Detail::All)
      write_kernels();
    write_plan();
  }
  writer_.write(line_of({{"event", "report"},
                         {"program", number_},
                         {"end", writer_.seconds(RecordWriter::Clock::now())},
                         {"report", json_of(report)}}));
  plan_ = {};
  artifacts_.clear();
}

void ProgramRecord::failed(std::string_view message) {
  writer_.write(line_of({{"event", "failed"}, {"program", number_}, {"message", message}}));
}

void ProgramRecord::marks(std::span<const NodeMark> marks) {
  Json all = Json::array();
  for (const NodeMark& mark : marks) {
    Json nodes = Json::array();
    for (const ir::NodeId node : mark.nodes)
      nodes.push_back(forms_.front().nodes.at(node));
    all.push_back({{"nodes", std::move(nodes)}, {"colour", mark.colour}, {"note", mark.note}});
  }
  writer_.write(line_of({{"event", "marks"}, {"program", number_}, {"marks", std::move(all)}}));
}

} // namespace egret::compiler

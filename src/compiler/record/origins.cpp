#include "compiler/record/origins.h"

#include "compiler/compilation.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <map>
#include <set>
#include <utility>

namespace egret::compiler {

namespace {

using Number = NodeHistory::Number;

/// What the lines of a record say of the nodes of the graph that was compiled last.
class RecordOrigins {
public:
  explicit RecordOrigins(const std::vector<std::string>& record) {
    for (const std::string& line : record) {
      auto json = nlohmann::json::parse(line);
      const std::string event = json["event"];
      if (event == "node")
        nodes_.emplace(json["node"].get<Number>(), std::move(json)); // the number is read first
      else if (event == "graph")
        graphs_[json["graph"].get<int>()] = json["nodes"].get<std::vector<Number>>();
      else if (event == "source")
        files_[json["source"].get<int>()] = json["file"].get<std::string>();
      else if (event == "lines")
        add_places(json);
      else if (event == "plan")
        compiled_ = json["graph"].get<int>();
      else if (event == "rules")
        for (const auto& node : json["nodes"])
          rules_[node["node"].get<Number>()] = node["rules"].get<std::vector<std::string>>();
    }
  }

  std::vector<NodeOrigin> origins(std::size_t size) const {
    std::vector<NodeOrigin> origins(size);
    const auto compiled = graphs_.find(compiled_);
    if (compiled == graphs_.end() || compiled->second.size() != size)
      return origins;
    for (std::size_t id = 0; id < size; ++id) {
      const Number number = compiled->second[id];
      std::set<Number> seen;
      std::set<int> lines;
      std::set<std::string> rules, places;
      follow(number, seen, lines, rules, places);
      origins[id].lines.assign(lines.begin(), lines.end());
      origins[id].places.assign(places.begin(), places.end());
      origins[id].pass = nodes_.at(number).value("pass", "");
      origins[id].rules.assign(rules.begin(), rules.end());
    }
    return origins;
  }

private:
  void add_places(const nlohmann::json& lines) {
    for (const auto& node : lines["nodes"])
      if (node.contains("line"))
        places_[node["node"].get<Number>()] =
            fmt::format("{}:{}", files_.at(node["source"].get<int>()), node["line"].get<int>());
  }

  /// Backwards through what it replaced, to what was given.
  void follow(Number number, std::set<Number>& seen, std::set<int>& lines,
              std::set<std::string>& rules, std::set<std::string>& places) const {
    if (!seen.insert(number).second)
      return;
    const nlohmann::json& node = nodes_.at(number);
    if (node.contains("line"))
      lines.insert(node["line"].get<int>());
    if (const auto found = places_.find(number); found != places_.end())
      places.insert(found->second);
    if (const auto found = rules_.find(number); found != rules_.end())
      rules.insert(found->second.begin(), found->second.end());
    for (const auto& old : node.value("replaces", nlohmann::json::array()))
      follow(old.get<Number>(), seen, lines, rules, places);
  }

  std::map<Number, nlohmann::json> nodes_;
  std::map<int, std::vector<Number>> graphs_;
  std::map<Number, std::vector<std::string>> rules_;
  std::map<int, std::string> files_;
  std::map<Number, std::string> places_;
  int compiled_ = -1;
};

} // namespace

OriginRecord::OriginRecord(const ir::Graph& graph)
    : graph_(graph), writer_([this](std::string_view line) { lines_.emplace_back(line); },
                             RecordWriter::Detail::Nodes) {}

OriginRecord::OriginRecord(const ir::Graph& graph, std::string_view file, std::string_view text,
                           std::vector<int> lines)
    : OriginRecord(graph) {
  writer_.source(file, text, ir::canonical_hash(graph), std::move(lines));
}

void OriginRecord::pass(const PassEvent& event) {
  if (!program_)
    program_ = writer_.program(graph_, "", event.compilation->options);
  program_->pass(event);
}

std::vector<NodeOrigin> OriginRecord::finished(const CompileReport& report) {
  if (program_)
    program_->finished(report);
  writer_.end();
  return origins_of_record(lines_, report.graph.size());
}

std::vector<NodeOrigin> origins_of_record(const std::vector<std::string>& record,
                                          std::size_t size) {
  return RecordOrigins(record).origins(size);
}

} // namespace egret::compiler

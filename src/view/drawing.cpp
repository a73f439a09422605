#include "view/drawing.h"

#include "support/fail.h"
#include "support/json_reason.h"
#include "view/page.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <charconv>
#include <map>
#include <set>
#include <utility>

namespace egret::view {

namespace {

using Json = nlohmann::json;

/// What is drawn of one program of a record.
struct Program {
  std::map<std::size_t, Json> nodes, graphs, kernels;
  Json plan, report, egraph;
};

/// Whether the line is of the program of that number.
bool add_line(Program& program, const Json& line, int number) {
  if (line.value("program", -1) != number)
    return false;
  const std::string event = line.at("event");
  if (event == "node")
    program.nodes[line.at("node")] = line;
  else if (event == "graph")
    program.graphs[line.at("graph")] = line;
  else if (event == "kernel")
    program.kernels[line.at("kernel")] = line;
  else if (event == "plan")
    program.plan = line;
  else if (event == "report")
    program.report = line.at("report");
  else if (event == "egraph")
    program.egraph = line;
  return true;
}

Program program_of(std::string_view text, int number) {
  Program program;
  bool any = false;
  for (std::size_t lines = 1; !text.empty(); ++lines) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const Json line = Json::parse(text.substr(0, end), nullptr, false);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.is_discarded()) // the last line of a record that was cut short
      break;
    try {
      any = add_line(program, line, number) || any;
    } catch (const Json::exception& error) {
      fail(ErrorKind::Parse, "no sound record: line {}: {}", lines, json_reason(error));
    }
  }
  if (!any)
    fail(ErrorKind::Value, "the record has no program {}", number);
  return program;
}

std::string text_of(const Json& json, const char* field) {
  return json.contains(field) ? json.at(field).get<std::string>() : "";
}

/// By place in the graph's nodes, the launch that computes it; -1: none.
std::vector<int> launches_of(const Program& program, std::size_t graph, std::size_t size) {
  std::vector<int> launches(size, -1);
  if (program.plan.is_null() || program.report.is_null() || program.plan.at("graph") != graph)
    return launches;
  int launch = 0;
  for (const Json& kernel : program.report.at("kernels")) {
    for (const std::size_t node : kernel.at("nodes"))
      if (launches.at(node) < 0)
        launches.at(node) = launch;
    ++launch;
  }
  return launches;
}

Drawing graph_drawing(const Program& program, std::size_t number) {
  const auto found = program.graphs.find(number);
  if (found == program.graphs.end())
    fail(ErrorKind::Value, "the program has no graph {}; it has {}", number, program.graphs.size());
  const auto numbers = found->second.at("nodes").get<std::vector<std::size_t>>();
  const auto outputs = found->second.at("outputs").get<std::set<std::size_t>>();
  const std::vector<int> launches = launches_of(program, number, numbers.size());
  std::map<std::size_t, std::size_t> place;
  for (std::size_t i = 0; i < numbers.size(); ++i)
    place.emplace(numbers[i], i);
  Drawing drawing{fmt::format("graph {}", number), {}};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const Json& node = program.nodes.at(numbers[i]);
    const std::string op = node.at("op");
    DrawnNode drawn;
    drawn.id = fmt::format("%{}", i);
    std::string title = node.contains("name") ? text_of(node, "name") : op;
    if (const std::string attrs = text_of(node, "attrs"); !attrs.empty())
      title += " " + attrs;
    drawn.lines = {std::move(title), text_of(node, "type")};
    for (const std::size_t operand : node.at("operands"))
      drawn.reads.push_back(place.at(operand));
    drawn.round = op == "input" || outputs.contains(numbers[i]);
    if (launches[i] >= 0) {
      drawn.colour = launches[i];
      drawn.group = fmt::format("launch {}, {}", launches[i],
                                text_of(program.report.at("kernels").at(launches[i]), "name"));
    }
    drawing.nodes.push_back(std::move(drawn));
  }
  return drawing;
}

std::string bytes_text(double bytes) {
  return bytes >= 1 << 20   ? fmt::format("{:.1f} MiB", bytes / (1 << 20))
         : bytes >= 1 << 10 ? fmt::format("{:.1f} KiB", bytes / (1 << 10))
                            : fmt::format("{} B", bytes);
}

Drawing launches_drawing(const Program& program) {
  if (program.plan.is_null() || program.report.is_null())
    fail(ErrorKind::Value, "the record has no plan of launches");
  Drawing drawing{"launches", {}};
  std::map<std::size_t, std::size_t> writer; // by slot
  const Json& slots = program.plan.at("slots");
  const auto add = [&](DrawnNode node) {
    drawing.nodes.push_back(std::move(node));
    return drawing.nodes.size() - 1;
  };
  const auto slot_node = [&](std::size_t slot, std::vector<std::size_t> reads) {
    const Json& one = slots.at(slot);
    return add({fmt::format("slot {}", slot),
                {fmt::format("{} {}", text_of(one, "kind"), one.value("number", 0)),
                 fmt::format("{} {}", text_of(one, "type"), bytes_text(one.at("bytes")))},
                std::move(reads),
                "",
                -1,
                true});
  };
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    if (const std::string kind = slots[slot].at("kind"); kind == "input" || kind == "state")
      writer[slot] = slot_node(slot, {});
  int launch = 0;
  for (const Json& step : program.plan.at("steps")) {
    DrawnNode node;
    for (const std::size_t slot : step.at("reads"))
      if (const auto from = writer.find(slot); from != writer.end())
        node.reads.push_back(from->second);
    if (step.at("kind") == "launch") {
      const Json& kernel = program.report.at("kernels").at(static_cast<std::size_t>(launch));
      node.id = fmt::format("launch {}", launch);
      node.lines = {fmt::format("{} {}", launch, text_of(kernel, "name")),
                    fmt::format("reads {}, writes {}", bytes_text(kernel.at("bytes_read")),
                                bytes_text(kernel.at("bytes_written")))};
      node.colour = launch++;
    } else {
      node.id = fmt::format("step {}", drawing.nodes.size());
      node.lines = {text_of(step, "kind")};
    }
    const std::size_t made = add(std::move(node));
    for (const std::size_t slot : step.at("writes"))
      writer[slot] = made;
  }
  for (std::size_t slot = 0; slot < slots.size(); ++slot)
    if (slots[slot].at("kind") == "output" && writer.contains(slot))
      slot_node(slot, {writer[slot]});
  return drawing;
}

/// An e-graph at the end of saturation: classes that were joined are one.
struct FinalEGraph {
  explicit FinalEGraph(const Program& program) {
    if (program.egraph.is_null())
      fail(ErrorKind::Value, "the record has no e-graph: rules ran with an effort above none only");
    const Json& record = program.egraph;
    rules = record.at("rules").get<std::vector<std::string>>();
    for (const Json& join : record.at("joins")) {
      const std::size_t lost = join.at("class"), kept = join.at("into");
      if (kept >= lost)
        fail(ErrorKind::Parse, "a class is joined to a newer one");
      into[lost] = kept;
    }
    for (const Json& type : record.at("types"))
      types[find(type.at(0))] = type.at(1);
    enodes = record.at("enodes").get<std::vector<Json>>();
    std::set<std::string> seen; // joins make equal e-nodes
    for (std::size_t i = 0; i < enodes.size(); ++i) {
      std::string key = text_of(enodes[i], "op") + " " + text_of(enodes[i], "attrs");
      for (const std::size_t operand : enodes[i].at("operands"))
        key += fmt::format(" {}", find(operand));
      const std::size_t own = find(enodes[i].at("class"));
      if (seen.insert(fmt::format("{} {}", own, key)).second || enodes[i].value("chosen", false))
        classes[own].push_back(i);
    }
    for (const Json& output : program.graphs.at(record.at("graph")).at("outputs"))
      for (const Json& pair : record.at("classes"))
        if (pair.at(0) == output)
          roots.insert(find(pair.at(1)));
  }
  std::size_t find(std::size_t of) const {
    for (auto at = into.find(of); at != into.end(); at = into.find(of))
      of = at->second;
    return of;
  }

  std::vector<std::string> rules;
  std::vector<Json> enodes;
  std::map<std::size_t, std::size_t> into;
  std::map<std::size_t, std::vector<std::size_t>> classes; ///< their e-nodes
  std::map<std::size_t, std::string> types;
  std::set<std::size_t> roots;
};

Drawing egraph_drawing(const Program& program) {
  const FinalEGraph graph(program);
  Drawing drawing{"e-graph", {}};
  std::map<std::size_t, std::size_t> place;
  for (const auto& [number, enodes] : graph.classes)
    place.emplace(number, place.size());
  for (const auto& [number, enodes] : graph.classes) {
    DrawnNode node;
    node.id = fmt::format("class {}", number);
    const auto type = graph.types.find(number);
    node.lines.push_back(
        fmt::format("class {}  {}", number, type == graph.types.end() ? "" : type->second));
    std::set<std::size_t> reads;
    for (const std::size_t i : enodes) {
      const Json& enode = graph.enodes[i];
      std::string line = fmt::format("{} {} {}", enode.value("chosen", false) ? "*" : " ",
                                     text_of(enode, "op"), text_of(enode, "attrs"));
      for (const std::size_t operand : enode.at("operands")) {
        line += fmt::format(" c{}", graph.find(operand));
        reads.insert(place.at(graph.find(operand)));
      }
      if (enode.contains("rule"))
        line += "  by " + graph.rules.at(enode.at("rule"));
      node.lines.push_back(std::move(line));
    }
    node.reads.assign(reads.begin(), reads.end());
    node.colour = enodes.size() > 1 ? 3 : -1;
    node.round = graph.roots.contains(number);
    drawing.nodes.push_back(std::move(node));
  }
  return drawing;
}

/// Adds the parts of a schedule tree, NAME(...) within NAME(...), inner ones below what holds them;
/// of a kernel among several, by its name.
void add_tree(std::string_view schedule, const std::string& kernel, Drawing& drawing) {
  const std::size_t tree = schedule.find("@tree=");
  if (tree == std::string_view::npos) { // a generator's parameters
    DrawnNode node{"schedule", {std::string(schedule)}, {}, kernel, -1, false};
    if (!kernel.empty())
      node.lines.insert(node.lines.begin(), kernel);
    drawing.nodes.push_back(std::move(node));
    return;
  }
  std::vector<std::size_t> open;
  std::string word;
  for (const char c : schedule.substr(tree + 6)) {
    if (c == '(') {
      const std::size_t made = drawing.nodes.size();
      drawing.nodes.push_back({fmt::format("part {}", made), {word}, {}, kernel, -1, false});
      if (open.empty() && !kernel.empty())
        drawing.nodes[made].lines.insert(drawing.nodes[made].lines.begin(), kernel);
      if (!open.empty())
        drawing.nodes[made].reads.push_back(open.back());
      open.push_back(made);
      word.clear();
    } else if (c == ')' || c == ',') {
      if (!word.empty() && !open.empty()) {
        std::string& line = drawing.nodes[open.back()].lines.back();
        line += " " + word;
      }
      word.clear();
      if (c == ')' && !open.empty())
        open.pop_back();
    } else if (c != '\n') {
      word += c;
    }
  }
}

Drawing tree_drawing(const Program& program, std::size_t number) {
  const auto kernel = program.kernels.find(number);
  if (kernel == program.kernels.end())
    fail(ErrorKind::Value, "the program has no kernel {}; it has {}", number,
         program.kernels.size());
  const std::string name = text_of(kernel->second, "name");
  Drawing drawing{fmt::format("schedule of {}", name), {}};
  const std::string tree = kernel->second.at("tree");
  add_tree(tree.find("@tree=") == std::string::npos ? text_of(kernel->second, "schedule") : tree,
           "", drawing);
  return drawing;
}

/// The number behind "graph:"; `what` has that many characters before it.
std::size_t number_behind(std::string_view what, std::size_t prefix) {
  std::size_t number = 0;
  const char* const end = what.data() + what.size();
  const auto [at, error] = std::from_chars(what.data() + prefix, end, number);
  if (error != std::errc() || at != end)
    fail(ErrorKind::Value, "{} ends with no number", what);
  return number;
}

/// With errors of the record's form as those of its file.
template <class Work>
auto checked(const std::string& file, std::string_view text, Work&& work) {
  check_record(file, text);
  try {
    return work();
  } catch (const Json::exception& error) {
    fail(ErrorKind::Parse, "{}: no sound record: {}", file, json_reason(error));
  } catch (const std::out_of_range&) {
    fail(ErrorKind::Parse, "{}: no sound record: a number refers to nothing", file);
  } catch (const Error& error) {
    throw Error(error.kind(), file + ": " + error.what());
  }
}

} // namespace

Drawing drawing_of_schedules(std::string_view schedules) {
  Drawing drawing{"schedules", {}};
  for (std::size_t at = 0; at < schedules.size();) {
    const std::size_t end = std::min(schedules.find('\n', at), schedules.size());
    const std::string_view line = schedules.substr(at, end - at);
    at = end + 1;
    if (const std::size_t equals = line.find(" = "); equals != std::string_view::npos)
      add_tree(line.substr(equals + 3), std::string(line.substr(0, equals)), drawing);
  }
  return drawing;
}

Drawing drawing_of_record(const std::string& file, std::string_view text, std::string_view what,
                          int program) {
  return checked(file, text, [&]() -> Drawing {
    constexpr std::string_view kGraph = "graph:", kTree = "tree:";
    const Program read = program_of(text, program);
    if (what == "launches")
      return launches_drawing(read);
    if (what == "egraph")
      return egraph_drawing(read);
    if (what.starts_with(kTree))
      return tree_drawing(read, number_behind(what, kTree.size()));
    if (what.starts_with(kGraph))
      return graph_drawing(read, number_behind(what, kGraph.size()));
    if (what != "graph")
      fail(ErrorKind::Value, "{} is none of graph, graph:N, launches, egraph, tree:N", what);
    if (!read.plan.is_null())
      return graph_drawing(read, read.plan.at("graph"));
    return graph_drawing(read, read.graphs.empty() ? 0 : read.graphs.rbegin()->first);
  });
}

std::string serialized_egraph(const std::string& file, std::string_view text, int program) {
  return checked(file, text, [&] {
    const FinalEGraph graph(program_of(text, program));
    nlohmann::ordered_json nodes = nlohmann::ordered_json::object();
    nlohmann::ordered_json classes = nlohmann::ordered_json::object();
    const auto name = [](std::size_t enode) { return fmt::format("n{}", enode); };
    for (const auto& [number, enodes] : graph.classes) {
      for (const std::size_t i : enodes) {
        const Json& enode = graph.enodes[i];
        std::vector<std::string> children;
        for (const std::size_t operand : enode.at("operands"))
          children.push_back(name(graph.classes.at(graph.find(operand)).front()));
        std::string op = text_of(enode, "op");
        if (const std::string attrs = text_of(enode, "attrs"); !attrs.empty())
          op += " " + attrs;
        nodes[name(i)] = {{"op", op},
                          {"children", children},
                          {"eclass", std::to_string(number)},
                          {"cost", enode.at("cost")},
                          {"subsumed", false}};
      }
      if (const auto type = graph.types.find(number); type != graph.types.end())
        classes[std::to_string(number)] = {{"type", type->second}};
    }
    std::vector<std::string> roots;
    for (const std::size_t root : graph.roots)
      roots.push_back(std::to_string(root));
    return nlohmann::ordered_json{
               {"nodes", nodes}, {"root_eclasses", roots}, {"class_data", classes}}
               .dump(1, ' ', false, Json::error_handler_t::replace) +
           "\n";
  });
}

} // namespace egret::view

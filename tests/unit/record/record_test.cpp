// The record of a compilation: what nodes come from, and lines that a reader can rely on.
#include "backend/cpu/cpu_device.h"
#include "compiler/compile.h"
#include "compiler/record/node_history.h"
#include "compiler/record/record.h"
#include "egret/passes.h"
#include "egret/record.h"
#include "ir/text.h"
#include "runtime/runtime.h"
#include "saturate/saturate.h"
#include "support/files.h"
#include "support/random_graph.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <latch>
#include <map>
#include <set>
#include <sstream>
#include <thread>

namespace egret::compiler {
namespace {

using ir::Graph;
using ir::NodeId;
using nlohmann::json;

constexpr const char* kText = R"(# a softmax of a sum

%x: f32[8,16] = input "x"
%one: f32 = const 1
%ones: f32[1,1] = reshape(%one)
%all: f32[8,16] = expand(%ones)
%same: f32[8,16] = mul(%x, %all)
%e: f32[8,16] = exp(%same)
%s: f32[8] = sum(%e) axes=[1]
%sr: f32[8,1] = reshape(%s)
%se: f32[8,16] = expand(%sr)
%y: f32[8,16] = div(%e, %se)
outputs %y
)";

// Graphs with lines.

TEST(LocatedGraph, KnowsTheLineOfEachNode) {
  const ir::LocatedGraph located = ir::parse_located(kText);
  ASSERT_EQ(located.lines.size(), located.graph.size());
  EXPECT_EQ(located.lines.front(), 3);
  for (NodeId id = 0; id < located.graph.size(); ++id)
    EXPECT_EQ(located.lines[id] == 8, located.graph[id].op == Op::Exp);
  EXPECT_EQ(ir::print(located.graph), ir::print(ir::parse_graph(kText)));
}

TEST(LocatedGraph, GivesEqualNodesTheLineOfTheFirst) {
  const ir::LocatedGraph located = ir::parse_located("%x: f32 = input \"x\"\n"
                                                     "%a: f32 = exp(%x)\n"
                                                     "%b: f32 = exp(%x)\n"
                                                     "%c: f32 = add(%a, %b)\n"
                                                     "outputs %c\n");
  EXPECT_EQ(located.lines, (std::vector<int>{1, 2, 4}));
}

// Where nodes come from.

TEST(NodeHistory, NumbersNodesByStructure) {
  NodeHistory history;
  Graph a;
  const NodeId x = a.input("x", DType::F32, {Expr(4)});
  a.outputs = {a.unary(Op::Exp, x)};
  Graph b; // the same and more, in another order
  const NodeId other = b.constant(DType::F32, 2);
  const NodeId y = b.input("x", DType::F32, {Expr(4)});
  b.outputs = {b.binary(Op::Mul, b.unary(Op::Exp, y), b.broadcast(other, {Expr(4)}))};
  const NodeHistory::Seen first = history.see(a, nullptr);
  EXPECT_EQ(first.fresh.size(), 2u);
  const NodeHistory::Seen second = history.see(b, &first.form);
  EXPECT_EQ(second.form.nodes[y], first.form.nodes[x]);
  for (const NodeHistory::Fresh& fresh : second.fresh) {
    EXPECT_NE(b[fresh.id].op, Op::Input);
    EXPECT_NE(b[fresh.id].op, Op::Exp);
    EXPECT_EQ(fresh.replaces, first.form.outputs); // exp became a product with all behind it
  }
  EXPECT_TRUE(history.see(a, &second.form).fresh.empty());
}

TEST(NodeHistory, FollowsOperandsOfEqualOps) {
  // tanh(x * 1) + exp(x) -> tanh(x) + exp(x): tanh took the place of tanh, nothing of exp's.
  NodeHistory history;
  Graph before;
  const Shape shape{Expr(4)};
  NodeId x = before.input("x", DType::F32, shape);
  const NodeId product =
      before.binary(Op::Mul, x, before.broadcast(before.constant(DType::F32, 1), shape));
  const NodeId old = before.unary(Op::Tanh, product);
  before.outputs = {before.binary(Op::Add, old, before.unary(Op::Exp, x))};
  Graph after;
  x = after.input("x", DType::F32, shape);
  const NodeId now = after.unary(Op::Tanh, x);
  const NodeId exp = after.unary(Op::Exp, x);
  after.outputs = {after.binary(Op::Add, exp, now)}; // the other order, too
  const NodeHistory::Seen first = history.see(before, nullptr);
  const NodeHistory::Seen second = history.see(after, &first.form);
  std::map<NodeId, std::vector<NodeHistory::Number>> replaces;
  for (const NodeHistory::Fresh& fresh : second.fresh)
    replaces[fresh.id] = fresh.replaces;
  EXPECT_EQ(replaces.at(now), std::vector{first.form.nodes[old]});
  EXPECT_EQ(replaces.at(after.outputs[0]), first.form.outputs);
  EXPECT_FALSE(replaces.contains(exp));
}

// Records.

struct Lines {
  std::vector<json> all;
  std::vector<json> of(const std::string& event) const {
    std::vector<json> found;
    std::copy_if(all.begin(), all.end(), std::back_inserter(found),
                 [&](const json& line) { return line["event"] == event; });
    return found;
  }
};

/// What every reader relies on: what a line refers to stands above it.
void expect_sound(const Lines& lines) {
  ASSERT_FALSE(lines.all.empty());
  EXPECT_EQ(lines.all.front(),
            json({{"event", "record"}, {"format", "egret-record"}, {"version", 1}}));
  EXPECT_EQ(lines.all.back()["event"], "end");
  std::map<int, std::set<int>> nodes, graphs;
  for (const json& line : lines.all) {
    if (!line.contains("program"))
      continue;
    const int program = line["program"];
    if (line["event"] == "node") {
      for (const int operand : line["operands"])
        EXPECT_TRUE(nodes[program].contains(operand)) << line;
      for (const int old : line.value("replaces", json::array()))
        EXPECT_TRUE(nodes[program].contains(old)) << line;
      EXPECT_TRUE(nodes[program].insert(line["node"].get<int>()).second) << line;
    } else if (line["event"] == "graph") {
      for (const int node : line["nodes"])
        EXPECT_TRUE(nodes[program].contains(node)) << line;
      EXPECT_EQ(line["graph"], graphs[program].size());
      graphs[program].insert(static_cast<int>(line["graph"]));
    } else if (line["event"] == "pass") {
      EXPECT_GE(line["begin"], 0);
      EXPECT_GE(line["seconds"], 0);
      for (const int graph : line["graphs"])
        EXPECT_TRUE(graphs[program].contains(graph)) << line;
    } else if (line["event"] == "plan") {
      EXPECT_TRUE(graphs[program].contains(line["graph"]));
      for (const json& slot : line["slots"]) {
        EXPECT_LE(slot["first_step"], slot["last_step"]);
        if (slot["kind"] != "arena")
          continue;
        EXPECT_LE(slot["offset"].get<std::int64_t>() + slot["bytes"].get<std::int64_t>(),
                  line["arena_bytes"].get<std::int64_t>());
      }
    }
  }
}

class RecordOfCompiler : public ::testing::Test {
protected:
  Lines record(const Graph& graph, Options options, std::vector<int> lines = {}) {
    Lines written;
    RecordWriter writer([&](std::string_view line) { written.all.push_back(json::parse(line)); });
    if (!lines.empty())
      writer.source("g.txt", kText, ir::canonical_hash(graph), std::move(lines));
    const auto program = writer.program(graph, "cpu", options);
    options.after_pass = [&](const PassEvent& event) { program->pass(event); };
    const Compiled compiled = compile_graph(graph, options, *device_, cache_);
    passes_.clear();
    for (const PassTime& time : compiled.report.passes)
      passes_.push_back(time.pass);
    program->finished(compiled.report);
    writer.end();
    return written;
  }
  std::unique_ptr<backend::Device> device_ = backend::cpu::make_cpu_device(2);
  KernelCache cache_;
  std::vector<std::string> passes_; ///< that ran
};

TEST_F(RecordOfCompiler, LeadsFromEachCompiledNodeToItsLine) {
  const ir::LocatedGraph located = ir::parse_located(kText);
  Options options;
  options.effort = Effort::Quick;
  const Lines lines = record(located.graph, options, located.lines);
  expect_sound(lines);
  std::vector<std::string> passes;
  for (const json& pass : lines.of("pass"))
    passes.push_back(pass["pass"]);
  std::set<std::string> distinct(passes.begin(), passes.end());
  EXPECT_EQ(distinct, std::set(passes_.begin(), passes_.end()));

  std::map<int, json> nodes;
  for (const json& node : lines.of("node"))
    nodes[node["node"]] = node;
  const json plan = lines.of("plan").at(0);
  const json compiled = lines.of("graph").at(plan["graph"]);
  int without = 0, made = 0;
  for (const int number : compiled["nodes"]) {
    std::set<int> seen;
    std::vector<int> open{number};
    bool has_line = false;
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      if (!seen.insert(at).second)
        continue;
      has_line = has_line || nodes[at].contains("line");
      for (const int old : nodes[at].value("replaces", json::array()))
        open.push_back(old);
    }
    without += !has_line;
    made += nodes[number].contains("pass");
  }
  EXPECT_EQ(without, 0);
  EXPECT_GT(made, 0); // exp(x * 1) became exp(x)
  EXPECT_FALSE(lines.of("kernel").empty());
  for (const json& kernel : lines.of("kernel"))
    for (const char* form : {"region", "tree", "loops", "code", "schedule"})
      EXPECT_FALSE(kernel[form].get<std::string>().empty()) << form;
  EXPECT_EQ(lines.of("report").at(0)["report"]["kernels"].size(),
            std::ranges::count_if(plan["steps"],
                                  [](const json& step) { return step["kind"] == "launch"; }));
}

TEST_F(RecordOfCompiler, NamesTheRulesThatANodeNeeds) {
  // A sum over a transposed value becomes one over the value itself.
  const Graph graph = ir::parse_graph("%x: f32[8,16] = input \"x\"\n"
                                      "%t: f32[16,8] = permute(%x) axes=[1,0]\n"
                                      "%e: f32[16,8] = exp(%t)\n"
                                      "%s: f32[8] = sum(%e) axes=[0]\n"
                                      "outputs %s\n");
  Options options;
  options.effort = Effort::Quick;
  const Lines lines = record(graph, options);
  expect_sound(lines);
  const json rules = lines.of("rules").at(0);
  EXPECT_EQ(rules["tried"], rules["fired"]);
  const json extracted = lines.of("graph").at(rules["graph"])["nodes"];
  std::set<std::string> fired, named;
  const json report = lines.of("report").at(0)["report"];
  for (const json& rule : report["saturation"]["rules"])
    fired.insert(rule["rule"].get<std::string>());
  for (const json& node : rules["nodes"]) {
    EXPECT_NE(std::ranges::find(extracted, node["node"]), extracted.end());
    for (const json& rule : node["rules"])
      named.insert(rule.get<std::string>());
  }
  EXPECT_TRUE(named.contains("sum-of-view"));
  EXPECT_TRUE(std::ranges::includes(fired, named));
}

/// An e-graph of a record, closed over its joins.
struct RecordedEGraph {
  explicit RecordedEGraph(const json& line) : event(line) {
    for (const json& join : line["joins"]) {
      EXPECT_LT(join["into"], join["class"]);
      EXPECT_TRUE(into.emplace(join["class"], join["into"]).second);
    }
  }
  int find(int id) const {
    while (into.contains(id))
      id = into.at(id);
    return id;
  }
  json event;
  std::map<int, int> into;
};

TEST_F(RecordOfCompiler, HasTheEGraphWithWhatMadeItsNodes) {
  const Graph graph = ir::parse_graph("%x: f32[8,16] = input \"x\"\n"
                                      "%t: f32[16,8] = permute(%x) axes=[1,0]\n"
                                      "%e: f32[16,8] = exp(%t)\n"
                                      "%s: f32[8] = sum(%e) axes=[0]\n"
                                      "outputs %s\n");
  Options options;
  options.effort = Effort::Quick;
  const Lines lines = record(graph, options);
  expect_sound(lines);
  const RecordedEGraph egraph(lines.of("egraph").at(0));
  const json& event = egraph.event;
  EXPECT_EQ(event["left_out"], 0);
  const json report = lines.of("report").at(0)["report"]["saturation"];
  // What is alive at the end: e-nodes by op, operands and attributes, in their classes.
  std::set<std::string> alive;
  std::set<int> classes, with_nodes;
  std::map<int, int> chosen; // e-nodes by class
  std::set<std::string> rules;
  for (const json& node : event["enodes"]) {
    json key = {node["op"], node.value("attrs", "")};
    for (const int operand : node["operands"]) {
      key.push_back(egraph.find(operand));
      EXPECT_TRUE(with_nodes.contains(egraph.find(operand))) << node; // it stands above
    }
    alive.insert(key.dump());
    with_nodes.insert(egraph.find(node["class"]));
    EXPECT_GE(node["cost"].get<double>(), 0);
    EXPECT_LT(node["step"], event["steps"].size());
    EXPECT_EQ(node.contains("rule"), node["step"] != 0) << node;
    if (node.contains("rule"))
      rules.insert(event["rules"].at(node["rule"].get<std::size_t>()));
    chosen[egraph.find(node["class"])] += node.value("chosen", false);
  }
  EXPECT_EQ(alive.size(), report["nodes"]);
  EXPECT_EQ(with_nodes.size(), report["classes"]);
  for (const auto& [of_class, count] : chosen)
    EXPECT_LE(count, 1) << of_class;
  EXPECT_TRUE(rules.contains("sum-of-view"));
  // Nodes of both graphs are in classes of their type, outputs in one that has a chosen e-node.
  std::map<int, std::string> type_of;
  for (const json& type : event["types"])
    type_of[type[0]] = type[1];
  std::map<int, int> class_of;
  for (const json& one : event["classes"])
    class_of[one[0]] = egraph.find(one[1]);
  const std::vector<json> nodes = lines.of("node");
  for (const auto& [node, of_class] : class_of)
    EXPECT_EQ(type_of.at(of_class),
              nodes.at(static_cast<std::size_t>(node))["type"].get<std::string>());
  for (const char* which : {"graph", "extracted"}) {
    const json shown = lines.of("graph").at(event[which].get<std::size_t>());
    for (const int output : shown["outputs"])
      EXPECT_EQ(chosen.at(class_of.at(output)), 1) << which;
  }
}

TEST(Growth, HasWhatWasGivenAndChosenBeyondItsLimit) {
  const Graph graph = ir::parse_graph("%x: f32[8,16] = input \"x\"\n"
                                      "%t: f32[16,8] = permute(%x) axes=[1,0]\n"
                                      "%e: f32[16,8] = exp(%t)\n"
                                      "%s: f32[8] = sum(%e) axes=[0]\n"
                                      "outputs %s\n");
  saturate::Saturated saturated(graph, {}, saturate::Journal::Kept);
  saturated.extract();
  const saturate::Growth whole = saturated.growth(1000), least = saturated.growth(0);
  EXPECT_EQ(whole.left_out, 0u);
  EXPECT_GT(least.left_out, 0u);
  EXPECT_EQ(least.enodes.size() + least.left_out, whole.enodes.size());
  for (const saturate::Growth* growth : {&whole, &least}) {
    const auto is_given = [](const auto& node) { return node.step == 0; };
    EXPECT_EQ(std::ranges::count_if(growth->enodes, is_given), 4); // input, view, exp, sum
    const auto is_chosen = [](const auto& node) { return node.chosen; };
    EXPECT_EQ(std::ranges::count_if(growth->enodes, is_chosen), 3); // without the view
  }
}

TEST_F(RecordOfCompiler, HasEGraphsOfRandomGraphs) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Graph graph = testing::random_graph(seed, {.ops = 20});
    SCOPED_TRACE(ir::print(graph));
    Options options;
    options.effort = Effort::Quick;
    const Lines lines = record(graph, options);
    for (const json& line : lines.of("egraph")) {
      const RecordedEGraph egraph(line);
      std::set<int> with_nodes;
      int chosen = 0;
      for (const json& node : line["enodes"])
        with_nodes.insert(egraph.find(node["class"]));
      for (const json& node : line["enodes"]) {
        chosen += node.value("chosen", false);
        for (const int operand : node["operands"])
          EXPECT_TRUE(with_nodes.contains(egraph.find(operand))) << node;
      }
      EXPECT_GT(chosen, 0);
    }
  }
}

TEST_F(RecordOfCompiler, OfRandomGraphsIsSound) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const Graph graph = testing::random_graph(seed, {.ops = 20, .symbolic = seed % 3 == 0});
    Options options;
    options.effort = seed % 2 ? Effort::None : Effort::Quick;
    SCOPED_TRACE(ir::print(graph));
    expect_sound(record(graph, options));
  }
}

TEST_F(RecordOfCompiler, WritesNamesThatAreNoText) {
  Graph graph;
  graph.outputs = {graph.unary(Op::Exp, graph.input("\xff\"\n", DType::F32, {Expr(4)}))};
  const Lines lines = record(graph, {});
  expect_sound(lines);
  EXPECT_EQ(lines.of("node").at(0)["name"], "\xef\xbf\xbd\"\n");
}

TEST(RecordWriter, WritesNothingBehindItsEnd) {
  std::vector<std::string> events;
  RecordWriter writer(
      [&](std::string_view line) { events.push_back(json::parse(line).at("event")); });
  writer.end();
  const auto now = RecordWriter::Clock::now();
  writer.launch(0, 0, now, now);
  writer.end();
  EXPECT_EQ(events, (std::vector<std::string>{"record", "end"}));
}

// Through the library's door.

Lines lines_of_file(const std::filesystem::path& path) {
  Lines lines;
  std::istringstream text(test::read_file(path));
  for (std::string line; std::getline(text, line);)
    lines.all.push_back(json::parse(line));
  return lines;
}

TEST(Record, HasWhatIsCompiledAndRunWhileItLives) {
  test::TempFolder folder;
  const std::string path = (folder / "r.jsonl").string();
  auto& runtime = runtime::Runtime::instance();
  runtime.clear_plans();
  const auto exp_of = [](std::int64_t size) {
    Graph graph;
    graph.outputs = {graph.unary(Op::Exp, graph.iota(Expr(size), DType::F32))};
    return graph;
  };
  runtime.program(exp_of(5))->run({});
  {
    Record record(path);
    EXPECT_THROW(Record{path}, Error);
    const auto program = runtime.program(exp_of(7));
    program->run({});
    program->run({});
    EXPECT_FALSE(std::filesystem::exists(path));
    record.close();
    record.close();
    program->run({});
  }
  runtime.program(exp_of(9))->run({});
  const Lines lines = lines_of_file(path);
  expect_sound(lines);
  ASSERT_EQ(lines.of("program").size(), 1u);
  EXPECT_NE(lines.of("node").at(0)["type"].get<std::string>().find("[7]"), std::string::npos);
  ASSERT_EQ(lines.of("launch").size(), 2u);
  for (const json& launch : lines.of("launch")) {
    EXPECT_EQ(launch["program"], 0);
    EXPECT_EQ(launch["launch"], 0);
    EXPECT_GT(launch["seconds"], 0);
  }
}

TEST(Record, EndsWhileOtherThreadsCompileAndRun) {
  test::TempFolder folder;
  const std::string path = (folder / "r.jsonl").string();
  auto& runtime = runtime::Runtime::instance();
  runtime.clear_plans();
  for (std::int64_t size = 100; size < 110; ++size) {
    Record record(path);
    std::latch ran(1);
    std::atomic<bool> closed = false;
    std::thread other([&] {
      Graph graph;
      graph.outputs = {graph.unary(Op::Exp, graph.iota(Expr(size), DType::F32))};
      const auto program = runtime.program(graph);
      program->run({});
      ran.count_down();
      while (!closed)
        program->run({});
    });
    if (size % 2 == 0)
      ran.wait();
    record.close();
    const Lines lines = lines_of_file(path);
    expect_sound(lines);
    if (size % 2 == 0) {
      EXPECT_FALSE(lines.of("launch").empty());
    }
    closed = true;
    other.join();
    EXPECT_EQ(lines_of_file(path).all.size(), lines.all.size());
  }
}

TEST(Record, RefusesAPathThatCannotBeWrittenTo) {
  try {
    Record record("/nowhere/at/all.jsonl");
    ADD_FAILURE() << "it was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::File);
    EXPECT_NE(std::string(error.what()).find("/nowhere/at/all.jsonl"), std::string::npos);
  }
  test::TempFolder folder; // and none is left open
  Record record((folder / "r.jsonl").string());
}

} // namespace
} // namespace egret::compiler

// Graphs of tensors with the user's marks, as pages of the viewer.
#include "egret/display.h"

#include "compiler/record/record.h"
#include "ir/text.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"
#include "tensor/engine.h"
#include "view/drawing.h"
#include "view/page.h"
#include "view/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <thread>
#include <unordered_map>
#include <utility>

namespace egret {

using namespace detail;

namespace {

/// A graph with the nodes that each mark is on.
struct Marked {
  ir::Graph graph;
  std::vector<std::vector<ir::NodeId>> nodes; ///< by mark
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kColours = {
    {{"red", "#e5484d"},
     {"orange", "#f0883e"},
     {"yellow", "#f2cc3d"},
     {"green", "#3fa45b"},
     {"teal", "#2ba8a0"},
     {"blue", "#4a8fe7"},
     {"purple", "#9a6dd7"},
     {"pink", "#e06c9f"},
     {"grey", "#9aa4ae"}}};

std::string colour_of(const Mark& mark) {
  for (const auto& [name, colour] : kColours)
    if (mark.colour == name)
      return std::string(colour);
  const auto is_digit = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  if (mark.colour.size() != 7 || mark.colour[0] != '#' ||
      !std::all_of(mark.colour.begin() + 1, mark.colour.end(), is_digit))
    fail(ErrorKind::Value,
         "display: `{}` is no colour; #rrggbb, red, orange, yellow, green, teal, blue, purple, "
         "pink and grey are",
         printable(mark.colour));
  return mark.colour;
}

/// The nodes that a mark names by its text.
std::vector<ir::NodeId> named_nodes(const ir::Graph& graph, const std::string& name) {
  std::vector<ir::NodeId> found;
  if (name.starts_with('%')) {
    ir::NodeId id = 0;
    const char* const end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + 1, end, id);
    if (error == std::errc() && at == end && id < graph.size())
      found.push_back(id);
  } else {
    for (ir::NodeId id = 0; id < graph.size(); ++id)
      if (info_of(graph[id].op).name == name)
        found.push_back(id);
  }
  if (found.empty())
    fail(ErrorKind::Value, "display: no node of the graph is `{}`; marks name %NODE or an op",
         printable(name));
  return found;
}

/// Nodes that the first `outputs` outputs are made of.
std::vector<bool> below(const ir::Graph& graph, std::size_t outputs) {
  std::vector<bool> is(graph.size());
  for (std::size_t i = 0; i < outputs; ++i)
    is[graph.outputs[i]] = true;
  for (ir::NodeId id = static_cast<ir::NodeId>(graph.size()); id-- > 0;)
    if (is[id])
      for (const ir::NodeId operand : graph[id].inputs)
        is[operand] = true;
  return is;
}

Marked marked_graph(const std::vector<Tensor>& tensors, const std::vector<Mark>& marks) {
  std::vector<NodePtr> roots;
  for (const Tensor& tensor : tensors)
    if (NodePtr node = Access::raw(tensor, "display"); node->kind == Node::Kind::Op)
      roots.push_back(std::move(node));
  std::vector<NodePtr> asked = roots;
  std::vector<NodePtr> of_mark;
  for (const Mark& mark : marks) {
    of_mark.push_back(mark.nodes.empty() ? Access::raw(mark.tensor, "display") : nullptr);
    if (of_mark.back() && of_mark.back()->kind == Node::Kind::Op)
      asked.push_back(of_mark.back());
  }
  Marked made;
  std::vector<ir::NodeId> shown; // what is known already is no output
  std::unordered_map<const Node*, ir::NodeId> id_of;
  if (!roots.empty()) {
    std::unique_lock lock(engine_mutex());
    const Walk walk =
        settled_walk(lock, asked, WalkOutputs::Roots, roots[0]->scope.get(), "display");
    made.graph = graph_of(walk);
    for (std::size_t slot = 0; slot < walk.leaves.size(); ++slot)
      id_of.emplace(walk.leaves[slot].get(), made.graph.inputs()[slot]);
    for (std::size_t i = 0; i < walk.outputs.size(); ++i) {
      id_of.emplace(walk.outputs[i].get(), made.graph.outputs[i]);
      if (std::find(roots.begin(), roots.end(), walk.outputs[i]) != roots.end())
        shown.push_back(made.graph.outputs[i]);
    }
  }
  if (shown.empty())
    fail(ErrorKind::State, "display: {}",
         tensors.empty() ? "there is no tensor" : "the values are known: nothing is computed");
  made.graph.outputs = std::move(shown);
  const std::vector<bool> is = below(made.graph, made.graph.outputs.size());
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (!of_mark[i]) {
      made.nodes.push_back(named_nodes(made.graph, marks[i].nodes));
      continue;
    }
    const auto found = id_of.find(of_mark[i].get());
    if (found == id_of.end() || !is[found->second])
      fail(ErrorKind::Value, "display: the tensor of mark {} is no part of the graph", i);
    made.nodes.push_back({found->second});
  }
  return made;
}

Marked marked_graph(const Graph& graph, const std::vector<Mark>& marks) {
  Marked made{ir::parse_graph(graph.text()), {}};
  for (std::size_t i = 0; i < marks.size(); ++i) {
    if (marks[i].nodes.empty())
      fail(ErrorKind::Value,
           "display: mark {} is of a tensor; nodes of a Graph are marked by %NODE or by op", i);
    made.nodes.push_back(named_nodes(made.graph, marks[i].nodes));
  }
  return made;
}

std::string page_of(const Marked& marked, const std::vector<Mark>& marks) {
  std::string lines;
  compiler::RecordWriter writer([&](std::string_view line) {
    lines += line;
    lines += '\n';
  });
  const auto program = writer.program(marked.graph, "", {});
  std::vector<compiler::NodeMark> all;
  for (std::size_t i = 0; i < marks.size(); ++i)
    all.push_back({marked.nodes[i], colour_of(marks[i]), marks[i].note});
  program->marks(all);
  writer.end();
  return view::page_of_record("display", lines);
}

} // namespace

Mark::Mark(const Tensor& of, std::string with, std::string why)
    : tensor(of), colour(std::move(with)), note(std::move(why)) {}

Mark::Mark(std::string_view of, std::string with, std::string why)
    : nodes(of), colour(std::move(with)), note(std::move(why)) {
  if (of.empty())
    fail(ErrorKind::Value, "display: a mark names no node; %NODE or an op does");
}

void display(const Tensor& tensor, const std::vector<Mark>& marks, const std::string& path) {
  display(std::vector<Tensor>{tensor}, marks, path);
}

void display(const std::vector<Tensor>& tensors, const std::vector<Mark>& marks,
             const std::string& path) {
  output_target("display", path);
  write_output("display", path, page_of(marked_graph(tensors, marks), marks));
}

void display(const Graph& graph, const std::vector<Mark>& marks, const std::string& path) {
  output_target("display", path);
  write_output("display", path, page_of(marked_graph(graph, marks), marks));
}

void display_loops(const Graph& graph, const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  if (ending != ".svg" && ending != ".dot")
    fail(ErrorKind::Value, "display_loops: {} ends in neither .svg nor .dot", printable(path));
  const std::string schedules = graph.schedules();
  if (schedules.empty())
    fail(ErrorKind::State, "display_loops: the graph is not compiled, or has no kernel");
  output_target("display_loops", path);
  const view::Drawing drawing = view::drawing_of_schedules(schedules);
  write_output("display_loops", path,
               ending == ".svg" ? view::svg_of(drawing) : view::dot_of(drawing));
}

struct ServedDisplay::Impl {
  Impl(std::string page, std::uint16_t port)
      : server(std::move(page), port), thread([this] { server.run(); }) {}
  ~Impl() {
    server.stop();
    thread.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  view::ViewServer server;
  std::thread thread;
};

ServedDisplay::ServedDisplay(const Tensor& tensor, const std::vector<Mark>& marks,
                             std::uint16_t port)
    : impl_(std::make_unique<Impl>(page_of(marked_graph(std::vector<Tensor>{tensor}, marks), marks),
                                   port)) {}

ServedDisplay::ServedDisplay(const Graph& graph, const std::vector<Mark>& marks, std::uint16_t port)
    : impl_(std::make_unique<Impl>(page_of(marked_graph(graph, marks), marks), port)) {}

ServedDisplay::~ServedDisplay() = default;

const std::string& ServedDisplay::address() const {
  return impl_->server.address();
}

} // namespace egret

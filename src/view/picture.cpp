// Drawings as SVG, DOT and JSON.
#include "support/fail.h"
#include "view/drawing.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

namespace egret::view {

namespace {

constexpr double kCharacter = 7.25, kLine = 16, kPadding = 12, kGapX = 24, kGapY = 44, kMargin = 16;
constexpr std::size_t kMostText = 48; ///< characters of a line
constexpr int kSweeps = 6;
constexpr int kLongestBent = 12; ///< layers: longer edges are straight
constexpr int kPalette = 8;

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
}

std::size_t characters_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

std::string cut(const std::string& text) {
  if (characters_of(text) <= kMostText)
    return text;
  std::size_t count = 0, at = 0;
  for (; at < text.size(); ++at)
    if (begins_character(text[at]) && ++count == kMostText)
      break;
  return text.substr(0, at) + "…";
}

/// Of XML, which has no control characters.
std::string xml_text(std::string_view text) {
  std::string safe;
  for (const char c : text)
    switch (c) {
    case '&':
      safe += "&amp;";
      break;
    case '<':
      safe += "&lt;";
      break;
    case '>':
      safe += "&gt;";
      break;
    case '"':
      safe += "&quot;";
      break;
    default:
      safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  return safe;
}

std::string dot_text(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '"' || c == '\\')
      safe += '\\';
    safe += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return safe;
}

using Lists = std::vector<std::vector<std::size_t>>;

/// What each node reads, once, without the edges that lead back on a way from a node to itself.
Lists without_cycles(const std::vector<DrawnNode>& nodes) {
  enum class State : std::uint8_t { New, Open, Done };
  std::vector<State> states(nodes.size(), State::New);
  Lists kept(nodes.size());
  struct Visit {
    std::size_t node, next;
  };
  for (std::size_t first = 0; first < nodes.size(); ++first) {
    if (states[first] != State::New)
      continue;
    std::vector<Visit> open{{first, 0}};
    states[first] = State::Open;
    while (!open.empty()) {
      const std::size_t node = open.back().node;
      if (open.back().next == nodes[node].reads.size()) {
        states[node] = State::Done;
        open.pop_back();
        continue;
      }
      const std::size_t read = nodes[node].reads[open.back().next++];
      if (states[read] == State::Open)
        continue;
      if (std::ranges::find(kept[node], read) == kept[node].end())
        kept[node].push_back(read);
      if (states[read] == State::New) {
        states[read] = State::Open;
        open.push_back({read, 0});
      }
    }
  }
  return kept;
}

/// Longest paths from what reads nothing.
std::vector<int> layers_of(const Lists& reads) {
  std::vector<int> layers(reads.size(), 0);
  std::vector<std::size_t> waits(reads.size()), ready;
  Lists readers(reads.size());
  for (std::size_t node = 0; node < reads.size(); ++node) {
    waits[node] = reads[node].size();
    for (const std::size_t read : reads[node])
      readers[read].push_back(node);
    if (waits[node] == 0)
      ready.push_back(node);
  }
  while (!ready.empty()) {
    const std::size_t node = ready.back();
    ready.pop_back();
    for (const std::size_t reader : readers[node]) {
      layers[reader] = std::max(layers[reader], layers[node] + 1);
      if (--waits[reader] == 0)
        ready.push_back(reader);
    }
  }
  return layers;
}

struct Placed {
  double x, y, width, height; ///< x and y of the center
};

/// Layers of boxes, bends of edges among them as boxes of no size.
class Layout {
public:
  explicit Layout(const std::vector<DrawnNode>& nodes) : nodes_(nodes) {
    const Lists reads = without_cycles(nodes);
    layer_ = layers_of(reads);
    for (const DrawnNode& node : nodes) {
      std::size_t widest = 6;
      for (const std::string& line : node.lines)
        widest = std::max(widest, characters_of(cut(line)));
      widths_.push_back(static_cast<double>(widest) * kCharacter + 2 * kPadding);
    }
    neighbours_[0].resize(nodes.size());
    for (std::size_t to = 0; to < nodes.size(); ++to)
      for (const std::size_t from : reads[to])
        add_edge(from, to);
    neighbours_[1].resize(widths_.size());
    for (std::size_t to = 0; to < widths_.size(); ++to)
      for (const std::size_t from : neighbours_[0][to])
        neighbours_[1][from].push_back(to);
    order();
    place();
  }

  struct Edge {
    std::size_t from, to;
    std::vector<std::size_t> bends;
  };
  const std::vector<Edge>& edges() const { return edges_; }
  Placed box(std::size_t node) const {
    return {x_[node] - left_, y_[static_cast<std::size_t>(layer_[node])], widths_[node],
            height_of(node)};
  }
  double width() const { return right_ - left_; }
  double height() const { return height_; }

private:
  void add_edge(std::size_t from, std::size_t to) {
    Edge edge{from, to, {}};
    std::size_t last = from;
    const bool bent = layer_[to] - layer_[from] <= kLongestBent;
    for (int at = layer_[from] + 1; bent && at < layer_[to]; ++at) {
      const std::size_t bend = widths_.size();
      widths_.push_back(0);
      layer_.push_back(at);
      neighbours_[0].push_back({last});
      edge.bends.push_back(bend);
      last = bend;
    }
    if (bent)
      neighbours_[0][to].push_back(last);
    edges_.push_back(std::move(edge));
  }

  double height_of(std::size_t box) const {
    return box < nodes_.size() ? kLine * static_cast<double>(nodes_[box].lines.size()) + 8 : 0;
  }

  /// By the means of their neighbours' places, down and up in turn.
  void order() {
    for (std::size_t box = 0; box < layer_.size(); ++box) {
      const auto at = static_cast<std::size_t>(layer_[box]);
      if (layers_.size() <= at)
        layers_.resize(at + 1);
      layers_[at].push_back(box);
    }
    x_.assign(widths_.size(), 0);
    const auto number = [&](const std::vector<std::size_t>& list) {
      for (std::size_t i = 0; i < list.size(); ++i)
        x_[list[i]] = static_cast<double>(i);
    };
    std::ranges::for_each(layers_, number);
    for (int sweep = 0; sweep < kSweeps; ++sweep)
      for_layers(sweep, [&](std::vector<std::size_t>& list) {
        std::vector<std::pair<double, std::size_t>> keys;
        for (const std::size_t box : list)
          keys.emplace_back(wanted(box, neighbours_[sweep % 2]), box);
        std::ranges::stable_sort(keys, {}, &std::pair<double, std::size_t>::first);
        for (std::size_t i = 0; i < keys.size(); ++i)
          list[i] = keys[i].second;
        number(list);
      });
  }

  void place() {
    for (const std::vector<std::size_t>& list : layers_) {
      double at = 0;
      for (const std::size_t box : list) {
        x_[box] = at + widths_[box] / 2;
        at += widths_[box] + kGapX;
      }
      for (const std::size_t box : list)
        x_[box] -= at / 2;
    }
    for (int sweep = 0; sweep < kSweeps; ++sweep)
      for_layers(sweep,
                 [&](std::vector<std::size_t>& list) { straighten(list, neighbours_[sweep % 2]); });
    for (const std::vector<std::size_t>& list : layers_) {
      double highest = 0;
      for (const std::size_t box : list)
        highest = std::max(highest, height_of(box));
      y_.push_back(height_ + highest / 2);
      height_ += highest + kGapY;
    }
    height_ = std::max(0.0, height_ - kGapY);
    for (std::size_t box = 0; box < nodes_.size(); ++box) {
      left_ = std::min(left_, x_[box] - widths_[box] / 2);
      right_ = std::max(right_, x_[box] + widths_[box] / 2);
    }
    if (nodes_.empty())
      left_ = right_ = 0;
  }

  template <class F>
  void for_layers(int sweep, F&& visit) {
    if (sweep % 2 == 0)
      for (auto& list : layers_)
        visit(list);
    else
      for (auto list = layers_.rbegin(); list != layers_.rend(); ++list)
        visit(*list);
  }

  double wanted(std::size_t box, const Lists& neighbours) const {
    const std::vector<std::size_t>& list = neighbours[box];
    double sum = 0;
    for (const std::size_t one : list)
      sum += x_[one];
    return list.empty() ? x_[box] : sum / static_cast<double>(list.size());
  }

  /// Moves the boxes of a layer as near to where they want to be as their order and widths permit:
  /// least squares by pooling neighbours that want to pass each other.
  void straighten(const std::vector<std::size_t>& list, const Lists& neighbours) {
    struct Block {
      double sum;
      std::size_t count;
      double mean() const { return sum / static_cast<double>(count); }
    };
    std::vector<Block> blocks;
    std::vector<double> offsets;
    double offset = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (i > 0)
        offset += (widths_[list[i - 1]] + widths_[list[i]]) / 2 + kGapX;
      offsets.push_back(offset);
      blocks.push_back({wanted(list[i], neighbours) - offset, 1});
      while (blocks.size() > 1 && blocks[blocks.size() - 2].mean() > blocks.back().mean()) {
        const Block last = blocks.back();
        blocks.pop_back();
        blocks.back().sum += last.sum;
        blocks.back().count += last.count;
      }
    }
    std::size_t i = 0;
    for (const Block& block : blocks)
      for (std::size_t k = 0; k < block.count; ++k, ++i)
        x_[list[i]] = block.mean() + offsets[i];
  }

  const std::vector<DrawnNode>& nodes_;
  std::vector<int> layer_;     ///< by box: nodes, then bends
  std::vector<double> widths_; ///< likewise
  std::vector<double> x_;      ///< likewise
  Lists neighbours_[2];        ///< in the layer before, and behind
  Lists layers_;
  std::vector<double> y_; ///< by layer
  std::vector<Edge> edges_;
  double left_ = std::numeric_limits<double>::max(), right_ = std::numeric_limits<double>::lowest();
  double height_ = 0;
};

constexpr std::string_view kStyle =
    "text{font:12px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;text-anchor:middle;"
    "fill:#1b1f23}.d{fill:#57606a}rect{fill:#fff;stroke:#8c959f}path{fill:none;stroke:#8c959f}"
    ".p0{fill:#d8e8fb}.p1{fill:#fdeec9}.p2{fill:#dff2e1}.p3{fill:#fbdfd6}.p4{fill:#e9dffa}"
    ".p5{fill:#d5f1f1}.p6{fill:#f8dcea}.p7{fill:#e8eccf}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.d{fill:#9aa4ae}rect{fill:#22272e}"
    ".p0{fill:#1c3f66}.p1{fill:#5c4813}.p2{fill:#23492b}.p3{fill:#64331f}.p4{fill:#402a66}"
    ".p5{fill:#174a4a}.p6{fill:#5c2140}.p7{fill:#444b1c}}";

} // namespace

std::string svg_of(const Drawing& drawing) {
  if (drawing.nodes.size() > kMostDrawnNodes)
    fail(ErrorKind::Value,
         "{} has {} nodes, too many for a picture ({} at the most): draw `launches`, or write .dot "
         "or .json",
         drawing.title, drawing.nodes.size(), kMostDrawnNodes);
  const Layout layout(drawing.nodes);
  std::string svg;
  const auto out = std::back_inserter(svg);
  fmt::format_to(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
                 "width=\"{0:.0f}\" height=\"{1:.0f}\">\n<title>{2}</title>\n<style>{3}</style>\n",
                 layout.width() + 2 * kMargin, layout.height() + 2 * kMargin,
                 xml_text(drawing.title), kStyle);
  fmt::format_to(out, "<g transform=\"translate({0:.0f},{0:.0f})\">\n", kMargin);
  for (const Layout::Edge& edge : layout.edges()) {
    const Placed from = layout.box(edge.from), to = layout.box(edge.to);
    double x = from.x, y = from.y + from.height / 2;
    fmt::format_to(out, "<path d=\"M{:.1f},{:.1f}", x, y);
    const auto curve = [&](double to_x, double to_y) {
      const double middle = (y + to_y) / 2;
      fmt::format_to(out, "C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", x, middle, to_x, middle,
                     to_x, to_y);
      x = to_x;
      y = to_y;
    };
    for (const std::size_t bend : edge.bends) {
      const Placed at = layout.box(bend);
      curve(at.x, at.y);
    }
    curve(to.x, to.y - to.height / 2);
    fmt::format_to(out, "m-4,-7l4,7l4,-7\"/>\n");
  }
  for (std::size_t i = 0; i < drawing.nodes.size(); ++i) {
    const DrawnNode& node = drawing.nodes[i];
    const Placed box = layout.box(i);
    fmt::format_to(out, "<g><title>{}{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" ",
                   xml_text(node.id), node.group.empty() ? "" : "\n" + xml_text(node.group),
                   box.x - box.width / 2, box.y - box.height / 2, box.width);
    fmt::format_to(out, "height=\"{:.1f}\" rx=\"{:.0f}\"", box.height,
                   node.round ? std::min(18.0, box.height / 2) : 5.0);
    if (node.colour >= 0)
      fmt::format_to(out, " class=\"p{}\"", node.colour % kPalette);
    svg += "/>";
    double y = box.y - box.height / 2 + kLine;
    for (std::size_t line = 0; line < node.lines.size(); ++line, y += kLine)
      fmt::format_to(out, "<text{} x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
                     line == 0 ? "" : " class=\"d\"", box.x, y, xml_text(cut(node.lines[line])));
    svg += "</g>\n";
  }
  return svg + "</g>\n</svg>\n";
}

std::string dot_of(const Drawing& drawing) {
  std::string dot = "digraph egret {\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n";
  const auto out = std::back_inserter(dot);
  const auto node = [&](std::size_t i, const char* indent) {
    std::string label;
    for (const std::string& line : drawing.nodes[i].lines)
      label += (label.empty() ? "" : "\\n") + dot_text(line);
    fmt::format_to(out, "{}n{} [label=\"{}\"{}];\n", indent, i, label,
                   drawing.nodes[i].round ? ", style=rounded" : "");
  };
  std::set<std::string> groups;
  for (const DrawnNode& one : drawing.nodes)
    groups.insert(one.group);
  std::size_t cluster = 0;
  for (const std::string& group : groups) {
    if (!group.empty())
      fmt::format_to(out, "  subgraph cluster_{} {{\n    label=\"{}\";\n", cluster++,
                     dot_text(group));
    for (std::size_t i = 0; i < drawing.nodes.size(); ++i)
      if (drawing.nodes[i].group == group)
        node(i, group.empty() ? "  " : "    ");
    if (!group.empty())
      dot += "  }\n";
  }
  for (std::size_t i = 0; i < drawing.nodes.size(); ++i)
    for (const std::size_t read : drawing.nodes[i].reads)
      fmt::format_to(out, "  n{} -> n{};\n", read, i);
  return dot + "}\n";
}

std::string json_of(const Drawing& drawing) {
  using Json = nlohmann::ordered_json;
  Json nodes = Json::array(), edges = Json::array();
  for (std::size_t i = 0; i < drawing.nodes.size(); ++i) {
    const DrawnNode& node = drawing.nodes[i];
    Json json = {{"id", node.id}, {"lines", node.lines}};
    if (!node.group.empty())
      json["group"] = node.group;
    nodes.push_back(std::move(json));
    for (const std::size_t read : node.reads)
      edges.push_back({drawing.nodes[read].id, node.id});
  }
  return Json{{"title", drawing.title}, {"nodes", nodes}, {"edges", edges}}.dump(
             1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

} // namespace egret::view

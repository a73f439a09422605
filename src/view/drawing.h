// The graphs of a record as pictures and as data: SVG, Graphviz's DOT and JSON (docs/seeing.md).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace egret::view {

struct DrawnNode {
  std::string id;                 ///< of its kind: "%3", "launch 2", "class 5"
  std::vector<std::string> lines; ///< what it says
  std::vector<std::size_t> reads; ///< places of other nodes, as often as they are read
  std::string group;              ///< what is drawn together: a kernel; may be empty
  int colour = -1;                ///< of the palette; -1: none
  bool round = false;             ///< an input or a result
};

/// A graph to be drawn. Edges may lead back (e-graphs have cycles).
struct Drawing {
  std::string title;
  std::vector<DrawnNode> nodes;
};

/// `what` of program `program` of a record: "graph" (the one that was compiled), "graph:N" (as the
/// viewer numbers them), "launches", "egraph", or "tree:N", the schedule tree of kernel N.
/// Error(Parse) that begins with `file` where the text is no sound record; Error(Value) naming what
/// the record does not have.
Drawing drawing_of_record(const std::string& file, std::string_view text, std::string_view what,
                          int program);

/// The parts of schedule trees, one `KERNEL = SCHEDULE` a line as Graph::schedules() gives them.
Drawing drawing_of_schedules(std::string_view schedules);

/// The e-graph of a program in the form of the tools of https://github.com/egraphs-good
/// (egraph-serialize); errors as above.
std::string serialized_egraph(const std::string& file, std::string_view text, int program);

/// In layers, from what is read to what reads it (Sugiyama, Tagawa & Toda 1981), as one file that
/// needs nothing else; light or dark as its reader wants. Error(Value) for more than
/// kMostDrawnNodes nodes.
std::string svg_of(const Drawing& drawing);
inline constexpr std::size_t kMostDrawnNodes = 20000;
std::string dot_of(const Drawing& drawing);
std::string json_of(const Drawing& drawing);

} // namespace egret::view

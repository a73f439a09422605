// A graph in a browser, with marks of one's own (docs/seeing.md).
#pragma once

#include "egret/graph.h"
#include "egret/tensor.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret {

/// What stands out in a displayed graph, and why.
struct Mark {
  /// The operation that makes the tensor, or the input that it is.
  Mark(const Tensor& tensor, std::string colour, std::string note = {});
  /// "%12" is a node as the graph's text writes it, "exp" every operation of this kind.
  Mark(std::string_view nodes, std::string colour, std::string note = {});

  Tensor tensor; ///< empty: `nodes` says which
  std::string nodes;
  std::string colour; ///< "#rrggbb", or red, orange, yellow, green, teal, blue, purple, pink, grey
  std::string note;   ///< shown at the node and in the legend; any text
};

/// Writes one HTML file that shows what reading the tensors would compute, op by op, and loads
/// nothing: open it in a browser. Marked nodes have the marks' colours; of several marks on a node
/// the last one counts. Nothing is computed.
///
///   Tensor e = exp(x), y = e / sum(e, -1, true);
///   display(y, {{e, "orange", "may overflow"}, {"sum", "#7fb3ff"}}, "softmax.html");
///
/// Error(File) for a path that cannot be written to; Error(Value) naming a mark whose colour is
/// none, or that is of no node of the graph; Error(State) for tensors whose values are all known.
void display(const Tensor& tensor, const std::vector<Mark>& marks, const std::string& path);
void display(const std::vector<Tensor>& tensors, const std::vector<Mark>& marks,
             const std::string& path);
/// The graph as Graph::text() has it. Marks by tensor are Error(Value) here: a pass may have left
/// nothing of them.
void display(const Graph& graph, const std::vector<Mark>& marks, const std::string& path);

/// The loop form of a compiled graph: the schedule tree of each kernel, a box a loop, as a picture
/// that egret lays out (.svg) or for Graphviz (.dot). Error(State) where the graph is not compiled,
/// Error(Value) for another ending, Error(File) for a path that cannot be written to.
void display_loops(const Graph& graph, const std::string& path);

/// The page of display() served on 127.0.0.1 while this lives, at an address that holds 128 random
/// bits.
class ServedDisplay {
public:
  /// `port` 0: any that is free. Error(File) naming a port that is in use.
  explicit ServedDisplay(const Tensor& tensor, const std::vector<Mark>& marks = {},
                         std::uint16_t port = 0);
  explicit ServedDisplay(const Graph& graph, const std::vector<Mark>& marks = {},
                         std::uint16_t port = 0);
  ~ServedDisplay();
  ServedDisplay(const ServedDisplay&) = delete;
  ServedDisplay& operator=(const ServedDisplay&) = delete;

  /// "http://127.0.0.1:PORT/TOKEN/"
  const std::string& address() const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret

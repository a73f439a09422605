// A graph as terms of the tensor e-graph, and back. docs/search.md shows the encoding.
#pragma once

#include "egret/egraph.h"
#include "saturate/attributes.h"
#include "saturate/growth.h"

#include <array>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace egret::saturate {

/// The term of an op, from its row in the op table: "(Gather axis a b)" is the constructor Gather
/// with an attribute and two operands.
struct Form {
  std::string head;
  std::vector<std::string> attributes; ///< slot, axes, axis, by_value are i64, all others String
  int operands = 0;
};
const Form& form_of(Op op);

/// Declarations of all terms and analyses, with the rules that compute analyses, fold constants and
/// move views outwards, generated from the op table. What hand-written rules (src/rules) stand on.
std::string prelude();
/// The groups of rules that prelude() declares.
inline constexpr const char* kAnalysis = "analysis";
inline constexpr const char* kFold = "fold";
inline constexpr const char* kPull = "pull";

/// One node as a term over other nodes of the graph. A movement is a View of the node below its
/// whole chain.
struct Term {
  const Form* form = nullptr;
  std::vector<std::variant<std::int64_t, std::string>> attributes;
  std::vector<ir::NodeId> operands;
};
Term term_of(const ir::Graph& graph, ir::NodeId id, Attributes& attributes);

/// An e-graph that knows the terms, and no rules but the prelude's.
class Terms {
public:
  Terms();

  egraph::EGraph& egraph() { return egraph_; }
  const egraph::EGraph& egraph() const { return egraph_; }
  Attributes& attributes() { return *attributes_; }
  egraph::SortId tensor() const { return tensor_; }
  egraph::FunctionId function_of(Op op) const { return functions_[static_cast<std::size_t>(op)]; }

  /// The constructors, each once.
  std::vector<egraph::FunctionId> functions() const;
  /// Adds what the outputs need; the classes of the outputs, and, where `nodes` is given, of all
  /// that was added.
  std::vector<egraph::Root> add(const ir::Graph& graph, NodeClasses* nodes = nullptr);
  /// Adds one term whose operands are these classes.
  egraph::Value add(Op op, const Term& term, std::span<const egraph::Value> operands);
  /// The graph of extracted terms. `signature` gives the inputs, of which all stay; roots become
  /// the outputs. `nodes`, where given, gets the classes that nodes were taken from.
  ir::Graph graph_of(const egraph::TermGraph& terms, const ir::Graph& signature,
                     NodeClasses* nodes = nullptr);
  /// Adds the node of one e-node to a graph that has its inputs: `attributes` are the literals
  /// among its arguments, `operands` stand for the others.
  ir::NodeId add_node(ir::Graph& graph, egraph::FunctionId function,
                      std::span<const egraph::Value> attributes,
                      std::span<const ir::NodeId> operands);
  /// What stands beside the operands of an e-node, as people read it: "axes=[1]".
  std::string attributes_text(egraph::FunctionId function,
                              std::span<const egraph::Value> literals) const;
  /// The op's name in texts of graphs; "view" of movements, which are one constructor.
  std::string op_text(egraph::FunctionId function) const;
  /// Types of all classes, by class.
  std::unordered_map<egraph::Value, Type> types();

private:
  std::shared_ptr<Attributes> attributes_;
  egraph::EGraph egraph_;
  egraph::SortId tensor_;
  std::array<egraph::FunctionId, kOps> functions_;
  std::unordered_map<std::uint32_t, Op> op_of_; ///< by function
};

/// The terms of a graph as a program: dims, one (let $n.. ) a node, and the names of the outputs'
/// variables.
struct ProgramText {
  std::string text;
  std::vector<std::string> outputs;
};
ProgramText program_of(const ir::Graph& graph);

} // namespace egret::saturate

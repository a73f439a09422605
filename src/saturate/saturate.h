// Equality saturation of a graph and extraction of the cheapest graph from it: two phases of the
// compiler (docs/search.md).
#pragma once

#include "saturate/growth.h"
#include "saturate/options.h"
#include "saturate/terms.h"

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace egret::saturate {

/// Whether what was made when is kept, for growth().
enum class Journal : std::uint8_t { None, Kept };

/// A saturated e-graph with the graph it came from.
class Saturated {
public:
  Saturated(const ir::Graph& graph, const SaturateOptions& options,
            Journal journal = Journal::None);

  const SaturateReport& report() const { return report_; }
  Terms& terms() { return terms_; }
  const std::vector<egraph::Root>& roots() const { return roots_; }

  /// `count` cheap graphs at most, best first, each verified. Inputs and the order, dtypes
  /// and shapes of outputs are the graph's.
  std::vector<ir::Graph> extract(std::size_t count = 1);
  /// Whether the cheapest graph of extract() is another one than the graph that was given.
  bool is_rewritten() const { return rewritten_; }

  /// What was made when, of `most` e-nodes at the most; behind extract(), which says what was
  /// chosen. For people; needs Journal::Kept.
  Growth growth(std::size_t most);

private:
  using ENode = std::pair<egraph::FunctionId, std::vector<egraph::Value>>;

  void load(const SaturateOptions& options);
  void run(const SaturateOptions& options);
  void remember_nodes();
  void remember_choice(const egraph::TermGraph& terms, NodeClasses classes);
  ENode canonical(const ENode& node) const;
  double cost_of(const egraph::TermGraph& terms, const egraph::CostModel& cost) const;

  const Journal journal_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  ir::Graph signature_;
  Terms terms_;
  std::vector<Group> groups_;
  std::vector<egraph::Root> roots_;
  std::vector<ENode> given_;                 ///< the e-nodes of the graph itself
  std::vector<egraph::Value> given_outputs_; ///< their classes, where there is to be a journal
  std::vector<Growth::Step> steps_;          ///< likewise
  NodeClasses given_classes_, chosen_classes_;
  std::set<ENode> chosen_; ///< the e-nodes of the cheapest graph
  bool rewritten_ = false; ///< they are not those of the given one
  SaturateReport report_;
};

/// The groups that these options allow, built-in ones first.
std::vector<Group> chosen_groups(const SaturateOptions& options);

/// The whole saturation as a program that `egret egraph run` replays: terms, rules, schedule, and
/// an extraction of each output.
std::string program_text(const ir::Graph& graph, const SaturateOptions& options);

/// The cost of one e-node as if its value were stored: bytes written and work, in bytes. Movements
/// are free.
egraph::CostModel cost_model(Terms& terms);

} // namespace egret::saturate

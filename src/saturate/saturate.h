// Equality saturation of a graph and extraction of the cheapest graph from it: two phases of the
// compiler (docs/search.md).
#pragma once

#include "saturate/options.h"
#include "saturate/terms.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace egret::saturate {

/// A saturated e-graph with the graph it came from.
class Saturated {
public:
  Saturated(const ir::Graph& graph, const SaturateOptions& options);

  const SaturateReport& report() const { return report_; }
  Terms& terms() { return terms_; }
  const std::vector<egraph::Root>& roots() const { return roots_; }

  /// `count` cheap graphs at most, best first, each verified. Inputs and the order, dtypes
  /// and shapes of outputs are the graph's.
  std::vector<ir::Graph> extract(std::size_t count = 1);

private:
  using ENode = std::pair<egraph::FunctionId, std::vector<egraph::Value>>;

  void load(const SaturateOptions& options);
  void run(const SaturateOptions& options);
  void remember_nodes();
  ENode canonical(const ENode& node) const;
  double cost_of(const egraph::TermGraph& terms, const egraph::CostModel& cost) const;

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  ir::Graph signature_;
  Terms terms_;
  std::vector<Group> groups_;
  std::vector<egraph::Root> roots_;
  std::vector<ENode> given_; ///< the e-nodes of the graph itself
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

// Equality saturation of a graph and extraction of the cheapest graph from it: two phases of the
// compiler (docs/search.md).
#pragma once

#include "saturate/rules.h"
#include "saturate/terms.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace egret::saturate {

struct SaturateOptions {
  Tags allowed{Tag::Exact};        ///< groups with other tags are left out
  std::vector<std::string> groups; ///< only these; empty: all that are allowed. Error(Value) names
                                   ///< one that does not exist
  double seconds = 1;              ///< when time is up, what was found by then is used
  std::uint64_t rows = 400000;     ///< of all tables of the e-graph; likewise
  std::uint64_t rounds = 12;       ///< of all groups in order
  std::uint64_t shuffle = 0;       ///< not 0: load rules in an order drawn with this seed
  std::vector<RuleFile> files;     ///< beside the built-in ones
};

/// Equal for equal options, for keys of what was compiled with them.
std::uint64_t hash_of(const SaturateOptions& options);

struct RuleUse {
  std::string rule, group;
  Tag tag = Tag::Exact;
  std::uint64_t fired = 0;      ///< matches acted on
  std::uint64_t rows_added = 0; ///< e-nodes and facts that were new
  double seconds = 0;           ///< matching and acting
  double idle_seconds = 0;      ///< matching in rounds in which it found nothing
};

struct SaturateReport {
  std::size_t classes = 0, nodes = 0; ///< e-classes and e-nodes at the end
  std::uint64_t rounds = 0;
  bool saturated = false; ///< no rule had anything to add
  std::string stopped;    ///< why, where not: "rounds", "rows", "time"
  double load_seconds = 0, run_seconds = 0;
  double zero_match_share = 0; ///< share of matching time in which rules found nothing
  std::vector<RuleUse>
      rules; ///< that fired, most often first; rules that only compute analyses are left out
};

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

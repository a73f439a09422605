// Loop trees as terms of a small e-graph, and back.
#pragma once

#include "egret/egraph.h"
#include "loops/options.h"

#include <span>
#include <string>
#include <vector>

namespace egret::loops {

/// src/rules/loops.egg.
std::string_view rules_text() noexcept;

/// A rule of the file, or of LoopOptions::rules.
struct RuleText {
  std::string name, ruleset;
  std::string tag;     ///< of its ruleset
  std::string comment; ///< the lines above it
  std::string text;
};
/// The rules of a text, in order. Error(Parse) with line where one has no name, no comment or no
/// ruleset, or a ruleset has no tag.
std::vector<RuleText> rules_of(std::string_view text, const std::string& file = "loops.egg");

/// An e-graph of one region's loops: rules and facts are there, trees are added.
class LoopTerms {
public:
  /// Throws Error for rules that do not parse. The region must have terms (why_no_terms) and
  /// outlive this.
  LoopTerms(const kernel::Region& region, const kernel::Target& target,
            const LoopOptions& options = {});

  egraph::Root add(const kernel::loops::Tree& tree);
  TreePtr tree_of(const egraph::TermGraph& terms, std::size_t root = 0) const;

  /// Runs rulesets in turn, what is known of trees after each, until nothing changes or a budget is
  /// spent; counts what fired. `phase` names the run in LoopReport::stopped.
  void run(const std::string& phase, std::span<const char* const> rulesets,
           const egraph::Budget& budget, LoopReport& report, std::uint64_t rounds = 1000);

  bool equal(egraph::Root a, egraph::Root b) const {
    return egraph_.equal(loop_, a.value, b.value);
  }
  /// Loop terms that are there.
  std::uint64_t nodes() const;
  egraph::EGraph& egraph() { return egraph_; }

private:
  egraph::Value extent_of(const kernel::loops::Tree& loop);

  const kernel::Region& region_;
  egraph::EGraph egraph_;
  egraph::SortId loop_{};
  egraph::FunctionId number_, ceil_, body_, for_, mask_, acc_, near_, then_;
};

/// A tree as text of a term.
std::string term_text(const kernel::loops::Tree& tree, const kernel::Region& region);

/// The rulesets that may run: those whose tag the options allow.
bool allowed(const LoopOptions& options, std::string_view ruleset);

} // namespace egret::loops

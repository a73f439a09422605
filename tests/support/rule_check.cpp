#include "support/rule_check.h"

#include "support/rule_instance.h"

#include "backend/reference/reference.h"
#include "egraph/sexp.h"
#include "ir/structure.h"
#include "ir/text.h"
#include "support/graph_runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace egret::testing {

using egraph::Value;
using ir::NodeId;
using saturate::Tag;

namespace {

/// All e-nodes that can be evaluated, as nodes of the instances' graph; by class the first is what
/// the others must equal.
class Classes {
public:
  Classes(Instances& instances) : instances_(instances), egraph_(instances.terms().egraph()) {
    std::map<Value, Value> joined;
    for (const Made& made : instances.made()) {
      const Value now = canonical(made.value);
      const Value before = joined.emplace(now, made.value).first->second;
      // A term that is evaluated as what it was joined with, such as a view that moves nothing.
      same_ += before != made.value && first_.contains(now) && first_.at(now) == made.node;
      add(now, made.node);
    }
    while (more())
      ;
  }

  struct Pair {
    NodeId first, other;
  };
  const std::vector<Pair>& pairs() const { return pairs_; }
  std::uint64_t same() const { return same_; }

private:
  Value canonical(Value value) const {
    return egraph_.canonical(instances_.terms().tensor(), value);
  }

  void add(Value type, NodeId node) {
    auto [place, fresh] = first_.emplace(type, node);
    if (!fresh && place->second != node && seen_.emplace(place->second, node).second)
      pairs_.push_back({place->second, node});
  }

  bool more() {
    const std::size_t known = first_.size(), pairs = pairs_.size();
    for (const egraph::FunctionId function : instances_.terms().functions())
      rows_of(function, instances_.terms().egraph().inputs(function));
    return first_.size() != known || pairs_.size() != pairs;
  }

  void rows_of(egraph::FunctionId function, std::span<const egraph::SortId> inputs) {
    const auto attributes = static_cast<std::size_t>(
        std::ranges::find(inputs, instances_.terms().tensor()) - inputs.begin());
    struct Found {
      std::vector<Value> literals;
      std::vector<NodeId> operands;
      Value result;
    };
    std::vector<Found> found;
    egraph_.for_each_row(function, [&](const egraph::Row& row) {
      Found f;
      f.literals.assign(row.args.begin(), row.args.begin() + static_cast<long>(attributes));
      for (Value operand : row.args.subspan(attributes)) {
        auto place = first_.find(canonical(operand));
        if (place == first_.end())
          return;
        f.operands.push_back(place->second);
      }
      f.result = canonical(row.output);
      found.push_back(std::move(f));
    });
    for (const Found& f : found)
      add(f.result,
          instances_.terms().add_node(instances_.graph(), function, f.literals, f.operands));
  }

  Instances& instances_;
  const egraph::EGraph& egraph_;
  std::map<Value, NodeId> first_;
  std::set<std::pair<NodeId, NodeId>> seen_;
  std::vector<Pair> pairs_;
  std::uint64_t same_ = 0;
};

/// The lines of what one node needs.
std::string lines_for(const ir::Graph& graph, NodeId node) {
  ir::Graph part = graph;
  part.outputs = {node};
  const std::vector<bool> live = ir::live_nodes(part);
  std::string text;
  for (NodeId id = 0; id < part.size(); ++id)
    if (live[id])
      text += ir::node_text(part, id) + "\n";
  return text;
}

/// Several roundings of the largest constant in what a node needs: of one that was folded, no
/// estimate knows how it was rounded.
double rounding_of_constants(const ir::Graph& graph, NodeId node) {
  ir::Graph part = graph;
  part.outputs = {node};
  const std::vector<bool> live = ir::live_nodes(part);
  double largest = 0;
  for (NodeId id = 0; id < part.size(); ++id)
    if (live[id] && part[id].op == Op::Constant && std::isfinite(part[id].attrs.value.as_double()))
      largest = std::max(largest, std::abs(part[id].attrs.value.as_double()));
  return 8 * largest * (graph[node].dtype == DType::F64 ? 0x1p-53 : 0x1p-24);
}

/// Of rules that are not exact.
constexpr double kScale = 4;

/// What a batch of instances got wrong; empty when nothing.
std::string wrong(Instances& instances, Tag tag, std::uint64_t seed, std::uint64_t& compared) {
  const Classes classes(instances);
  compared += classes.same();
  const ir::Graph& graph = instances.graph();
  const auto inputs = random_inputs(graph, seed, {.special = tag == Tag::Exact, .range = 2});
  std::vector<NodeId> firsts, others;
  for (const auto& pair : classes.pairs()) {
    firsts.push_back(pair.first);
    others.push_back(pair.other);
  }
  const auto actual = backend::reference::execute(graph, inputs, others);
  const auto wanted = backend::reference::execute(graph, inputs, firsts);
  std::vector<backend::reference::Expected> expected, also;
  if (tag != Tag::Exact) {
    expected = backend::reference::expect(graph, inputs, firsts);
    also = backend::reference::expect(graph, inputs, others);
  }
  for (std::size_t i = 0; i < actual.size(); ++i) {
    std::string problem;
    if (tag == Tag::Exact) {
      problem = difference(wanted[i], actual[i]);
      compared += static_cast<std::uint64_t>(actual[i].size());
    } else {
      // Outside of what is finite these rules promise nothing.
      backend::reference::HostArray limited = actual[i];
      const auto before = wanted[i].doubles(), after = actual[i].doubles();
      for (std::size_t at = 0; at < before.size(); ++at)
        if (std::isfinite(before[at]) && std::isfinite(after[at]))
          ++compared;
        else
          limited.set(static_cast<std::int64_t>(at), wanted[i].at(static_cast<std::int64_t>(at)));
      // Both may differ from what is true by their own roundings.
      for (std::size_t at = 0; at < expected[i].error.size() && !also[i].error.empty(); ++at)
        expected[i].error[at] += also[i].error[at];
      const auto compared_now = [&] {
        return backend::reference::compare(limited, expected[i], "class", {.scale = kScale});
      };
      auto result = compared_now();
      if (!result.ok && !expected[i].error.empty()) {
        const double more = rounding_of_constants(graph, firsts[i]);
        for (double& error : expected[i].error)
          error += more;
        result = compared_now();
      }
      problem = result.ok ? "" : result.message;
    }
    if (!problem.empty())
      return fmt::format("{}\none member\n{}the other\n{}", problem, lines_for(graph, firsts[i]),
                         lines_for(graph, others[i]));
  }
  return {};
}

} // namespace

RuleCheck check_rule(const CheckedRule& rule, std::uint64_t seed, std::uint64_t wanted,
                     std::uint64_t most) {
  constexpr std::uint64_t kBatch = 64;
  RuleCheck result;
  const Premises premises(rule.text);
  while (result.fired < wanted && result.tried < most) {
    Instances instances(premises, seed * 1000003 + result.tried, rule.tag);
    for (std::uint64_t i = 0; i < kBatch; ++i)
      instances.make();
    result.tried += kBatch;
    egraph::EGraph& egraph = instances.terms().egraph();
    egraph.run_program(rule.declarations);
    egraph.run_program(rule.text, rule.name);
    const auto analyses =
        egraph::Plan::saturate({egraph::Plan::run(egraph.ruleset(saturate::kAnalysis))});
    egraph.run(analyses);
    const egraph::RunReport run = egraph.run(egraph.ruleset(rule.ruleset));
    for (const egraph::RuleReport& report : run.rules)
      result.fired += report.matches;
    egraph.rebuild();
    try {
      egraph.run(analyses); // the types of joined classes must agree
      if (std::string problem = wrong(instances, rule.tag, seed + result.tried, result.compared);
          !problem.empty())
        result.failure = fmt::format("rule \"{}\": {}", rule.name, problem);
    } catch (const std::exception& error) {
      result.failure = fmt::format("rule \"{}\": {}", rule.name, error.what());
    }
    if (!result.failure.empty())
      return result;
  }
  return result;
}

void expect_holds(const CheckedRule& rule, std::uint64_t firings) {
  const RuleCheck check = check_rule(rule, 1, firings, 200 * firings);
  EXPECT_EQ(check.failure, "");
  EXPECT_GE(check.fired, firings) << rule.name << " fired " << check.fired << " times in "
                                  << check.tried << " instances";
  EXPECT_GE(check.compared, firings / 4) << rule.name;
}

std::vector<CheckedRule> rules_of(const saturate::RuleFile& file) {
  const saturate::Group group = saturate::parse_group(file);
  std::vector<CheckedRule> rules;
  for (const saturate::Rule& rule : group.rules)
    rules.push_back({rule.name, rule.text, group.declarations, group.name, group.tag});
  return rules;
}

std::vector<CheckedRule> prelude_rules() {
  // Each into a ruleset of its own, since the prelude's own are full.
  std::vector<CheckedRule> rules;
  egraph::Sources sources;
  const std::string text = saturate::prelude();
  const std::uint32_t file = sources.add("prelude", text);
  const egraph::Sexps sexps(sources, file);
  for (std::size_t i = 0; i < sexps.size(); ++i) {
    std::string rule(sources.text(sexps[i].span()));
    const std::size_t at = rule.find(":ruleset pull");
    if (sexps[i].head() != "rule" || at == std::string::npos)
      continue;
    rule.replace(at, std::string(":ruleset pull").size(), ":ruleset checked");
    const std::size_t name = rule.find(":name \"") + 7;
    rules.push_back({rule.substr(name, rule.find('"', name) - name), rule, "(ruleset checked)",
                     "checked", Tag::Exact});
  }
  return rules;
}

} // namespace egret::testing

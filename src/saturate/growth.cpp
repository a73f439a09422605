#include "saturate/growth.h"

#include "saturate/saturate.h"
#include "support/fail.h"

#include <algorithm>
#include <map>
#include <span>
#include <unordered_set>

namespace egret::saturate {

namespace {

using egraph::Value;

/// Rules by the numbers of the growth, in the order in which they are first met.
class RuleNames {
public:
  explicit RuleNames(const egraph::EGraph& egraph) : egraph_(egraph) {}
  int number(egraph::RuleId rule) {
    const auto [place, fresh] = numbers_.try_emplace(rule, static_cast<int>(names_.size()));
    if (fresh)
      names_.push_back(egraph_.name(rule));
    return place->second;
  }
  std::vector<std::string> take() { return std::move(names_); }

private:
  const egraph::EGraph& egraph_;
  std::map<egraph::RuleId, int> numbers_;
  std::vector<std::string> names_;
};

/// Steps that changed something, and which one an entry of the journal belongs to.
struct Changes {
  explicit Changes(const std::vector<Growth::Step>& all) : steps{{0, "", 0, 0}} {
    for (const Growth::Step& step : all)
      if (step.made > steps.back().made || step.joined > steps.back().joined)
        steps.push_back(step);
  }
  int of_made(std::size_t entry) const {
    int step = 0;
    while (steps[static_cast<std::size_t>(step)].made <= entry)
      ++step;
    return step;
  }
  int of_joined(std::size_t entry) const {
    int step = 0;
    while (steps[static_cast<std::size_t>(step)].joined <= entry)
      ++step;
    return step;
  }
  std::vector<Growth::Step> steps;
};

} // namespace

Growth Saturated::growth(std::size_t most) {
  const egraph::EGraph& egraph = terms_.egraph();
  const egraph::Journal& journal = egraph.journal();
  const egraph::CostModel cost = cost_model(terms_);
  const Changes changes(steps_);
  RuleNames names(egraph);
  Growth growth;
  growth.steps = changes.steps;
  growth.given = given_classes_;
  growth.chosen = chosen_classes_;
  std::unordered_set<Value> mentioned;
  const auto mention = [&](Value of_class) {
    mentioned.insert(of_class);
    return of_class;
  };
  std::set<ENode> left(chosen_.begin(), chosen_.end()); // chosen e-nodes that are still to come

  const auto add = [&](const ENode& node, Value output, int step, int rule) {
    const ENode now = canonical(node);
    const bool chosen = left.erase(now) > 0;
    if (growth.enodes.size() >= most && !chosen && rule != Growth::kNoRule) {
      ++growth.left_out;
      return;
    }
    const auto sorts = egraph.inputs(node.first);
    std::size_t literals = 0;
    while (literals < sorts.size() && sorts[literals] != terms_.tensor())
      ++literals;
    const std::span<const Value> args(node.second);
    Growth::ENode made;
    made.op = terms_.op_text(node.first);
    made.attributes = terms_.attributes_text(node.first, args.first(literals));
    for (const Value operand : args.subspan(literals))
      made.operands.push_back(mention(operand));
    made.of_class = mention(output);
    made.step = step;
    made.rule = rule;
    made.cost = cost(now.first, now.second);
    made.chosen = chosen;
    growth.enodes.push_back(std::move(made));
  };
  std::vector<std::pair<Value, const ENode*>> given; // the graph's nodes, in its order
  for (std::size_t i = 0; i < given_outputs_.size(); ++i)
    given.emplace_back(given_outputs_[i], &given_[i]);
  std::sort(given.begin(), given.end());
  for (const auto& [output, node] : given)
    add(*node, output, 0, Growth::kNoRule);
  for (std::size_t i = 0; i < journal.made.size(); ++i) {
    const egraph::Journal::Made& made = journal.made[i];
    if (egraph.output(made.function) == terms_.tensor())
      add({made.function, made.args}, made.output, changes.of_made(i), names.number(made.rule));
  }
  for (std::size_t i = 0; i < journal.joined.size(); ++i) {
    const egraph::Journal::Joined& join = journal.joined[i];
    if (!mentioned.contains(join.lost)) // no e-node that is told is in it
      continue;
    growth.joins.push_back({join.lost, mention(join.kept), changes.of_joined(i),
                            join.rule ? names.number(*join.rule) : Growth::kNoRule});
  }
  const std::unordered_map<Value, Type> types = terms_.types();
  for (const Value of_class : mentioned)
    if (const auto found = types.find(egraph.canonical(terms_.tensor(), of_class));
        found != types.end())
      growth.types.emplace_back(of_class, to_text(found->second));
  std::sort(growth.types.begin(), growth.types.end());
  growth.rules = names.take();
  return growth;
}

} // namespace egret::saturate

#include "loops/terms.h"

#include "loops/facts.h"
#include "support/fail.h"

#include <algorithm>
#include <map>
#include <set>

namespace egret::loops {

using egraph::Value;
using kernel::loops::Kind;
using kernel::loops::Tree;

namespace {

/// Rulesets that only gather facts of trees.
constexpr const char* kKnown = "known";

/// The number by which an extent of unknown size is divided in a loop.
std::int64_t divisor_of(const Tree& loop, const Expr& extent) {
  constexpr std::int64_t kTried = 4096;
  if (loop.extent == ceildiv(extent, Expr(loop.step)))
    return loop.step;
  for (std::int64_t n = 1; n <= kTried; ++n)
    if (loop.extent == ceildiv(extent, Expr(n)))
      return n;
  fail(ErrorKind::Value, "loop tree: {} iterations are no part of an axis of {}", loop.extent.str(),
       extent.str());
}

std::size_t line_of(std::string_view text, std::size_t at) {
  return 1 + std::size_t(std::count(text.begin(), text.begin() + std::ptrdiff_t(at), '\n'));
}

/// The end of the parenthesis that opens at `begin`.
std::size_t end_of(std::string_view text, std::size_t begin) {
  int depth = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    if (text[i] == ';')
      i = std::min(text.find('\n', i), text.size() - 1);
    else if (text[i] == '"')
      i = std::min(text.find('"', i + 1), text.size() - 1);
    else if (text[i] == '(')
      ++depth;
    else if (text[i] == ')' && --depth == 0)
      return i + 1;
  }
  return text.size();
}

std::string word_after(std::string_view text, std::string_view option) {
  const std::size_t at = text.rfind(option);
  if (at == std::string_view::npos)
    return "";
  std::string_view rest = text.substr(at + option.size());
  if (rest.starts_with('"'))
    rest = rest.substr(1, rest.find('"', 1) - 1);
  return std::string(rest.substr(0, rest.find_first_of(" )\n")));
}

std::vector<std::string> commands_of(std::string_view text) {
  std::vector<std::string> found;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ';')
      at = std::min(text.find('\n', at), text.size());
    else if (text[at] == '(') {
      const std::size_t end = end_of(text, at);
      found.emplace_back(text.substr(at, end - at));
      at = end;
    } else
      ++at;
  }
  return found;
}

/// An e-graph with the rules of the file, made once: reading them takes longer than most regions.
const egraph::EGraph& prepared() {
  static const egraph::EGraph egraph = [] {
    egraph::EGraph g;
    g.run_program(rules_text(), "loops.egg");
    return g;
  }();
  return egraph;
}

egraph::EGraph with_rules(const LoopOptions& options) {
  egraph::EGraph g;
  if (options.without.empty())
    g = prepared();
  else {
    std::string text;
    for (const std::string& command : commands_of(rules_text()))
      if (!command.starts_with("(rule ") ||
          std::ranges::find(options.without, word_after(command, ":name ")) ==
              options.without.end())
        text += command + "\n";
    g.run_program(text, "loops.egg");
  }
  if (!options.rules.empty())
    g.run_program(options.rules, "rules");
  return g;
}

} // namespace

std::vector<RuleText> rules_of(std::string_view text, const std::string& file) {
  std::vector<RuleText> found;
  std::map<std::string, std::string> tags;
  std::string comment, tag;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ';') {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = text.substr(at, end - at);
      if (line.starts_with("; tag: "))
        tag = line.substr(7);
      comment += (comment.empty() ? "" : "\n") +
                 std::string(line.substr(std::min<std::size_t>(2, line.size())));
      at = end;
    } else if (text[at] == '(') {
      const std::size_t end = end_of(text, at);
      const std::string_view command = text.substr(at, end - at);
      const auto refuse = [&](const std::string& what) {
        fail(ErrorKind::Parse, "{}:{}: {}", file, line_of(text, at), what);
      };
      if (command.starts_with("(ruleset ")) {
        if (tag.empty())
          refuse("the ruleset has no line `; tag: ...` above it");
        tags[std::string(command.substr(9, command.size() - 10))] = tag;
        tag.clear();
      } else if (command.starts_with("(rule ")) {
        RuleText rule{word_after(command, ":name "), word_after(command, ":ruleset "), "", comment,
                      std::string(command)};
        if (rule.name.empty())
          refuse("the rule has no name; give it one with :name \"...\"");
        if (rule.comment.empty())
          refuse(fmt::format("rule \"{}\" has no comment on the line above", rule.name));
        if (!tags.contains(rule.ruleset))
          refuse(fmt::format("rule \"{}\" is of no ruleset with a tag", rule.name));
        rule.tag = tags[rule.ruleset];
        found.push_back(std::move(rule));
      }
      comment.clear();
      at = end;
    } else
      ++at;
  }
  return found;
}

bool allowed(const LoopOptions& options, std::string_view ruleset) {
  static const std::set<std::string, std::less<>> reassociating = [] {
    std::set<std::string, std::less<>> names;
    for (const RuleText& rule : rules_of(rules_text()))
      if (rule.tag != "exact")
        names.insert(rule.ruleset);
    return names;
  }();
  return options.reassociate || !reassociating.contains(ruleset);
}

LoopTerms::LoopTerms(const kernel::Region& region, const kernel::Target& target,
                     const LoopOptions& options)
    : region_(region), egraph_(with_rules(options)) {
  loop_ = egraph_.sort("Loop");
  number_ = egraph_.function("N");
  ceil_ = egraph_.function("Ceil");
  body_ = egraph_.function("Body");
  for_ = egraph_.function("For");
  mask_ = egraph_.function("Mask");
  acc_ = egraph_.function("Acc");
  near_ = egraph_.function("Near");
  then_ = egraph_.function("Then");
  egraph_.run_program(facts_of(region, target), "facts");
}

Value LoopTerms::extent_of(const Tree& loop) {
  if (const auto n = loop.extent.constant())
    return egraph_.add(number_, {egraph_.i64(*n)});
  const std::int64_t n = divisor_of(loop, region_.axes.at(std::size_t(loop.axis)).extent);
  return egraph_.add(ceil_, {egraph_.i64(loop.axis), egraph_.i64(n)});
}

egraph::Root LoopTerms::add(const Tree& t) {
  const auto value = [&]() -> Value {
    switch (t.kind) {
    case Kind::Body:
      return egraph_.add(body_, {egraph_.i64(t.stage)});
    case Kind::For: {
      const Value rest = add(*t.rest).value, extent = extent_of(t);
      return egraph_.add(for_, {egraph_.i64(t.axis), extent, egraph_.i64(t.step),
                                egraph_.string(kernel::name_of(t.bind)), rest});
    }
    case Kind::Mask: {
      const Value rest = add(*t.rest).value;
      return egraph_.add(mask_, {egraph_.i64(t.axis), rest});
    }
    case Kind::Accumulate: {
      const Value rest = add(*t.rest).value;
      return egraph_.add(acc_, {egraph_.i64(t.stage), rest});
    }
    case Kind::Near: {
      const Value rest = add(*t.rest).value;
      return egraph_.add(near_, {egraph_.i64(t.operand), rest});
    }
    case Kind::Then: {
      const Value first = add(*t.first).value, rest = add(*t.rest).value;
      return egraph_.add(then_, {first, rest});
    }
    case Kind::Prefetch: // nothing is computed
    case Kind::Collapse: // which threads run the loops inside: no order changes
      return add(*t.rest).value;
    }
    ensure(false, "loop tree of kind {}", int(t.kind));
    return 0;
  };
  return {loop_, value()};
}

TreePtr LoopTerms::tree_of(const egraph::TermGraph& terms, std::size_t root) const {
  namespace tree = kernel::loops;
  std::vector<TreePtr> trees(terms.nodes.size());
  std::vector<Expr> extents(terms.nodes.size());
  for (std::size_t i = 0; i < terms.nodes.size(); ++i) {
    const egraph::TermGraph::Node& node = terms.nodes[i];
    if (node.is_literal)
      continue;
    auto number = [&](std::size_t child) {
      return egraph_.to_i64(terms.nodes[node.children[child]].value);
    };
    auto child = [&](std::size_t place) { return trees[node.children[place]]; };
    if (node.function == number_)
      extents[i] = Expr(number(0));
    else if (node.function == ceil_)
      extents[i] = ceildiv(region_.axes.at(std::size_t(number(0))).extent, Expr(number(1)));
    else if (node.function == body_)
      trees[i] = tree::body(int(number(0)));
    else if (node.function == for_) {
      const auto bind = kernel::bind_named(egraph_.to_string(terms.nodes[node.children[3]].value));
      ensure(bind.has_value(), "a loop of no kind");
      trees[i] = tree::loop(int(number(0)), extents[node.children[1]], number(2), *bind, child(4));
    } else if (node.function == mask_)
      trees[i] = tree::mask(int(number(0)), child(1));
    else if (node.function == acc_)
      trees[i] = tree::accumulate(int(number(0)), child(1));
    else if (node.function == near_)
      trees[i] = tree::near(int(number(0)), child(1));
    else
      trees[i] = tree::then(child(0), child(1));
  }
  return trees[terms.roots.at(root)];
}

void LoopTerms::run(const std::string& phase, std::span<const char* const> rulesets,
                    const egraph::Budget& budget, LoopReport& report, std::uint64_t rounds) {
  using egraph::Plan;
  std::vector<Plan> parts;
  const Plan known = Plan::saturate({Plan::run(egraph_.ruleset(kKnown))});
  for (const char* ruleset : rulesets) {
    parts.push_back(Plan::run(egraph_.ruleset(ruleset)));
    parts.push_back(known);
  }
  const egraph::RunReport run =
      egraph_.run(Plan::sequence({known, Plan::repeat(rounds, std::move(parts))}), budget);
  static const std::map<std::string, std::string> ruleset_of = [] {
    std::map<std::string, std::string> names;
    for (const RuleText& rule : rules_of(rules_text()))
      names.emplace(rule.name, rule.ruleset);
    return names;
  }();
  std::string greatest;
  for (const egraph::RuleReport& rule : run.rules) {
    const auto found = ruleset_of.find(rule.name);
    const std::string ruleset = found == ruleset_of.end() ? "" : found->second;
    if (ruleset == kKnown || rule.matches == 0)
      continue;
    if (greatest.empty() && rule.rows_added > 0)
      greatest = rule.name;
    auto known_rule = std::ranges::find(report.rules, rule.name, &LoopRule::name);
    if (known_rule == report.rules.end())
      known_rule = report.rules.insert(report.rules.end(), {rule.name, ruleset, 0});
    known_rule->fired += rule.matches;
  }
  if (run.stop == egraph::StopReason::Rows || run.stop == egraph::StopReason::Time)
    report.stopped.push_back(fmt::format("{}: {}{}", phase,
                                         run.stop == egraph::StopReason::Rows ? "rows" : "time",
                                         greatest.empty() ? "" : ", most by " + greatest));
}

std::uint64_t LoopTerms::nodes() const {
  std::uint64_t count = 0;
  for (const egraph::FunctionId f : {body_, for_, mask_, acc_, near_, then_})
    count += egraph_.size(f);
  return count;
}

std::string term_text(const Tree& t, const kernel::Region& region) {
  auto rest = [&] { return term_text(*t.rest, region); };
  switch (t.kind) {
  case Kind::Body:
    return fmt::format("(Body {})", t.stage);
  case Kind::For: {
    const auto n = t.extent.constant();
    const std::string extent =
        n ? fmt::format("(N {})", *n)
          : fmt::format("(Ceil {} {})", t.axis,
                        divisor_of(t, region.axes.at(std::size_t(t.axis)).extent));
    return fmt::format("(For {} {} {} \"{}\" {})", t.axis, extent, t.step, kernel::name_of(t.bind),
                       rest());
  }
  case Kind::Mask:
    return fmt::format("(Mask {} {})", t.axis, rest());
  case Kind::Accumulate:
    return fmt::format("(Acc {} {})", t.stage, rest());
  case Kind::Near:
    return fmt::format("(Near {} {})", t.operand, rest());
  case Kind::Then:
    return fmt::format("(Then {} {})", term_text(*t.first, region), rest());
  case Kind::Prefetch:
  case Kind::Collapse:
    return rest();
  }
  return "";
}

} // namespace egret::loops

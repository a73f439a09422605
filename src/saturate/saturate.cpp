#include "saturate/saturate.h"

#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <fmt/ranges.h>
#include <map>
#include <set>

namespace egret::saturate {

using egraph::Plan;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The groups that the prelude declares, all exact.
constexpr const char* kGenerated[] = {kPull, kFold};

bool wanted(const SaturateOptions& options, const std::string& name, Tag tag) {
  return options.allowed.has(tag) &&
         (options.groups.empty() ||
          std::ranges::find(options.groups, name) != options.groups.end()) &&
         std::ranges::find(options.without, name) == options.without.end();
}

/// The names of the groups that run, in order.
std::vector<std::string> order_of(const SaturateOptions& options,
                                  const std::vector<Group>& groups) {
  std::vector<std::string> names;
  for (const Group& group : groups)
    names.push_back(group.name);
  for (const char* name : kGenerated)
    if (wanted(options, name, Tag::Exact))
      names.emplace_back(name);
  return names;
}

void shuffle(std::vector<Rule>& rules, std::uint64_t& state) {
  for (std::size_t i = rules.size(); i > 1; --i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::swap(rules[i - 1], rules[(state >> 33) % i]);
  }
}

} // namespace

std::uint64_t hash_of(const SaturateOptions& options) {
  std::uint64_t hash = std::bit_cast<std::uint64_t>(options.seconds);
  for (const std::uint64_t x :
       {options.allowed.bits(), options.rows, options.rounds, options.shuffle})
    hash = combine(hash, x);
  for (const std::string& group : options.groups)
    hash = combine(hash, hash_text(group));
  for (const std::string& rule : options.without)
    hash = combine(hash, hash_text(rule + "-"));
  for (const RuleFile& file : options.files)
    hash = combine(hash, hash_text(file.text));
  return hash;
}

std::vector<Group> chosen_groups(const SaturateOptions& options) {
  std::vector<Group> groups;
  std::vector<std::string> known(std::begin(kGenerated), std::end(kGenerated));
  auto take = [&](const RuleFile& file) {
    Group group = parse_group(file);
    if (std::ranges::find(known, group.name) != known.end())
      fail(ErrorKind::Value, "{}: there is a group {} already", file.name, group.name);
    known.push_back(group.name);
    if (wanted(options, group.name, group.tag))
      groups.push_back(std::move(group));
  };
  std::ranges::for_each(builtin_rules(), take);
  std::ranges::for_each(options.files, take);
  for (const std::string& name : options.groups)
    if (std::ranges::find(known, name) == known.end())
      fail(ErrorKind::Value, "there is no group of rules `{}`; groups: {}", name,
           fmt::join(known, ", "));
  for (Group& group : groups)
    std::erase_if(group.rules, [&](const Rule& rule) {
      return std::ranges::find(options.without, rule.name) != options.without.end();
    });
  std::uint64_t state = options.shuffle;
  if (state != 0)
    for (Group& group : groups)
      shuffle(group.rules, state);
  return groups;
}

Saturated::Saturated(const ir::Graph& graph, const SaturateOptions& options, Journal journal)
    : journal_(journal), signature_(graph) {
  load(options);
  roots_ = terms_.add(graph, journal == Journal::Kept ? &given_classes_ : nullptr);
  remember_nodes();
  report_.load_seconds = seconds_since(begin_);
  run(options);
  report_.run_seconds = seconds_since(begin_) - report_.load_seconds;
}

void Saturated::load(const SaturateOptions& options) {
  groups_ = chosen_groups(options);
  for (const Group& group : groups_) {
    if (options.shuffle == 0 &&
        options.without.empty()) { // as one text, so that errors name the place
      terms_.egraph().run_program(group.file.text, group.file.name);
      continue;
    }
    terms_.egraph().run_program(group.declarations, group.file.name);
    for (const Rule& rule : group.rules)
      terms_.egraph().run_program(rule.text, group.file.name);
  }
}

void Saturated::run(const SaturateOptions& options) {
  egraph::EGraph& egraph = terms_.egraph();
  const auto begin = Clock::now();
  std::map<std::string, std::pair<std::string, Tag>> group_of;
  for (const Group& group : groups_)
    for (const Rule& rule : group.rules)
      group_of.emplace(rule.name, std::pair(group.name, group.tag));
  std::map<std::string, RuleUse> uses;
  double matching = 0, idle = 0;
  bool updated = true;
  auto run = [&](const Plan& plan, const std::string& group) {
    const egraph::RunReport run =
        egraph.run(plan, {.seconds = std::max(0.0, options.seconds - seconds_since(begin)),
                          .rows = options.rows});
    for (const egraph::RuleReport& rule : run.rules) {
      matching += rule.match_seconds;
      idle += rule.idle_seconds;
      if (group == kAnalysis)
        continue;
      RuleUse& use = uses[rule.name];
      use.rule = rule.name;
      use.group = group;
      if (auto found = group_of.find(rule.name); found != group_of.end())
        use.tag = found->second.second;
      use.fired += rule.matches;
      use.rows_added += rule.rows_added;
      use.seconds += rule.match_seconds + rule.apply_seconds;
      use.idle_seconds += rule.idle_seconds;
    }
    if (journal_ == Journal::Kept)
      steps_.push_back({report_.rounds + 1, group, egraph.journal().made.size(),
                        egraph.journal().joined.size()});
    if (run.stop == egraph::StopReason::Rows || run.stop == egraph::StopReason::Time)
      report_.stopped = run.stop == egraph::StopReason::Rows ? "rows" : "time";
    return run.updated;
  };
  const Plan analyses = Plan::saturate({Plan::run(egraph.ruleset(kAnalysis))});
  run(analyses, kAnalysis);
  for (; updated && report_.stopped.empty() && report_.rounds < options.rounds; ++report_.rounds) {
    updated = false;
    for (const std::string& group : order_of(options, groups_)) {
      if (!report_.stopped.empty())
        break;
      if (run(Plan::run(egraph.ruleset(group)), group)) {
        updated = true;
        if (report_.stopped.empty())
          run(analyses, kAnalysis);
      }
    }
  }
  report_.saturated = !updated && report_.stopped.empty();
  if (!report_.saturated && report_.stopped.empty())
    report_.stopped = "rounds";
  egraph.rebuild();
  report_.zero_match_share = matching > 0 ? idle / matching : 0;
  for (auto& [name, use] : uses)
    if (use.fired > 0)
      report_.rules.push_back(std::move(use));
  std::ranges::stable_sort(report_.rules, std::greater<>(), &RuleUse::fired);
  report_.classes = terms_.types().size();
  for (const egraph::FunctionId function : terms_.functions())
    report_.nodes += egraph.size(function);
}

void Saturated::remember_nodes() {
  for (const egraph::FunctionId function : terms_.functions())
    terms_.egraph().for_each_row(function, [&](const egraph::Row& row) {
      given_.emplace_back(function, std::vector<egraph::Value>(row.args.begin(), row.args.end()));
      if (journal_ == Journal::Kept)
        given_outputs_.push_back(row.output);
    });
  if (journal_ == Journal::Kept)
    terms_.egraph().keep_journal();
}

Saturated::ENode Saturated::canonical(const ENode& node) const {
  ENode result = node;
  const auto sorts = terms_.egraph().inputs(node.first);
  for (std::size_t i = 0; i < sorts.size(); ++i)
    if (sorts[i] == terms_.tensor())
      result.second[i] = terms_.egraph().canonical(sorts[i], result.second[i]);
  return result;
}

double Saturated::cost_of(const egraph::TermGraph& terms, const egraph::CostModel& cost) const {
  double total = 0;
  std::vector<egraph::Value> args;
  for (const egraph::TermGraph::Node& node : terms.nodes) {
    if (node.is_literal)
      continue;
    args.clear();
    for (std::uint32_t child : node.children)
      args.push_back(terms.nodes[child].value);
    total += cost(node.function, args);
  }
  return total;
}

void Saturated::remember_choice(const egraph::TermGraph& terms, NodeClasses classes) {
  chosen_classes_ = std::move(classes);
  chosen_.clear();
  for (const egraph::TermGraph::Node& node : terms.nodes) {
    if (node.is_literal)
      continue;
    std::vector<egraph::Value> args;
    for (const std::uint32_t child : node.children)
      args.push_back(terms.nodes[child].value);
    chosen_.insert(canonical({node.function, std::move(args)}));
  }
}

// Extraction changes one class at a time, and what several readers share pays only when all of them
// change. So it also starts closer to the graph as it was given, whose e-nodes then seem cheaper;
// of all that is found the truly cheapest are taken, of equally cheap ones that which is closest to
// what was given: an exchange of operands alone may part what kernels are alike in.
std::vector<ir::Graph> Saturated::extract(std::size_t count) {
  constexpr double kSeem[] = {0.5, 0.9, 1 - 1e-6};
  const egraph::CostModel cost = cost_model(terms_);
  std::set<ENode> given;
  for (const ENode& node : given_)
    given.insert(canonical(node));
  std::vector<std::pair<double, egraph::TermGraph>> found;
  for (const double seem : kSeem) {
    egraph::ExtractOptions options;
    options.count = count;
    options.cost = [&](egraph::FunctionId function, std::span<const egraph::Value> args) {
      const bool was = given.contains(canonical({function, {args.begin(), args.end()}}));
      return cost(function, args) * (was ? seem : 1);
    };
    for (egraph::TermGraph& terms : terms_.egraph().extract_best(roots_, options)) {
      const double total = cost_of(terms, cost);
      found.emplace_back(total, std::move(terms));
    }
  }
  std::ranges::stable_sort(found, {}, &std::pair<double, egraph::TermGraph>::first);
  std::vector<ir::Graph> graphs;
  std::set<std::uint64_t> seen;
  for (const auto& [total, terms] : found) {
    NodeClasses classes;
    ir::Graph graph = terms_.graph_of(terms, signature_, &classes);
    if (graphs.size() == count || !seen.insert(ir::canonical_hash(graph)).second)
      continue;
    ir::verify(graph);
    for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
      const ir::Node &is = graph[graph.outputs[i]], &was = signature_[signature_.outputs[i]];
      ensure(is.dtype == was.dtype && is.shape == was.shape, "extract: output {} changed its type",
             i);
    }
    if (graphs.empty()) {
      remember_choice(terms, std::move(classes));
      rewritten_ = chosen_ != given;
    }
    graphs.push_back(std::move(graph));
  }
  return graphs;
}

std::string program_text(const ir::Graph& graph, const SaturateOptions& options) {
  const std::vector<Group> groups = chosen_groups(options);
  std::string text = prelude();
  for (const Group& group : groups)
    text += "\n" + group.file.text;
  const ProgramText program = program_of(graph);
  text += "\n; the graph\n" + program.text +
          "\n(run-schedule (saturate (run analysis))\n  (repeat " + std::to_string(options.rounds);
  for (const std::string& group : order_of(options, groups))
    text += fmt::format("\n    (run {}) (saturate (run analysis))", group);
  text += "))\n(print-size)\n";
  for (const std::string& output : program.outputs)
    text += fmt::format("(extract {} :extractor greedy-dag)\n", output);
  return text;
}

} // namespace egret::saturate

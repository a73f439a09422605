#include "egraph/interpreter.h"

#include "egraph/lower.h"
#include "egraph/print.h"
#include "support/fail.h"
#include "support/read_text.h"

#include <algorithm>

namespace egret::egraph {

const std::map<std::string_view, Interpreter::Handler>& Interpreter::handlers() {
  using I = Interpreter;
  static const std::map<std::string_view, Handler> table = {
      {"sort", &I::sort_command},
      {"datatype", &I::datatype_command},
      {"datatype*", &I::datatypes_command},
      {"function", &I::function_command},
      {"constructor", &I::constructor_command},
      {"relation", &I::relation_command},
      {"ruleset", &I::ruleset_command},
      {"unstable-combined-ruleset", &I::combined_command},
      {"rule", &I::rule_command},
      {"rewrite", &I::rewrite_command},
      {"birewrite", &I::rewrite_command},
      {"let", &I::let_command},
      {"run", &I::run_command},
      {"run-schedule", &I::schedule_command},
      {"check", &I::check_command},
      {"fail", &I::fail_command},
      {"push", &I::push_command},
      {"pop", &I::pop_command},
      {"include", &I::include_command},
      {"extract", &I::extract_command},
      {"print-size", &I::print_size_command},
      {"print-function", &I::print_function_command},
      {"print-stats", &I::print_stats_command},
      {"input", &I::input_command},
      {"output", &I::output_command},
  };
  return table;
}

void Interpreter::run_text(std::string name, std::string text, std::uint32_t first_line) {
  run_source(engine.sources.add(std::move(name), std::move(text), first_line), directory_);
}

void Interpreter::run_file(const std::filesystem::path& path) {
  run_source(engine.sources.add(path.string(), read_text(path)), path.parent_path());
}

void Interpreter::run_source(std::uint32_t file, const std::filesystem::path& directory) {
  Sexps program(engine.sources, file);
  std::filesystem::path before = std::exchange(directory_, directory);
  // pop replaces the engine, sources included: the text must outlive that.
  Sources keep = engine.sources;
  try {
    for (std::size_t i = 0; i < program.size(); ++i)
      command(program[i]);
  } catch (...) { // a session goes on after an error
    directory_ = before;
    settle();
    throw;
  }
  directory_ = before;
}

void Interpreter::command(Sexp sexp) {
  if (!sexp.is_list() || sexp.size() == 0 || !sexp[0].is_symbol())
    fail(sexp, "expected a command in parentheses");
  stop_if_cancelled();
  std::string_view head = sexp.head();
  if (head != "extract")
    extracted_.reset();
  if (auto at = handlers().find(head); at != handlers().end()) {
    (this->*at->second)(sexp);
    return;
  }
  static const char* const kUnsupported[] = {"prove",    "prove-exists",  "set-option", "calc",
                                             "simplify", "query-extract", "declare"};
  for (const char* name : kUnsupported) {
    if (head == name && !engine.signature.find_function(head))
      engine.sources.fail(ErrorKind::Unsupported, sexp[0].span(),
                          fmt::format("{} is not supported", head));
  }
  known_command(sexp[0]);
  action_command(sexp);
}

/// A misspelt command is not to be taken for an action, whose arguments would then be at fault.
void Interpreter::known_command(Sexp head) const {
  const std::string_view name = head.symbol();
  if (is_action(name) || engine.signature.find_function(name) || name == "extract" ||
      !engine.signature.find_primitives(name).empty() || name == "unstable-fn")
    return;
  Nearest nearest(name);
  bool command = true;
  for (const Function& function : engine.signature.functions())
    command = nearest.consider(function.name) ? false : command;
  for (const auto& [known, handler] : handlers())
    command |= nearest.consider(known);
  for (const char* action : {"set", "union", "delete", "subsume", "panic"})
    command |= nearest.consider(action);
  std::string hint = suggestion(engine.signature, name);
  if (command && !nearest.best().empty())
    hint = fmt::format(" (did you mean {}?)", nearest.best());
  else
    command = hint.empty();
  fail(head, fmt::format("unknown {} {}{}", command ? "command" : "function", name, hint));
}

void Interpreter::stop_if_cancelled() const {
  if (budget.cancel != nullptr && budget.cancel->load(std::memory_order_relaxed))
    egret::fail(ErrorKind::State, "interrupted");
}

void Interpreter::run_actions(const Typed& typed) {
  LoweredRule lowered = Lowering(engine.signature, engine.sources, typed).rule();
  Actor actor(engine);
  const ActionProgram* program = &lowered.action;
  if (lowered.action.deletes)
    actor.begin_phase(std::span(&program, 1));
  actor.prepare(lowered.action);
  actor.run(lowered.action);
  if (lowered.action.deletes)
    actor.end_phase();
  rebuild(engine);
#ifdef EGRET_CHECKS
  check_invariants(engine);
#endif
}

void Interpreter::action_command(Sexp sexp) {
  TypeChecker check = checker();
  check.allow_reads(true);
  check.action(sexp);
  run_actions(check.finish());
}

std::pair<SortId, Value> Interpreter::evaluate(Sexp sexp) {
  TypeChecker check = checker();
  check.allow_reads(true);
  std::uint32_t node = check.expression(sexp, false);
  Typed typed = check.finish();
  ActionProgram program = Lowering(engine.signature, engine.sources, typed).expression(node, {});
  Actor actor(engine);
  actor.prepare(program);
  actor.run(program);
  SortId sort = typed.nodes[node].sort;
  rebuild(engine);
  return {sort, engine.canonical(sort, actor.result(program))};
}

void Interpreter::let_command(Sexp sexp) {
  if (sexp.size() != 3 || !sexp[1].is_symbol())
    fail(sexp, "expected (let name expression)");
  std::string name(sexp[1].symbol());
  if (strict_globals && !name.starts_with('$'))
    fail(sexp[1], fmt::format("the global {} must be named ${}", name, name));
  if (warn && !name.starts_with('$'))
    warn(fmt::format("{}: the global {} should be named ${}", engine.sources.where(sexp[1].span()),
                     name, name));
  if (engine.signature.is_taken(name))
    fail(sexp[1], fmt::format("{} is already declared{}", name,
                              declared_at(engine.signature, engine.sources, name)));
  // A primitive of that name is no conflict: primitives are only ever called.
  std::string_view bare = std::string_view(name).substr(1);
  if (name.starts_with('$') &&
      (engine.signature.find_function(bare) || engine.signature.find_sort(bare)))
    fail(sexp[1], fmt::format("{} shadows the declaration of {}", name, name.substr(1)));
  auto [sort, value] = evaluate(sexp[2]);
  Function global;
  global.name = name;
  global.output = sort;
  global.span = sexp.span();
  engine.add_global(std::move(global), value);
}

Query Interpreter::query_of(Sexp sexp, std::size_t first, std::size_t last) {
  TypeChecker check = checker();
  for (std::size_t i = first; i < last; ++i)
    check.fact(sexp[i]);
  Typed typed = check.finish();
  return Lowering(engine.signature, engine.sources, typed).rule(sexp.span()).query;
}

void Interpreter::check_command(Sexp sexp) {
  Query query = query_of(sexp, 1, sexp.size());
  engine.limits.cancel = budget.cancel;
  const bool found = holds(engine, query);
  engine.limits = {};
  stop_if_cancelled();
  if (!found)
    engine.sources.fail(ErrorKind::Value, sexp.span(),
                        may_fail_ ? "Check failed" : "Check failed: " + why_not(sexp));
}

/// The first fact of a check that does not hold by itself, with the values of its sides.
std::string Interpreter::why_not(Sexp check) {
  for (std::size_t i = 1; i < check.size(); ++i) {
    Sexp fact = check[i];
    try {
      if (holds(engine, query_of(check, i, i + 1)))
        continue;
    } catch (const Error&) {
      continue; // it takes the other facts to be a query
    }
    std::string out = fmt::format("{} does not hold", engine.sources.text(fact.span()));
    std::string sides;
    for (std::size_t s = 1; s < fact.size() && fact.head() == "="; ++s) {
      std::optional<std::string> value = shown_value(fact[s]);
      if (!value)
        return out;
      sides += s == 1 ? "" : " and ";
      sides += *value;
    }
    return sides.empty() ? out : out + ": its sides are " + sides;
  }
  return "each fact holds, but no match fits all of them";
}

/// The value of an expression without variables, as text, without building anything.
std::optional<std::string> Interpreter::shown_value(Sexp expression) {
  try {
    TypeChecker check = checker();
    check.ask(expression);
    Typed typed = check.finish();
    if (typed.variables.size() != 1) // it has others than the value itself
      return std::nullopt;
    const SortId sort = typed.variables[0].sort;
    LoweredRule lowered = Lowering(engine.signature, engine.sources, typed).rule();
    MatchOptions options;
    options.include_subsumed = true;
    options.stop_after = 1;
    Forest forest = plan_query(engine, lowered.query, lowered.inputs);
    Matches found = std::move(Matcher(engine, forest, std::move(options)).run()[0]);
    if (found.count == 0)
      return "absent";
    Actor actor(engine);
    std::copy(found.words.begin(), found.words.end(), actor.prepare(lowered.action));
    const Value value = actor.result(lowered.action);
    const Trees best(engine, declared_costs(engine));
    TermGraph graph = extract_tree(engine, sort, value, best);
    return show_term(engine, graph, graph.roots[0]);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// Brings the tables in order after a command that failed half-way. Where that is what fails (two
/// values of a :no-merge function), a later command will meet it again.
void Interpreter::settle() {
  try {
    rebuild(engine);
  } catch (const Error&) {
  }
}

void Interpreter::fail_command(Sexp sexp) {
  if (sexp.size() != 2)
    fail(sexp, "expected (fail command)");
  // These may nest, in a loop rather than by recursion: a program is as deep as it likes.
  bool should_fail = true;
  Sexp inner = sexp[1];
  for (; inner.head() == "fail" && inner.size() == 2; inner = inner[1])
    should_fail = !should_fail;
  bool failed = false;
  const bool before = std::exchange(may_fail_, true);
  try {
    command(inner);
  } catch (const Error&) {
    failed = true;
    settle(); // what the command did before it failed stays
  }
  may_fail_ = before;
  stop_if_cancelled(); // an interrupt is no failure
  if (failed != should_fail)
    engine.sources.fail(ErrorKind::Value, sexp.span(), "this command should have failed");
}

void Interpreter::push_command(Sexp sexp) {
  if (sexp.size() > 2)
    fail(sexp, "expected (push) or (push count)");
  std::uint64_t count = sexp.size() == 2 ? count_of(sexp[1]) : 1;
  if (count > 10000)
    fail(sexp[1], "too many");
  for (std::uint64_t i = 0; i < count; ++i)
    stack_.push_back(engine);
}

void Interpreter::pop_command(Sexp sexp) {
  if (sexp.size() > 2)
    fail(sexp, "expected (pop) or (pop count)");
  std::uint64_t count = sexp.size() == 2 ? count_of(sexp[1]) : 1;
  if (count > stack_.size())
    fail(sexp, fmt::format("pop: nothing was pushed ({} of {})", stack_.size(), count));
  for (std::uint64_t i = 0; i < count; ++i) {
    // Texts that were read since stay known, so that spans of later commands can be shown.
    Sources sources = std::move(engine.sources);
    engine = std::move(stack_.back());
    engine.sources = std::move(sources);
    stack_.pop_back();
  }
}

/// A file that a program names: relative to the working directory, else to the folder of the
/// program or to a folder above that.
std::filesystem::path Interpreter::find_file(const std::filesystem::path& path) const {
  std::error_code ignored;
  if (path.is_absolute() || std::filesystem::exists(path, ignored))
    return path;
  std::filesystem::path folder = std::filesystem::absolute(directory_, ignored);
  for (std::filesystem::path before; folder != before; folder = folder.parent_path()) {
    if (std::filesystem::exists(folder / path, ignored))
      return folder / path;
    before = folder;
  }
  return path;
}

void Interpreter::include_command(Sexp sexp) {
  if (sexp.size() != 2 || sexp[1].kind() != SexpKind::String)
    fail(sexp, "expected (include \"file\")");
  constexpr int kDeepest = 100;
  if (include_depth_ >= kDeepest)
    fail(sexp, "includes nest too deep");
  // Beside the including file first.
  std::filesystem::path path = sexp[1].string();
  std::error_code ignored;
  bool beside = path.is_relative() && std::filesystem::exists(directory_ / path, ignored);
  path = beside ? directory_ / path : find_file(path);
  if (!std::filesystem::is_regular_file(path, ignored))
    engine.sources.fail(ErrorKind::File, sexp[1].span(), path.string() + ": cannot be read");
  ++include_depth_;
  try {
    run_file(path);
  } catch (...) {
    --include_depth_;
    throw;
  }
  --include_depth_;
}

std::uint32_t Interpreter::run_node(Schedule& schedule, Sexp sexp) {
  // (run), (run count), (run ruleset), (run ruleset count), each with :until facts ...
  ScheduleNode node;
  std::size_t i = 1;
  if (i < sexp.size() && sexp[i].is_symbol() && !sexp[i].is_keyword())
    node.ruleset = ruleset_of(sexp[i++]);
  if (i < sexp.size() && sexp[i].kind() == SexpKind::Int)
    node.times = count_of(sexp[i++]);
  if (i < sexp.size() && sexp[i].is_symbol(":until")) {
    node.until = query_of(sexp, i + 1, sexp.size());
    i = sexp.size();
  }
  if (i < sexp.size())
    fail(sexp[i], "expected (run ruleset count :until facts ...)");
  schedule.nodes.push_back(std::move(node));
  return static_cast<std::uint32_t>(schedule.nodes.size() - 1);
}

std::uint32_t Interpreter::schedule_node(Schedule& schedule, Sexp sexp, int depth) {
  constexpr int kDeepest = 1000;
  if (depth > kDeepest)
    fail(sexp, "the schedule is nested too deep");
  ScheduleNode node;
  if (sexp.is_symbol()) {
    node.ruleset = ruleset_of(sexp);
    schedule.nodes.push_back(std::move(node));
    return static_cast<std::uint32_t>(schedule.nodes.size() - 1);
  }
  std::string_view head = sexp.head();
  if (head == "run")
    return run_node(schedule, sexp);
  std::size_t first = 1;
  if (head == "seq") {
    node.kind = ScheduleNode::Kind::Sequence;
  } else if (head == "saturate") {
    node.kind = ScheduleNode::Kind::Saturate;
  } else if (head == "repeat") {
    node.kind = ScheduleNode::Kind::Repeat;
    if (sexp.size() < 2)
      fail(sexp, "expected (repeat count schedules ...)");
    node.times = count_of(sexp[1]);
    first = 2;
  } else {
    fail(sexp, "expected a schedule: a ruleset, (run ...), (seq ...), (repeat count ...) or "
               "(saturate ...)");
  }
  for (std::size_t i = first; i < sexp.size(); ++i)
    node.children.push_back(schedule_node(schedule, sexp[i], depth + 1));
  schedule.nodes.push_back(std::move(node));
  return static_cast<std::uint32_t>(schedule.nodes.size() - 1);
}

void Interpreter::run_and_report(const Schedule& schedule) {
  RunReport report = run_schedule(engine, schedule, budget);
  if (report.stop == StopReason::Done)
    return;
  ++cut_runs;
  line(describe(report));
}

void Interpreter::run_command(Sexp sexp) {
  Schedule schedule;
  schedule.root = run_node(schedule, sexp);
  run_and_report(schedule);
}

void Interpreter::schedule_command(Sexp sexp) {
  Schedule schedule;
  ScheduleNode root;
  root.kind = ScheduleNode::Kind::Sequence;
  for (std::size_t i = 1; i < sexp.size(); ++i)
    root.children.push_back(schedule_node(schedule, sexp[i], 0));
  schedule.nodes.push_back(std::move(root));
  schedule.root = static_cast<std::uint32_t>(schedule.nodes.size() - 1);
  run_and_report(schedule);
}

} // namespace egret::egraph

// Runs programs: commands read from text, on an engine, with a stack for push and pop.
#pragma once

#include "egraph/engine.h"
#include "egraph/extract.h"
#include "egraph/schedule.h"
#include "egraph/sexp.h"
#include "egraph/typecheck.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace egret::egraph {

class Interpreter {
public:
  Engine engine;
  std::function<void(const std::string&)> print; ///< gets each line of output; none where empty
  std::function<void(const std::string&)> warn;  ///< gets each warning
  std::filesystem::path fact_directory;          ///< where (input ...) looks for relative names
  Budget budget;                                 ///< of each run
  bool strict_globals = false;                   ///< a global's name must start with $
  std::uint64_t cut_runs = 0;                    ///< runs that the budget cut short

  /// Runs a text; `name` is for messages and, where it is a path, for relative includes. The text
  /// begins with line `first_line` of what it is a part of. Where budget.cancel becomes true, the
  /// run in progress ends, and then the program with an error of kind State.
  void run_text(std::string name, std::string text, std::uint32_t first_line = 1);
  void run_file(const std::filesystem::path& path);

private:
  using Handler = void (Interpreter::*)(Sexp);
  void run_source(std::uint32_t file, const std::filesystem::path& directory);
  void command(Sexp sexp);
  void known_command(Sexp head) const;
  std::string why_not(Sexp check);
  std::optional<std::string> shown_value(Sexp expression);
  void stop_if_cancelled() const;
  static const std::map<std::string_view, Handler>& handlers();

  // Declarations (declare.cpp).
  void sort_command(Sexp sexp);
  void datatype_command(Sexp sexp);
  void datatypes_command(Sexp sexp);
  void function_command(Sexp sexp);
  void constructor_command(Sexp sexp);
  void relation_command(Sexp sexp);
  void ruleset_command(Sexp sexp);
  void combined_command(Sexp sexp);
  void rule_command(Sexp sexp);
  void rewrite_command(Sexp sexp);
  // Actions and runs (interpreter.cpp).
  void let_command(Sexp sexp);
  void run_command(Sexp sexp);
  void schedule_command(Sexp sexp);
  void check_command(Sexp sexp);
  void fail_command(Sexp sexp);
  void push_command(Sexp sexp);
  void pop_command(Sexp sexp);
  void include_command(Sexp sexp);
  void action_command(Sexp sexp);
  // Output (output_commands.cpp).
  void extract_command(Sexp sexp);
  void print_size_command(Sexp sexp);
  void print_function_command(Sexp sexp);
  void print_stats_command(Sexp sexp);
  void input_command(Sexp sexp);
  void output_command(Sexp sexp);

  struct Variant {
    std::string name;
    Sexp sexp;
  };
  void add_sort(const std::string& name, Sexp definition, Span span);
  void add_variant(SortId sort, Sexp variant);
  void fresh_name(Sexp name) const;
  SortId sort_of(Sexp name) const;
  std::vector<SortId> sorts_of(Sexp list) const;
  RulesetId ruleset_of(Sexp name) const;
  /// What a rule's options say.
  struct RuleHow {
    std::string name;
    RulesetId ruleset{};
    bool naive = false;
    bool include_subsumed = false;
  };
  void add_rule(const Typed& typed, RuleHow how, Span span);
  std::uint64_t count_of(Sexp sexp) const;
  std::string text_of(Sexp sexp) const;
  TypeChecker checker() { return {engine.signature, engine.sources, engine.pools}; }
  void run_actions(const Typed& typed);
  /// Evaluates an expression now; what it mentions is built.
  std::pair<SortId, Value> evaluate(Sexp sexp);
  Value represented(SortId sort, Value value) const;
  std::filesystem::path find_file(const std::filesystem::path& path) const;
  Query query_of(Sexp sexp, std::size_t first, std::size_t last);
  std::uint32_t schedule_node(Schedule& schedule, Sexp sexp, int depth);
  std::uint32_t run_node(Schedule& schedule, Sexp sexp);
  void run_and_report(const Schedule& schedule);
  void settle();
  void line(const std::string& text) const {
    if (print)
      print(text);
  }
  [[noreturn]] void fail(Sexp at, const std::string& message) const {
    engine.sources.fail(ErrorKind::Parse, at.span(), message);
  }

  const Trees& trees();

  std::vector<Engine> stack_;
  /// What `extract` found out, for the commands of its kind that follow it; others drop it.
  struct Extracted {
    std::uint64_t changes, rows;
    std::size_t classes;
    Trees trees;
  };
  std::shared_ptr<const Extracted> extracted_;
  bool may_fail_ = false;           ///< the command is one that is to fail, so nobody reads why
  std::filesystem::path directory_; ///< of the file that is running
  int include_depth_ = 0;
};

/// Splits ":option value" pairs off the end of a command: calls `take(option, index of the value)`
/// for each, which returns how many values it used.
void for_options(Sexp sexp, std::size_t first,
                 const std::function<std::size_t(Sexp option, std::size_t value)>& take);

} // namespace egret::egraph

// The options of commands that compile: how much work the compiler puts in, and what is seen of it.
#pragma once

#include "egret/effort.h"
#include "saturate/rules.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace egret::tool {

class Progress;

struct EffortOptions {
  std::string effort; ///< empty: what EGRET_EFFORT says, or none
  double budget = 0;  ///< seconds; 0: what EGRET_BUDGET says, or 60
  bool frozen = false, checked = false, no_library = false;
  std::vector<std::string> allowed; ///< tags; empty: what EGRET_ALLOW says
};

/// --effort, --budget, --frozen, --allow, --no-library and --checked.
void add_effort_options(CLI::App& command, EffortOptions& options);

/// --rules, and what its files hold; Error(File) naming one that cannot be read.
void add_rules_option(CLI::App& command, std::vector<std::string>& paths);
std::vector<saturate::RuleFile> rule_files(const std::vector<std::string>& paths);

/// Puts the options into force and shows the progress of searches on a terminal, while it lives.
class EffortInForce {
public:
  explicit EffortInForce(const EffortOptions& options);
  ~EffortInForce();
  EffortInForce(const EffortInForce&) = delete;
  EffortInForce& operator=(const EffortInForce&) = delete;

private:
  std::shared_ptr<Progress> progress_;
};

/// --device and the options above; `run` is called when the command is used, with them in force.
void add_computation(CLI::App& command, std::function<void()> run);

} // namespace egret::tool

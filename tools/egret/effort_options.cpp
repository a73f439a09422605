#include "effort_options.h"

#include "console.h"
#include "device_option.h"
#include "number_option.h"

#include "egret/libraries.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>

#include <filesystem>
#include <utility>

namespace egret::tool {

void add_effort_options(CLI::App& command, EffortOptions& options) {
  command
      .add_option(
          "--effort", options.effort,
          "Of the compiler: none (greedy), quick (rules and a model; the default), search or "
          "exhaustive (kernels are timed)")
      ->check(CLI::IsMember({"none", "quick", "search", "exhaustive"}));
  command.add_option("--budget", options.budget, "Seconds for the search of one program")
      ->check(is_seconds());
  command.add_flag("--frozen", options.frozen,
                   "Use what was found before; measure and write nothing");
  command
      .add_option("--allow", options.allowed,
                  "Rules with this tag beside the exact ones: reassociates, approximate, "
                  "inference-only")
      ->check(CLI::IsMember({"exact", "reassociates", "approximate", "inference-only"}))
      ->take_all();
  command.add_flag("--no-library", options.no_library,
                   "A search chooses among egret's own kernels only, never a vendor's library");
  command.add_flag("--checked", options.checked,
                   "Compare the results of every run with the reference's: slow");
}

void add_rules_option(CLI::App& command, std::vector<std::string>& paths) {
  command.add_option("--rules", paths, "Files with more rules (docs/search.md)")
      ->check(CLI::ExistingFile)
      ->take_all();
}

std::vector<saturate::RuleFile> rule_files(const std::vector<std::string>& paths) {
  std::vector<saturate::RuleFile> files;
  for (const std::string& path : paths)
    files.push_back({std::filesystem::path(path).filename().string(), read_text(path)});
  return files;
}

EffortInForce::EffortInForce(const EffortOptions& options)
    : progress_(std::make_shared<Progress>()) {
  const std::optional<Effort> wanted =
      options.effort.empty() ? effort_setting() : parse_effort(options.effort, "--effort");
  set_effort(wanted, options.budget > 0 ? std::optional(options.budget) : std::nullopt);
  if (options.frozen)
    set_frozen(true);
  if (options.no_library)
    allow_libraries(false);
  if (options.checked)
    set_checked_execution(true);
  if (!options.allowed.empty()) {
    RuleTags tags;
    for (const std::string& word : options.allowed)
      tags.add(parse_rule_tag(word, "--allow"));
    allow_rules(tags);
  }
  on_search_progress([progress = progress_](const SearchProgress& p) {
    if (p.seconds < 5 && !stderr_is_terminal())
      return true; // plain lines are for searches that take long
    progress->update([&] { return progress_text(p); });
    return true;
  });
}

EffortInForce::~EffortInForce() {
  on_search_progress({});
  progress_->finish();
}

void add_computation(CLI::App& command, std::function<void()> run) {
  auto device = std::make_shared<std::string>();
  auto effort = std::make_shared<EffortOptions>();
  add_device_option(command, *device);
  add_effort_options(command, *effort);
  command.callback([device, effort, run = std::move(run)] {
    const EffortInForce in_force(*effort);
    turn_to(*device);
    run();
  });
}

} // namespace egret::tool

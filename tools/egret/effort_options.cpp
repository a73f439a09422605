#include "effort_options.h"

#include "console.h"

#include <CLI/CLI.hpp>

namespace egret::tool {

void add_effort_options(CLI::App& command, EffortOptions& options) {
  command
      .add_option("--effort", options.effort,
                  "Of the compiler: none (greedy), quick (rules and a model), search or exhaustive "
                  "(kernels are timed)")
      ->check(CLI::IsMember({"none", "quick", "search", "exhaustive"}));
  command.add_option("--budget", options.budget, "Seconds for the search of one program")
      ->check(CLI::PositiveNumber);
  command.add_flag("--frozen", options.frozen,
                   "Use what was found before; measure and write nothing");
}

EffortInForce::EffortInForce(const EffortOptions& options)
    : progress_(std::make_shared<Progress>()) {
  const Effort wanted =
      options.effort.empty() ? effort() : parse_effort(options.effort, "--effort");
  set_effort(wanted, options.budget > 0 ? std::optional(options.budget) : std::nullopt);
  if (options.frozen)
    set_frozen(true);
  if (stderr_is_terminal())
    on_search_progress([progress = progress_](const SearchProgress& p) {
      progress->update([&] {
        return fmt::format("search: kernel {} of {} ({}), candidate {} of {}, {} of {}", p.done + 1,
                           p.kernels, p.kernel, p.candidate + 1, p.candidates,
                           seconds_text(p.seconds), seconds_text(p.budget_seconds));
      });
      return true;
    });
}

EffortInForce::~EffortInForce() {
  on_search_progress({});
  progress_->finish();
}

} // namespace egret::tool

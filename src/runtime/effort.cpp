#include "egret/effort.h"

#include "egret/deterministic.h"
#include "egret/libraries.h"
#include "runtime/runtime.h"

namespace egret {

void set_effort(std::optional<Effort> effort, std::optional<double> budget_seconds) {
  runtime::Runtime::instance().set_effort(effort, budget_seconds);
}

Effort effort() {
  compiler::Options options;
  runtime::Runtime::instance().complete(options);
  return *options.effort;
}

std::optional<Effort> effort_setting() {
  return runtime::Runtime::instance().effort();
}

double budget_seconds() {
  return runtime::Runtime::instance().budget_seconds();
}

void set_frozen(bool frozen) {
  runtime::Runtime::instance().set_frozen(frozen);
}

void allow_rules(RuleTags tags) {
  runtime::Runtime::instance().allow_rules(tags);
}

RuleTags allowed_rules() {
  return runtime::Runtime::instance().allowed_rules();
}

void allow_libraries(bool allowed) {
  runtime::Runtime::instance().allow_libraries(allowed);
}

bool libraries_allowed() {
  return runtime::Runtime::instance().libraries_allowed();
}

void set_deterministic(bool deterministic) {
  runtime::Runtime::instance().set_deterministic(deterministic);
}

bool deterministic() {
  return runtime::Runtime::instance().deterministic();
}

void set_checked_execution(bool checked) {
  runtime::Runtime::instance().set_checked_execution(checked);
}

bool checked_execution() {
  return runtime::Runtime::instance().checked_execution();
}

bool frozen() {
  return runtime::Runtime::instance().frozen();
}

void on_search_progress(std::function<bool(const SearchProgress&)> hook) {
  runtime::Runtime::instance().on_search_progress(std::move(hook));
}

} // namespace egret

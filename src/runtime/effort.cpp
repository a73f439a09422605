#include "egret/effort.h"

#include "runtime/runtime.h"

namespace egret {

void set_effort(Effort effort, std::optional<double> budget_seconds) {
  runtime::Runtime::instance().set_effort(effort, budget_seconds);
}

Effort effort() {
  return runtime::Runtime::instance().effort();
}

double budget_seconds() {
  return runtime::Runtime::instance().budget_seconds();
}

} // namespace egret

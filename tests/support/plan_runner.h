// Running plans on host arrays, under the name that tests use.
#pragma once

#include "compiler/plan_runner.h"

namespace egret::testing {

using compiler::run_plan;

} // namespace egret::testing

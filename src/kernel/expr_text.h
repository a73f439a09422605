// Expressions as text with the reader's own names for variables.
#pragma once

#include "egret/expr.h"
#include "egret/op.h"

#include <functional>
#include <string>

namespace egret::kernel {

/// As Expr::str, but each symbol and axis variable is written as `name_of` says.
std::string text_of(const Expr& e, const std::function<std::string(const Expr&)>& name_of);

/// As texts of regions and programs call a monoid.
const char* monoid_name(Monoid m);

} // namespace egret::kernel

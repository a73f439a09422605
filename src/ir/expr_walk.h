// Walking an expression as the shared graph it is: every node once, operands first, without
// recursion.
#pragma once

#include "egret/expr.h"

#include <vector>

namespace egret::expr_detail {

/// All nodes of `e`, operands before what reads them; extents of axes are left out.
std::vector<const ExprNode*> nodes_of(const Expr& e);

} // namespace egret::expr_detail

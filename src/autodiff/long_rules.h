// Gradient rules that take more than a line; each says its formula in long_rules.cpp.
#pragma once

#include "autodiff/rules.h"

namespace egret::autodiff {

Value reduce_max_rule(const Site& s);
Value reduce_prod_rule(const Site& s);
Value scan_max_rule(const Site& s);
Value scan_prod_rule(const Site& s);
Value scan_linear_term_rule(const Site& s);
Value scan_linear_factor_rule(const Site& s);
Value scatter_set_rule(const Site& s); ///< of the updates
Value scatter_max_data_rule(const Site& s);
Value scatter_max_updates_rule(const Site& s);
Value permute_rule(const Site& s);
Value expand_rule(const Site& s);
Value pad_rule(const Site& s);
Value shrink_rule(const Site& s);

} // namespace egret::autodiff

// What optimizers and averages share.
#pragma once

#include "egret/tree.h"

#include <map>
#include <string>
#include <vector>

namespace egret::optim {

/// State by parameter name: `value` in the parameter's shape and type. Error(Value) for two of one
/// name.
std::map<std::string, Tensor> state_for(const std::vector<NamedTensor>& parameters,
                                        double value = 0);

} // namespace egret::optim

// Square blocks turned by shuffles of two vectors at a time.
#pragma once

#include "kernel/builder.h"

namespace egret::kernel {

/// Lane j of result i is lane i of row j. As many rows as lanes.
std::vector<ValueId> transpose_block(ProgramBuilder& b, std::vector<ValueId> rows);

} // namespace egret::kernel

// A loop tree as code is written from it.
#pragma once

#include "kernel/loops/tree.h"

namespace egret::kernel::loops {

/// The same tree without masks (they follow from the loops) and with each accumulation as far
/// inside as it can be: outside of the outermost loop along an axis that its stage reduces, and
/// outside of core and grid loops that share such a loop's iterations out. Of a legal tree.
TreePtr settled(const Region& region, const TreePtr& tree);

} // namespace egret::kernel::loops

// Which stages' results go through memory when each of them gets a loop nest of its own.
#pragma once

#include "kernel/region.h"

#include <vector>

namespace egret::kernel {

struct StoredStages {
  std::vector<bool> stages; ///< by stage; the others are computed where they are read
  std::vector<int> waiting; ///< outputs that are stored last, from memory: later nests still read
                            ///< the operand whose memory they may take over
};

StoredStages stored_stages(const Region& region);

} // namespace egret::kernel

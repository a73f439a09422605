// Which axes of a map its vectors should lie along.
#pragma once

#include "kernel/region.h"

#include <vector>

namespace egret::kernel {

std::vector<int> all_stages(const Region& region);

/// Whether the region is maps only, and every output is stored at each point of one box.
bool is_plain_map(const Region& region);

/// The axis of the vectors: outputs must be written apart, and contiguous accesses outweigh the
/// others. Outputs count double, because turning blocks helps loads only. -1 when there is none.
int map_vector_axis(const Region& region);

/// The axis along which the most bytes are contiguous that are strided along `vector`; -1 when
/// there is none.
int map_turned_axis(const Region& region, int vector);

} // namespace egret::kernel

// Holes of index maps in normal form.
#pragma once

#include "egret/index_map.h"

namespace egret::index_detail {

/// Drops conditions that always hold, simplifies the others, merges holes that follow one another
/// and have one fill. Where a condition can never hold, later holes are dropped and the coordinates
/// become 0.
void normalize_holes(IndexMap& map);

} // namespace egret::index_detail

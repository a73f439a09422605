// Parts of collection_rows().
#pragma once

#include "functions.h"

namespace egret::testing {

std::vector<Row> bag_rows(); ///< bags of rows, and copies to places that are data

} // namespace egret::testing

// Regions that a vendor's library can compute.
#pragma once

#include "kernel/library_product.h"
#include "kernel/region.h"

#include <string>

namespace egret::kernel {

/// The product that a region is, without workspace and way, or the reason why it is none.
struct FoundProduct {
  bool ok = false;
  LibraryProduct product;
  std::string reason;
};
FoundProduct find_product(const Region& region);

} // namespace egret::kernel

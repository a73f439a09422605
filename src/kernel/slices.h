// Whether one kernel should make a product and what combines slices of it.
#pragma once

#include "kernel/region.h"
#include "kernel/target.h"

namespace egret::kernel {

/// Of a region that combines slices of a product: whether the target has a template for it, and
/// what tiles with places of all slices take longer than the product's best ones is less than
/// `saved` seconds. On a CPU it is where slices are whole vectors, unless a matrix unit makes the
/// product, whose tiles have no slices.
bool slices_pay(const Region& region, const Target& target, double saved);

} // namespace egret::kernel

// Regions that are equal but for their sizes: one region with symbols stands for all of them, so
// that one code can compute them (Group in program.h).
#pragma once

#include "kernel/region.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace egret::kernel {

/// Hash of everything but names, alignments and the numbers in sizes, strides and offsets, where
/// these are neither 0 nor 1 nor -1.
std::uint64_t form_hash(const Region& region);

/// What several regions are with their sizes put in.
struct CommonForm {
  Region region;                                 ///< alignments are those that all have
  std::vector<Expr> sizes;                       ///< symbols that no graph has
  std::vector<std::vector<std::int64_t>> values; ///< by size, by region
};

/// The anti-unification of regions: where their numbers differ, a symbol, or a sum or a product of
/// those that stand for other numbers. Nothing where they differ in more than numbers. At least one
/// region.
std::optional<CommonForm> common_form(std::span<const Region* const> regions);

/// `e` in the region number `number` of those that the form stands for.
Expr with_sizes(const Expr& e, std::span<const Expr> sizes,
                const std::vector<std::vector<std::int64_t>>& values, std::size_t number);

/// A symbol for a number that takes these values. `number` tells it from others of its group.
Expr size_symbol(std::size_t number, std::span<const std::int64_t> values);

} // namespace egret::kernel

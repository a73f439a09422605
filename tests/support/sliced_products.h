// Products that are read in slices, as the gates of recurrent cells are, for tests.
#pragma once

#include "egret/ir.h"
#include "kernel/region.h"

#include <cstdint>
#include <string>

namespace egret::testing {

/// all = x w + y of [batch, rows, slices * length]; a result of the slices of `all`.
struct SlicedProduct {
  std::int64_t rows = 4, length = 8, depth = 8, slices = 4;
  DType dtype = DType::F32;
  bool weights_transposed = false; ///< [depth, slices * length] in memory
  std::int64_t batch = 1;
  std::string name() const;
};

/// tanh(slice 0) plus slice i times the state, for i from 1, and the same times the state; with the
/// axis of the slices split.
ir::Graph graph_of(const SlicedProduct& product);
/// The region that a GPU's product would be with the readers of its slices.
kernel::Region region_of_slices(const SlicedProduct& product);

} // namespace egret::testing

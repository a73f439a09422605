// Tensors from bytes that a reader produces.
#pragma once

#include "egret/tensor.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace egret::io {

/// A new tensor whose memory `fill` writes, as a whole. Bools are made 0 or 1.
Tensor tensor_filled_by(DType dtype, const std::vector<std::int64_t>& shape,
                        const std::function<void(std::span<std::byte>)>& fill);

/// The same from bytes that can be read in any order: `read` is called for disjoint parts, each
/// from `offset` on, from several threads at the same time where there are many. Nothing else is
/// as large as the tensor meanwhile.
Tensor
tensor_read_by(DType dtype, const std::vector<std::int64_t>& shape,
               const std::function<void(std::uint64_t offset, std::span<std::byte> out)>& read);

} // namespace egret::io

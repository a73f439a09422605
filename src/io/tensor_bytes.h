// Tensors from bytes that a reader produces.
#pragma once

#include "egret/tensor.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace egret::io {

/// A new tensor whose memory `fill` writes. Bools are made 0 or 1.
Tensor tensor_filled_by(DType dtype, const std::vector<std::int64_t>& shape,
                        const std::function<void(std::span<std::byte>)>& fill);

} // namespace egret::io

// Images in other sizes.
#pragma once

#include "egret/functional/convolutions.h"
#include "egret/tensor.h"

#include <cstdint>

namespace egret::models::vision {

/// Pixels u8 [height, width, channels] in another size as Pillow makes them: a triangle
/// (Interpolation::Linear) or Keys's cubic with a = -0.5 (Cubic), widened where the image shrinks,
/// along the width and then along the height, rounded to u8 each time.
Tensor resized(const Tensor& pixels, std::int64_t height, std::int64_t width, Interpolation kind);

} // namespace egret::models::vision

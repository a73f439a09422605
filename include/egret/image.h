// Images in files.
#pragma once

#include "egret/tensor.h"

#include <filesystem>

namespace egret::io {

/// Pixels u8 [height, width, 3] of a PNG (any depth and kind of colour, not interlaced; what is
/// transparent keeps its colour), or of a binary PPM or PGM. As with the other formats of io.h,
/// files are taken to be hostile: Error(File) names file, offset and reason, also for JPEG and what
/// is none of these. At most 2^28 pixels.
Tensor load_image(const std::filesystem::path& path);

} // namespace egret::io

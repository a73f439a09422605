// The content of an NPY file as a tensor.
#pragma once

#include "egret/tensor.h"
#include "io/file.h"

namespace egret::io {

/// Throws Error(File).
Tensor read_npy(const InputFile& file);

} // namespace egret::io

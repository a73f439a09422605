// Calls of vendors' libraries in the place of egret's own kernels.
#pragma once

namespace egret {

/// Whether searches may choose calls of a vendor's library (on CUDA products by cublasLt, where it
/// is installed) for what is compiled from now on. Each is a candidate like any other, checked and
/// timed, and reports name it. At the start as EGRET_LIBRARIES says: 0 or 1, or else 1.
void allow_libraries(bool allowed);
bool libraries_allowed();

} // namespace egret

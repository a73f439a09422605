// Kernel programs and regions as bytes, for another process of the same version of egret.
#pragma once

#include "kernel/program.h"
#include "kernel/region.h"

#include <string>
#include <string_view>

namespace egret::kernel {

std::string to_bytes(const KernelProgram& program);
std::string to_bytes(const Region& region);

/// What to_bytes() was given. Error(File) when the bytes are not whole, damaged, or of another
/// version. The result is not verified.
KernelProgram program_of_bytes(std::string_view bytes);
Region region_of_bytes(std::string_view bytes);

} // namespace egret::kernel

// Where this code lies on disk.
#pragma once

#include <filesystem>

namespace egret {

/// The folder of the executable or the shared library that holds egret's code, without links in
/// it; empty when the system does not say.
std::filesystem::path own_folder();

} // namespace egret

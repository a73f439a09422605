// Files of the CUDA backend, most of them in the user's cache folder (support/cache_folder.h).
#pragma once

#include <string>
#include <string_view>

namespace egret::backend::cuda {

/// Keeps a text that people may want to look at, below the cache folder or else the folder for
/// temporary files. Gives the path, empty when it could not be written.
std::string keep_text(const std::string& name, std::string_view text) noexcept;

} // namespace egret::backend::cuda

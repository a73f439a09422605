// Files of the CUDA backend, most of them in the user's cache folder (support/cache_folder.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace egret::backend::cuda {

/// Writes a whole file under another name and renames it: readers see all of it or nothing, and of
/// several writers the last one wins. False when that fails, with nothing left behind.
bool write_atomically(const std::filesystem::path& path, std::string_view bytes) noexcept;

/// Keeps a text that people may want to look at, below the cache folder or else the folder for
/// temporary files. Gives the path, empty when it could not be written.
std::string keep_text(const std::string& name, std::string_view text) noexcept;

} // namespace egret::backend::cuda

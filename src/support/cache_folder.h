// Where egret keeps what later processes may use again: the user's cache folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace egret {

/// The folder that EGRET_CACHE names; without it $XDG_CACHE_HOME/egret or ~/.cache/egret. Nothing
/// when EGRET_CACHE is `off`, or when no variable helps. The folder need not exist.
std::optional<std::filesystem::path> cache_folder();

/// Warns that nothing can be kept in a cache folder, once for each folder and process, whoever of
/// those that keep something there finds it first.
void warn_unwritable(const std::filesystem::path& folder, const std::string& why);

} // namespace egret

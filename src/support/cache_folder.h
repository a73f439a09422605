// Where egret keeps what later processes may use again: the user's cache folder.
#pragma once

#include <filesystem>
#include <optional>

namespace egret {

/// The folder that EGRET_CACHE names; without it $XDG_CACHE_HOME/egret or ~/.cache/egret. Nothing
/// when EGRET_CACHE is `off`, or when no variable helps. The folder need not exist.
std::optional<std::filesystem::path> cache_folder();

} // namespace egret

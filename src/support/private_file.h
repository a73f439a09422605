// Files that only this user is to write: what is read from them may be run as code.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace egret {

/// Makes the folders that are missing, for this user alone.
std::error_code make_private_folders(const std::filesystem::path& folder);

/// Writes a whole file under another name and renames it: readers see all of it or nothing, and of
/// several writers the last one wins. Folders that are missing are made, for this user alone, as is
/// the file. What went wrong, with nothing left behind; no error when it is written.
std::error_code write_private(const std::filesystem::path& path, std::string_view bytes) noexcept;

struct PrivateRead {
  std::optional<std::string> bytes;
  std::string refused; ///< why a file that is there is not read; empty when there is none
};

/// Reads a regular file of this user that nobody else may write to. Links are not followed.
PrivateRead read_private(const std::filesystem::path& path);

/// Sets the file's time of change to now, where that is possible.
void mark_used(const std::filesystem::path& path) noexcept;

} // namespace egret

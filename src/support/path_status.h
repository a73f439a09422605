// What is at a path. Where the machine does not say it (a folder that may not be entered, links in
// a circle), the error is one of egret's, with the path.
#pragma once

#include "support/fail.h"

#include <filesystem>

namespace egret {

/// Links are followed. Error(File) where it cannot be looked at.
inline std::filesystem::file_status path_status(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::none)
    fail(ErrorKind::File, "{}: cannot look at it: {}", path.string(), error.message());
  return status;
}

inline bool path_exists(const std::filesystem::path& path) {
  return std::filesystem::exists(path_status(path));
}

inline bool path_is_folder(const std::filesystem::path& path) {
  return std::filesystem::is_directory(path_status(path));
}

inline bool path_is_file(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(path_status(path));
}

} // namespace egret

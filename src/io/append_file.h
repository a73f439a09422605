// Files that grow record by record.
#pragma once

#include "io/file.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

namespace egret::io {

class AppendFile {
public:
  /// A new file, or the first `keep` bytes of the one that is there. A pipe or a character device
  /// is written into, and keeps nothing. Throws Error(File), also for what output_target() refuses.
  AppendFile(std::string_view format_name, std::filesystem::path path, std::uint64_t keep = 0);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void write(std::string_view record); ///< one write; throws Error(File)

private:
  std::string format_name_;
  std::filesystem::path path_;
  std::uint64_t written_;
  int fd_ = -1;
};

/// How many bytes of a file are whole lines whose step is at most `last`, up to the first one that
/// is not; 0 when there is no file. `step_of` gives a line's step, -1 for a line without one that
/// is kept, none for one that is not valid.
std::uint64_t
bytes_up_to_step(std::string_view format_name, const std::filesystem::path& path, std::int64_t last,
                 const std::function<std::optional<std::int64_t>(std::string_view line)>& step_of);

} // namespace egret::io

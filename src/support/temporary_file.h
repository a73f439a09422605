// Files that are written under a name of their own and renamed when they are whole.
#pragma once

#include <sys/types.h>

#include <filesystem>

namespace egret {

/// A new file beside `target`, named TARGET.egret-PID-N.tmp and locked (flock) while its process
/// lives, so that others can tell what a process that was killed has left behind.
class TemporaryFile {
public:
  /// Removes what dead processes left in the folder, then creates the file. fd() is -1 where it
  /// cannot be created, and errno says why.
  TemporaryFile(const std::filesystem::path& target, mode_t mode);
  /// Removes the file, unless it was renamed.
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  int fd() const noexcept { return fd_; }
  /// Gives the file its name, replacing what has it, and closes it; 0, or an errno.
  int rename_to(const std::filesystem::path& target) noexcept;

private:
  std::filesystem::path path_;
  int fd_ = -1;
};

/// Whether a name is that of a TemporaryFile.
bool is_temporary(const std::filesystem::path& path);

/// Removes the temporary files of a folder whose processes are gone.
void remove_abandoned(const std::filesystem::path& folder) noexcept;

} // namespace egret

#include "support/temporary_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace egret {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kInfix = ".egret-", kEnd = ".tmp";

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// Locks a file; false when it is locked already, or was removed meanwhile.
bool lock(int fd) {
  struct stat status {};
  errno = 0;
  return ::flock(fd, LOCK_EX | LOCK_NB) == 0 && ::fstat(fd, &status) == 0 && status.st_nlink > 0;
}

} // namespace

bool is_temporary(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::size_t infix = name.rfind(kInfix);
  if (!name.ends_with(kEnd) || infix == std::string::npos)
    return false;
  const std::size_t begin = infix + kInfix.size();
  const std::string_view numbers =
      std::string_view(name).substr(begin, name.size() - kEnd.size() - begin);
  const std::size_t dash = numbers.find('-');
  return dash != 0 && dash != std::string_view::npos && dash + 1 < numbers.size() &&
         std::all_of(numbers.begin(), numbers.end(),
                     [](char c) { return (c >= '0' && c <= '9') || c == '-'; });
}

void remove_abandoned(const fs::path& folder) noexcept {
  try {
    std::error_code error;
    for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
         it.increment(error)) {
      if (!is_temporary(it->path()))
        continue;
      const int fd = ::open(it->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
      if (fd < 0)
        continue;
      struct stat status {};
      // Its owner holds the lock from its creation on; a file that was renamed or removed has no
      // such name any more.
      if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && lock(fd))
        ::unlink(it->path().c_str());
      ::close(fd);
    }
  } catch (...) { // no memory for a name: the next save removes them
  }
}

TemporaryFile::TemporaryFile(const fs::path& target, mode_t mode) {
  static std::atomic<unsigned> counter = 0;
  remove_abandoned(folder_of(target));
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    path_ = target;
    path_ += fmt::format("{}{}-{}{}", kInfix, ::getpid(), counter++, kEnd);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd_ < 0 && errno != EEXIST)
      return;
    // Between its creation and the lock another process may take it for abandoned. Where a file
    // system has no locks, nobody can.
    if (fd_ >= 0 && (lock(fd_) || errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS))
      return;
    if (fd_ >= 0)
      ::close(fd_);
    fd_ = -1;
  }
}

TemporaryFile::~TemporaryFile() {
  if (fd_ < 0)
    return;
  ::unlink(path_.c_str());
  ::close(fd_);
}

int TemporaryFile::rename_to(const fs::path& target) noexcept {
  if (::rename(path_.c_str(), target.c_str()) != 0)
    return errno;
  const int fd = fd_;
  fd_ = -1;
  return ::close(fd) == 0 ? 0 : errno;
}

} // namespace egret

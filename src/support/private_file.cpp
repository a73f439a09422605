#include "support/private_file.h"

#include "support/temporary_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace egret {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

std::error_code last_error() {
  return {errno, std::generic_category()};
}

struct Descriptor {
  int fd;
  explicit Descriptor(int opened) : fd(opened) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
};

std::error_code write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return n < 0 ? last_error() : std::make_error_code(std::errc::io_error);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

std::string error_text(int error) {
  return std::generic_category().message(error);
}

} // namespace

std::error_code make_private_folders(const fs::path& folder) {
  std::error_code error;
  if (folder.empty() || fs::is_directory(folder, error))
    return {};
  if (auto failed = make_private_folders(folder.parent_path()))
    return failed;
  return ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST ? std::error_code() : last_error();
}

std::error_code write_private(const fs::path& path, std::string_view bytes) noexcept {
  try {
    if (auto error = make_private_folders(path.parent_path()))
      return error;
    TemporaryFile file(path, 0600);
    if (file.fd() < 0)
      return last_error();
    if (auto error = write_all(file.fd(), bytes))
      return error;
    const int error = file.rename_to(path);
    return error == 0 ? std::error_code() : std::error_code(error, std::generic_category());
  } catch (...) { // no memory for a name: as if the disk were full
    return std::make_error_code(std::errc::not_enough_memory);
  }
}

PrivateRead read_private(const fs::path& path) {
  // Not blocking, so that a named pipe is refused below and not waited for.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.fd < 0)
    return {{}, errno == ENOENT || errno == ENOTDIR ? "" : error_text(errno)};
  struct stat status {};
  if (::fstat(file.fd, &status) != 0)
    return {{}, error_text(errno)};
  if (!S_ISREG(status.st_mode))
    return {{}, "it is not a regular file"};
  if (status.st_uid != ::geteuid())
    return {{}, "it belongs to another user"};
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return {{}, "others may write to it"};
  if (status.st_size > kMostBytes)
    return {{}, fmt::format("it has {} bytes", status.st_size)};
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::read(file.fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return {{}, error_text(errno)};
    if (n == 0)
      break; // it was cut meanwhile
    done += static_cast<std::size_t>(n);
  }
  bytes.resize(done);
  return {std::move(bytes), {}};
}

void mark_used(const fs::path& path) noexcept {
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

} // namespace egret

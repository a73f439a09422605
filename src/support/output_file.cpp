#include "support/output_file.h"

#include "support/fail.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace egret {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kMostAtOnce = 1U << 30; // the kernel moves no more than 2 GiB a call

std::string text_of(int error) {
  return std::generic_category().message(error);
}

[[noreturn]] void refuse(std::string_view what, const fs::path& path, std::string_view why) {
  fail(ErrorKind::File, "{}: {}: {}", what, path.string(), why);
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// The descriptor of this process that a path below /proc/self/fd names, or -1.
int own_descriptor(const fs::path& path) {
  std::error_code error;
  if (!fs::equivalent(parent_of(path), "/proc/self/fd", error) || error)
    return -1;
  const std::string name = path.filename().string();
  int number = -1;
  const auto [end, wrong] = std::from_chars(name.data(), name.data() + name.size(), number);
  return wrong == std::errc() && end == name.data() + name.size() ? number : -1;
}

/// Follows links one by one, since where the last one points to may have no name.
OutputTarget without_links(std::string_view what, const fs::path& path) {
  constexpr int kMostLinks = 40; // as the kernel
  OutputTarget target{path};
  for (int links = 0; links < kMostLinks; ++links) {
    target.descriptor = own_descriptor(target.path);
    if (target.descriptor >= 0) {
      target.kind = OutputKind::Descriptor;
      return target;
    }
    std::error_code error;
    if (!fs::is_symlink(target.path, error))
      return target;
    const fs::path next = fs::read_symlink(target.path, error);
    if (error)
      refuse(what, path, "the link cannot be read: " + error.message());
    target.path = next.is_absolute() ? next : parent_of(target.path) / next;
  }
  refuse(what, path, text_of(ELOOP));
}

/// A standard stream that writes to the same file, or -1: replacing it would lose what is printed.
int standard_stream(const struct stat& status) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own {};
    if (::fstat(fd, &own) == 0 && own.st_dev == status.st_dev && own.st_ino == status.st_ino)
      return fd;
  }
  return -1;
}

} // namespace

OutputTarget output_target(std::string_view what, const fs::path& path, OutputUse use) {
  OutputTarget target = without_links(what, path);
  struct stat status {};
  if (target.kind == OutputKind::Descriptor) {
    if (::fstat(target.descriptor, &status) != 0)
      refuse(what, path, "this process has no such file open");
    return target;
  }
  if (::stat(target.path.c_str(), &status) != 0) {
    if (errno != ENOENT)
      refuse(what, path, text_of(errno));
    const fs::path folder = parent_of(target.path);
    if (::access(folder.c_str(), W_OK | X_OK) != 0)
      refuse(what, path, "cannot create a file here: " + text_of(errno));
    if (!target.path.has_filename())
      refuse(what, path, "this is no name of a file");
    return target;
  }
  switch (status.st_mode & S_IFMT) {
  case S_IFREG:
    if (const int fd = standard_stream(status); fd >= 0) {
      target.kind = OutputKind::Descriptor;
      target.descriptor = fd;
    } else if (use == OutputUse::Replace &&
               ::access(parent_of(target.path).c_str(), W_OK | X_OK) != 0) {
      refuse(what, path, "the file cannot be replaced: " + text_of(errno));
    }
    return target;
  case S_IFIFO:
  case S_IFCHR:
    target.kind = OutputKind::Stream;
    return target;
  case S_IFDIR:
    refuse(what, path, "this is a folder");
  case S_IFBLK:
    refuse(what, path, "this is a block device");
  case S_IFSOCK:
    refuse(what, path, "this is a socket");
  default:
    refuse(what, path, "this is no file that can be written");
  }
}

OutputFile::OutputFile(std::string_view what, const fs::path& path)
    : what_(what), path_(path), target_(output_target(what, path)) {
  constexpr mode_t kMode = 0666, kPermissions = 0777;
  switch (target_.kind) {
  case OutputKind::File: {
    temporary_.emplace(target_.path, kMode);
    fd_ = temporary_->fd();
    struct stat status {};
    if (fd_ >= 0 && ::stat(target_.path.c_str(), &status) == 0)
      ::fchmod(fd_, status.st_mode & kPermissions);
    break;
  }
  case OutputKind::Stream:
    fd_ = ::open(target_.path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
    break;
  case OutputKind::Descriptor:
    std::fflush(nullptr); // what was printed before stands before
    fd_ = ::fcntl(target_.descriptor, F_DUPFD_CLOEXEC, 0);
    break;
  }
  if (fd_ < 0)
    fail("cannot create a file here", errno);
}

OutputFile::~OutputFile() {
  if (!temporary_ && fd_ >= 0)
    ::close(fd_);
}

void OutputFile::fail(std::string_view doing, int error) const {
  egret::fail(ErrorKind::File, "{}: {}: at byte {}: {}: {}", what_, path_.string(), written_, doing,
              text_of(error));
}

void OutputFile::write(std::span<const std::byte> bytes) {
  write_at(written_, bytes);
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (!temporary_ && offset != written_)
    fail("cannot write out of order", ESPIPE);
  while (!bytes.empty()) {
    const std::size_t most = std::min(kMostAtOnce, bytes.size());
    const ssize_t n = temporary_ ? ::pwrite(fd_, bytes.data(), most, static_cast<off_t>(offset))
                                 : ::write(fd_, bytes.data(), most);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      fail(temporary_ ? "cannot write (the file that was there is unchanged)" : "cannot write",
           errno);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
    written_ = std::max(written_, offset);
  }
}

void OutputFile::commit() {
  if (temporary_)
    commit_file();
  else if (::close(std::exchange(fd_, -1)) != 0)
    fail("cannot write", errno);
}

void OutputFile::commit_file() {
  // The data must be on the disk before the name points to it, and the name before we say so.
  if (::fsync(fd_) != 0)
    fail("cannot write (the file that was there is unchanged)", errno);
  if (const int error = temporary_->rename_to(target_.path); error != 0)
    fail("cannot replace the file", error);
  const int fd = ::open(parent_of(target_.path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return; // a folder that may be written but not read: the rename itself has happened
  const int error = ::fsync(fd) != 0 ? errno : 0;
  ::close(fd);
  if (error != 0 && error != EINVAL) // EINVAL: a file system whose folders need no syncing
    fail("cannot write the folder", error);
}

void write_output(std::string_view what, const fs::path& path, std::string_view text) {
  OutputFile file(what, path);
  file.write(text);
  file.commit();
}

} // namespace egret

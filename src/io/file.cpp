#include "io/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace egret::io {

namespace {

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

} // namespace

InputFile::InputFile(std::string_view format_name, std::filesystem::path path)
    : format_name_(format_name), path_(std::move(path)) {
  // Not blocking, so that a named pipe is refused below and not waited for.
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0)
    egret::fail(ErrorKind::File, "{}: {}: cannot open: {}", format_name_, path_.string(),
                errno_text(errno));
  struct stat status = {};
  int error = ::fstat(fd_, &status) != 0 ? errno : 0;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    ::close(std::exchange(fd_, -1));
    egret::fail(ErrorKind::File, "{}: {}: {}", format_name_, path_.string(),
                error != 0 ? errno_text(error) : "not a regular file");
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::InputFile(std::string_view format_name, std::filesystem::path path,
                     std::vector<std::byte> content)
    : format_name_(format_name), path_(std::move(path)), size_(content.size()),
      content_(std::move(content)) {}

InputFile::~InputFile() {
  if (fd_ >= 0)
    ::close(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : format_name_(std::move(other.format_name_)), path_(std::move(other.path_)),
      size_(other.size_), fd_(std::exchange(other.fd_, -1)), content_(std::move(other.content_)) {}

std::size_t InputFile::read_some(std::uint64_t offset, std::span<std::byte> out) const {
  if (fd_ < 0) {
    const std::size_t n = std::min<std::uint64_t>(out.size(), offset < size_ ? size_ - offset : 0);
    std::copy_n(content_.begin() + static_cast<std::ptrdiff_t>(n > 0 ? offset : 0), n, out.begin());
    return n;
  }
  constexpr std::size_t kPiece = 1U << 30; // the kernel moves no more than 2 GiB a call
  std::size_t done = 0;
  while (done < out.size()) {
    ssize_t n = ::pread(fd_, out.data() + done, std::min(kPiece, out.size() - done),
                        static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      fail(offset + done, "cannot read: {}", errno_text(errno));
    if (n == 0)
      break;
    done += static_cast<std::size_t>(n);
  }
  return done;
}

void InputFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t n = read_some(offset, out);
  if (n < out.size())
    fail(offset + n, "the file ends here, {} bytes are missing", out.size() - n);
}

} // namespace egret::io

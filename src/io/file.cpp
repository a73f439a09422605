#include "io/file.h"

#include <algorithm>
#include <atomic>
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

/// Bytes of the UTF-8 character that starts `text`, 0 when it is none (overlong forms and
/// surrogates included).
std::size_t utf8_length(std::string_view text) {
  auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  unsigned lead = byte(0);
  std::size_t length = lead < 0x80   ? 1
                       : lead < 0xC2 ? 0
                       : lead < 0xE0 ? 2
                       : lead < 0xF0 ? 3
                       : lead < 0xF5 ? 4
                                     : 0;
  if (length > text.size())
    return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80)
      return 0;
  bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  bool outside = (lead == 0xED && byte(1) > 0x9F) || (lead == 0xF4 && byte(1) > 0x8F);
  return overlong || outside ? 0 : length;
}

} // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 400;
  std::string out;
  while (!text.empty() && out.size() < kMost) {
    std::size_t length = utf8_length(text);
    auto c = static_cast<unsigned char>(text[0]);
    if (length == 0 || c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return text.empty() ? out : out + "...";
}

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

AtomicFile::AtomicFile(std::string_view format_name, const std::filesystem::path& path)
    : format_name_(format_name), path_(path) {
  std::error_code ignored;
  if (std::filesystem::is_symlink(path_, ignored))
    path_ = std::filesystem::weakly_canonical(path_, ignored);
  static std::atomic<unsigned> counter = 0;
  for (int attempt = 0; attempt < 100 && fd_ < 0; ++attempt) {
    temporary_ = path_;
    temporary_ += fmt::format(".{}-{}.tmp", ::getpid(), counter++);
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ < 0 && errno != EEXIST)
      fail_with_errno("cannot create a file here");
  }
  if (fd_ < 0)
    fail_with_errno("cannot create a temporary file here");
}

AtomicFile::~AtomicFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
}

void AtomicFile::fail_with_errno(std::string_view what) const {
  int error = errno;
  fail_at(format_name_, path_, written_, "{}: {}", what, errno_text(error));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr std::size_t kPiece = 1U << 30;
  while (!bytes.empty()) {
    ssize_t n = ::write(fd_, bytes.data(), std::min(kPiece, bytes.size()));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      fail_with_errno("cannot write (the file that was there is unchanged)");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    written_ += static_cast<std::uint64_t>(n);
  }
}

void AtomicFile::commit() {
  // The data must be on the disk before the name points to it, and the name before we say so.
  if (::fsync(fd_) != 0)
    fail_with_errno("cannot write (the file that was there is unchanged)");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_with_errno("cannot replace the file");
  ::close(std::exchange(fd_, -1));
  std::filesystem::path folder = path_.has_parent_path() ? path_.parent_path() : ".";
  int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return; // a folder that may be written but not read: the rename itself has happened
  int failed = ::fsync(fd);
  int error = errno;
  ::close(fd);
  if (failed != 0 && error != EINVAL) { // EINVAL: a file system whose folders need no syncing
    errno = error;
    fail_with_errno("cannot write the folder");
  }
}

} // namespace egret::io

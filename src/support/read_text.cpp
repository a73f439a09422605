#include "support/read_text.h"

#include "support/fail.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace egret {

namespace {

[[noreturn]] void fail_reading(const std::string& name) {
  const int error = errno;
  fail(ErrorKind::File, "{}: cannot read it: {}", name, std::generic_category().message(error));
}

} // namespace

std::string read_text(int fd, const std::string& name, std::uint64_t most) {
  struct stat status {};
  if (::fstat(fd, &status) != 0)
    fail_reading(name);
  const bool regular = S_ISREG(status.st_mode);
  if (!regular)
    most = std::min(most, kMostText);
  // A file of /proc says that it has no bytes, and has some.
  constexpr std::size_t kLeast = 1 << 16;
  std::string text;
  std::size_t done = 0;
  for (;;) {
    if (done > most || (regular && static_cast<std::uint64_t>(status.st_size) > most))
      fail(ErrorKind::File, "{}: it has more than {} bytes", name, most);
    if (done == text.size())
      text.resize(
          std::max({kLeast, 2 * done, regular ? static_cast<std::size_t>(status.st_size) + 1 : 0}));
    const ssize_t n = ::read(fd, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      fail_reading(name);
    if (n == 0)
      break;
    done += static_cast<std::size_t>(n);
  }
  text.resize(done);
  return text;
}

std::string read_text(const std::filesystem::path& path, std::uint64_t most) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (fd < 0)
    fail(ErrorKind::File, "{}: cannot open: {}", path.string(),
         std::generic_category().message(errno));
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } const close{fd};
  return read_text(fd, path.string(), most);
}

} // namespace egret

#include "io/append_file.h"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace egret::io {

AppendFile::AppendFile(std::string_view format_name, std::filesystem::path path, std::uint64_t keep)
    : format_name_(format_name), path_(std::move(path)), written_(keep) {
  const OutputTarget target = output_target(format_name_, path_, OutputUse::Append);
  if (target.kind == OutputKind::Descriptor)
    fd_ = ::fcntl(target.descriptor, F_DUPFD_CLOEXEC, 0);
  else
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666);
  if (fd_ >= 0 && target.kind != OutputKind::File)
    return;
  if (fd_ >= 0 && ::ftruncate(fd_, static_cast<off_t>(keep)) == 0 &&
      ::lseek(fd_, static_cast<off_t>(keep), SEEK_SET) >= 0)
    return;
  const int error = errno;
  if (fd_ >= 0)
    ::close(fd_);
  fail(ErrorKind::File, "{}: {}: cannot open: {}", format_name_, path_.string(),
       std::generic_category().message(error));
}

AppendFile::~AppendFile() {
  ::close(fd_);
}

void AppendFile::write(std::string_view record) {
  while (!record.empty()) {
    const ssize_t n = ::write(fd_, record.data(), record.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      const int error = errno;
      fail_at(format_name_, path_, written_, "cannot write: {}",
              std::generic_category().message(error));
    }
    record.remove_prefix(static_cast<std::size_t>(n));
    written_ += static_cast<std::uint64_t>(n);
  }
}

std::uint64_t
bytes_up_to_step(std::string_view format_name, const std::filesystem::path& path, std::int64_t last,
                 const std::function<std::optional<std::int64_t>(std::string_view line)>& step_of) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored))
    return 0;
  const InputFile file(format_name, path);
  constexpr std::size_t kMostLine = 1 << 16;
  std::string ahead; // read and not yet looked at
  std::uint64_t kept = 0, next = 0;
  for (;;) {
    auto end = ahead.find('\n');
    while (end == std::string::npos) {
      std::string piece(kMostLine, '\0');
      piece.resize(file.read_some(next, std::as_writable_bytes(std::span(piece))));
      if (piece.empty() || ahead.size() > kMostLine)
        return kept; // a line without its end, or no line at all
      next += piece.size();
      ahead += piece;
      end = ahead.find('\n');
    }
    const auto step = step_of(std::string_view(ahead).substr(0, end));
    if (!step || *step > last)
      return kept;
    kept += end + 1;
    ahead.erase(0, end + 1);
  }
}

} // namespace egret::io

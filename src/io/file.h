// Files as the readers of this module see them: regular files read at an offset.
#pragma once

#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace egret::io {

/// Throws Error(File): "safetensors: model.safetensors: at byte 8: reason". The reason is made
/// printable.
template <class... Args>
[[noreturn]] void fail_at(std::string_view format_name, const std::filesystem::path& path,
                          std::uint64_t offset, fmt::format_string<Args...> format,
                          Args&&... args) {
  throw Error(ErrorKind::File,
              fmt::format("{}: {}: at byte {}: {}", format_name, path.string(), offset,
                          printable(fmt::format(format, std::forward<Args>(args)...))));
}

/// An open regular file. Its size is taken when it is opened; a file that shrinks later gives an
/// error, never a fault. Or bytes that stand in memory, a member of an archive say, read the same
/// way.
class InputFile {
public:
  /// `format_name` starts every message. Throws Error(File) when the file cannot be opened or is no
  /// regular file.
  InputFile(std::string_view format_name, std::filesystem::path path);
  /// Of `content`; `path` is for messages.
  InputFile(std::string_view format_name, std::filesystem::path path,
            std::vector<std::byte> content);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  const std::string& format_name() const noexcept { return format_name_; }
  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t size() const noexcept { return size_; }

  /// Fills `out` from `offset` on; throws Error(File) when the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;
  /// The same, but reads what is there and returns how much that was.
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> out) const;

  template <class... Args>
  [[noreturn]] void fail(std::uint64_t offset, fmt::format_string<Args...> format,
                         Args&&... args) const {
    fail_at(format_name_, path_, offset, format, std::forward<Args>(args)...);
  }

private:
  std::string format_name_;
  std::filesystem::path path_;
  std::uint64_t size_ = 0;
  int fd_ = -1; ///< -1: the bytes stand in content_
  std::vector<std::byte> content_;
};

} // namespace egret::io

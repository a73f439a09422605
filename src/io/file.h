// Files as the readers and writers of this room see them: regular files read at an offset, and
// files that appear whole or not at all.
#pragma once

#include "support/fail.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace egret::io {

/// Text from a file, fit for a message: short, control characters and what is not UTF-8 shown as
/// \xNN.
std::string printable(std::string_view text);

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

/// A file written beside its destination and moved over it by commit(): whoever looks sees the old
/// file or the new one, whole, and so does who looks after the machine lost power. Without commit()
/// the destination is untouched and the temporary file is removed.
class AtomicFile {
public:
  /// Links are followed, so that what they point to is replaced. Throws Error(File).
  AtomicFile(std::string_view format_name, const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  std::uint64_t written() const noexcept { return written_; }
  void commit();

private:
  [[noreturn]] void fail_with_errno(std::string_view what) const;

  std::string format_name_;
  std::filesystem::path path_, temporary_;
  std::uint64_t written_ = 0;
  int fd_ = -1;
};

} // namespace egret::io

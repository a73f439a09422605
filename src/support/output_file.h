// Where results go: the file, pipe or device that a path names.
#pragma once

#include "support/temporary_file.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace egret {

/// What is at a path that is to be written.
enum class OutputKind : std::uint8_t {
  File,      ///< a regular file, or nothing yet
  Stream,    ///< a pipe or a character device: written into, never replaced
  Descriptor ///< a file that this process has open, as /dev/stdout is: written through it
};

struct OutputTarget {
  std::filesystem::path path; ///< links followed
  OutputKind kind = OutputKind::File;
  int descriptor = -1; ///< of OutputKind::Descriptor
};

/// Whether a regular file that is there gives way to a new one, or grows.
enum class OutputUse : std::uint8_t { Replace, Append };

/// Looks at the path, following links. Throws Error(File) naming `what` and the path for a folder,
/// a block device or a socket, and where its folder is missing or may not be written to: before
/// long work, so that its result is not lost at the end.
OutputTarget output_target(std::string_view what, const std::filesystem::path& path,
                           OutputUse use = OutputUse::Replace);

/// Writes to a target. A regular file is written beside its destination and moved over it by
/// commit(): whoever looks sees the old file or the new one, whole, and so does who looks after the
/// machine lost power; it keeps the permissions of the file that was there. Without commit() the
/// destination is untouched. A stream is written into at once. All errors are Error(File) naming
/// `what`, the path and the byte.
class OutputFile {
public:
  OutputFile(std::string_view what, const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// From `offset` on: anywhere in a regular file, where nothing else was written yet in a stream.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  std::uint64_t written() const noexcept { return written_; } ///< to where there are bytes
  /// Nothing may be written after it.
  void commit();

private:
  [[noreturn]] void fail(std::string_view doing, int error) const;
  void commit_file();

  std::string what_;
  std::filesystem::path path_; ///< as it was given, for messages
  OutputTarget target_;
  std::optional<TemporaryFile> temporary_; ///< of a regular file
  std::uint64_t written_ = 0;
  int fd_ = -1;
};

/// A whole text to a target.
void write_output(std::string_view what, const std::filesystem::path& path, std::string_view text);

} // namespace egret

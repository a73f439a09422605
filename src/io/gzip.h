// Reading a gzip file piece by piece.
#pragma once

#include "io/file.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace egret::io {

/// True when the file starts with gzip's two magic bytes.
bool is_gzip(const InputFile& file);

/// Unpacks members one after the other; lengths and checksums are verified. Memory use does not
/// depend on the file.
class GzipReader {
public:
  explicit GzipReader(const InputFile& file);
  ~GzipReader();

  /// Fills `out` as far as there is data; less than its size only at the end. Throws Error(File) on
  /// damage.
  std::size_t read(std::span<std::byte> out);
  /// The most that the file can hold: deflate shrinks nothing below 1/1032.
  std::uint64_t most_bytes() const noexcept;

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace egret::io

// ZIP archives as NPZ files are: members stored or deflated, sizes up to 64 bits when read.
// (APPNOTE.TXT 6.3, sections 4.3 and 4.5.3.)
#pragma once

#include "io/file.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace egret::io {

struct ZipMember {
  std::string name;
  bool deflated = false;
  std::uint32_t crc = 0;
  std::uint64_t packed = 0, unpacked = 0; ///< bytes
  std::uint64_t header = 0;               ///< offset of the local header
  std::uint64_t data = 0;                 ///< offset of the packed bytes
};

/// The members of an archive, in the order of its directory, with everything checked that can be
/// without unpacking: names are unique, members lie within the file and do not overlap, sizes are
/// possible. Throws Error(File).
std::vector<ZipMember> zip_members(const InputFile& file);

/// A member's content; its length and checksum are verified. Throws Error(File).
std::vector<std::byte> unzip(const InputFile& file, const ZipMember& member);

/// Writes an archive member by member, with the time fields of 1980 so that equal content gives
/// equal bytes.
class ZipWriter {
public:
  explicit ZipWriter(OutputFile& file) : file_(file) {}
  /// Error(Value) when the name or the archive gets too long for the format without its 64-bit
  /// extension.
  void add(const std::string& name, std::span<const std::byte> content, bool deflated);
  void finish(); ///< the directory; the caller commits the file

private:
  OutputFile& file_;
  std::string directory_;
  std::uint32_t members_ = 0;
};

} // namespace egret::io

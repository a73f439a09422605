#include "io/zip.h"

#include <algorithm>
#include <set>
#include <zlib.h>

namespace egret::io {

namespace {

constexpr std::uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                        kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                      kLocator64Bytes = 20;
constexpr std::uint16_t kStored = 0, kDeflated = 8;
constexpr std::uint32_t kIn64 = 0xffffffffU; ///< a field whose value stands in the 64-bit extension
constexpr std::uint64_t kBestRatio = 1032;   ///< deflate shrinks nothing below 1/1032

std::uint64_t number(std::span<const std::byte> bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;)
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[at + i]);
  return value;
}

std::string text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Where the directory lies.
struct Directory {
  std::uint64_t begin = 0, bytes = 0, members = 0;
  std::uint64_t end = 0; ///< offset of the first record after it
};

Directory find_directory(const InputFile& file) {
  constexpr std::uint64_t kMostComment = 0xffff;
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(file.size(), kEndBytes + kMostComment);
  const std::uint64_t tail_begin = file.size() - tail_bytes;
  std::vector<std::byte> tail(tail_bytes);
  file.read_at(tail_begin, tail);
  for (std::size_t at = tail_bytes < kEndBytes ? 0 : tail_bytes - kEndBytes + 1; at-- > 0;) {
    if (number(tail, at, 4) != kEnd || at + kEndBytes + number(tail, at + 20, 2) != tail_bytes)
      continue;
    const std::uint64_t end = tail_begin + at;
    Directory d{number(tail, at + 16, 4), number(tail, at + 12, 4), number(tail, at + 10, 2), end};
    if (number(tail, at + 4, 2) != 0 || number(tail, at + 6, 2) != 0)
      file.fail(end + 4, "an archive in several parts");
    if (d.members == 0xffff || d.bytes == kIn64 || d.begin == kIn64) {
      std::vector<std::byte> locator(kLocator64Bytes), record(kEnd64Bytes);
      if (end < kLocator64Bytes)
        file.fail(end, "the 64-bit end of the directory is missing");
      file.read_at(end - kLocator64Bytes, locator);
      const std::uint64_t place = number(locator, 8, 8);
      if (number(locator, 0, 4) != kLocator64 || place > end - kLocator64Bytes ||
          end - kLocator64Bytes - place < kEnd64Bytes)
        file.fail(end - kLocator64Bytes, "the 64-bit end of the directory is missing");
      file.read_at(place, record);
      if (number(record, 0, 4) != kEnd64)
        file.fail(place, "the 64-bit end of the directory does not start with its mark");
      d = {number(record, 48, 8), number(record, 40, 8), number(record, 32, 8), place};
    }
    if (d.begin > d.end || d.bytes > d.end - d.begin)
      file.fail(end, "a directory of {} bytes at {} in a file of {}", d.bytes, d.begin,
                file.size());
    if (d.members > d.bytes / kCentralBytes)
      file.fail(end, "{} members in a directory of {} bytes", d.members, d.bytes);
    return d;
  }
  file.fail(0, "not a ZIP archive: it has no directory at its end");
}

/// Replaces the fields that stand in the 64-bit extension.
void read_extension(const InputFile& file, std::uint64_t offset, std::span<const std::byte> extra,
                    ZipMember& member) {
  constexpr std::uint64_t kId = 1;
  std::size_t at = 0;
  while (at + 4 <= extra.size()) {
    const std::uint64_t id = number(extra, at, 2), length = number(extra, at + 2, 2);
    at += 4;
    if (length > extra.size() - at)
      file.fail(offset, "an extra field of {} bytes where {} are left", length, extra.size() - at);
    if (id == kId) {
      std::size_t next = at;
      for (std::uint64_t* field : {&member.unpacked, &member.packed, &member.header})
        if (*field == kIn64) {
          if (next + 8 > at + length)
            file.fail(offset, "a 64-bit size is missing");
          *field = number(extra, next, 8);
          next += 8;
        }
    }
    at += length;
  }
}

/// Finds the packed bytes behind the local header, which must agree with the directory.
void locate_data(const InputFile& file, std::uint64_t limit, ZipMember& member) {
  if (member.header > limit || limit - member.header < kLocalBytes)
    file.fail(member.header, "member '{}' lies outside of the file", member.name);
  std::vector<std::byte> local(kLocalBytes);
  file.read_at(member.header, local);
  const std::uint64_t name_bytes = number(local, 26, 2);
  if (number(local, 0, 4) != kLocal || name_bytes != member.name.size())
    file.fail(member.header, "member '{}' does not start here", member.name);
  std::vector<std::byte> name(name_bytes);
  file.read_at(member.header + kLocalBytes, name);
  if (text(name) != member.name)
    file.fail(member.header, "member '{}' is '{}' in the directory", text(name), member.name);
  member.data = member.header + kLocalBytes + name_bytes + number(local, 28, 2);
  if (member.data > limit || member.packed > limit - member.data)
    file.fail(member.header, "member '{}' of {} bytes lies outside of the file", member.name,
              member.packed);
}

} // namespace

std::vector<ZipMember> zip_members(const InputFile& file) {
  const Directory directory = find_directory(file);
  std::vector<std::byte> bytes(directory.bytes);
  file.read_at(directory.begin, bytes);
  std::vector<ZipMember> members;
  std::set<std::string> names;
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < directory.members; ++i) {
    const std::uint64_t offset = directory.begin + at;
    if (bytes.size() - at < kCentralBytes || number(bytes, at, 4) != kCentral)
      file.fail(offset, "the directory has no entry {} of {} here", i, directory.members);
    const std::uint64_t name = number(bytes, at + 28, 2), extra = number(bytes, at + 30, 2),
                        comment = number(bytes, at + 32, 2), method = number(bytes, at + 10, 2);
    if (name + extra + comment > bytes.size() - at - kCentralBytes)
      file.fail(offset, "the directory ends within entry {}", i);
    auto rest = std::span<const std::byte>(bytes).subspan(at + kCentralBytes);
    ZipMember member{.name = text(rest.first(name)),
                     .deflated = method == kDeflated,
                     .crc = static_cast<std::uint32_t>(number(bytes, at + 16, 4)),
                     .packed = number(bytes, at + 20, 4),
                     .unpacked = number(bytes, at + 24, 4),
                     .header = number(bytes, at + 42, 4)};
    read_extension(file, offset, rest.subspan(name, extra), member);
    if ((number(bytes, at + 8, 2) & 1) != 0)
      file.fail(offset, "member '{}' is encrypted", member.name);
    if (method != kStored && method != kDeflated)
      file.fail(offset, "member '{}' is packed by method {}, which egret does not know",
                member.name, method);
    locate_data(file, directory.begin, member);
    if (member.deflated ? member.unpacked / kBestRatio > member.packed
                        : member.unpacked != member.packed)
      file.fail(offset, "member '{}' cannot hold {} bytes in {}", member.name, member.unpacked,
                member.packed);
    if (!names.insert(member.name).second)
      file.fail(offset, "two members are named '{}'", member.name);
    members.push_back(std::move(member));
    at += kCentralBytes + name + extra + comment;
  }
  if (at != bytes.size())
    file.fail(directory.begin + at, "the directory goes on after its {} entries", members.size());
  std::vector<const ZipMember*> by_place;
  by_place.reserve(members.size());
  for (const ZipMember& member : members)
    by_place.push_back(&member);
  std::sort(by_place.begin(), by_place.end(),
            [](const ZipMember* a, const ZipMember* b) { return a->header < b->header; });
  for (std::size_t i = 1; i < by_place.size(); ++i)
    if (by_place[i - 1]->data + by_place[i - 1]->packed > by_place[i]->header)
      file.fail(by_place[i]->header, "members '{}' and '{}' overlap", by_place[i - 1]->name,
                by_place[i]->name);
  return members;
}

namespace {

std::uint32_t crc_of(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// Raw deflate, with zlib's two states behind one owner.
struct Stream {
  z_stream z = {};
  int (*end)(z_stream*);
  ~Stream() { end(&z); }
};

void inflate_into(const InputFile& file, const ZipMember& member, std::span<const std::byte> packed,
                  std::span<std::byte> out) {
  Stream stream{.end = inflateEnd};
  if (inflateInit2(&stream.z, -MAX_WBITS) != Z_OK)
    fail(ErrorKind::Memory, "{}: {}: no memory to unpack", file.format_name(),
         file.path().string());
  std::byte more = {}; // one place beyond, to see whether there is more
  std::size_t filled = 0, taken = 0;
  constexpr std::size_t kPiece = 1U << 30; // zlib counts in 32 bits
  for (int result = Z_OK; result != Z_STREAM_END;) {
    const std::size_t input = std::min(kPiece, packed.size() - taken);
    std::span<std::byte> room = filled < out.size()
                                    ? out.subspan(filled, std::min(kPiece, out.size() - filled))
                                    : std::span<std::byte>(&more, 1);
    stream.z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data() + taken));
    stream.z.avail_in = static_cast<uInt>(input);
    stream.z.next_out = reinterpret_cast<Bytef*>(room.data());
    stream.z.avail_out = static_cast<uInt>(room.size());
    result = inflate(&stream.z, Z_NO_FLUSH);
    taken += input - stream.z.avail_in;
    const std::size_t made = room.size() - stream.z.avail_out;
    if (made > 0 && filled == out.size())
      file.fail(member.data, "member '{}' unpacks to more than its {} bytes", member.name,
                member.unpacked);
    filled += made;
    if (result != Z_OK && result != Z_STREAM_END)
      file.fail(member.data + taken, "member '{}' is damaged: {}", member.name,
                result == Z_BUF_ERROR     ? "it ends in the middle"
                : stream.z.msg != nullptr ? stream.z.msg
                                          : "not valid");
  }
  if (filled != out.size() || taken != packed.size())
    file.fail(member.data, "member '{}' unpacks to {} bytes from {}, not to {} from {}",
              member.name, filled, taken, out.size(), packed.size());
}

} // namespace

std::vector<std::byte> unzip(const InputFile& file, const ZipMember& member) {
  std::vector<std::byte> content(member.unpacked);
  if (member.deflated) {
    std::vector<std::byte> packed(member.packed);
    file.read_at(member.data, packed);
    inflate_into(file, member, packed, content);
  } else {
    file.read_at(member.data, content);
  }
  if (crc_of(content) != member.crc)
    file.fail(member.data, "member '{}' is damaged: its checksum is not {:08x}", member.name,
              member.crc);
  return content;
}

namespace {

void put(std::string& out, std::uint64_t value, int bytes) {
  for (; bytes > 0; --bytes, value >>= 8U) // of more than 8 the rest are zeros
    out += static_cast<char>(value);
}

std::vector<std::byte> deflated_bytes(std::span<const std::byte> content) {
  Stream stream{.end = deflateEnd};
  if (deflateInit2(&stream.z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    fail(ErrorKind::Memory, "zip: no memory to pack");
  std::vector<std::byte> out(deflateBound(&stream.z, content.size()));
  // The caller has made sure that both fit 32 bits.
  stream.z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(content.data()));
  stream.z.avail_in = static_cast<uInt>(content.size());
  stream.z.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.z.avail_out = static_cast<uInt>(out.size());
  ensure(deflate(&stream.z, Z_FINISH) == Z_STREAM_END, "deflate needs more than its bound");
  out.erase(out.end() - static_cast<std::ptrdiff_t>(stream.z.avail_out), out.end());
  return out;
}

} // namespace

void ZipWriter::add(const std::string& name, std::span<const std::byte> content, bool deflated) {
  constexpr std::size_t kMostName = 60000;
  constexpr std::uint64_t kMostBytes = 0xf0000000U; // with room for headers and the directory
  if (name.empty() || name.size() > kMostName)
    fail(ErrorKind::Value, "zip: a member's name of {} bytes", name.size());
  if (content.size() >= kMostBytes ||
      file_.written() + directory_.size() + content.size() >= kMostBytes || members_ == 0xfffe)
    fail(ErrorKind::Value,
         "zip: '{}' makes the archive larger than the format holds (4 GiB, 65534 "
         "members); use safetensors",
         name);
  const std::vector<std::byte> packed =
      deflated ? deflated_bytes(content) : std::vector<std::byte>();
  const std::span<const std::byte> data = deflated ? std::span<const std::byte>(packed) : content;
  std::string common;       // what both headers say
  put(common, 20, 2);       // version 2.0 unpacks it
  put(common, 1U << 11, 2); // names are UTF-8
  put(common, deflated ? kDeflated : kStored, 2);
  put(common, 0, 2);          // midnight
  put(common, 1 << 5 | 1, 2); // 1980-01-01
  put(common, crc_of(content), 4);
  put(common, data.size(), 4);
  put(common, content.size(), 4);
  put(common, name.size(), 2);
  put(common, 0, 2); // no extra field
  put(directory_, kCentral, 4);
  put(directory_, 20, 2);
  directory_ += common;
  put(directory_, 0, 2 + 2 + 2 + 4); // comment, disk, attributes
  put(directory_, file_.written(), 4);
  directory_ += name;
  std::string local;
  put(local, kLocal, 4);
  file_.write(local + common + name);
  file_.write(data);
  ++members_;
}

void ZipWriter::finish() {
  std::string end;
  put(end, kEnd, 4);
  put(end, 0, 2 + 2); // disks
  put(end, members_, 2);
  put(end, members_, 2);
  put(end, directory_.size(), 4);
  put(end, file_.written(), 4);
  put(end, 0, 2); // comment
  file_.write(directory_ + end);
}

} // namespace egret::io

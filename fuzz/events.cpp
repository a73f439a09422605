// Any bytes as an event file: an Error(File), or its scalars. Checksums would stop nearly every
// input, so they are also put right: the input is split into records at its zero bytes.
#include "io/crc32c.h"
#include "io/event_file.h"

#include <cstdlib>

namespace {

void put(std::vector<std::byte>& out, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

void put_record(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  const std::size_t head = out.size();
  put(out, bytes.size(), 8);
  put(out, egret::io::masked_crc32c(std::span(out).subspan(head, 8)), 4);
  out.insert(out.end(), bytes.begin(), bytes.end());
  put(out, egret::io::masked_crc32c(bytes), 4);
}

void read(std::vector<std::byte> content) {
  using namespace egret;
  try {
    std::size_t bytes = 0;
    const std::size_t size = content.size();
    for (const auto& event : io::read_events(io::InputFile("events", "fuzz", std::move(content))))
      bytes += event.tag.size() + sizeof event.value;
    if (bytes > size)
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File)
      std::abort();
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  read({input.begin(), input.end()});
  std::vector<std::byte> whole;
  for (std::size_t begin = 0; begin < size;) {
    std::size_t end = begin;
    while (end < size && data[end] != 0)
      ++end;
    put_record(whole, input.subspan(begin, end - begin));
    begin = end + 1;
  }
  read(std::move(whole));
  return 0;
}

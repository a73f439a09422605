// Any bytes as a gzip file: an Error(File), or at most the bytes that were allowed.
#include "io/gzip.h"
#include "memory_file.h"

#include "egret/io.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  MemoryFile file(data, size);
  constexpr std::uint64_t kMost = 1 << 16;
  try {
    auto bytes = io::read_gzip(file.path(), kMost);
    if (bytes.size() > kMost)
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File)
      std::abort();
  }
  return 0;
}

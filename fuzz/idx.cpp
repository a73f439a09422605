// Any bytes as an IDX file, plain or packed: an Error(File), or an array of at most what was
// allowed.
#include "memory_file.h"

#include "egret/io.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  MemoryFile file(data, size);
  constexpr std::uint64_t kMost = 1 << 16;
  try {
    if (io::load_idx(file.path(), kMost).to_bytes().size() > kMost)
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File)
      std::abort();
  }
  return 0;
}

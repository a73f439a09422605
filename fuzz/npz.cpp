// Any bytes as an NPZ file: an Error(File), or arrays that hold at most what was allowed.
#include "memory_file.h"

#include "egret/io.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  MemoryFile file(data, size);
  constexpr std::uint64_t kMost = 1 << 16;
  try {
    std::uint64_t bytes = 0;
    for (const auto& [name, tensor] : io::load_npz(file.path(), kMost))
      bytes += tensor.to_bytes().size();
    if (bytes > kMost)
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File)
      std::abort();
  }
  return 0;
}

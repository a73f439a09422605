// Any bytes as an NPY file: an Error(File), or a header that accounts for every byte.
#include "io/npy_header.h"
#include "memory_file.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  MemoryFile file(data, size);
  try {
    auto header = io::read_npy_header(io::InputFile("npy", file.path()));
    std::uint64_t bytes = size_of(header.dtype);
    for (std::int64_t dim : header.shape)
      bytes *= static_cast<std::uint64_t>(dim);
    if (header.data_start + bytes != size)
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File)
      std::abort();
  }
  return 0;
}

// Any bytes as an image: an Error(File), or as many pixels as its size says.
#include "egret/image.h"
#include "memory_file.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  MemoryFile file(data, size);
  try {
    const Tensor pixels = io::load_image(file.path());
    if (pixels.rank() != 3 || pixels.size(2) != 3 || pixels.numel() < 3)
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File && error.kind() != ErrorKind::Memory)
      std::abort();
  }
  return 0;
}

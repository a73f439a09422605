// Any bytes as a WAV file: an Error(File), or samples of at least one channel.
#include "egret/audio.h"
#include "memory_file.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  MemoryFile file(data, size);
  try {
    const io::Sound sound = io::load_wav(file.path());
    if (sound.samples.rank() != 2 || sound.samples.numel() < 1 || sound.rate < 1)
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File)
      std::abort();
  }
  return 0;
}

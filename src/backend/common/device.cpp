#include "backend/common/device.h"

#include <cstring>

namespace egret::backend {

void Device::copy_in(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void Device::copy_out(void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void Device::copy(void* to, const void* from, std::size_t bytes, int) {
  std::memcpy(to, from, bytes);
}

int Device::submit(std::span<const Work> work, std::unique_ptr<Recording>*, int workers) {
  for (const Work& item : work)
    if (item.artifact)
      launch(*item.artifact, *item.program, item.block, workers);
    else if (item.bytes > 0)
      copy(item.to, item.from, item.bytes, workers);
  return static_cast<int>(work.size());
}

} // namespace egret::backend

// A CPU without memory, for tests of what fails then and what goes on.
#pragma once

#include "egret/error.h"
#include "egret/memory.h"
#include "egret/tensor.h"

#include <cstddef>
#include <vector>

namespace egret::test {

/// While it lives, no block of memory can be had for tensors and programs on the CPU. Nothing else
/// may compute while it is made.
class MemoryShortage {
public:
  MemoryShortage() {
    (void)trim("cpu");
    set_memory_limit("cpu", 1);
    // What is reserved and free is taken, to the last bytes.
    for (std::size_t bytes = std::size_t{1} << 20; bytes >= 16; bytes /= 4)
      try {
        const std::vector<std::byte> zero(bytes);
        for (;;)
          taken_.push_back(from_bytes(DType::U8, {static_cast<std::int64_t>(bytes)}, zero));
      } catch (const Error&) { // there are no more of this size
      }
  }
  ~MemoryShortage() { set_memory_limit("cpu", 0); }
  MemoryShortage(const MemoryShortage&) = delete;
  MemoryShortage& operator=(const MemoryShortage&) = delete;

  /// From now on there is memory up to so many bytes in use.
  void allow(std::uint64_t bytes) {
    taken_.clear();
    (void)trim("cpu");
    set_memory_limit("cpu", memory_stats("cpu").reserved + bytes);
  }

private:
  std::vector<Tensor> taken_;
};

} // namespace egret::test

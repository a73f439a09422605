#include "backend/common/host_launch.h"

#include "backend/common/launch_number.h"

#include <algorithm>
#include <map>
#include <vector>

namespace egret::backend {
namespace {

// Addresses are the same below this.
constexpr std::size_t kPage = 4096;

// A buffer of the host and its double on the device.
class Double {
public:
  Double(Device& device, void* host, std::size_t bytes, std::size_t margin)
      : device_(device), host_(static_cast<std::byte*>(host) - margin), bytes_(bytes + 2 * margin),
        allocated_(bytes_ + 2 * kPage) {
    memory_ = device.allocate(allocated_);
    const auto base = reinterpret_cast<std::uintptr_t>(memory_);
    const auto wanted = reinterpret_cast<std::uintptr_t>(host_) % kPage;
    start_ = static_cast<std::byte*>(memory_) + (wanted + kPage - base % kPage) % kPage;
    margin_ = margin;
    if (bytes_ > 0)
      device_.copy_in(start_, host_, bytes_);
  }
  ~Double() { device_.release(memory_, allocated_); }
  Double(const Double&) = delete;
  Double& operator=(const Double&) = delete;

  void* data() const { return start_ + margin_; }
  void copy_back() {
    if (bytes_ > 0)
      device_.copy_out(host_, start_, bytes_);
  }

private:
  Device& device_;
  std::byte* host_;
  std::size_t bytes_, allocated_, margin_ = 0;
  void* memory_ = nullptr;
  std::byte* start_ = nullptr;
};

} // namespace

void launch_on_host_memory(Device& device, const Artifact& artifact,
                           const kernel::KernelProgram& program, const kernel::ArgBlock& block,
                           int workers, std::size_t margin) {
  if (device.host_memory()) {
    device.launch(artifact, program, block, workers);
    device.synchronize();
    return;
  }
  std::vector<std::size_t> sizes; // by pointer of the block
  for (const auto space : {kernel::Space::Argument, kernel::Space::Workspace})
    for (const kernel::Buffer& buffer : program.buffers)
      if (buffer.space == space)
        sizes.push_back(static_cast<std::size_t>(std::max<std::int64_t>(
                            0, LaunchNumber(buffer.elements, program.dims).at(block.dims))) *
                        size_of(buffer.dtype));
  std::map<void*, std::size_t> wanted;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    wanted[block.pointers[i]] = std::max(wanted[block.pointers[i]], sizes[i]);
  std::map<void*, Double> doubles;
  for (auto [host, bytes] : wanted)
    doubles.try_emplace(host, device, host, bytes, margin);
  std::vector<void*> pointers;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    pointers.push_back(doubles.at(block.pointers[i]).data());
  kernel::ArgBlock there = block;
  there.pointers = pointers.data();
  device.launch(artifact, program, there, workers);
  device.synchronize();
  for (auto& [host, copy] : doubles)
    copy.copy_back();
}

} // namespace egret::backend

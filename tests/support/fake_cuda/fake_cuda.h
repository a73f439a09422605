// A CUDA driver and an NVRTC that run on the host, for tests of everything around them. They are
// one shared library, which egret opens as it opens the real ones. Its device memory is memory
// whose addresses the host cannot use; machine code is the text that it was "compiled" from; a
// launch calls back the test.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace egret::testing {

struct FakeLaunch {
  const char* symbol;
  const char* text;
  const void* args; ///< the parameter struct
  unsigned blocks, threads, shared_bytes;
};

/// What a test sets and reads. Counts are since the library was loaded.
struct FakeCuda {
  int driver_version = 13000, nvrtc_version = 13;
  int devices = 1;
  int capability = 90;
  std::size_t memory = std::size_t{1} << 30;

  /// The function of this name gives `failure` once `failures_after` calls of it have passed.
  const char* failing = nullptr;
  int failure = 0, failures_after = 0;
  const char* compile_error = nullptr;   ///< the log of a compilation that fails; null: it works
  const char* only_texts_with = nullptr; ///< these fail, and no others; null: all do

  bool only_ptx = false; ///< cubins are for another GPU

  void (*launcher)(const FakeLaunch&, void* data) = nullptr;
  void* launcher_data = nullptr;

  std::size_t used = 0; ///< bytes of device memory handed out
  std::uint64_t allocations = 0, launches = 0, copies = 0, graphs_made = 0, graph_launches = 0,
                nodes_changed = 0, modules = 0, tensor_maps = 0,
                early_launches = 0, ///< asked for with programmatic stream serialization
      tensor_map_numbers = 0;       ///< a hash of all that they were made of but addresses
  std::uint64_t compilations = 0;   ///< by any thread: to be read with compilations_now()

  std::uint64_t compilations_now() { return std::atomic_ref(compilations).load(); }
};

/// Device addresses are those of the host with some bits turned over, so that using one on the host
/// is a fault.
inline constexpr std::uint64_t kFakeAddressBits = 0x5a00000000000000u;
inline void* host_address(const void* device) {
  return reinterpret_cast<void*>(reinterpret_cast<std::uint64_t>(device) ^ kFakeAddressBits);
}

/// Of the library at `path`, reset to the values above (counts too).
FakeCuda& fake_cuda(const char* path);

} // namespace egret::testing

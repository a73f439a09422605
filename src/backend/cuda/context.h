// A GPU opened for this process: its context, the queue that all of egret's work for it goes
// through, and what is known of it.
#pragma once

#include "backend/cuda/driver.h"
#include "kernel/target.h"

#include <memory>
#include <string>

namespace egret::backend::cuda {

/// The device's primary context, which it shares with every other user of CUDA in the process, and
/// one stream: what is put there runs in order.
class Context {
public:
  /// Error(Device) when there is no GPU of this index, or it is too old or cannot be had.
  Context(std::shared_ptr<const Driver> driver, int index);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const noexcept { return *driver_; }
  const DriverApi& api() const noexcept { return driver_->api; }
  const std::string& name() const noexcept { return name_; }   ///< "cuda:0"
  const std::string& model() const noexcept { return model_; } ///< "NVIDIA H200"
  StreamHandle stream() const noexcept { return stream_; }
  ContextHandle handle() const noexcept { return handle_; }
  const kernel::Target& target() const noexcept { return target_; }

  void synchronize() const;
  void synchronize_default() const; ///< waits for the legacy default stream, which others use
  int attribute(int which) const;

  /// Makes the context the calling thread's for as long as the object lives.
  class Use {
  public:
    explicit Use(const Context& context);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

  private:
    const Context& context_;
  };

private:
  void describe();
  std::shared_ptr<const Driver> driver_;
  DeviceNumber device_ = 0;
  ContextHandle handle_ = nullptr;
  StreamHandle stream_ = nullptr;
  std::string name_, model_;
  kernel::Target target_;
};

/// A point in the stream that can be waited for, and timed when asked for.
class Event {
public:
  explicit Event(const Context& context, bool timed = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record();
  void wait() const; ///< until what was queued before record() is done
  bool done() const;
  double seconds_since(const Event& earlier) const; ///< both timed and done

private:
  const Context& context_;
  EventHandle handle_ = nullptr;
};

struct AvailableDevice {
  std::string name; ///< "cuda:0"
  bool usable = false;
  std::string text; ///< "NVIDIA H200, sm_90a, 132 multiprocessors, 139.8 GiB", or why not
};
/// What `egret info` and errors tell of CUDA on this machine.
struct Availability {
  bool usable = false;       ///< driver, GPU and NVRTC are all there
  std::string why_not;       ///< the first thing that is missing
  std::string driver, nvrtc; ///< "CUDA 13.0 (libcuda.so.1)", empty when not there
  std::vector<AvailableDevice> devices;
};
Availability availability(const LibraryPaths& paths = default_paths());

} // namespace egret::backend::cuda

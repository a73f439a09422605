// The CUDA driver of this machine, found at run time, and the errors of its calls.
#pragma once

#include "backend/cuda/driver_api.h"
#include "backend/cuda/library.h"
#include "support/fail.h"

#include <memory>
#include <string>

namespace egret::backend::cuda {

/// The oldest driver that is used: the one of CUDA 12.0.
inline constexpr int kLeastDriver = 12000;

/// An initialized driver. Calls go through `api` and their results through check().
class Driver {
public:
  /// Throws Error(Device) that says why CUDA is not there: no driver library, one that lacks a
  /// function, one that is too old, or no GPU that it may use.
  static std::shared_ptr<const Driver> load(const LibraryPaths& paths = default_paths());
  /// The process's driver by the default paths, loaded at the first call; a failure is thrown anew
  /// at each call.
  static std::shared_ptr<const Driver> instance();

  DriverApi api;
  int version() const noexcept { return version_; } ///< 13000 for CUDA 13.0
  int device_count() const noexcept { return devices_; }
  const std::string& path() const noexcept { return path_; }

  /// Throws unless `result` is success: Error(Memory) when memory is exhausted, else Error(Device).
  /// The rest says what was being done, "copying 12 bytes to cuda:0".
  template <class... Args>
  void check(Result result, fmt::format_string<Args...> doing, Args&&... args) const {
    if (result != kSuccess)
      raise(result, fmt::format(doing, std::forward<Args>(args)...));
  }
  /// "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)".
  std::string text_of(Result result) const;

private:
  [[noreturn]] void raise(Result result, const std::string& doing) const;
  std::string path_;
  int version_ = 0, devices_ = 0;
};

/// "13.0" for 13000.
std::string version_text(int version);

} // namespace egret::backend::cuda

// A hook that sees every launch, for profilers and traces.
#pragma once

#include "backend/reference/host_array.h"
#include "compiler/compiled.h"

#include <chrono>
#include <functional>
#include <memory>

namespace egret::runtime {

struct LaunchRecord {
  const compiler::KernelReport& kernel;
  std::chrono::steady_clock::time_point begin, end; ///< the device is waited for before `end`
  const compiler::LaunchValues& values;             ///< of CompileReport::graph
  /// What the launch stored, by place in values.outputs. Only during the call.
  std::function<backend::reference::HostArray(std::size_t output)> stored;
};

/// Called after every launch by the thread that launched; empty: none. Replaces the one before.
void set_launch_hook(std::function<void(const LaunchRecord&)> hook);

/// The hook as it is now; null most of the time.
std::shared_ptr<const std::function<void(const LaunchRecord&)>> launch_hook();

} // namespace egret::runtime

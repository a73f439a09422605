// The CPU device at each instruction-set level that EGRET_CPU offers, for tests that must hold at
// all of them.
#pragma once

#include "backend/cpu/cpu_device.h"
#include "egret/error.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace egret::testing {

/// Sets an environment variable for the life of the object.
class ScopedEnvironment {
public:
  ScopedEnvironment(std::string name, const char* value) : name_(std::move(name)) {
    if (const char* before = std::getenv(name_.c_str())) {
      had_ = true;
      before_ = before;
    }
    setenv(name_.c_str(), value, 1);
  }
  ~ScopedEnvironment() {
    if (had_)
      setenv(name_.c_str(), before_.c_str(), 1);
    else
      unsetenv(name_.c_str());
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

private:
  std::string name_, before_;
  bool had_ = false;
};

/// One device a level, kept for the process.
inline backend::Device& cpu_at(const std::string& level) {
  static std::unique_ptr<backend::Device> devices[3];
  int index = level == "native" ? 0 : level == "avx2" ? 1 : 2;
  if (!devices[index]) {
    ScopedEnvironment cpu("EGRET_CPU", level.c_str());
    devices[index] = backend::cpu::make_cpu_device(2);
  }
  return *devices[index];
}

/// The levels that this machine can run.
inline std::vector<const char*> cpu_levels() {
  std::vector<const char*> levels;
  for (const char* level : {"native", "avx2", "sse2"})
    try {
      cpu_at(level);
      levels.push_back(level);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Device)
        throw;
    }
  return levels;
}

} // namespace egret::testing

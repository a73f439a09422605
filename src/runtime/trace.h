// Events of a process as Chrome's and Perfetto's viewers read them (Trace Event Format).
#pragma once

#include "compiler/record/origins.h"
#include "runtime/profile.h"
#include "runtime/program.h"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace egret::runtime {

/// Collects what an Observer sees. Thread-safe.
class Trace : public std::enable_shared_from_this<Trace> {
public:
  static constexpr std::size_t kMostEvents = std::size_t{1} << 18; ///< later ones are counted

  /// Calls this object, which lives as long as it. While it observes, call_sites::Wanted makes the
  /// lines of the program known.
  Observer observer();
  /// One complete document: a row each of the user's ranges, of the compiler, of launches, with the
  /// lines of the program that recorded what they compute, and of copies by thread; a counter of
  /// the memory of each device. Times are microseconds from the first event on. Nothing is
  /// collected behind it.
  std::string text();

private:
  struct Span {
    int row; ///< 0: the compiler, 1: launches, 2: copies, 3: ranges
    int thread;
    std::string name;
    TimePoint begin;
    double seconds;
    std::vector<std::string> ops; ///< of a launch
    std::string about;            ///< its schedule; the fusion plan of a pass
    std::size_t bytes;            ///< that are read and written, or copied
    double flops;
    const compiler::KernelReport* kernel = nullptr; ///< of a launch
  };
  struct Compiled {
    std::shared_ptr<const Program> program;
    std::shared_ptr<compiler::OriginRecord> origins;
  };
  struct Memory {
    std::string device;
    TimePoint at;
    std::size_t in_use, reserved;
  };

  void add(Span span);
  void add(Memory memory);
  bool has_room(); ///< with the mutex locked
  int thread();    ///< of the caller, from 1; with the mutex locked
  /// Of the kernels that were compiled meanwhile.
  std::map<const compiler::KernelReport*, std::vector<std::string>> lines();

  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  std::vector<Memory> memory_;
  std::vector<Compiled> compiled_;
  std::vector<std::size_t> threads_; ///< hashes of their ids, in the order in which they came
  std::size_t left_out_ = 0;
};

} // namespace egret::runtime

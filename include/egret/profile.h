// A trace of what compiles and runs, for Perfetto and chrome://tracing (docs/seeing.md).
#pragma once

#include <memory>
#include <string>

namespace egret {

/// While one lives, passes of the compiler, launches with the lines of the program that recorded
/// what they compute, ranges (range.h), copies between devices and the memory in use are collected;
/// close() writes them as a trace, which https://ui.perfetto.dev and chrome://tracing read. Each
/// launch waits for the one before, so that its time is its own. Any number at a time.
///
///   Profile profile("trace.json");
///   step(model, optimizer, x, y);
///   profile.close();
class Profile {
public:
  /// Error(File) for a path that cannot be written to, before anything runs.
  explicit Profile(const std::string& path);
  /// Closes it; an error of the file is lost then.
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Writes the file. Error(File) names the path; a second call does nothing.
  void close();

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret

// Other programs, run to their end, and folders for what they read and write.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace egret {

/// How a process ended.
struct Ended {
  int error = 0;  ///< an errno: it could not be run
  int code = 0;   ///< its exit code
  int signal = 0; ///< or the signal that ended it
  /// What went wrong, unless it ran to its end; its exit code may be any.
  std::string why_not_run() const;
};

struct ProcessOptions {
  /// Both of its outputs go to this file, and it reads nothing; empty: it has this process's.
  std::filesystem::path output;
  std::vector<std::string> environment; ///< "NAME=value", beside and before this process's
};

/// Runs a program, which is looked for as a shell does, and waits for it.
Ended run_process(const std::vector<std::string>& command, const ProcessOptions& options = {});

/// A folder for this process alone, which goes with the object.
class TemporaryFolder {
public:
  /// Below the system's folder for temporary files, as NAME-XXXXXX. Error(File) that begins with
  /// `who` where none can be made.
  TemporaryFolder(std::string_view who, std::string_view name);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

private:
  std::filesystem::path path_;
};

} // namespace egret

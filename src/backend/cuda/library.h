// A shared library that is looked for at run time: no program depends on it to start.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace egret::backend::cuda {

/// Where to look, in order: names for the dynamic linker, or paths.
struct LibraryPaths {
  std::vector<std::string> driver; ///< libcuda
  std::vector<std::string> nvrtc;
  std::vector<std::string> cublaslt;
};

/// The usual names and folders. EGRET_CUDA_DRIVER, EGRET_NVRTC and EGRET_CUBLASLT, where set, name
/// the only file that is tried.
LibraryPaths default_paths();

/// Where a library of CUDA's toolkit may be ("libcublas"): the file that the environment variable
/// `only` names, or else the usual names and folders.
std::vector<std::string> toolkit_paths(const std::string& name, const char* only);

/// An open shared library. It stays loaded until the process ends: libraries of drivers do not
/// survive being unloaded.
class Library {
public:
  Library() = default;
  /// The first of `paths` that opens; empty when none does.
  static Library open_first(std::span<const std::string> paths);

  explicit operator bool() const noexcept { return handle_ != nullptr; }
  const std::string& path() const noexcept { return path_; }
  /// What was tried and why it failed, for people.
  const std::string& failures() const noexcept { return failures_; }
  /// Null when the library has no such symbol.
  void* symbol(const char* name) const noexcept;

private:
  void* handle_ = nullptr;
  std::string path_, failures_;
};

} // namespace egret::backend::cuda

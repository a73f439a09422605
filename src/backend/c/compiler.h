// The system's C compiler, as a program that is run.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace egret::backend::c {

/// A shared object in this process, unloaded with the object.
class Library {
public:
  /// Error(Device) with the loader's words when it cannot be loaded.
  explicit Library(const std::filesystem::path& file);
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  /// Error(Device) when it has no such function.
  void* function(const std::string& name) const;

private:
  void* handle_;
};

class Compiler {
public:
  /// The one that EGRET_CC names, else `cc`. Error(Device) that says what is missing and how it is
  /// had when it cannot be run.
  static Compiler find();

  const std::string& command() const noexcept { return command_; } ///< as it is run
  const std::string& version() const noexcept { return version_; } ///< the first line that it says

  /// A shared object with what the text defines, as bytes. `name`: of the kernel, for messages.
  /// Error(Unsupported) with the compiler's words when it refuses the text, Error(Device) when it
  /// cannot be run or nothing can be written.
  std::string compile(std::string_view text, const std::string& name) const;

private:
  std::string command_, version_;
};

/// Loads an object that compile() made. `name`: of its file, which is gone when this returns.
std::unique_ptr<Library> load(std::string_view object, const std::string& name);

} // namespace egret::backend::c

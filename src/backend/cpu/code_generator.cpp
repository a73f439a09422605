#include "backend/cpu/code_generator.h"

#include "backend/common/host_machine.h"
#include "backend/cpu/code_version.h"
#include "support/fail.h"
#include "support/own_folder.h"

#include <dlfcn.h>
#include <unistd.h>

#include <vector>

namespace egret::backend::cpu {
#ifndef EGRET_LLVM_LINKED
namespace {

constexpr const char* kFile = "libegret_llvm.so";

// Beside the library or the command that holds this code, or where the one is found from the other.
std::vector<std::string> files() {
  if (const std::string_view only = environment("EGRET_LLVM"); !only.empty())
    return {std::string(only)};
  const std::filesystem::path folder = own_folder();
  return {(folder / kFile).string(),
          (folder / EGRET_LIBRARIES_FROM_COMMAND / kFile).lexically_normal().string()};
}

} // namespace
#endif

const CodeGeneratorLibrary& load_code_generator(std::span<const std::string> files) {
  for (const std::string& file : files) {
    if (::access(file.c_str(), F_OK) != 0)
      continue;
    // Never closed: code and its generators may outlive every static object.
    void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      fail(ErrorKind::Device, "cpu code generator: {}", ::dlerror());
    void* const function = ::dlsym(library, "egret_code_generator");
    if (function == nullptr)
      fail(ErrorKind::Device, "cpu code generator: {} is no code generator of egret", file);
    const CodeGeneratorLibrary& found =
        *reinterpret_cast<decltype(&egret_code_generator)>(function)();
    if (found.sources != source_version())
      fail(ErrorKind::Device, "cpu code generator: {} belongs to another build of egret", file);
    return found;
  }
  fail(ErrorKind::Device,
       "cpu code generator: there is no {}; install it there, or set EGRET_LLVM to its path",
       fmt::join(files, " or "));
}

const CodeGeneratorLibrary& code_generator_library() {
#ifdef EGRET_LLVM_LINKED
  return *egret_code_generator();
#else
  static const CodeGeneratorLibrary& library = load_code_generator(files());
  return library;
#endif
}

} // namespace egret::backend::cpu

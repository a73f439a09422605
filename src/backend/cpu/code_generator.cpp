#include "backend/cpu/code_generator.h"

#include "backend/common/host_machine.h"
#include "backend/cpu/code_version.h"
#include "support/fail.h"
#include "support/own_folder.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

namespace egret::backend::cpu {
namespace {

template <class T>
bool read_at(std::ifstream& file, std::uint64_t offset, T& to) {
  file.seekg(static_cast<std::streamoff>(offset));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(&to), sizeof to));
}

// Why the file must not be loaded; empty: nothing speaks against it. The loader maps what a header
// promises and touches it: of a library that was copied in part, that ends the process.
std::string reason_against(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode))
    return "is no regular file";
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!file || !read_at(file, 0, header) ||
      !std::equal(std::begin(header.e_ident), std::begin(header.e_ident) + SELFMAG, ELFMAG) ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr))
    return {}; // the loader says what it is
  for (std::uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    if (header.e_phoff > size || !read_at(file, header.e_phoff + i * sizeof part, part) ||
        (part.p_type == PT_LOAD && (part.p_offset > size || part.p_filesz > size - part.p_offset)))
      return "ends before its contents do";
  }
  return {};
}

} // namespace
#ifndef EGRET_LLVM_LINKED
namespace {

constexpr const char* kFile = "libegret_llvm.so";
constexpr const char* kVariable = "EGRET_LLVM";

// Beside the library or the command that holds this code, or where the one is found from the other.
std::vector<std::string> files() {
  const std::filesystem::path folder = own_folder();
  return {(folder / kFile).string(),
          (folder / EGRET_LIBRARIES_FROM_COMMAND / kFile).lexically_normal().string()};
}

} // namespace
#endif

const CodeGeneratorLibrary& load_code_generator(std::span<const std::string> files,
                                                std::string_view variable) {
  const std::string who =
      variable.empty() ? "cpu code generator" : fmt::format("cpu code generator: {}", variable);
  for (const std::string& file : files) {
    if (struct stat status{}; ::stat(file.c_str(), &status) != 0)
      continue;
    if (const std::string reason = reason_against(file); !reason.empty())
      fail(ErrorKind::Device, "{}: {} {}", who, file, reason);
    // Never closed: code and its generators may outlive every static object.
    // The loader looks for a name without a slash in folders of its own, and not where it was seen.
    const std::string path = file.find('/') == std::string::npos ? "./" + file : file;
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      fail(ErrorKind::Device, "{}: {}", who, ::dlerror());
    void* const function = ::dlsym(library, "egret_code_generator");
    if (function == nullptr)
      fail(ErrorKind::Device, "{}: {} is no code generator of egret", who, file);
    const CodeGeneratorLibrary& found =
        *reinterpret_cast<decltype(&egret_code_generator)>(function)();
    if (found.sources != source_version())
      fail(ErrorKind::Device, "{}: {} belongs to another build of egret", who, file);
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
  static const CodeGeneratorLibrary& library = [&]() -> const CodeGeneratorLibrary& {
    if (const std::string_view only = environment(kVariable); !only.empty())
      return load_code_generator(std::vector{std::string(only)}, kVariable);
    return load_code_generator(files());
  }();
  return library;
#endif
}

} // namespace egret::backend::cpu

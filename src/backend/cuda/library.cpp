#include "backend/cuda/library.h"

#include "backend/common/host_machine.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace egret::backend::cuda {

LibraryPaths default_paths() {
  LibraryPaths paths;
  if (const std::string_view only = environment("EGRET_CUDA_DRIVER"); !only.empty())
    paths.driver = {std::string(only)};
  else
    paths.driver = {"libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1",
                    "/usr/lib/wsl/lib/libcuda.so.1"};
  paths.nvrtc = toolkit_paths("libnvrtc", "EGRET_NVRTC");
  paths.cublaslt = toolkit_paths("libcublasLt", "EGRET_CUBLASLT");
  return paths;
}

std::vector<std::string> toolkit_paths(const std::string& name, const char* only) {
  if (const std::string_view path = environment(only); !path.empty())
    return {std::string(path)};
  const char* versions[] = {".so.13", ".so.12", ".so"};
  std::vector<std::string> paths, folders;
  for (const char* version : versions)
    paths.push_back(name + version);
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string_view home = environment(variable); !home.empty())
      folders.push_back(std::string(home) + "/lib64/");
  folders.insert(folders.end(),
                 {"/usr/local/cuda/lib64/", "/usr/local/cuda-13/lib64/",
                  "/usr/local/cuda-12/lib64/", "/usr/local/cuda-13.0/lib64/", "/opt/cuda/lib64/"});
  for (const std::string& folder : folders)
    for (const char* version : versions)
      paths.push_back(folder + name + version);
  return paths;
}

Library Library::open_first(std::span<const std::string> paths) {
  Library library;
  std::string names, reason; // of the files that failed for one reason, one after the other
  const auto told = [&] {
    if (!names.empty())
      library.failures_ +=
          fmt::format("{}{}: {}", library.failures_.empty() ? "" : "; ", names, reason);
    names.clear();
  };
  for (const std::string& path : paths) {
    library.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle_) {
      library.path_ = path;
      return library;
    }
    const char* said = dlerror();
    std::string why = said ? said : "cannot be opened";
    if (why.starts_with(path + ": "))
      why.erase(0, path.size() + 2);
    if (why != reason)
      told();
    names += (names.empty() ? "" : ", ") + path;
    reason = std::move(why);
  }
  told();
  return library;
}

void* Library::symbol(const char* name) const noexcept {
  return handle_ ? dlsym(handle_, name) : nullptr;
}

} // namespace egret::backend::cuda

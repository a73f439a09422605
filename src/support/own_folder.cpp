#include "support/own_folder.h"

#include <dlfcn.h>

namespace egret {

namespace fs = std::filesystem;

fs::path own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 || !info.dli_fname)
    return {};
  std::error_code error;
  fs::path file = fs::canonical(info.dli_fname, error);
  if (error) // a program that was started by its name alone
    file = fs::canonical("/proc/self/exe", error);
  return file.parent_path();
}

} // namespace egret

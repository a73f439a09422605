#include "backend/cuda/files.h"

#include "support/cache_folder.h"
#include "support/private_file.h"

#include <filesystem>

namespace egret::backend::cuda {

namespace fs = std::filesystem;

std::string keep_text(const std::string& name, std::string_view text) noexcept {
  try {
    std::error_code error;
    if (auto folder = cache_folder())
      if (fs::path path = *folder / "failed" / name; !write_private(path, text))
        return path.string();
    fs::path path = fs::temp_directory_path(error) / ("egret-" + name);
    if (!error && !write_private(path, text))
      return path.string();
  } catch (...) {
  }
  return {};
}

} // namespace egret::backend::cuda

#include "backend/cuda/files.h"

#include "support/cache_folder.h"

#include <unistd.h>

#include <atomic>
#include <fstream>

namespace egret::backend::cuda {

namespace fs = std::filesystem;

bool write_atomically(const fs::path& path, std::string_view bytes) noexcept {
  static std::atomic<unsigned> number{0};
  try {
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    fs::path fresh = path;
    fresh += "." + std::to_string(getpid()) + "-" + std::to_string(number++) + ".new";
    std::ofstream file(fresh, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (file)
      fs::rename(fresh, path, error);
    if (file && !error)
      return true;
    fs::remove(fresh, error);
  } catch (...) { // no memory for a name: as if the disk were full
  }
  return false;
}

std::string keep_text(const std::string& name, std::string_view text) noexcept {
  try {
    std::error_code error;
    if (auto folder = cache_folder())
      if (fs::path path = *folder / "failed" / name; write_atomically(path, text))
        return path.string();
    fs::path path = fs::temp_directory_path(error) / ("egret-" + name);
    if (!error && write_atomically(path, text))
      return path.string();
  } catch (...) {
  }
  return {};
}

} // namespace egret::backend::cuda
